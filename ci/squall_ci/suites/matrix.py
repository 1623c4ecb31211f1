"""Run every MPI with 2 and 4 ranks on a clean network, on a bad one, with a dead path, and encrypted on a bad one.

clean      ci/run suite imb under Intel MPI, ci/run suite mpi under every MPI
faults     the same with 1 % loss, 2 % reordering, 0.5 % duplication, 0.1 % corruption (caught by the CRC)
blackhole  the same with one of the entropies black-holed
encrypted  the same as faults, with a job key (corruption is caught by the authentication tag)

The closing line counts runs of these suites, whose output is in target/matrix.
"""

import argparse
import pathlib
import secrets

from squall_ci import foreign
from squall_ci.mpis import MPIS
from squall_ci.paths import RUN, TARGET
from squall_ci.process import Word
from squall_ci.steps import run_steps, Step

KEY_FILE = TARGET / "matrix-job.key"

NETWORKS: dict[str, dict[str, str]] = {
    "clean": {},
    "faults": {"FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%", "FI_SQUALL_CRC": "1"},
    "blackhole": {"FI_SQUALL_FAULT": "blackhole=3"},
    "encrypted": {
        "FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%",
        "FI_SQUALL_TSS": "required",
        "FI_SQUALL_KEY_FILE": str(KEY_FILE),
    },
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="the short set of the MPI programs")
    parser.add_argument("--only", choices=NETWORKS, action="append")
    parser.add_argument("--mpi", choices=sorted(MPIS), action="append")
    parser.add_argument("--imb-checking", type=pathlib.Path, metavar="FILE", help="as ci/run suite imb --checking")
    foreign.add_record_option(parser)


def main(args: argparse.Namespace) -> int:
    checking: list[Word] = ["--checking", args.imb_checking.absolute()] if args.imb_checking else []
    quick = ["--quick"] if args.quick else []
    record = ["--record"] if args.record else []
    KEY_FILE.unlink(missing_ok=True)
    KEY_FILE.touch(mode=0o600)
    KEY_FILE.write_text(secrets.token_urlsafe(32) + "\n")
    steps = []
    for network in args.only or NETWORKS:
        env = NETWORKS[network]
        # A bad network is slower: each loss at the end of a message costs a timeout.
        patience = 1 if network == "clean" else 3
        for mpi in args.mpi or MPIS:
            for ranks in (2, 4):
                words: list[Word] = [RUN, "suite", "mpi", "--timeout", 300 * patience, *quick, *record, mpi, "squall", ranks]
                steps.append(Step(f"{network}-{mpi}-{ranks}", [words], 7200, env))
            if mpi == "impi":
                words = [RUN, "suite", "imb", "--timeout", 120 * patience, *checking, *record, "squall"]
                steps.append(Step(f"{network}-imb", [words], 7200, env))
    return run_steps(steps, TARGET / "matrix")
