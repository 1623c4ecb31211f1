"""Cables that are pulled, and guests that stop, die, reboot, run out of memory or have the wrong time."""

import re
import threading
import time
from collections.abc import Callable, Mapping

from squall_ci.hostile import change_amid, Verdict, WARNINGS
from squall_ci.job import Job
from squall_ci.machines import case, failed_soon
from squall_ci.machines.room import DATA, Guest, Room, Topology

# What happens to a job happens when this many bytes have left the first guest: a part of the first turn, which may take longer
# than ten seconds where a guest has a part of a core.
MIDST = 1 << 19
# Seconds: a job that is to survive something lasts for SECONDS, one that is not would last for FOREVER.
SECONDS, FOREVER = 20.0, 300.0
# Seconds: the deadline that a job has for silent peers, and how much later the job must be over. The launcher and the other
# ranks end in that time, on processors that are emulated.
DEADLINE, SOON = 8.0, 25.0
# The deadline for a peer that has answered before, as documented, in seconds.
DOCUMENTED = 120.0


def disturbed(
    room: Room,
    change: Callable[[threading.Event], None],
    provider: str,
    seconds: float = SECONDS,
    patience: float = 300.0,
    env: Mapping[str, str] | None = None,
) -> tuple[Job, float | None]:
    """Runs a job of two guests to which something happens. Returns it, and the time of the change. A change that fails is raised
    once the job has ended."""
    began: list[float] = []
    failed: list[Exception] = []

    def note(over: threading.Event) -> None:
        began.append(time.monotonic())
        try:
            change(over)
        except (RuntimeError, OSError) as error:
            failed.append(error)

    before = room.guests[0].sent(DATA.name)

    def is_amid() -> bool:
        # Each look costs the guest as much as some messages.
        time.sleep(0.5)
        return room.guests[0].sent(DATA.name) >= before + MIDST

    with change_amid(is_amid, note):
        job = room.job("steady", seconds, provider=provider, timeout=seconds + patience, env={**WARNINGS, **(env or {})})
    if failed:
        raise failed[0]
    return job, began[0] if began else None


def survived(job: Job, began: float | None, least: float = 0.0) -> Verdict:
    """Judges a job that had to survive what happened to it; a turn must have taken `least` seconds."""
    if job.problem or began is None:
        return Verdict.of(job, "nothing happened to the job")
    longest = job.figures.get("longest_s", 0.0)
    return Verdict.of(job, None if longest >= least else f"nothing was interrupted: the longest turn took {longest} s")


def and_next(room: Room, problem: str | None, job: Job, began: float | None, provider: str) -> Verdict:
    """Judges a job that had to fail, and runs the next one between the same guests."""
    note = f"over {time.monotonic() - began:.0f} s after the change" if began else ""
    if problem:
        return Verdict(problem, note, job.output)
    after = room.job("sums", provider=provider)
    return Verdict(after.problem and f"the next job: {after.problem}", note, after.output)


def step_clock(guest: Guest, seconds: int) -> None:
    """Sets the wall clock of a guest this far ahead, or back."""
    guest.must(f"date -s @$(($(date +%s) + {seconds}))")


@case("data right; the outage of 3 s shows as one long turn", tcp=True, quick=True)
def cable_pulled(room: Room, provider: str) -> Verdict:
    """The cable of a host is pulled for 3 s."""

    def pull(over: threading.Event) -> None:
        room.guests[1].set_link(DATA.name, False)
        over.wait(3)
        room.guests[1].set_link(DATA.name, True)

    return survived(*disturbed(room, pull, provider), least=2)


@case(f"an error that names the peer within the deadline ({DEADLINE:.0f} s here); the next job runs", quick=True)
def cable_stays_pulled(room: Room, provider: str) -> Verdict:
    """The cable of a host is pulled for ever."""
    env = {"FI_SQUALL_DEADLINE": f"{DEADLINE:.0f}s"}
    job, began = disturbed(room, lambda _: room.guests[1].set_link(DATA.name, False), provider, FOREVER, env=env)
    both = [room.topology.address(number, DATA.name) for number in range(2)]
    problem = failed_soon(job, both, began, DEADLINE + SOON)
    room.guests[1].set_link(DATA.name, True)
    return and_next(room, problem, job, began, provider)


@case("data right", tcp=True)
def stopped_20_s(room: Room, provider: str) -> Verdict:
    """A host stands still for 20 s, as a virtual machine that moves or is saved."""

    def stop(over: threading.Event) -> None:
        room.guests[1].stop()
        over.wait(20)
        room.guests[1].stop(False)

    return survived(*disturbed(room, stop, provider, SECONDS + 20), least=15)


@case("an error that names the peer after 120 s, the default; once the host goes on, the next job runs")
def stopped_200_s(room: Room, provider: str) -> Verdict:
    """A host stands still for 200 s, longer than the default deadline."""
    stopped: list[float] = []

    def stop(_: threading.Event) -> None:
        stopped.append(time.monotonic())
        room.guests[1].stop()

    job, began = disturbed(room, stop, provider, FOREVER)
    problem = failed_soon(job, [room.topology.address(1, DATA.name)], began, DOCUMENTED + SOON)
    if stopped:
        time.sleep(max(0.0, stopped[0] + 200 - time.monotonic()))
        room.guests[1].stop(False)
    return and_next(room, problem, job, began, provider)


@case(f"an error that names the peer within the deadline ({DEADLINE:.0f} s here); the next job runs")
def killed(room: Room, provider: str) -> Verdict:
    """A host loses its power, and boots again after the job."""
    env = {"FI_SQUALL_DEADLINE": f"{DEADLINE:.0f}s"}
    job, began = disturbed(room, lambda _: room.guests[1].kill(), provider, FOREVER, env=env)
    problem = failed_soon(job, [room.topology.address(1, DATA.name)], began, DEADLINE + SOON)
    room.guests[1].start()
    room.guests[1].ready()
    return and_next(room, problem, job, began, provider)


@case(
    "the job of the others goes on, data right; the next job uses the address of the host that rebooted",
    Topology(("6.1",) * 3),
)
def rebooted(room: Room, provider: str) -> Verdict:
    """A third host, which was in the job before, reboots while two others run a job."""
    before = room.job("sums", provider=provider, ranks=3, on=(0, 1, 2))
    if before.problem:
        return Verdict(f"the first job: {before.problem}", "", before.output)
    job, began = disturbed(room, lambda _: room.guests[2].reset(), provider)
    verdict = survived(job, began)
    if verdict.problem:
        return verdict
    room.guests[2].ready()
    after = room.job("sums", provider=provider, on=(0, 2))
    return Verdict(after.problem and f"the next job: {after.problem}", verdict.note, after.output)


@case("data right", tcp=True)
def clocks_apart(room: Room, provider: str) -> Verdict:
    """The clock of a host is an hour ahead."""
    step_clock(room.guests[1], 3600)
    try:
        return Verdict.of(room.job("sums", provider=provider))
    finally:
        step_clock(room.guests[1], -3600)


@case("data right; no rank waits for the clock")
def clock_jumps(room: Room, provider: str) -> Verdict:
    """The clock of a host jumps an hour ahead in mid-job, and back."""

    def jump(over: threading.Event) -> None:
        step_clock(room.guests[0], 3600)
        # Longer than most turns, after each of which the job looks at the clock.
        over.wait(SECONDS / 2)
        step_clock(room.guests[0], -3600)

    job, began = disturbed(room, jump, provider)
    seen = job.figures.get("clock_steps", 0)
    verdict = survived(job, began)
    return verdict if verdict.problem or seen else Verdict("the job saw no jump", verdict.note, job.output)


@case("the launcher reports the rank's end and the job is over within 25 s; the next job runs")
def memory_limit(room: Room, provider: str) -> Verdict:
    """The kernel kills a rank whose control group has reached its limit of memory."""
    group = "/sys/fs/cgroup/job"
    # The brackets keep the shell that has this text on its command line out of the group.
    enter = f"mkdir -p {group}; for rank in $(pgrep -f '[s]teady.py'); do echo $rank > {group}/cgroup.procs; done"

    def fill(_: threading.Event) -> None:
        # What is charged to another group stays there: the limit counts the pages that the rank gets from now on, and none are
        # allowed once it has had time for some.
        script = f"echo +memory > /sys/fs/cgroup/cgroup.subtree_control; {enter}; sleep 2; echo 0 > {group}/memory.max"
        room.guests[1].must(script)

    job, began = disturbed(room, fill, provider, FOREVER)
    if began is None:
        return Verdict("nothing happened to the job", "", job.output)
    took = time.monotonic() - began
    killed = re.search(r"^oom_kill [1-9]", room.guests[1].run(f"cat {group}/memory.events").output, re.M)
    if job.result.ok or not killed:
        return Verdict("no rank was killed", "", job.output)
    return and_next(room, None if took < SOON else f"the job went on for {took:.0f} s", job, began, provider)
