"""Measure start-up, address insertion, and the memory of an idle peer.

Start-up is the time from the first fi_getinfo to an enabled endpoint. Insertion is that of 100 000 addresses into an address
vector, by one call and one by one. Both run beside tcp (fabtests/bench/scale.c). Memory is the growth of an engine that has
exchanged a message in each direction with 10 000 others and has been idle since (engine/examples/scale.rs). Both contexts of
each pair are open. The exit status is 1 when a target is missed.
"""

import argparse
import re

from squall_ci.paths import die, FABTESTS, need, TARGET
from squall_ci.process import run
from squall_ci.programs import compile_c, example
from squall_ci.rounds import environment, print_missed
from squall_ci.tally import table

ADDRESSES = 100_000
ROUNDS = 9
# Milliseconds, milliseconds, bytes.
MOST_START, MOST_INSERTION, MOST_PEER = 5.0, 200.0, 1024
WHAT = {
    "start": "start-up, ms",
    "together": f"insert {ADDRESSES} addresses at once, ms",
    "singly": f"insert {ADDRESSES} addresses one by one, ms",
}


def measure(provider: str) -> dict[str, float]:
    """Returns the milliseconds of each step."""
    program = compile_c([FABTESTS / "bench" / "scale.c"], TARGET / "bench" / "scale")
    result = run([program, provider, ADDRESSES, ROUNDS], environment(provider), timeout=120)
    found = {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", result.output, re.M)}
    need(result.ok and found.keys() == WHAT.keys(), f"{provider}: {result.why()}: {result.output.strip()[-400:]}")
    return found


def bytes_of_a_peer() -> int:
    """Returns the memory that an engine keeps for each idle peer."""
    result = run([example("squall-engine", "scale")], {}, timeout=120)
    found = re.search(r": (\d+) bytes a peer$", result.output, re.M)
    if not found:
        die(f"scale: {result.why()}: {result.output.strip()[-400:]}", 1)
    return int(found.group(1))


def main(_args: argparse.Namespace) -> int:
    ours, theirs = measure("squall"), measure("tcp")
    limits = {"start": MOST_START, "together": MOST_INSERTION, "singly": MOST_INSERTION}
    rows = [[what, f"{ours[key]:.2f}", f"{theirs[key]:.2f}", f"{limits[key]:g}"] for key, what in WHAT.items()]
    missed = [what for key, what in WHAT.items() if ours[key] > limits[key]]
    peer = bytes_of_a_peer()
    rows.append(["memory of an idle peer, bytes", str(peer), "", str(MOST_PEER)])
    if peer > MOST_PEER:
        missed.append("memory of an idle peer")
    print(table(["", "squall", "tcp", "at most"], rows))
    return print_missed(missed)
