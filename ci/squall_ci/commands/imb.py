"""Intel MPI Benchmarks (IMB-MPI1) under Intel MPI: every benchmark, 0 to 4 MiB, on one libfabric provider.

    ci/run imb [--ranks 2,4] [--only NAME] [--checking FILE] [--timeout S] [PROVIDER=squall]

The IMB-MPI1 of Intel's wheel was built without result checking, so here a benchmark passes when it ends well with a
row for every size and, on squall, when the statistics show its bytes; contents are what ci/run mpi verifies. Whoever has an
IMB-MPI1 that checks results (its defects column) names it with --checking: a single defect fails its benchmark. Ends with
`N passed, N failed`.
"""

import argparse
import pathlib
import re

from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import need, need_provider
from squall_ci.tally import Tally

# Name: groups of two ranks at once when there are more (-multi), least bytes on the wire each way.
POINT_TO_POINT = [
    "PingPong",
    "PingPongSpecificSource",
    "PingPongAnySource",
    "PingPing",
    "PingPingSpecificSource",
    "PingPingAnySource",
]
TOGETHER = [
    "Sendrecv",
    "Exchange",
    "Uniband",
    "Biband",
    "Bcast",
    "Allgather",
    "Allgatherv",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Alltoall",
    "Alltoallv",
    "Reduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Allreduce",
    "Reduce_local",
    "Barrier",
]
# These move (next to) nothing.
IDLE = {"Reduce_local", "Barrier"}
SIZES = {0} | {1 << power for power in range(23)}


def judge(name: str, output: str) -> str | None:
    """None when the output holds a row for every size and no defect, otherwise what is wrong."""
    rows = re.findall(r"^ +(\d+) +\d+ +[\d.]+.*$", output, re.M)
    if name == "Barrier":
        return None if re.search(r"^ +\d+ +[\d.]+ +[\d.]+ +[\d.]+", output, re.M) else "no result row"
    # Reductions begin at one element, which has 4 bytes.
    want = {size for size in SIZES if size >= 4 or "educe" not in name}
    missing = sorted(want - {int(row) for row in rows})
    if missing:
        return f"no row for {missing[:5]} bytes"
    if "defects" in output:
        # The column is the last one.
        for row in re.findall(r"^ +\d+ +\d+ +[\d.]+.*$", output, re.M):
            if float(row.split()[-1]) != 0:
                return f"defects: {row.strip()}"
    return None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", nargs="?", default="squall")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--only", action="append", help="one benchmark (may be repeated)")
    parser.add_argument("--checking", type=pathlib.Path, help="an IMB-MPI1 built with result checking")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each benchmark")


def run(args: argparse.Namespace) -> int:
    mpi = MPIS["impi"]
    mpi.need()
    need_provider(args.provider)
    binary = (args.checking or mpi.venv / "bin" / "IMB-MPI1").absolute()
    need(binary.is_file(), f"there is no {binary}")

    tally = Tally()
    for ranks in map(int, args.ranks.split(",")):
        for name in args.only or POINT_TO_POINT + TOGETHER:
            # 10 repetitions, fewer above 20 MB in all, at most 2 s a size; memory for 4 MiB times 4 ranks.
            program = [binary, "-npmin", ranks, "-iter", "10,20", "-time", "2", "-msglog", "0:22", "-mem", "2"]
            if name in POINT_TO_POINT and ranks > 2:
                program += ["-multi", "0"]
            result, problem, summary = run_job(
                mpi, args.provider, ranks, [*program, name], args.timeout, 0 if name in IDLE else 4 << 20
            )
            problem = problem or judge(name, result.output)
            if args.checking and name != "Barrier" and "defects" not in result.output:
                problem = problem or "no column of defects"
            tally.add(f"IMB {name}: {args.provider}, {ranks} ranks", problem, result.seconds, summary, result.output)
    return tally.finish()
