"""What it costs to be looked at: squall with its board, top looking at it and statistics on an interval, beside squall without.

Two processes of this host. *off* is FI_SQUALL_MONITOR=0ns; *board* the default; *watched* the default with `squall top --serve`
asked once a second, and lines of statistics every 100 ms into a file. In every round the three run one right after the other,
another one first each time; numbers are medians of the rounds, ratios medians of the ratios within the rounds, above 1 where
being looked at is slower. Exit status 1 when that is more than 1 %.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator

from squall_ci.benchmarks.messages import environment
from squall_ci.paths import need
from squall_ci.process import run
from squall_ci.programs import fi_perf, squall
from squall_ci.tally import table

WAYS = ("off", "board", "watched")
# Name, unit, measure for fi_perf, its repetitions, FI_SQUALL_SHM.
MEASURES = [
    ("64 B message rate", "M/s", "rate:64", 20_000, "yes"),
    ("64 B message rate, packets", "M/s", "rate:64", 8_000, "no"),
    ("1 MiB bandwidth", "GB/s", "bw:1048576", 600, "yes"),
    ("1 MiB bandwidth, packets", "GB/s", "bw:1048576", 200, "no"),
]
# May be slower by this at most.
ALLOWED = 1.01


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """While a collector asks once a second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen([squall(), "top", "--serve", where], stderr=subprocess.DEVNULL)
    over = threading.Event()

    def collect() -> None:
        while not over.wait(1.0):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{where}/metrics", timeout=5).read()

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        yield
    finally:
        over.set()
        collector.join()
        server.terminate()
        server.wait(10)


def measure(way: str, word: str, shm: str, folder: str) -> float:
    """One value."""
    env = environment("squall") | {"FI_SQUALL_SHM": shm}
    if way == "off":
        env["FI_SQUALL_MONITOR"] = "0ns"
    if way == "watched":
        env |= {"FI_SQUALL_STATS": f"json:{folder}/%p", "FI_SQUALL_STATS_INTERVAL": "100ms"}
    with watched() if way == "watched" else contextlib.nullcontext():
        result = run([fi_perf(), "-p", "squall", word], env, timeout=120)
    values = [line.split()[1] for line in result.output.splitlines() if line.startswith(word)]
    need(result.ok and values, f"{way}: {word}: {result.why()}: {result.output.strip()[-400:]}")
    return float(values[0])


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--json", help="also write all samples to this file")


def main(args: argparse.Namespace) -> int:
    rounds = 1 if args.quick else args.rounds
    samples: dict[str, dict[str, list[float]]] = {what: {way: [] for way in WAYS} for what, *_ in MEASURES}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            first = turn % len(WAYS)
            for what, _, word, repetitions, shm in MEASURES:
                for way in WAYS[first:] + WAYS[:first]:
                    times = max(3, repetitions // (20 if args.quick else 1))
                    samples[what][way].append(measure(way, f"{word}:{times}", shm, folder))
                    time.sleep(0.05)
    rows, missed = [], []
    for what, unit, *_ in MEASURES:
        off = samples[what]["off"]
        ratios = [statistics.median(a / b for a, b in zip(off, samples[what][way])) for way in WAYS[1:]]
        values = [f"{statistics.median(samples[what][way]):.3g}" for way in WAYS]
        rows.append([what, unit, *values, *(f"{ratio:.3f}" for ratio in ratios)])
        if max(ratios) > ALLOWED:
            missed.append(f"{what}: {max(ratios):.3f}, wanted {ALLOWED}")
    print(table(["", "unit", *WAYS, "off / board", "off / watched"], rows))
    print(f"\nmedians of {rounds} interleaved rounds, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(samples, file, indent=1)
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0
