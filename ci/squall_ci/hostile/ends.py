"""Processes that are killed, that take the ports of others, and that are stopped for a while."""

import os
import re
from collections.abc import Mapping

from squall_ci.hostile import cable, run_at_once, Verdict, WARNINGS
from squall_ci.hosts import Launch
from squall_ci.job import run_program
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS
from squall_ci.process import Result, run

# Seconds: after DEADLINE a silent peer becomes an error; PATIENCE is for what hangs.
DEADLINE = 1
PATIENCE = 30.0
RANKS = 3
# Seconds in which the survivors of a dead rank must be done, from their start.
SURVIVE = 10
# Seconds of a stop that is longer than the deadline, and that deadline.
STOP = 6.0
STOP_DEADLINE = "3s"
# The form in which squall's messages name the dead peer.
NAMED = r"\[peer 127\.0\.0\.1:\d+, local"


def killed_rank() -> Verdict:
    """Kills one of three ranks without the launcher's notice, which would end the others at once."""
    mpi = MPIS["mpich"]
    env = mpi.env("squall") | {"FI_SQUALL_DEADLINE": f"{DEADLINE}s", "SQUALL_TEST_DEADLINE": str(int(PATIENCE) - 5)}
    # The launcher sees this shell, which outlives the rank.
    shell = ["sh", "-c", f'"$0" "$1"; sleep {PATIENCE}; exit 1']
    result = run(mpi.command(RANKS, [*shell, mpi.python, MPI_TESTS / "leave.py"]), env, PATIENCE)
    # When MPI ends the first survivor, the launcher ends the other.
    ended = re.findall(r"Abort\(\d+\) on node (\d+).*?OFI poll failed \(.*?: (.*?)\)", result.output, re.S)
    problem = None
    if "wrong bytes" in result.output:
        problem = "wrong bytes"
    elif result.code is None or result.seconds > 10 * DEADLINE:
        problem = f"the others went on for {result.seconds:.0f} s"
    elif not ended or result.ok:
        problem = f"no other rank reports an error: {result.why()}"
    note = f"over after {result.seconds:.1f} s; " + ", ".join(f"rank {rank}: {why}" for rank, why in ended)
    return Verdict(problem, note, result.output)


def finalize_without() -> Verdict:
    """Kills a rank while the others only want to leave: MPI_Finalize returns, or fails with a reason."""
    return _survivors("finalize")


def exchange_with_the_dead() -> Verdict:
    """Exchanges long messages with a dead rank under MPI_ERRORS_RETURN: an error class, or an end that names the rank."""
    return _survivors("exchange")


def answer_of_the_dead() -> Verdict:
    """Exchanges a short message with a dead rank. Only the receive can fail, because the send completes at once."""
    return _survivors("wait")


def _survivors(how: str) -> Verdict:
    """Runs fabtests/mpi/survive.py under every installed MPI."""

    def survive(mpi: Mpi) -> Verdict:
        deadlines = {"FI_SQUALL_DEADLINE": f"{DEADLINE}s", "SQUALL_TEST_DEADLINE": str(SURVIVE)}
        env = mpi.env("squall") | WARNINGS | deadlines
        # The launcher sees this shell, which outlives the killed rank by long enough.
        shell = ["sh", "-c", f'"$0" "$1" "$2" || sleep {5 * DEADLINE}; exit 0']
        result = run(mpi.command(RANKS, [*shell, mpi.python, MPI_TESTS / "survive.py", how]), env, PATIENCE)
        return Verdict(*_how_it_ended(result, how), result.output)

    return run_at_once({mpi.name: mpi for mpi in MPIS.values() if mpi.python.exists()}, survive)


def _how_it_ended(result: Result, how: str) -> tuple[str | None, str]:
    """Returns what is wrong with the end of the survivors, and a note on it."""
    output = result.output
    endings = re.findall(r"^survive: (rank \d+: .*? after [\d.]+ s)$", output, re.M)
    aborted = re.search(r"Abort\(\d+\) on node (\d+).*?OFI poll failed \(.*?: ?([^:]*?)\)$", output, re.S | re.M)
    if aborted:
        endings.append(f"rank {aborted.group(1)} aborted: {aborted.group(2)}")
    note = ", ".join(endings) or "nothing"
    named = aborted or re.search(NAMED, output)
    # MPI_Abort, whose line the launcher may lose, ends the job with a status that the dead rank's shell has not.
    ended = aborted or result.code not in (0, None)
    left = [rank for rank in range(RANKS - 1) if f"rank {rank}: MPI_Finalize returned" not in output]
    if "wrong bytes" in output:
        return "wrong bytes", note
    if "Timeout (" in output or (left and not ended):
        return f"a survivor hangs, one of {left}", note
    if left and not named:
        return f"the job was ended without a reason: {result.why()}", note
    if how != "finalize" and not (named and (ended or "rank 0: error class" in output)):
        return "rank 0 does not name the dead rank", note
    return None, note


def one_after_another(jobs: int = 12) -> Verdict:
    """Runs jobs whose first rank takes Ultra Ethernet's port from the job before; every third is killed."""
    mpi = MPIS["mpich"]
    for number in range(jobs):
        if number % 3 == 2:
            command = mpi.command(2, [mpi.python, MPI_TESTS / "leave.py"])
            result = run(command, mpi.env("squall"), PATIENCE)
            if result.ok or result.code is None:
                return Verdict(f"job {number + 1}, whose rank kills itself: {result.why()}", "", result.output)
            continue
        job = run_program("sums", timeout=PATIENCE)
        if job.problem:
            return Verdict(f"job {number + 1}: {job.problem}", "", job.output)
    return Verdict(None, f"{jobs} jobs")


def one_stopped() -> Verdict:
    """Stops one rank of two for longer than a peer may be silent in other transports."""
    return _stopped("1", _pause())


def all_stopped() -> Verdict:
    """Stops every rank at once, as a suspended job, a snapshot of a virtual machine or a closed lid does."""
    return _stopped("all", _pause())


def stopped_beyond_deadline() -> Verdict:
    """Stops one rank of two for longer than FI_SQUALL_DEADLINE, by packets and through shared memory. The kernel knows that
    its process is alive, so the other rank waits for it."""
    ways = {"packets": "no", "shared memory": "yes"}
    return run_at_once(ways, lambda shm: _stopped("1", STOP, {"FI_SQUALL_SHM": shm}))


def stopped_on_other_host() -> Verdict:
    """Stops one of four ranks on two hosts for longer than FI_SQUALL_DEADLINE. The other rank of its host answers at its
    address, so that the host is known to be there, and FI_SQUALL_STOPPED_DEADLINE counts."""
    with cable("eth0") as (_, launch):
        # The launcher goes round the hosts: rank 1, and rank 3 beside it, are on the second.
        return _stopped("1", STOP, {"FI_SQUALL_IFACE": "eth0"}, ranks=4, launch=launch)


def _pause() -> float:
    return float(os.environ.get("SQUALL_TEST_PAUSE", "15"))


def _stopped(
    who: str, pause: float, settings: Mapping[str, str] | None = None, *, ranks: int = 2, launch: Launch = list
) -> Verdict:
    """Runs fabtests/mpi/pause.py, with the short deadline if there are `settings`."""
    env = {"SQUALL_TEST_STOPPED": who, "SQUALL_TEST_PAUSE": str(pause)}
    if settings:
        env |= {"FI_SQUALL_DEADLINE": STOP_DEADLINE, **settings}
    # Statistics have channels where endpoints talk through shared memory.
    shows = ["shm_channels"] if env.get("FI_SQUALL_SHM") == "yes" else []
    timeout = pause + PATIENCE
    job = run_program("pause", ranks=ranks, timeout=timeout, at_least=1 << 20, env=env, launch=launch, shows=shows)
    return Verdict(job.problem, f"{pause:.0f} s; {job.note}", job.output)
