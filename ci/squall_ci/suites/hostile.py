"""Run jobs under hostile conditions, with real sockets: each must end with right results, or soon and with a reason.

Wrong results, a hang, and an end without a reason are failures. Names select cases; --list prints them. Most need network
namespaces and so root; everything that they make is gone when they end.
"""

import argparse
import os
import time
from collections.abc import Callable

from squall_ci.hostile import (
    attacks,
    children,
    clocks,
    ends,
    identity,
    interfaces,
    links,
    narrow,
    outsiders,
    packets,
    relay,
    resources,
    sleepers,
    unexpected,
    Verdict,
)
from squall_ci.tally import Tally

# The function of each case, whose documentation is its description.
CASES: dict[str, Callable[[], Verdict]] = {
    "veth": identity.only_a_cable,
    "bridge": interfaces.bridge_first,
    "vpn": interfaces.vpn_first,
    "path-alone": identity.path_alone,
    "same-address": identity.one_address_for_both,
    "keys": identity.keys,
    "forged-packets": attacks.forged_packets,
    "outsider-flood-small": outsiders.small_flood,
    "outsider-flood": outsiders.flood,
    "outsider-contexts": outsiders.contexts,
    "killed": ends.killed_rank,
    "dead-finalize": ends.finalize_without,
    "dead-exchange": ends.exchange_with_the_dead,
    "dead-wait": ends.answer_of_the_dead,
    "stopped": ends.one_stopped,
    "all-stopped": ends.all_stopped,
    "stopped-short": ends.stopped_beyond_deadline,
    "stopped-elsewhere": ends.stopped_on_other_host,
    "sleeper": sleepers.woken_by_timeout,
    "unexpected-limit": unexpected.small_limit,
    "unexpected-limit-default": unexpected.default_limit,
    "successors": ends.one_after_another,
    "mtu-shrinks": packets.shrinks,
    "mtu-hole": packets.shrinks_silently,
    "mtu-differs": packets.differs,
    "mtu-differs-hole": packets.differs_silently,
    "narrow-peer": narrow.narrow_peer,
    "narrow-peers": narrow.narrow_peers,
    "healthy-neighbour": narrow.healthy_neighbour,
    "black-hole": narrow.black_hole,
    "interface-down": links.interface_down,
    "interface-stays-down": links.interface_stays_down,
    "address-gone": links.address_gone,
    "address-stays-gone": links.address_stays_gone,
    "fork-exec": children.forks,
    "spawn-exit": children.spawns,
    "clock-steps": clocks.steps,
    "relay-dies": relay.relay_dies,
    "descriptors": resources.out_of_descriptors,
    "full-disk": resources.full_disk,
}
# The cases of `--quick` and so of ci/test, each about ten seconds.
QUICK = (
    "bridge",
    "vpn",
    "outsider-flood-small",
    "stopped-short",
    "sleeper",
    "unexpected-limit",
    "narrow-peer",
    "healthy-neighbour",
    "black-hole",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--quick", action="store_true", help="run the short cases only")
    parser.add_argument("--long", action="store_true", help="stop processes for a minute instead of 15 s")
    parser.add_argument("cases", nargs="*", metavar="NAME", choices=[[], *CASES])


def main(args: argparse.Namespace) -> int:
    if args.list:
        for name, case in CASES.items():
            first = " ".join((case.__doc__ or "").split()).partition(". ")[0]
            print(f"{name:25} {first.rstrip('.')}")
        return 0
    if args.long:
        os.environ["SQUALL_TEST_PAUSE"] = "60"
    tally = Tally()
    for name in args.cases or (QUICK if args.quick else CASES):
        begin = time.monotonic()
        verdict = CASES[name]()
        tally.add(name, verdict.problem, time.monotonic() - begin, verdict.note, verdict.output)
    return tally.finish()
