"""Run an unmodified MPI job over an emulated leaf-spine in real time: one link is slow, another swallows everything.

`squall emulate up` emulates 4 leaves and 2 spines with 8 hosts, ECN and trimming. A permutation of large messages crosses
it, every byte compared: once with squall's own path selection, once with FI_SQUALL_LB=ecmp, which keeps a flow on one path
as tcp does. One uplink has a quarter of its rate. After a third of the time another swallows everything; after two thirds
routing avoids it. Writes an HTML report.

With --bandwidth nothing fails, and the network has to carry 2 Gb/s in total.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from squall_ci.emulator import Emulator, Status
from squall_ci.job import run_program
from squall_ci.paths import TARGET
from squall_ci.programs import squall
from squall_ci.tally import table, Tally

SLOW, DEAD = "leaf0-spine0", "leaf1-spine1"
RANKS = 8
SECONDS = 9.0
RATE_SCALE = "0.01"
REPORT = TARGET / "live.html"


# Arguments of `squall emulate`, each with the second at which it runs.
Script: TypeAlias = list[tuple[float, tuple[str, ...]]]


class Watch(threading.Thread):
    """Samples the emulator's counters, and makes things happen at their times."""

    def __init__(self, emulator: Emulator, script: Script) -> None:
        super().__init__()
        self.emulator = emulator
        self.script = sorted(script)
        self.samples: list[tuple[float, Status]] = []
        self.over = threading.Event()

    def run(self) -> None:
        begin = time.monotonic()
        script = list(self.script)
        while not self.over.wait(0.25):
            now = time.monotonic() - begin
            while script and script[0][0] <= now:
                self.emulator.ask(*script.pop(0)[1])
            self.samples.append((now, self.emulator.status()))

    def rates(self, counter: Callable[[Status], float]) -> list[list[float]]:
        """Returns the points (s, Gb/s) of a byte counter."""
        points = []
        for (t0, a), (t1, b) in zip(self.samples, self.samples[1:]):
            points.append([round(t1, 2), round(8e-9 * (counter(b) - counter(a)) / (t1 - t0), 4)])
        return points


@dataclass(frozen=True)
class Outcome:
    """The result of one job: a problem, the figures of fabtests/mpi/stream.py, and the samples of the network."""

    problem: str | None
    stream: dict[str, Any]
    watch: Watch


def port(name: str) -> Callable[[Status], float]:
    return lambda status: float(next(p["bytes"] for p in status["ports"] if p["name"] == name))


def job(emulator: Emulator, script: Script, lb: str | None = None, size: int = 1 << 18) -> Outcome:
    """Runs a job with messages of `size` bytes, and the script beside it."""
    env = {"FI_SQUALL_LB": lb} if lb else {}
    watch = Watch(emulator, script)
    watch.start()
    try:
        # Every message crosses the spines.
        under = emulator.attach()
        ran = run_program("stream", SECONDS, size, ranks=RANKS, timeout=SECONDS + 60, at_least=1 << 20, env=env, under=under)
    finally:
        watch.over.set()
        watch.join()
    if ran.problem:
        print(ran.output[-3000:])
    return Outcome(ran.problem, ran.figures, watch)


def delay_text(status: Status) -> str:
    delay = status["emulation_delay"]
    return (
        f"emulation delay: mean {delay['mean_ns'] / 1e3:.0f} us, 99 % {delay['p99_ns'] / 1e3:.0f} us, most "
        f"{delay['max_ns'] / 1e3:.0f} us, of a round trip of {status['base_rtt_ns'] / 1e3:.0f} us"
    )


def bandwidth(program: pathlib.Path, options: list[str]) -> int:
    """Checks that the network carries 2 Gb/s when nothing fails, and returns the exit status."""
    tally = Tally()
    # Packets of two pages, because the host's processors limit the rate of packets.
    with Emulator(program, [*options, "--mtu", "8192"]) as emulator:
        begin = time.monotonic()
        outcome = job(emulator, [], size=1 << 20)
        problem, stream = outcome.problem, outcome.stream
        status = emulator.status()
        if not problem and stream and stream["total_gbps"] < 2:
            problem = f"{stream['total_gbps']:.2f} Gb/s in total, expected 2 or more"
        note = f"{stream['total_gbps']:.2f} Gb/s in total" if stream else ""
        tally.add(f"leaf-spine 4 x 2, {RANKS} endpoints", problem, time.monotonic() - begin, note)
        totals = status["totals"]
        print(f"      {totals['marked']} packets marked, {totals['trimmed']} trimmed; {delay_text(status)}")
        print(f"      real time was not kept in {status['late_seconds']} s")
    return tally.finish()


def document(outcomes: dict[str, Outcome]) -> tuple[dict[str, Any], list[str], list[list[str]]]:
    """Returns the document for `squall report`, and its table."""
    rows, lines = [], []
    ups = [f"leaf{leaf}->spine{spine}" for leaf in range(4) for spine in range(2)]
    plots = []
    for name, outcome in outcomes.items():
        stream, watch = outcome.stream, outcome.watch
        last = watch.samples[-1][1]
        t = last["totals"]
        rows.append(
            [
                name,
                f"{stream['total_gbps']:.2f}" if stream else "-",
                f"{stream['longest_s']:.2f}" if stream else "-",
                str(t["trimmed"]),
                str(t["black_hole"] + t["down"]),
                f"{last['emulation_delay']['p99_ns'] / 1e3:.0f}",
            ]
        )
        lines.append({"name": name, "points": watch.rates(lambda s: float(s["totals"]["delivered_bytes"]))})
        plots.append(
            {
                "title": f"load of the uplinks, {name}",
                "x": "time (s)",
                "y": "Gb/s",
                "lines": [{"name": up, "points": watch.rates(port(up))} for up in ups],
            }
        )
    head = ["path selection", "Gb/s in total", "longest wait, s", "trimmed", "lost on links", "delay 99 %, us"]
    text = [
        f"MPICH on {RANKS} hosts of an emulated leaf-spine (4 leaves, 2 spines), rates x {RATE_SCALE}: a permutation of "
        f"large messages, every byte compared. {SLOW} has a quarter of its rate all along; {DEAD} swallows everything from a "
        "third of the time on; routing avoids it after two thirds.",
        "The rates in the plots are sampled four times a second; the job begins a second or two after zero.",
    ]
    plots.insert(0, {"title": "bytes that arrived", "x": "time (s)", "y": "Gb/s", "lines": lines})
    return (
        {
            "title": "MPI over a live leaf-spine",
            "text": text,
            "plots": plots,
            "tables": [{"title": "Jobs", "head": head, "rows": rows}],
        },
        head,
        rows,
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bandwidth", action="store_true", help="measure the network without failures instead")


def main(args: argparse.Namespace) -> int:
    program = squall()
    options = ["--topo", "leaf-spine:4x2x2", "--rate-scale", RATE_SCALE]
    if args.bandwidth:
        return bandwidth(program, options)

    tally = Tally()
    outcomes: dict[str, Outcome] = {}
    for name, lb in (("squall", None), ("squall, lb=ecmp", "ecmp")):
        with Emulator(program, options) as emulator:
            emulator.ask("set-rate", SLOW, "25G")
            begin = time.monotonic()
            # The ranks need a moment to start.
            script: Script = [
                (1.5 + SECONDS / 3, ("black-hole", DEAD)),
                (1.5 + SECONDS * 2 / 3, ("fail-link", DEAD)),
            ]
            outcome = outcomes[name] = job(emulator, script, lb)
        note = f"{outcome.stream['bytes'] / 1e6:.0f} MB, every byte compared" if outcome.stream else ""
        tally.add(f"slow and failing link, {name}", outcome.problem, time.monotonic() - begin, note)
    report, head, rows = document(outcomes)
    print(f"\nMPICH, {RANKS} ranks on an emulated leaf-spine; {SLOW} slow, {DEAD} dying:\n")
    print(table(head, rows))
    for name, outcome in outcomes.items():
        print(f"{name}: {delay_text(outcome.watch.samples[-1][1])}")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(report, file)
        file.flush()
        subprocess.run([program, "report", file.name, "-o", REPORT], check=True, stdout=subprocess.DEVNULL)
    print(f"report: {REPORT}\n")
    return tally.finish()
