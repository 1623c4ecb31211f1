"""Measure several threads in one process, automatic progress, and more ranks than cores, beside tcp: times and counters.

The patterns are: threads with an endpoint each (as fabtests' fi_rdm_bw_mt), threads that share one, threads that write and
wait, a thread beside the provider's progress thread, two of MPICH's own (threads/rma/multirma and
threads/pt2pt/mt_sendrecv_huge), and four ranks that exchange messages of every protocol (fabtests/mpi/steady.py). A put and
a flush take squall a round trip longer, because tcp completes a write when the kernel has taken it.

The counters under the table do not depend on the load of the machine: retransmitted packets, and those that were
retransmitted needlessly. The exit status is 1 when more than 1 % were.
"""

import argparse
import re
import statistics
from collections.abc import Callable
from functools import partial

from squall_ci.job import Statistics
from squall_ci.mpis import MPIS
from squall_ci.paths import die, FABTESTS, MPI_TESTS, TARGET
from squall_ci.process import run, Word
from squall_ci.programs import compile_c, fi_threads
from squall_ci.rounds import add_options, conclude, environment, ratio, turns
from squall_ci.tally import table

PROVIDERS = ("squall", "tcp")
RANKS = 4
# The allowed share of packets that are retransmitted needlessly.
SPURIOUS = 0.01

# Name, options and measure for fi_threads, and its repetitions (with --quick).
MEASURES: list[tuple[str, list[str], str, tuple[int, int]]] = [
    ("1 MiB, 8 threads, an endpoint each", [], "own:8:1048576:{}", (60, 6)),
    ("64 KiB, 8 threads, an endpoint each", [], "own:8:65536:{}", (400, 40)),
    ("64 KiB, 4 threads share an endpoint", [], "shared:4:65536:{}", (800, 80)),
    ("64 B, 4 threads share an endpoint", [], "shared:4:64:{}", (5000, 300)),
    ("8 B written and delivered, 4 threads", [], "put:4:8:{}", (2000, 100)),
    ("1 MiB, manual progress", [], "own:1:1048576:{}", (300, 20)),
    ("1 MiB, automatic progress", ["-A"], "own:1:1048576:{}", (300, 20)),
    ("64 B, manual progress", [], "shared:1:64:{}", (10_000, 500)),
    ("64 B, automatic progress", ["-A"], "shared:1:64:{}", (10_000, 500)),
]
# Name, pattern and loops for mpi_threads.
PATTERNS = [
    ("MPICH: 4 threads put and flush", "rma", (5000, 200)),
    ("MPICH: 4 threads, 10 MiB", "huge", (20, 2)),
]


def of_threads(options: list[str], word: str, provider: str) -> float:
    """Returns the microseconds of a message of one thread."""
    result = run([fi_threads(), "-p", provider, *options, word], environment(provider), timeout=120)
    found = re.search(rf"^{re.escape(word)} (\S+)$", result.output, re.M)
    if not result.ok or not found:
        die(f"{provider}: {word}: {result.why()}: {result.output.strip()[-400:]}", 1)
    return float(found.group(1))


def under_mpi(ranks: int, program: list[Word], pattern: str, counters: dict[str, float], provider: str) -> float:
    """Runs a job and returns the number that `pattern` finds. Adds the counters of squall's endpoints to `counters`."""
    mpi = MPIS["mpich"]
    env = mpi.env(provider)
    collected = Statistics()
    if provider == "squall":
        env |= collected.env()
    result = run(mpi.command(ranks, program), env, timeout=120)
    found = re.search(pattern, result.output)
    if not result.ok or not found:
        die(f"{provider}: {' '.join(map(str, program))}: {result.why()}: {result.output.strip()[-400:]}", 1)
    for field, value in collected.total().items():
        counters[field] = counters.get(field, 0) + value
    return float(found.group(1))


def turn_time(seconds: int, counters: dict[str, float], provider: str) -> float:
    """Returns the milliseconds of a turn of steady.py."""
    program: list[Word] = [MPIS["mpich"].python, MPI_TESTS / "steady.py", seconds]
    return seconds * 1e3 / under_mpi(RANKS, program, r'steady: \{"turns": (\d+)', counters, provider)


def plan(quick: bool, counters: dict[str, float]) -> dict[str, Callable[[str], float]]:
    """Returns the measures: by name, a function that returns the time on a provider."""
    measures: dict[str, Callable[[str], float]] = {}
    for name, options, word, rounds in MEASURES:
        measures[f"{name}, us"] = partial(of_threads, options, word.format(rounds[quick]))
    mpi = MPIS["mpich"]
    if not mpi.python.exists():
        return measures
    compiler = str(mpi.python.parent / "mpicc")
    # The MPI brings its own libfabric, which is newer than the one there are headers of.
    linking = ("-O2", "-Wl,--allow-shlib-undefined")
    built = compile_c([FABTESTS / "bench" / "mpi_threads.c"], TARGET / "bench" / "mpi_threads", linking, compiler)
    for name, what, loops in PATTERNS:
        program: list[Word] = [built, what, 4, loops[quick]]
        measures[f"{name}, s"] = partial(under_mpi, 2, program, r"mpi_threads: (\S+)", {})
    measures[f"{RANKS} ranks, a turn of every protocol, ms"] = partial(turn_time, 1 if quick else 4, counters)
    return measures


def arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, 5)


def main(args: argparse.Namespace) -> int:
    counters: dict[str, float] = {}
    measures = plan(args.quick, counters)
    samples: dict[str, dict[str, list[float]]] = {name: {provider: [] for provider in PROVIDERS} for name in measures}
    for order in turns(PROVIDERS, args):
        for name, measure in measures.items():
            for provider in order:
                samples[name][provider].append(measure(provider))
    rows = []
    for name, values in samples.items():
        medians = (f"{statistics.median(values[provider]):.4g}" for provider in PROVIDERS)
        rows.append([name, *medians, f"{ratio(values['squall'], values['tcp']):.2f}"])
    print(table(["", *PROVIDERS, "squall / tcp"], rows))
    conclude(args)
    packets = counters.get("data_packets", 0)
    if not packets:
        return 0
    vain = counters["rx_duplicates"] / packets
    print(
        f"{RANKS} ranks: {packets:.0f} packets, {counters['retransmissions']:.0f} sent again, "
        f"{counters['rx_duplicates']:.0f} of them needless ({vain:.2%}); {counters['timeouts']:.0f} timeouts, "
        f"{counters['tx_probes']:.0f} probes, {counters['path_freezes']:.0f} path freezes"
    )
    return 1 if vain > SPURIOUS else 0
