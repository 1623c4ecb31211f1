"""Tagged messages on squall beside tcp and udp;ofi_rxd: one table of medians and ratios, two processes on this host.

In every round and for every measure the providers run one right after the other, another one first each time: virtual
machines have fast and slow seconds (memory bandwidth above all), and so all see the same. Every number is the median of
the rounds; a ratio is the median of the ratios within the rounds. All are loaded by the same libfabric, that of the MPICH
wheel when ci/run setup has brought it, otherwise the system's. Exit status 1 when a target is missed. (ci/run bench cc and ci/run bench sim count other things.)
"""

import argparse
import json
import os
import statistics
from typing import TypeAlias

from squall_ci.environment import provider_run
from squall_ci.paths import need_provider, TARGET
from squall_ci.process import run
from squall_ci.programs import fi_perf
from squall_ci.tally import table

# What the providers do, by measure: the value of each round.
Samples: TypeAlias = dict[str, dict[str, list[float]]]

# Name, unit, larger is better, measure for fi_perf, its repetitions (and for slow ofi_rxd, fewer).
MEASURES = [
    ("1 MiB bandwidth", "GB/s", True, "bw:1048576:{}", (40, 6)),
    ("64 B half round trip", "us", False, "lat:64:{}", (10_000, 3_000)),
    ("64 B half round trip, injected", "us", False, "latinj:64:{}", (10_000, 3_000)),
    ("64 B message rate", "M/s", True, "rate:64:{}", (800, 80)),
    ("64 B message rate, injected", "M/s", True, "rateinj:64:{}", (800, 80)),
]

# What squall must reach: (measure, other provider, factor). A factor on time is an upper bound.
TARGETS = [
    ("1 MiB bandwidth", "udp;ofi_rxd", 8.0),
    ("1 MiB bandwidth", "tcp", 0.6),
    ("64 B half round trip", "tcp", 1.0),
    ("64 B message rate", "tcp", 3.0),
]


def environment(provider: str) -> dict[str, str]:
    """Variables for one run of fi_perf; the provider is chosen by its hints, so FI_PROVIDER must not filter."""
    env = provider_run(provider)
    env.pop("FI_PROVIDER", None)
    bundled = TARGET / "venv-mpich" / "lib" / "mpich"
    if (bundled / "libfabric.so.1").exists():
        env["LD_LIBRARY_PATH"] = str(bundled)
    return env


def measure(provider: str, pattern: str, rounds: tuple[int, int], quick: bool) -> float | str:
    """One value, or the reason why not as a string."""
    slow = provider.endswith("ofi_rxd") or quick
    word = pattern.format(rounds[slow])
    result = run([fi_perf(), "-p", provider, word], environment(provider), timeout=60)
    if not result.ok:
        return f"{word}: {result.why()}: {result.output.strip()[-400:]}"
    for line in result.output.splitlines():
        if line.startswith(word):
            return float(line.split()[1])
    return f"{word}: no result: {result.output.strip()[-400:]}"


def verify(provider: str) -> str | None:
    """Contents, apart from the timing. None when right."""
    sizes = [0, 1, 64, 4096, 8192, 65_537, 1 << 20]
    result = run([fi_perf(), "-p", provider, *(f"verify:{size}:3" for size in sizes)], environment(provider), timeout=120)
    return None if result.ok else f"{result.why()}: {result.output.strip()[-400:]}"


def report(samples: Samples, providers: list[str]) -> list[str]:
    """The table of medians, and the targets missed."""
    others = [provider for provider in providers if provider != "squall"] if "squall" in providers else []
    head = ["", "unit"] + providers + [f"squall / {provider}" for provider in others] + ["targets"] * bool(others)
    rows, missed = [], []
    for name, unit, larger, _, _ in MEASURES:
        values = samples[name]
        row = [name, unit] + [f"{statistics.median(values[provider]):.3g}" for provider in providers]
        verdicts = []
        for other in others:
            ratio = statistics.median(ours / theirs for ours, theirs in zip(values["squall"], values[other]))
            row.append(f"{ratio:.2f}")
            for target, against, factor in TARGETS:
                if (target, against) != (name, other):
                    continue
                met = ratio >= factor if larger else ratio <= factor
                wanted = f"{'>=' if larger else '<='} {factor:g} {against}"
                verdicts.append(f"{wanted}: {'yes' if met else 'NO'}")
                if not met:
                    missed.append(f"{name} {wanted}: {ratio:.2f}")
        if others:
            row.append("; ".join(verdicts))
        rows.append(row)
    print(table(head, rows))
    return missed


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="3 short rounds: to see that it works")
    parser.add_argument("--providers", default="squall,tcp,udp;ofi_rxd")
    parser.add_argument("--json", help="also write all samples to this file")


def main(args: argparse.Namespace) -> int:
    providers = args.providers.split(",")
    for provider in providers:
        need_provider(provider)

    for provider in providers:
        problem = verify(provider)
        if problem:
            print(f"{provider}: contents are not verified: {problem}")
            return 1
    samples: Samples = {name: {provider: [] for provider in providers} for name, *_ in MEASURES}
    rounds = 3 if args.quick else args.rounds
    for round_ in range(rounds):
        first = round_ % len(providers)
        for name, _, _, pattern, repetitions in MEASURES:
            for provider in providers[first:] + providers[:first]:
                value = measure(provider, pattern, repetitions, args.quick)
                if isinstance(value, str):
                    print(f"{provider}: {value}")
                    return 1
                samples[name][provider].append(value)
    missed = report(samples, providers)
    library = "MPICH's libfabric 2.5" if "LD_LIBRARY_PATH" in environment("tcp") else "the system's libfabric"
    load = os.getloadavg()[0]
    print(f"\nmedians of {rounds} interleaved rounds, {os.cpu_count()} cores, {library}, load average {load:.1f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(samples, file, indent=1)
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0
