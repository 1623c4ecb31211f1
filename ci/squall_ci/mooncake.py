"""The part of `ci/run suite nixl` that moves host memory between two of Mooncake's transfer engines.

The engine's protocol `efa` is the only one that uses libfabric. It needs a verbs device and the provider `efa`, so a library
that is preloaded into the unmodified wheel (fabtests/nixl/verbs.c) stands in for the device and answers with squall: this
is a test, not a way to use Mooncake.
"""

import pathlib
import re

from squall_ci import foreign, hosts
from squall_ci.commands import setup
from squall_ci.environment import provider_run
from squall_ci.job import Job, run_ranks
from squall_ci.mpis import MPIS
from squall_ci.paths import FABTESTS, TARGET
from squall_ci.process import Word
from squall_ci.programs import compile_c
from squall_ci.tally import Tally

VERSION = "0.3.13.post1"
# Without what other parts of the wheel depend on. The wheel for hosts without EFA has no protocol of libfabric.
REQUIREMENTS = ("--no-deps", f"mooncake-transfer-engine-efa-non-cuda=={VERSION}", "numpy")
PYTHON = TARGET / "venv-mooncake" / "bin" / "python"
PROGRAM = FABTESTS / "nixl" / "mooncake_transfer.py"
VERBS = pathlib.Path("/usr/include/infiniband/verbs.h")
# The bytes that the test moves in each direction at least.
LEAST = 64 << 20
# Name of this part of the suite, and the conditions in which its contents are compared.
NAME = "mooncake"
CONDITIONS = {
    "packets": {"FI_SQUALL_SHM": "no"},
    "damaged packets": {"FI_SQUALL_SHM": "no", "FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=1%"},
    "shared memory": {"FI_SQUALL_SHM": "yes"},
}


def chosen(only: str, apart: bool) -> list[str]:
    """Returns the conditions that `--only` and `--hosts` select."""
    return [
        title for title in CONDITIONS if re.search(only, f"{NAME}, {title}") and not (apart and title == "shared memory")
    ]


def transport_problem(output: str) -> str | None:
    """Returns None if the engines of both processes report that their transport uses squall, otherwise what they report."""
    found = re.findall(r"EFA device \(libfabric\): .*, provider: ([\w;]+)", output)
    return None if found == ["squall"] * 2 else f"the engines named the providers {found}, expected squall twice"


def missing() -> str | None:
    """Installs the wheel. Returns what prevents the test, if anything does."""
    if not VERBS.exists():
        return f"there is no {VERBS}: install libibverbs-dev"
    failed = setup.make_venv("mooncake", *REQUIREMENTS)
    return f"its wheel cannot be installed: {failed} failed" if failed else None


def environment(libfabric: pathlib.Path | None) -> dict[str, str]:
    """Returns the environment of the program, with the MPICH wheel's libfabric unless another is given."""
    stand_in = compile_c(
        [FABTESTS / "nixl" / "verbs.c"], TARGET / "nixl" / "libverbs-stand-in.so", ("-O1", "-shared", "-fPIC"), libraries=()
    )
    directory = libfabric or MPIS["mpich"].venv / "lib" / "mpich"
    return {**provider_run("squall"), "LD_LIBRARY_PATH": str(directory), "LD_PRELOAD": str(stand_in)}


def run_contents(tally: Tally, title: str, env: dict[str, str], timeout: float, apart: bool) -> None:
    """Runs the test in one condition and adds its result."""
    command: list[Word] = [PYTHON, PROGRAM, "pair", "contents"]
    job = run_ranks("squall", 2, command, env | CONDITIONS[title], timeout, LEAST, hosts.shows(apart))
    problem: str | None = None
    if not re.search(r"^contents: \d+ passed, 0 failed$", job.output, re.M):
        problem = "the program did not report success"
    Job(job.result, job.problem or problem or transport_problem(job.output), job.note).add_to(tally, f"{NAME}, {title}")


def run_all(outcome: foreign.Outcome, titles: list[str], libfabric: pathlib.Path | None, where: dict[str, str]) -> int:
    """Runs the test in these conditions. Returns the exit status."""
    args = outcome.args
    outcome.version = VERSION
    env = environment(libfabric) | where
    for title in titles:
        run_contents(outcome.tally, title, env, args.timeout, args.hosts)
    return outcome.finish("Mooncake", "host memory, protocol efa, a stand-in for its device")
