"""The results of suites on each consumer of libfabric: fabtests/results.json, and the table of fabtests/README.md."""

import dataclasses
import datetime
import itertools
import json
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from squall_ci.paths import FABTESTS, need
from squall_ci.programs import commit
from squall_ci.tally import table, Tally

KEPT = FABTESTS / "results.json"
SHOWN = FABTESTS / "README.md"
# The page names so many tests of a list; results.json names all of them.
MOST_NAMED = 2

# The part of the page that is made from the recorded rows.
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"
# The columns of the table, each by a pattern in the provider and conditions of its rows. The last that is found decides.
COLUMNS = {
    "packets": "^squall;",
    "shared memory": r"^squall;.*\bSHM=yes\b",
    "damaged packets": r"^squall;.*\bFAULT=loss\b",
    "a dead path": r"^squall;.*\bFAULT=blackhole\b",
    "frames (AF_XDP)": r"^squall;.*\bPORT_KIND=xdp\b",
    "tcp": "^tcp;",
}
# Conditions that need no mention, because a column stands for them or they do not matter. The table names all others.
UNMENTIONED = re.compile(r"\d+( and \d+)? process(es)?|a host each|(SHM|CRC|DEADLINE|PORT_KIND|FAULT)=.*")


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

    def is_of_a_commit(self) -> bool:
        """Returns whether the build had no local changes. The table has no other rows."""
        return not self.commit.endswith("-dirty")

    def label(self) -> tuple[str, str]:
        """Returns the cells by which the table groups rows: consumer and suite."""
        others = [word for word in self.conditions.split(", ") if not UNMENTIONED.fullmatch(word)]
        version = f" ({self.version})" if self.version else ""
        return (self.consumer, ", ".join([self.suite, *others]) + version)

    def column(self) -> str:
        """Returns the column of the table to which the row belongs; empty for a provider that has none."""
        text = f"{self.provider};{self.conditions}"
        return next((column for column, pattern in reversed(COLUMNS.items()) if re.search(pattern, text)), "")

    def outcome(self) -> str:
        """Returns the numbers of passed and failed tests in words."""
        if not self.passed and not self.failed:
            return "not offered"
        return f"{self.passed}, {len(self.failed)} failed" if self.failed else str(self.passed)


def load() -> list[Row]:
    """Reads the recorded rows."""
    return [Row(**row) for row in json.loads(KEPT.read_text())]


def render(rows: Iterable[Row]) -> str:
    """Returns the generated part of the page: the table, the failed tests, and what the table leaves out."""
    groups = {label: list(group) for label, group in itertools.groupby(sorted(rows, key=Row.label), Row.label)}
    lines: list[list[str]] = []
    failed: list[str] = []
    left_out: list[str] = []
    for label, group in groups.items():
        of_commits = [row for row in group if row.is_of_a_commit()]
        cells = [outcomes(row for row in of_commits if row.column() == column) for column in COLUMNS]
        if any(cells):
            lines.append([*label, *cells])
        on_squall = [row for row in group if row.provider == "squall"]
        if on_squall and not any(row.is_of_a_commit() for row in on_squall):
            left_out.append(f"{', '.join(label)}: {outcomes(on_squall)}")
        failed += [
            f"{row.consumer}, {row.suite} on {row.provider}, {row.conditions}: {named(row.failed)}"
            for row in of_commits
            if row.failed
        ]
    text = "\n" + table(["program", "suite", *COLUMNS], lines, left=range(2), aligned=False) + "\n"
    text += listed("Failed", failed)
    return text + listed("On squall, recorded of builds with local changes alone", left_out) + "\n"


def outcomes(rows: Iterable[Row]) -> str:
    """Returns the different outcomes of some rows in words; numbers of processes differ, or places of the processes."""
    return "; ".join(dict.fromkeys(row.outcome() for row in sorted(rows, key=Row.key)))


def with_results(page: str, rows: Iterable[Row]) -> str:
    """Returns the text of the page with the generated part as it is now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    need(begin and end, f"{SHOWN.name} has no part between {BEGIN.strip()} and {END}")
    return before + begin + render(rows) + end + after


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
    SHOWN.write_text(with_results(SHOWN.read_text(), load()))


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
