"""Forged packets, sent while a job runs."""

import re
import subprocess

from squall_ci.hostile import cable, HOSTS, Verdict
from squall_ci.job import run_program
from squall_ci.process import Word
from squall_ci.programs import example

# Seconds of the attack, and seconds that a job under attack may take.
ATTACK = 25
PATIENCE = 120.0
PROGRAMS = ("sums", "pt2pt", "rma")
REPORT = re.compile(r"sent (\d+) packets, (\d+) bytes; got (\d+) packets, (\d+) bytes")


def forged_packets() -> Verdict:
    """Forges packets from processes without privileges to both ranks, from both hosts, while a job runs."""
    forger = example("squall-net", "forged_packets")
    attack: list[Word] = ["nice", "-n", "10", forger, ATTACK, *(f"{address}:4793" for address in HOSTS)]
    with cable("veth0") as (net, launch):
        attackers = [
            subprocess.Popen(net.command(node, *attack), stdout=subprocess.PIPE, text=True) for node in HOSTS.values()
        ]
        try:
            for name in PROGRAMS:
                env = {"FI_SQUALL_IFACE": ""}
                job = run_program(name, timeout=PATIENCE, at_least=1 << 20, env=env, launch=launch)
                if job.problem:
                    return Verdict(f"{name}: {job.problem}", "", job.output)
            reports = [REPORT.search(attacker.communicate(timeout=ATTACK + 30)[0]) for attacker in attackers]
        finally:
            for attacker in attackers:
                attacker.kill()
    return _answers([[int(number) for number in report.groups()] for report in reports if report])


def _answers(reports: list[list[int]]) -> Verdict:
    """Checks that the attackers got no more bytes than they sent, and that they sent many packets."""
    if len(reports) < 2:
        return Verdict("an attacker printed no report")
    packets, out, _, back = (sum(report[field] for report in reports) for field in range(4))
    note = f"{packets} forged packets, {out} bytes; {back} bytes came back"
    if packets < 100_000:
        return Verdict("too few packets to mean anything", note)
    return Verdict("the attackers got more bytes than they sent" if back > out else None, note)
