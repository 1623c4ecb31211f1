"""Have an independent dissector judge captures of real jobs, which must hold no malformed packet.

Our own dissector, wire/wireshark/squall.lua, must see the same packets in them. DISSECTOR is a directory with check_pcap.sh
(default: $SQUALL_ORACLE, then ../shared/oracle beside the checkout). Each scenario runs a job with FI_SQUALL_PCAP, and its
captures must hold certain packet types. The samples of wire/ come first: one packet of every kind, including those that
squall never sends. The captures are left in target/captures.
"""

import argparse
import collections
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from squall_ci.checks.abi import compile_all, OUT
from squall_ci.environment import clean_environment, provider_run
from squall_ci.mpis import MPIS
from squall_ci.paths import dissector, MPI_TESTS, need, ROOT, TARGET
from squall_ci.process import Result, run, Word
from squall_ci.programs import fi_perf
from squall_ci.tally import Tally

# Any endpoint port: what the tap of a squall endpoint has recorded is squall's.
PORTS = "1024-65535"
# Our own dissector, and the types it must count as the other one does.
LUA = ROOT / "wire" / "wireshark" / "squall.lua"
SHOWN = ("RUD_REQ", "ROD_REQ", "RUDI_REQ", "RUDI_RESP", "UUD_REQ", "ACK", "ACK_CC", "ACK_CCX", "NACK", "CP")
# Bytes of a capture without packets.
PCAP_HEADER = 24


# Runs a job in an environment.
Job: TypeAlias = Callable[[dict[str, str]], Result]


@dataclass(frozen=True)
class Scenario:
    """A job, the squall parameters it runs under, and what its captures must and may hold."""

    name: str
    job: Job
    squall: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ("RUD_REQ", "ACK_CC")
    trimmed: bool = False
    quick: bool = True


def perf(*measures: str) -> Job:
    return lambda env: run([fi_perf(), "-p", "squall", *measures], env, 120)


def mpich(program: str, *words: str) -> Job:
    def job(env: dict[str, str]) -> Result:
        mpi = MPIS["mpich"]
        command = mpi.command(2, [mpi.python, MPI_TESTS / f"{program}.py", "--quick", *words])
        return run(command, {**mpi.env("squall"), **env}, 120)

    return job


def onesided(env: dict[str, str]) -> Result:
    """Runs the C ABI tests of atomics of all kinds, fences, and refusals."""
    compile_all()
    return run([OUT / "onesided"], env, 120)


SCENARIOS = [
    Scenario("inline", perf("verify:0:3", "verify:1:3", "verify:64:20")),
    Scenario("eager", perf("verify:3000:5", "verify:20000:5")),
    Scenario("rendezvous", perf("verify:1000000:3")),
    Scenario("window of small messages", perf("rate:64:3"), quick=False),
    Scenario("crc", perf("verify:64:5", "verify:100000:3"), {"FI_SQUALL_CRC": "1"}),
    Scenario("rma", mpich("rma", "--part=fences", "--part=locks")),
    Scenario("one-sided", onesided),
    Scenario("two-sided MPI", mpich("pt2pt", "--part=ring", "--part=probes", "--part=truncation"), quick=False),
    # A trimmed packet is answered by a NACK.
    Scenario(
        "trimming and NACK",
        perf("verify:1000000:5"),
        {"FI_SQUALL_FAULT": "trim=5%,seed=3"},
        ("RUD_REQ", "ACK_CC", "NACK"),
        trimmed=True,
    ),
    # After a loss at the end of a message the sender probes by a control packet.
    Scenario(
        "loss and probe",
        perf("verify:64:100", "verify:200000:5"),
        {"FI_SQUALL_FAULT": "loss=10%,seed=5"},
        ("RUD_REQ", "ACK_CC", "CP"),
    ),
    # Closing the endpoints ends the contexts by command and answer; a short idle time closes them too.
    Scenario("close", perf("verify:64:1"), {}, ("RUD_REQ", "ACK_CC", "CP")),
]


def judge(check: pathlib.Path, capture: pathlib.Path, trimmed: bool, crc: bool) -> tuple[str | None, dict[str, int]]:
    """Judges one capture; returns the problem and the number of packets of each type."""
    words: list[Word] = [check] if trimmed else [check, "-t"]
    if crc:
        words.append("-c")
    # A packet of FI_SQUALL_DSCP_TRIMMED's value has lost its payload on the way.
    env = {**clean_environment(), "UET_TSHARK_OPTS": "-o uet.dscp_trimmed:5"}
    result = run([*words, capture, PORTS], env, timeout=120)
    counts = {name: int(n) for name, n in re.findall(r"^([A-Z_]+) +(\d+)$", result.output, re.M)}
    return (None if result.ok else f"{capture.name}: {result.why()}: {result.output.strip()[-1500:]}"), counts


def ours(capture: pathlib.Path, counts: Mapping[str, int]) -> str | None:
    """Returns where our own dissector, wire/wireshark/squall.lua, differs from these counts of the other one, or None."""
    command: list[Word] = ["tshark", "-X", f"lua_script:{LUA}", "-r", capture, "-T", "fields", "-E", "separator=,"]
    fields = ["squall.type", "squall.short", "squall.unknown"]
    result = run([*command, *(word for name in fields for word in ("-e", name))], clean_environment(), 120)
    if not result.ok or "Lua:" in result.output:
        return f"{capture.name}: {result.why()}: {result.output[-500:]}"
    rows = [line.split(",") for line in result.output.splitlines() if line.count(",") == len(fields) - 1]
    bad = sum(1 for row in rows if row[1] or row[2])
    seen = collections.Counter(row[0] for row in rows if row[0])
    wrong = {name: (seen[name], count) for name, count in counts.items() if name in SHOWN and seen[name] != count}
    if bad or wrong:
        return f"{capture.name}: our dissector calls {bad} packets malformed, and counts differently: {wrong}"
    return None


def samples(check: pathlib.Path, into: pathlib.Path, tally: Tally) -> None:
    """Judges the packets that wire/ builds of every kind, without and with a CRC."""
    for crc in (False, True):
        file = into / f"samples{'-crc' * crc}.pcap"
        cargo = ["cargo", "run", "--quiet", "--locked", "-p", "squall-wire", "--example", "sample_pcap", "--"]
        result = run([*cargo, *["--crc"] * crc, file], timeout=600)
        problem: str | None = result.why()
        counts: dict[str, int] = {}
        if result.ok:
            problem, counts = judge(check, file, True, crc)
            problem = problem or ours(file, counts)
        note = f"{counts.get('RUD_REQ', 0)} RUD_REQ among {len(counts)} types"
        tally.add(f"wire: samples{' with CRC' * crc}", problem, result.seconds, note, result.output)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dissector", nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", help="one scenario (may be repeated)")


def main(args: argparse.Namespace) -> int:
    directory = dissector(args.dissector)
    check = directory / "check_pcap.sh"
    need(check.exists(), f"no dissector in {directory}: give its directory, or set SQUALL_ORACLE")
    fi_perf()

    base = TARGET / "captures"
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    tally = Tally()
    if not args.only:
        samples(check, base, tally)
    for scenario in SCENARIOS:
        if (args.only and scenario.name not in args.only) or (args.quick and not scenario.quick and not args.only):
            continue
        into = pathlib.Path(tempfile.mkdtemp(prefix=scenario.name.replace(" ", "-") + "-", dir=base))
        env = {**provider_run("squall"), **scenario.squall}
        env["FI_SQUALL_PCAP"] = str(into / "%p-%e.pcap")
        result = scenario.job(env)
        problem = None if result.ok else result.why()
        seen: dict[str, int] = {}
        # The capture of an endpoint without traffic is a header alone.
        captures = sorted(file for file in into.glob("*.pcap") if file.stat().st_size > PCAP_HEADER)
        if problem is None and len(captures) < 2:
            problem = f"{len(captures)} captures of 2 endpoints"
        for capture in captures if problem is None else []:
            crc = scenario.squall.get("FI_SQUALL_CRC") == "1"
            wrong, counts = judge(check, capture, scenario.trimmed, crc)
            problem = problem or wrong or ours(capture, counts)
            for name, count in counts.items():
                seen[name] = seen.get(name, 0) + count
        if problem is None:
            missing = [name for name in scenario.types if not seen.get(name)]
            problem = f"no packet of type {', '.join(missing)}" if missing else None
        note = ", ".join(f"{name} {count}" for name, count in seen.items() if name.isupper() and count)
        tally.add(f"wire: {scenario.name}", problem, result.seconds, note, result.output)
    return tally.finish()
