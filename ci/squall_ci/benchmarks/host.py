"""Two processes of one host: squall through shared memory beside squall by packets, tcp, and libfabric's shm.

As ci/run bench messages: in every round and for every measure all run one right after the other, another one first each time; every
number is the median of the rounds. What does not run, is not there: its column stays empty, and the reason is printed. All are
loaded by the same libfabric, that of the MPICH wheel when ci/run setup has brought it, otherwise the system's. Exit status 1
when a target is missed.
"""

import argparse
import json
import os
import statistics

from squall_ci.benchmarks.messages import environment
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf
from squall_ci.tally import table

# Name: the provider, and what it is told.
CONTESTANTS: dict[str, tuple[str, dict[str, str]]] = {
    "squall": ("squall", {"FI_SQUALL_SHM": "yes"}),
    "packets": ("squall", {"FI_SQUALL_SHM": "no"}),
    "shm": ("shm", {}),
    "tcp": ("tcp", {}),
}
# Name, unit, measure for fi_perf, its repetitions.
MEASURES = [
    ("64 B half round trip", "us", "lat:64", 50_000),
    ("64 B half round trip, injected", "us", "latinj:64", 50_000),
    ("4 KiB half round trip", "us", "lat:4096", 20_000),
    ("64 KiB half round trip", "us", "lat:65536", 3_000),
    ("1 MiB half round trip", "us", "lat:1048576", 400),
    ("64 B message rate", "M/s", "rate:64", 2_000),
    ("64 B message rate, injected", "M/s", "rateinj:64", 2_000),
    ("16 KiB bandwidth", "GB/s", "bw:16384", 2_000),
    ("1 MiB bandwidth", "GB/s", "bw:1048576", 100),
]


def measure(name: str, word: str) -> float | str:
    """One value, or the reason why not."""
    provider, told = CONTESTANTS[name]
    # Its endpoints have names instead of addresses, and no two may have one.
    names = [f"squall-bench-{os.getpid()}-{side}" for side in "ab"]
    options: list[Word] = ["-a", ",".join(names)] if provider == "shm" else []
    result = run([fi_perf(), "-p", provider, *options, word], environment(provider) | told, timeout=20)
    for line in result.output.splitlines():
        if result.ok and line.startswith(word):
            return float(line.split()[1])
    return f"{name}: {word}: {result.why()}: {result.output.strip()[-300:]}"


def targets(middle: dict[str, dict[str, float]]) -> list[tuple[str, float, float, bool]]:
    """What squall is to reach: what it is, what it has, what it needs, and whether it has it."""
    short, rate, window = "64 B half round trip", "64 B message rate", "1 MiB bandwidth"
    found = [(f"{short}, us at most", middle[short]["squall"], 0.6, middle[short]["squall"] <= 0.6)]
    if "shm" in middle[short]:
        ratio = middle[short]["squall"] / middle[short]["shm"]
        found.append((f"{short}, of shm's at most", ratio, 0.7, ratio <= 0.7))
    found.append((f"{rate}, M/s", middle[rate]["squall"], 4.0, middle[rate]["squall"] >= 4.0))
    best = max(value for name, value in middle[window].items() if name != "squall")
    ratio = middle[window]["squall"] / best
    found.append((f"{window}, of the best other", ratio, 0.95, ratio >= 0.95))
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--json", help="also write all samples to this file")


def main(args: argparse.Namespace) -> int:
    rounds = 1 if args.quick else args.rounds
    names = list(CONTESTANTS)
    samples: dict[str, dict[str, list[float]]] = {what: {name: [] for name in names} for what, *_ in MEASURES}
    reasons: dict[tuple[str, str], str] = {}
    for turn in range(rounds):
        order = names[turn % len(names) :] + names[: turn % len(names)]
        for what, _, word, repetitions in MEASURES:
            for name in order:
                value = measure(name, f"{word}:{max(3, repetitions // (20 if args.quick else 1))}")
                if isinstance(value, str):
                    reasons[name, what] = value
                else:
                    samples[what][name].append(value)
    middle = {
        what: {name: statistics.median(values) for name, values in of.items() if values} for what, of in samples.items()
    }
    rows = []
    for what, unit, *_ in MEASURES:
        rows.append([what, unit, *(f"{middle[what][name]:.3g}" if name in middle[what] else "" for name in names)])
    print(table(["", "unit", *names], rows))
    print(f"\nmedians of {rounds} interleaved rounds, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    for reason in reasons.values():
        print(f"not measured: {reason}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(samples, file, indent=1)
    if any("squall" not in of for of in middle.values()):
        return 1
    reached = targets(middle)
    for target, has, needs, met in reached:
        print(f"{'reached' if met else 'missed '}: {target}: {has:.2f}, wanted {needs:g}")
    return 0 if all(met for *_, met in reached) else 1
