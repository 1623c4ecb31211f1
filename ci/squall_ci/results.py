"""The results of suites on each consumer of libfabric: fabtests/results.json, and the page RESULTS.md made from it."""

import dataclasses
import datetime
import itertools
import json
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from squall_ci.paths import FABTESTS
from squall_ci.programs import commit
from squall_ci.tally import table, Tally

KEPT = FABTESTS / "results.json"
SHOWN = FABTESTS / "RESULTS.md"
# The page names so many tests of a list; results.json names all of them.
MOST_NAMED = 12

INTRODUCTION = """# Results of suites on squall

This page is generated from `results.json` beside it: do not edit it. A suite that is run with
`--record` replaces its rows there and writes the page; [README.md](README.md) says how each suite
is run. libfabric's tcp has rows for comparison. *Excluded* tests were not run, for the reason that
is named below the table. Rows without seconds were recorded before the time was.
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """The outcome of one suite on one provider under one set of conditions."""

    consumer: str
    # The version of the suite, or of the library that it tests; empty if the consumer or the suite names it.
    version: str
    suite: str
    provider: str
    # Processes, faults, and every other setting that is not the default.
    conditions: str
    passed: int
    failed: Sequence[str]
    # The tests that were not run, by reason.
    excluded: Mapping[str, Sequence[str]]
    date: str
    commit: str
    seconds: float | None = None

    def key(self) -> tuple[str, ...]:
        """Returns the key by which a later run replaces this row."""
        return (self.consumer, self.version, self.suite, self.conditions, self.provider)

    def cells(self) -> dict[str, str]:
        """Returns the row of the page's table, by column."""
        return {
            "version": self.version,
            "suite": self.suite,
            "conditions": self.conditions,
            "provider": self.provider,
            "passed": str(self.passed),
            "failed": str(len(self.failed)),
            "excluded": str(sum(map(len, self.excluded.values()))),
            "seconds": "" if self.seconds is None else f"{self.seconds:.0f}",
            "date": self.date,
            "commit": self.commit,
        }


def load() -> list[Row]:
    """Reads the recorded rows."""
    return [Row(**row) for row in json.loads(KEPT.read_text())]


def render(rows: Iterable[Row]) -> str:
    """Returns the text of the page: a section for each consumer."""
    text = INTRODUCTION
    for consumer, group in itertools.groupby(sorted(rows, key=Row.key), lambda row: row.consumer):
        text += f"\n## {consumer}\n\n{section(list(group))}"
    return text


def section(rows: Sequence[Row]) -> str:
    """Returns the table of one consumer, without empty columns, the failed tests, and the excluded ones by reason."""
    cells = [row.cells() for row in rows]
    head = [column for column in cells[0] if any(row[column] for row in cells)]
    left = [at for at, column in enumerate(head) if column in ("version", "suite", "conditions", "provider")]
    text = table(head, [[row[column] for column in head] for row in cells], left) + "\n"
    failed = [f"{row.suite} on {row.provider}, {row.conditions}: {named(row.failed)}" for row in rows if row.failed]
    excluded: dict[str, dict[str, None]] = {}
    for row in rows:
        for reason, tests in row.excluded.items():
            excluded.setdefault(f"{row.suite}: {reason}", {}).update(dict.fromkeys(tests))
    text += listed("Failed", failed)
    return text + listed("Excluded", [f"{reason} ({named(list(tests))})" for reason, tests in sorted(excluded.items())])


def listed(title: str, items: Sequence[str]) -> str:
    """Returns a list under a title, wrapped; nothing if it is empty."""
    lines = [textwrap.fill(item, 100, initial_indent="- ", subsequent_indent="  ") for item in items]
    return f"\n{title}:\n\n" + "\n".join(lines) + "\n" if items else ""


def named(tests: Sequence[str]) -> str:
    """Returns the names of tests, of a long list the first ones and the number of the others."""
    more = len(tests) - MOST_NAMED
    return ", ".join([*(f"`{test}`" for test in tests[:MOST_NAMED]), *([f"and {more} more"] if more > 0 else [])])


def write_page() -> None:
    """Writes the page from the recorded rows."""
    SHOWN.write_text(render(load()))


def record(
    consumer: str,
    suite: str,
    provider: str,
    conditions: str,
    tally: Tally,
    *,
    version: str = "",
    excluded: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Records the outcome that a tally counted in the place of the earlier one of the same suite, and writes the page."""
    row = Row(
        consumer=consumer,
        version=version,
        suite=suite,
        provider=provider,
        conditions=conditions,
        passed=tally.passed,
        failed=tally.failed,
        excluded=excluded or {},
        date=datetime.date.today().isoformat(),
        commit=commit() or "unknown",
        seconds=round(tally.seconds()),
    )
    rows = {old.key(): old for old in load()} | {row.key(): row}
    KEPT.write_text(json.dumps([dataclasses.asdict(rows[key]) for key in sorted(rows)], indent=1) + "\n")
    write_page()


def conditions(ranks: int | str) -> str:
    """Returns the conditions of a run: the number of processes, and the caller's settings of squall."""
    set_by_caller = {name: value for name, value in os.environ.items() if name.startswith("FI_SQUALL_")}
    words = ["1 process" if ranks == 1 else f"{ranks} processes"]
    words += [f"{name.removeprefix('FI_SQUALL_')}={value}" for name, value in sorted(set_by_caller.items())]
    return ", ".join(words)
