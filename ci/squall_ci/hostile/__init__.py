"""Cases of `ci/run suite hostile`, a module for each kind of trouble; `squall_ci/suites/hostile.py` lists them."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from squall_ci.hosts import Launch
from squall_ci.job import Job
from squall_ci.namespaces import Namespaces

T = TypeVar("T")

# The two hosts of most cases, by their addresses for the launcher.
HOSTS = {"10.78.0.1": "a", "10.78.0.2": "b"}
# Variables with which squall's warnings are in the output of a job.
WARNINGS = {"FI_LOG_LEVEL": "warn", "FI_LOG_PROV": "squall"}


@dataclass(frozen=True)
class Verdict:
    """The result of a case: `problem` is None if squall did what it must."""

    problem: str | None
    note: str = ""
    # Shown when there is a problem.
    output: str = ""

    @classmethod
    def of(cls, job: Job, problem: str | None = None) -> "Verdict":
        """Returns the verdict on a job, or else on what a case found."""
        return cls(job.problem or problem, "; ".join(filter(None, [str(job.figures or ""), job.note])), job.output)


def run_at_once(parts: Mapping[str, T], case: Callable[[T], Verdict]) -> Verdict:
    """Runs a case for each part at the same time, because the jobs mostly wait. The verdict names the part that fails."""
    with ThreadPoolExecutor(len(parts)) as pool:
        verdicts = dict(zip(parts, pool.map(case, parts.values())))
    for part, verdict in verdicts.items():
        if verdict.problem:
            return Verdict(f"{part}: {verdict.problem}", verdict.note, verdict.output)
    return Verdict(None, "; ".join(f"{part}: {verdict.note}" for part, verdict in verdicts.items()))


@contextlib.contextmanager
def change_amid(under_way: Callable[[], bool], change: Callable[[threading.Event], None]) -> Iterator[None]:
    """Calls `change` in a thread of its own once the job inside of the context is under way.

    The event that `change` gets is set when the job is over.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            if under_way():
                change(over)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def cable(device: str) -> Iterator[tuple[Namespaces, Launch]]:
    """Lays a cable between the interfaces of two hosts, a and b, and yields them with the launcher of their jobs."""
    with Namespaces(list(HOSTS.values())) as net:
        net.join("a", device, "10.78.0.1/24", "b", device, "10.78.0.2/24")
        with net.hydra(HOSTS) as launch:
            yield net, launch
