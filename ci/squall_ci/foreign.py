"""Functions that suites of other projects share: options, the tests of a driver of ours, and the outcome."""

import argparse
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from squall_ci import hosts, results
from squall_ci.job import Job, run_ranks
from squall_ci.paths import need
from squall_ci.process import run, Word
from squall_ci.tally import Tally


def add_options(parser: argparse.ArgumentParser, timeout: float, each: str = "test", ranks: bool = True) -> None:
    """Adds the provider and the options that all such suites have; `timeout` is in seconds for `each` part."""
    parser.add_argument("provider", nargs="?", default="squall", metavar="PROVIDER", help="squall by default")
    if ranks:
        parser.add_argument("--ranks", type=int, default=2, help="processes of a job")
    parser.add_argument("--only", default="", metavar="REGEX", help="a part of the suite")
    add_common_options(parser, timeout, each)


def add_common_options(parser: argparse.ArgumentParser, timeout: float, each: str) -> None:
    """Adds the options that do not depend on how the suite names its parts."""
    parser.add_argument("--timeout", type=float, default=timeout, metavar="S", help=f"seconds for each {each}")
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="each process on a host of its own, a network namespace on a bridge of MTU 1500; needs root",
    )
    add_record_option(parser)


def add_record_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", action="store_true", help="write the outcome into fabtests/results.json and README.md")


def refuse_partial_record(args: argparse.Namespace, partial: object) -> None:
    """Exits with advice if the outcome of a part of a suite would be recorded as that of the whole."""
    need(not (args.record and partial), "a part of a suite is not recorded: run the whole, or leave --record away")


# The reason for a test that another provider than squall cannot run.
NOT_OFFERED = "not offered: it asks for something that the provider does not have"


class Outcome:
    """The results of a suite: what passed and failed, and what was excluded for which reason."""

    def __init__(self, args: argparse.Namespace) -> None:
        refuse_partial_record(args, args.only)
        self.args = args
        self.tally = Tally()
        # The version of the suite, or of the library that it tests.
        self.version = ""
        self.excluded: dict[str, list[str]] = {}

    def exclude(self, why: str, *tests: str) -> None:
        self.excluded.setdefault(why, []).extend(tests)

    def finish(self, consumer: str, suite: str, *, provider: str = "", conditions: str = "", more: str = "") -> int:
        """Prints the exclusions and the closing line, and records the row if asked to. Returns the exit status."""
        for reason, tests in self.excluded.items():
            print(f"excluded: {', '.join(tests)}: {reason}")
        if self.args.record:
            results.record(
                consumer,
                suite,
                provider or self.args.provider,
                (conditions or results.conditions(self.args.ranks)) + hosts.conditions(self.args.hosts) + more,
                self.tally,
                version=self.version,
                excluded=self.excluded,
            )
        return self.tally.finish()


def drive(
    outcome: Outcome, driver: pathlib.Path, env: Mapping[str, str], words: Callable[[str], Sequence[Word]], at_least: int
) -> Iterator[tuple[str, Job]]:
    """Runs the tests that a driver of ours lists, `words` being the arguments for each.

    Yields each test and its job. On squall the statistics have to prove `at_least` bytes.
    """
    args = outcome.args
    with hosts.forked(args.hosts, args.ranks) as where:
        env = {**env, **where}
        for test in run([driver, "list"], env, timeout=30).output.split():
            if re.search(args.only, test) and not any(test in tests for tests in outcome.excluded.values()):
                command: list[Word] = [driver, *words(test)]
                shows = hosts.shows(args.hosts)
                yield test, run_ranks(args.provider, args.ranks, command, env, args.timeout, at_least, shows)
