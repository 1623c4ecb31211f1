"""Messages through shared memory that arrive before their receives are posted, more of them than an endpoint keeps."""

from squall_ci.hostile import Verdict
from squall_ci.job import run_program

# A limit that twenty messages exceed, and the built-in one.
SMALL_LIMIT = 16
DEFAULT_LIMIT = 1_000_000
# Bytes of the long message, which its receiver reads from the sender's memory.
LONG = 400_000
# Seconds in which a job must end: with the small limit it takes one.
PATIENCE = 30.0
PATIENCE_WITH_MANY = 150.0


def _job(messages: int, length: int, delay: float, env: dict[str, str], patience: float) -> Verdict:
    env = {"FI_SQUALL_SHM": "yes", **env}
    words = (messages, length, LONG, delay)
    job = run_program("unexpected", *words, timeout=patience, at_least=LONG, env=env, shows=["shm_channels"])
    return Verdict(job.problem, f"{messages} messages of {length} bytes in {job.result.seconds:.1f} s", job.output)


def small_limit() -> Verdict:
    """Sends a long message, then more short ones than FI_SQUALL_MAX_UNEXPECTED lets an endpoint keep."""
    return _job(SMALL_LIMIT + 4, 100, 0.5, {"FI_SQUALL_MAX_UNEXPECTED": str(SMALL_LIMIT)}, PATIENCE)


def default_limit() -> Verdict:
    """Sends more messages than the built-in limit; the receiver begins when all that it keeps have arrived."""
    return _job(DEFAULT_LIMIT + 100, 8, 15.0, {}, PATIENCE_WITH_MANY)
