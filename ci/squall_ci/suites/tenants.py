"""Repeat two experiments of the papers on isolation and fairness with live jobs on an emulated link, in slow motion.

Several connections (Snyder's thesis, section 3.5.1, figure 3.9; tools/plans/15-parallel-qp.toml). Three hosts are at one
switch. The victim's job sends from host 1 to host 2; the attacker's sends from host 0 to host 2 over k connections, to k
ranks. Both run DCQCN with the constants of network cards and begin at the same time. Measured is the attacker's share of the
bytes that both hand to the switch, from half a second on. By connection (FI_SQUALL_SCOPE=flow) it is k/(k+1), within 0.06;
by source and destination it is 0.45 to 0.55 for every k; by destination unsplit, as ConnectX-5 has it, it is between the two
for k > 1. A share out of bounds is measured twice more, and the mean counts.

Two senders (Dart, section III-B, figures 9 and 15; tools/plans/16-dart.toml). One rank sends a message to a third, and
another joins when that has had the line for twelve round trips. The rate of a sender is what leaves it in one round trip (25
packets at half the line), by its capture (FI_SQUALL_PCAP). Rates have settled when both are within 10 % of half the line in
nine of ten windows of the next 20 round trips. With Dart this takes at most two round trips after the second sender's first
packet arrived; with DCQCN it takes 20 or more. A time out of bounds is measured twice more, and the middle one counts.

Rates are a small part of the papers', and all times are longer by the same factor, so that processes that are late by
milliseconds do not matter. The simulator's results for the same plans stand beside. Every message is compared.
"""

import argparse
import bisect
import contextlib
import csv
import dataclasses
import json
import pathlib
import re
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

from squall_ci.emulator import Emulator
from squall_ci.job import Statistics
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS
from squall_ci.process import Result, run, Word
from squall_ci.programs import squall
from squall_ci.tally import table, Tally

# The network of the plans: three hosts at a lossless switch of 100 Gb/s that marks from 200 KB on.
NETWORK = ["--topo", "star:3", "--lossless", "--buffer", "32MB", "--queue", "1000KB", "--ecn", "0.2,0.8"]
# DCQCN's times in microseconds: those of network cards, and of the paper.
VENDOR = {"alpha_period_us": 1.0, "decrease_period_us": 4.0, "increase_period_us": 300.0, "cnp_interval_us": 4.0}
PAPER = {"alpha_period_us": 55.0, "increase_period_us": 55.0, "cnp_interval_us": 50.0}
# Seconds that jobs may take until they are ready, and from then until they begin.
READY, LEAD = 30.0, 0.1

ATTACKER, VICTIM, SINK = 0, 1, 2
CONNECTIONS = [1, 2, 4, 8]
SCOPES = ["flow", "destination", "destination-unsplit"]
# The names of the scopes in plan 15, where a host is one endpoint.
SIMULATED = {"flow": "flow", "destination": "pair", "destination-unsplit": "destination-unsplit"}
# The factor by which the emulated link is slower, and its packet size.
SLOWER_LINK, PACKET_LINK = 500, 4096
# Seconds of an attack, and from its beginning to that of the measurement.
ATTACK, SETTLING = 2.2, 0.5

# The factor for two senders, with packets of 1064 bytes including headers.
SLOWER_PAIR, PACKET_PAIR = 20_000, 1024
# Bytes of a packet that the switch counts besides the UDP payload.
OVERHEAD = 48
# The time at which the second sender begins, s: after twelve round trips, of 52 KB each.
SECOND_AT = 50e-6 * SLOWER_PAIR
TOLERANCE, WINDOWS, OF_WINDOWS = 0.10, 20, 18


def slow_motion(name: str, slower: float, times: Mapping[str, float]) -> str:
    """Returns FI_SQUALL_CC with all times longer by a factor."""
    words = [f"{key}={value * slower:.15g}" for key, value in times.items()]
    return f"{name}{',' if ':' in name else ':'}{','.join(words)}"


def environment(mpi: Mpi, cc: str, **more: str) -> dict[str, str]:
    # The network loses nothing, so that a short timeout would only be caused by processes that the host schedules late.
    squall_env = {"FI_SQUALL_CC": cc, "FI_SQUALL_LB": "single", "FI_SQUALL_RTO_MIN": "2s"}
    return mpi.env("squall") | squall_env | more


def flows_of(result: Result) -> list[dict[str, Any]] | None:
    """Returns the figures that fabtests/mpi/flows.py printed."""
    found = re.search(r"^flows: (\[.*\])$", result.output, re.M)
    return json.loads(found.group(1)) if found else None


def problem_of(result: Result) -> str | None:
    if not result.ok:
        return f"{result.why()}: {result.output[-1500:]}"
    flows = flows_of(result)
    if flows is None or not all(flow["messages"] for flow in flows):
        return f"messages of a flow did not arrive: {flows}"
    return "wrong bytes arrived" if any(flow["wrong"] for flow in flows) else None


class Start:
    """The beginning of jobs that share a folder: see fabtests/mpi/flows.py."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def give(self, jobs: Sequence[Future[Result]]) -> float:
        """Waits until all are ready, starts them and returns the time. Raises an error if a job ended or is late."""
        until = time.monotonic() + READY
        while len(list(self.folder.glob("ready-*"))) < len(jobs):
            if time.monotonic() > until or any(job.done() for job in jobs):
                raise RuntimeError("a job did not get ready")
            time.sleep(0.01)
        at = time.monotonic() + LEAD
        # The file appears as a whole.
        (self.folder / "new").write_text(repr(at))
        (self.folder / "new").rename(self.folder / "begin")
        return at


def join(
    emulator: Emulator,
    mpi: Mpi,
    hosts: Sequence[int | str],
    env: Mapping[str, str],
    start: Start,
    flows: Sequence[Mapping[str, Any]],
) -> Result:
    """Runs a job on an emulator, with its ranks on these hosts."""
    ranks = 1 + max(max(flow["from"], flow["to"]) for flow in flows)
    program: list[Word] = [mpi.python, MPI_TESTS / "flows.py", start.folder, *(json.dumps(flow) for flow in flows)]
    command: list[Word] = [emulator.program, "emulate", "--socket", emulator.socket, "join"]
    command += ["--hosts", ",".join(map(str, hosts)), "--", *mpi.command(ranks, program)]
    return run(command, env, READY + 30)


def sent(emulator: Emulator) -> list[float]:
    """Returns the bytes that each host has given to the switch."""
    return [float(port["bytes"]) for port in emulator.status()["ports"] if re.match(r"h\d+->", port["name"])]


@dataclass(frozen=True)
class Attack:
    """The result of one attack: a problem, the attacker's share, the used share of the link, and the packets marked."""

    problem: str | None
    share: float = 0.0
    used: float = 0.0
    marked: int = 0
    late: int = 0


def attack(program: pathlib.Path, mpi: Mpi, scope: str, connections: int) -> Attack:
    """Runs the victim's and the attacker's job together, and measures the attacker's share."""
    cc = slow_motion("dcqcn:vendor=1", SLOWER_LINK, VENDOR)
    env = environment(mpi, cc, FI_SQUALL_SCOPE=scope)
    flow = {"from": 0, "at": 0.0, "until": ATTACK, "bytes": 1 << 16}
    theirs = [{"to": 1, **flow}]
    mine = [{"to": sink, **flow} for sink in range(1, connections + 1)]
    options = [*NETWORK, "--rate-scale", str(1 / SLOWER_LINK), "--mtu", str(PACKET_LINK)]
    with contextlib.ExitStack() as stack:
        start = Start(pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())))
        emulator = stack.enter_context(Emulator(program, options))
        pool = stack.enter_context(ThreadPoolExecutor())
        jobs = [
            pool.submit(join, emulator, mpi, [VICTIM, SINK], env, start, theirs),
            pool.submit(join, emulator, mpi, [ATTACKER, f"{SINK}x{connections}"], env, start, mine),
        ]
        try:
            at = start.give(jobs)
        except RuntimeError as error:
            return Attack(f"{error}: {[problem_of(job.result()) for job in jobs]}")
        time.sleep(max(0.0, at + SETTLING - time.monotonic()))
        begin, before = time.monotonic(), sent(emulator)
        time.sleep(max(0.0, at + ATTACK - time.monotonic()))
        end, after = time.monotonic(), sent(emulator)
        problems = [problem for problem in (problem_of(job.result()) for job in jobs) if problem]
        status = emulator.status()
    attacker, victim = (after[host] - before[host] for host in (ATTACKER, VICTIM))
    lost = status["totals"]["queue_full"] + status["totals"]["overflow"]
    if lost:
        problems.append(f"{lost} packets were lost on a lossless network")
    used = 8 * (attacker + victim) / (end - begin) / status["host_rate"]
    share = attacker / max(attacker + victim, 1.0)
    return Attack("; ".join(problems) or None, share, used, status["totals"]["marked"], status["late_seconds"])


# Shares of the attacker by scope and connections.
Shares: TypeAlias = Mapping[str, Mapping[int, float]]


def bounds(scope: str, k: int, shares: Shares) -> tuple[float, float]:
    """Returns the bounds of the share of k connections; those of the last scope depend on the other scopes."""
    match scope:
        case "flow":
            return k / (k + 1) - 0.06, k / (k + 1) + 0.06
        case "destination":
            return 0.45, 0.55
        case _:
            return shares["destination"][k], shares["flow"][k]


def judge_shares(scope: str, shares: Shares) -> str | None:
    """Returns which shares of a scope are out of bounds, or None."""
    wrong = []
    for k, share in shares[scope].items():
        low, high = bounds(scope, k, shares)
        if not low <= share <= high:
            wrong.append(f"{share:.2f} of {k}, expected {low:.2f} to {high:.2f}")
    return "; ".join(wrong) or None


def simulated_rows(program: pathlib.Path, plan: str, seeds: int) -> list[dict[str, str]]:
    """Returns every run of a plan over so many seeds: its point and its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        result = run([program, "plan", "run", plan, "--seeds", seeds, "--quiet", "--summary", "--out", folder], None, 900)
        # The plan's own verdict over these seeds does not matter here.
        found = []
        for path in pathlib.Path(folder).glob(f"{plan}*/runs.csv"):
            # The first line says where the rows come from.
            lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
            found += list(csv.DictReader(lines))
        if not found:
            print(result.output[-1500:])
    return found


def simulate(program: pathlib.Path, plan: str, columns: Sequence[str], metric: str) -> dict[tuple[str, ...], float]:
    """Returns a metric of every point of a plan, seed 1, by the values of these columns."""
    rows = simulated_rows(program, plan, 1)
    return {tuple(row[column] for column in columns): float(row[metric]) for row in rows}


@dataclass(frozen=True)
class Packets:
    """Data packets of a capture: when (s since 1970), from which port, and bytes with headers, in order of time."""

    times: list[float]
    ports: list[int]
    sizes: list[int]

    @classmethod
    def read(cls, path: pathlib.Path, since: float) -> "Packets":
        """Reads the packets since a time from a capture of raw IPv4 with nanoseconds, as FI_SQUALL_PCAP writes it."""
        data, at = path.read_bytes(), 24
        packets = cls([], [], [])
        while at + 16 <= len(data):
            seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", data, at)
            ip = at + 16
            at = ip + length
            if at > len(data):
                break
            when, size = seconds + nanoseconds * 1e-9, length - 28 + OVERHEAD
            # Acknowledgements and handshakes are short packets.
            if when >= since and size > PACKET_PAIR // 2:
                packets.times.append(when)
                packets.ports.append(struct.unpack_from(">H", data, ip + 20)[0])
                packets.sizes.append(size)
        return packets

    def rate(self, begin: float, end: float) -> float:
        """Returns the bits a second that left between two times."""
        first, last = bisect.bisect_left(self.times, begin), bisect.bisect_left(self.times, end)
        return 8 * sum(self.sizes[first:last]) / (end - begin)


def settled(senders: Sequence[Packets], joined: float, rtt: float, half: float) -> float | None:
    """Returns the round trips from `joined` until both rates stay at half the line, or None if they never do."""
    over = min(sender.times[-1] for sender in senders)
    steps = int((over - joined) / rtt * 10)

    def fair(step: int) -> bool:
        begin = joined + step * rtt / 10
        return all(abs(sender.rate(begin, begin + rtt) / half - 1) <= TOLERANCE for sender in senders)

    fairs = [fair(step) for step in range(max(steps, 0))]
    span = WINDOWS * 10
    for step in range(len(fairs) - span):
        if fairs[step] and sum(fairs[step : step + span]) >= span * OF_WINDOWS // WINDOWS:
            return step / 10
    return None


@dataclass(frozen=True)
class Two:
    """Two senders: the round trip (s), when both had half the line (round trips), and for how many they sent together."""

    rtt: float
    settled: float | None
    together: float
    note: str

    def text(self) -> str:
        return f"more than {self.together:.0f}" if self.settled is None else f"{self.settled:.1f}"


def judge_settling(two: Two, low: float, high: float) -> str | None:
    """Returns what is wrong with the time until both have half the line, or None."""
    # Rates that never settled took longer than the job lasted.
    least = two.together if two.settled is None else two.settled
    most = float("inf") if two.settled is None else two.settled
    fine = low <= least and most <= high
    return None if fine else f"{two.text()} round trips, expected {low:g} to {high:g}"


def two_senders(program: pathlib.Path, mpi: Mpi, cc: str, first: int, second: int) -> tuple[str | None, Two | None]:
    """Runs two senders of so many bytes with a congestion control; returns the problem, and the measurement."""
    options = [*NETWORK, "--rate-scale", str(1 / SLOWER_PAIR), "--mtu", str(PACKET_PAIR)]
    flows = [
        {"from": 0, "to": 2, "at": 0.0, "bytes": first},
        {"from": 1, "to": 2, "at": SECOND_AT, "bytes": second},
    ]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        emulator = stack.enter_context(Emulator(program, options))
        statistics = Statistics()
        # Both messages are sent at once, and not pulled by their receiver.
        env = environment(mpi, cc, FI_SQUALL_EAGER_SIZE="16M", FI_SQUALL_PCAP=f"{folder}/%p", **statistics.env())
        start = Start(pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())))
        pool = stack.enter_context(ThreadPoolExecutor())
        job = pool.submit(join, emulator, mpi, [0, 1, 2], env, start, flows)
        try:
            since = start.give([job]) - time.monotonic() + time.time()
        except RuntimeError as error:
            return f"{error}: {problem_of(job.result())}", None
        result = job.result()
        if problem := problem_of(result):
            return problem, None
        status = emulator.status()
        captures = [Packets.read(path, since) for path in sorted(folder.iterdir())]
        endpoints = statistics.endpoints()
    # A sender's capture has packets of one port alone. The order of the senders is that of their first packets.
    senders = sorted((one for one in captures if len(set(one.ports)) == 1), key=lambda one: one.times[0])
    sinks = [one for one in captures if len(set(one.ports)) == 2]
    if len(senders) != 2 or len(sinks) != 1:
        return f"captures of {len(senders)} senders and {len(sinks)} receivers, expected 2 and 1", None
    late_comer = senders[1].ports[0]
    joined = next(when for when, port in zip(sinks[0].times, sinks[0].ports) if port == late_comer)
    rtt = min(endpoint["rtt_min_ns"] for endpoint in endpoints if endpoint["rtt_samples"]) * 1e-9
    together = (min(sender.times[-1] for sender in senders) - joined) / rtt
    half = status["host_rate"] / 2
    when = settled(senders, joined, rtt, half)
    late = status["emulation_delay"]["p99_ns"] * 1e-9 / rtt
    return None, Two(rtt, when, together, f"99 % of packets {late:.3f} round trips late or less")


def several_connections(program: pathlib.Path, mpi: Mpi, tally: Tally) -> None:
    simulated = simulate(program, "15-parallel-qp", ["qps", "scope"], "group_share")
    shares: dict[str, dict[int, float]] = {}
    rows = []
    for scope in SCOPES:
        begin = time.monotonic()
        attacks: list[Attack] = []
        shares[scope] = {}
        again = []
        # One connection shares with no other, so that unsplit and split are the same.
        for k in CONNECTIONS if scope != SCOPES[-1] else CONNECTIONS[1:]:
            low, high = bounds(scope, k, shares)
            several = [attack(program, mpi, scope, k)]
            if not low <= several[0].share <= high and not several[0].problem:
                again.append(f"{several[0].share:.2f} of {k} at first")
                several += [attack(program, mpi, scope, k) for _ in range(2)]
            shares[scope][k] = sum(one.share for one in several) / len(several)
            attacks += several
        used, late = min(one.used for one in attacks), sum(one.late for one in attacks)
        note = f"{sum(one.marked for one in attacks)} packets marked, {used:.2f} of the link used at least"
        note += f", behind real time in {late} s" if late else ""
        note += f"; measured again: {', '.join(again)}" if again else ""
        problem = "; ".join(one.problem for one in attacks if one.problem) or judge_shares(scope, shares)
        tally.add(f"several connections, by {scope}", problem, time.monotonic() - begin, note)
        rows.append([f"{scope}, live", *cells(shares[scope])])
        rows.append([f"{scope}, simulated", *cells({k: simulated.get((str(k), SIMULATED[scope])) for k in shares[scope]})])
    rows.append(["k/(k+1)", *cells({k: k / (k + 1) for k in CONNECTIONS})])
    print(f"\nShare of a link of {100_000 / SLOWER_LINK:.0f} Mb/s that an attacker gets with k connections against one:\n")
    print(table(["congestion control by", *map(str, CONNECTIONS)], rows), end="\n\n")


def cells(values: Mapping[int, float | None]) -> list[str]:
    """Returns a row of shares, by connections."""
    return ["-" if (value := values.get(k)) is None else f"{value:.2f}" for k in CONNECTIONS]


def half_the_link(program: pathlib.Path, mpi: Mpi, tally: Tally) -> None:
    simulated = simulate(program, "16-dart", ["transport"], "settle")
    rows = []
    # 45 round trips together: with half the line each, and with the quarter that DCQCN leaves them for a while.
    for name, cc, sizes, low, high in (
        ("dart", slow_motion("dart", SLOWER_PAIR, PAPER), (2_000_000, 1_170_000), 0.0, 2.0),
        ("dcqcn-vendor", slow_motion("dcqcn:vendor=1", SLOWER_PAIR, VENDOR), (1_400_000, 650_000), 20.0, float("inf")),
    ):
        begin = time.monotonic()
        problem, two = two_senders(program, mpi, cc, *sizes)
        if two and judge_settling(two, low, high):
            others = [two_senders(program, mpi, cc, *sizes) for _ in range(2)]
            problem = next((wrong for wrong, _ in others if wrong), None)
            found = [two, *(other for _, other in others if other)]
            ordered = sorted(found, key=lambda one: float("inf") if one.settled is None else one.settled)
            two = dataclasses.replace(
                ordered[len(ordered) // 2], note=f"three times: {', '.join(one.text() for one in found)}"
            )
        if two:
            problem = problem or judge_settling(two, low, high)
            cell = simulated.get((name,))
            rows.append([name, f"{two.rtt * 1e3:.1f}", two.text(), "-" if cell is None else f"{cell:.2f}"])
        tally.add(f"two senders, {name}", problem, time.monotonic() - begin, two.note if two else "")
    print("\nRound trips until two senders have half the link each, from the second's first packet on:\n")
    print(table(["congestion control", "round trip, ms", "live, within 10 %", "simulated, within 1 %"], rows), end="\n\n")


def main(_args: argparse.Namespace) -> int:
    program = squall()
    mpi = MPIS["mpich"]
    tally = Tally()
    several_connections(program, mpi, tally)
    half_the_link(program, mpi, tally)
    return tally.finish()
