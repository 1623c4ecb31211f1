"""Check what `squall top` shows of running jobs, and what is left when they have ended.

A job of two ranks over a lossy network is shown as text, as JSON and to a collector: both ranks, their job, retransmissions
and their reasons. Then one of its processes is killed: its last counters stay visible until they are forgotten. A job that
ends well leaves nothing, and a job with FI_SQUALL_MONITOR=0ns is not shown. Statistics on an interval are lines of JSON.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS
from squall_ci.process import Result, run
from squall_ci.programs import metrics_server, squall
from squall_ci.tally import Tally

RANKS = 2
# Seconds that a job may take to open its endpoints.
PATIENCE = 20.0
BOARDS = pathlib.Path(f"/dev/shm/squall-{os.geteuid()}")


class Top:
    """The program, and what it says."""

    def __init__(self) -> None:
        self.program = squall()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, "top", *words], capture_output=True, text=True, timeout=30)

    def document(self) -> dict[str, Any]:
        """Returns everything that top shows to scripts."""
        found: dict[str, Any] = json.loads(self.run("--dump").stdout)
        return found

    def endpoints(self, of: set[int]) -> list[dict[str, Any]]:
        """Returns the endpoints of some processes. Other jobs may run here, too."""
        return [endpoint for endpoint in self.document()["endpoints"] if endpoint["pid"] in of]


class Job:
    """A job that runs in the background for some time, and the processes of its ranks."""

    def __init__(self, mpi: Mpi, seconds: float, extra: Mapping[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        env = mpi.env("squall") | {"FI_SQUALL_SHM": "no", "SQUALL_TOP_JOB": self._mark, **extra}
        command = mpi.command(RANKS, [mpi.python, MPI_TESTS / "steady.py", seconds])
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._end = self._pool.submit(run, command, env, PATIENCE + seconds)
        self.pids = self._ranks()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self._pool.shutdown()

    def wait(self) -> Result:
        return self._end.result()

    def _ranks(self) -> set[int]:
        """Waits for the processes of the ranks, and returns their ids."""
        needle = f"SQUALL_TOP_JOB={self._mark}".encode()
        until = time.monotonic() + PATIENCE
        found: set[int] = set()
        while len(found) < RANKS and time.monotonic() < until and not self._end.done():
            time.sleep(0.1)
            found = set()
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    program = (process / "cmdline").read_bytes().split(b"\0")[0]
                    if b"python" in program and needle in (process / "environ").read_bytes().split(b"\0"):
                        found.add(int(process.name))
        return found


def until_shown(top: Top, of: set[int]) -> list[dict[str, Any]]:
    """Waits until each of some processes shows received packets, and returns their endpoints."""
    until = time.monotonic() + PATIENCE
    shown: list[dict[str, Any]] = []
    while time.monotonic() < until:
        shown = top.endpoints(of)
        if len({e["pid"] for e in shown if e["counters"]["rx_data_packets"] > 1000}) == RANKS:
            break
        time.sleep(0.2)
    return shown


def scrape(top: Top) -> str:
    """Returns the page that a collector of metrics gets."""
    with metrics_server(top.program) as address:
        for _ in range(100):
            with contextlib.suppress(OSError):
                return str(urllib.request.urlopen(address, timeout=5).read().decode())
            time.sleep(0.05)
    return ""


def look_at_a_running_job(mpi: Mpi, top: Top, tally: Tally) -> None:
    with Job(mpi, 60, {"FI_SQUALL_FAULT": "loss=1%"}) as job:
        pids = job.pids
        shown = until_shown(top, pids)
        seen = f"{len(shown)} endpoints of {len(pids)} processes"
        tally.add("live", None if {e["rank"] for e in shown} == set(range(RANKS)) else f"ranks are missing: {seen}")
        jobs = {endpoint["job"] for endpoint in shown}
        tally.add("one job", None if len(jobs) == 1 and all(jobs) else f"jobs are {jobs}")
        resent = [endpoint["counters"]["retransmissions"] for endpoint in shown]
        flows = [flow for endpoint in shown for flow in endpoint["flows"] if flow["cwnd_min"] > 0]
        tally.add("paths", problem_of_paths(flows))
        tally.add("counters", None if any(resent) and flows else f"sent again: {resent}, flows with a window: {len(flows)}")
        whys = " ".join(endpoint["why"] for endpoint in shown)
        tally.add("why", None if "sent again" in whys else f"it says: {whys}")
        page = top.run("--once", *jobs).stdout
        lines = [line for line in page.splitlines() if re.search(rf"\b({'|'.join(map(str, pids))})\b.*\bpython", line)]
        tally.add("text", None if len(lines) >= RANKS else page)
        metrics = scrape(top)
        samples = re.findall(r'^squall_tx_packets_total\{job_name="[^"]+",rank="\d+",pid="(\d+)".*\} [1-9]', metrics, re.M)
        tally.add("collector", None if pids <= set(map(int, samples)) else f"samples of {samples}, not of {pids}")
        paths = re.findall(
            r'^squall_path_lost_total\{.*,pid="(\d+)".*,peer="[^"]+",initiator="1",path="(\d)"\}', metrics, re.M
        )
        lossy = {(int(pid), path) for pid, path in paths}
        tally.add("collected paths", None if len(lossy) > RANKS and {pid for pid, _ in lossy} >= pids else f"{paths}")
        victim = min(pids)
        os.kill(victim, signal.SIGKILL)
        time.sleep(1)
        dead = [endpoint for endpoint in top.endpoints({victim}) if not endpoint["alive"]]
        good = dead and dead[0]["counters"]["rx_data_packets"] > 1000 and "gone" in dead[0]["why"]
        tally.add("killed", None if good else f"of the process that was killed it shows {dead}")
    top.run("--forget", str(victim))
    tally.add("forgotten", None if not top.endpoints({victim}) else "it is still shown")
    for pid in pids:
        top.run("--forget", str(pid))


def problem_of_paths(flows: list[dict[str, Any]]) -> str | None:
    """Returns how the paths' packets differ from those of the flows, or that too few paths were used, or None."""
    for flow in flows:
        for path_name, flow_name in (("packets", "packets"), ("lost", "retransmissions")):
            by_path = sum(path[path_name] for path in flow["by_path"])
            if by_path != flow[flow_name]:
                return f"{by_path} {path_name} by path, {flow[flow_name]} {flow_name} of the flow"
    most = max((len(flow["by_path"]) for flow in flows), default=0)
    lost = sum(path["lost"] for flow in flows for path in flow["by_path"])
    return None if most > 1 and lost else f"{most} paths, {lost} packets lost on them"


def look_at_those_that_end(mpi: Mpi, top: Top, tally: Tally) -> None:
    with tempfile.TemporaryDirectory() as folder:
        every = {"FI_SQUALL_STATS": f"json:{folder}/%p", "FI_SQUALL_STATS_INTERVAL": "100ms"}
        with Job(mpi, 3, every) as job:
            pids = job.pids
            shown = until_shown(top, pids)
            ended = job.wait()
        left = [path.name for path in BOARDS.iterdir() if int(path.name.split("-")[0]) in pids]
        tally.add("closed", None if shown and ended.ok and not left else f"{ended.why()}, left behind: {left}")
        problems = []
        for path in pathlib.Path(folder).iterdir():
            open_ms = [json.loads(line)["open_ms"] for line in path.read_text().splitlines()]
            if len(open_ms) < 10 or open_ms != sorted(open_ms):
                problems.append(f"{path.name} has lines of {open_ms} ms")
            last = json.loads(path.read_text().splitlines()[-1])
            if any(sum(by["packets"] for by in flow["by_path"]) != flow["packets"] for flow in last["flows"]):
                problems.append(f"{path.name}: what went by paths is not what flows sent")
        tally.add("interval", "; ".join(problems) or None)


def look_at_one_that_is_not_shown(mpi: Mpi, top: Top, tally: Tally) -> None:
    with Job(mpi, 3, {"FI_SQUALL_MONITOR": "0ns"}) as job:
        time.sleep(1.5)
        shown = top.endpoints(job.pids)
        problem = f"{len(job.pids)} processes, {len(shown)} endpoints shown"
        tally.add("not shown", None if len(job.pids) == RANKS and not shown else problem)


def main(_args: argparse.Namespace) -> int:
    mpi = MPIS["mpich"]
    top, tally = Top(), Tally()
    look_at_a_running_job(mpi, top, tally)
    look_at_those_that_end(mpi, top, tally)
    look_at_one_that_is_not_shown(mpi, top, tally)
    none = top.run("no-such-job")
    tally.add("nobody", None if none.returncode == 1 and "no endpoint of no-such-job" in none.stderr else none.stderr)
    return tally.finish()
