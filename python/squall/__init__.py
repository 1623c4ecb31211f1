"""Squall's simulator: the transport in virtual time, results as data frames.

The functions run the program `squall` that the package brings with it, so that a result here is one of the command line.
"""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

__all__ = ["SquallError", "plan", "program", "sim"]

# The value of an option: a flag, or the word after `--option`.
Option = bool | int | float | str | pathlib.Path | None
# The exit status of `squall` for a request that makes no sense.
_NO_SENSE = 2


class SquallError(RuntimeError):
    """Raised when the program refuses a request. The text is the program's error message."""


def _pandas() -> Any:
    """Imports pandas, which only data frames need."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"pandas cannot be imported: {error}; run pip install 'squall[sim]'") from error
    return pandas


def program() -> pathlib.Path:
    """Returns the path of the program `squall` that this package installed."""
    names = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))]
    for folder in names:
        path = pathlib.Path(folder) / "squall"
        if path.is_file():
            return path
    raise SquallError(f"no program squall in {' or '.join(names)}: is the package installed from a wheel?")


def _words(options: dict[str, Option | Sequence[Option]]) -> list[str]:
    """Returns `sample=5, no_trim=True` as `--sample 5 --no-trim`, without options that are None or False."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is True:
            continue
        words.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return words


def _run(words: list[str]) -> str:
    done = subprocess.run([str(program()), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == _NO_SENSE or not done.stdout:
        raise SquallError(done.stderr.strip() or f"squall {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def sim(topo: str | pathlib.Path, load: str | pathlib.Path, **options: Option | Sequence[Option]) -> pandas.DataFrame:
    """Simulates a load over a topology, as `squall sim --topo TOPO --load LOAD` does. Returns a row for each flow.

    Columns: `id`, `src`, `dst` (hosts), `bytes`, `start_us`, `fct_us` (completion time, NaN if it did not finish),
    `received_us`, `alone_us`, `packets`, `marked` and `retransmitted` (how many), `reason` (why it did not finish).
    The rest of the result is in `attrs`: `totals`, `network` and `provenance`. With `sample=US`, `series` is a data frame
    of `kind`, `name`, `time_us` and `value`.

    Raises SquallError, with the program's message, if a value is invalid, and ImportError without pandas.
    """
    pandas = _pandas()
    words = ["sim", "--quiet", "--topo", str(topo), "--load", str(load), *_words(options), "--format", "json"]
    result = json.loads(_run(words))
    flows = pandas.DataFrame(result["flows"])
    if "reason" not in flows:
        flows["reason"] = None
    for name in ("totals", "network", "provenance"):
        flows.attrs[name] = result[name]
    if "series" in result:
        flows.attrs["series"] = pandas.DataFrame(
            [
                {"kind": of["kind"], "name": of["name"], "time_us": time, "value": value}
                for of in result["series"]
                for time, value in of["points"]
            ]
        )
    return flows


def plan(name: str | pathlib.Path, **options: Option | Sequence[Option]) -> pandas.DataFrame:
    """Runs an experiment, as `squall plan run NAME` does. Returns a row for each run.

    Columns: the parameters that vary, `seed`, every metric (docs/plans.md). `attrs["provenance"]` has the settings that
    all runs share.

    Raises SquallError, with the program's message, if a value is invalid, and ImportError without pandas.
    """
    pandas = _pandas()
    with tempfile.TemporaryDirectory(prefix="squall-") as out:
        _run(["plan", "run", str(name), *_words(options), "--quiet", "--summary", "--out", out])
        files = list(pathlib.Path(out).glob("*/runs.csv"))
        if not files:
            raise SquallError(f"{name}: nothing was run")
        comment, text = files[0].read_text(encoding="utf-8").split("\n", 1)
    runs = pandas.read_csv(io.StringIO(text))
    runs.attrs["provenance"] = json.loads(comment.removeprefix("# "))
    return runs
