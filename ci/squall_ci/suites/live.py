"""Run an unmodified MPI job over an emulated leaf-spine in real time: one link is slow, another swallows everything.

`squall run --on` emulates 4 leaves and 2 spines with 8 hosts, ECN and trimming. A permutation of large messages crosses
it, every byte compared: once with squall's own path selection, once with FI_SQUALL_LB=ecmp, which keeps a flow on one path
as tcp does. One uplink has a quarter of its rate. After a third of the time another swallows everything; after two thirds
routing avoids it. The loads of the links over time are in an HTML report of each job.

With --bandwidth nothing fails, and the network has to carry 2 Gb/s in total.
"""

import argparse
import pathlib
import re
import tempfile

from squall_ci.job import Job, run_program
from squall_ci.paths import shown, TARGET
from squall_ci.process import Word
from squall_ci.programs import squall
from squall_ci.tally import table, Tally

RANKS = 8
SECONDS = 9.0
NETWORK = ["--on", "leaf-spine:4x2x2", "--rate-scale", "0.01"]
SLOW, DEAD = "leaf0-spine0", "leaf1-spine1"
# By the seconds of a job.
TIMELINE = """\
0s      set-rate {slow} 25G
{a_third}s  black-hole {dead}
{two_thirds}s  fail-link {dead}
"""
# The path selections, and the report of each job.
SELECTIONS = {
    "squall": ({}, TARGET / "live.html"),
    "squall, lb=ecmp": ({"FI_SQUALL_LB": "ecmp"}, TARGET / "live-ecmp.html"),
}
# The bandwidth that the network has to carry without failures, Gb/s.
LEAST = 2.0
# The summary of the emulator at the end of a job.
CROSSED = re.compile(r"^squall: (\d+ packets .* entered, .* (\d+) trimmed, (\d+) lost; .*)$", re.M)


def run_stream(options: list[Word], env: dict[str, str], size: int, seconds: float = SECONDS) -> Job:
    """Runs the permutation with messages of `size` bytes on an emulated network with these options."""
    emulate = [str(word) for word in (squall(), "run", *NETWORK, *options, "--")]
    # Every message crosses the spines.
    return run_program(
        "stream",
        seconds,
        size,
        ranks=RANKS,
        timeout=seconds + 60,
        at_least=1 << 20,
        env=env,
        launch=lambda command: [*emulate, *command],
    )


def run_failing(seconds: float, env: dict[str, str], report: pathlib.Path) -> tuple[Job, re.Match[str] | None]:
    """Runs the permutation while one link is slow and another dies, and writes a report.

    Returns the job and the emulator's summary, if it reports lost packets.
    """
    with tempfile.TemporaryDirectory() as folder:
        timeline = pathlib.Path(folder) / "timeline"
        timeline.write_text(TIMELINE.format(slow=SLOW, dead=DEAD, a_third=seconds / 3, two_thirds=seconds * 2 / 3))
        job = run_stream(["--timeline", timeline, "--report", report], env, 1 << 18, seconds)
    crossed = CROSSED.search(job.output)
    return job, crossed if crossed and int(crossed[3]) else None


def bandwidth(tally: Tally) -> None:
    """Checks how much the network carries when nothing fails."""
    # Packets of two pages, because the host's processors limit the rate of packets.
    job = run_stream(["--mtu", 8192], {}, 1 << 20)
    total = job.figures.get("total_gbps", 0.0)
    problem = None if total >= LEAST else f"{total:.2f} Gb/s in total, expected {LEAST:g} or more"
    crossed = CROSSED.search(job.output)
    job.add_to(tally, f"leaf-spine 4 x 2, {RANKS} endpoints", problem, f"{total:.2f} Gb/s in total")
    print(f"      {crossed[1] if crossed else 'no summary of the emulator'}")


def failures(tally: Tally) -> None:
    """Runs the job over links that fail, with each path selection, and prints a table."""
    rows = []
    for name, (env, report) in SELECTIONS.items():
        job, crossed = run_failing(SECONDS, env, report)
        problem = None if crossed else "the emulator reports no packet lost on the links that fail"
        job.add_to(tally, f"slow and failing link, {name}", problem, "every byte compared")
        if job.figures and crossed:
            figures = (f"{job.figures['total_gbps']:.2f}", f"{job.figures['longest_s']:.2f}")
            rows.append([name, *figures, crossed[2], crossed[3], shown(report)])
    print(f"\nMPICH, {RANKS} ranks on an emulated leaf-spine; {SLOW} slow, {DEAD} dying:\n")
    head = ["path selection", "Gb/s in total", "longest wait, s", "trimmed", "lost", "report"]
    print(table(head, rows, left=(0, 5)), end="\n\n")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bandwidth", action="store_true", help="measure the network without failures instead")


def main(args: argparse.Namespace) -> int:
    tally = Tally()
    (bandwidth if args.bandwidth else failures)(tally)
    return tally.finish()
