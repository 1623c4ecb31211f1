"""Processes that end before their time, others that come in their place, and processes that are stopped for a while."""

import os
import re

from squall_ci.hostile import Verdict
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import MPI_TESTS
from squall_ci.process import run

# Seconds: after DEADLINE a silent peer becomes an error; PATIENCE is for what hangs.
DEADLINE = 1
PATIENCE = 30.0
RANKS = 3


def killed_rank() -> Verdict:
    """One of three ranks is killed, and the launcher does not see it: it would take the others along at once."""
    mpi = MPIS["mpich"]
    env = mpi.env("squall") | {"FI_SQUALL_DEADLINE": f"{DEADLINE}s", "SQUALL_TEST_DEADLINE": str(int(PATIENCE) - 5)}
    # To the launcher a rank is this shell, which outlives it.
    shell = ["sh", "-c", f'"$0" "$1"; sleep {PATIENCE}; exit 1']
    result = run(mpi.command(RANKS, [*shell, mpi.python, MPI_TESTS / "leave.py"]), env, PATIENCE)
    # The first survivor that MPI ends takes the other along.
    ended = re.findall(r"Abort\(\d+\) on node (\d+).*?OFI poll failed \(.*?: (.*?)\)", result.output, re.S)
    problem = None
    if "wrong bytes" in result.output:
        problem = "wrong bytes"
    elif result.code is None or result.seconds > 10 * DEADLINE:
        problem = f"the others went on for {result.seconds:.0f} s"
    elif not ended or result.ok:
        problem = f"none of the others was told: {result.why()}"
    note = f"over after {result.seconds:.1f} s; " + ", ".join(f"rank {rank}: {why}" for rank, why in ended)
    return Verdict(problem, note, result.output)


def one_after_another(jobs: int = 12) -> Verdict:
    """Jobs whose first rank takes Ultra Ethernet's port as soon as the job before has left it; every third is killed."""
    mpi = MPIS["mpich"]
    for number in range(jobs):
        if number % 3 == 2:
            command = mpi.command(2, [mpi.python, MPI_TESTS / "leave.py"])
            result = run(command, mpi.env("squall"), PATIENCE)
            if result.ok or result.code is None:
                return Verdict(f"job {number + 1}, whose rank kills itself: {result.why()}", "", result.output)
            continue
        result, problem, _ = run_job(mpi, "squall", 2, [mpi.python, MPI_TESTS / "sums.py"], PATIENCE, 16 << 20)
        if problem:
            return Verdict(f"job {number + 1}: {problem}", "", result.output)
    return Verdict(None, f"{jobs} jobs")


def one_stopped() -> Verdict:
    """One rank of two is stopped for longer than a peer may be silent in other transports, and goes on."""
    return _stopped("1")


def all_stopped() -> Verdict:
    """Every rank is stopped at once, as by a suspended job, a snapshot of a virtual machine or a lid."""
    return _stopped("all")


def _stopped(who: str) -> Verdict:
    mpi = MPIS["mpich"]
    pause = float(os.environ.get("SQUALL_TEST_PAUSE", "15"))
    env = {"SQUALL_TEST_STOPPED": who, "SQUALL_TEST_PAUSE": str(pause)}
    program = [mpi.python, MPI_TESTS / "pause.py"]
    result, problem, summary = run_job(mpi, "squall", 2, program, pause + PATIENCE, 1 << 20, env)
    return Verdict(problem, f"{pause:.0f} s; {summary}", result.output)
