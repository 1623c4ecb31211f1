"""Cases of `ci/run suite hostile`, a module for each kind of trouble; `squall_ci/suites/hostile.py` lists them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """How a case went: `problem` is None when squall did what it must."""

    problem: str | None
    note: str = ""
    # Shown when there is a problem.
    output: str = ""


@dataclass(frozen=True)
class Case:
    """One kind of trouble. It takes a bounded time, whatever happens, and leaves nothing behind."""

    name: str
    what: str
    run: Callable[[], Verdict]
    # Whether the case is short enough for `--quick`, and so for ci/test: about ten seconds.
    quick: bool = False
