"""Run what ci/test leaves out: release builds, documents, every MPI, hostile networks, the papers, mutants, histories.

Meant for at most four hours on two cores. Names of steps select those alone. What passed is kept for each commit
(target/nightly/COMMIT): a run that was stopped goes on where it was, and one that failed tries again what failed. --again
forgets what is kept. Nothing is kept while files differ from the commit.

Suites of other projects are built elsewhere. SQUALL_FOREIGN names a directory with any of these in it, by these names:
mpich and mpi4py (their source trees, the tests built), fabtests-1 and fabtests-2 (directories of programs), nccl (a
plugin), oneccl (a prefix), shmem (a build directory). What is not there is skipped, with the reason.

A million histories of each mode are `ci/run suite fuzz`, by name.
"""

import argparse
import os
import pathlib
import shutil

from squall_ci.commands.test import deny
from squall_ci.paths import dissector, RUN, say, TARGET
from squall_ci.process import run, Word
from squall_ci.programs import commit, linting, WORKSPACE
from squall_ci.steps import Kept, list_steps, run_steps, Step

NO_ROOT = "" if os.geteuid() == 0 else "namespaces need root"
HOUR = 3600.0


def foreign(name: str, suite: str, *words: Word) -> Step:
    """Returns the step of a suite whose programs are built elsewhere."""
    path = pathlib.Path(os.environ.get("SQUALL_FOREIGN", "")) / name
    there = "SQUALL_FOREIGN" in os.environ and path.exists()
    missing = "" if there else f"it is built elsewhere: SQUALL_FOREIGN names a directory with {name} in it"
    return Step(f"{suite}-{name}" if suite != name else name, [[RUN, "suite", suite, path, *words]], HOUR, missing=missing)


def without_tools() -> str:
    """Returns why tests cannot be run under tools of the nightly compiler, or an empty string."""
    known = shutil.which("cargo") and run(["cargo", "+nightly", "miri", "--version"], os.environ, 60).ok
    return "" if known else "no nightly compiler: rustup toolchain install nightly --component miri,rust-src"


def without_guests() -> str:
    """Returns why there can be no virtual machines, or an empty string."""
    there = shutil.which("qemu-system-x86_64") and shutil.which("debootstrap")
    return "" if there else "no QEMU or no debootstrap: ci/run setup machines installs them"


def steps() -> list[Step]:
    """Returns all steps, in order: the shorter ones first."""
    cargo: list[Word] = ["cargo", "test", "--profile", "ci", "--locked", "--quiet"]
    docs = ["cargo", "doc", "--profile", "ci", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"]
    mpi: list[Word] = [RUN, "suite", "mpi", "--quick"]
    # If the named directory does not exist, the step runs and fails.
    found = os.environ.get("SQUALL_ORACLE") or dissector().exists()
    no_dissector = "" if found else "SQUALL_ORACLE names the directory of a dissector"
    no_nightly = without_tools()

    def suite(name: str, *words: Word, seconds: float = HOUR, root: bool = False) -> Step:
        return Step(name, [[RUN, "suite", name, *words]], seconds, missing=NO_ROOT if root else "")

    def check(name: str, *words: Word, seconds: float = HOUR, missing: str = "") -> Step:
        return Step(name, [[RUN, "check", name, *words]], seconds, missing=missing)

    return [
        Step("setup", [[RUN, "setup", "all", "ssh"]], HOUR, terminal=True),
        Step("build", [[RUN, "build"]]),
        # Hidden errors of rustdoc are errors here.
        Step("docs", [docs], env={"RUSTDOCFLAGS": "-D warnings"}),
        Step("examples", [["cargo", "build", *WORKSPACE, "--examples"]], env=linting()),
        Step("doctests", [[*cargo, "--workspace", "--doc"]], env=linting()),
        # The build of the packages: without the feature `research`, whose algorithms it refuses by name.
        Step("reduced", [[*cargo, "-p", "squall-cc", "--no-default-features", "--test", "tests", "names::"]], env=linting()),
        # What the packages have and ci/test does not build.
        Step(
            "parquet",
            [[*cargo, "-p", f"squall-{crate}", "--features", "parquet"] for crate in ("netsim", "tools")],
            env=linting(),
        ),
        deny(),
        Step("abi-more", [[RUN, "check", "tests", "--nightly", "abi"]], HOUR),
        suite("fabtests", "squall"),
        *(
            Step(f"mpi-{name}", [[*mpi, name, "squall", n] for n in (2, 4)])
            for name in ("mpich", "openmpi", "ompi4", "impi")
        ),
        Step("mpi-shm", [[*mpi, name, "squall", 2] for name in ("openmpi", "ompi4", "impi")], env={"FI_SQUALL_SHM": "yes"}),
        # The interface that is chosen when none is named: a card, where there is one.
        Step(
            "interface",
            [[*mpi, "--only", "comms", name, "squall", 2] for name in ("mpich", "openmpi", "impi")],
            env={"FI_SQUALL_IFACE": ""},
        ),
        check("top"),
        check("doctor", missing=NO_ROOT),
        suite("run"),
        suite("emulator"),
        suite("live"),
        suite("tenants"),
        suite("netns", root=True),
        suite("rails", root=True),
        suite("xdp", root=True),
        Step("machines", [[RUN, "suite", "machines", "--quick"]], HOUR, missing=NO_ROOT or without_guests()),
        # The dissector is not part of the repository.
        check("wire", missing=no_dissector),
        check("commands"),
        check("guide"),
        Step("wheel", [[RUN, "setup", "python"], [RUN, "check", "wheel"]], HOUR),
        Step(
            "handshake",
            [[*cargo, "-p", "squall-engine", "--test", "tests", "handshake_search::", "--", "--ignored"]],
            HOUR,
            env=linting(),
        ),
        # Random histories of virtual time and of whole engines on a network, 20 times and more of what ci/test plays.
        Step(
            "histories",
            [[*cargo, "-p", "squall-emulator", "--", "whole_engine::every", "coordinator::histories"]],
            HOUR,
            env={**linting(), "SQUALL_SEEDS": "10000"},
        ),
        suite("fuzz", "--quick"),
        suite("virtual"),
        suite("hostile", root=True),
        suite("imb"),
        check("miri", missing=no_nightly),
        Step("packages", [[RUN, "setup", "packages"], [RUN, "package"], [RUN, "check", "packages"]], HOUR, missing=NO_ROOT),
        suite("testbed"),
        suite("matrix"),
        check("mutants", seconds=2 * HOUR),
        check("algorithms", seconds=2 * HOUR),
        check("abi", "all", seconds=2 * HOUR),
        Step("tsan", [[RUN, "check", "abi", "tsan"]], HOUR, missing=no_nightly),
        check("repro", seconds=2 * HOUR),
        foreign("mpich", "mpich"),
        foreign("mpi4py", "mpi4py", "mpich"),
        foreign("fabtests-1", "fabsuite"),
        foreign("fabtests-2", "fabsuite"),
        foreign("nccl", "nccl", "sendrecv"),
        foreign("oneccl", "oneccl"),
        foreign("shmem", "shmem"),
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("steps", nargs="*", metavar="STEP", help="run these alone")
    parser.add_argument("--list", action="store_true", help="name the steps, and what each runs")
    parser.add_argument("--again", action="store_true", help="run also what passed at this commit")


def main(args: argparse.Namespace) -> int:
    todo = steps()
    if args.list:
        list_steps(todo)
        return 0
    state = commit()
    if not state or state.endswith("-dirty"):
        say("files differ from the commit: the results are not kept")
        return run_steps(todo, TARGET / "nightly" / "uncommitted", args.steps)
    directory = TARGET / "nightly" / state
    return run_steps(todo, directory, args.steps, kept=Kept(directory / "passed.json", args.again))
