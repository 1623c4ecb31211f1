"""Interfaces and addresses that go away in mid-job, for a while or for good."""

import json
import re
import threading
import time
from collections.abc import Callable

from squall_ci.hostile import HOSTS, Verdict, WARNINGS
from squall_ci.job import Job, run_program
from squall_ci.namespaces import Namespaces

# Seconds: what is gone comes back after OUTAGE, the job takes some more; when nothing comes back, a peer that is silent
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

    def sent(self) -> int:
        """Returns the bytes that left the first host."""
        shown = self.inside("a", "ip", "-j", "-s", "link", "show", "dev", "eth0").stdout
        return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])

    def interface(self, up: bool) -> None:
        """Takes the second host's interface up or down."""
        self.ip("b", "link", "set", "eth0", "up" if up else "down")

    def has_address(self, there: bool) -> None:
        """Gives the second host its address, or takes it."""
        self.ip("b", "addr", "add" if there else "del", f"{HOST_B}/24", "dev", "eth0")


class _Outage(threading.Thread):
    """A thread that takes something away once the job is under way, and restores it if it is meant to."""

    def __init__(self, pair: Pair, change: Callable[[bool], None], back: bool) -> None:
        super().__init__()
        self.pair = pair
        self.change = change
        self.back = back
        self.over = threading.Event()
        # When it went, and came back.
        self.gone: float | None = None
        self.here: float | None = None

    def run(self) -> None:
        while self.pair.sent() < MIDST:
            if self.over.wait(0.05):
                return
        self.change(False)
        self.gone = time.monotonic()
        if self.back and not self.over.wait(OUTAGE):
            self.change(True)
            self.here = time.monotonic()

    def stop(self) -> None:
        """Ends the outage when the job is over."""
        self.over.set()
        self.join()


def _job(change: Callable[[Pair], Callable[[bool], None]], back: bool) -> tuple[Job, _Outage, float]:
    """Runs a job with an outage; returns the job, the outage, and the time of the job's end."""
    env = WARNINGS | {"FI_SQUALL_IFACE": "eth0"}
    if not back:
        env["FI_SQUALL_DEADLINE"] = f"{DEADLINE}s"
    with Pair() as pair, pair.hydra(HOSTS) as launch:
        outage = _Outage(pair, change(pair), back)
        outage.start()
        try:
            job = run_program("steady", SECONDS if back else PATIENCE, timeout=PATIENCE, env=env, launch=launch)
        finally:
            ended = time.monotonic()
            outage.stop()
    return job, outage, ended


def _comes_back(change: Callable[[Pair], Callable[[bool], None]]) -> Verdict:
    job, outage, _ = _job(change, back=True)
    if not job.problem and not outage.here:
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
