"""Processes that fork, and jobs that spawn others."""

import pathlib
import re
import struct
import tempfile
from typing import Any

from squall_ci.hostile import run_at_once, Verdict
from squall_ci.job import run_program, Statistics
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS, TARGET
from squall_ci.process import run

PATIENCE = 90.0
RANKS = 2
# Rounds of two children each. Open MPI's launcher takes a second and a half for a round.
ROUNDS = {"mpich": 20, "openmpi": 20}


def forks() -> Verdict:
    """Starts children of ranks by fork and exec, and by fork alone with an orderly exit, while messages are on their way."""
    (TARGET / "stats").mkdir(parents=True, exist_ok=True)
    notes = []
    for name in ROUNDS:
        mpi = MPIS[name]
        if not mpi.python.exists():
            continue
        with tempfile.TemporaryDirectory(dir=TARGET / "stats") as directory:
            env = {"FI_SQUALL_PCAP": f"{directory}/%p-%e"}
            job = run_program("forks", mpi=mpi, ranks=RANKS, timeout=PATIENCE, at_least=8 << 20, env=env)
            captures = sorted(pathlib.Path(directory).iterdir())
            problem = job.problem or _children_wrote(mpi, job.note, captures)
        if problem:
            return Verdict(f"{name}: {problem}", job.note, job.output)
        notes.append(f"{name}: {job.note}")
    return Verdict(None, "; ".join(notes))


def _children_wrote(mpi: Mpi, summary: str, captures: list[pathlib.Path]) -> str | None:
    """Returns what children wrote into statistics and captures, which belong to their parents, or None."""
    if not summary.startswith(f"{RANKS * mpi.endpoints} endpoints"):
        return f"there are statistics of {summary.split(',', maxsplit=1)[0]}"
    if len(captures) != RANKS * mpi.endpoints:
        return f"there are captures {[path.name for path in captures]}"
    broken = [path.name for path in captures if not _is_whole(path.read_bytes())]
    return f"captures are damaged: {broken}" if broken else None


def _is_whole(capture: bytes) -> bool:
    """Returns whether a pcap file is a header followed by whole records, none longer than a packet can be."""
    if len(capture) < 24 or struct.unpack_from("<I", capture) != (0xA1B23C4D,):
        return False
    at = 24
    while at < len(capture):
        if len(capture) - at < 16:
            return False
        taken, length = struct.unpack_from("<II", capture, at + 8)
        if taken > length or length > 1 << 16:
            return False
        at += 16 + taken
    return at == len(capture)


def spawns() -> Verdict:
    """Spawns short jobs from one rank, one after another; its endpoint stays open and forgets them."""
    return run_at_once({name: MPIS[name] for name in ROUNDS if MPIS[name].python.exists()}, _spawns)


def _spawns(mpi: Mpi) -> Verdict:
    rounds = ROUNDS[mpi.name]
    statistics = Statistics()
    env = {**mpi.env("squall"), **statistics.env(), "SQUALL_TEST_DEADLINE": str(PATIENCE - 5)}
    result = run(mpi.command(1, [mpi.python, MPI_TESTS / "spawns.py", rounds]), env, PATIENCE)
    problem = None if result.ok else result.why()
    if not problem and not re.search(r"^spawns: \d+ passed, 0 failed$", result.output, re.M):
        problem = "the parent did not report success"
    endpoints = statistics.endpoints()
    if not problem and len(endpoints) != mpi.endpoints * (1 + 2 * rounds):
        problem = f"{len(endpoints)} endpoints left statistics"
    problem = problem or _left_over(endpoints)
    note = f"{rounds} rounds, {len({endpoint['local'] for endpoint in endpoints})} addresses"
    return Verdict(problem, note, result.output)


def _left_over(endpoints: list[dict[str, Any]]) -> str | None:
    """Returns the error counter that moved at an endpoint, or None."""
    for endpoint in endpoints:
        for counter in ("op_errors", "lost_after_completion"):
            if endpoint[counter]:
                return f"{counter} is {endpoint[counter]} at {endpoint['local']}"
    return None
