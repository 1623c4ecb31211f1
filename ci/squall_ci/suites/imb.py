"""Run Intel's MPI benchmarks under Intel MPI: every benchmark of a part, 0 to 4 MiB, on one libfabric provider.

A benchmark passes if it prints a row for every size and, on squall, if the statistics show its bytes. The programs of
Intel's wheel do not check results (ci/run suite mpi verifies contents). --checking names programs that do, or their
directory: built from the sources with CPPFLAGS=-DCHECK, they print a column of defects, which must be zero. The wheel has no
IMB-EXT, and its IMB-MT needs Intel's OpenMP: these two need --checking. IMB-P2P has no checks.
"""

import argparse
import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from squall_ci import foreign, hosts, results
from squall_ci.imb_tables import tables
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import need
from squall_ci.process import Word
from squall_ci.tally import Tally

LARGEST = 4 << 20
SIZES = {0} | {1 << power for power in range(23)}
# Sizes of benchmarks that work on numbers of 4 bytes.
NUMBERS = {size for size in SIZES if size >= 4}

# Benchmarks of two ranks. With more ranks, pairs run at the same time (-multi).
POINT_TO_POINT = (
    "PingPong",
    "PingPongSpecificSource",
    "PingPongAnySource",
    "PingPing",
    "PingPingSpecificSource",
    "PingPingAnySource",
)
TOGETHER = (
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
)
NONBLOCKING = (
    "Ibcast",
    "Iallgather",
    "Iallgatherv",
    "Igather",
    "Igatherv",
    "Iscatter",
    "Iscatterv",
    "Ialltoall",
    "Ialltoallv",
    "Ireduce",
    "Ireduce_scatter",
    "Iallreduce",
    "Ibarrier",
)
ONE_SIDED = (
    "Unidir_put",
    "Unidir_get",
    "Bidir_put",
    "Bidir_get",
    "One_put_all",
    "One_get_all",
    "All_put_all",
    "All_get_all",
    "Exchange_put",
    "Exchange_get",
    "Put_local",
    "Put_all_local",
    "Get_local",
    "Get_all_local",
    "Accumulate",
    "Get_accumulate",
    "Fetch_and_op",
    "Compare_and_swap",
    "Truly_passive_put",
)
EXTENSIONS = ("Window", "Unidir_Put", "Unidir_Get", "Bidir_Put", "Bidir_Get", "Accumulate")
PEERS = ("PingPong", "PingPing", "Unirandom", "Birandom", "Corandom", "Stencil2D", "Stencil3D", "SendRecv_Replace")
THREADS = (
    "PingPongMT",
    "PingPingMT",
    "SendRecvMT",
    "ExchangeMT",
    "UniBandMT",
    "BiBandMT",
    "BcastMT",
    "ReduceMT",
    "AllReduceMT",
    "BarrierMT",
)

# Benchmarks of exactly two processes: with more the programs print nothing.
TWO = {"Fetch_and_op", "Compare_and_swap"}
# Benchmarks whose check is wrong: it complains about every rank but the first, on tcp and through Intel MPI's shared memory
# as well, counts no defect, and prints into the table.
MISJUDGED = {"Ireduce_scatter"}
# Benchmarks that move (next to) no bytes.
IDLE = {"Reduce_local", "Barrier", "Ibarrier", "BarrierMT", "Window", "Fetch_and_op", "Compare_and_swap"}
# Benchmarks without a column of defects.
UNCHECKED = {"Barrier", "Ibarrier", "BarrierMT", "Window", *PEERS}


def sizes(part: str, name: str) -> set[int]:
    """Returns the sizes for which a benchmark has to print a row; none if it has no column of sizes."""
    if name in ("Barrier", "Ibarrier", "BarrierMT"):
        return set()
    if name in ("Fetch_and_op", "Compare_and_swap"):
        return {4}
    if part == "MT":
        return {2 * 4 * count for count in COUNTS}
    if part == "P2P":
        return SIZES - {0}
    # Reductions begin at one number.
    return NUMBERS if part == "EXT" or re.search("educe|ccumulate", name) else SIZES


# Counts of numbers for each of two threads, for IMB-MT.
COUNTS = [4**power for power in range(11)]


def usual(part: str, name: str, ranks: int) -> list[Word]:
    """Returns options for 10 repetitions, fewer above 20 MB in all, at most 5 s a size, with memory for 4 MiB times 4
    ranks."""
    words: list[Word] = ["-npmin", ranks, "-iter", "10,20", "-time", "5", "-msglog", "0:22", "-mem", "2"]
    return [*words, "-multi", "0"] if part == "MPI1" and name in POINT_TO_POINT and ranks > 2 else words


def peers(_part: str, _name: str, _ranks: int) -> list[Word]:
    """Returns options for 100 repetitions, fewer above 100 MB in all."""
    return ["-iter", "100,100", "-msglog", "0:22"]


def threads(_part: str, _name: str, _ranks: int) -> list[Word]:
    """Returns options for threads that each work alone and compare numbers."""
    words: list[Word] = ["-thread_level", "multiple", "-check", "on", "-datatype", "int"]
    return [*words, "-count", ",".join(map(str, COUNTS)), "-repeat", 10, "-warmup", 2]


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the programs, with its benchmarks and their options."""

    benchmarks: Sequence[str]
    options: Callable[[str, str, int], list[Word]] = usual
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)


PARTS = {
    "MPI1": Part(POINT_TO_POINT + TOGETHER),
    "NBC": Part(NONBLOCKING),
    "RMA": Part(ONE_SIDED),
    "EXT": Part(EXTENSIONS),
    "P2P": Part(PEERS, peers),
    "MT": Part(THREADS, threads, {"OMP_NUM_THREADS": "2"}),
}


def judge(part: str, name: str, output: str) -> str | None:
    """Returns what is wrong with an output, or None if every table holds a row for every size and no defect."""
    found = tables(output)
    if not found:
        return "no table of results"
    if failures := re.search("CHECK FAILURES.*", output):
        # IMB-MT prints its defects after the tables.
        return f"defects: {failures.group()}"
    want = sizes(part, name)
    for table in found:
        if not table.rows:
            return "no result row"
        missing = sorted(want - {int(row[0]) for row in table.rows}) if want else []
        if missing:
            return f"no row for {missing[:5]} bytes"
        if defect := table.defect():
            return defect
    return None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", nargs="?", default="squall", metavar="PROVIDER")
    parser.add_argument("--part", action="append", choices=[*PARTS, "all"], help="IMB-MPI1 by default (may be repeated)")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--only", action="append", help="one benchmark (may be repeated)")
    parser.add_argument("--checking", type=pathlib.Path, help="programs built with result checking: their directory, or one")
    foreign.add_common_options(parser, 180.0, "benchmark")


def program(args: argparse.Namespace, part: str) -> pathlib.Path:
    """Returns the program of a part."""
    directory = args.checking or MPIS["impi"].venv / "bin"
    binary = directory / f"IMB-{part}" if directory.is_dir() else directory
    need(
        binary.is_file(), f"there is no {binary}: Intel's wheel has no IMB-EXT; --checking names one built from the sources"
    )
    return binary.absolute()


def run_part(outcome: foreign.Outcome, name: str) -> None:
    """Runs a part. Benchmarks that cannot run on so many ranks are excluded."""
    args = outcome.args
    for ranks in map(int, args.ranks.split(",")):
        with hosts.launched(args.hosts, ranks, MPIS["impi"]) as where:
            for benchmark in args.only or PARTS[name].benchmarks:
                why = run_benchmark(args, name, benchmark, ranks, where, outcome.tally)
                if why and benchmark not in outcome.excluded.get(why, []):
                    outcome.exclude(why, benchmark)


def run_benchmark(
    args: argparse.Namespace,
    name: str,
    benchmark: str,
    ranks: int,
    where: tuple[hosts.Launch, Mapping[str, str]],
    tally: Tally,
) -> str | None:
    """Runs and judges one benchmark of a part, or says why it is left out."""
    if ranks > 2 and benchmark in TWO:
        return f"IMB-{name} has it of two processes alone"
    if args.checking and benchmark in MISJUDGED:
        return f"IMB-{name} checks it wrongly, whatever the transport: run without --checking"
    part, (launch, env) = PARTS[name], where
    command = [program(args, name), *part.options(name, benchmark, ranks), benchmark]
    at_least = 0 if benchmark in IDLE else LARGEST
    env, shows = {**part.env, **env}, hosts.shows(args.hosts)
    result, problem, summary = run_job(
        MPIS["impi"], args.provider, ranks, command, args.timeout, at_least, env, launch, shows
    )
    if result.ok and f"is invalid for {ranks} processes" in result.output:
        return f"IMB-{name} has no such pattern of {ranks} processes"
    problem = problem or judge(name, benchmark, result.output)
    if args.checking and benchmark not in UNCHECKED and "defects" not in result.output and name != "MT":
        problem = problem or "no column of defects"
    title = "IMB" if name == "MPI1" else f"IMB-{name}"
    tally.add(f"{title} {benchmark}: {args.provider}, {ranks} ranks", problem, result.seconds, summary, result.output)
    return None


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    parts = list(PARTS) if "all" in (args.part or ()) else args.part or ["MPI1"]
    for part in parts:
        # A missing program is reported before anything runs.
        program(args, part)
    for part in parts:
        run_part(outcome, part)
    checked = "results checked" if args.checking else "results not checked"
    conditions = results.conditions(args.ranks.replace(",", " and "))
    return outcome.finish(MPIS["impi"].title, f"IMB {', '.join(parts)}, {checked}", conditions=conditions)
