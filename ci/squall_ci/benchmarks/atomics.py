"""Atomics of 64 bits on squall beside tcp;ofi_rxm and udp;ofi_rxd, and beside a tagged round trip of the same run.

As ci/run bench messages: in every round and for every measure all run one right after the other, another one first each time; every
number is the median of the rounds, a ratio the median of the ratios within the rounds. Two processes of this host, by packets.
The counter that is added to must be the sum at the end, or nothing is measured. What does not run is not there: its column
stays empty, and the reason is printed (udp;ofi_rxd of libfabric 1.17 and 2.5 does not survive many atomics at once). All are
loaded by the same libfabric, that of the MPICH wheel when ci/run setup has brought it, otherwise the system's. Exit status 1
when a target is missed.
"""

import argparse
import json
import os
import statistics

from squall_ci.benchmarks.messages import environment
from squall_ci.paths import TARGET
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf
from squall_ci.tally import table

PROVIDERS = ("squall", "tcp;ofi_rxm", "udp;ofi_rxd")
TAGGED, FETCH = "64 B tagged round trip", "fetch_add round trip"
FETCH_RATE, RATE = "fetch_add rate", "add rate"
# Name, unit, measure for fi_perf, what one of it is, its repetitions.
MEASURES = [
    (TAGGED, "us", "lat:64", 2.0, 10_000),
    (FETCH, "us", "fadd:8", 1.0, 10_000),
    (FETCH_RATE, "M/s", "faddrate:8", 1.0, 400),
    (RATE, "M/s", "addrate:8", 1.0, 400),
]
# A fetching atomic is a short round trip: at most so much of a tagged one's time.
MOST_OF_TAGGED = 1.1
# At least so many atomics a second for one of tcp;ofi_rxm's.
RATE_OF_RXM = 5.0

# By measure and provider: the value of each round, None where it did not run.
Samples = dict[str, dict[str, list[float | None]]]


def measure(provider: str, word: str, factor: float) -> float | str:
    """One value, or the reason why not."""
    # One that crashes leaves its backtrace where it is.
    command: list[Word] = ["env", "-C", TARGET, fi_perf(), "-p", provider, word]
    result = run(command, environment(provider) | {"FI_SQUALL_SHM": "no"}, timeout=60)
    for line in result.output.splitlines():
        if result.ok and line.startswith(word):
            return float(line.split()[1]) * factor
    return f"{provider}: {word}: {result.why()}: {result.output.strip().partition(chr(10))[0]}"


def ratio(samples: Samples, one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """The median of the ratios within the rounds; None where there are none."""
    pairs = zip(samples[one[0]][one[1]], samples[other[0]][other[1]])
    ratios = [a / b for a, b in pairs if a is not None and b is not None]
    return statistics.median(ratios) if ratios else None


def targets(samples: Samples) -> list[tuple[str, float | None, bool]]:
    """What squall is to reach: what it is, what it has, and whether it has it."""
    trip = ratio(samples, (FETCH, "squall"), (TAGGED, "squall"))
    found = [
        (f"{FETCH} / {TAGGED} <= {MOST_OF_TAGGED:g}", trip, trip is not None and trip <= MOST_OF_TAGGED),
    ]
    for name in (FETCH_RATE, RATE):
        rate = ratio(samples, (name, "squall"), (name, "tcp;ofi_rxm"))
        found.append((f"{name} / tcp;ofi_rxm's >= {RATE_OF_RXM:g}", rate, rate is not None and rate >= RATE_OF_RXM))
    return found


def middle(values: list[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.median(there):.3g}" if there else ""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--json", help="also write all samples to this file")


def main(args: argparse.Namespace) -> int:
    rounds = 1 if args.quick else args.rounds
    samples: Samples = {what: {provider: [] for provider in PROVIDERS} for what, *_ in MEASURES}
    reasons: dict[tuple[str, str], str] = {}
    for turn in range(rounds):
        first = turn % len(PROVIDERS)
        for what, _, word, factor, repetitions in MEASURES:
            for provider in PROVIDERS[first:] + PROVIDERS[:first]:
                # What does not run once is not asked again.
                if (what, provider) in reasons:
                    samples[what][provider].append(None)
                    continue
                value = measure(provider, f"{word}:{max(3, repetitions // (20 if args.quick else 1))}", factor)
                if isinstance(value, str):
                    reasons[what, provider] = value
                samples[what][provider].append(None if isinstance(value, str) else value)
    rows = [[what, unit, *(middle(samples[what][p]) for p in PROVIDERS)] for what, unit, *_ in MEASURES]
    print(table(["", "unit", *PROVIDERS], rows))
    print(f"\nmedians of {rounds} interleaved rounds, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    for reason in reasons.values():
        print(f"not measured: {reason}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(samples, file, indent=1)
    reached = targets(samples)
    for target, has, met in reached:
        print(f"{'reached' if met else 'missed '}: {target}: {'not measured' if has is None else f'{has:.2f}'}")
    return 0 if all(met for *_, met in reached) else 1
