"""Run messages and MPI between two namespaces over several network cards, of which one is slow, loses packets or dies.

Each card is a veth pair, shaped to 1 Gb/s so that the network is the limit, in a subnet of its own. The launcher has an
interface besides. Measured are, as medians of the rounds: the bandwidth of messages of 1 MiB over one card, two, four, and
over one of 1 Gb/s with one of 250 Mb/s, with libfabric's tcp beside them, which uses one card. Then MPI jobs, every byte
compared: one of two cards loses 1 % of its packets; the cards are in one subnet, or have IPv6 alone; packets are encrypted; and
one of two cards dies after a quarter of the job and is back after half of it. For that one the longest times are printed in
which no message arrived, and the card has to carry packets again within a second.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from squall_ci import figures
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces
from squall_ci.paths import need_provider
from squall_ci.process import run
from squall_ci.programs import fi_perf
from squall_ci.rounds import environment
from squall_ci.tally import table, Tally

SECONDS = 9.0
FULL, SLOW = 1000, 250  # Mb/s
WORD = "bw:1048576:30"
# What several cards carry, in terms of one card, or of the sum of cards of different speed.
LEAST = {"two cards": 1.85, "four cards": 3.5}
LEAST_OF_SUM = 0.9
# Prints the time and the bytes that each card of a host has sent, until its input ends.
SAMPLER = """
import select, sys, time
files = [open(f"/sys/class/net/card{card}/statistics/tx_bytes") for card in range(int(sys.argv[1]))]
while not select.select([sys.stdin], [], [], 0.02)[0]:
    sent = []
    for file in files:
        file.seek(0)
        sent.append(file.read().strip())
    print(time.monotonic(), *sent, flush=True)
"""
# Packets of the card that was away, in the last second of a job: ten trains.
LEAST_RETURNED = 10 << 16


class Cards(Namespaces):
    """Two hosts, whose names begin with `name`, with a card for each of `rates`, in Mb/s."""

    def __init__(self, rates: Sequence[int], same_subnet: bool = False, name: str = "h", six: bool = False) -> None:
        self.hosts = [f"{name}{host}" for host in (0, 1)]
        super().__init__(self.hosts)
        self.rates, self._same, self._six = rates, same_subnet, six

    def address_of(self, host: int, card: int) -> str:
        if self._six:
            return f"fd00:79:{card}::{host + 1}"
        return f"10.79.0.{10 * (card + 1) + host}" if self._same else f"10.79.{card}.{host + 1}"

    def build(self) -> None:
        one, other = self.hosts
        self.join(one, "eth0", "10.77.9.1/24", other, "eth0", "10.77.9.2/24", 1500)
        for card, rate in enumerate(self.rates):
            device = f"card{card}"
            ends = [f"{self.address_of(host, card)}/{64 if self._six else 24}" for host in (0, 1)]
            self.join(one, device, ends[0], other, device, ends[1], 9000)
            for node in self.hosts:
                self.inside(node, *f"tc qdisc add dev {device} root tbf rate {rate}mbit burst 128kb latency 20ms".split())

    def environment(self, cards: int | str) -> dict[str, str]:
        return {"FI_SQUALL_IFACE": "card*", "FI_TCP_IFACE": "card0", "FI_SQUALL_RAILS": str(cards), "FI_SQUALL_SHM": "no"}

    def bandwidth(self, provider: str, cards: int) -> tuple[str | None, float]:
        """Returns the problem, and Gb/s of messages of 1 MiB."""
        nodes = ",".join(f"/run/netns/{self.name(node)}" for node in self.hosts)
        addresses = ",".join(self.address_of(host, 0) for host in (0, 1))
        given = {**environment(provider), **self.environment(cards)}
        result = run([fi_perf(), "-p", provider, "-a", addresses, "-n", nodes, "-u", WORD], given, timeout=120)
        values = [line.split()[1] for line in result.output.splitlines() if line.startswith(WORD)]
        if not result.ok or not values:
            return f"{result.why()}: {result.output.strip()[-300:]}", 0.0
        return None, 8 * float(values[0])

    def job(self, program: str, *words: float, env: Mapping[str, str] | None = None) -> tuple[str | None, Any]:
        """Runs an MPI program with a rank on each host, on all cards."""
        with self.hydra(dict(zip(("10.77.9.1", "10.77.9.2"), self.hosts, strict=True))) as launch:
            given = {**self.environment("all"), **(env or {})}
            ran = run_program(program, *words, timeout=SECONDS + 90, at_least=1 << 20, env=given, launch=launch)
        if ran.problem:
            print(ran.output[-3000:])
        return ran.problem, ran.figures

    @contextlib.contextmanager
    def sampled(self, samples: list[list[float]]) -> Iterator[None]:
        """Appends the time and the bytes that each card of the first host has sent, every 20 ms."""
        words = self.command(self.hosts[0], sys.executable, "-c", SAMPLER, len(self.rates))
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sampler:
            try:
                yield
            finally:
                output, _ = sampler.communicate(timeout=10)
                samples += [[float(word) for word in line.split()] for line in output.splitlines()]

    def lose(self, card: int, percent: int) -> None:
        """Drops some of the packets that arrive at the second host's card."""
        rule = f'iifname "card{card}" numgen random mod 100 < {percent} drop'
        for words in (
            "add table ip t",
            "add chain ip t c { type filter hook input priority 0 ; }",
            f"add rule ip t c {rule}",
        ):
            self.inside(self.hosts[1], "nft", words)


def values_of(samples: list[list[float]], actions: Mapping[str, float]) -> dict[str, Any]:
    """Returns what each card sent over time, in Gb/s of 100 ms, and when it was taken down and up, for `ci/draw.py`."""
    width = 5
    spans = list(zip(samples, samples[width:], strict=False))
    # The job begins when the cards send.
    begin = next((now[0] for now, then in spans if then[1] - now[1] > 1 << 20), samples[0][0])
    spans = [(now, then) for now, then in spans if now[0] >= begin]
    cards = range(1, len(samples[0]))
    return {
        "seconds": [round(then[0] - begin, 3) for _, then in spans],
        "cards": {
            f"card{card - 1}": [round(8e-9 * (then[card] - now[card]) / (then[0] - now[0]), 3) for now, then in spans]
            for card in cards
        },
        "marks": {f"card1 {action}": round(at - begin, 3) for action, at in actions.items()},
    }


def card_that_dies(network: Cards, values: pathlib.Path | None) -> tuple[str | None, Any]:
    """Runs a job during which the second card dies and comes back."""
    carried: list[int] = []
    over = threading.Event()
    actions: dict[str, float] = {}
    samples: list[list[float]] = []

    def die(begin: float) -> None:
        for at, action in ((1 / 4, "down"), (1 / 2, "up")):
            if over.wait(max(0.0, begin + at * SECONDS - time.monotonic())):
                return
            network.ip(network.hosts[0], "link", "set", "card1", action)
            actions[action] = time.monotonic()
        if not over.wait(1.0):
            carried.append(network.sent(network.hosts[0], "card1"))
        if not over.wait(0.9):
            carried.append(network.sent(network.hosts[0], "card1"))

    # The ranks need a moment to start.
    thread = threading.Thread(target=die, args=(time.monotonic() + 2,))
    thread.start()
    try:
        with network.sampled(samples) if values else contextlib.nullcontext():
            problem, stream = network.job("stream", SECONDS, 64 << 10, 64)
    finally:
        over.set()
        thread.join()
    if not problem and not (len(carried) == 2 and carried[1] - carried[0] > LEAST_RETURNED):
        problem = f"the card was not used again a second after its return: {carried} bytes"
    if values and not problem:
        values.write_text(json.dumps(values_of(samples, actions)))
    return problem, stream


def bandwidths(tally: Tally, rounds: int) -> dict[str, float]:
    """Measures all numbers of cards; returns the medians in Gb/s."""
    with Cards([FULL] * 4) as equal, Cards([FULL, SLOW], name="u") as unequal:
        sides = {
            "one card": (equal, "squall", 1),
            "two cards": (equal, "squall", 2),
            "four cards": (equal, "squall", 4),
            "tcp, one card": (equal, "tcp", 1),
            "a fast card and a slow one": (unequal, "squall", 2),
        }
        samples: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (network, provider, cards) in sides.items():
                begin = time.monotonic()
                problem, rate = network.bandwidth(provider, cards)
                if problem:
                    tally.add(name, problem, time.monotonic() - begin)
                samples[name].append(rate)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    single = medians["one card"] or 1.0
    bounds = {name: (least, single) for name, least in LEAST.items()}
    bounds["a fast card and a slow one"] = (LEAST_OF_SUM, single * (FULL + SLOW) / FULL)
    for name, (least, unit) in bounds.items():
        ratio = medians[name] / unit
        tally.add(name, None if ratio >= least else f"{ratio:.2f} of {unit:.2f} Gb/s; at least {least}", 0.0, f"{ratio:.2f}")
    rows = [[name, f"{rate:.2f}", f"{rate / single:.2f}"] for name, rate in medians.items()]
    print("\n" + table(["1 MiB messages", "Gb/s", "of one card"], rows) + "\n")
    return medians


def jobs(tally: Tally, values: pathlib.Path | None) -> None:
    """Runs the MPI jobs. Writes what each card sent in the first one to `values`."""

    def timed(name: str, ran: tuple[str | None, Any], begin: float) -> None:
        problem, stream = ran
        note = ""
        if stream:
            waits = [f"{1e3 * stream[field]:.0f}" for field in ("still_s", "still_running_s")]
            note = f"{stream['total_gbps']:.2f} Gb/s in both directions, longest standstill {waits[0]} ms, {waits[1]} less run queue"
        tally.add(name, problem, time.monotonic() - begin, note)

    with Cards([FULL] * 2) as network:
        begin = time.monotonic()
        timed("a card dies and comes back", card_that_dies(network, values), begin)
        network.lose(1, 1)
        for program in ("sums", "pt2pt", "coll", "rma"):
            begin = time.monotonic()
            timed(f"1 % loss on one card, {program}", network.job(program), begin)
    with Cards([FULL] * 2, same_subnet=True) as network:
        begin = time.monotonic()
        timed("both cards in one subnet", network.job("stream", 3.0), begin)
    with Cards([FULL] * 2, six=True) as network:
        begin = time.monotonic()
        timed("IPv6", network.job("stream", 3.0), begin)
    with Cards([FULL] * 2) as network, tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        begin = time.monotonic()
        timed("encrypted", network.job("stream", 3.0, env={"FI_SQUALL_KEY_FILE": str(key)}), begin)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", action="store_true", help="the MPI jobs alone, without bandwidths")
    parser.add_argument(
        "--values",
        type=pathlib.Path,
        metavar="FILE",
        help="write what the cards sent around the death of one for ci/draw.py",
    )
    figures.add_option(parser)


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, args.jobs)
    need_provider("squall")
    tally = Tally()
    medians = {} if args.jobs else bandwidths(tally, args.rounds)
    jobs(tally, args.values)
    if args.record and not tally.failed:
        figures.record(args.rounds, {f"suite rails --rounds {args.rounds}": medians})
    return tally.finish()
