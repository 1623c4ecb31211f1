"""Run the test programs of the workspace side by side: unit, property and C ABI tests.

All are built in the profile `ci`, by one call of cargo, with clippy's compiler. One that does not end within its limit is ended with all that it
started, and the tests that had not ended are named. `alone::` tests of the C ABI look at times or at the processor: they run
at the end, when nothing else does. Words select programs by crate or by name, as in `squall-engine` or `abi`.

To see one test again, use cargo as usual: cargo test -p squall-engine --test tests scenarios::
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from squall_ci.paths import CARGO_TARGET, die, need, ROOT
from squall_ci.process import Result, run, Word
from squall_ci.programs import linting, WORKSPACE
from squall_ci.tally import Tally

# Seconds for a program. The longest takes less than two minutes on two idle cores: what needs more has hung.
LIMIT = 900.0
# The program of the C ABI tests, and how the names of tests begin that run while nothing else does.
ABI, ALONE = "abi", "alone::"
# The crates whose programs take longest: they begin first, so that no processor is idle at the end.
LONG = ("squall-emulator", "squall-reliability", "squall-engine", "squall-tools", "squall-cc")


@dataclass(frozen=True)
class Program:
    """A test program that cargo built, with the arguments that select some of its tests."""

    crate: str
    name: str
    path: pathlib.Path
    # The directory of its package, in which cargo would start it.
    directory: pathlib.Path
    arguments: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        return " ".join((self.crate, self.name, *self.arguments))

    def run(self, limit: float = LIMIT) -> Result:
        """Runs the tests."""
        shell: list[Word] = ["sh", "-c", 'cd "$0" && exec "$@"', self.directory, self.path, *self.arguments]
        # The provider is the other library of this build: the C ABI tests need not have cargo build it.
        given = {"CARGO_MANIFEST_DIR": self.directory, "SQUALL_ABI_PROVIDER": CARGO_TARGET / "ci" / "libsquall_fi.so"}
        return run(shell, {**os.environ, **{name: str(path) for name, path in given.items()}}, limit)

    def tests(self) -> list[str]:
        """Returns the names of the selected tests."""
        listed = subprocess.run(
            [self.path, *self.arguments, "--list", "--format", "terse"], cwd=self.directory, capture_output=True, text=True
        )
        return re.findall(r"^(.*): test$", listed.stdout, re.M)


def build() -> list[Program]:
    """Builds all test programs and returns them; exits if one does not build."""
    command = ["cargo", "build", *WORKSPACE, "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, env={**os.environ, **linting()}, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        die("the tests do not build", 1)
    return programs(built.stdout)


def programs(messages: str) -> list[Program]:
    """Returns the test programs that cargo's messages name, a JSON object on each line."""
    found = []
    for message in map(json.loads, messages.splitlines()):
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            target, directory = message["target"], pathlib.Path(message["manifest_path"]).parent
            crate = target["name"] if "lib" in target["kind"] else re.split(r"[ #@]", package_of(message["package_id"]))[0]
            name = target["name"] if target["kind"] == ["test"] else "unit"
            found.append(Program(crate.replace("_", "-"), name, pathlib.Path(message["executable"]), directory))
    return found


def package_of(identity: str) -> str:
    """Returns the name of a package from cargo's identity of it: `path+file:///dir/name#0.1.0`, or `...#name@0.1.0`."""
    path, _, fragment = identity.rpartition("#")
    return fragment if "@" in fragment else path.rpartition("/")[2]


def unfinished(program: Program, output: str) -> list[str]:
    """Returns the tests of which a program has not reported an end."""
    ended = set(re.findall(r"^test (\S+)(?: - should panic)?\s+\.\.\. (?:ok|FAILED|ignored)", output, re.M))
    return [test for test in program.tests() if test not in ended]


def judge(program: Program, result: Result) -> str | None:
    """Returns what is wrong with the end of a program, or None."""
    if result.ok:
        return None
    if result.code is None:
        return (
            f"ended after {result.seconds:.0f} s; tests that had not ended: {', '.join(unfinished(program, result.output))}"
        )
    failed = re.findall(r"^test (\S+)(?: - should panic)?\s+\.\.\. FAILED", result.output, re.M)
    # A program that a signal ended has not reported the test that it ended in.
    return f"{result.why()}: {', '.join(failed or unfinished(program, result.output)[:20])}"


def ran(output: str) -> int:
    """Returns the number of tests that a program reports as passed."""
    return sum(map(int, re.findall(r"^test result: .*?(\d+) passed", output, re.M)))


def rank(program: Program) -> tuple[bool, int]:
    """Returns the place of a program in the order in which programs begin."""
    return program.name != ABI, LONG.index(program.crate) if program.crate in LONG else len(LONG)


def run_programs(tally: Tally, chosen: Sequence[Program], at_once: int) -> int:
    """Runs programs, `at_once` at a time. Returns the number of tests that passed."""
    total = 0
    with ThreadPoolExecutor(at_once) as pool:
        for program, result in zip(chosen, pool.map(Program.run, chosen)):
            count = ran(result.output)
            total += count
            tally.add(program.title, judge(program, result), result.seconds, f"{count} tests", result.output)
    return total


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("only", nargs="*", metavar="PROGRAM", help="a crate, or a program such as abi")
    parser.add_argument("--nightly", action="store_true", help="also the C ABI tests of further conditions, in minutes")
    parser.add_argument("--without-abi", action="store_true", help="leave the C ABI tests out, which take longest")


def main(args: argparse.Namespace) -> int:
    found = build()
    chosen = [p for p in found if not args.only or p.crate in args.only or p.name in args.only]
    chosen = [p for p in chosen if not (args.without_abi and p.name == ABI)]
    need(chosen, f"no such test program; there are: {', '.join(sorted(p.title for p in found))}")
    tally = Tally(tail=60)
    at_once = os.cpu_count() or 1
    beside: list[Program] = []
    last: list[Program] = []
    for program in chosen:
        if program.name == ABI:
            given = (program.crate, program.name, program.path, program.directory)
            more = ("--include-ignored",) if args.nightly else ()
            # They wait most of the time, for timers and for each other.
            threads = ("--test-threads", str(4 * at_once))
            beside.append(Program(*given, ("--skip", ALONE, *threads, *more)))
            last.append(Program(*given, (ALONE, *more)))
        else:
            beside.append(program)
    beside.sort(key=rank)
    # The C ABI tests wait most of the time, so they run besides one program for each processor.
    waiting = sum(program.name == ABI for program in beside)
    total = run_programs(tally, beside, at_once + waiting) + run_programs(tally, last, 1)
    print(f"{total} tests in {len(beside)} programs")
    return tally.finish()
