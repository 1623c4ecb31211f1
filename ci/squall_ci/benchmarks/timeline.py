"""Show where the time of a message goes: the system calls of both ends of a ping-pong on one axis, as perf(1) records them.

The ends are two hosts, network namespaces on a bridge, each with a rank of an MPI that sends by MPI_Send and receives by
MPI_Recv. Without --mpi they are the two processes of fi_perf on a cable, which call libfabric directly. Printed are the calls
of a few round trips in the middle of the run, in microseconds, and the calls per message. An idle call, such as a look at an
empty socket, is only counted. Recording makes each call slower: compare two time lines, not a time line with a benchmark.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from squall_ci import hosts
from squall_ci.benchmarks.networks import cable
from squall_ci.job import run_program
from squall_ci.mpis import MPIS
from squall_ci.paths import die, need
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf
from squall_ci.rounds import environment
from squall_ci.tally import table

# The calls that providers and progress loops make. perf's own are others.
SENDS = ("sendmsg", "sendmmsg", "sendto", "writev")
RECEIVES = ("recvmsg", "recvmmsg", "recvfrom", "readv")
WAITS = ("poll", "ppoll", "epoll_wait", "epoll_pwait", "sched_yield", "futex")
CALLS = (*SENDS, *RECEIVES, *WAITS)
# Round trips of a run.
ROUNDS = 600
LINE = re.compile(r"\s*(\d+)\s+([\d.]+):\s+syscalls:sys_(enter|exit)_(\w+):\s*(\S*)")


@dataclass(frozen=True)
class Call:
    """A system call of one end (0 or 1): when it began and stopped, in microseconds, and the value that it returned."""

    end: int
    name: str
    begin: float
    stop: float
    value: int

    @property
    def is_idle(self) -> bool:
        """Whether the call moved no bytes and found no event: it found nothing, gave the core away, or failed."""
        return self.value < 0 or self.name == "sched_yield" or (self.value == 0 and self.name not in SENDS)


def signed(text: str) -> int:
    """Returns the value that a call returned, which perf prints in hexadecimal."""
    value = int(text, 16)
    return value - (1 << 64) if value >> 63 else value


def calls(lines: Iterable[str]) -> Iterator[tuple[int, str, float, float, int]]:
    """Yields thread, name, begin and stop in microseconds, and returned value of each recorded call."""
    begun: dict[tuple[int, str], float] = {}
    for line in lines:
        found = LINE.match(line)
        if not found:
            continue
        thread, at, name = int(found[1]), float(found[2]) * 1e6, found[4]
        if found[3] == "enter":
            begun[thread, name] = at
        elif (thread, name) in begun:
            yield thread, name, begun.pop((thread, name)), at, signed(found[5])


def record(command: list[Word], path: pathlib.Path) -> list[Word]:
    """Returns the command that records the calls of all processes while `command` runs."""
    events = [word for call in CALLS for kind in ("enter", "exit") for word in ("-e", f"syscalls:sys_{kind}_{call}")]
    return ["perf", "record", "-q", "-a", "-m", "16M", *events, "-o", path, "--", *command]


def exchange(args: argparse.Namespace, path: pathlib.Path) -> None:
    """Runs the ping-pong and records it."""
    provider = args.provider
    if args.mpi:
        mpi = MPIS[args.mpi]
        mpi.need()
        with hosts.launched(True, 2, mpi, args.mtu) as (launch, variables):
            job = run_program(
                "perf",
                "ping-pong",
                f"{args.bytes}:{ROUNDS}",
                mpi=mpi,
                provider=provider,
                timeout=120,
                at_least=1 << 10,
                env=variables,
                launch=lambda command: [str(word) for word in record(list(launch(command)), path)],
            )
        if job.problem:
            die(f"{args.mpi} on {provider}: {job.problem}\n{job.output[-1500:]}", 1)
        return
    with cable(args.mtu) as (where, _):
        command = [fi_perf(), "-p", provider, *where.options, f"lat:{args.bytes}:{ROUNDS}"]
        result = run(record(command, path), environment(provider) | where.env, timeout=120)
    if not result.ok:
        die(f"fi_perf on {provider}: {result.why()}: {result.output[-1500:]}", 1)


def ends(path: pathlib.Path, size: int) -> list[Call]:
    """Returns the calls of the two threads that sent most bytes, in the middle half of the run."""
    script = run(["perf", "script", "--ns", "-F", "tid,time,event,trace", "-i", path], os.environ, timeout=120)
    found = list(calls(script.output.splitlines()))
    sent: collections.Counter[int] = collections.Counter()
    for thread, name, _, _, value in found:
        sent[thread] += value if name in SENDS and value > 0 else 0
    busiest = [thread for thread, count in sent.most_common(2) if 2 * count >= size * ROUNDS]
    if len(busiest) < 2:
        die(
            f"no time line: perf recorded {len(found)} calls, but no two threads that sent half of {ROUNDS} messages of {size} "
            "bytes; let nothing else run, so that perf loses no events, and look whether the provider sends by other calls",
            1,
        )
    # A job begins and ends with other calls, so that its middle is found by the bytes that the first end had sent.
    mine = sum(value for thread, name, _, _, value in found if thread == busiest[0] and name in SENDS and value > 0)
    first = last = done = 0.0
    for thread, name, begin, _, value in sorted(found, key=lambda call: call[2]):
        if thread == busiest[0] and name in SENDS and value > 0:
            done += value
            first = begin if done < mine / 4 else first
            last = begin if done < mine * 3 / 4 else last
    middle = [
        Call(busiest.index(thread), name, begin, stop, value)
        for thread, name, begin, stop, value in found
        if thread in busiest and first <= begin <= last
    ]
    return sorted(middle, key=lambda call: call.begin)


def report(those: list[Call], size: int, shown: int) -> None:
    """Prints the time line of the first round trips, and the calls per message."""
    start, sent, idle = those[0].begin, 0, [0, 0]
    rows = []
    for call in those:
        if call.is_idle:
            idle[call.end] += 1
            continue
        sent += call.value if call.name in SENDS else 0
        if sent > 2 * shown * size * 1.05:
            break
        cells = ["", ""]
        cells[call.end] = f"{call.name} {call.value}" + (f" after {idle[call.end]} idle" if idle[call.end] else "")
        idle[call.end] = 0
        rows.append([f"{call.begin - start:.1f}", f"{call.stop - call.begin:.1f}", *cells])
    print(table(["at us", "took us", "one end", "other end"], rows))
    rows = []
    messages = sum(call.value for call in those if call.name in SENDS and call.value > 0) // size
    for name in CALLS:
        useful = [call.stop - call.begin for call in those if call.name == name and not call.is_idle]
        futile = [call.stop - call.begin for call in those if call.name == name and call.is_idle]
        if useful or futile:
            counts = (len(useful), sum(useful), len(futile), sum(futile))
            rows.append([name, *(f"{count / messages:.2f}" for count in counts)])
    print(table(["call", "per message", "us", "idle", "us idle"], rows))
    each = (those[-1].stop - those[0].begin) / messages
    print(f"{messages} messages of {size} bytes, {each:.1f} us each while recorded\n", flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", nargs="?", default="squall", metavar="PROVIDER")
    parser.add_argument("--mpi", choices=("impi", "mpich", "openmpi"), help="the ends are ranks of this MPI")
    parser.add_argument("--mtu", type=int, default=1500, help="of the interfaces between the hosts")
    parser.add_argument("--bytes", type=int, default=65536, help="length of a message")
    parser.add_argument("--shown", type=int, default=2, help="round trips in the time line")


def main(args: argparse.Namespace) -> int:
    need(args.bytes > 0, "--bytes 0: a message without bytes cannot be told from other packets; give 1 or more")
    need(shutil.which("perf"), "perf is missing: install linux-perf")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "calls"
        exchange(args, path)
        report(ends(path, args.bytes), args.bytes, args.shown)
    return 0
