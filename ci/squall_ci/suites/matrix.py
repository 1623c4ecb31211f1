"""Run every MPI with 2 and 4 ranks on a clean network, on a bad one, and with a path that swallows packets.

clean      ci/run suite imb under Intel MPI, ci/run suite mpi under every MPI
faults     the same with 1 % loss, 2 % reordering, 0.5 % duplication, 0.1 % corruption (caught by the CRC)
blackhole  the same with one of the entropies black-holed

Ends with `N passed, N failed`, counting runs of the scripts, after naming what failed.
"""

import argparse
import os
import pathlib
import re

from squall_ci.mpis import MPIS
from squall_ci.paths import RUN, TARGET
from squall_ci.process import run, Word
from squall_ci.tally import Tally

NETWORKS: dict[str, dict[str, str]] = {
    "clean": {},
    "faults": {"FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%", "FI_SQUALL_CRC": "1"},
    "blackhole": {"FI_SQUALL_FAULT": "blackhole=3"},
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="the short set of the MPI programs")
    parser.add_argument("--only", choices=NETWORKS, action="append")
    parser.add_argument("--mpi", choices=sorted(MPIS), action="append")
    parser.add_argument("--imb-checking", type=pathlib.Path, metavar="FILE", help="as ci/run suite imb --checking")


def main(args: argparse.Namespace) -> int:
    logs = TARGET / "matrix"
    logs.mkdir(parents=True, exist_ok=True)

    imb: list[Word] = ["--checking", args.imb_checking.absolute()] if args.imb_checking else []
    tally = Tally()
    for network in args.only or NETWORKS:
        # A bad network is slower: each lost tail costs a timeout.
        patience = 1 if network == "clean" else 3
        jobs: list[tuple[str, list[Word]]] = []
        for mpi in args.mpi or MPIS:
            for ranks in (2, 4):
                words: list[Word] = [RUN, "suite", "mpi", "--timeout", 300 * patience, *(["--quick"] if args.quick else [])]
                jobs.append((f"{network}-{mpi}-{ranks}", [*words, mpi, "squall", ranks]))
            if mpi == "impi":
                jobs.append((f"{network}-imb", [RUN, "suite", "imb", "--timeout", 120 * patience, *imb, "squall"]))
        for name, command in jobs:
            result = run(command, {**os.environ, **NETWORKS[network]}, timeout=7200)
            (logs / f"{name}.log").write_text(result.output)
            lines = re.findall(r"^(?:FAIL .*|\d+ passed, \d+ failed)$", result.output, re.M)
            note = lines[-1] if lines else ""
            tally.add(name, None if result.ok else result.why(), result.seconds, note, "\n".join(lines))
    return tally.finish()
