"""Runs steps one after the other. Each has a log file, whose end is shown if the step fails."""

import json
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from squall_ci.paths import RUN, shown
from squall_ci.process import run, Word
from squall_ci.tally import Tally


@dataclass(frozen=True)
class Step:
    """A step of a run: commands that must all succeed, each within `deadline` seconds."""

    name: str
    commands: Sequence[Sequence[Word]]
    deadline: float = 1800.0
    # Variables that are added to the caller's environment.
    env: Mapping[str, str] = field(default_factory=dict)
    # True if the command may ask at the terminal, for a password perhaps.
    terminal: bool = False
    # True if the step belongs to `ci/test --fast`.
    fast: bool = False
    # The reason why it cannot run here and what to do about it, or empty.
    missing: str = ""


def run_step(step: Step, log: pathlib.Path) -> tuple[str | None, str]:
    """Runs the commands until one fails, with their output in `log`. Returns the problem and the output."""
    log.write_bytes(b"")
    for command in step.commands:
        result = run(command, {**os.environ, **step.env}, step.deadline, log=log, terminal=step.terminal)
        if not result.ok:
            return f"{result.why()}: {' '.join(map(str, command))}", log.read_text(errors="replace")
    return None, ""


class Kept:
    """The steps that have passed, with their seconds, in a file from which a later run goes on."""

    def __init__(self, file: pathlib.Path, forget: bool = False) -> None:
        self._file = file
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() and not forget else {}

    def add(self, step: str, seconds: float) -> None:
        self.seconds[step] = round(seconds, 1)
        # Through a new name: a run may be stopped at any time.
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self.seconds, indent=1))
        os.replace(new, self._file)


def list_steps(steps: Sequence[Step]) -> None:
    """Prints the names of the steps, and what each runs."""
    for step in steps:
        commands = "; ".join(" ".join(os.path.relpath(w) if w == RUN else str(w) for w in c) for c in step.commands)
        print(
            f"{step.name:10} {'fast' if step.fast else '    '}  {commands}{f'   (skipped: {step.missing})' if step.missing else ''}"
        )


def run_steps(
    steps: Sequence[Step], logs: pathlib.Path, only: Sequence[str] = (), fast: bool = False, kept: Kept | None = None
) -> int:
    """Runs all steps, those of the fast lane, or those named in `only`, but those that `kept` has. Returns the exit status."""
    logs.mkdir(parents=True, exist_ok=True)
    tally = Tally(tail=60)
    names = [step.name for step in steps]
    for step in steps:
        if (only and step.name not in only) or (not only and fast and not step.fast):
            continue
        if step.missing:
            print(f"not run: {step.name}, {step.missing}", flush=True)
            if only:
                tally.add(step.name, step.missing)
            continue
        # What a step installs may be gone.
        if kept and step.name in kept.seconds and step.name not in ("setup", "build"):
            tally.add(step.name, None, kept.seconds[step.name], "in an earlier run")
            continue
        begin = time.monotonic()
        problem, output = run_step(step, logs / f"{step.name}.log")
        seconds = time.monotonic() - begin
        tally.add(step.name, problem, seconds, output=output)
        if kept and problem is None:
            kept.add(step.name, seconds)
    for name in only:
        if name not in names:
            tally.add(name, f"there is no such step; there are: {', '.join(names)}")
    if tally.failed:
        print(f"whole output in {shown(logs)}")
    return tally.finish()
