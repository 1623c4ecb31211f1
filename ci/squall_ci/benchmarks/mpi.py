"""Measure ping-pong and collectives under three MPIs on squall beside tcp: half of a round trip, and a collective's time.

Intel MPI runs IMB-MPI1; MPICH and Open MPI run fabtests/mpi/perf.py. The shared memory of each is turned off, in collectives
too, so that every byte crosses the provider. Printed for each benchmark are the geometric mean over the sizes and the worst
size; with --all every size. A ratio above 1 means that squall is faster.

The ranks share the loopback interface. With --mtu each has a host of its own, a network namespace on a bridge of that MTU
(needs root).

--host compares Open MPI on squall through shared memory with Open MPI's own shared memory (ob1 over sm).
"""

import argparse
import os
import statistics

from squall_ci import figures, hosts
from squall_ci.imb_tables import tables
from squall_ci.job import run_job, run_program
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import die, need
from squall_ci.process import Word
from squall_ci.rounds import add_options, collect, conclude
from squall_ci.tally import table

# The sides: a provider, and settings of the job.
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    "squall": ("squall", {}),
    "tcp": ("tcp", {}),
    "shared": ("squall", {"FI_SQUALL_SHM": "yes"}),
    "ob1/sm": ("tcp", {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"}),
}
NETWORK, HOST = ("squall", "tcp"), ("shared", "ob1/sm")
IMB = ("PingPong", "Sendrecv", "Exchange", "Bcast", "Allreduce", "Alltoall")
# Limits of IMB for each size from 0 to 4 MiB: repetitions, MB in all, seconds.
IMB_LIMITS = ("-iter", "200,40", "-time", "1", "-msglog", "0:22", "-mem", "2")
SIZES = (8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)

# Microseconds by benchmark and size.
Times = dict[tuple[str, int], float]
# The launcher of jobs on the hosts of a benchmark, and the variables that jobs need there.
Place = tuple[hosts.Launch, dict[str, str]]


def imb(mpi: Mpi, side: str, ranks: int, quick: bool, place: Place) -> Times:
    """Runs IMB-MPI1 and returns its times: the average over the ranks where it prints one."""
    limits: tuple[Word, ...] = ("-iter", "5", "-msglog", "0:12") if quick else IMB_LIMITS
    program = [mpi.venv / "bin" / "IMB-MPI1", "-npmin", ranks, *limits, *IMB]
    provider, settings = SIDES[side]
    launch, variables = place
    job = run_job(mpi, provider, ranks, program, 300, 1 << 10, settings | variables, launch)
    if job.problem:
        die(f"{mpi.name} on {side}: {job.problem}\n{job.output[-1500:]}", 1)
    found: Times = {}
    for one in tables(job.output):
        column = next(i for i, head in enumerate(one.heads) if head in ("t[usec]", "t_avg[usec]"))
        found |= {(one.benchmark, int(row[0])): float(row[column]) for row in one.rows if float(row[column]) > 0}
    return found


def perf(mpi: Mpi, side: str, ranks: int, quick: bool, place: Place) -> Times:
    """Runs fabtests/mpi/perf.py and returns its times."""
    plan = [f"{size}:{max(5, min(10 if quick else 300, (8 << 20) // size))}" for size in SIZES]
    provider, settings = SIDES[side]
    # Bytes through shared memory are not counted as bytes of packets.
    least = 0 if side == "shared" else 1 << 10
    launch, variables = place
    job = run_program(
        "perf",
        *plan,
        mpi=mpi,
        provider=provider,
        ranks=ranks,
        timeout=300,
        at_least=least,
        env=settings | variables,
        launch=launch,
    )
    if job.problem:
        die(f"{mpi.name} on {side}: {job.problem}\n{job.output[-1500:]}", 1)
    times: Times = {}
    for key, value in job.figures.items():
        name, size = key.rsplit(" ", 1)
        times[name, int(size)] = value / 2 if name == "ping-pong" else value
    return times


def rounds_of(mpi: Mpi, ranks: int, args: argparse.Namespace) -> dict[str, list[Times]]:
    """Returns the times of each side in each round."""
    one = imb if mpi.name == "impi" else perf
    with hosts.launched(bool(args.mtu), ranks, mpi, args.mtu) as place:
        return collect(HOST if args.host else NETWORK, args, lambda side: one(mpi, side, ranks, args.quick, place))


def report(samples: dict[str, list[Times]], everything: bool) -> dict[tuple[str, int], float]:
    """Prints a table, and returns how much faster squall is, by benchmark and size."""
    (us, ours), (them, theirs) = samples.items()
    cells = [cell for cell in ours[0] if all(cell in times for times in (*ours, *theirs))]
    ratio = {cell: statistics.median(b[cell] / a[cell] for a, b in zip(ours, theirs)) for cell in cells}
    rows = []
    for name in dict.fromkeys(name for name, _ in cells):
        sizes = [size for other, size in cells if other == name]
        if everything:
            for size in sizes:
                medians = [statistics.median(times[name, size] for times in some) for some in (ours, theirs)]
                rows.append([name, str(size), *(f"{value:.1f}" for value in medians), f"{ratio[name, size]:.2f}", ""])
        mean = statistics.geometric_mean([ratio[name, size] for size in sizes])
        worst = min(sizes, key=lambda size: ratio[name, size])
        rows.append([name, "all", "", "", f"{mean:.2f}", f"{ratio[name, worst]:.2f} at {worst}"])
    print(table(["", "bytes", f"{us} us", f"{them} us", "faster", "worst"], rows))
    return ratio


def figures_of(ratios: dict[tuple[str, int], float]) -> dict[str, float]:
    """Returns how much faster squall is over all, and over the sizes of each benchmark, as they are recorded."""
    found = figures.over_all("all", ratios.values())
    for name in {name for name, _ in ratios}:
        some = [ratio for (other, _), ratio in ratios.items() if other == name]
        found |= figures.over_all({"PingPong": "ping-pong"}.get(name, name.lower()), some)
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, 5, record=True)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--mpi", action="append", choices=("impi", "mpich", "openmpi"), help="default: all of them")
    parser.add_argument(
        "--mtu", type=int, default=0, help="a host for each rank, with interfaces of this MTU, such as 1500 or 9000"
    )
    parser.add_argument("--host", action="store_true", help="shared memory, beside Open MPI's own")
    parser.add_argument("--all", action="store_true", help="every size")


def main(args: argparse.Namespace) -> int:
    need(not (args.host and args.mtu), "--host is about shared memory, which ranks on hosts of their own (--mtu) have not")
    figures.refuse_record(args, args.quick or args.host)
    measured = {}
    for name in ("openmpi",) if args.host else args.mpi or ("impi", "mpich", "openmpi"):
        mpi = MPIS[name]
        mpi.need()
        for ranks in map(int, args.ranks.split(",")):
            samples = rounds_of(mpi, ranks, args)
            where = f", a host each with MTU {args.mtu}" if args.mtu else ""
            print(f"## {name}, {ranks} ranks on {os.cpu_count()} cores{where}\n")
            ratios = report(samples, args.all)
            mean = statistics.geometric_mean(ratios.values())
            print(
                f"{name}, {ranks} ranks: {mean:.2f} x the speed of {list(samples)[1]} in geometric mean, {min(ratios.values()):.2f} at worst\n",
                flush=True,
            )
            measured[figures.mpi_job(name, ranks, args.mtu)] = figures_of(ratios)
    return conclude(args, measured=measured)
