"""The results of other people's suites, one row for each suite and provider: fabtests/results.json and, to read, RESULTS.md."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable

from squall_ci.paths import FABTESTS
from squall_ci.tally import table

KEPT = FABTESTS / "results.json"
SHOWN = FABTESTS / "RESULTS.md"

HEAD = """# Other people's suites on squall

What programs that know nothing of squall say of it, and of libfabric's tcp beside it, where it was run. This page is written by the
suites themselves, when they are given `--record`; `README.md` beside it says how each is run. What failed is named below the table,
and so is, with the reason, what was *excluded*, that is, not run.

"""


@dataclasses.dataclass(frozen=True)
class Row:
    """The outcome of one suite on one provider."""

    consumer: str
    version: str
    suite: str
    provider: str
    # Processes, faults, and whatever else was not as by default.
    conditions: str
    passed: int
    failed: list[str]
    # The tests that were not run, by reason.
    excluded: dict[str, list[str]]
    date: str
    commit: str

    def key(self) -> tuple[str, ...]:
        """Returns the key by which a later run replaces this row."""
        return (self.consumer, self.version, self.suite, self.conditions, self.provider)


def load(path: pathlib.Path = KEPT) -> list[Row]:
    """Reads the rows that are kept."""
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def render(rows: Iterable[Row]) -> str:
    """Returns the text of the page."""
    rows = sorted(rows, key=Row.key)
    head = ["consumer", "version", "suite", "conditions", "provider", "passed", "failed", "excluded", "date", "commit"]
    lines, failures = [], ""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        name = ", ".join(filter(None, [f"{row.consumer} {row.version}".strip(), row.suite, row.conditions, row.provider]))
        if row.failed:
            failures += f"- {name}: {', '.join(row.failed)}\n"
        excluded = sum(len(tests) for tests in row.excluded.values())
        for reason, tests in row.excluded.items():
            reasons[f"{row.consumer}, {row.suite}, {row.provider}: {reason}"] = tests
        cells = [row.consumer, row.version, row.suite, row.conditions, row.provider, str(row.passed)]
        lines.append([*cells, str(len(row.failed)), str(excluded), row.date, row.commit])
    text = HEAD + table(head, lines, left=range(5)) + "\n"
    if failures:
        text += f"\n## Failed\n\n{failures}"
    if reasons:
        text += "\n## Excluded\n\n"
        text += "".join(f"- {reason} ({', '.join(tests)})\n" for reason, tests in sorted(reasons.items()))
    return text


def keep(row: Row) -> None:
    """Replaces the row of the same suite by this one, and writes the page."""
    rows = {old.key(): old for old in load()}
    rows[row.key()] = row
    kept = [dataclasses.asdict(rows[key]) for key in sorted(rows)]
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    SHOWN.write_text(render(rows.values()))


def conditions(ranks: int | str) -> str:
    """Returns the conditions of a run: the number of processes, and the caller's settings of squall."""
    set_by_caller = {name: value for name, value in os.environ.items() if name.startswith("FI_SQUALL_")}
    words = ["1 process" if ranks == 1 else f"{ranks} processes"]
    words += [f"{name.removeprefix('FI_SQUALL_')}={value}" for name, value in sorted(set_by_caller.items())]
    return ", ".join(words)
