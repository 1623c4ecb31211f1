"""Run unmodified programs in virtual time by `squall run --virtual`, and compare times with what they have to be.

A round trip of one message between two hosts has to take what the links, the packet and the calls take, to the nanosecond. A
collective operation and a message from device memory have to take the time of their sends. Ranks of one
host have to exchange messages within it, and to share its card. A job has to take the same times again beside programs that use
all cores. Collectives are recorded and replayed in the simulator:
both have to take the same time, within 5 %. The programs of fabtests/mpi have to print right results. Jobs that misbehave have to
end soon and with a reason: a rank that is killed, that leaves without MPI_Finalize, that forks, or that waits for ever.

Without --quick the programs of fabtests/mpi run under every MPI, a spine dies under a stencil program, jobs have up to 256 ranks,
and a permutation meets a dead link, as in plan 04c: beside the simulator with the same messages.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from squall_ci.job import run_program
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import FABTESTS, TARGET
from squall_ci.process import computing, Result, run, Word
from squall_ci.programs import compile_c, squall
from squall_ci.suites.mpi import FLOOR
from squall_ci.tally import Tally

# Times of the network and of calls, ns: --latency, and the defaults of --overhead.
LATENCY, SEND, RECEIVE, CLOCK = 1000, 100, 100, 20
# Bytes of a packet with a whole message: Ethernet, IPv4 and UDP with preamble and gap; headers of the packet delivery and of the
# message (docs/wire.md).
BELOW_UDP, PDS_HEADER, SES_HEADER = 48, 12, 44
# What ranks of fabtests/virtual/round_trip.c sleep between round trips, ns.
PAUSE = 20_000
# Repetitions of one of the round trips, and of a computation.
REPETITIONS = 5
# The largest difference between a recorded and a simulated time.
NEAR = 0.05
# Bounds of the virtual time of a computation, as multiples of its CPU time. Reading the CPU clock costs CPU time, too.
LEAST_COMPUTED, MOST_COMPUTED = 0.99, 1.5
# Rate and latency of messages within a host, Gb/s and ns: the defaults of --inner-rate and --inner-latency.
INNER_RATE, INNER_LATENCY = 100, 300
# Bounds of the time that two ranks of a host take to send at once, as multiples of that of one. Each has short messages besides.
LEAST_SHARED, MOST_SHARED = 1.9, 2.1
# The longest time of a round trip with probes, as a multiple of one without. A probe takes the time of a poll.
MOST_SLOWDOWN = 1.5
# Seconds of real time in which a job that misbehaves must end. Ten seconds of virtual time pass before a deadlock is reported.
SOON = 40.0
HASH = re.compile(r"deliveries, hash ([0-9a-f]{16}) \((.*)\)")


class Virtual:
    """`squall run --virtual`, and the C programs that it runs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.program = squall()
        self.folder = folder
        self.round_trip = compile_c([FABTESTS / "virtual" / "round_trip.c"], TARGET / "virtual" / "round_trip")
        self.facilities = compile_c(
            [FABTESTS / "virtual" / "facilities.c", *(FABTESTS / "abi").glob("*.h")], TARGET / "virtual" / "facilities"
        )
        cuda = "libcuda.so.1"
        compile_c(
            [FABTESTS / "devices" / "cuda.c", FABTESTS / "devices" / "standin.h"],
            TARGET / "virtual" / "devices" / cuda,
            ("-shared", "-fPIC", f"-Wl,-soname,{cuda}"),
            libraries=(),
        )
        # MPICH brings its own libfabric, which is newer than the one that there are headers of.
        linking = ("-O2", "-Wl,--allow-shlib-undefined")
        compiler = str(MPIS["mpich"].python.parent / "mpicc")
        self.job = compile_c([FABTESTS / "virtual" / "job.c"], TARGET / "virtual" / "job", linking, compiler, ())
        self.threads = compile_c([FABTESTS / "virtual" / "threads.c"], TARGET / "virtual" / "threads", linking, compiler, ())
        self.timers = compile_c([FABTESTS / "virtual" / "timers.c"], TARGET / "virtual" / "timers", linking, compiler, ())

    def command(self, topology: str, *options: Word, compute: str = "none") -> list[str]:
        """Returns the words before a launcher's command."""
        words = [self.program, "run", "--on", topology, "--virtual", "--compute", compute, *options, "--"]
        return [str(word) for word in words]

    def run_job(
        self,
        topology: str,
        ranks: int,
        *words: Word,
        options: Sequence[Word] = (),
        compute: str = "none",
        mpi: Mpi = MPIS["mpich"],
        timeout: float = 120.0,
        program: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Runs fabtests/virtual/job.c, or another program, with these words."""
        launch = mpi.command(ranks, [program or self.job, *words])
        words_before = self.command(topology, *options, compute=compute)
        return run([*words_before, *launch], mpi.plain_environment() | dict(env or {}), timeout)


def hash_of(result: Result) -> tuple[str, bool]:
    """Returns the hash of a run, empty if there is none, and whether `squall` says that it is repeatable."""
    found = HASH.search(result.output)
    return (found[1], found[2].startswith("the same")) if found else ("", False)


def inner_round_trip_time(size: int) -> int:
    """Returns what `round_trip_time` returns for two ranks of one host, which copy a packet without the headers below it."""
    flight = math.ceil(INNER_LATENCY + 8 * (PDS_HEADER + SES_HEADER + size) / INNER_RATE)
    return 2 * (SEND + flight + RECEIVE) + CLOCK


def round_trip_time(size: int, gbps: int, send: int, receive: int, clock: int, card: tuple[int, int] = (0, 0)) -> int:
    """Returns the time in nanoseconds from one reading of the clock to the next, around a message and its answer.

    A packet crosses two links, which transmit all of it, one after the other. Its arrival is rounded up to a nanosecond. Posting
    it takes `send`, reading its completion `receive`; polls that find nothing pass while the packet is on its way. The second
    reading of the clock takes its time before it returns. Acknowledgements are on the wire before the answer is ready. A process
    that peeks waits as one that reads, and reads the completion of the last peek. With a `card` of a time and a rate, the packet takes
    that time to the card and from it, and its payload of UDP passes at that rate (Gb/s) both times.
    """
    payload = PDS_HEADER + SES_HEADER + size
    dma, pcie = card
    bits = 2 * 8 * (BELOW_UDP + payload) / gbps + (2 * 8 * payload / pcie if pcie else 0)
    flight = 2 * LATENCY + 2 * dma + math.ceil(round(bits, 6))
    return 2 * (send + flight + receive) + clock


class RoundTrip(NamedTuple):
    """A round trip between two hosts: bytes and rate, what --overhead is, what the calls for a message of this size then take, and how
    the receiver finds it. Between a peek and the end of a round trip, a message that is received late takes `late`. Of the card, the
    time of a packet and the rate to memory are given, or the messages a second."""

    size: int
    gbps: int
    overhead: str
    calls: tuple[int, int, int] = (SEND, RECEIVE, CLOCK)
    how: str = ""
    late: int = 0
    card: tuple[int, int] = (0, 0)
    messages: int = 0

    def options(self) -> list[Word]:
        """Returns the options of `squall run`."""
        network: list[Word] = ["--rate", f"{self.gbps}G", "--latency", LATENCY, "--overhead", self.overhead, "--ranks", 2]
        dma, pcie = self.card
        if dma:
            return [*network, "--card", f"dma={dma},pcie={pcie}G"]
        return [*network, "--card", f"rate={self.messages}"] if self.messages else network

    def expected(self) -> int:
        """Returns the time of a round trip in ns. If the card limits messages, those of one rank are an interval apart, of which
        the program sleeps for a pause. It reads the clock twice outside of the round trip: when the sleep ends, and before it sends."""
        if self.messages:
            return 10**9 // self.messages - PAUSE - 2 * CLOCK
        return round_trip_time(self.size, self.gbps, *self.calls, self.card) + 2 * self.late


# Pieces of calls: a message of 1000 bytes takes 400 + 50 ns to inject, and its completion 60 + 10 ns to read; it takes 30 + 20 ns to
# receive what has arrived before. One of 999 bytes takes 150, 100 and 0 ns. Other calls do not occur.
PIECES = "send=9999,inject=0:150/1000:400:50,receive=0:100/1000:60:10,sent=9999,unexpected=0:0/1000:30:20"
BASIC = f"send={SEND},receive={RECEIVE},clock={CLOCK}"
OTHER = ("send=2500,receive=70,clock=7", (2500, 70, 7))
ROUND_TRIPS = (
    *(RoundTrip(size, gbps, BASIC) for size in (0, 8, 1000, 4000) for gbps in (10, 100, 400)),
    RoundTrip(8, 100, *OTHER),
    RoundTrip(8, 100, *OTHER, how="peek"),
    RoundTrip(999, 100, PIECES, (150, 100, CLOCK)),
    RoundTrip(1000, 100, PIECES, (450, 70, CLOCK)),
    # The receiver reads the completions of its peek and of its receive.
    RoundTrip(1000, 100, PIECES, (450, 70, CLOCK), "late", 50 + 70),
    RoundTrip(8, 100, BASIC, card=(500, 200)),
    RoundTrip(4000, 400, BASIC, card=(321, 256)),
    # Messages wait for 0.5 us, which no transport takes for a loss.
    RoundTrip(8, 100, BASIC, messages=40_000),
)


def check_round_trips(virtual: Virtual, tally: Tally) -> None:
    """Compares round trips between two hosts with what they have to take, to the nanosecond."""
    # Repeat a case: the ranks begin in any order, and either may send before the other has attached.
    cases = [*ROUND_TRIPS, *[ROUND_TRIPS[0]] * REPETITIONS]
    right, problems, seconds, output = 0, [], 0.0, ""
    hashes = set()
    for case in cases:
        size, how = case.size, case.how
        both = " & ".join(f"PMI_RANK={rank} {virtual.round_trip} {size} 3 {how}" for rank in (0, 1)) + "; wait"
        command = [*virtual.command("star:2", *case.options()), "env", "PMI_SIZE=2", "sh", "-c", both]
        result = run(command, MPIS["mpich"].plain_environment(), 60)
        expected = case.expected()
        measured = [int(time) for time in re.findall(rf"^{size} (\d+)$", result.output, re.M)]
        seconds += result.seconds
        if case == cases[0]:
            hashes.add(hash_of(result)[0])
        if result.ok and measured == [expected] * 3:
            right += 1
        else:
            words = " ".join(map(str, case.options()))
            problems.append(f"{size} bytes, {words} {how}: {measured} ns, expected {expected}; {result.why()}")
            output = result.output
    if len(hashes) > 1:
        problems.append(f"runs that are alike have the hashes {', '.join(sorted(hashes))}")
    note = f"{right} of {len(cases)} to the nanosecond"
    tally.add("round trips between two hosts", "; ".join(problems) or None, seconds, note, output)


def check_inner_round_trips(virtual: Virtual, tally: Tally) -> None:
    """Compares round trips between two ranks of one host with what they have to take, to the nanosecond."""
    right, problems, seconds, output = 0, [], 0.0, ""
    sizes = (0, 8, 1000, 4000)
    for size in sizes:
        both = " & ".join(f"PMI_RANK={rank} {virtual.round_trip} {size} 3" for rank in (0, 1)) + "; wait"
        command = [*virtual.command("star:2", "--ranks", 2, "--hosts", "0x2"), "env", "PMI_SIZE=2", "sh", "-c", both]
        result = run(command, MPIS["mpich"].plain_environment(), 60)
        measured = [int(time) for time in re.findall(rf"^{size} (\d+)$", result.output, re.M)]
        seconds += result.seconds
        if result.ok and measured == [inner_round_trip_time(size)] * 3:
            right += 1
        else:
            problems.append(f"{size} bytes: {measured} ns, expected {inner_round_trip_time(size)}; {result.why()}")
            output = result.output
    note = f"{right} of {len(sizes)} to the nanosecond"
    tally.add("round trips within a host", "; ".join(problems) or None, seconds, note, output)


def check_shared_cards(virtual: Virtual, tally: Tally) -> None:
    """Lets two ranks of a host send at once: they take twice the time that they take on hosts of their own."""
    times, seconds, output, problem = [], 0.0, "", None
    for hosts in ("0-3", "0x2,1x2"):
        # Each rank sends 1 MiB to one of the other host, 1 ms after the start.
        result = virtual.run_job("star:4", 4, "permutation", 1 << 20, 1000, "2,3,0,1", options=["--hosts", hosts])
        found = re.search(r"^job: permutation: mean ([\d.]+) us", result.output, re.M)
        seconds += result.seconds
        output += result.output
        problem = problem or (None if result.ok and found else result.why() if not result.ok else "no time")
        times.append(float(found[1]) if found else 0.0)
    if not problem and not LEAST_SHARED <= times[1] / times[0] <= MOST_SHARED:
        problem = f"{times} us, expected {LEAST_SHARED} to {MOST_SHARED} times the first"
    elif not problem and "; 2 ranks on each of 2 hosts; within a host 100 Gb/s and 0.3 us" not in output:
        problem = "squall does not say where the ranks are"
    note = f"{times[0]:.1f} us alone, {times[1]:.1f} us together"
    tally.add("two ranks share the card of a host", problem, seconds, note, output)


def check_places(virtual: Virtual, tally: Tally) -> None:
    """Starts more ranks than have hosts: the job ends soon, with the reason."""
    # The emulator refuses a rank of so large a job, or the last rank finds no host.
    alone: list[Word] = [
        *virtual.command("star:4", "--hosts", "0x2,1"),
        "env",
        "PMI_RANK=3",
        "PMI_SIZE=4",
        virtual.job,
        "barrier",
        0,
        1,
    ]
    why = "name more hosts, or start fewer ranks"
    for name, result in (
        ("more ranks than", virtual.run_job("star:4", 4, "barrier", 0, 1, options=["--hosts", "0x2,1"], timeout=SOON)),
        ("a rank without one of the", run(alone, MPIS["mpich"].plain_environment(), SOON)),
    ):
        last = result.output.strip().rpartition("squall: ")[2]
        problem = None
        reasons = last.split("; ")
        if result.ok or result.code is None or why not in last or len(set(reasons)) < len(reasons):
            problem = f"{result.why()}, expected an error whose last line has: {why}"
        elif "did not use squall" in last:
            problem = "squall says that the job did not use it"
        tally.add(f"{name} hosts that were named", problem, result.seconds, "", result.output)


def check_facilities(virtual: Virtual, tally: Tally) -> None:
    """Compares calls that send a message with what they take if a send takes no time: each has to take one send more, whether
    the application sends it, a collective operation, or the copy of device memory."""
    environment = {**MPIS["mpich"].plain_environment(), "LD_LIBRARY_PATH": str(TARGET / "virtual" / "devices")}
    times, problem, seconds, output = [], None, 0.0, ""
    for send in (0, SEND):
        options: list[Word] = ["--overhead", f"send={send}", "--ranks", 1]
        command = [*virtual.command("star:2", *options), "env", "PMI_SIZE=1", "PMI_RANK=0", str(virtual.facilities)]
        result = run(command, environment, 60)
        times.append({name: int(time) for name, time in re.findall(r"^(send|staged|barrier) (\d+)$", result.output, re.M)})
        seconds += result.seconds
        output += result.output
        problem = problem or (None if result.ok else result.why())
    free, charged = times
    expected = {name: free.get(name, 0) + SEND for name in ("send", "staged", "barrier")}
    if not problem and charged != expected:
        problem = f"{charged} ns, expected {expected}"
    tally.add("calls of facilities take the time of their sends", problem, seconds, output=output)


def check_probes(virtual: Virtual, tally: Tally) -> None:
    """Waits by MPI_Iprobe for one tag after the other: a probe that finds nothing must not wait if the next one finds a message."""
    tags, rounds = 5, 20
    result = virtual.run_job("star:2", 2, "probes", tags, rounds)
    longest = re.search(r"^job: probes: the longest round ([\d.]+) us$", result.output, re.M)
    most = MOST_SLOWDOWN * round_trip_time(1, 100, SEND, RECEIVE, CLOCK) / 1000
    problem = None
    if not (result.ok and longest):
        problem = result.why() if not result.ok else "no result"
    elif float(longest[1]) > most:
        problem = f"the longest round took {longest[1]} us, expected {most:.3f} us at most"
    note = f"the longest round {longest[1]} us" if longest else ""
    tally.add(f"probes for {tags} tags in turn", problem, result.seconds, note, result.output)


def check_repetition(virtual: Virtual, tally: Tally, hosts: str) -> None:
    """Runs a job alone and beside busy processes: every packet has to arrive at the same time."""
    words: tuple[Word, ...] = ("allreduce", 65536, 5)
    options: list[Word] = ["--hosts", hosts]
    alone = virtual.run_job("fat-tree:16:2", 8, *words, options=options)
    with computing((os.cpu_count() or 1) + 1):
        beside = virtual.run_job("fat-tree:16:2", 8, *words, options=options)
    (first, repeatable), (second, still) = hash_of(alone), hash_of(beside)
    printed = [re.findall(r"^job: .*$", result.output, re.M) for result in (alone, beside)]
    problem = None
    if not (alone.ok and beside.ok):
        problem = f"{alone.why()}, {beside.why()}"
    elif not (repeatable and still):
        problem = "squall says that the run is not repeatable"
    elif first != second or printed[0] != printed[1]:
        problem = f"hashes {first} and {second}; {printed[0]} and {printed[1]}"
    seconds = alone.seconds + beside.seconds
    tally.add(
        f"the same beside busy processes, ranks on hosts {hosts}",
        problem,
        seconds,
        f"hash {first}",
        alone.output + beside.output,
    )


def whole_times(virtual: Virtual, name: str, size: int, rounds: int) -> tuple[float, float, Result]:
    """Records a job, replays it in the simulator, and returns both times of the whole (us)."""
    record = virtual.folder / f"{name}-{size}-{rounds}"
    # Hosts of the simulator need no time for calls.
    options: list[Word] = ["--overhead", "send=0,receive=0,poll=0,clock=0", "--record", record]
    job = virtual.run_job("fat-tree:16:2", 8, name, size, rounds, options=options)
    if not job.ok or not re.search(rf"^job: {name} ", job.output, re.M):
        return 0, 0, job
    replay = run([virtual.program, "sim", "--quiet", "--trace", record], timeout=60)
    whole = re.search(r"^the whole +\d+ +([\d.e+]+) +([\d.e+]+)", replay.output, re.M)
    return (float(whole[1]), float(whole[2]), replay) if whole else (0, 0, replay)


def check_replays(virtual: Virtual, tally: Tally, quick: bool) -> None:
    """Compares times of collectives with those of their replay in the simulator.

    What is compared is the time of more rounds of a collective: the time from the first message to the last one of a job with
    many rounds, less that of a job with few. Both jobs have the same start, in which ranks get to know each other.
    """
    cases = [("allreduce", 65536), ("alltoall", 8192)]
    if not quick:
        cases += [("barrier", 0), ("allreduce", 8), ("allreduce", 1 << 20), ("bcast", 1 << 18), ("alltoall", 65536)]
    for name, size in cases:
        few = whole_times(virtual, name, size, 5)
        many = whole_times(virtual, name, size, 25)
        recorded, simulated = many[0] - few[0], many[1] - few[1]
        problem, note = None, ""
        if not (few[0] and many[0]):
            problem = (many if few[0] else few)[2].why()
        else:
            note = f"20 rounds: {recorded:.1f} us, simulated {simulated:.1f} us"
            difference = abs(simulated / recorded - 1) if recorded > 0 else math.inf
            problem = None if difference <= NEAR else f"they differ by {difference:.1%}, expected {NEAR:.0%} at most"
        output = few[2].output + many[2].output
        tally.add(f"{name} of {size} bytes, replayed", problem, few[2].seconds + many[2].seconds, note, output)


def check_results(virtual: Virtual, tally: Tally, quick: bool) -> None:
    """Runs programs that verify their results, under MPICH or under every MPI."""
    for name, mpi in MPIS.items():
        if quick and name != "mpich":
            continue
        if not mpi.python.exists():
            print(f"SKIPPED {mpi.title}: it is not installed")
            continue
        for program in ("sums", "comms") if quick else ("sums", *mpi.tests):
            job = run_program(
                program,
                *([] if program == "sums" else ["--quick"]),
                mpi=mpi,
                ranks=4,
                timeout=300,
                at_least=FLOOR.get(program, 1 << 20),
                launch=lambda command: [*virtual.command("leaf-spine:2x2x2"), *command],
            )
            job.add_to(tally, f"{program}: {mpi.title}, 4 ranks")


def check_computation(virtual: Virtual, tally: Tally) -> None:
    """Uses CPU time between two barriers: the rank's own clock shows it at once, those of others after the barrier, and the report
    as well. Repeats this, because ranks leave the first barrier at times that depend on what the CPU did."""
    seconds = 0.2
    least, most = LEAST_COMPUTED * seconds, MOST_COMPUTED * seconds
    problem, took, output = None, 0.0, ""
    times: list[float] = []
    for _ in range(REPETITIONS):
        result = virtual.run_job("star:4", 4, "compute", seconds, compute="cpu")
        line = r"^job: rank \d+: ([\d.]+) s between two barriers$|^job: the clock of rank 0 shows ([\d.]+) s$"
        times = [float(one or other) for one, other in re.findall(line, result.output, re.M)]
        computed = re.search(r"^ +rank 0: computed ([\d.]+) s", result.output, re.M)
        took += result.seconds
        output = result.output
        if not result.ok or len(times) != 5 or not computed:
            problem = result.why() if not result.ok else "no times"
        elif not all(least <= time <= most for time in times):
            problem = f"{times} s, expected {least:g} to {most:g}"
        elif float(computed[1]) < least:
            problem = f"the report says that rank 0 has computed for {computed[1]} s, expected {least:g} or more"
        if problem:
            break
    note = ", ".join(f"{time:.4f}" for time in times)
    tally.add(f"{seconds:g} s of CPU time", problem, took, note, output)


class Threaded(NamedTuple):
    """A job of fabtests/virtual/threads.c, and the bounds of its time between two barriers in seconds."""

    words: tuple[Word, ...]
    compute: str
    least: float
    most: float


# The longest time of a collective beside a progress thread, as a multiple of one without. The thread polls while the machine
# has no processor for the program; each such poll makes the clock a little late.
MOST_BESIDE = 4
# CPU time that threads use, in seconds. A job that polls for a time ends up to a quarter of it later.
USED, POLLED = 0.2, 20e-6
THREADED = (
    Threaded(("join", USED), "cpu", LEAST_COMPUTED * USED, MOST_COMPUTED * USED),
    Threaded(("join", USED, 3), "cpu", LEAST_COMPUTED * USED, MOST_COMPUTED * USED),
    Threaded(("beside", USED, 2), "cpu", LEAST_COMPUTED * USED, MOST_COMPUTED * USED),
    Threaded(("polls", USED), "cpu", LEAST_COMPUTED * USED, MOST_COMPUTED * USED),
    # Computation takes no time here; the second thread alone would advance the clock.
    Threaded(("polls", USED), "none", 0, 1e-3),
    # The other rank no longer waits for a process that computes for two seconds.
    Threaded(("polls", 2.5), "none", 0, 1.5),
    Threaded(("sleeps", USED), "cpu", LEAST_COMPUTED * USED, MOST_COMPUTED * USED),
    Threaded(("sends", USED / 2, 4), "cpu", LEAST_COMPUTED * USED / 2, MOST_COMPUTED * USED / 2),
    Threaded(("test", POLLED), "none", 10 * POLLED, 15 * POLLED),
)


def check_threads(virtual: Virtual, tally: Tally) -> None:
    """Threads that compute, poll or sleep beside each other take the time of the longest, and the report names ranks of which
    several threads call."""
    for words, compute, least, most in THREADED:
        name = " ".join(map(str, words))
        result = virtual.run_job("star:2", 2, *words, compute=compute, program=virtual.threads)
        found = re.search(r"^threads: \w+: ([\d.]+) s between two barriers$", result.output, re.M)
        problem = None if result.ok and found else result.why() if not result.ok else "no time"
        if found and not problem and not least <= float(found[1]) <= most:
            problem = f"{found[1]} s, expected {least:g} to {most:g}"
        several = "deviation of rank 0: several threads" in result.output
        if not problem and several != (words[0] in ("polls", "sends")):
            problem = f"the report says that several threads call: {several}"
        tally.add(f"threads: {name}, --compute {compute}", problem, result.seconds, found[1] if found else "", result.output)


# Seconds until a timer ends, and how much later at most a program that waits for it goes on: the time of its own calls.
TIMED, LATE = 0.2, 20e-6
# A program that computes until its timer ends counts its CPU time, by the tick of the kernel.
TIMED_BY = {
    "descriptor": "none",
    "event": "none",
    "alarm": "none",
    "receiving": "none",
    "signal": "none",
    "computing": "cpu",
}


def check_timers(virtual: Virtual, tally: Tally) -> None:
    """Timers of the system end in virtual time."""
    for how, compute in TIMED_BY.items():
        result = virtual.run_job("star:2", 2, how, TIMED, compute=compute, program=virtual.timers)
        found = re.search(r"^timers: \w+: ([\d.]+) s$", result.output, re.M)
        problem = None if result.ok and found else result.why() if not result.ok else "no time"
        least, most = (TIMED, TIMED + LATE) if compute == "none" else (LEAST_COMPUTED * TIMED, MOST_COMPUTED * TIMED)
        if found and not problem and not least <= float(found[1]) <= most:
            problem = f"{found[1]} s, expected {least:g} to {most:g}"
        tally.add(f"timers: {how}, --compute {compute}", problem, result.seconds, found[1] if found else "", result.output)


class Deviant(NamedTuple):
    """A job whose times depend on the machine: the program and its words, and the reasons that the report has to give for rank 0, with
    the bounds of their times in seconds."""

    program: str
    words: tuple[Word, ...]
    reasons: tuple[str, ...]
    least: float = 0.8 * TIMED
    most: float = 2 * TIMED


OUTSIDE = "waited for something outside of the network"
DEVIANTS = (
    Deviant("timers", ("socket", TIMED), ("setsockopt set SO_RCVTIMEO or SO_SNDTIMEO", OUTSIDE)),
    *(
        Deviant("timers", (by_syscall, TIMED), (OUTSIDE, "syscall waited until a timeout"))
        for by_syscall in ("raw-futex", "raw-poll", "raw-epoll", "raw-signal")
    ),
    # The clock advances by the sleep of a thread that does nothing else, because nobody else advances it.
    Deviant("threads", ("helps", TIMED), ("threads that do not call libfabric slept",)),
    # The others wait for 2 s of CPU time.
    Deviant("job", ("compute", 2.2), ("computed without a call",), 2.0, 2.5),
)


def check_deviations(virtual: Virtual, tally: Tally) -> None:
    """Jobs whose times depend on the machine: the report has one line for each reason and rank, and no others."""
    for program, words, reasons, least, most in DEVIANTS:
        result = virtual.run_job("star:2", 2, *words, program=getattr(virtual, program))
        found = re.findall(r"^  deviation of rank (\d+: [\w ]+)[,:] .*?([\d.]+) s", result.output, re.M)
        kinds, expected = [kind for kind, _ in found], [f"0: {reason}" for reason in reasons]
        problem = result.why() if not result.ok else None
        if not problem and kinds != expected:
            problem = f"deviations {kinds}, expected {expected}"
        elif not problem and (hash_of(result)[1] or not all(least <= float(time) <= most for _, time in found)):
            problem = (
                f"deviations of {[time for _, time in found]} s, expected {least:g} to {most:g}; the run is not repeatable"
            )
        tally.add(f"deviations are listed: {program} {words[0]}", problem, result.seconds, output=result.output)


def check_refused_programs(virtual: Virtual, tally: Tally) -> None:
    """A static program does not load the time library: it is refused before it starts, also behind a launcher."""
    program = compile_c([FABTESTS / "virtual" / "static.c"], TARGET / "virtual" / "static", ("-static",), libraries=())
    for words in ([program], MPIS["mpich"].command(2, [program])):
        result = run([*virtual.command("star:2"), *map(str, words)], MPIS["mpich"].plain_environment(), SOON)
        why = f"run: {program} cannot run in virtual time: it is static"
        problem = None if result.code == 2 and why in result.output else f"{result.why()}, expected status 2 and: {why}"
        tally.add(f"a static program after {len(words) - 1} words", problem, result.seconds, output=result.output)


def check_progress_thread(virtual: Virtual, tally: Tally) -> None:
    """MPICH's progress thread polls beside the program: a collective takes about the time that it takes without."""
    times = []
    for env in ({}, {"MPIR_CVAR_ASYNC_PROGRESS": "1"}):
        result = virtual.run_job("star:2", 2, "allreduce", 8, 100, env=env)
        found = re.search(r"^job: allreduce 8: ([\d.]+) us", result.output, re.M)
        if not result.ok or not found:
            tally.add("progress thread", result.why() if not result.ok else "no time", result.seconds, output=result.output)
            return
        times.append(float(found[1]))
    alone, beside = times
    problem = None if beside <= MOST_BESIDE * alone else f"{beside} us, and {alone} us without the thread"
    tally.add("a progress thread beside the program", problem, result.seconds, f"{beside} us, {alone}", result.output)


def check_launches(virtual: Virtual, tally: Tally) -> None:
    """A script that starts two jobs, a job that spawns ranks, and a job whose ranks have a PID namespace of their own."""
    mpi = MPIS["mpich"]
    launch = " ".join(map(shlex.quote, mpi.command(2, [virtual.job, "allreduce", 65536, 5])))
    env = mpi.plain_environment()
    command = [*virtual.command("star:2"), "sh", "-c", f"{launch} && {launch}"]
    result = run(command, env)
    times = re.findall(r"^job: allreduce 65536: ([\d.]+) us", result.output, re.M)
    problem = result.why() if not result.ok else None if len(times) == 2 and times[0] == times[1] else f"times: {times}"
    tally.add("two launches in a script", problem, result.seconds, " ".join(times), result.output)
    result = virtual.run_job("star:4", 2, "spawn", program=virtual.threads)
    there = "the spawned ranks were in the barrier" in result.output
    problem = result.why() if not result.ok else None if there else "they were not in the barrier"
    tally.add("MPI_Comm_spawn", problem, result.seconds, output=result.output)
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    command = [*virtual.command("star:2", compute="cpu"), *inside, *mpi.command(2, [virtual.job, "compute", USED])]
    result = run(command, env)
    found = re.search(r"^job: rank 0: ([\d.]+) s between two barriers$", result.output, re.M)
    problem = None if result.ok and found else result.why() if not result.ok else "no time"
    if found and not problem and not LEAST_COMPUTED * USED <= float(found[1]) <= MOST_COMPUTED * USED:
        problem = f"{found[1]} s of computation, expected {USED}"
    tally.add("ranks in another PID namespace", problem, result.seconds, found[1] if found else "", result.output)


# How a job misbehaves, and what is said about it.
MISBEHAVIOUR = {
    "no-finalize": r"rank 1 .*(ended|left)",
    "killed": r"signal 9|rank 1 .*(ended|left)",
    "fork": r"MPI_Send of the child: (?s:.*)No such device",
    "deadlock": r"ends the job: deadlock(?s:.*)rank 0 waits; its clock shows",
}


def check_misbehaviour(virtual: Virtual, tally: Tally, quick: bool) -> None:
    """Runs jobs that misbehave: each has to end soon, with a sentence that says why. A deadlock lasts ten seconds."""
    for how, sentence in MISBEHAVIOUR.items():
        if quick and how == "deadlock":
            continue
        result = virtual.run_job("star:4", 3, how, timeout=SOON)
        problem = None
        if result.code is None:
            problem = result.why()
        elif result.ok and how in ("killed", "deadlock"):
            problem = "it succeeded"
        elif not re.search(sentence, result.output):
            problem = f"nothing in its output matches '{sentence}'"
        elif "no process used squall" in result.output:
            problem = "squall says that no process used it"
        tally.add(f"a job that misbehaves: {how}", problem, result.seconds, output=result.output)


def check_dying_spine(virtual: Virtual, tally: Tally) -> None:
    """Lets a spine die under a stencil program: the result is right, and the longest round shows it."""
    timeline = virtual.folder / "timeline"
    timeline.write_text("100us fail-switch spine1\n")
    results = []
    for options in ((), ("--timeline", timeline)):
        words: list[Word] = ["--rate", "400G", *options]
        results.append(virtual.run_job("leaf-spine:8x4x2", 16, "stencil", 16384, 50, 4, options=words))
    quiet, dying = results
    lines = [re.search(r"^job: stencil: .*$", result.output, re.M) for result in results]
    lost = re.search(r"; (?:.*, )?(\d+) lost", dying.output)
    problem = None
    if not (quiet.ok and dying.ok and lines[0] and lines[1]):
        problem = f"{quiet.why()}, {dying.why()}"
    elif not lost or lost[1] == "0":
        problem = "no packet was lost on the spine that died"
    note = "; ".join(line[0].removeprefix("job: stencil: ") for line in lines if line)
    tally.add("a spine dies under a stencil", problem, quiet.seconds + dying.seconds, note, dying.output)


class Outcome(NamedTuple):
    """What became of a permutation: when the last message had arrived (us; 0 if it failed), and the packets lost."""

    result: Result
    us: float
    lost: int


class DeadLink:
    """Plan 04c for fewer hosts: a permutation between two leaves, while routing does not notice that a link is dead.

    Hosts have links of 100 Gb/s, and leaves all of what their hosts can send, in links to eight spines.
    """

    HOSTS, LEAVES, SPINES, BYTES = 32, 2, 8, 16 << 20
    # The link dies so long after the messages have begun, us; a job begins them so long after virtual time.
    DIES, BEGINS = 100, 20_000
    LINK = "leaf0-spine0"
    # Seeds of the permutation and of hashing: those of the simulator, and those of jobs.
    SEEDS, OF_JOBS = range(1, 13), range(1, 4)
    # The simulator's number of paths; endpoints have 8 by default.
    SPREAD = ("--lb", "reps", "--paths", "64")
    # Times and losses may lie outside of the simulator's range by this share of its ends.
    MARGIN = NEAR

    def __init__(self, virtual: Virtual) -> None:
        self.virtual = virtual
        rack = self.HOSTS // self.LEAVES
        uplink = 100 * rack // self.SPINES
        links = f"gbps=100,uplink_gbps={uplink},link_ns=600,switch_ns=400"
        self.topology = f"leaf-spine:{self.LEAVES}x{self.SPINES}x{rack},{links}"

    def partners(self, seed: int) -> list[int]:
        """Returns the host to which each sends, below the other leaf."""
        chance = random.Random(seed)
        half = self.HOSTS // 2
        return chance.sample(range(half, self.HOSTS), half) + chance.sample(range(half), half)

    def timeline(self, begins: int) -> pathlib.Path:
        """Writes what happens to the network if messages begin at `begins`."""
        file = self.virtual.folder / f"dies-{begins}"
        file.write_text(f"{begins + self.DIES}us black-hole {self.LINK}\n")
        return file

    def options(self, seed: int, begins: int) -> list[Word]:
        return [*self.SPREAD, "--seed", seed, "--timeline", self.timeline(begins)]

    def simulate(self, seed: int) -> Outcome:
        """Simulates the permutation of a seed."""
        load = self.virtual.folder / f"permutation-{seed}.cm"
        flows = [f"{host}->{to} start 0 size {self.BYTES}" for host, to in enumerate(self.partners(seed))]
        load.write_text("\n".join([f"Nodes {self.HOSTS}", f"Connections {len(flows)}", *flows, ""]))
        words: list[Word] = ["sim", "--topo", self.topology, "--load", load, "--format", "json", *self.options(seed, 0)]
        result = run([self.virtual.program, *words], timeout=120)
        if not result.ok:
            return Outcome(result, 0, 0)
        found = json.loads(result.output)
        return Outcome(result, max(flow["fct_us"] for flow in found["flows"]), found["network"]["dropped_dead"])

    def run_job(self, seed: int) -> Outcome:
        """Runs the permutation of a seed in virtual time."""
        words: list[Word] = [self.BYTES, self.BEGINS, ",".join(map(str, self.partners(seed)))]
        options = self.options(seed, self.BEGINS)
        result = self.virtual.run_job(self.topology, self.HOSTS, "permutation", *words, options=options, timeout=300)
        time = re.search(r"^job: permutation: .*the longest ([\d.]+) us$", result.output, re.M)
        lost = re.search(r"; (?:.*, )?(\d+) lost", result.output)
        return Outcome(result, float(time[1]), int(lost[1])) if result.ok and time and lost else Outcome(result, 0, 0)


def check_dead_link(virtual: Virtual, tally: Tally) -> None:
    """Lets a link die under a permutation: time and losses lie where they lie in the simulator with several seeds."""
    plan = DeadLink(virtual)
    simulated = [plan.simulate(seed) for seed in plan.SEEDS]
    jobs = [plan.run_job(seed) for seed in plan.OF_JOBS]
    failed = [outcome.result for outcome in simulated + jobs if not outcome.us]
    problem = None
    if failed:
        problem = failed[0].why()
    elif not all(within(job.us, [other.us for other in simulated], plan.MARGIN) for job in jobs):
        problem = f"times are more than {plan.MARGIN:.0%} outside of the simulator's range"
    elif not all(within(job.lost, [other.lost for other in simulated], plan.MARGIN) for job in jobs):
        problem = f"losses are more than {plan.MARGIN:.0%} outside of the simulator's range"
    note = f"{figures(jobs)}; simulated {figures(simulated)}"
    seconds = sum(outcome.result.seconds for outcome in simulated + jobs)
    tally.add("a link dies under a permutation", problem, seconds, note, (failed or [jobs[0].result])[0].output)


def figures(outcomes: Sequence[Outcome]) -> str:
    """Returns the ranges of the outcomes of several seeds."""
    times, losses = [outcome.us for outcome in outcomes], [outcome.lost for outcome in outcomes]
    return f"{min(times):.0f} to {max(times):.0f} us, {min(losses)} to {max(losses)} packets lost"


def within(value: float, expected: Sequence[float], margin: float) -> bool:
    """Returns whether a value lies in the range of those expected, or beyond its ends by a share of them."""
    return min(expected) * (1 - margin) <= value <= max(expected) * (1 + margin)


def check_many_ranks(virtual: Virtual, tally: Tally) -> None:
    """Runs jobs of 64 and 256 ranks."""
    for ranks, topology, size, rounds in ((64, "fat-tree:128:4", 65536, 3), (256, "fat-tree:1024:1", 8, 3)):
        result = virtual.run_job(topology, ranks, "allreduce", size, rounds, timeout=300)
        found = re.search(r"^job: allreduce .*$", result.output, re.M)
        problem = None if result.ok and found else result.why() if not result.ok else "no result"
        note = found[0].removeprefix("job: ") if found else ""
        tally.add(f"{ranks} ranks", problem, result.seconds, note, result.output)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="at most a minute: MPICH alone, and few ranks")


def main(args: argparse.Namespace) -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        virtual = Virtual(pathlib.Path(folder))
        check_round_trips(virtual, tally)
        check_facilities(virtual, tally)
        check_probes(virtual, tally)
        check_inner_round_trips(virtual, tally)
        check_shared_cards(virtual, tally)
        check_places(virtual, tally)
        for hosts in ("0-7", "0x4,7x4"):
            check_repetition(virtual, tally, hosts)
        check_replays(virtual, tally, args.quick)
        check_computation(virtual, tally)
        check_threads(virtual, tally)
        check_timers(virtual, tally)
        check_deviations(virtual, tally)
        check_refused_programs(virtual, tally)
        check_progress_thread(virtual, tally)
        check_launches(virtual, tally)
        check_misbehaviour(virtual, tally, args.quick)
        check_results(virtual, tally, args.quick)
        if not args.quick:
            check_dying_spine(virtual, tally)
            check_dead_link(virtual, tally)
            check_many_ranks(virtual, tally)
    return tally.finish()
