"""`ci/run`: everything that builds, checks, measures and shows squall.

    ci/run list                        every command
    ci/run suite|bench|check [NAME ..] a group's commands, or one of them
    ci/run help COMMAND                all about one (as --help after it)

`ci/test`, `ci/build` and `ci/demo` are short for `ci/run test`, `ci/run build` and `ci/run demo`. Suites and checks end with
`N passed, N failed`. The exit status is 0 on success, 1 when something failed or missed its bound, and 2 when it could not be
tried. Everything is written under target/, and packages under dist/. SQUALL_PROVIDER_DIR names another build of the provider
than target/provider. FI_SQUALL_* and FI_LOG_* of the caller reach the jobs. Jobs of one host use packets, unless FI_SQUALL_SHM
says otherwise.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Sequence

from squall_ci import paths, process, tcp_control
from squall_ci.registry import BENCHMARKS, Command, find, Group, GROUPS
from squall_ci.tally import table

# Commands besides the benchmarks that compare squall with tcp.
COMPARED = ("demo", "netns")


def parser_of(group: Group, command: Command) -> argparse.ArgumentParser:
    """Returns the parser of a command's arguments; its description is the module's docstring."""
    module = group.load(command)
    parser = argparse.ArgumentParser(
        prog=f"ci/run {group.title(command)}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if hasattr(module, "arguments"):
        module.arguments(parser)
    if "setup" in command.needs.split():
        parser.add_argument("--no-setup", action="store_true", help="neither install nor build first")
    return parser


def listing(groups: Sequence[Group] = GROUPS) -> str:
    """Returns the table of commands."""
    rows = [[f"`{g.title(c)}`", c.time, c.what, c.needs.replace(" ", ", ")] for g in groups for c in g.commands]
    return table(["ci/run", "time on 2 cores", "what", "needs"], rows, left=range(4))


def call(*words: str) -> int:
    """Runs a command in this process and returns its exit status."""
    group, command, rest = find(list(words))
    if command is None:
        if group.word and rest in ([], ["--help"], ["-h"]):
            print(f"{group.word}: {group.what}\n\n{listing([group])}")
            return 0
        # A word is missing before the name of a command of another group, or the name is misspelt.
        titles = {c.name: g.title(c) for g in reversed(GROUPS) for c in g.commands}
        near = difflib.get_close_matches(rest[0], titles, 1)
        hint = f"; did you mean {titles[near[0]]}?" if near else ""
        paths.die(f"there is no command {' '.join(words[:2])}{hint} (ci/run list shows all)")
    parser = parser_of(group, command)
    args, unknown = parser.parse_known_args(rest)
    if unknown and not command.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.command, args.rest = command.name, unknown
    if not getattr(args, "no_setup", True):
        prepare(command.parts)
    if not getattr(args, "list", False):
        command.check_needs(args)
        # Another build than that of users would give figures and packages of no use.
        if group is BENCHMARKS or command.name == "package":
            paths.need_release()
        if group is BENCHMARKS or command.name in COMPARED:
            tcp_control.enter_own_network()
    status = group.load(command).main(args)
    assert isinstance(status, int)
    return status


def prepare(parts: Sequence[str]) -> None:
    """Installs what is missing of these parts, and builds the provider."""
    for words, what in (
        (("setup", *parts), "installing what is missing: 1 to 2 minutes where nothing is there, else 1 s"),
        (("build",), "compiling the provider: 2 to 4 minutes the first time, else 1 s"),
    ):
        paths.say(what)
        if call(*words):
            paths.die(f"ci/run {' '.join(words)} failed", 1)


def main(words: list[str] | None = None) -> int:
    """Runs the command that the words name, and returns the exit status."""
    words = sys.argv[1:] if words is None else words
    # Jobs use packets, which are to be tested and measured, unless the caller or the command chooses shared memory.
    os.environ.setdefault("FI_SQUALL_SHM", "no")
    paths.find_cargo()
    process.leave_on_signals()
    if not words or words in (["help"], ["--help"], ["-h"]):
        print(f"{__doc__.strip()}\n\n{listing()}")
        return 0
    if words in (["list"], ["--list"]):
        print(listing())
        return 0
    if words[0] == "help":
        words = [*words[1:], "--help"]
    try:
        return call(*words)
    except KeyboardInterrupt:
        return 130
