"""A wall clock that is set while a job runs."""

import json
import re

from squall_ci.hostile import Verdict
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import FABTESTS, MPI_TESTS, TARGET
from squall_ci.process import Word
from squall_ci.programs import compile_c

# Seconds: the job takes SECONDS, in which the clock steps twice a second; none of its turns may take as long as TURN.
SECONDS = 4.0
TURN = 1.0
PATIENCE = 60.0


def steps() -> Verdict:
    """The wall clock jumps by hours, ahead and back. fabtests/clock/steps.c says why the system's own is left alone."""
    mpi = MPIS["mpich"]
    shim = compile_c(
        [FABTESTS / "clock" / "steps.c"], TARGET / "clock" / "steps.so", ("-O2", "-shared", "-fPIC", "-Wno-nonnull-compare")
    )
    program: list[Word] = ["env", f"LD_PRELOAD={shim}", mpi.python, MPI_TESTS / "steady.py", SECONDS]
    # Losses, so that there are timers to be led astray; a deadline that an hour would be far beyond.
    env = {"FI_SQUALL_FAULT": "loss=0.2%,seed=9", "FI_SQUALL_DEADLINE": "20s"}
    result, problem, summary = run_job(mpi, "squall", 2, program, PATIENCE, 16 << 20, env)
    told = re.search(r"^steady: (\{.*\})$", result.output, re.M)
    if not problem and not (told and re.search(r"^steady: \d+ passed, 0 failed$", result.output, re.M)):
        problem = "the ranks did not say that all was right"
    said = json.loads(told.group(1)) if told else {}
    if not problem and said["clock_steps"] < SECONDS:
        problem = "the clock did not step"
    if not problem and said["longest_s"] > TURN:
        problem = "a turn took long"
    return Verdict(problem, f"{said}; {summary}", result.output)
