"""Cases of `ci/run suite machines`, a module for each kind; `squall_ci/suites/machines.py` runs them."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from squall_ci.hostile import Verdict
from squall_ci.job import Job
from squall_ci.machines.room import Room, Topology, TWO_HOSTS

# The form in which squall's messages name a peer, with the reason behind it.
NAMED = r"\[peer (?:{addresses}):\d+, local"


@dataclass(frozen=True)
class Case:
    """What happens to guests and a job on them, and what must come of it. The documentation of `run` says the former."""

    name: str
    # The right answer, written down before the case is run.
    right: str
    run: Callable[[Room, str], Verdict]
    topology: Topology = TWO_HOSTS
    # Providers to run on; the outcome of others than squall is shown and does not count.
    providers: tuple[str, ...] = ("squall",)
    quick: bool = False
    # True if guests are not as they were afterwards, so that no other case can use them.
    spoils: bool = False

    @property
    def kind(self) -> str:
        """Returns the name of the module that has the case."""
        return self.run.__module__

    def what(self) -> str:
        """Returns the description: the first sentence of the function's documentation."""
        return " ".join((self.run.__doc__ or "").split()).partition(". ")[0].rstrip(".")


CASES: dict[str, Case] = {}


def case(
    right: str, topology: Topology = TWO_HOSTS, *, tcp: bool = False, quick: bool = False, spoils: bool = False
) -> Callable[[Callable[[Room, str], Verdict]], Callable[[Room, str], Verdict]]:
    """Adds a function to the cases, under its name. With `tcp` it runs on that provider, too. Cases of one topology share the
    guests, unless one fails or `spoils` them."""

    def add(function: Callable[[Room, str], Verdict]) -> Callable[[Room, str], Verdict]:
        name = function.__name__.replace("_", "-")
        CASES[name] = Case(name, right, function, topology, ("squall", "tcp") if tcp else ("squall",), quick, spoils)
        return function

    return add


def failed_soon(job: Job, addresses: Sequence[str], began: float | None, limit: float) -> str | None:
    """Returns what is wrong with the end of a job whose peers at these addresses lost each other at `began`, or None.

    The job has to fail within `limit` seconds, and squall to name a peer.
    """
    took = time.monotonic() - began if began else 0.0
    if began is None:
        return "nothing happened to the job"
    if "FAILED:" in job.output:
        return "wrong bytes"
    if job.result.ok:
        return "the job ended without an error"
    if job.result.code is None or job.result.code == 124 or took > limit:
        return f"the job went on for {took:.0f} s, and {limit:.0f} s is the limit"
    if not re.search(NAMED.format(addresses="|".join(map(re.escape, addresses))), job.output):
        return f"no line names the peer {' or '.join(addresses)}"
    return None
