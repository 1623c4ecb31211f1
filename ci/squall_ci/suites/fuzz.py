"""Play random histories of two engines, or of their contexts, with an attacker or faults between them, a million of each mode.

honest    two engines without an attacker: no peer is taken for one
on-path   an attacker who sees all packets and sends any
off-path  an attacker who sees no packets
sealed    two engines that encrypt, and an attacker who sees all packets and sends any
trouble   processes that end, begin again and pause, paths that carry less, links that are cut
long      so many operations that 16-bit numbers wrap, and small tables; one history stands for two thousand of the others
contexts  the contexts of two endpoints, with any packets (`reliability/tests/hostile`; the others: `engine/tests/hostile`)
files     files with mistakes for the simulator's readers (`netsim/tests/files`)

All run in virtual time with overflow checks and debug assertions, some hundred to two thousand histories a second on one
core, and two hundred sealed ones. A run continues at the seed where the last one of that mode stopped
(target/fuzz/MODE.next), or at --from. --quick plays ten thousand, of the sealed ones a thousand.

Findings are printed by kind, with the first seed that shows each. target/fuzz/examples/hostile (for contexts, .../contexts)
--mode MODE --one SEED prints everything about one. Add such seeds to `corpus.txt` beside the histories, which `cargo test`
replays.
"""

import argparse
import os
import re

from squall_ci.paths import die, ROOT
from squall_ci.process import run
from squall_ci.tally import Tally

# The crate whose example plays a mode, and the example.
ENGINES, CONTEXTS = ("squall-engine", "hostile"), ("squall-reliability", "contexts")
FILES = ("squall-netsim", "files")
MODES = {
    "honest": ENGINES,
    "on-path": ENGINES,
    "off-path": ENGINES,
    "sealed": ENGINES,
    "trouble": ENGINES,
    "long": ENGINES,
    "contexts": CONTEXTS,
    "files": FILES,
}
MANY, FEW = 1_000_000, 10_000
# Some histories take longer: so many others are played in the time of one.
IN_ITS_PLACE = {"sealed": 10, "long": 2_000}
# Histories a call of the program plays, so that what was reached is kept.
SHARE = 50_000
DIRECTORY = ROOT / "target" / "fuzz"


def build(crate: str, example: str) -> None:
    command = ["cargo", "build", "--locked", "-p", crate, "--profile", "fuzz", "--example", example]
    built = run(command, os.environ, 900)
    if not built.ok:
        die(f"the histories do not build:\n{built.output[-4000:]}")


def findings(output: str) -> list[str]:
    """Returns the lines of the findings."""
    return re.findall(r"^\d+ x .*$", output, re.M)


def play(mode: str, first: int, histories: int) -> tuple[str | None, float, str]:
    """Plays one mode; returns problem, seconds and output."""
    counter = DIRECTORY / f"{mode}.next"
    found: list[str] = []
    seconds, output = 0.0, ""
    for begin in range(first, first + histories, SHARE):
        share = min(SHARE, first + histories - begin)
        program = str(DIRECTORY / "examples" / MODES[mode][1])
        words = ["--mode", mode, "--from", str(begin), "--histories", str(share)]
        result = run([program, *words], os.environ, 3600)
        seconds += result.seconds
        output += result.output
        found += findings(result.output)
        if not result.ok and not findings(result.output):
            return f"{result.why()}, from seed {begin} on", seconds, output
        counter.write_text(f"{begin + share}\n")
    return "; ".join(found) or None, seconds, output


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all of them")
    parser.add_argument("--histories", type=int, help="of each mode")
    parser.add_argument("--from", type=int, dest="first", metavar="SEED", help="instead of where the last run stopped")


def main(args: argparse.Namespace) -> int:
    tally = Tally()
    histories = args.histories or (FEW if args.quick else MANY)
    modes: list[str] = args.mode or list(MODES)
    for crate, example in {MODES[mode] for mode in modes}:
        build(crate, example)
    for mode in modes:
        counter = DIRECTORY / f"{mode}.next"
        many = histories if args.histories else histories // IN_ITS_PLACE.get(mode, 1)
        first = args.first if args.first is not None else int(counter.read_text()) if counter.exists() else 0
        problem, seconds, output = play(mode, first, many)
        tally.add(mode, problem, seconds, f"{many} histories from seed {first}", output)
    return tally.finish()
