"""`ci/run`: everything that builds, checks, measures and shows squall.

    ci/run list               every subcommand
    ci/run help SUBCOMMAND    all about one (as --help behind it)
    ci/run SUBCOMMAND ..

`ci/test`, `ci/build` and `ci/demo` are short for `ci/run test`, `ci/run build` and `ci/run demo`. Suites end with
`N passed, N failed`; the exit status is 0 when all is well, 1 when something failed or missed its bound, 2 when it could
not be tried. Everything is written under target/. SQUALL_PROVIDER_DIR names another build of the provider than
target/provider; FI_SQUALL_* and FI_LOG_* of the caller reach the jobs. Jobs talk by packets although they share a host, where
nothing else is said, there or by the caller's FI_SQUALL_SHM.
"""

import argparse
import difflib
import os
import sys

from squall_ci import paths, process
from squall_ci.registry import Command, COMMANDS, find, GROUPS
from squall_ci.tally import table


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of a subcommand's arguments; its help is the module's docstring."""
    module = command.load()
    parser = argparse.ArgumentParser(
        prog=f"ci/run {command.name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.arguments(parser)
    return parser


def listing() -> str:
    """The table of subcommands."""
    rows = [[f"`{c.name}`", c.group, c.time, c.what] for group in GROUPS for c in COMMANDS if c.group == group]
    return table(["ci/run", "group", "time on 2 cores", "what"], rows, left=range(4))


def call(*words: str) -> int:
    """Run a subcommand in this process; its exit status."""
    command, rest = find(list(words))
    if command is None:
        name = words[0]
        near = difflib.get_close_matches(name, [command.name for command in COMMANDS], 1)
        paths.die(f"there is no subcommand {name}{f'; did you mean {near[0]}?' if near else ''} (ci/run list shows all)")
    parser = parser_of(command)
    args, unknown = parser.parse_known_args(rest)
    if unknown and not command.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.rest = unknown
    status = command.load().run(args)
    assert isinstance(status, int)
    return status


def prepare() -> None:
    """Install what is missing, and build the provider."""
    for name in ("setup", "build"):
        if call(name):
            paths.die(f"ci/run {name} failed", 1)


def main(words: list[str] | None = None) -> int:
    """The whole of `ci/run`: its words, its exit status."""
    words = sys.argv[1:] if words is None else words
    # What is tested, shown and measured here is the path of packets, unless the caller or the subcommand wants the other.
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
