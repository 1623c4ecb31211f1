"""Run jobs under hostile conditions, with real sockets: each must end with right results, or soon and with a reason.

Without names, all cases run, those of `ci/run suite hostile --list`. Wrong results, a hang, and an end without a reason are failures.
With `--quick` the short cases run, those that `ci/test` tries: about a minute.
With `--long` processes are stopped for a minute instead of 15 s.
Most need root, for network namespaces; everything they make is gone when they end.
"""

import argparse
import os
import time

from squall_ci.hostile import (
    attacks,
    Case,
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
)
from squall_ci.tally import table, Tally

CASES = (
    Case("veth", "two hosts whose one interface is called veth0", identity.only_a_cable),
    Case("bridge", "two hosts whose first interface is a bridge to their containers", interfaces.bridge_first, quick=True),
    Case("vpn", "two hosts, the first interface of one of which is a VPN's", interfaces.vpn_first, quick=True),
    Case("path-alone", "FI_PROVIDER_PATH without FI_PROVIDER: the move to squall is reported once", identity.path_alone),
    Case("same-address", "two hosts whose interfaces have the same address", identity.one_address_for_both),
    Case("keys", "a job with a key runs, one with two keys is told so", identity.keys),
    Case("strangers", "unprivileged processes forge packets to both ranks of a job while it runs", attacks.strangers),
    Case(
        "outsider-flood-small",
        "another user's endpoint, which no rank knows, fills small tables of unexpected messages",
        outsiders.small_flood,
        quick=True,
    ),
    Case("outsider-flood", "another user's endpoint sends a million messages to each rank", outsiders.flood),
    Case("outsider-contexts", "another user's ports take contexts of a rank until none is given", outsiders.contexts),
    Case("killed", "one of three ranks is killed: the others' operations fail soon", ends.killed_rank),
    Case("dead-finalize", "a rank is killed, the others leave (under every MPI there is)", ends.finalize_without),
    Case("dead-exchange", "the same, and one exchanges long messages with it", ends.exchange_with_the_dead),
    Case("dead-wait", "the same, and one waits for its answer to a short message", ends.answer_of_the_dead),
    Case("stopped", "one of two ranks is stopped for 15 s (SQUALL_TEST_PAUSE) and goes on", ends.one_stopped),
    Case("all-stopped", "both are, at once", ends.all_stopped),
    Case(
        "stopped-short",
        "a rank is stopped for twice the deadline, by packets and through shared memory",
        ends.stopped_beyond_deadline,
        quick=True,
    ),
    Case(
        "stopped-elsewhere",
        "a rank on another host is stopped, where another rank of the job answers",
        ends.stopped_on_other_host,
    ),
    Case("sleeper", "a thread asleep on a queue while another's operation times out", sleepers.woken_by_timeout, quick=True),
    Case(
        "unexpected-limit",
        "through shared memory, more unexpected messages than are kept, before a rendezvous",
        unexpected.small_limit,
        quick=True,
    ),
    Case(
        "unexpected-limit-default", "over a million unexpected messages, with the built-in limit", unexpected.default_limit
    ),
    Case("successors", "jobs that take the ports of those before them, some of which were killed", ends.one_after_another),
    Case("mtu-shrinks", "a router's link takes smaller packets in mid-job, and the router says so", packets.shrinks),
    Case("mtu-hole", "the same, and nobody hears the router", packets.shrinks_silently),
    Case("mtu-differs", "one end's interface has MTU 9000, the path 1500", packets.differs),
    Case("mtu-differs-hole", "the same, and nobody hears the router", packets.differs_silently),
    Case("narrow-peer", "a cable whose ends have MTUs 9000 and 1500", narrow.narrow_peer, quick=True),
    Case("narrow-peers", "cables whose ends have other MTUs that differ", narrow.narrow_peers),
    Case("healthy-neighbour", "a healthy third host beside one behind a narrow cable", narrow.healthy_neighbour, quick=True),
    Case("black-hole", "a path silently drops UDP datagrams of more than 1400 bytes", narrow.black_hole, quick=True),
    Case("interface-down", "one host's interface goes down in mid-job for 8 s", links.interface_down),
    Case("interface-stays-down", "the same, for good", links.interface_stays_down),
    Case("address-gone", "one host loses its address in mid-job for 8 s", links.address_gone),
    Case("address-stays-gone", "the same, for good", links.address_stays_gone),
    Case("fork-exec", "ranks fork, with and without exec, while messages are on their way", children.forks),
    Case("spawn-exit", "a rank spawns short-lived jobs, one after another", children.spawns),
    Case("clock-steps", "the wall clock jumps by hours while a job runs", clocks.steps),
    Case("relay-dies", "the relay of a network made of software is killed in mid-job", relay.relay_dies),
    Case("descriptors", "an endpoint opens when the process has no descriptors left", resources.out_of_descriptors),
    Case("full-disk", "capture and statistics go to a full disk", resources.full_disk),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--quick", action="store_true", help="run the short cases only")
    parser.add_argument("--long", action="store_true", help="stop processes for a minute instead of 15 s")
    parser.add_argument("cases", nargs="*", metavar="NAME", choices=[[], *(case.name for case in CASES)])


def main(args: argparse.Namespace) -> int:
    if args.list:
        print(table(["case", "what"], [[case.name, case.what] for case in CASES], left=(0, 1)))
        return 0
    if args.long:
        os.environ["SQUALL_TEST_PAUSE"] = "60"
    tally = Tally()
    for case in CASES:
        if (args.cases and case.name not in args.cases) or (args.quick and not case.quick):
            continue
        begin = time.monotonic()
        verdict = case.run()
        tally.add(case.name, verdict.problem, time.monotonic() - begin, verdict.note, verdict.output)
    return tally.finish()
