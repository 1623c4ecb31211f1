"""Print what unmodified programs do in virtual time on networks of 100 to 800 Gb/s: the tables of docs/virtual-time.md.

allreduce  IMB-MPI1 Allreduce on 64 hosts, by rate, congestion control and path selection, without computation. IMB runs under
           MPICH, whose library has the same ABI.
spine      a stencil program on 16 hosts at 400 Gb/s while a spine dies, by path selection
faster     the same program with its computation, on networks of 25, 100 and 400 Gb/s: what is computed, and what is waited for

Names select tables. The first repeats itself exactly unless `squall` says otherwise, the last depends on this processor.
"""

import argparse
import pathlib
import re
import tempfile

from squall_ci.mpis import MPIS
from squall_ci.paths import die
from squall_ci.process import run, Word
from squall_ci.suites.virtual import Virtual
from squall_ci.tally import table

HOSTS = "leaf-spine:8x8x8"
CONTROLS = ("nscc", "swift", "dcqcn", "none")
# FI_SQUALL_LB of the two path selections.
SELECTIONS = ("reps", "ecmp")
# How long routing takes to avoid a dead spine, us, by name.
FAILURES = {"none": 0, "routed round after 100 us": 100, "after 5 ms": 5000}
# Seconds of real time for a job.
PATIENCE = 300.0


def allreduce(virtual: Virtual, quick: bool) -> None:
    """Prints times of IMB's Allreduce."""
    mpi = MPIS["mpich"]
    benchmark = MPIS["impi"].venv / "bin" / "IMB-MPI1"
    if not benchmark.exists():
        die("IMB-MPI1 is missing: run ci/run setup mpi first")
    ranks, topology = (16, "leaf-spine:4x4x4") if quick else (64, HOSTS)
    sizes = virtual.folder / "sizes"
    sizes.write_text("65536\n1048576\n")
    words: list[Word] = [benchmark, "-npmin", ranks, "-iter", 2, "-iter_policy", "off", "-msglen", sizes, "Allreduce"]
    env = mpi.plain_environment() | {"LD_LIBRARY_PATH": str(mpi.venv / "lib")}
    rows = []
    for rate in ("100G", "400G", "800G"):
        for control in CONTROLS:
            row = [rate, control]
            for selection in SELECTIONS:
                options = ["--rate", rate, "--cc", control, "--lb", selection]
                result = run([*virtual.command(topology, *options), *mpi.command(ranks, words)], env, PATIENCE)
                times = re.findall(r"^ +(?:65536|1048576) +2 +[\d.]+ +([\d.]+) ", result.output, re.M)
                row += times if result.ok and len(times) == 2 else [result.why(), "-"]
            rows.append(row)
            print(f"{' '.join(row)}", flush=True)
    heads = [f"{size}, {selection}" for selection in SELECTIONS for size in ("64 KiB", "1 MiB")]
    print(f"\nIMB-MPI1 Allreduce, {ranks} ranks on {topology}, the slowest rank, us:\n")
    print(table(["rate", "control", *heads], rows, left=(0, 1)), end="\n\n")


def spine(virtual: Virtual, quick: bool) -> None:
    """Prints what a dying spine does to a stencil program."""
    timeline = virtual.folder / "timeline"
    timeline.write_text("300us fail-switch spine1\n")
    rows = []
    for selection in SELECTIONS:
        for name, dying in FAILURES.items():
            options: list[Word] = ["--rate", "400G", "--lb", selection]
            if dying:
                options += ["--timeline", timeline, "--reroute-us", dying]
            rounds = 20 if quick else 100
            result = virtual.run_job("leaf-spine:8x4x2", 16, "stencil", 16384, rounds, 4, options=options, timeout=PATIENCE)
            found = re.search(r"^job: stencil: ([\d.]+) us a round, the longest ([\d.]+) us$", result.output, re.M)
            lost = re.search(r"; (?:.*, )?(\d+) lost", result.output)
            figures = [found[1], found[2], lost[1] if lost else "-"] if result.ok and found else [result.why(), "-", "-"]
            rows.append([selection, name, *figures])
    print("A stencil program, 16 ranks on leaf-spine:8x4x2 at 400 Gb/s, 128 KiB to each neighbour, without computation:\n")
    print(table(["paths", "dead spine", "us a round", "longest round, us", "packets lost"], rows, left=(0, 1)), end="\n\n")


def faster(virtual: Virtual, quick: bool) -> None:
    """Prints what a faster network brings to a program that computes."""
    rows = []
    for rate in ("25G", "100G", "400G"):
        rounds = 10 if quick else 40
        options = ["--rate", rate]
        result = virtual.run_job(
            "leaf-spine:4x2x2", 8, "stencil", 65536, rounds, 1, options=options, compute="cpu", timeout=PATIENCE
        )
        found = re.search(r"^job: stencil: ([\d.]+) us a round", result.output, re.M)
        split = re.findall(r"computed ([\d.]+) s, calls ([\d.]+) s, waited ([\d.]+) s", result.output)
        if not (result.ok and found and split):
            rows.append([rate, result.why(), "-", "-"])
            continue
        computed, waited = (sum(float(rank[i]) for rank in split) / len(split) * 1e3 for i in (0, 2))
        rows.append([rate, found[1], f"{computed:.1f}", f"{waited:.1f}"])
    print("A stencil program that computes, 8 ranks on leaf-spine:4x2x2, 512 KiB to each neighbour, means of the ranks:\n")
    print(table(["rate", "us a round", "computed, ms", "waited, ms"], rows), end="\n\n")


TABLES = {"allreduce": allreduce, "spine": spine, "faster": faster}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="allreduce, spine or faster; all of them otherwise")
    parser.add_argument("--quick", action="store_true", help="fewer ranks and rounds")


def main(args: argparse.Namespace) -> int:
    unknown = [name for name in args.tables if name not in TABLES]
    if unknown:
        die(f"no such table: {', '.join(unknown)}; there are {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as folder:
        virtual = Virtual(pathlib.Path(folder))
        for name in args.tables or TABLES:
            TABLES[name](virtual, args.quick)
    return 0
