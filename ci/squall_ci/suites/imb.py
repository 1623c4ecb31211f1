"""Run Intel's MPI benchmarks under Intel MPI: every benchmark of a part, 0 to 4 MiB, on one libfabric provider.

A benchmark passes if it prints a row for every size and, on squall, if the statistics show its bytes. The programs of
Intel's wheel do not check results (ci/run suite mpi verifies contents). --checking names programs that do, or their
directory: built from the sources with CPPFLAGS=-DCHECK, they print a column of defects, which must be zero. The wheel has no
IMB-EXT, and its IMB-MT needs Intel's OpenMP: these two need --checking. IMB-P2P has no checks.
"""

import argparse
import pathlib
import re
import tomllib
from collections.abc import Mapping

from squall_ci import foreign, hosts, results
from squall_ci.imb_tables import tables
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import FABTESTS, need
from squall_ci.process import Word
from squall_ci.tally import Tally

LARGEST = 4 << 20
SIZES = {0} | {1 << power for power in range(23)}
# Sizes of benchmarks that work on numbers of 4 bytes.
NUMBERS = {size for size in SIZES if size >= 4}

# The benchmarks of each program, and sets of those with a peculiarity.
LISTED = tomllib.loads((FABTESTS / "imb.toml").read_text())
BENCHMARKS: dict[str, list[str]] = LISTED["benchmarks"]
SPECIAL = {name: frozenset(benchmarks) for name, benchmarks in LISTED["special"].items()}


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
    """Returns options for 10 repetitions, fewer above 20 MB, at most 5 s a size, and memory for 4 ranks of 4 MiB."""
    words: list[Word] = ["-npmin", ranks, "-iter", "10,20", "-time", "5", "-msglog", "0:22", "-mem", "2"]
    return [*words, "-multi", "0"] if part == "MPI1" and name in SPECIAL["pairs"] and ranks > 2 else words


def peers(_part: str, _name: str, _ranks: int) -> list[Word]:
    """Returns options for 100 repetitions, fewer above 100 MB in all."""
    return ["-iter", "100,100", "-msglog", "0:22"]


def threads(_part: str, _name: str, _ranks: int) -> list[Word]:
    """Returns options for threads that each work alone and compare numbers."""
    words: list[Word] = ["-thread_level", "multiple", "-check", "on", "-datatype", "int"]
    return [*words, "-count", ",".join(map(str, COUNTS)), "-repeat", 10, "-warmup", 2]


# Options by part, those of the others being `usual`, and variables by part.
OPTIONS = {"P2P": peers, "MT": threads}
ENVIRONMENT = {"MT": {"OMP_NUM_THREADS": "2"}}


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
    parser.add_argument(
        "--part", action="append", choices=[*BENCHMARKS, "all"], help="IMB-MPI1 by default (may be repeated)"
    )
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
            for benchmark in args.only or BENCHMARKS[name]:
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
    if ranks > 2 and benchmark in SPECIAL["two"]:
        return f"IMB-{name} has it of two processes alone"
    if args.checking and benchmark in SPECIAL["misjudged"]:
        return f"IMB-{name} checks it wrongly, whatever the transport: run without --checking"
    launch, env = where
    command = [program(args, name), *OPTIONS.get(name, usual)(name, benchmark, ranks), benchmark]
    at_least = 0 if benchmark in SPECIAL["idle"] else LARGEST
    env, shows = {**ENVIRONMENT.get(name, {}), **env}, hosts.shows(args.hosts)
    job = run_job(MPIS["impi"], args.provider, ranks, command, args.timeout, at_least, env, launch, shows)
    if job.result.ok and f"is invalid for {ranks} processes" in job.output:
        return f"IMB-{name} has no such pattern of {ranks} processes"
    problem = judge(name, benchmark, job.output)
    unchecked = SPECIAL["unchecked"] | set(BENCHMARKS["P2P"])
    if args.checking and benchmark not in unchecked and "defects" not in job.output and name != "MT":
        problem = problem or "no column of defects"
    title = "IMB" if name == "MPI1" else f"IMB-{name}"
    job.add_to(tally, f"{title} {benchmark}: {args.provider}, {ranks} ranks", problem)
    return None


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    parts = list(BENCHMARKS) if "all" in (args.part or ()) else args.part or ["MPI1"]
    for part in parts:
        # A missing program is reported before anything runs.
        program(args, part)
    for part in parts:
        run_part(outcome, part)
    checked = "results checked" if args.checking else "results not checked"
    conditions = results.conditions(args.ranks.replace(",", " and "))
    return outcome.finish(MPIS["impi"].title, f"IMB {', '.join(parts)}, {checked}", conditions=conditions)
