"""Measure MPI on squall beside tcp: allreduce, alltoall and ping-pong on 4 ranks of this host, in one table.

On a fresh Debian 12 machine this first installs what is missing (ci/run setup) and builds the provider (ci/build). The MPI
is the unmodified MPICH 5 wheel with its shared memory turned off, so that every byte crosses the provider. The providers
take turns. Numbers are medians of the rounds, ratios medians of the ratios within the rounds.

Then the same MPI runs on an emulated leaf-spine with one slow and one failing link, with an HTML report (ci/run suite live).
"""

import argparse
import os
import statistics

from squall_ci.cli import call
from squall_ci.job import run_program
from squall_ci.paths import need_provider
from squall_ci.tally import table


def size_name(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--no-live", action="store_true", help="leave out the network made of software")
    parser.add_argument("--providers", default="squall,tcp")


def main(args: argparse.Namespace) -> int:
    providers = args.providers.split(",")
    for provider in providers:
        need_provider(provider)

    samples: dict[str, list[dict[str, float]]] = {provider: [] for provider in providers}
    proof = ""
    for turn in range(args.rounds):
        for provider in providers[turn % len(providers) :] + providers[: turn % len(providers)]:
            job = run_program("perf", provider=provider, ranks=args.ranks, timeout=300, at_least=8 << 20)
            if job.problem:
                print(f"{provider}: {job.problem}\n{job.output[-2000:]}")
                return 1
            samples[provider].append(job.figures)
            proof = job.note or proof

    head = ["time in us"] + providers + ([f"{providers[1]} / {providers[0]}"] if len(providers) == 2 else [])
    rows = []
    for key in samples[providers[0]][0]:
        name, size = key.rsplit(" ", 1)
        medians = [statistics.median(sample[key] for sample in samples[provider]) for provider in providers]
        row = [f"{name}, {size_name(int(size))}"] + [f"{value:.1f}" for value in medians]
        if len(providers) == 2:
            # Within a round both have met the same machine.
            pairs = zip(samples[providers[0]], samples[providers[1]])
            row.append(f"{statistics.median(theirs[key] / ours[key] for ours, theirs in pairs):.2f}")
        rows.append(row)
    print(table(head, rows))
    print(
        f"\nMPICH 5, {args.ranks} ranks on {os.cpu_count()} cores, medians of {args.rounds} interleaved rounds; "
        "a ratio above 1: squall is faster. A ping-pong is the round trip between the first and the last rank."
    )
    if proof:
        print(f"squall, last round: {proof}")
    if args.no_live:
        return 0
    print(flush=True)
    return call("suite", "live", "--no-setup")
