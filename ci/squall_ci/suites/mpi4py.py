"""Run mpi4py's own test suite under one MPI, on one provider: every file of it is a job.

TREE is a source tree of mpi4py of the installed version; only its tests are used. Tests that skip themselves are counted as
the suite counts them. Tests that cannot pass under an MPI are in fabtests/mpi4py.toml with their reasons.

--osc rdma, for Open MPI 5 on squall, leaves one-sided communication no way but osc/rdma over btl/ofi; by default ranks of a host share
windows through shared memory (osc/sm). The endpoints' statistics must then show writes, reads and atomics of the files about windows.
Ranks of one host still share the memory that osc/rdma allocates; with --hosts all of it crosses the network. FI_SQUALL_PORT_KIND=xdp
makes frames of the packets there.
"""

import argparse
import os
import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence

from squall_ci import foreign, hosts
from squall_ci.job import ONE_SIDED, run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import FABTESTS, need

# Files whose messages cross the network under every MPI. A rank that is alone need not send its own over the network.
TALKS = ("p2p_buf", "p2p_obj", "cco_buf", "cco_obj", "cco_vec", "cco_nb_buf")
# Settings that choose the component of one-sided communication, and disable the transports that it prefers to libfabric.
OSC = {"rdma": {"OMPI_MCA_osc": "rdma", "OMPI_MCA_btl": "self,ofi"}}
# Files about windows in the memory of ranks, which osc/rdma reaches by btl/ofi even on one host.
WINDOWS = ("rma", "rma_nb")


def excluded(mpi: str, apart: bool, lossy: bool) -> dict[str, list[str]]:
    """Returns the tests that are left out under an MPI, by reason."""
    holds = {"always": True, "apart": apart, "lossy": lossy}
    rows = tomllib.loads((FABTESTS / "mpi4py.toml").read_text())["excluded"]
    return {row["reason"]: row["tests"] for row in rows if mpi in row["mpi"] and holds[row.get("when", "always")]}


def judge(output: str, ranks: int) -> tuple[str | None, str]:
    """Returns what is wrong, or None if every rank ran its tests to the end, and how many ran."""
    ran = [int(number) for number in re.findall(r"Ran (\d+) tests? in ", output)]
    skipped = sum(int(number) for number in re.findall(r"skipped=(\d+)", output))
    note = f"{sum(ran)} tests, {skipped} skipped"
    if len(ran) != ranks:
        return f"{len(ran)} of {ranks} ranks came to the end", note
    if not all(ran):
        return "a rank found no tests", note
    return None, note


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tree", type=pathlib.Path, metavar="TREE")
    parser.add_argument("mpi", choices=sorted(MPIS))
    parser.add_argument("--osc", choices=sorted(OSC), help="Open MPI 5's component of one-sided communication, over btl/ofi")
    foreign.add_options(parser, 180.0, "file")


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    if args.osc:
        need(args.mpi == "openmpi", f"--osc is for Open MPI 5 (openmpi): {args.mpi} has no osc/{args.osc} over btl/ofi")
        need(args.provider == "squall", "--osc is for squall: no statistics of others show that btl/ofi carried anything")
    mpi = MPIS[args.mpi]
    directory = args.tree.absolute() / "test"
    need((directory / "main.py").exists(), f"{args.tree} is no source tree of mpi4py")
    outcome.excluded = excluded(args.mpi, apart=args.hosts, lossy="loss" in os.environ.get("FI_SQUALL_FAULT", ""))
    with hosts.launched(args.hosts, args.ranks, mpi) as (launch, env):
        files(outcome, launch, env | OSC.get(args.osc, {}))
    version = re.search(r"__version__ = ['\"]([^'\"]+)", (args.tree / "src/mpi4py/__init__.py").read_text())
    suite = f"mpi4py {version.group(1) if version else ''}".strip()
    return outcome.finish(mpi.title, suite, more=f", osc/{args.osc} over btl/ofi" if args.osc else "")


def proof(args: argparse.Namespace, name: str) -> tuple[int | None, Sequence[str]]:
    """Returns the bytes (None if its ranks may have nothing to exchange) and the counters that a file's job must show."""
    frames = hosts.shows(args.hosts)
    if args.ranks > 1 and args.osc and name in WINDOWS:
        return 0, (*ONE_SIDED, *frames)
    return (0 if args.ranks > 1 and name in TALKS else None), frames


def files(outcome: foreign.Outcome, launch: hosts.Launch, env: Mapping[str, str]) -> None:
    """Runs every file of the suite as a job of its own."""
    args = outcome.args
    mpi, directory = MPIS[args.mpi], args.tree.absolute() / "test"
    without = [word for tests in outcome.excluded.values() for test in tests for word in ("-x", test)]
    for path in sorted(directory.glob("test_*.py")):
        name = path.stem.removeprefix("test_")
        # A name of a file is excluded as the suite does it: wherever it stands in that of a test.
        if any(word in path.stem for word in without) or not re.search(args.only, name):
            continue
        program = [mpi.python, directory / "main.py", *without, "-i", rf"^{path.stem}\.py$"]
        least, shows = proof(args, name)
        job = run_job(mpi, args.provider, args.ranks, program, args.timeout, least, env, launch, shows)
        job.add_to(outcome.tally, name, *judge(job.output, args.ranks))
