"""The output of a suite: a line for each check, `N passed, N failed` at the end, and tables."""

import time
from collections.abc import Sequence


class Tally:
    """Counts passed and failed checks; `finish` prints the closing line and gives the exit status."""

    def __init__(self, *, tail: int = 40, quiet: bool = False) -> None:
        self._begun = time.monotonic()
        self.passed = 0
        self.failed: list[str] = []
        # The number of lines that are shown of the output of a failed check.
        self._tail = tail
        # Print failures alone.
        self._quiet = quiet

    def add(self, name: str, problem: str | None, seconds: float | None = None, note: str = "", output: str = "") -> None:
        """Counts one check: `problem` is None for success. The end of the output is shown for a failure."""
        took = "" if seconds is None else f" ({seconds:.1f} s)"
        if problem is None:
            self.passed += 1
            if not self._quiet:
                print(f"ok    {name}{took}{' ' if note else ''}{note}", flush=True)
            return
        self.failed.append(name)
        print(f"FAIL  {name}{took}: {problem}{'; ' if note else ''}{note}", flush=True)
        for line in output.splitlines()[-self._tail :]:
            print(f"      | {line[:300]}", flush=True)

    def seconds(self) -> float:
        """Returns the time since the tally was begun."""
        return time.monotonic() - self._begun

    def finish(self) -> int:
        """Prints `N passed, N failed`. Returns the exit status: 1 when something failed or nothing ran."""
        if self.failed:
            print("failed: " + ", ".join(self.failed))
        print(f"{self.passed} passed, {len(self.failed)} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), *, aligned: bool = True) -> str:
    """Lays out rows of strings as Markdown: the columns in `left` are left aligned, the others right.

    A table that is not `aligned` has no padding, so that a row changes alone.
    """
    widths = [max(len(row[i]) for row in [head, *rows]) if aligned else 1 for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ("-" if i in left else ":") for i, width in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])
