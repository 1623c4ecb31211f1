"""Interfaces and addresses that go away in mid-job, for a while or for good."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from squall_ci.hostile import change_amid, HOSTS, Verdict, WARNINGS
from squall_ci.job import Job, run_program
from squall_ci.namespaces import Namespaces

# Seconds: an outage lasts for OUTAGE, and the job a little longer. If the outage does not end, a peer that is silent
# for DEADLINE becomes an error, and the job must be over soon after.
OUTAGE = 8.0
SECONDS = OUTAGE + 3
DEADLINE = 2
SOON = 5 * DEADLINE
PATIENCE = 60.0
# The network changes when this many bytes have left the first host.
MIDST = 8 << 20
HOST_A, HOST_B = "10.79.0.1", "10.79.0.2"


class Pair(Namespaces):
    """Two hosts with a cable for the job, eth0, and one for its launcher, which is not on trial."""

    def __init__(self) -> None:
        super().__init__(["a", "b"])

    def build(self) -> None:
        """Lays the two cables."""
        self.join("a", "mgmt0", "10.78.0.1/24", "b", "mgmt0", "10.78.0.2/24")
        self.join("a", "eth0", f"{HOST_A}/24", "b", "eth0", f"{HOST_B}/24")

    def interface(self, up: bool) -> None:
        """Takes the second host's interface up or down."""
        self.ip("b", "link", "set", "eth0", "up" if up else "down")

    def has_address(self, there: bool) -> None:
        """Gives the second host its address, or takes it."""
        self.ip("b", "addr", "add" if there else "del", f"{HOST_B}/24", "dev", "eth0")


@dataclass
class _Outage:
    """The times at which something was taken away and came back, or None."""

    gone: float | None = None
    back: float | None = None


def _job(change: Callable[[Pair], Callable[[bool], None]], back: bool) -> tuple[Job, _Outage, float]:
    """Runs a job, from which something is taken away and, with `back`, restored. Returns the job, the outage, and the time
    of the job's end."""
    env = WARNINGS | {"FI_SQUALL_IFACE": "eth0"}
    if not back:
        env["FI_SQUALL_DEADLINE"] = f"{DEADLINE}s"
    outage = _Outage()
    with Pair() as pair, pair.hydra(HOSTS) as launch:

        def interrupt(over: threading.Event) -> None:
            change(pair)(False)
            outage.gone = time.monotonic()
            if back and not over.wait(OUTAGE):
                change(pair)(True)
                outage.back = time.monotonic()

        with change_amid(lambda: pair.sent("a", "eth0") >= MIDST, interrupt):
            job = run_program("steady", SECONDS if back else PATIENCE, timeout=PATIENCE, env=env, launch=launch)
            ended = time.monotonic()
    return job, outage, ended


def _comes_back(change: Callable[[Pair], Callable[[bool], None]]) -> Verdict:
    job, outage, _ = _job(change, back=True)
    if not job.problem and not outage.back:
        return Verdict.of(job, "the job was over before the outage was")
    waited = job.figures.get("longest_s", 0) >= OUTAGE - 1
    return Verdict.of(job, None if waited else "nothing was interrupted")


def _stays_away(change: Callable[[Pair], Callable[[bool], None]]) -> Verdict:
    job, outage, ended = _job(change, back=False)
    result = job.result
    if outage.gone is None:
        return Verdict("nothing went away", "", result.output)
    took = ended - outage.gone
    # Each host names the other, or reports why it cannot reach it.
    named = re.findall(rf"squall.*\[peer ({HOST_A}|{HOST_B}):\d+, local", result.output)
    problem = None
    if result.code is None or took > SOON:
        problem = f"the job went on for {took:.0f} s"
    elif result.ok:
        problem = "the job ended without an error"
    elif not named:
        problem = "no line names the peer that cannot be reached"
    return Verdict(problem, f"over after {took:.1f} s; named: {', '.join(sorted(set(named)))}", result.output)


def interface_down() -> Verdict:
    """Takes the second host's interface down, and up again."""
    return _comes_back(lambda pair: pair.interface)


def interface_stays_down() -> Verdict:
    """Takes the second host's interface down for good."""
    return _stays_away(lambda pair: pair.interface)


def address_gone() -> Verdict:
    """Removes the second host's address, and restores it."""
    return _comes_back(lambda pair: pair.has_address)


def address_stays_gone() -> Verdict:
    """Removes the second host's address for good."""
    return _stays_away(lambda pair: pair.has_address)
