"""Run what finds faults quickly: style, lints, dependency rules, all unit, property and C ABI tests, and MPI jobs.

Installs what is missing first (ci/run setup test). Everything is built once, in the profile `ci`; the rest of the checks is
ci/nightly. Names of steps select those alone. --fast selects the steps for every edit: without jobs and C ABI tests.

A step writes its output to target/test-logs; the end of it is shown here if the step fails. A step that hangs is ended with
everything that it started. FI_SQUALL_* of the caller reaches the jobs. The last line is `N passed, N failed`, and the exit
status is 1 when a step failed.
"""

import argparse
import os
import subprocess

from squall_ci.paths import ROOT, RUN, TARGET
from squall_ci.process import Word
from squall_ci.steps import list_steps, run_steps, Step

# The network of the step `faults`. The CRC detects the damaged packets.
FAULTS = {"FI_SQUALL_CRC": "1", "FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%"}
# What the dependencies' licences and sources follow from.
DEPENDENCIES = ("Cargo.lock", "deny.toml")


def deny() -> Step:
    """Returns the step that checks licences and sources of dependencies."""
    tools = TARGET / "tools" / "bin"
    return Step(
        "deny",
        [[RUN, "setup", "tools"], ["cargo", "deny", "--all-features", "check", "bans", "licenses", "sources"]],
        env={"PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"},
    )


def dependencies_changed() -> bool:
    """Returns whether the dependencies differ from those of the branch that this work began from."""
    differs = ["git", "diff", "--quiet", "--merge-base", "origin/HEAD", "--", *DEPENDENCIES]
    # Status 1 means different; others, that there is no such branch.
    return subprocess.run(differs, cwd=ROOT, capture_output=True).returncode == 1


def steps(fast: bool) -> list[Step]:
    """Returns all steps, in order."""
    ci = {"SQUALL_CI_PROFILE": "ci"}
    mpi: list[Word] = [RUN, "suite", "mpi", "--quick", "mpich", "squall", "4"]
    return [
        Step("setup", [[RUN, "setup", *(["build", "lint"] if fast else ["test"])]], 3600, terminal=True, fast=True),
        Step("python", [[RUN, "python"]], 600, fast=True),
        Step("format", [["cargo", "fmt", "--all", "--check"]], fast=True),
        Step("deps", [[RUN, "check", "deps"]], fast=True),
        Step("reasons", [[RUN, "check", "reasons"]], fast=True),
        *([deny()] if dependencies_changed() else []),
        # Everything but examples, with the lints of clippy.
        Step("build", [[RUN, "build"]], env=ci, fast=True),
        # Each program has a limit of its own; the one here is for a machine that makes no progress at all.
        Step("tests", [[RUN, "check", "tests", *(["--without-abi"] if fast else [])]], 7200, fast=True),
        Step("faults", [mpi], env={**ci, **FAULTS}),
        # Ranks of one host, which use shared memory as they do by default.
        Step("mpi-shm", [mpi], env={**ci, "FI_SQUALL_SHM": "yes"}),
        Step("virtual", [[RUN, "suite", "virtual", "--quick"]], env=ci),
        # Nightly, the commands of the documents are run; here their options are looked up.
        Step("options", [[RUN, "check", "commands", "--options"]], env=ci),
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("steps", nargs="*", metavar="STEP", help="run these alone")
    parser.add_argument("--fast", action="store_true", help="the fast lane: a minute when everything is built, 4 at most")
    parser.add_argument("--list", action="store_true", help="name the steps, and what each runs")


def main(args: argparse.Namespace) -> int:
    todo = steps(args.fast)
    if args.list:
        list_steps(todo)
        return 0
    return run_steps(todo, TARGET / "test-logs", args.steps, args.fast)
