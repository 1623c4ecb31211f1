"""Run the unsafe code that needs no kernel under Miri: undefined behaviour, leaks and data races become errors.

Runs unit tests of provider/ (objects and their owners, user memory, parameters, queue entries, text, addresses) and of net/
(control messages and extended errors of the kernel, frames of the emulator, batches, checksum, capture headers,
shared-memory rings). Left out are tests of what Miri does not know: sockets, getaddrinfo, fork, libfabric's own threads, and
loom, which has a scheduler of its own. Needs a nightly compiler: rustup component add --toolchain nightly miri rust-src.
"""

import argparse
import os
import re

from squall_ci.paths import need
from squall_ci.process import run
from squall_ci.tally import Tally

# Addresses of the application become numbers and pointers again on purpose: exposed provenance.
FLAGS = "-Zmiri-permissive-provenance -Zmiri-disable-isolation"

# Crate: tests to run, and of these tests to leave out, with the reason.
CRATES = {
    "squall-fi": (
        [
            "objects",
            "mr::",
            "av::",
            "param",
            "boundary",
            "cq::",
            "addr",
            "compat",
            "fault",
            "info",
            "endpoint::",
            "a_mutex_excludes",
        ],
        # getaddrinfo without a name; a hundred thousand of anything; every algorithm's keys, which touch no unsafe code and
        # take the interpreter minutes.
        ["names_resolve_or_say_no_data", "a_hundred_thousand_peers", "the_lists_name_everything_with_its_keys"],
    ),
    "squall-net": (
        ["burst", "crc", "cmsg", "errq", "frame", "checksum", "udp::addr", "fault::tests", "shm::ring", "shm::fetch"],
        # Each sends 20 000 packets, for a rate to show: half an hour under an interpreter.
        [
            "an_empty_specification_breaks_nothing",
            "loss_and_duplication_have_their_rates",
            "the_seed_decides",
            "reordered_packets_are_late_but_not_lost",
            "corruption_flips_a_few_bits",
            "delay_holds_each_packet_its_time",
            "trimming_cuts_data_and_marks_it",
        ],
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("filters", nargs="*", metavar="FILTER", help="tests whose name contains it, instead of the list")


def main(args: argparse.Namespace) -> int:
    known = run(["cargo", "+nightly", "miri", "--version"], os.environ, 60)
    need(known.ok, "no Miri here: rustup component add --toolchain nightly miri rust-src")
    tally = Tally(tail=60)
    # Tests panic on purpose: to interpret the printing of a backtrace takes minutes.
    environment = {**os.environ, "MIRIFLAGS": FLAGS, "RUST_BACKTRACE": "0"}
    for crate, (filters, left_out) in CRATES.items():
        skips = [word for name in left_out for word in ("--skip", name)]
        command = ["cargo", "+nightly", "miri", "test", "--locked", "-p", crate, "--lib", "--"]
        result = run([*command, *(args.filters or filters), *skips], environment, 3000)
        ran = re.search(r"test result: ok\. (\d+) passed", result.output)
        why = None if result.ok and ran and int(ran[1]) > 0 else (result.why() or "no test ran")
        tally.add(crate, why, result.seconds, f"{ran[1]} tests" if ran else "", output=result.output)
    return tally.finish()
