"""Run jobs between machines: guests of QEMU with Debian 12 and kernels of their own, whose networks and hosts fail.

Each case boots its guests, which takes seconds without KVM, and ends them. The right answer of a case is written down before it
is run: right data, or an error that names host and cause within the documented deadline, and a next job that runs. Where it
means something `tcp` runs the same, for comparison; how that ends does not count.

The guests' disk is built once, in minutes, from Debian's and PyPI's packages, into target/machines. Guests reach nothing but
each other. Names select cases; --list prints them. --capture keeps what went through the guests' cards, in target/machines.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import shutil
import time
from collections.abc import Iterable, Mapping
from typing import Any

from squall_ci import machines
from squall_ci.hostile import Verdict
from squall_ci.machines import Case, faults, kernels, networks
from squall_ci.machines.image import Kernel, MACHINES, payload
from squall_ci.machines.image import kernels as build_kernels
from squall_ci.machines.room import accelerator, Room, Topology
from squall_ci.paths import need, ROOT, say, shown
from squall_ci.programs import commit, squall
from squall_ci.tally import table, Tally

KEPT, SHOWN = ROOT / "docs" / "machines.json", ROOT / "docs" / "hosts.md"
# The part of the page that is made from the record.
BEGIN, END = "<!-- machines -->\n", "<!-- end of machines -->"
# All cases, in this order.
CASES = {
    name: case for kind in (kernels, networks, faults) for name, case in machines.CASES.items() if case.kind == kind.__name__
}


class Rooms:
    """The guests of the case that runs, which the next one gets if it needs the same and nothing has happened to them."""

    def __init__(self, kernels: Mapping[str, Kernel], payload: pathlib.Path) -> None:
        self._kernels = kernels
        self._payload = payload
        self._stack = contextlib.ExitStack()
        self._room: Room | None = None

    def get(self, topology: Topology, captures: pathlib.Path | None) -> Room:
        """Returns guests of a topology."""
        if not self._room or self._room.topology != topology or captures:
            self.close()
            self._room = self._stack.enter_context(Room(self._kernels, self._payload, topology, captures))
        return self._room

    def close(self) -> None:
        """Ends the guests."""
        self._room = None
        self._stack.close()


def in_order(cases: Iterable[Case]) -> list[Case]:
    """Returns cases in an order in which few guests boot: those of one topology together, and those that spoil guests last."""
    listed = list(cases)
    topologies = [case.topology for case in listed]
    return sorted(listed, key=lambda case: (topologies.index(case.topology), case.spoils))


def run_case(rooms: Rooms, case: Case, provider: str, captures: pathlib.Path | None = None) -> Verdict:
    """Runs a case; a guest that does not do what it must is a failure."""
    try:
        return case.run(rooms.get(case.topology, captures), provider)
    except (RuntimeError, OSError) as error:
        return Verdict(f"the case could not be carried out: {error}")


def render(record: Mapping[str, Any]) -> str:
    """Returns the generated part of the page."""

    def cell(outcome: Mapping[str, Any] | None) -> str:
        if outcome is None:
            return ""
        return f"{'no: ' + outcome['problem'] if outcome['problem'] else 'yes'}, {outcome['seconds']} s"

    rows = [
        [f"`{name}`", row["what"], row["right"], *(cell(row.get(provider)) for provider in ("squall", "tcp"))]
        for name, row in record.items()
    ]
    head = ["case", "what happens", "right answer", "squall", "tcp"]
    return "\n" + table(head, rows, left=range(5), aligned=False) + "\n\n"


def with_record(page: str, record: Mapping[str, Any]) -> str:
    """Returns the text of the page with the generated part as it is now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    need(begin and end, f"{SHOWN.name} has no part between {BEGIN.strip()} and {END}")
    return before + begin + render(record) + end + after


def load() -> dict[str, Any]:
    """Reads the record: a row for each case."""
    record: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return record


def write_page() -> None:
    """Writes the page from the record."""
    SHOWN.write_text(with_record(SHOWN.read_text(), load()))


def keep(case: Case, outcomes: Mapping[str, Any], tried: str) -> None:
    """Replaces the row of a case by the outcomes of a commit."""
    row = {"what": case.what(), "right": case.right, **outcomes}
    row |= {"date": datetime.date.today().isoformat(), "commit": tried or "unknown"}
    record = load() | {case.name: row}
    KEPT.write_text(json.dumps({name: record[name] for name in CASES if name in record}, indent=1) + "\n")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--quick", action="store_true", help="run the short cases only")
    parser.add_argument("--record", action="store_true", help="write the outcomes into docs/machines.json and docs/hosts.md")
    parser.add_argument("--capture", action="store_true", help="capture the packets of all cards")
    parser.add_argument("--program", type=pathlib.Path, help="the squall program, instead of building it")
    parser.add_argument("--commit", help="record this as the commit of which the provider was built elsewhere")
    parser.add_argument("cases", nargs="*", metavar="NAME", choices=[[], *CASES])


def main(args: argparse.Namespace) -> int:
    if args.list:
        for name, case in CASES.items():
            print(f"{name:20} {case.what()}: {case.right}")
        return 0
    booted = build_kernels()
    disk = MACHINES / "payload.ext4"
    payload(args.program or squall(), disk)
    say(f"guests run under {accelerator()[1]}")
    rooms = Rooms(booted, disk)
    try:
        return run_cases(rooms, args)
    finally:
        rooms.close()


def run_cases(rooms: Rooms, args: argparse.Namespace) -> int:
    """Runs the cases that were asked for. Returns the exit status."""
    tally = Tally()
    # Records change files, so the commit is looked up before. That of a program that was built elsewhere has to be named.
    tried = args.commit or ("" if args.program else commit())
    for case in in_order(CASES[name] for name in args.cases or CASES):
        if args.quick and not case.quick and not args.cases:
            continue
        captures = MACHINES / "captures" / case.name if args.capture else None
        if captures:
            shutil.rmtree(captures, ignore_errors=True)
            captures.mkdir(parents=True)
        outcomes: dict[str, dict[str, Any]] = {}
        for provider in case.providers:
            begin = time.monotonic()
            verdict = run_case(rooms, case, provider, captures)
            seconds = time.monotonic() - begin
            if case.spoils or verdict.problem:
                rooms.close()
            outcomes[provider] = {"problem": verdict.problem, "seconds": round(seconds)}
            if provider == "squall":
                tally.add(case.name, verdict.problem, seconds, verdict.note, verdict.output)
            else:
                print(f"note  {case.name}, {provider} ({seconds:.1f} s): {verdict.problem or 'ok'}", flush=True)
        if captures:
            print(f"      captured in {shown(captures)}")
        if args.record:
            keep(case, outcomes, tried)
    if args.record:
        write_page()
    return tally.finish()
