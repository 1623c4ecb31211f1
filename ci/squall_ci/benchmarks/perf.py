"""Squall beside other providers, or beside itself with other settings: one table of medians and ratios, two processes of this
host.

messages  tagged messages, beside tcp and udp;ofi_rxd
atomics   atomics of 64 bits, beside tcp;ofi_rxm, udp;ofi_rxd and a tagged round trip of the same run. The sum that the
          atomics make is checked. (udp;ofi_rxd of libfabric 1.17 and 2.5 does not survive many atomics at once.)
host      through shared memory, beside squall by packets, libfabric's shm, and tcp
monitor   without the statistics page (FI_SQUALL_MONITOR=0ns), with it, and watched: `squall top --serve` asked once a second, and
          lines of statistics every 100 ms

In every round and for every measure all sides run one right after the other, another one first each time. A number is the
median of the rounds, a ratio the median of the ratios within the rounds. A side that fails has an empty column, and the
reason is printed. All are loaded by the same libfabric: MPICH's if ci/run setup has installed it, otherwise the system's.
Contents are compared before anything is measured. The exit status is 1 when a target is missed.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from squall_ci import figures, rounds
from squall_ci.paths import TARGET
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf, metrics_server, squall
from squall_ci.tally import table

# The value of each round, or None where it did not run, by measure and side.
Samples = dict[str, dict[str, list[float | None]]]
# Settings of a side, known while something runs beside it.
Beside = Callable[[], contextlib.AbstractContextManager[Mapping[str, str]]]


@contextlib.contextmanager
def watched() -> Iterator[Mapping[str, str]]:
    """Collects the statistics of all endpoints once a second, and has them written on an interval."""
    over = threading.Event()

    def collect(address: str) -> None:
        while not over.wait(1.0):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address, timeout=5).read()

    with metrics_server(squall()) as address, tempfile.TemporaryDirectory() as folder:
        collector = threading.Thread(target=collect, args=(address,))
        collector.start()
        try:
            yield {"FI_SQUALL_STATS": f"json:{folder}/%p", "FI_SQUALL_STATS_INTERVAL": "100ms"}
        finally:
            over.set()
            collector.join()


@dataclass(frozen=True)
class Side:
    """A contestant: a provider, its settings, and what runs beside it."""

    provider: str = "squall"
    env: Mapping[str, str] = field(default_factory=dict)
    beside: Beside = lambda: contextlib.nullcontext({})
    # A slow provider repeats less often, by this factor.
    slow: int = 1


@dataclass(frozen=True)
class Measure:
    """A row of the table: a measure of fi_perf, how often it is repeated, and settings for squall."""

    name: str
    unit: str
    word: str
    repetitions: int
    env: Mapping[str, str] = field(default_factory=dict)
    # The program gives half of a round trip; the table may want the whole.
    factor: float = 1.0


@dataclass(frozen=True)
class Target:
    """A bound on a measure of the first side, on its ratio to another side's, or to another measure of its own."""

    measure: str
    low: float = 0.0
    high: float = float("inf")
    over: str = ""
    over_measure: str = ""


@dataclass(frozen=True)
class Table:
    """A benchmark."""

    sides: Mapping[str, Side]
    measures: tuple[Measure, ...]
    targets: tuple[Target, ...]
    rounds: int


# In the place of a side: the best of all but the first.
BEST = "the best other"
PACKETS, SHARED = {"FI_SQUALL_SHM": "no"}, {"FI_SQUALL_SHM": "yes"}
MIB, TRIP, INJECTED = "1 MiB bandwidth", "64 B half round trip", "64 B half round trip, injected"
RATE, RATE_INJECTED = "64 B message rate", "64 B message rate, injected"
WHOLE, FETCH, FETCH_RATE, ADD_RATE = "64 B tagged round trip", "fetch_add round trip", "fetch_add rate", "add rate"
# A watched endpoint may be slower by this factor at most.
WATCHED = 1.01

TABLES = {
    "messages": Table(
        {"squall": Side(), "tcp": Side("tcp"), "udp;ofi_rxd": Side("udp;ofi_rxd", slow=7)},
        (
            Measure(MIB, "GB/s", "bw:1048576", 40),
            Measure(TRIP, "us", "lat:64", 10_000),
            Measure(INJECTED, "us", "latinj:64", 10_000),
            Measure(RATE, "M/s", "rate:64", 800),
            Measure(RATE_INJECTED, "M/s", "rateinj:64", 800),
        ),
        (
            Target(MIB, low=8.0, over="udp;ofi_rxd"),
            Target(MIB, low=0.6, over="tcp"),
            Target(TRIP, high=1.0, over="tcp"),
            Target(RATE, low=3.0, over="tcp"),
        ),
        rounds=9,
    ),
    "atomics": Table(
        {"squall": Side(env=PACKETS), "tcp;ofi_rxm": Side("tcp;ofi_rxm"), "udp;ofi_rxd": Side("udp;ofi_rxd")},
        (
            Measure(WHOLE, "us", "lat:64", 10_000, factor=2.0),
            Measure(FETCH, "us", "fadd:8", 10_000),
            Measure(FETCH_RATE, "M/s", "faddrate:8", 400),
            Measure(ADD_RATE, "M/s", "addrate:8", 400),
        ),
        (
            # A fetching atomic is a short round trip.
            Target(FETCH, high=1.1, over_measure=WHOLE),
            Target(FETCH_RATE, low=5.0, over="tcp;ofi_rxm"),
            Target(ADD_RATE, low=5.0, over="tcp;ofi_rxm"),
        ),
        rounds=9,
    ),
    "host": Table(
        {"squall": Side(env=SHARED), "packets": Side(env=PACKETS), "shm": Side("shm"), "tcp": Side("tcp")},
        (
            Measure(TRIP, "us", "lat:64", 50_000),
            Measure(INJECTED, "us", "latinj:64", 50_000),
            Measure("4 KiB half round trip", "us", "lat:4096", 20_000),
            Measure("64 KiB half round trip", "us", "lat:65536", 3_000),
            Measure("1 MiB half round trip", "us", "lat:1048576", 400),
            Measure(RATE, "M/s", "rate:64", 2_000),
            Measure(RATE_INJECTED, "M/s", "rateinj:64", 2_000),
            Measure("16 KiB bandwidth", "GB/s", "bw:16384", 2_000),
            Measure(MIB, "GB/s", "bw:1048576", 100),
        ),
        (
            Target(TRIP, high=0.6),
            Target(TRIP, high=0.7, over="shm"),
            Target(RATE, low=4.0),
            Target(MIB, low=0.95, over=BEST),
        ),
        rounds=7,
    ),
    "monitor": Table(
        {"off": Side(env={"FI_SQUALL_MONITOR": "0ns"}), "board": Side(), "watched": Side(beside=watched)},
        (
            Measure(RATE, "M/s", "rate:64", 20_000, SHARED),
            Measure(f"{RATE}, packets", "M/s", "rate:64", 8_000, PACKETS),
            Measure(MIB, "GB/s", "bw:1048576", 600, SHARED),
            Measure(f"{MIB}, packets", "GB/s", "bw:1048576", 200, PACKETS),
        ),
        tuple(
            Target(name, high=WATCHED, over=side)
            for name in (RATE, f"{RATE}, packets", MIB, f"{MIB}, packets")
            for side in ("board", "watched")
        ),
        rounds=15,
    ),
}
# Sizes whose contents are compared first.
VERIFIED = [f"verify:{size}:3" for size in (0, 1, 64, 4096, 8192, 65_537, 1 << 20)]


def perf(side: Side, env: Mapping[str, str], *words: str) -> tuple[str | None, dict[str, float]]:
    """Runs fi_perf; returns the reason why it failed, if it did, and its values by word."""
    # Endpoints of shm have names in the place of addresses, and no two may have the same.
    names = ",".join(f"squall-bench-{os.getpid()}-{end}" for end in "ab")
    options: list[Word] = ["-a", names] if side.provider == "shm" else []
    with side.beside() as more:
        given = {**rounds.environment(side.provider), **env, **side.env, **more}
        # A provider that crashes leaves its backtrace in the working directory.
        result = run(["env", "-C", TARGET, fi_perf(), "-p", side.provider, *options, *words], given, timeout=120)
    lines = [line.split() for line in result.output.splitlines()]
    values = {line[0]: float(line[1]) for line in lines if len(line) > 1 and line[0] in words and line[0][:6] != "verify"}
    return None if result.ok else f"{words[0]}: {result.why()}: {result.output.strip()[-300:]}", values


def collect(tested: Table, args: argparse.Namespace) -> tuple[Samples, dict[tuple[str, str], str]]:
    """Runs all rounds; returns the samples, and why sides have none, by measure and side."""
    samples: Samples = {measure.name: {name: [] for name in tested.sides} for measure in tested.measures}
    reasons: dict[tuple[str, str], str] = {}
    for name, side in tested.sides.items():
        problem, _ = perf(side, {}, *VERIFIED)
        if problem:
            reasons |= {(measure.name, name): f"contents: {problem}" for measure in tested.measures}
    for order in rounds.turns(list(tested.sides), args):
        for measure in tested.measures:
            for name in order:
                value = None
                # A measure that failed once is not tried again.
                if (measure.name, name) not in reasons:
                    side = tested.sides[name]
                    count = measure.repetitions // (side.slow * (20 if args.quick else 1))
                    word = f"{measure.word}:{max(3, count)}"
                    problem, values = perf(side, measure.env, word)
                    value = values[word] * measure.factor if word in values and not problem else None
                    if value is None:
                        reasons[measure.name, name] = problem or f"{word}: no result"
                samples[measure.name][name].append(value)
    return samples, reasons


def median(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def ratio(one: list[float | None], other: list[float | None]) -> float | None:
    """Returns the median of the ratios within the rounds that have both; None if there are none."""
    pairs = [(a, b) for a, b in zip(one, other) if a is not None and b is not None]
    return rounds.ratio(*zip(*pairs)) if pairs else None


def figures_of(tested: Table, samples: Samples) -> dict[str, float]:
    """Returns the medians of all sides and the first one's ratios to the others, as they are recorded."""
    first, *others = tested.sides
    found: dict[str, float | None] = {}
    for measure in tested.measures:
        sides = samples[measure.name]
        found |= {f"{measure.name}, {measure.unit}, {name}": median(sides[name]) for name in tested.sides}
        found |= {f"{measure.name}, {first} / {other}": ratio(sides[first], sides[other]) for other in others}
    return {key: value for key, value in found.items() if value is not None}


def reached(target: Target, samples: Samples) -> tuple[str, float | None]:
    """Returns what a target compares, and its value."""
    sides = samples[target.measure]
    first, *others = sides
    if target.over == BEST:
        medians = {name: value for name in others if (value := median(sides[name])) is not None}
        over = max(medians, key=lambda name: medians[name], default=first)
        return f"{target.measure}, over {BEST}", ratio(sides[first], sides[over])
    if target.over:
        return f"{target.measure}, over {target.over}", ratio(sides[first], sides[target.over])
    if target.over_measure:
        return f"{target.measure}, over {target.over_measure}", ratio(sides[first], samples[target.over_measure][first])
    return target.measure, median(sides[first])


def arguments(parser: argparse.ArgumentParser) -> None:
    rounds.add_options(parser, None, record=True)


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, args.quick)
    tested = TABLES[args.command]
    args.rounds = args.rounds or tested.rounds
    samples, reasons = collect(tested, args)
    first, *others = tested.sides
    rows = []
    for measure in tested.measures:
        sides = samples[measure.name]
        values = [median(sides[name]) for name in tested.sides]
        ratios = [ratio(sides[first], sides[other]) for other in others]
        row = ["" if value is None else f"{value:.3g}" for value in values]
        rows.append([measure.name, measure.unit, *row, *("" if value is None else f"{value:.3f}" for value in ratios)])
    print(table(["", "unit", *tested.sides, *(f"{first} / {other}" for other in others)], rows))
    for (name, side), reason in reasons.items():
        print(f"not measured: {side}: {name}: {reason}")
    missed = []
    for target in tested.targets:
        what, value = reached(target, samples)
        bound = f"at least {target.low:g}" if target.low else f"at most {target.high:g}"
        line = f"{what}: {'not measured' if value is None else f'{value:.3g}'}, {bound} is wanted"
        if value is not None and target.low <= value <= target.high:
            print(f"reached: {line}")
        else:
            missed.append(line)
    return rounds.conclude(args, missed, {f"bench {args.command}": figures_of(tested, samples)})
