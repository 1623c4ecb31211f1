"""Repeat the testbed of SMaRTT's second version live: 16 ranks over an emulated leaf-spine, SMaRTT and DCQCN, beside the
simulator.

Sections V-A to C and figure 16 of the paper measure an incast of 15, a permutation and a sequential all-to-all over 16 hosts
at 50 Gb/s, against the optimum and against RoCEv2. Here 16 ranks of an MPI job play them (fabtests/mpi/testbed.py) on the
network of tools/plans/25-testbed.toml, under `squall run`. SMaRTT is NSCC with its own path selection, on a network
that trims. RoCEv2 needs hardware; in its place is DCQCN with the constants of network cards, one path for each flow, and
pauses instead of losses. Each pattern and length is a job of its own, so that no window is an old one.

Rates are lower and all times longer by one factor, so that it is the same network in slow motion. The optimum is the
simulator's. Each statement of the paper is checked live. A time of 1 MB or more may differ by 25 % from the simulator's, for
three seeds: which flows meet on a path is random. Every message is compared.
"""

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from squall_ci.mpis import MPIS
from squall_ci.paths import MPI_TESTS
from squall_ci.process import run, Word
from squall_ci.programs import squall
from squall_ci.suites.tenants import simulated_rows, slow_motion, VENDOR
from squall_ci.tally import table, Tally

PLAN = "25-testbed"
RANKS = 16
NETWORK = ["--on", "leaf-spine:4x4x4", "--rate", "50G", "--latency", "1000"]
PATTERNS = ("incast", "permutation", "all-to-all")
SIZES = {"64KB": 64_000, "128KB": 128_000, "1MB": 1_000_000, "4MB": 4_000_000, "16MB": 16_000_000}
STACKS = ("nscc", "roce")
# The factor by which the emulated network is slower.
SLOWER = 2500.0
# Seeds of the simulator, and the allowed factor between live and simulated times.
SEEDS = 3
ALIKE = 1.25

# Pattern, length, stack; a time over the optimum.
Cell = tuple[str, str, str]
Cells = Mapping[Cell, float]


@dataclass(frozen=True)
class Simulated:
    """The simulator's result for a cell: the optimum, s, and times over it, one a seed."""

    optimum: float
    times: Sequence[float]

    def text(self) -> str:
        return f"{min(self.times):.2f} to {max(self.times):.2f}"

    def unlike(self, live: float) -> str | None:
        """Returns how a time over the optimum differs from the simulated ones, or None."""
        low, high = min(self.times) / ALIKE, max(self.times) * ALIKE
        return None if low <= live <= high else f"{live:.2f} times the optimum, expected {low:.2f} to {high:.2f}"


def simulate() -> dict[Cell, Simulated]:
    """Returns the simulator's results for the plan. It counts microseconds."""
    found: dict[Cell, Simulated] = {}
    for row in simulated_rows(squall(), PLAN, SEEDS):
        cell, over = (row["workload"], row["bytes"], row["transport"]), float(row["over_ideal"])
        before = found[cell].times if cell in found else []
        found[cell] = Simulated(float(row["finish"]) / over * 1e-6, [*before, over])
    return found


@dataclass(frozen=True)
class Statement:
    """A statement of the paper: cells of a pattern, over the optimum or over another stack's, between two bounds."""

    text: str
    source: str
    pattern: str
    sizes: Sequence[str]
    stack: str
    over: str | None = None
    low: float = 0.0
    high: float = float("inf")

    def is_measured(self, cells: Cells) -> bool:
        """Returns whether all cells of the statement were measured."""
        stacks = [self.stack, self.over or self.stack]
        return all((self.pattern, size, stack) in cells for size in self.sizes for stack in stacks)

    def wrong(self, cells: Cells) -> str | None:
        """Returns which cells are out of bounds, or None."""
        found = []
        for size in self.sizes:
            value = cells[self.pattern, size, self.stack]
            if self.over:
                value /= cells[self.pattern, size, self.over]
            if not self.low <= value <= self.high:
                found.append(f"{value:.2f} at {size}")
        bounds = f"{self.low:g} to {self.high:g}" if self.low and self.high < float("inf") else None
        bounds = bounds or (f"{self.low:g} at least" if self.low else f"{self.high:g} at most")
        return f"{', '.join(found)}, expected {bounds}" if found else None


STATEMENTS = (
    Statement(
        "SMaRTT's incast is near the optimum (no number; ours: 10 %)", "V-A, Fig. 16a", "incast", ("4MB",), "nscc", high=1.1
    ),
    Statement("RoCEv2's ends after SMaRTT's", "V-A, Fig. 16a", "incast", ("1MB", "4MB"), "roce", "nscc", low=1.0),
    Statement(
        "SMaRTT's permutation is within 20 % from 4 MB on", "V-B, Fig. 16b", "permutation", ("4MB",), "nscc", high=1.2
    ),
    Statement(
        "RoCEv2's takes 3 to 5 times the optimum", "V-B, Fig. 16b", "permutation", ("4MB",), "roce", low=3.0, high=5.0
    ),
    Statement(
        "SMaRTT's all-to-all is within 1.5 for larger flows", "V-C, Fig. 16c", "all-to-all", ("1MB", "4MB"), "nscc", high=1.5
    ),
    Statement(
        "RoCEv2's takes 3 to 6 times as long", "V-C, Fig. 16c", "all-to-all", ("4MB",), "roce", "nscc", low=3.0, high=6.0
    ),
)


def network(stack: str) -> list[str]:
    """Returns the options of an emulator."""
    options = [*NETWORK, "--rate-scale", repr(1 / SLOWER)]
    return [*options, "--lossless"] if stack == "roce" else options


def environment(stack: str) -> dict[str, str]:
    """Returns the environment of a job. Processes are late at times, so that a timeout below a second would be the host's
    doing."""
    env = MPIS["mpich"].env("squall") | {"FI_SQUALL_RTO_MIN": "2s", "FI_SQUALL_DEADLINE": "60s"}
    if stack == "roce":
        env |= {"FI_SQUALL_CC": slow_motion("dcqcn:vendor=1", SLOWER, VENDOR), "FI_SQUALL_LB": "single"}
    return env


def play(cell: Cell) -> tuple[str | None, float]:
    """Runs a job; returns the problem and the seconds."""
    pattern, size, stack = cell
    mpi = MPIS["mpich"]
    program: list[Word] = [mpi.python, MPI_TESTS / "testbed.py", pattern, SIZES[size]]
    emulate: list[Word] = [squall(), "run", "--quiet", *network(stack), "--"]
    command = [*emulate, *mpi.command(RANKS, program)]
    result = run(command, environment(stack), 300)
    found = re.search(r"^finish: ([\d.]+)$", result.output, re.M)
    if not result.ok or not found:
        return f"{result.why()}: {result.output[-1500:]}", 0.0
    return None, float(found.group(1))


def rows(cells: Cells, simulated: Mapping[Cell, Simulated]) -> list[list[str]]:
    """Returns the table of live and simulated times."""
    lines = []
    for pattern, size in dict.fromkeys((pattern, size) for pattern, size, _ in cells):
        line = [pattern, size]
        for stack in STACKS:
            cell = (pattern, size, stack)
            line += [f"{cells[cell]:.2f}" if cell in cells else "-", simulated[cell].text()]
        lines.append(line)
    return lines


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pattern", action="append", choices=PATTERNS, help="this one alone (may be repeated)")
    parser.add_argument("--size", default="64KB,1MB,4MB", help=f"of {', '.join(SIZES)}")


def main(args: argparse.Namespace) -> int:
    tally = Tally()
    simulated = simulate()
    cells: dict[Cell, float] = {}
    for pattern in args.pattern or PATTERNS:
        for size in args.size.split(","):
            for stack in STACKS:
                cell = (pattern, size, stack)
                begin = time.monotonic()
                problem, seconds = play(cell)
                if not problem:
                    cells[cell] = seconds / (simulated[cell].optimum * SLOWER)
                    problem = simulated[cell].unlike(cells[cell]) if SIZES[size] >= 1_000_000 else None
                tally.add(f"{pattern}, {size}, {stack}", problem, time.monotonic() - begin, f"{seconds:.2f} s")
    for statement in STATEMENTS:
        if not statement.is_measured(cells):
            continue
        tally.add(f"{statement.text} ({statement.source})", statement.wrong(cells))
    print("\nTime over the optimum, live and simulated:\n")
    print(table(["pattern", "bytes", *(f"{s}, {w}" for s in STACKS for w in ("live", "simulated"))], rows(cells, simulated)))
    return tally.finish()
