"""Run the MPI programs of fabtests/mpi under one MPI library, all messages forced onto one libfabric provider.

The programs verify contents. On squall the job's own statistics must show the bytes too. FI_SQUALL_* and FI_LOG_* of the
caller reach the job, FI_SQUALL_FAULT among them.
"""

import argparse
import re

from squall_ci import foreign, results
from squall_ci.job import run_program
from squall_ci.mpis import MPIS
from squall_ci.tally import Tally

# Bytes that must have crossed the wire, each way, whatever the rank count: a floor well under what the programs
# send (the full sets move gigabytes), well over what an MPI's start-up handshake does.
FLOOR = {"pt2pt": 8 << 20, "coll": 4 << 20, "comms": 200_000, "rma": 200_000}

# Parts that libfabric's tcp does not survive: it closes the connection when a message is longer than its receive,
# fails receives of claimed messages under Open MPI 5 (mpi4py's objects are received so), and stops reading behind an
# unexpected message of some size.
SKIP = {
    "tcp": {
        "pt2pt": ["--skip=tags", "--skip=truncation", "--skip=matched_probes", "--skip=objects", "--skip=overtake"],
        "comms": ["--skip=many"],
    }
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mpi", choices=sorted(MPIS))
    parser.add_argument("provider", nargs="?", default="squall")
    parser.add_argument("ranks", nargs="?", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a shorter set of sizes and repetitions")
    parser.add_argument("--only", action="append", help="one program (may be repeated)")
    parser.add_argument("--part", action="append", default=[], help="one part of the programs (may be repeated)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each program")
    foreign.add_record_option(parser)


def main(args: argparse.Namespace) -> int:
    foreign.refuse_partial_record(args, args.only or args.part)
    mpi = MPIS[args.mpi]
    tally = Tally()
    for name in args.only or mpi.tests:
        words = [*["--quick"] * args.quick, *SKIP.get(args.provider, {}).get(name, [])]
        words += [f"--part={part}" for part in args.part]
        how = {"mpi": mpi, "provider": args.provider, "ranks": args.ranks, "timeout": args.timeout}
        job = run_program(name, *words, at_least=FLOOR[name], **how)
        counts = re.findall(rf"^{name}: (\d+) passed", job.output, re.M)
        checks = "; ".join(f"{count} checks" for count in counts)
        job.add_to(tally, f"{name}: {mpi.title}, {args.provider}, {args.ranks} ranks", note=checks)
    if args.record:
        suite = f"fabtests/mpi{', quick' if args.quick else ''}"
        results.record(mpi.title, suite, args.provider, results.conditions(args.ranks), tally)
    return tally.finish()
