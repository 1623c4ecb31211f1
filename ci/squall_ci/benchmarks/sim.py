"""Measure time and memory of the simulator.

Permutations of 2 MB on full fat trees of 128, 1024 and 8192 hosts, and of 128 KB on 65536: seconds, nanoseconds an event,
memory. Every run is a process of its own, three times, and the fastest counts. Nothing else should run meanwhile. 1024 and
8192 hosts also run on two threads beside one: the speedup, and whether the result is the same. The limit beside it is the
speedup of two independent processes.

--reference names the directory of htsim's table (htsim.csv, its topologies and matrices), whose 1024-host rows run beside htsim's
recorded seconds and memory. With --htsim, htsim's UEC program, both run the permutations of that table in turns, on one thread each:
medians of processor time and memory. The exit status is 1 when a target is missed.
"""

import argparse
import csv
import itertools
import json
import os
import pathlib
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

from squall_ci.paths import need
from squall_ci.process import Word
from squall_ci.programs import example
from squall_ci.rounds import print_missed

REPEAT = 3
# Cost of an event at 8192 hosts over that at 128; seconds over htsim's.
FLAT, FASTER = 2.0, 1 / 5
# Hosts, bytes a flow, and the memory allowed.
TREES = ((128, 2_000_000, 8 << 30), (1024, 2_000_000, 8 << 30), (8192, 2_000_000, 8 << 30), (65536, 128_000, 12 << 30))
# Seconds of one thread over those of two.
THREADS, APART = 2, 1.6
# Processor time of htsim over ours in the same run: 128 and 1024 hosts.
BESIDE = (10.0, 15.0)


def fastest(program: pathlib.Path, *args: Word) -> dict[str, Any]:
    """Returns the fastest of REPEAT runs."""
    runs = [run_together(program, 1, *args)[0] for _ in range(REPEAT)]
    return min(runs, key=lambda one: float(one["wall_s"]))


def run_together(program: pathlib.Path, count: int, *args: Word) -> list[dict[str, Any]]:
    """Runs `count` processes at the same time and returns their results."""
    command = [str(program), *map(str, args)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    outputs = [child.communicate()[0] for child in children]
    need(all(child.returncode == 0 for child in children), f"{program} failed")
    return [json.loads(one) for one in outputs]


def comparable(one: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of a result that does not depend on the machine."""
    return {key: value for key, value in one.items() if key not in ("wall_s", "ns_per_event", "peak_bytes")}


def compare_threads(program: pathlib.Path, rounds: int) -> list[str]:
    """Prints the speedup by two threads, and returns the missed targets."""
    missed = []
    print(f"\n{'hosts':>6} {'one s':>8} {'two s':>8} {'times':>6} {'limit':>6} {'MB':>7}")
    for hosts, size, _ in TREES[1:3]:
        alone, both, limits = [], [], []
        for _ in range(rounds):
            [one] = run_together(program, 1, hosts, size, 1)
            [two] = run_together(program, 1, hosts, size, THREADS)
            halves = run_together(program, THREADS, hosts, size, 1)
            need(
                comparable(one) == comparable(two),
                f"{THREADS} threads find something else at {hosts} hosts: {one} and {two}",
            )
            alone.append(one["wall_s"])
            both.append(two["wall_s"])
            limits.append(THREADS * one["wall_s"] / max(half["wall_s"] for half in halves))
        times = statistics.median(one / two for one, two in zip(alone, both, strict=True))
        limit = statistics.median(limits)
        print(
            f"{hosts:6} {statistics.median(alone):8.2f} {statistics.median(both):8.2f} {times:6.2f} {limit:6.2f} "
            f"{two['peak_bytes'] / 1e6:7.0f}"
        )
        if times < APART:
            missed.append(f"{hosts} hosts on {THREADS} threads: {times:.2f} x one thread's speed, wanted {APART:g}")
    return missed


def cost(command: list[Word], where: pathlib.Path) -> tuple[float, int]:
    """Runs a program and returns its processor seconds and peak bytes."""
    child = subprocess.Popen(
        [str(word) for word in command], cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    need(child.returncode == 0, f"{command[0]} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def compare_with_htsim(ours: pathlib.Path, htsim: pathlib.Path, directory: pathlib.Path, rounds: int) -> list[str]:
    """Prints processor time and memory of both on the same scenarios, and returns the missed targets."""
    missed = []
    print(f"\n{'CPU time':28} {'htsim s':>8} {'ours s':>7} {'times':>6} {'htsim MB':>9} {'ours MB':>8}")
    for name, given, words in scenarios(directory, ("perm128_2MB", "perm1024")):
        # Only path selectors that have the same name in both are comparable.
        if not name.endswith(("_reps", "_oblivious")) or "big" in name:
            continue
        pairs = []
        for turn in range(rounds):
            runs = {True: [htsim.resolve(), *words], False: [ours, *given]}
            order = (True, False) if turn % 2 == 0 else (False, True)
            pairs.append({theirs: cost(runs[theirs], directory) for theirs in order})
        seconds = {theirs: statistics.median(pair[theirs][0] for pair in pairs) for theirs in (True, False)}
        room = {theirs: statistics.median(pair[theirs][1] for pair in pairs) for theirs in (True, False)}
        times = statistics.median(pair[True][0] / pair[False][0] for pair in pairs)
        large = name.startswith("perm1024")
        # A child's peak is at least that of this interpreter, from which it was forked.
        memory = f"{room[True] / 1e6:9.0f} {room[False] / 1e6:8.0f}" if large else ""
        print(f"{name:28} {seconds[True]:8.2f} {seconds[False]:7.2f} {times:6.1f} {memory}", flush=True)
        if times < BESIDE[large]:
            missed.append(f"{name}: {times:.1f} x htsim's speed, wanted {BESIDE[large]:g}")
        if large and room[False] * 3 > room[True]:
            missed.append(f"{name}: {room[False] / room[True]:.2f} of htsim's memory, wanted a third")
    return missed


def scenarios(directory: pathlib.Path, names: tuple[str, ...]) -> Iterator[tuple[str, list[Word], list[Word]]]:
    """Yields the name, our arguments and htsim's of each scenario of the table, for the first seed."""
    with open(directory / "htsim.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["scenario"].startswith(names) and row["seed"] == "1" and "-load_balancing_algo" in row["args"]:
                yield row["scenario"], our_words(directory, row["args"].split()), list(row["args"].split())


def our_words(directory: pathlib.Path, words: list[str]) -> list[Word]:
    """Translates htsim's arguments into those of our program."""
    given = {word: value for word, value in itertools.pairwise(words) if word.startswith("-")}
    return [
        directory / given["-topo"],
        directory / given["-tm"],
        f"lb={given['-load_balancing_algo']}",
        f"mtu={given['-mtu']}",
        f"seed={given['-seed']}",
        "nic=100",
    ]


def reference_rows(directory: pathlib.Path) -> Iterator[tuple[str, list[Word], float, int]]:
    """Yields the name, our arguments, and htsim's seconds and bytes for each row of 1024 hosts."""
    with open(directory / "htsim.csv", newline="") as file:
        for row in csv.DictReader(file):
            if not row["scenario"].startswith("perm1024"):
                continue
            args = our_words(directory, row["args"].split())
            yield row["scenario"], args, float(row["wall_s"]), int(row["peak_kb"]) * 1024


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", type=pathlib.Path, metavar="DIR", help="directory with htsim.csv")
    parser.add_argument(
        "--htsim", type=pathlib.Path, metavar="PROGRAM", help="htsim's UEC program (htsim_uec), to run beside ours"
    )
    parser.add_argument("--rounds", type=int, default=3)


def main(args: argparse.Namespace) -> int:
    program = example("squall-netsim", "speed")
    if args.htsim:
        need(args.reference, "--htsim needs --reference, the directory with what both are to run")
        return print_missed(compare_with_htsim(program, args.htsim, args.reference, args.rounds))
    missed = []
    print(f"{'hosts':>6} {'events':>10} {'seconds':>8} {'ns/event':>9} {'MB':>7}")
    each: dict[int, float] = {}
    for hosts, size, room in TREES:
        best = fastest(program, hosts, size)
        each[hosts] = best["ns_per_event"]
        print(
            f"{hosts:6} {best['events']:10} {best['wall_s']:8.2f} {best['ns_per_event']:9.1f} {best['peak_bytes'] / 1e6:7.0f}"
        )
        if best["finished"] != best["flows"]:
            missed.append(f"{hosts} hosts: only {best['finished']} of {best['flows']} flows finished")
        if best["peak_bytes"] > room:
            missed.append(f"{hosts} hosts take {best['peak_bytes'] / 1e9:.1f} GB, more than {room / 1e9:.1f}")
    ratio = each[8192] / each[128]
    print(f"an event at 8192 hosts costs {ratio:.2f} of one at 128 (target: {FLAT:.0f})")
    if ratio > FLAT:
        missed.append(f"an event at 8192 hosts costs {ratio:.2f} of one at 128, more than {FLAT:.0f}")
    missed += compare_threads(program, args.rounds)
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
    return print_missed(missed)
