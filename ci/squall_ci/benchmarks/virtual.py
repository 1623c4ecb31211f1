"""Print what unmodified programs do in virtual time on networks of 100 to 800 Gb/s: the tables of docs/virtual-time.md.

allreduce  IMB-MPI1 Allreduce on 64 hosts, by rate, congestion control and path selection, without computation. IMB runs under
           MPICH, whose library has the same ABI.
spine      a stencil program on 16 hosts at 400 Gb/s while a spine dies, by path selection
rates      which of 100 to 800 Gb/s the same program needs, 64 ranks on 8 hosts, by what is assumed of placement, latencies, calls,
           cards and computation
overhead   what work of this provider costs on this machine by size, for --overhead: by packets over the loopback interface, and
           through shared memory
real       small jobs of two ranks over the loopback interface in real time, and in virtual time over a network with its measured
           parameters
bounds     what a run costs in real time beside what is aimed at: a hand-over to ranks that only sleep, IMB-MPI1 Allreduce on 64
           hosts under Intel MPI, and an alltoall of 1 MiB beside `squall sim` with its messages

Names select tables. The first three repeat themselves exactly unless `squall` says otherwise. The others depend on this processor,
and on who else uses it.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from squall_ci.mpis import MPIS
from squall_ci.paths import die, need
from squall_ci.process import Result, run, Word
from squall_ci.programs import fi_perf
from squall_ci.rounds import environment, ratio
from squall_ci.suites.virtual import Virtual
from squall_ci.tally import table

HOSTS = "leaf-spine:8x8x8"
CONTROLS = ("nscc", "swift", "dcqcn", "none")
# FI_SQUALL_LB of the two path selections.
SELECTIONS = ("reps", "ecmp")
# How long routing takes to avoid a dead spine, us, by name.
FAILURES = {"none": 0, "routed round after 100 us": 100, "after 5 ms": 5000}
# Seconds of real time for a job.
PATIENCE = 300.0
# The transports whose calls are measured, and what FI_SQUALL_SHM is for them.
TRANSPORTS = {"packets": "no", "shared memory": "yes"}
# Sizes of messages between which the time of a byte is measured. The large one takes three packets of the loopback interface.
SMALL, LARGE = 64, 32768
# Largest difference of a virtual time from a real one, as a share of it, that the design of virtual time allows.
TOLERANCE = 0.15


def imb() -> pathlib.Path:
    """Returns IMB-MPI1, which comes with Intel MPI."""
    benchmark = MPIS["impi"].venv / "bin" / "IMB-MPI1"
    if not benchmark.exists():
        die("IMB-MPI1 is missing: run ci/run setup mpi first")
    return benchmark


def allreduce(virtual: Virtual, quick: bool) -> None:
    """Prints times of IMB's Allreduce."""
    mpi = MPIS["mpich"]
    benchmark = imb()
    ranks, topology = (16, "leaf-spine:4x4x4") if quick else (64, HOSTS)
    sizes = virtual.folder / "sizes"
    sizes.write_text("65536\n1048576\n")
    words: list[Word] = [benchmark, "-npmin", ranks, "-iter", 2, "-iter_policy", "off", "-msglen", sizes, "Allreduce"]
    env = mpi.plain_environment() | {"LD_LIBRARY_PATH": str(mpi.venv / "lib")}
    rows = []
    for rate in ("100G", "400G", "800G"):
        for control in CONTROLS:
            row = [rate, control]
            for selection in SELECTIONS:
                options = ["--rate", rate, "--cc", control, "--lb", selection]
                result = run([*virtual.command(topology, *options), *mpi.command(ranks, words)], env, PATIENCE)
                times = re.findall(r"^ +(?:65536|1048576) +2 +[\d.]+ +([\d.]+) ", result.output, re.M)
                row += times if result.ok and len(times) == 2 else [result.why(), "-"]
            rows.append(row)
            print(f"{' '.join(row)}", flush=True)
    heads = [f"{size}, {selection}" for selection in SELECTIONS for size in ("64 KiB", "1 MiB")]
    print(f"\nIMB-MPI1 Allreduce, {ranks} ranks on {topology}, the slowest rank, us:\n")
    print(table(["rate", "control", *heads], rows, left=(0, 1)), end="\n\n")


def spine(virtual: Virtual, quick: bool) -> None:
    """Prints what a dying spine does to a stencil program."""
    timeline = virtual.folder / "timeline"
    timeline.write_text("300us fail-switch spine1\n")
    rows = []
    for selection in SELECTIONS:
        for name, dying in FAILURES.items():
            options: list[Word] = ["--rate", "400G", "--lb", selection]
            if dying:
                options += ["--timeline", timeline, "--reroute-us", dying]
            rounds = 20 if quick else 100
            result = virtual.run_job("leaf-spine:8x4x2", 16, "stencil", 16384, rounds, 4, options=options, timeout=PATIENCE)
            found = re.search(r"^job: stencil: ([\d.]+) us a round, the longest ([\d.]+) us$", result.output, re.M)
            lost = re.search(r"; (?:.*, )?(\d+) lost", result.output)
            figures = [found[1], found[2], lost[1] if lost else "-"] if result.ok and found else [result.why(), "-", "-"]
            rows.append([selection, name, *figures])
    print("A stencil program, 16 ranks on leaf-spine:8x4x2 at 400 Gb/s, 128 KiB to each neighbour, without computation:\n")
    print(table(["paths", "dead spine", "us a round", "longest round, us", "packets lost"], rows, left=(0, 1)), end="\n\n")


class RealTime(NamedTuple):
    """What a run in virtual time cost: real seconds, events of the network a second, and microseconds for a hand-over with the work of
    its rank."""

    seconds: float
    events: float
    hand_over: float


def real_time_of(result: Result) -> RealTime:
    """Returns what `squall run --virtual` printed about the real time of a run."""
    line = r"virtual time: [\d.]+ s in ([\d.]+) s; (\d+) events .* hand-overs \(([\d.]+) us each,"
    found = re.search(line, result.output)
    need(result.ok and found, f"{result.why()}\n{result.output}")
    seconds, events, hand_over = (float(found[i]) for i in (1, 2, 3)) if found else (1.0, 0.0, 0.0)
    return RealTime(seconds, events / seconds, hand_over)


# Targets of the design of virtual time: the real time of a hand-over from the emulator to a rank (us) and of the Allreduce (s), and
# the most that events of the simulator a second may be, as a multiple of those of a job with large messages.
HAND_OVER, ALLREDUCE, SLOWER = 4, 30, 3
# Numbers of ranks whose hand-overs are measured while they do nothing but sleep.
NAPPERS = (2, 8, 64)


def bounds(virtual: Virtual, quick: bool) -> None:
    """Prints what runs cost in real time, beside the bounds that are aimed at."""
    mpi = MPIS["impi"]
    benchmark = imb()
    ranks, iterations = (16, 2) if quick else (64, 20)
    words: list[Word] = [
        benchmark,
        "-npmin",
        ranks,
        "-iter",
        iterations,
        "-iter_policy",
        "off",
        "-msglog",
        "3:20",
        "Allreduce",
    ]
    command = [*virtual.command("fat-tree:128:4"), *mpi.command(ranks, words)]
    job = real_time_of(run(command, mpi.plain_environment(), PATIENCE))
    record = virtual.folder / "alltoall"
    options: list[Word] = ["--record", record]
    large = real_time_of(
        virtual.run_job("leaf-spine:4x4x4", 16, "alltoall", 1 << 20, 1 if quick else 8, options=options, timeout=PATIENCE)
    )
    result = run([virtual.program, "sim", "--trace", record], timeout=PATIENCE)
    found = re.search(r"^ *(?:\d+ +){7}(\d+)$\n^([\d.]+) s, ", result.output, re.M)
    need(result.ok and found, f"squall sim: {result.why()}\n{result.output}")
    simulated = float(found[1]) / max(float(found[2]), 0.01) if found else 0.0
    naps = {
        ranks: real_time_of(virtual.run_job(f"star:{ranks}", ranks, "nap", 10, 300 if quick else 2000)) for ranks in NAPPERS
    }
    rows = [
        *(
            [f"a hand-over, {ranks} ranks that only sleep, us", f"{nap.hand_over:.1f}", f"{HAND_OVER}"]
            for ranks, nap in naps.items()
        ),
        [f"a hand-over with the work of its rank, Allreduce, {ranks} ranks, us", f"{job.hand_over:.1f}", ""],
        [f"Allreduce of 8 B to 1 MiB, {ranks} ranks, {iterations} iterations, s", f"{job.seconds:.0f}", f"{ALLREDUCE}"],
        ["its events of the network, million/s", f"{job.events / 1e6:.2f}", ""],
        ["an alltoall of 1 MiB, 16 ranks, million events/s", f"{large.events / 1e6:.2f}", f"{simulated / 1e6 / SLOWER:.2f}"],
        ["squall sim with its messages, million events/s", f"{simulated / 1e6:.2f}", ""],
    ]
    print(f"What runs without computation cost in real time, load {os.getloadavg()[0]:.1f}:\n")
    print(table(["", "measured", "aimed at"], rows), end="\n\n")


class Assumption(NamedTuple):
    """What a table assumes of the network, the hosts and the placement of ranks."""

    name: str
    topology: str
    options: tuple[Word, ...]


RATES = (100, 200, 400, 800)
# Hosts of a rate's table, and ranks on each.
STENCIL_HOSTS, RANKS_A_HOST = 8, 8
# Neighbours on one host, and neighbours on different hosts.
BLOCKS = ",".join(f"{host}x{RANKS_A_HOST}" for host in range(STENCIL_HOSTS))
TURNS = ",".join([f"0-{STENCIL_HOSTS - 1}"] * RANKS_A_HOST)
TWICE = "send=200,receive=200,poll=100,clock=40"
# Calls of this provider by packets, as `overhead` measured them on an EPYC processor of a virtual machine, rounded.
SOFTWARE = "send=0:4500:300,inject=4500,receive=0:3500:150,poll=650,clock=120,byte=0"
# A card of 400 Gb/s behind PCIe 4.0 x16: the example of docs/virtual-time.md.
CARD = "dma=500,rate=150M,pcie=250G"
# Two leaves of four hosts, with the defaults of links and switches; and with those of real networks (docs/virtual-time.md).
DEFAULT = "leaf-spine:2x4x4"
REAL = f"{DEFAULT},link_ns=150,switch_ns=400"
CUT = ("--switching", "cut-through")
PLACEMENTS = {"in blocks": BLOCKS, "in turn": TURNS}
ASSUMPTIONS = (
    Assumption("default latencies", DEFAULT, ()),
    Assumption("real latencies", REAL, ()),
    Assumption("the same, cut-through", REAL, CUT),
    Assumption("the same, calls take twice as long", REAL, (*CUT, "--overhead", TWICE)),
    Assumption("the same, a card with DMA", REAL, (*CUT, "--card", CARD, "--host-delay", 20_000)),
    Assumption(
        "the same, calls of this provider in software", REAL, (*CUT, "--overhead", SOFTWARE, "--host-delay", 100_000)
    ),
)
# A rate is enough if a round takes at most this many times what it takes at the highest rate.
ENOUGH = 1.1
# Bytes to each neighbour: rows of doubles. Cells of a rank: rows times columns.
STENCIL_ROWS, STENCIL_COLUMNS = 16384, 4


class Needs(NamedTuple):
    """Times of a round of the stencil program (us) for the rates of `RATES`, under an assumption about a placement."""

    placement: str
    assumption: str
    times: list[float]

    def enough(self, computation: float) -> int:
        """Returns the lowest rate at which rounds with this computation (us) take at most `ENOUGH` times the shortest."""
        limit = ENOUGH * (self.times[-1] + computation)
        return next(rate for rate, time in zip(RATES, self.times, strict=True) if time + computation <= limit)


def computation_of_round(virtual: Virtual, rounds: int) -> float:
    """Returns the microseconds that this processor computes in a round of the stencil program, which overlaps with nothing."""
    times = {}
    for compute in ("cpu", "none"):
        result = virtual.run_job(
            "star:2", 2, "stencil", STENCIL_ROWS, rounds, STENCIL_COLUMNS, compute=compute, timeout=PATIENCE
        )
        times[compute] = time_of_round(result, f"stencil, --compute {compute}")
    return max(0.0, times["cpu"] - times["none"])


def rates(virtual: Virtual, quick: bool, values: pathlib.Path | None = None) -> None:
    """Prints which rate a stencil program needs, by what is assumed. Writes the `values` for `ci/draw.py`."""
    ranks = STENCIL_HOSTS * RANKS_A_HOST
    needs = []
    for placement, hosts in PLACEMENTS.items():
        for assumption in ASSUMPTIONS:
            times = []
            for rate in RATES:
                options: list[Word] = ["--hosts", hosts, *assumption.options, "--rate", f"{rate}G"]
                words: tuple[Word, ...] = ("stencil", STENCIL_ROWS, 2 if quick else 5, STENCIL_COLUMNS)
                result = virtual.run_job(assumption.topology, ranks, *words, options=options, timeout=PATIENCE)
                times.append(time_of_round(result, f"{placement}, {assumption.name}, {rate} Gb/s"))
            needs.append(Needs(placement, assumption.name, times))
            print(f"{placement}, {assumption.name}: {' '.join(f'{time:.1f}' for time in times)} us", flush=True)
    here = computation_of_round(virtual, 20 if quick else 200)
    computations = {"none": 0.0, f"{here / 4:.0f} us": here / 4, f"{here:.0f} us": here}
    rows = [
        [
            need.placement,
            need.assumption,
            *(f"{time:.1f}" for time in need.times),
            *(str(need.enough(computation)) for computation in computations.values()),
        ]
        for need in needs
    ]
    print(
        f"\nA stencil program, {ranks} ranks on {STENCIL_HOSTS} hosts, {DEFAULT}, {STENCIL_ROWS * 8 >> 10} KiB to each of two "
        f"neighbours: us a round by Gb/s without computation, and the lowest rate within {ENOUGH - 1:.0%} of the highest without "
        f"computation, with a quarter of this processor's, and with all of it:\n"
    )
    heads = ["ranks", "assumptions", *map(str, RATES), *(f"enough, {name}" for name in computations)]
    print(table(heads, rows, left=(0, 1)), end="\n\n")
    if values:
        answers = [[need.enough(computation) for computation in computations.values()] for need in needs]
        rows_of = [need._asdict() | {"enough": enough} for need, enough in zip(needs, answers, strict=True)]
        values.write_text(json.dumps({"rates": RATES, "computations": list(computations), "needs": rows_of}))


class Calls:
    """What calls of the provider take on this machine, in nanoseconds: medians of what fi_perf measures in several rounds.

    A read that finds a message counts as a poll and as a completion in virtual time, so that `receive` is what it takes beyond
    a poll. A payload byte counts at its sender and at its receiver, so that `byte` is the mean of both.
    """

    MEASURES = ("clock:0:1000000", "poll:0:300")
    MESSAGES = ("post", "read")

    def __init__(self, samples: Mapping[str, list[float]]) -> None:
        def median(name: str, size: int = SMALL) -> float:
            return statistics.median(samples[f"{name}:{size}"])

        self.clock, self.poll = median("clock", 0), median("poll", 0)
        self.send = median("post")
        self.receive = max(0.0, median("read") - self.poll)
        growth = sum(median(name, LARGE) - median(name) for name in self.MESSAGES)
        # Picoseconds.
        self.byte = max(0.0, growth / len(self.MESSAGES) / (LARGE - SMALL) * 1000)

    @classmethod
    def words(cls, quick: bool) -> list[str]:
        """Returns the measures to name on fi_perf's command line."""
        rounds = 100 if quick else 300
        return [*cls.MEASURES, *(f"{name}:{size}:{rounds}" for name in cls.MESSAGES for size in (SMALL, LARGE))]

    def option(self) -> str:
        """Returns the value of --overhead."""
        times = (
            ("send", self.send),
            ("receive", self.receive),
            ("poll", self.poll),
            ("clock", self.clock),
            ("byte", self.byte),
        )
        return ",".join(f"{name}={time:.0f}" for name, time in times)


def measure(shm: str, words: list[str]) -> dict[str, float]:
    """Runs fi_perf once. Returns its values by measure and size."""
    env = environment("squall") | {"FI_SQUALL_SHM": shm, "FI_SQUALL_IFACE": "lo"}
    result = run([fi_perf(), "-p", "squall", *words], env, PATIENCE)
    need(result.ok, f"fi_perf: {result.why()}\n{result.output}")
    return {name: float(value) for name, value in re.findall(r"^(\w+:\d+):\d+ ([\d.e+-]+)$", result.output, re.M)}


def measure_rounds(transports: list[str], rounds: int, words: list[str]) -> dict[str, dict[str, list[float]]]:
    """Runs fi_perf on transports in interleaved rounds. Returns the values of the rounds by transport, measure and size."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in transports}
    for _ in range(rounds):
        for name in transports:
            for what, value in measure(TRANSPORTS[name], words).items():
                samples[name].setdefault(what, []).append(value)
    return samples


class Piece(NamedTuple):
    """A piece of a cost by size: for messages of `start` bytes and more, nanoseconds, and picoseconds a byte of the message."""

    start: int
    ns: int
    byte: int

    def at(self, size: int) -> float:
        """Returns the nanoseconds that the piece gives a message of `size` bytes."""
        return self.ns + self.byte * size / 1000


# A size begins a piece only if the pieces before it miss its time by more than this share.
FIT = 0.1


def pieces_of(times: Mapping[int, float]) -> list[Piece]:
    """Returns pieces for the times (ns) of some sizes: lines between neighbours, of which those that the one before fits are left
    out. No time falls with the size, and no constant is negative."""
    sizes = sorted(times)
    pieces: list[Piece] = []
    for index, size in enumerate(sizes):
        following = sizes[index + 1] if index + 1 < len(sizes) else None
        if (
            pieces
            and abs(pieces[-1].at(size) - times[size]) <= FIT * times[size]
            and (following is None or abs(pieces[-1].at(following) - times[following]) <= FIT * times[following])
        ):
            continue
        if following is None:
            slope = 0.0 if len(sizes) == 1 else max(0.0, (times[size] - times[sizes[index - 1]]) / (size - sizes[index - 1]))
        else:
            slope = max(0.0, (times[following] - times[size]) / (following - size))
        slope = min(slope, times[size] / max(size, 1)) if pieces else slope
        constant = max(0.0, times[size] - slope * size)
        piece = Piece(size if pieces else 0, round(constant), round(slope * 1000))
        if not pieces or pieces[-1][1:] != piece[1:]:
            pieces.append(piece)
    return pieces


def cost_option(name: str, pieces: Sequence[Piece]) -> str:
    """Returns the part of --overhead for a kind of work."""
    if len(pieces) == 1 and pieces[0].byte == 0:
        return f"{name}={pieces[0].ns}"
    return f"{name}=" + "/".join(f"{start}:{ns}:{byte}" for start, ns, byte in pieces)


class Works:
    """What each kind of work of the provider takes by size, in nanoseconds: medians of what fi_perf measures in several rounds.

    A call that finds something counts as a poll as well, which is subtracted. Messages that are injected are short.
    """

    SIZES = (64, 1024, 4096, 16384, 65536, 262144)
    # Measures of fi_perf by the name in --overhead; whether a poll is in them; and the largest size.
    MEASURES: Mapping[str, tuple[str, bool, int]] = {
        "send": ("post", False, SIZES[-1]),
        "inject": ("postinj", False, SIZES[0]),
        "write": ("postput", False, SIZES[-1]),
        "read": ("postget", False, SIZES[-1]),
        "receive": ("read", True, SIZES[-1]),
        "sent": ("sent", True, SIZES[-1]),
        "unexpected": ("unexp", False, SIZES[-1]),
    }

    @classmethod
    def words(cls, quick: bool) -> list[str]:
        """Returns the measures to name on fi_perf's command line."""
        rounds = 50 if quick else 200
        each = [(name, size) for name, _, most in cls.MEASURES.values() for size in cls.SIZES if size <= most]
        return [*Calls.MEASURES, *(f"{name}:{size}:{rounds}" for name, size in each)]

    def __init__(self, samples: Mapping[str, list[float]]) -> None:
        def median(name: str, size: int) -> float:
            return statistics.median(samples[f"{name}:{size}"])

        self.clock, self.poll = median("clock", 0), median("poll", 0)
        self.times = {
            work: {size: max(0.0, median(name, size) - self.poll * polls) for size in self.SIZES if size <= most}
            for work, (name, polls, most) in self.MEASURES.items()
        }

    def option(self) -> str:
        """Returns the value of --overhead."""
        costs = [cost_option(work, pieces_of(times)) for work, times in self.times.items()]
        return ",".join([*costs, f"poll={self.poll:.0f}", f"clock={self.clock:.0f}", "byte=0"])


def overhead(_virtual: Virtual, quick: bool) -> None:
    """Prints what calls of the provider cost on this machine."""
    rounds = 2 if quick else 9
    samples = measure_rounds(list(TRANSPORTS), rounds, Works.words(quick))
    works = {name: Works(of_transport) for name, of_transport in samples.items()}
    print(f"What work of the provider costs here by size, ns; medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}:\n")
    rows = [
        [f"{name}, {work}", *(f"{times[size]:.0f}" if size in times else "" for size in Works.SIZES)]
        for name, of_transport in works.items()
        for work, times in of_transport.times.items()
    ]
    print(table(["transport, work", *map(str, Works.SIZES)], rows), end="\n\n")
    for name, of_transport in works.items():
        print(f"{name}: --overhead {of_transport.option()}")
    print(flush=True)


class Loopback:
    """Parameters of an emulated network that is as fast as the loopback interface.

    They come from half round trips of fi_perf and from what calls take. Half a round trip consists of a call that sends, the
    flight of the packets, and a read that finds the message; each payload byte counts at both hosts. What calls leave of it is
    the flight: at `SMALL` bytes the latency, and its growth up to `LARGE` bytes the rate.

    On this interface the kernel delivers a packet inside of the call that sends it, and the receiver reads it while that call
    still runs. Therefore calls may account for more than half a round trip. A latency or a growth that is not positive becomes
    the shortest latency or a rate at which bytes take almost no time. The surplus of the calls stays in the virtual time.

    The network is a star of two links, so that a link has half of the latency. Its switch forwards a packet when it has all of
    it. A message of several packets therefore takes the time of its bytes and of one packet more.
    """

    TOPOLOGY = "star:2"
    # Largest UDP payload of a packet that the transport sends over this interface (docs/parameters.md).
    MTU = 16_312
    SIZES = (SMALL, LARGE)
    # Nanoseconds of a link, and Gb/s, where calls account for all of a half round trip.
    LEAST_LATENCY, MOST_RATE = 1.0, 10_000.0

    def __init__(self, calls: Calls, samples: Mapping[str, list[float]]) -> None:
        self.half = {size: statistics.median(samples[f"lat:{size}"]) * 1000 for size in self.SIZES}
        # Nanoseconds that calls take of a half round trip.
        self.calls = {size: calls.send + calls.receive + 2 * size * calls.byte / 1000 for size in self.SIZES}
        flight = {size: self.half[size] - self.calls[size] for size in self.SIZES}
        growth = flight[LARGE] - flight[SMALL]
        bits = 8 * (LARGE - SMALL + min(LARGE, self.MTU) - SMALL)
        self.rate = min(self.MOST_RATE, bits / growth) if growth > 0 else self.MOST_RATE
        self.latency = max(self.LEAST_LATENCY, flight[SMALL] / 2 - 8 * SMALL / self.rate)

    @classmethod
    def words(cls, quick: bool) -> list[str]:
        """Returns the measures to name on fi_perf's command line."""
        rounds = 1000 if quick else 10_000
        return [f"lat:{size}:{rounds}" for size in cls.SIZES]

    def options(self) -> list[Word]:
        """Returns the options of `squall run --on`."""
        return ["--rate", f"{self.rate:.3f}G", "--latency", round(self.latency), "--mtu", self.MTU]


class Case(NamedTuple):
    """A job of fabtests/virtual/job.c: its label in the table, its arguments, and its number of rounds, which is one of them."""

    name: str
    words: tuple[Word, ...]
    rounds: int


def cases(quick: bool) -> list[Case]:
    """Returns the jobs that run in real and in virtual time. Edges of the stencil have 8 KiB."""
    share = 10 if quick else 1
    stencils = {"much": (256, 1000), "some": (64, 5000), "little": (1, 10_000)}
    return [
        *(
            Case(f"stencil, {name} computation", ("stencil", 1024, rounds // share, columns), rounds // share)
            for name, (columns, rounds) in stencils.items()
        ),
        *(
            Case(f"{name} of {size} bytes", (name, size, rounds // share), rounds // share)
            for name, size, rounds in (("allreduce", 8, 10_000), ("allreduce", 65536, 2000))
        ),
    ]


def time_of_round(result: Result, what: str) -> float:
    """Returns the time of a round that a job printed, in microseconds."""
    found = re.search(r"^job: \w+(?: \d+)?: ([\d.]+) us", result.output, re.M)
    need(result.ok and found, f"{what}: {result.why()}\n{result.output}")
    return float(found[1]) if found else 0.0


def run_on_loopback(virtual: Virtual, case: Case) -> float:
    """Runs a job in real time, by packets over the loopback interface. Returns the time of a round."""
    mpi = MPIS["mpich"]
    launch = mpi.command(2, [virtual.job, *case.words])
    command: list[Word] = [virtual.program, "run", "--all", "--no-shm", "--require", "--iface", "lo", "--", *launch]
    result = run(command, mpi.plain_environment(), PATIENCE)
    need(" 0 by shared memory" in result.output, f"{case.name}: it did not run by packets\n{result.output}")
    return time_of_round(result, case.name)


def run_in_virtual_time(virtual: Virtual, case: Case, options: list[Word]) -> tuple[float, list[float]]:
    """Runs a job in virtual time. Returns the time of a round, and its parts: computed, calls and waited."""
    result = virtual.run_job(Loopback.TOPOLOGY, 2, *case.words, options=options, compute="cpu", timeout=PATIENCE)
    split = re.findall(r"computed ([\d.]+) s, calls ([\d.]+) s, waited ([\d.]+) s", result.output)
    need(split, f"{case.name}: no report of ranks\n{result.output}")
    parts = [statistics.mean(float(rank[i]) for rank in split) / case.rounds * 1e6 for i in range(3)]
    return time_of_round(result, case.name), parts


def real(virtual: Virtual, quick: bool) -> None:
    """Prints times of jobs in real time over the loopback interface, and in virtual time over a network like it."""
    rounds = 2 if quick else 9
    words = [*Calls.words(quick), *Loopback.words(quick)]
    samples = measure_rounds(["packets"], rounds, words)["packets"]
    calls = Calls(samples)
    network = Loopback(calls, samples)
    options = [*network.options(), "--overhead", calls.option()]
    for size in network.SIZES:
        print(f"half a round trip of {size} bytes: {network.half[size]:.0f} ns, of which calls {network.calls[size]:.0f} ns")
    print(f"{Loopback.TOPOLOGY} {' '.join(map(str, options))}", flush=True)
    rows, near = [], 0
    for case in cases(quick):
        pairs = [(run_on_loopback(virtual, case), run_in_virtual_time(virtual, case, options)) for _ in range(rounds)]
        on_loopback = statistics.median(time for time, _ in pairs)
        in_virtual_time = statistics.median(time for _, (time, _) in pairs)
        parts = [statistics.median(parts[i] for _, (_, parts) in pairs) for i in range(3)]
        quotient = ratio([time for _, (time, _) in pairs], [time for time, _ in pairs])
        near += abs(quotient - 1) <= TOLERANCE
        rows.append([case.name, *(f"{time:.2f}" for time in (on_loopback, in_virtual_time, quotient, *parts))])
        print(" ".join(rows[-1]), flush=True)
    heads = ["job", "real, us", "virtual, us", "virtual / real", "computed, us", "calls, us", "waited, us"]
    print("\nTime of a round with 2 ranks. Its parts in virtual time include the start and the end of the job. Medians of")
    print(f"{rounds} runs, load {os.getloadavg()[0]:.1f}; {near} of {len(rows)} within {TOLERANCE:.0%}:\n")
    print(table(heads, rows), end="\n\n")


TABLES = {"allreduce": allreduce, "spine": spine, "rates": rates, "overhead": overhead, "real": real, "bounds": bounds}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all of them otherwise")
    parser.add_argument("--quick", action="store_true", help="fewer ranks and rounds")
    parser.add_argument("--values", type=pathlib.Path, metavar="FILE", help="write the table `rates` for ci/draw.py")


def main(args: argparse.Namespace) -> int:
    unknown = [name for name in args.tables if name not in TABLES]
    if unknown:
        die(f"no such table: {', '.join(unknown)}; there are {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as folder:
        virtual = Virtual(pathlib.Path(folder))
        tables = TABLES | {"rates": functools.partial(rates, values=args.values)}
        for name in args.tables or tables:
            tables[name](virtual, args.quick)
    return 0
