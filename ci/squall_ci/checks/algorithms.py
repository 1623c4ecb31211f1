"""Run every congestion control with every path selection and loss detection, in live jobs at 1 % loss.

Each combination runs IMB-MPI1 (Exchange, Alltoall and Allreduce, to 64 KiB) under Intel MPI on 4 ranks. With --checking (an
IMB-MPI1 that checks results, as for ci/run suite imb) its column of defects must be there and zero; without, a program of
fabtests/mpi verifies contents under the same settings. A combination that cannot work must be refused with the allowed
values. The names come from the provider (fi_info -e).

Algorithms that need fields written by switches run over `squall emulate` with telemetry or rates, and packets must have
carried them. Algorithms inside VAI and SF (`nscc:vai=1,sf=30`) run over one selector, with each set of detectors.

--quick runs each algorithm, each selector and each set of detectors once, in as few jobs as that takes.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import re

from squall_ci.emulator import Emulator
from squall_ci.environment import provider_run
from squall_ci.imb_tables import tables
from squall_ci.job import run_job
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import die, MPI_TESTS, need
from squall_ci.process import run
from squall_ci.programs import squall
from squall_ci.tally import Tally

RANKS = 4
LOSSES = ["trim", "ooo", "probe", "rto", "all"]
# If trimming is the only sign of loss, the network trims instead of dropping.
FAULTS = {"trim": {"FI_SQUALL_FAULT": "trim=1%", "FI_SQUALL_TRIMMING": "1"}}
FAULT = {"FI_SQUALL_FAULT": "loss=1%"}
# Algorithms that need fields written by switches: the emulator's option, and its counter of packets with such fields.
SWITCH_FIELDS = {"hpcc": ("--telemetry", "telemetry"), "sperc": ("--features=rates", "rated")}
# Algorithms inside VAI and SF, which change their law. Each runs over one selector, with every set of detectors,
# and s-PERC with what Snyder's thesis adds to it.
FORMS = ["nscc:vai=1,sf=30", "sperc:one_rtt=1,weights=1", "strack:vai=1,sf=30", "dctcp:vai=1,sf=30"]
# --quick takes so many of them, with one set.
QUICK_FORMS = 2
# The benchmarks move at least this much each way.
FLOOR = 4 << 20


def names() -> dict[str, list[str]]:
    """Returns the names that the provider offers, by variable."""
    env = provider_run("squall")
    result = run(["fi_info", "-e"], env, timeout=60)
    found: dict[str, list[str]] = {}
    for variable in ("CC", "LB", "LOSS"):
        listed = re.search(rf"FI_SQUALL_{variable}: .*\n.* Names: ([^.]+)\.", result.output)
        if not listed:
            die(f"fi_info -e does not list the names of FI_SQUALL_{variable}:\n{result.output[-2000:]}")
        found[variable] = listed.group(1).split(", ")
    return found


def impossible(lb: str, loss: str) -> bool:
    """Returns whether the combination must be refused: a selector that freezes on broken paths, and no detector of them."""
    return lb in ("reps", "reps-avoid") and loss == "trim"


def covering(ccs: list[str], lbs: list[str], losses: list[str]) -> list[tuple[str, str, str]]:
    """Returns combinations that name each algorithm, each selector and each set of detectors at least once."""
    count = max(len(ccs), len(lbs), len(losses))
    rows = []
    for at in range(count):
        lb, loss = lbs[at % len(lbs)], losses[at % len(losses)]
        if impossible(lb, loss):
            loss = losses[(at + 1) % len(losses)]
        rows.append((ccs[at % len(ccs)], lb, loss))
    # Detectors that impossible combinations displaced.
    for loss in set(losses) - {row[2] for row in rows}:
        rows += [(ccs[0], lb, loss) for lb in lbs if not impossible(lb, loss)][:1]
    return rows


def forms(lbs: list[str], losses: list[str], quick: bool) -> list[tuple[str, str, str]]:
    """Returns the combinations of the algorithms of FORMS."""
    # A selector that goes together with any set of detectors.
    lb = next((lb for lb in lbs if not any(impossible(lb, loss) for loss in losses)), lbs[0])
    if quick:
        return [(form, lb, losses[-1]) for form in FORMS[:QUICK_FORMS]]
    return [(form, lb, loss) for form in FORMS for loss in losses]


def refused(output: str) -> str | None:
    """Returns what is missing from the refusal of a job, or None."""
    found = re.search(r"parameters of squall conflict: .*allowed: .*", output)
    return None if found else "not refused with the allowed values"


def judge(output: str, checking: bool) -> str | None:
    """Returns what is wrong with the results, or None if every size has its row and no defect."""
    found = tables(output)
    count = sum(len(table.rows) for table in found)
    # 0 to 64 KiB twice, and from 4 bytes on for the reduction.
    if count < 2 * 18 + 16:
        return f"{count} rows of results, expected 52"
    if checking and not all("defects" in table.heads for table in found):
        return "no column of defects"
    return next(filter(None, (table.defect() for table in found)), None)


def combination(mpi: Mpi, cc: str, lb: str, loss: str, args: argparse.Namespace) -> tuple[str | None, float, str, str]:
    """Runs one combination; returns problem, seconds, note and output."""
    fields = SWITCH_FIELDS.get(cc.split(":")[0])
    # A refused job sends no packets that a switch could write into.
    if fields is None or impossible(lb, loss):
        return over(mpi, cc, lb, loss, args, {})
    option, counter = fields
    with contextlib.ExitStack() as stack:
        emulator = stack.enter_context(Emulator(squall(), ["--topo", f"star:{RANKS}", option]))
        problem, seconds, note, output = over(mpi, cc, lb, loss, args, {"FI_SQUALL_EMULATOR": emulator.socket})
        count = emulator.status()["totals"][counter]
        if problem is None and (
            count == 0 or re.search("needs what switches write|needs the rates that switches compute", output)
        ):
            problem = "no packet carried the fields of switches"
        return problem, seconds, note or f"{count} packets {counter}", output


def over(
    mpi: Mpi, cc: str, lb: str, loss: str, args: argparse.Namespace, network: dict[str, str]
) -> tuple[str | None, float, str, str]:
    """Runs one combination over the network that these variables name, or over loopback."""
    env = {
        **network,
        "FI_SQUALL_CC": cc,
        "FI_SQUALL_LB": lb,
        "FI_SQUALL_LOSS": loss,
        "FI_LOG_LEVEL": "warn",
        **FAULTS.get(loss, FAULT),
        # Every loss that waits for the last resort waits ten times this.
        "FI_SQUALL_RTO_MIN": os.environ.get("FI_SQUALL_RTO_MIN", "1ms"),
    }
    binary = (args.checking or mpi.venv / "bin" / "IMB-MPI1").absolute()
    program = [binary, "-npmin", RANKS, "-iter", "5,20", "-time", "1", "-msglog", "0:16", "-mem", "1"]
    program += ["Exchange", "Alltoall", "Allreduce"]
    no = impossible(lb, loss)
    job = run_job(mpi, "squall", RANKS, program, args.timeout, 0 if no else FLOOR, env)
    if no:
        return refused(job.output), job.result.seconds, "refused", job.output
    problem = job.problem or judge(job.output, bool(args.checking))
    if problem or args.checking:
        return problem, job.result.seconds, job.note, job.output
    program = [mpi.python, MPI_TESTS / "pt2pt.py", "--quick", "--part=ring"]
    ring = run_job(mpi, "squall", RANKS, program, args.timeout, 0, env)
    return ring.problem, job.result.seconds + ring.result.seconds, job.note, ring.output


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cc", action="append", help="a congestion control, with parameters if any (may be repeated)")
    parser.add_argument("--lb", action="append", help="a path selection")
    parser.add_argument("--loss", action="append", help=f"a set of loss detectors; default: each of {', '.join(LOSSES)}")
    parser.add_argument("--checking", type=pathlib.Path, help="an IMB-MPI1 built with result checking")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each job")


def main(args: argparse.Namespace) -> int:
    mpi = MPIS["impi"]
    need(args.checking is None or args.checking.is_file(), f"there is no {args.checking}")

    offered = names()
    ccs, lbs, losses = args.cc or offered["CC"], args.lb or offered["LB"], args.loss or LOSSES
    rows = covering(ccs, lbs, losses) if args.quick else list(itertools.product(ccs, lbs, losses))
    if not args.cc:
        rows += forms(lbs, losses, args.quick)
    tally = Tally()
    for cc, lb, loss in rows:
        problem, seconds, note, output = combination(mpi, cc, lb, loss, args)
        tally.add(f"{cc} over {lb}, losses by {loss}", problem, seconds, note, output)
    return tally.finish()
