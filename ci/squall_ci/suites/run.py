"""Run jobs by `squall run`: under every MPI on this host, between two namespaces, and jobs that do not use squall.

The environment names no provider and no variable of an MPI. `squall run` has to set them, also for ranks of another host, to
name each rank that does not use squall, and to refuse what contradicts it.
"""

import argparse
import os
import re
import shlex
from collections.abc import Sequence

from squall_ci.mpis import Mpi, MPIS
from squall_ci.namespaces import BARE, Bridge
from squall_ci.paths import MPI_TESTS
from squall_ci.process import Result, run, Word
from squall_ci.programs import squall
from squall_ci.tally import Tally

PATIENCE = 120.0
RANKS = 4
# The sentence about a job.
SUMMARY = re.compile(
    r"^squall: (\d+) of (\d+) ranks; .*, (\d+) pairs? by packets(?: \(encrypted\))?, (\d+) by shared memory; \d+ packets retransmitted; nothing lost$",
    re.M,
)


def program(mpi: Mpi) -> list[Word]:
    """Returns the program of a job, in which every rank talks to every other one."""
    return [mpi.python, MPI_TESTS / "coll.py", "--quick"]


def problem_of(result: Result, ranks: int, medium: str) -> str | None:
    """Returns what is wrong with a job of which all pairs of ranks talk by packets or by shared memory, or None."""
    if not result.ok:
        return result.why()
    if "squall-report" in result.output:
        return "a report is left in the output"
    found = SUMMARY.search(result.output)
    if not found:
        return "no sentence about all ranks"
    used, expected, packets, shm = map(int, found.groups())
    pairs, others = (packets, shm) if medium == "packets" else (shm, packets)
    # An MPI may have several endpoints a rank.
    right = used == expected == ranks and pairs >= ranks * (ranks - 1) // 2 and others == 0
    return None if right else f"'{found[0]}', expected {ranks} ranks that talk by {medium}"


def one_host(tally: Tally) -> None:
    """Runs a job under each MPI on this host, through shared memory and through packets with faults."""
    for mpi in MPIS.values():
        for medium, options in (("shared memory", []), ("packets", ["--no-shm", "--faults", "loss=0.5%"])):
            command: list[Word] = [squall(), "run", "--require", "--all", *options, "--", *mpi.command(RANKS, program(mpi))]
            result = run(command, mpi.plain_environment(), PATIENCE)
            tally.add(f"{mpi.title}, {medium}", problem_of(result, RANKS, medium), result.seconds, output=result.output)


def two_hosts(tally: Tally) -> None:
    """Runs a job on two hosts, where ranks have the variables by their launcher alone."""
    for name in ("mpich", "openmpi"):
        mpi = MPIS[name]
        env = {name: value for name, value in mpi.plain_environment().items() if name != "FI_SQUALL_IFACE"}
        network = Bridge(2)
        network.login = BARE
        with network as hosts, hosts.launch(range(2), mpi.remote) as launch:
            command = launch(mpi.command(2, program(mpi)))
            at = command.index(mpi.launcher)
            command[at:at] = [str(squall()), "run", "--require", "--"]
            result = run(command, env, PATIENCE)
        tally.add(f"{mpi.title}, two hosts", problem_of(result, 2, "packets"), result.seconds, output=result.output)


def expect(tally: Tally, name: str, words: Sequence[Word], status: int, says: str, env: dict[str, str]) -> None:
    """Checks the exit status of `squall run`, and that a sentence is in its output."""
    result = run([squall(), "run", *words], env, PATIENCE)
    right = result.code == status and says in result.output
    problem = None if right else f"{result.why()}, expected exit status {status} and '{says}'"
    tally.add(name, problem, result.seconds, output=result.output)


def without_squall(tally: Tally) -> None:
    """Runs jobs of which no rank or not every rank uses squall, and tries what must be refused."""
    mpi = MPIS["mpich"]
    env = mpi.plain_environment()
    job = mpi.command(2, program(mpi))
    # A rank that loads libfabric, and opens no endpoint.
    some = "case $PMI_RANK in 1) exec fi_info -p squall > /dev/null;; *) exec sleep 0;; esac"
    looks = ["--", *mpi.command(2, ["sh", "-c", some])]
    expect(tally, "a rank that only looks", looks, 0, "rank 1 (", env)
    expect(tally, "the same, required", ["--require", *looks], 2, "the application used another provider or none", env)
    expect(tally, "no libfabric", ["--require", "--", *mpi.command(2, ["true"])], 2, "no process used squall", env)
    expect(
        tally, "a job that fails", ["--", *mpi.command(2, ["sh", "-c", "exit 7"])], 7, "the job failed with status 7", env
    )
    expect(tally, "another provider", ["--", *job], 2, "FI_PROVIDER=tcp leaves squall out", env | {"FI_PROVIDER": "tcp"})
    ucx = env | {"MPIR_CVAR_CH4_NETMOD": "ucx"}
    expect(tally, "another netmod", ["--", *job], 2, "MPIR_CVAR_CH4_NETMOD=ucx keeps MPICH from using squall", ucx)
    away = env | {"FI_PROVIDER_PATH": os.devnull}
    expect(tally, "no provider", ["--", *job], 2, "has no libsquall-fi.so", away)
    expect(tally, "no program", ["--", "mpiexec.none", "-n", "2", "true"], 2, "no such program in PATH", env)
    ping = "fi_pingpong -p squall -e rdm -I 10 -S 1024"
    both = f"{ping} -B 47595 & until grep -q ':B9EB 0*:0000 0A' /proc/net/tcp; do sleep 0.1; done; {ping} -P 47595 127.0.0.1; wait"
    expect(
        tally, "programs without a launcher", ["--require", "--", "sh", "-c", both], 0, "squall: 2 processes; lo (MTU", env
    )


def batch_script(tally: Tally) -> None:
    """Runs a job with the variables of `squall env`, as a batch script does."""
    mpi = MPIS["openmpi"]
    launch = shlex.join(mpi.command(2, program(mpi)))
    script = f'eval "$({squall()} env --mpi openmpi5 --all)" && test "$OMPI_MCA_mpi_yield_when_idle" = 0 && FI_SQUALL_REPORT=yes {launch}'
    result = run(["sh", "-c", script], mpi.plain_environment(), PATIENCE)
    reports = result.output.count('squall-report: {"host":')
    problem = result.why() if not result.ok else None if reports >= 2 else f"{reports} ranks report that they used squall"
    tally.add("a batch script", problem, result.seconds, output=result.output)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--two-hosts", action="store_true", help="the jobs between namespaces alone")


def main(args: argparse.Namespace) -> int:
    tally = Tally()
    if not args.two_hosts:
        one_host(tally)
        without_squall(tally)
        batch_script(tally)
    if os.geteuid() == 0:
        two_hosts(tally)
    else:
        print("jobs between two hosts are left out: namespaces need root")
    return tally.finish()
