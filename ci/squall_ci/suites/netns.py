"""Run MPI between network namespaces behind kernel routers, while a spine goes down.

Four hosts, two leaves and two spines are network namespaces joined by veth pairs. The leaves balance by the hash of
addresses and ports (fib_multipath_hash_policy=1), so that the entropy in squall's UDP source port chooses the spine. Links
between leaves and spines are shaped. A permutation of large messages crosses the spines. After a third of the time one spine
dies; after two thirds routing avoids it.

On squall every byte has to be right, over both spines before the failure. tcp runs beside it for comparison. Printed are, as
median and worst of the rounds: the longest time that a rank waited for a window of messages (4 MiB, some 70 ms without a
failure), the longest time in which none of its messages came in, and that less the time in which the rank waited for a core.

FI_SQUALL_* of the caller reaches squall's ranks: with FI_SQUALL_PORT_KIND=xdp and --mtu 1500 its packets are frames through
AF_XDP.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Iterable
from typing import Any

from squall_ci import figures
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces
from squall_ci.paths import need_provider
from squall_ci.tally import table, Tally

HOSTS, LEAVES, SPINES = 4, 2, 2
PROVIDERS = ("squall", "tcp")
# The rate of each link between a leaf and a spine, as tc writes it, and the seconds of a job.
RATE = "1gbit"
SECONDS = 9.0
# The share of the load that each spine has at least, before one dies.
LEAST_SHARE = 0.2
# The nodes forward packets, and hash addresses and ports.
SETTINGS = (
    "net.ipv4.ip_forward=1",
    "net.ipv4.fib_multipath_hash_policy=1",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
)


class Network(Namespaces):
    """Hosts, leaves and spines."""

    def __init__(self, mtu: int) -> None:
        groups = (("h", HOSTS), ("leaf", LEAVES), ("spine", SPINES))
        super().__init__([f"{group}{i}" for group, count in groups for i in range(count)])
        self.mtu = mtu

    @staticmethod
    def address_of(host: int) -> str:
        return f"10.77.{host}.2"

    @staticmethod
    def leaf_of(host: int) -> int:
        return host * LEAVES // HOSTS

    def build(self) -> None:
        for node in self.nodes:
            self.inside(node, "sysctl", "-qw", *SETTINGS)
        for host in range(HOSTS):
            leaf = f"leaf{self.leaf_of(host)}"
            self.join(f"h{host}", "eth0", f"{self.address_of(host)}/24", leaf, f"h{host}", f"10.77.{host}.1/24", self.mtu)
            self.ip(f"h{host}", "route", "add", "default", "via", f"10.77.{host}.1")
        for number in range(LEAVES):
            for spine in range(SPINES):
                leaf = f"leaf{number}"
                subnet = f"10.77.{100 + number * SPINES + spine}"
                self.join(leaf, f"spine{spine}", f"{subnet}.1/30", f"spine{spine}", leaf, f"{subnet}.2/30", self.mtu)
                for node, device in ((leaf, f"spine{spine}"), (f"spine{spine}", leaf)):
                    shaper = f"tbf rate {RATE} burst 128kb latency 4ms"
                    self.inside(node, *f"tc qdisc add dev {device} root {shaper}".split())
        for host in range(HOSTS):
            for spine in range(SPINES):
                via = f"10.77.{100 + self.leaf_of(host) * SPINES + spine}.1"
                self.ip(f"spine{spine}", "route", "add", f"10.77.{host}.0/24", "via", via)
        self.route(range(SPINES))

    def route(self, spines: Iterable[int]) -> None:
        """Makes the leaves send to other leaves through these spines."""
        for leaf in range(LEAVES):
            ways = [word for spine in spines for word in ("nexthop", "via", f"10.77.{100 + leaf * SPINES + spine}.2")]
            for host in range(HOSTS):
                if self.leaf_of(host) != leaf:
                    self.ip(f"leaf{leaf}", "route", "replace", f"10.77.{host}.0/24", *ways)

    def spine(self, spine: int, up: bool) -> None:
        for leaf in range(LEAVES):
            self.ip(f"spine{spine}", "link", "set", f"leaf{leaf}", "up" if up else "down")
        if up:
            # The kernel removed the routes with the links.
            for host in range(HOSTS):
                via = f"10.77.{100 + self.leaf_of(host) * SPINES + spine}.1"
                self.ip(f"spine{spine}", "route", "replace", f"10.77.{host}.0/24", "via", via)

    def carried(self, spine: int) -> int:
        """Returns the bytes that went up to a spine from all leaves."""
        return sum(self.sent(f"leaf{leaf}", f"spine{spine}") for leaf in range(LEAVES))


def job(network: Network, provider: str) -> tuple[str | None, Any, list[float]]:
    """Runs a job in which a spine dies; returns the problem, the figures, and the spines' shares before that.

    A hash shares the load of tcp, so its shares are no problem.
    """
    env = dict.fromkeys(("FI_SQUALL_IFACE", "FI_TCP_IFACE"), "eth0")
    shares: list[float] = []
    over = threading.Event()

    def fail_a_spine(begin: float) -> None:
        before = [network.carried(spine) for spine in range(SPINES)]
        if over.wait(max(0.0, begin + SECONDS / 3 - time.monotonic())):
            return
        sent = [network.carried(spine) - was for spine, was in enumerate(before)]
        shares.extend(n / max(1, sum(sent)) for n in sent)
        network.spine(1, False)
        if over.wait(SECONDS / 3):
            return
        network.route([0])

    with network.hydra({network.address_of(host): f"h{host}" for host in range(HOSTS)}) as launch:
        # The ranks need a moment to start.
        thread = threading.Thread(target=fail_a_spine, args=(time.monotonic() + 2,))
        thread.start()
        try:
            timeout, words = SECONDS + 60, (SECONDS, 64 << 10, 64)
            ran = run_program(
                "stream", *words, provider=provider, ranks=HOSTS, timeout=timeout, at_least=1 << 20, env=env, launch=launch
            )
        finally:
            over.set()
            thread.join()
    network.route(range(SPINES))
    network.spine(1, True)
    problem = ran.problem
    if problem:
        print(ran.output[-3000:])
    elif provider == "squall" and not (len(shares) == SPINES and min(shares) > LEAST_SHARE):
        problem = f"the spines did not share the load: {[f'{share:.0%}' for share in shares]}"
    return problem, ran.figures, shares


# The waiting times that `stream.py` prints, in seconds.
WAITS = (
    ("longest wait, ms", "longest_s"),
    ("longest standstill, ms", "still_s"),
    ("less run-queue delay, ms", "still_running_s"),
)


def row(provider: str, streams: list[dict[str, float]], load: str) -> list[str]:
    """Returns a line of the table: medians of the rounds, and the worst."""
    waits = []
    for _, field in WAITS:
        values = [1e3 * stream[field] for stream in streams]
        worst = f" (worst {max(values):.0f})" if len(values) > 1 else ""
        waits.append(f"{statistics.median(values):.0f}{worst}")
    rate = statistics.median(stream["total_gbps"] for stream in streams)
    return [provider, f"{rate:.2f}", *waits, load]


def figures_of(samples: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Returns the medians of the waiting times, as they are recorded."""
    return {
        f"{title}, {provider}": 1e3 * statistics.median(stream[field] for stream in streams)
        for provider, streams in samples.items()
        for title, field in WAITS
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mtu", type=int, default=9000, help="of every link")
    figures.add_option(parser)


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, False)
    tally = Tally()
    samples: dict[str, list[dict[str, float]]] = {}
    loads: dict[str, str] = {}
    with Network(args.mtu) as network:
        for provider in PROVIDERS * args.rounds:
            need_provider(provider)
            begin = time.monotonic()
            problem, stream, shares = job(network, provider)
            note = ""
            if stream:
                samples.setdefault(provider, []).append(stream)
                loads[provider] = " / ".join(f"{share:.0%}" for share in shares)
                note = f"{stream['bytes'] / 1e6:.0f} MB, every byte compared"
            # A failure of tcp, which is run for comparison, is printed and does not count.
            if provider == "squall" or not problem:
                tally.add(f"spine down, {provider}", problem, time.monotonic() - begin, note)
            else:
                print(f"note  spine down, {provider}: {problem}")
    rows = [row(provider, streams, loads[provider]) for provider, streams in samples.items()]
    print(
        f"\n{HOSTS} hosts behind {LEAVES} leaves and {SPINES} spines at {RATE} a link; one spine dies after a third, "
        "routing learns after two:\n"
    )
    head = ["provider", "Gb/s in total", *(title for title, _ in WAITS), "load of the spines before"]
    print(table(head, rows))
    if args.record and not tally.failed:
        figures.record(args.rounds, {f"suite netns --mtu {args.mtu} --rounds {args.rounds}": figures_of(samples)})
    return tally.finish()
