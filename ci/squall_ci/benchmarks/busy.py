"""Measure programs of others where processors are short: more ranks than cores, or other processes that compute.

hpcc   HPC Challenge, 4 ranks or 2: its RandomAccess, whose ranks poll between pieces of their work, and its transposition
xdqr   the tests of ScaLAPACK's QR factorisation, whose ranks exchange many short messages

Both are Debian's (packages hpcc and scalapack-mpi-test), under Open MPI 4.1, on squall through shared memory and by packets, and
on libfabric's tcp. A job that is not done after 120 s counts with that time, and with 0 for its rates. A ratio is above 1 if squall is faster.
"""

import argparse
import pathlib
import re
import shutil
import statistics
import tempfile
from functools import partial

from squall_ci import figures
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import die, need
from squall_ci.process import computing, Word
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


def parameters(ranks: int) -> str:
    """Returns HPC Challenge's input file: the example with a small problem on these ranks."""
    lines = EXAMPLE.read_text().split("\n")
    changed = {5: "700 Ns", 10: "2 Ps", 11: f"{ranks // 2} Qs"}
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
    with tempfile.TemporaryDirectory() as name, computing(processes):
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
            # Nothing was printed if the job was ended at its limit.
            found[measure] = float(printed[1]) * factor if printed else 0.0
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
            medians = {side: statistics.median(one[measure] for one in some) for side, some in samples.items()}
            row = [condition, measure, *(f"{medians[side]:.3g}" for side in SIDES)]
            for side in list(SIDES)[:2]:
                better, worse = (side, "tcp") if more else ("tcp", side)
                row.append(f"{medians[better] / medians[worse]:.2f}" if medians[worse] else "")
            rows.append(row)
            measured |= {f"{condition}, {measure}, {side}": value for side, value in medians.items()}
    print(table(["condition", "measure", *SIDES, "faster, shared memory", "packets"], rows, left=(0, 1)))
    return conclude(args, measured={"bench busy": measured})
