"""Run everything quick: style, lints, documentation, unit tests, dependency rules, and MPI jobs on the provider.

Installs what is missing first (ci/run setup). Names of steps select those alone. --fast selects the steps for every edit,
without jobs: format, lints, documentation, unit tests and dependency rules.

A step writes its output to target/test-logs; the end of it is shown here if the step fails. A step that hangs is ended with
everything that it started. FI_SQUALL_* of the caller reaches the jobs. The last line is `N passed, N failed`, and the exit
status is 1 when a step failed.
"""

import argparse
import os
import shutil

from squall_ci.paths import dissector, RUN, TARGET
from squall_ci.process import Word
from squall_ci.steps import run_steps, Step

# The network of the step `faults`. The CRC detects the damaged packets.
FAULTS = {"FI_SQUALL_CRC": "1", "FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%"}


def unit(fast: bool) -> list[list[Word]]:
    """Returns the commands for the tests that cargo runs. nextest, if it is installed, limits the time of each test, and in
    the fast lane leaves the C ABI tests out."""
    test: list[Word] = ["cargo", "test", "--locked", "--quiet"]
    # The build of the packages: without the feature `research`, whose algorithms it refuses by name.
    reduced = [*test, "-p", "squall-cc", "--no-default-features", "--test", "names"]
    if not shutil.which("cargo-nextest"):
        return [[*test, "--workspace"], reduced]
    nextest: list[Word] = ["cargo", "nextest", "run", "--workspace", "--locked", "--no-fail-fast"]
    without = ["-E", "not (package(squall-fi) and binary(abi))"] if fast else []
    return [[*nextest, *without], [*test, "--workspace", "--doc"], reduced]


def steps(fast: bool) -> list[Step]:
    """Returns all steps, in order."""
    tools = TARGET / "tools" / "bin"
    no_root = "" if os.geteuid() == 0 else "namespaces need root"
    # If the named directory does not exist, the step runs and fails.
    found = os.environ.get("SQUALL_ORACLE") or dissector().exists()
    no_dissector = "" if found else "SQUALL_ORACLE names the directory of a dissector"
    mpi: list[Word] = [RUN, "suite", "mpi", "--quick"]
    # Hidden errors of rustdoc and clippy are errors here.
    clippy = ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]
    docs = ["cargo", "doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"]
    return [
        Step("setup", [[RUN, "setup", *(["build", "lint"] if fast else ["all"]), "tools"]], 3600, terminal=True, fast=True),
        Step("python", [[RUN, "python"]], 600, fast=True),
        Step("format", [["cargo", "fmt", "--all", "--check"]], fast=True),
        Step("deps", [[RUN, "check", "deps"]], fast=True),
        Step("reasons", [[RUN, "check", "reasons"]], fast=True),
        Step("clippy", [clippy], fast=True),
        Step("docs", [docs], env={"RUSTDOCFLAGS": "-D warnings"}, fast=True),
        # The C ABI tests are among them. Nextest ends a test that hangs (.config/nextest.toml); the limit here is for a
        # machine that makes no progress at all.
        Step("unit", unit(fast), 7200, fast=True),
        Step(
            "deny",
            [["cargo", "deny", "--all-features", "check", "bans", "licenses", "sources"]],
            env={"PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"},
            fast=True,
        ),
        Step("build", [[RUN, "build"]]),
        Step("tools", [[RUN, "suite", "fabtests", "squall"]]),
        Step("mpich-2", [[*mpi, "mpich", "squall", "2"]]),
        Step("mpich-4", [[*mpi, "mpich", "squall", "4"]]),
        # Ranks of one host, which use shared memory as they do by default.
        Step("mpi-shm", [[*mpi, "mpich", "squall", "4"], [*mpi, "openmpi", "squall", "2"]], env={"FI_SQUALL_SHM": "yes"}),
        # The interface that is chosen when none is named: a card, where there is one.
        Step(
            "interface",
            [[*mpi, "--only", "comms", name, "squall", "2"] for name in ("mpich", "openmpi", "impi")],
            env={"FI_SQUALL_IFACE": ""},
        ),
        Step("faults", [[*mpi, "mpich", "squall", "2"]], env=FAULTS),
        Step("algorithms", [[RUN, "check", "algorithms", "--quick"]]),
        # The papers' experiments that take seconds, and the page that shows them.
        Step("repro", [[RUN, "check", "repro", "--quick"]]),
        Step("top", [[RUN, "check", "top"]]),
        Step("run", [[RUN, "suite", "run"]]),
        Step("emulator", [[RUN, "suite", "emulator"]]),
        Step("virtual", [[RUN, "suite", "virtual", "--quick"]]),
        Step("xdp", [[RUN, "suite", "xdp"]], missing=no_root),
        Step("hostile", [[RUN, "suite", "hostile", "--quick"]], 600, missing=no_root),
        Step("commands", [[RUN, "check", "commands"]]),
        # The dissector is not part of the repository.
        Step("wire", [[RUN, "check", "wire", "--quick"]], missing=no_dissector),
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("steps", nargs="*", metavar="STEP", help="run these alone")
    parser.add_argument("--fast", action="store_true", help="the fast lane: a minute when everything is built, 4 at most")
    parser.add_argument("--list", action="store_true", help="name the steps, and what each runs")


def main(args: argparse.Namespace) -> int:
    todo = steps(args.fast)
    if args.list:
        for step in todo:
            commands = "; ".join(" ".join(os.path.relpath(w) if w == RUN else str(w) for w in c) for c in step.commands)
            print(f"{step.name:8} {'fast' if step.fast else '    '}  {commands}")
        return 0
    return run_steps(todo, TARGET / "test-logs", args.steps, args.fast)
