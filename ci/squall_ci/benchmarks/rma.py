"""Measure one-sided communication of Open MPI (osc/rdma over btl/ofi) on squall beside Open MPI over TCP.

IMB_RMA is Intel's IMB-RMA built for Open MPI 5: in its sources `make TARGET=RMA CC=mpicc CXX=mpicxx` with that MPI's
compilers. Two ranks put, get and accumulate 8 B to 1 MiB on squall by packets, on squall through shared memory, and over TCP
in both ways that Open MPI has: osc/rdma over btl/tcp with messages by ob1, or by cm over libfabric's tcp. (btl/ofi does not
run on libfabric's tcp.)

A ratio compares with the better of the two for each size, and is above 1 if squall is faster. Printed are its geometric mean
over the sizes, and the worst size. The exit status is 1 when the mean by packets is below 1.
"""

import argparse
import pathlib
import statistics

from squall_ci import figures
from squall_ci.imb_tables import tables
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import die, need
from squall_ci.process import Word
from squall_ci.rounds import add_options, collect, conclude
from squall_ci.tally import table

# The sides: a provider, and settings of the job.
OURS: dict[str, tuple[str, dict[str, str]]] = {
    "packets": ("squall", {"OMPI_MCA_btl": "self,ofi", "FI_SQUALL_SHM": "no"}),
    "shared memory": ("squall", {"OMPI_MCA_btl": "self,ofi", "FI_SQUALL_SHM": "yes"}),
}
OVER_TCP = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
THEIRS: dict[str, tuple[str, dict[str, str]]] = {
    "cm": ("tcp", OVER_TCP),
    "ob1": ("tcp", {**OVER_TCP, "OMPI_MCA_pml": "ob1"}),
}
SIDES = {**OURS, **THEIRS}
BENCHMARKS = (
    "Unidir_put",
    "Unidir_get",
    "Exchange_put",
    "Accumulate",
    "Get_accumulate",
    "Fetch_and_op",
    "Compare_and_swap",
)
# Limits of IMB for each size: repetitions, seconds.
LIMITS = ("-iter", "100,20", "-time", "0.3", "-msglog", "3:20")
QUICK = ("-iter", "5", "-time", "0.1", "-msglog", "3:6")

# A benchmark, its mode (IMB plays most with a flush behind each operation, and with one behind all), and a size.
Cell = tuple[str, str, int]
# Microseconds by cell.
Times = dict[Cell, float]


def parse(output: str) -> Times:
    """Returns the times that IMB-RMA printed."""
    return {(t.benchmark, t.mode, int(row[0])): float(row[2]) for t in tables(output) for row in t.rows if int(row[0])}


def play(side: str, program: pathlib.Path, quick: bool) -> Times:
    """Runs one job and returns its times."""
    provider, settings = SIDES[side]
    words: list[Word] = [program, "-npmin", 2, *(QUICK if quick else LIMITS), *BENCHMARKS]
    least = 1 << 10 if provider == "squall" else 0
    job = run_job(MPIS["openmpi"], provider, 2, words, 300, least, {"OMPI_MCA_osc": "rdma", **settings})
    times = parse(job.output)
    missing = [name for name in BENCHMARKS if not any(name == cell[0] for cell in times)]
    if job.problem or missing:
        die(f"{side}: {job.problem or 'nothing of ' + ', '.join(missing)}\n{job.output[-1500:]}", 1)
    return times


def compare(samples: dict[str, list[Times]], ours: str) -> dict[Cell, float]:
    """Returns the speedup over the better of their sides, by cell."""
    cells = [cell for cell in samples[ours][0] if all(cell in times for some in samples.values() for times in some)]

    def median(side: str, cell: Cell) -> float:
        return statistics.median(times[cell] for times in samples[side])

    return {cell: min(median(side, cell) for side in THEIRS) / median(ours, cell) for cell in cells}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", type=pathlib.Path, metavar="IMB_RMA")
    add_options(parser, 5, record=True)


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, args.quick)
    need(args.program.is_file(), f"no program {args.program}")
    samples = collect(list(SIDES), args, lambda side: play(side, args.program.absolute(), args.quick))
    ratios = {side: compare(samples, side) for side in OURS}
    rows = []
    for name in (*BENCHMARKS, "all"):
        row = [name]
        for cells in ratios.values():
            some = [ratio for cell, ratio in cells.items() if name in (cell[0], "all")]
            row.append(f"{statistics.geometric_mean(some):.2f} ({min(some):.2f})")
        rows.append(row)
    print(table(["x the better way over tcp (worst size)", *ratios], rows))
    by_packets = statistics.geometric_mean(list(ratios["packets"].values()))
    missed = [f"{by_packets:.2f} x the better way over tcp, 1 is wanted"] if by_packets < 1 else []
    measured: dict[str, float] = {}
    for side, cells in ratios.items():
        measured |= figures.over_all(side, cells.values())
    return conclude(args, missed, {"bench rma IMB-RMA": measured})
