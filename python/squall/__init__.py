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

import pandas

__all__ = ["SquallError", "plan", "program", "sim"]

# An option's value: a flag, or what stands behind `--option`.
Option = bool | int | float | str | pathlib.Path | None
# What `squall` ends with when the request makes no sense.
_NO_SENSE = 2


class SquallError(RuntimeError):
    """The program refused, in its own words."""


def program() -> pathlib.Path:
    """Where the program `squall` of this package is."""
    names = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))]
    for folder in names:
        path = pathlib.Path(folder) / "squall"
        if path.is_file():
            return path
    raise SquallError(f"no program squall in {' or '.join(names)}: is the package installed from a wheel?")


def _words(options: dict[str, Option | Sequence[Option]]) -> list[str]:
    """`sample=5, no_trim=True` as `--sample 5 --no-trim`. What is None or False is left out."""
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
    """Simulate a load over a topology, as `squall sim --topo TOPO --load LOAD` does: a row a flow.

    Columns: `id`, `src`, `dst` (hosts), `bytes`, `start_us`, `fct_us` (completion time, NaN if it did not finish),
    `received_us`, `alone_us`, `packets`, `marked` and `retransmitted` (how many), `reason` (why it did not finish).
    What else the result holds is in `attrs`: `totals`, `network`, `provenance`; with `sample=US` also `series`, a data frame of `kind`, `name`, `time_us`, `value`.

    Raises SquallError, with the program's words, for what makes no sense.
    """
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
    """Run an experiment, as `squall plan run NAME` does: a row a run.

    Columns: what was swept, `seed`, every metric (docs/metrics.md). `attrs["provenance"]` has what all runs share.

    Raises SquallError, with the program's words, for what makes no sense.
    """
    with tempfile.TemporaryDirectory(prefix="squall-") as out:
        _run(["plan", "run", str(name), *_words(options), "--quiet", "--summary", "--out", out])
        files = list(pathlib.Path(out).glob("*/runs.csv"))
        if not files:
            raise SquallError(f"{name}: nothing was run")
        comment, text = files[0].read_text(encoding="utf-8").split("\n", 1)
    runs = pandas.read_csv(io.StringIO(text))
    runs.attrs["provenance"] = json.loads(comment.removeprefix("# "))
    return runs
