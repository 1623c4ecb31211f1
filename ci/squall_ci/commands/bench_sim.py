"""What simulating costs: time and memory of the simulator.

    ci/run bench sim [--reference DIR]

A 2 MB permutation on full fat trees of 128, 1024 and 8192 hosts: seconds, nanoseconds an event, memory. With --reference,
the directory of htsim's table (htsim.csv, its topologies and matrices), also the 1024-host rows of it, beside htsim's own
seconds and memory. Every run is a process of its own, three times, and the fastest counts; nothing else should run
meanwhile. Exit status 1 when a target is missed.
"""

import argparse
import csv
import itertools
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

from squall_ci.process import Word
from squall_ci.programs import example

REPEAT = 3
# Cost of an event at 8192 hosts over that at 128; memory at 8192 hosts; seconds over htsim's.
FLAT, ROOM, FASTER = 2.0, 8 << 30, 1 / 5


def fastest(program: pathlib.Path, *args: Word) -> dict[str, Any]:
    """The fastest of some runs."""
    runs = []
    for _ in range(REPEAT):
        result = subprocess.run([program, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True)
        runs.append(json.loads(result.stdout))
    return min(runs, key=lambda one: float(one["wall_s"]))


def reference_rows(directory: pathlib.Path) -> Iterator[tuple[str, list[Word], float, int]]:
    """Name, arguments for our program, seconds and bytes of htsim for each row of 1024 hosts."""
    with open(directory / "htsim.csv", newline="") as file:
        for row in csv.DictReader(file):
            if not row["scenario"].startswith("perm1024"):
                continue
            words = row["args"].split()
            given = {word: value for word, value in itertools.pairwise(words) if word.startswith("-")}
            args: list[Word] = [
                directory / given["-topo"],
                directory / given["-tm"],
                f"lb={given['-load_balancing_algo']}",
                f"mtu={given['-mtu']}",
                f"seed={given['-seed']}",
                "nic=100",
            ]
            yield row["scenario"], args, float(row["wall_s"]), int(row["peak_kb"]) * 1024


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", type=pathlib.Path, metavar="DIR", help="directory with htsim.csv")


def run(args: argparse.Namespace) -> int:
    program = example("squall-fabric", "speed")
    missed = []
    print(f"{'hosts':>6} {'events':>10} {'seconds':>8} {'ns/event':>9} {'MB':>7}")
    cost: dict[int, float] = {}
    for hosts in (128, 1024, 8192):
        best = fastest(program, hosts)
        cost[hosts] = best["ns_per_event"]
        print(
            f"{hosts:6} {best['events']:10} {best['wall_s']:8.2f} {best['ns_per_event']:9.1f} {best['peak_bytes'] / 1e6:7.0f}"
        )
        if best["finished"] != best["flows"]:
            missed.append(f"{hosts} hosts: only {best['finished']} of {best['flows']} flows finished")
        if best["peak_bytes"] > ROOM:
            missed.append(f"{hosts} hosts take {best['peak_bytes'] / 1e9:.1f} GB, more than {ROOM / 1e9:.1f}")
    ratio = cost[8192] / cost[128]
    print(f"an event at 8192 hosts costs {ratio:.2f} of one at 128 (target: {FLAT:.0f})")
    if ratio > FLAT:
        missed.append(f"an event at 8192 hosts costs {ratio:.2f} of one at 128, more than {FLAT:.0f}")
    if args.reference:
        print(f"\n{'1024 hosts':28} {'htsim s':>8} {'ours s':>7} {'times':>6} {'htsim MB':>9} {'ours MB':>8}")
        for name, given, seconds, room in reference_rows(args.reference):
            best = fastest(program, *given)
            mine, bytes_ = best["wall_s"], best["peak_bytes"]
            print(f"{name:28} {seconds:8.2f} {mine:7.2f} {seconds / mine:6.1f} {room / 1e6:9.0f} {bytes_ / 1e6:8.0f}")
            if mine > seconds * FASTER:
                missed.append(f"{name}: {mine:.2f} s, more than a fifth of htsim's {seconds:.2f} s")
            if bytes_ > room:
                missed.append(f"{name}: {bytes_ / 1e6:.0f} MB, more than htsim's {room / 1e6:.0f}")
    for what in missed:
        print(f"MISSED: {what}")
    return 1 if missed else 0
