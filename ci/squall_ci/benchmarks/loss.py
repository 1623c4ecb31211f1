"""Measure squall beside tcp where packets are lost: two namespaces, MTU 4352, offloads off, nftables drops packets on arrival.

For each share of loss (0, 0.1, 1 and 3 % of the packets, in both directions): bandwidth in windows of 16 messages of 1 MiB
and of 64 KiB, and half a round trip of 64 KiB. A ratio above 1 means that squall is faster. The exit status is 1 when a
target is missed.
"""

import argparse
import contextlib
import statistics
from collections.abc import Iterator

from squall_ci import figures
from squall_ci.benchmarks.networks import cable, faster, figure_name, measure, Network, PROVIDERS, UNITS
from squall_ci.namespaces import Namespaces
from squall_ci.paths import need
from squall_ci.rounds import add_options, collect, conclude
from squall_ci.tally import table

MTU = 4352
# Percent of the packets, and how much faster than tcp squall is to be at 1 MiB.
LOSSES = {0.0: None, 0.1: 1.2, 1.0: 2.5, 3.0: 3.0}
# The share of its bandwidth without loss that squall has to keep.
KEPT = 0.95
TARGETED = "bw:1048576:6"
PLAN = [TARGETED, "bw:65536:40", "lat:65536:200"]
QUICK = ["bw:1048576:3", "bw:65536:6", "lat:65536:20"]
OFFLOADS = ("tso", "gso", "gro", "tx", "rx")


@contextlib.contextmanager
def cable_without_offloads() -> Iterator[tuple[Network, Namespaces]]:
    """Yields a cable as `cable` does, on which segmentation and checksums are the kernel's work, so that a loss is of one packet."""
    with cable(MTU) as (where, net):
        for node in net.nodes:
            for offload in OFFLOADS:
                net.inside(node, "ethtool", "-K", "eth0", offload, "off")
        yield where, net


def lose(net: Namespaces, percent: float) -> None:
    """Drops this percentage of the packets that arrive at either node."""
    for node in net.nodes:
        net.inside(node, "nft", "flush", "ruleset")
        if percent:
            chain = "{ type filter hook prerouting priority 0; policy accept; }"
            net.inside(node, "nft", "add", "table", "inet", "loss")
            net.inside(node, "nft", "add", "chain", "inet", "loss", "arrive", chain)
            share = f"numgen random mod 10000 < {round(percent * 100)}"
            net.inside(
                node, "nft", "add", "rule", "inet", "loss", "arrive", "iif", "eth0", *share.split(), "counter", "drop"
            )


def dropped(net: Namespaces) -> int:
    """Returns the number of packets that were dropped so far."""
    found = 0
    for node in net.nodes:
        words = net.inside(node, "nft", "list", "ruleset").stdout.split()
        found += sum(int(words[n + 1]) for n, word in enumerate(words) if word == "packets")
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, 5, record=True)
    parser.add_argument("--loss", action="append", type=float, metavar="PERCENT", help="default: 0, 0.1, 1 and 3")


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, args.quick or args.loss)
    plan = QUICK if args.quick else PLAN
    rows, missed, lossless = [], [], 0.0
    measured: dict[str, float] = {}
    with cable_without_offloads() as (where, net):
        for percent in args.loss or LOSSES:
            lose(net, percent)
            samples = collect(PROVIDERS, args, lambda provider: measure(where, provider, plan))
            need(not percent or dropped(net) > 0, "nothing was dropped: nftables is there and does not work")
            for word in plan:
                ours, theirs = ([sample[word] for sample in samples[provider]] for provider in PROVIDERS)
                ratio, best, other = faster(word, ours, theirs), statistics.median(ours), statistics.median(theirs)
                kind, size, _ = word.split(":")
                name = f"{percent:g} % loss, {figure_name(word)}"
                measured |= {f"{name}, squall": best, f"{name}, tcp": other}
                own = ""
                if word == plan[0]:
                    lossless = best if percent == 0 else lossless
                    if lossless:
                        own = f"{best / lossless:.2f}"
                        measured[f"{percent:g} % loss, 1 MiB bandwidth, share of its own without loss"] = best / lossless
                    wanted = LOSSES.get(percent)
                    if wanted and ratio < wanted:
                        missed.append(f"{percent:g} %: {ratio:.2f} x tcp, wanted {wanted:g}")
                    if wanted and lossless and best < KEPT * lossless:
                        missed.append(f"{percent:g} %: {best / lossless:.2f} of its own without loss, wanted {KEPT:g}")
                cells = [f"{best:.3g}", f"{other:.3g}", f"{ratio:.2f}", own]
                rows.append([f"{percent:g}", f"{kind} {int(size) >> 10} KiB, {UNITS[kind]}", *cells])
    print(table(["loss %", "", "squall", "tcp", "faster", "of its own without loss"], rows))
    # A short round is too short to judge by.
    return conclude(args, [] if args.quick else missed, {"bench loss": measured})
