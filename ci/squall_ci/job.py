"""Runs jobs on a provider. The endpoints' statistics prove that `squall` carried the bytes."""

import dataclasses
import json
import pathlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS, TARGET
from squall_ci.process import Result, run, Word
from squall_ci.tally import Tally

# Counters of one-sided operations that an endpoint started for its user.
ONE_SIDED = ("tx_writes", "tx_reads", "tx_atomics")


class Statistics:
    """Collects what squall's endpoints report at close: one JSON object each, in files of a private directory."""

    def __init__(self, directory: pathlib.Path | None = None) -> None:
        if directory is None:
            (TARGET / "stats").mkdir(parents=True, exist_ok=True)
            self._own = tempfile.TemporaryDirectory(dir=TARGET / "stats")
            directory = pathlib.Path(self._own.name)
        self._dir = directory

    def env(self) -> dict[str, str]:
        """Returns the variables that make the endpoints of a job report."""
        return {"FI_SQUALL_STATS": f"json:{self._dir}/%h-%p-%e.json"}

    def endpoints(self) -> list[dict[str, Any]]:
        """Returns the reports of the endpoints."""
        found: list[dict[str, Any]] = []
        for path in sorted(self._dir.iterdir()):
            lines = path.read_text(errors="replace").splitlines()
            found.extend(json.loads(line) for line in lines if line.strip())
        return found

    def total(self) -> dict[str, float]:
        """Returns the sum of each numeric field over all endpoints."""
        sums: dict[str, float] = {}
        for endpoint in self.endpoints():
            for field, value in endpoint.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    sums[field] = sums.get(field, 0) + value
        return sums

    def verdict(self, ranks: int, at_least: int, faulty: bool = False, shows: Sequence[str] = ()) -> str | None:
        """Returns None if `ranks` processes sent and received `at_least` bytes together, otherwise what is missing.

        With `faulty`, packets must have been damaged on purpose, too; and each counter of `shows` must have moved.
        """
        try:
            endpoints = self.endpoints()
        except ValueError as error:
            return f"statistics are not JSON: {error}"
        if len(endpoints) < ranks:
            return f"{len(endpoints)} endpoints left statistics, expected {ranks} or more"
        total = self.total()
        for field in ("tx_packets", "rx_packets"):  # those of the handshake at least
            if not total.get(field):
                return f"{field} is {total.get(field)} over {len(endpoints)} endpoints"
        for field in shows:
            if not total.get(field):
                return f"{field} is {total.get(field)} over {len(endpoints)} endpoints: that went another way"
        # Bytes travel in packets, or through shared memory.
        field = "rx_bytes" if not total.get("shm_channels") else "rx_payload_bytes"
        if total.get(field, 0) < at_least:
            return f"{field} is {total.get(field)} over {len(endpoints)} endpoints, expected {at_least} or more"
        # A few packets may all have escaped damage.
        if faulty and total["tx_packets"] > 2000:
            if not any(value for field, value in total.items() if field.startswith("fault_")):
                return "FI_SQUALL_FAULT was set, but no packet was damaged"
        return None

    def summary(self) -> str:
        """Returns the interesting counters in one line."""
        total = self.total()
        words = [f"{len(self.endpoints())} endpoints"]
        for field in sorted(total):
            interesting = field.startswith(
                ("tx_packets", "shm_tx_records", "tx_xdp_packets", "tx_bytes", "retrans", "fault_", "timeout", *ONE_SIDED)
            )
            if interesting and total[field]:
                words.append(f"{field} {total[field]:.0f}")
        return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class Job:
    """The end of a job."""

    result: Result
    # None if the job ended well, a program of ours reported success and, on squall, statistics prove the bytes.
    problem: str | None
    # The counters of squall's endpoints in one line.
    note: str = ""
    # The figures that a program of fabtests/mpi printed as JSON.
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def output(self) -> str:
        return self.result.output

    def add_to(self, tally: Tally, name: str, problem: str | None = None, note: str = "") -> None:
        """Counts the job as a check, with a problem or a note that a suite found beside the job's own."""
        notes = "; ".join(filter(None, (note, self.note)))
        tally.add(name, self.problem or problem, self.result.seconds, notes, self.output)


def run_ranks(
    provider: str,
    ranks: int,
    command: Sequence[Word],
    env: Mapping[str, str],
    timeout: float,
    at_least: int | None = 0,
    shows: Sequence[str] = (),
) -> Job:
    """Runs a command that starts the ranks of a job on `provider` in this environment.

    On squall the statistics have to prove `at_least` bytes in each direction, and the counters of `shows` must have moved.
    `at_least` is None for a program whose ranks may have nothing to exchange.
    """
    if provider != "squall":
        result = run(command, env, timeout)
        return Job(result, None if result.ok else result.why())
    statistics = Statistics()
    result = run(command, {**env, **statistics.env()}, timeout)
    if not result.ok:
        return Job(result, result.why())
    faulty = bool(env.get("FI_SQUALL_FAULT"))
    problem = None if at_least is None else statistics.verdict(ranks, at_least, faulty, shows)
    return Job(result, problem, statistics.summary())


def run_job(
    mpi: Mpi,
    provider: str,
    ranks: int,
    program: Sequence[Word],
    timeout: float,
    at_least: int | None = 0,
    extra_env: Mapping[str, str] | None = None,
    launch: Callable[[list[str]], list[str]] = list,
    shows: Sequence[str] = (),
) -> Job:
    """Runs the ranks of an MPI's job as `run_ranks` does; `launch` may change the command that launches them."""
    deadline = {"SQUALL_TEST_DEADLINE": str(max(5, int(timeout) - 5))}
    env = {**mpi.env(provider), **(extra_env or {}), **deadline}
    return run_ranks(provider, ranks, launch(mpi.command(ranks, program)), env, timeout, at_least, shows)


def run_program(
    program: str,
    *words: Word,
    mpi: Mpi = MPIS["mpich"],
    provider: str = "squall",
    ranks: int = 2,
    timeout: float = 60.0,
    at_least: int = 16 << 20,
    env: Mapping[str, str] | None = None,
    launch: Callable[[list[str]], list[str]] = list,
    shows: Sequence[str] = (),
    under: Sequence[Word] = (),
) -> Job:
    """Runs fabtests/mpi/`program`.py with these words, `under` being the command before it."""
    command = [*under, mpi.python, MPI_TESTS / f"{program}.py", *words]
    job = run_job(mpi, provider, ranks, command, timeout, at_least, env, launch, shows)
    printed = re.search(rf"^{program}: (\{{.*\}})$", job.output, re.M)
    succeeded = re.search(rf"^{program}: \d+ passed, 0 failed$", job.output, re.M)
    problem = job.problem
    # Two programs print figures alone, and end with an error unless all is right.
    if not problem and not (printed if program in ("stream", "perf") else succeeded):
        problem = "the ranks did not report success"
    return Job(job.result, problem, job.note, json.loads(printed[1]) if printed else {})
