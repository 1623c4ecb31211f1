"""Shortage of descriptors, and of room on a disk."""

import contextlib
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator

from squall_ci.environment import provider_run
from squall_ci.hostile import Verdict, WARNINGS
from squall_ci.mpis import MPIS
from squall_ci.paths import FABTESTS, MPI_TESTS, TARGET
from squall_ci.process import run, Word
from squall_ci.programs import compile_c

PATIENCE = 60.0


@contextlib.contextmanager
def _full_disk() -> Iterator[pathlib.Path]:
    """Mounts a file system without a free page."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "squall-full", directory], check=True)
        try:
            disk = pathlib.Path(directory)
            with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))
            yield disk
        finally:
            subprocess.run(["umount", directory], check=True)


def full_disk() -> Verdict:
    """Sends capture and statistics of a long and of a short job to a full disk."""
    with _full_disk() as disk:
        return _run_jobs_on(disk)


def _run_jobs_on(disk: pathlib.Path) -> Verdict:
    mpi = MPIS["mpich"]
    files = {"FI_SQUALL_PCAP": str(disk / "packets"), "FI_SQUALL_STATS": f"json:{disk}/statistics"}
    env = mpi.env("squall") | WARNINGS | files
    short: list[Word] = [
        "-c",
        "from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); print('sums: 1 passed, 0 failed\\n', end='')",
    ]
    for name, program in (("long", [MPI_TESTS / "sums.py"]), ("short", short)):
        result = run(mpi.command(2, [mpi.python, *program]), env, PATIENCE)
        problem = None if result.ok else result.why()
        if not re.search(r"^sums: \d+ passed, 0 failed$", result.output, re.M):
            problem = problem or "the sums are not right"
        for what in ("capture", "FI_SQUALL_STATS"):
            if not re.search(rf"{what}.*{disk}/.*No space left on device", result.output):
                problem = problem or f"the full disk is not reported for {what}"
        if problem:
            return Verdict(f"{name} job: {problem}", "", result.output)
    return Verdict(None, "two jobs went on")


def out_of_descriptors() -> Verdict:
    """Opens an endpoint with one descriptor too few, two, and so on. The program checks the calls; we check the messages."""
    sources = FABTESTS / "abi"
    program = compile_c(
        [sources / "identity.c", *sorted(sources.glob("*.h"))], TARGET / "abi" / "identity", ("-std=gnu11", "-g", "-O1")
    )
    result = run([program, "out_of_descriptors"], provider_run("squall") | WARNINGS, PATIENCE)
    problem = None if result.ok else result.why()
    if not problem and not re.search(r"squall.*(descriptors|Too many open files)", result.output):
        problem = "the lack of descriptors is not reported"
    return Verdict(problem, "", result.output)
