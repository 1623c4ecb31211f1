"""Forged packets, sent while a job runs."""

import re
import subprocess

from squall_ci.hostile import Verdict
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.namespaces import Namespaces
from squall_ci.paths import MPI_TESTS
from squall_ci.programs import example

# Seconds: how long strangers send, and what a job under attack may take.
ATTACK = 25
PATIENCE = 120.0
PROGRAMS = ("sums.py", "pt2pt.py", "rma.py")
REPORT = re.compile(r"sent (\d+) packets, (\d+) bytes; got (\d+) packets, (\d+) bytes")


def strangers() -> Verdict:
    """Processes without privileges forge packets to both ranks, from both hosts, while a job runs."""
    mpi = MPIS["mpich"]
    stranger = example("squall-net", "stranger")
    addresses = {"10.78.0.1": "a", "10.78.0.2": "b"}
    targets = [f"{address}:4793" for address in addresses]
    with Namespaces(["a", "b"]) as net:
        net.join("a", "veth0", "10.78.0.1/24", "b", "veth0", "10.78.0.2/24")
        attackers = [
            subprocess.Popen(
                [str(word) for word in net.command(node, "nice", "-n", "10", stranger, ATTACK, *targets)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for node in addresses.values()
        ]
        try:
            with net.hydra(addresses) as launch:
                for name in PROGRAMS:
                    program = [mpi.python, MPI_TESTS / name]
                    result, problem, _ = run_job(
                        mpi, "squall", 2, program, PATIENCE, 1 << 20, {"FI_SQUALL_IFACE": ""}, launch
                    )
                    if problem:
                        return Verdict(f"{name}: {problem}", "", result.output)
            reports = [REPORT.search(attacker.communicate(timeout=ATTACK + 30)[0]) for attacker in attackers]
        finally:
            for attacker in attackers:
                attacker.kill()
    return _answers([[int(number) for number in report.groups()] for report in reports if report])


def _answers(reports: list[list[int]]) -> Verdict:
    """Strangers get no more than they send, and they sent a good deal."""
    if len(reports) < 2:
        return Verdict("an attacker did not say what it sent")
    packets, out, _, back = (sum(report[field] for report in reports) for field in range(4))
    note = f"{packets} forged packets, {out} bytes; {back} bytes came back"
    if packets < 100_000:
        return Verdict("too few packets to mean anything", note)
    return Verdict("strangers get more than they send" if back > out else None, note)
