"""Count the instructions of every case, and the bytes of state, of every congestion control and path selector.

`cc/examples/instructions.rs` runs each case in a function of the case's name, and callgrind counts the instructions of the
calls, without the harness and the choice of the algorithm (printed below the table, the same for all). A cell has two
numbers: soon after the report before, and 13 us later, when the work of a base round-trip time is due as well.

SMaRTT v2 (section III-H) gives 59 to 94 instructions a packet, and 19 bytes a flow + 28 global. The exit status is 1 when an
algorithm of the two papers needs more than 94 instructions in any case, or more than 64 bytes a flow.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

from squall_ci import callgrind
from squall_ci.paths import die, need, ROOT
from squall_ci.programs import example
from squall_ci.rounds import print_missed
from squall_ci.tally import table

TIMES = 1000
MOST_INSTRUCTIONS, MOST_BYTES = 94, 64
# The algorithms that must keep the limits, which are those of the papers' hardware.
HELD = ("nscc", "smartt", "strack")

# Column, its cases (soon, late).
REPORTS = [
    ("no queue", ("empty", "empty_late")),
    ("below target", ("below", "below_late")),
    ("above", ("above", "above_late")),
    ("ECN, below", ("marked_below", "marked_below_late")),
    ("ECN, above", ("marked_above", "marked_above_late")),
    ("trimmed", ("trimmed", "trimmed_late")),
    ("lost", ("lost",)),
    ("timed out", ("timed_out",)),
    ("CNP", ("notified",)),
    ("round ends", ("round_end",)),
]
OTHERS = [("may send?", ("budget",)), ("sent", ("on_send",))]
SIGNALS = [("good", ("good",)), ("ECN", ("ecn",)), ("NACK", ("nack",)), ("time-out", ("timeout",)), ("pick", ("pick",))]


def by_case(path: pathlib.Path) -> dict[str, int]:
    """Returns the instructions of the function of each case and of what it called."""
    tidy = re.compile(r"^instructions::([a-z_]+)(::h[0-9a-f]{16})?('\d+)?$")
    result: dict[str, int] = {}
    for name, cost in callgrind.read(path).inclusive.items():
        if found := tidy.match(name):
            result[found.group(1)] = result.get(found.group(1), 0) + cost
    return result


def measure(program: pathlib.Path, kind: str, name: str, choice: int = 0) -> tuple[int, dict[str, int]]:
    """Returns the bytes of state, and the instructions of each case; `choice` is taken off those of a report."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program), kind, name, str(TIMES)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found = re.search(r"^state (\d+)$", result.stdout, re.M)
        if result.returncode or not found:
            die(f"{name}: {result.stdout}{result.stderr}")
        state = int(found.group(1))
        costs = {case: round(cost / TIMES) for case, cost in by_case(out).items()}
        if kind == "sender":
            # The harness's own part of a report is the cost of calling an empty function, without its return.
            harness_part = costs.pop("nothing") - 5 + choice
            for _, cases in REPORTS:
                for case in cases:
                    costs[case] -= harness_part
        return state, costs


def cell(costs: dict[str, int], cases: tuple[str, ...]) -> str:
    """Returns `soon/late`, or one number if both agree or there is one case."""
    values = [costs.get(case) for case in cases]
    need(None not in values, f"callgrind saw no {cases}")
    return "/".join(dict.fromkeys(str(value) for value in values))


def write_row(kind: str, name: str, state: int, instructions: str) -> None:
    """Puts bytes and range into the algorithm's row of docs/your-algorithm.md."""
    path = ROOT / "docs" / "your-algorithm.md"
    text = path.read_text(encoding="utf-8")
    # Selectors stand behind their heading, and share names with senders.
    at = text.index("\n## Path selectors") if kind == "selector" else text.index("\n## Senders")
    row = re.compile(rf"^(\| {re.escape(name)} \|(?:[^|\n]*\|){{3}}) [^|\n]* \| [^|\n]* \|$", re.M)
    need(row.search(text, at), f"docs/your-algorithm.md has no row for {name}")
    path.write_text(text[:at] + row.sub(rf"\g<1> {state} | {instructions} |", text[at:], count=1), encoding="utf-8")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write bytes and ranges into docs/your-algorithm.md")
    parser.add_argument(
        "names", nargs="*", help="only these algorithms; senders with parameters if wanted: nscc:vai=1,sf=30"
    )


def main(args: argparse.Namespace) -> int:
    program = example("squall-cc", "instructions")
    missed = []
    # An algorithm that only returns costs what comes before its own code: the jump table of `Sender::on_feedback`.
    choice = measure(program, "sender", "none")[1]["below"] - 1
    for kind, columns in (("sender", REPORTS + OTHERS), ("selector", SIGNALS)):
        listed = subprocess.run([program, kind], capture_output=True, text=True, check=True).stdout.split()
        rows = []
        # A sender may be asked for with parameters, as those that VAI and SF are round.
        asked = [name for name in args.names if name in listed or (kind == "sender" and name.split(":")[0] in listed)]
        for name in asked if args.names else listed:
            state, costs = measure(program, kind, name, choice)
            reported = [cases for _, cases in (REPORTS if kind == "sender" else SIGNALS)]
            worst = max(costs[case] for cases in reported for case in cases)
            # The page's range is that of acknowledgements: the first five columns, or all of a selector.
            normal = [costs[case] for cases in (reported[:5] if kind == "sender" else reported) for case in cases]
            if args.write and name in listed:
                write_row(kind, name, state, f"{min(normal)} to {max(normal)}")
            rows.append([name, str(state), str(worst), *(cell(costs, cases) for _, cases in columns)])
            if kind == "sender" and name in HELD:
                if worst > MOST_INSTRUCTIONS:
                    missed.append(f"{name} needs {worst} instructions, {MOST_INSTRUCTIONS} are allowed")
                if state > MOST_BYTES:
                    missed.append(f"{name} needs {state} bytes a flow, {MOST_BYTES} are allowed")
        if kind == "sender":
            paper = ["SMaRTT v2, paper", "19 + 28 global", "94", *["59 to 94"] * 6, *["-"] * (len(columns) - 6)]
            rows.append(paper)
        print(table([kind, "bytes", "worst", *(title for title, _ in columns)], rows), end="\n\n")
    print(
        f"instructions a call (callgrind, release build, {os.uname().machine}; of a report without the {choice} that choose"
        " the algorithm), bytes of state a flow"
    )
    return print_missed(missed)
