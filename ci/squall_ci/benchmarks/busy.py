"""Measure programs of others where processors are short: more ranks than cores, or other processes that compute.

hpcc   HPC Challenge, 4 ranks or 2: its RandomAccess, whose ranks poll between pieces of their work, and its transposition
xdqr   the tests of ScaLAPACK's QR factorisation, whose ranks exchange many short messages

Both are Debian's (packages hpcc and scalapack-mpi-test), under Open MPI 4.1, on squall through shared memory and by packets, and
on libfabric's tcp. A job that takes longer than the limit of 120 s counts with the limit. A ratio is above 1 if squall is faster.
"""

import argparse
import contextlib
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

from squall_ci import figures
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import die, need
from squall_ci.process import Word
from squall_ci.rounds import add_options, collect, conclude
from squall_ci.tally import table

SCALAPACK = pathlib.Path("/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests")
EXAMPLE = pathlib.Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
# The sides: a provider, and settings of the job.
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    "shared memory": ("squall", {"FI_SQUALL_SHM": "yes"}),
    "packets": ("squall", {"FI_SQUALL_SHM": "no"}),
    "tcp": ("tcp", {}),
}
# Ranks, and other processes that compute.
CONDITIONS = ((4, 0), (2, 4))
# Seconds that a job may take.
LIMIT = 120.0
# What is measured, with its unit, and whether more is better.
MEASURES = {"RandomAccess, million updates/s": True, "transposition, GB/s": True, "QR, s": False}


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Runs processes that compute."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def parameters(ranks: int) -> str:
    """Returns HPC Challenge's input file: the example with a small problem on these ranks."""
    lines = EXAMPLE.read_text().split("\n")
    rows = {1: 2, 2: 2, 4: 2}[ranks]
    changed = {5: "700 Ns", 10: f"{rows} Ps", 11: f"{ranks // rows} Qs"}
    return "\n".join(changed.get(i, line) for i, line in enumerate(lines))


def job(side: str, ranks: int, words: list[Word], folder: pathlib.Path) -> float:
    """Runs a program in a folder. Returns how long it took, or the limit if it took longer."""
    provider, settings = SIDES[side]
    command: list[Word] = ["env", "-C", folder, *words]
    done = run_job(MPIS["ompi4"], provider, ranks, command, LIMIT, None, settings)
    if done.result.seconds >= LIMIT:
        return LIMIT
    if done.problem:
        die(f"{words[0]} on {side}: {done.problem}\n{done.output[-1500:]}", 1)
    return done.result.seconds


def play(ranks: int, processes: int, side: str) -> dict[str, float]:
    """Runs both programs on one side, and returns the figures that they print."""
    with tempfile.TemporaryDirectory() as name, load(processes):
        folder = pathlib.Path(name)
        for data in SCALAPACK.glob("*.dat"):
            shutil.copy(data, folder)
        (folder / "hpccinf.txt").write_text(parameters(ranks))
        found = {"QR, s": job(side, ranks, [SCALAPACK / "xdqr"], folder)}
        job(side, ranks, ["hpcc"], folder)
        output = folder / "hpccoutf.txt"
        text = output.read_text() if output.exists() else ""
        for key, measure, factor in (
            ("MPIRandomAccess_GUPs", "RandomAccess, million updates/s", 1e3),
            ("PTRANS_GBs", "transposition, GB/s", 1.0),
        ):
            printed = re.search(rf"^{key}=([\d.e+-]+)$", text, re.M)
            # Nothing if the job was ended at its limit.
            if printed and float(printed[1]) > 0:
                found[measure] = float(printed[1]) * factor
        return found


def arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, 3, record=True)


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, args.quick)
    missing = [str(path) for path in (SCALAPACK / "xdqr", EXAMPLE) if not path.exists()]
    need(not missing, f"{', '.join(missing)}: missing; install the packages hpcc and scalapack-mpi-test")
    measured: dict[str, float] = {}
    rows = []
    for ranks, processes in CONDITIONS:
        condition = f"{ranks} ranks" + (f" beside {processes} processes" if processes else "")
        samples = collect(list(SIDES), args, partial(play, ranks, processes))
        for measure, more in MEASURES.items():
            medians = {
                side: statistics.median(values)
                for side, some in samples.items()
                if (values := [one[measure] for one in some if measure in one])
            }
            row = [condition, measure, *(f"{medians[side]:.3g}" if side in medians else "none" for side in SIDES)]
            for side in list(SIDES)[:2]:
                if side in medians and "tcp" in medians:
                    ratio = medians[side] / medians["tcp"] if more else medians["tcp"] / medians[side]
                    row.append(f"{ratio:.2f}")
                else:
                    row.append("none")
            rows.append(row)
            measured |= {f"{condition}, {measure}, {side}": value for side, value in medians.items()}
    print(table(["condition", "measure", *SIDES, "faster, shared memory", "packets"], rows, left=(0, 1)))
    return conclude(args, measured={"bench busy": measured})
