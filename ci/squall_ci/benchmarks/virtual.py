"""Print what unmodified programs do in virtual time on networks of 100 to 800 Gb/s: the tables of docs/virtual-time.md.

allreduce  IMB-MPI1 Allreduce on 64 hosts, by rate, congestion control and path selection, without computation. IMB runs under
           MPICH, whose library has the same ABI.
spine      a stencil program on 16 hosts at 400 Gb/s while a spine dies, by path selection
faster     the same program with its computation, on networks of 25, 100 and 400 Gb/s: what is computed, and what is waited for
overhead   what calls of this provider cost on this machine, for --overhead: by packets over the loopback interface, and through
           shared memory

Names select tables. The first repeats itself exactly unless `squall` says otherwise, the others but `spine` depend on this
processor, and the last one on who else uses it.
"""

import argparse
import os
import pathlib
import re
import statistics
import tempfile
from collections.abc import Mapping

from squall_ci.mpis import MPIS
from squall_ci.paths import die, need
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf
from squall_ci.rounds import environment
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
# The transports whose calls are measured, and what FI_SQUALL_SHM is for them.
TRANSPORTS = {"packets": "no", "shared memory": "yes"}
# Sizes of messages between which the time of a byte is measured. Both fit in one packet of the loopback interface.
SMALL, LARGE = 64, 32768


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


class Calls:
    """What calls of the provider take on this machine, in nanoseconds: medians of what fi_perf measures in several rounds.

    A read that finds a message counts as a poll and as a completion in virtual time, so that `receive` is what it takes beyond
    a poll. A payload byte counts at its sender and at its receiver, so that `byte` is the mean of both.
    """

    MEASURES = ("clock:0:1000000", "poll:0:300")
    MESSAGES = ("post", "read")

    def __init__(self, samples: Mapping[str, list[float]]) -> None:
        def median(name: str, size: int = SMALL) -> float:
            return statistics.median(samples[f"{name}:{size}"])

        self.clock, self.poll = median("clock", 0), median("poll", 0)
        self.send = median("post")
        self.receive = max(0.0, median("read") - self.poll)
        growth = sum(median(name, LARGE) - median(name) for name in self.MESSAGES)
        # Picoseconds.
        self.byte = max(0.0, growth / len(self.MESSAGES) / (LARGE - SMALL) * 1000)

    @classmethod
    def words(cls, quick: bool) -> list[str]:
        """Returns the measures to name on fi_perf's command line."""
        rounds = 100 if quick else 300
        return [*cls.MEASURES, *(f"{name}:{size}:{rounds}" for name in cls.MESSAGES for size in (SMALL, LARGE))]

    def option(self) -> str:
        """Returns the value of --overhead."""
        times = (
            ("send", self.send),
            ("receive", self.receive),
            ("poll", self.poll),
            ("clock", self.clock),
            ("byte", self.byte),
        )
        return ",".join(f"{name}={time:.0f}" for name, time in times)


def measure(shm: str, words: list[str]) -> dict[str, float]:
    """Runs fi_perf once. Returns its values by measure and size."""
    env = environment("squall") | {"FI_SQUALL_SHM": shm, "FI_SQUALL_IFACE": "lo"}
    result = run([fi_perf(), "-p", "squall", *words], env, PATIENCE)
    need(result.ok, f"fi_perf: {result.why()}\n{result.output}")
    return {name: float(value) for name, value in re.findall(r"^(\w+:\d+):\d+ ([\d.e+-]+)$", result.output, re.M)}


def measure_calls(transports: list[str], rounds: int, quick: bool) -> dict[str, Calls]:
    """Measures the calls of transports in interleaved rounds."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in transports}
    for _ in range(rounds):
        for name in transports:
            for what, value in measure(TRANSPORTS[name], Calls.words(quick)).items():
                samples[name].setdefault(what, []).append(value)
    return {name: Calls(samples[name]) for name in transports}


def overhead(_virtual: Virtual, quick: bool) -> None:
    """Prints what calls of the provider cost on this machine."""
    rounds = 2 if quick else 9
    calls = measure_calls(list(TRANSPORTS), rounds, quick)
    rows = [
        [name, f"{c.send:.0f}", f"{c.receive:.0f}", f"{c.poll:.0f}", f"{c.clock:.0f}", f"{c.byte:.0f}"]
        for name, c in calls.items()
    ]
    print(
        f"What calls of the provider cost here, ns, and ps a byte; medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}:\n"
    )
    print(table(["transport", "send", "receive", "poll", "clock", "byte, ps"], rows), end="\n\n")
    for name, times in calls.items():
        print(f"{name}: --overhead {times.option()}")
    print(flush=True)


TABLES = {"allreduce": allreduce, "spine": spine, "faster": faster, "overhead": overhead}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all of them otherwise")
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
