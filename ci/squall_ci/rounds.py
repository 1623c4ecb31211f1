"""Functions that benchmarks share: turns of the contestants, medians within rounds, and the last lines."""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from squall_ci import figures, tcp_control
from squall_ci.environment import provider_run
from squall_ci.paths import TARGET

T = TypeVar("T")
R = TypeVar("R")


def add_options(parser: argparse.ArgumentParser, rounds: int | None, *, record: bool = False) -> None:
    """Adds the options that most benchmarks have."""
    parser.add_argument("--rounds", type=int, default=rounds, help="figures are medians of so many interleaved rounds")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    if record:
        figures.add_option(parser)


def turns(contestants: Sequence[T], args: argparse.Namespace) -> Iterator[Sequence[T]]:
    """Yields the order of the contestants in each round.

    Virtual machines have fast and slow seconds. All run one right after the other in each round, another one first each
    time, so that all meet the same machine.
    """
    for turn in range(1 if args.quick else args.rounds):
        first = turn % len(contestants)
        yield [*contestants[first:], *contestants[:first]]


def collect(contestants: Sequence[str], args: argparse.Namespace, measure: Callable[[str], R]) -> dict[str, list[R]]:
    """Measures each contestant in each round, and returns the values of the rounds by contestant."""
    samples: dict[str, list[R]] = {contestant: [] for contestant in contestants}
    for order in turns(contestants, args):
        for contestant in order:
            samples[contestant].append(measure(contestant))
    return samples


def environment(provider: str) -> dict[str, str]:
    """Returns the environment of a benchmark program on a provider, under MPICH's libfabric if it is installed.

    The program chooses the provider by its hints, so that FI_PROVIDER must not filter.
    """
    env = provider_run(provider)
    env.pop("FI_PROVIDER", None)
    bundled = TARGET / "venv-mpich" / "lib" / "mpich"
    if (bundled / "libfabric.so.1").exists():
        env["LD_LIBRARY_PATH"] = str(bundled)
    return env


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the median of the ratios within the rounds."""
    return statistics.median(a / b for a, b in zip(one, other))


def conclude(
    args: argparse.Namespace, missed: Sequence[str] = (), measured: Mapping[str, Mapping[str, float]] | None = None
) -> int:
    """Prints how the figures came about and the targets that were missed, and records what was measured, by command, if asked
    to. Returns the exit status."""
    rounds = 1 if args.quick else args.rounds
    load = f"load average {os.getloadavg()[0]:.1f}"
    print(f"\nmedians of {rounds} interleaved rounds, {os.cpu_count()} cores, {load}, tcp under {tcp_control.control()}")
    status = print_missed(missed)
    if measured and args.record:
        figures.record(rounds, measured)
    return status


def print_missed(missed: Sequence[str]) -> int:
    """Prints the targets that were missed. Returns the exit status."""
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0
