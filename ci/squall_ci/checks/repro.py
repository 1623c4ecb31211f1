"""Run the papers' experiments on the simulator and compare the results with the papers' statements.

Prints one table: statement, source, expected, measured, pass. Plans are tools/plans/*.toml; by default all of them run,
which takes an hour. --quick runs the quick forms, --large the plans of tools/plans/large, at the papers' own sizes. Results
and report.html are left in target/repro (target/repro-large). The exit status is 1 when a statement does not hold and its
plan does not explain why (docs/REPRODUCTION.md has a summary).
"""

import argparse
import subprocess
import sys
import time

from squall_ci.paths import ROOT, say, shown, TARGET
from squall_ci.programs import squall


def arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="the quick forms")
    form.add_argument("--large", action="store_true", help="the papers' own sizes")
    parser.add_argument("plans", nargs="*", metavar="PLAN")


def main(args: argparse.Namespace) -> int:
    program = squall()
    form = ["--quick"] if args.quick else ["--plans", "tools/plans/large"] if args.large else []
    out = TARGET / ("repro-large" if args.large else "repro")
    begin = time.monotonic()
    sys.stdout.flush()
    command = [program, "plan", "run", *form, "--summary", "--out", out, *args.plans]
    status = subprocess.run(command, cwd=ROOT).returncode
    say(f"{time.monotonic() - begin:.0f} s; everything measured is in {shown(out)}, drawn in {shown(out)}/report.html")
    return status
