"""A wall clock that is set while a job runs."""

from squall_ci.hostile import Verdict
from squall_ci.job import run_program
from squall_ci.paths import FABTESTS, TARGET
from squall_ci.programs import compile_c

# Seconds: the job takes SECONDS, in which the clock steps twice a second; none of its turns may take as long as TURN.
SECONDS = 4.0
TURN = 1.0


def steps() -> Verdict:
    """Moves the wall clock of the job by hours, ahead and back (fabtests/clock/steps.c says how)."""
    shim = compile_c(
        [FABTESTS / "clock" / "steps.c"], TARGET / "clock" / "steps.so", ("-O2", "-shared", "-fPIC", "-Wno-nonnull-compare")
    )
    # Losses start timers, which a wrong clock would disturb. A jump of an hour is far beyond the deadline.
    env = {"FI_SQUALL_FAULT": "loss=0.2%,seed=9", "FI_SQUALL_DEADLINE": "20s"}
    job = run_program("steady", SECONDS, env=env, under=["env", f"LD_PRELOAD={shim}"])
    if job.problem:
        return Verdict.of(job)
    stepped, quick = job.figures["clock_steps"] >= SECONDS, job.figures["longest_s"] <= TURN
    return Verdict.of(job, None if stepped and quick else "a turn took long" if stepped else "the clock did not step")
