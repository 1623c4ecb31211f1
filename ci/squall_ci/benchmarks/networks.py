"""Measure squall beside tcp, and beside the sockets alone, on seven networks: every size from nothing to 4 MiB.

The networks are `lo`, the loopback interface, and pairs of namespaces joined by a cable (needs root): `veth 1500` and
`veth 9000`, as fast as the processors, and cables of 10 and 25 Gb/s of either MTU, behind a shaper that delays packets by at
most 1 ms and drops the others. For each size: half of a round trip (fi_tsend, fi_trecv), and bandwidth in windows of 16 messages. Up to 1 MiB
also the same with the trains of squall's UDP port and nothing above it (net/examples/port_limit.rs), bandwidth from 4 KiB on:
this is the limit of what sockets with a header in each packet reach. A ratio above 1 means that squall is faster. A size is within reach if it takes at most 1.05
x tcp's time, or 1.15 x the sockets'.

Cables also show the processor time of both sides for some sizes, while their threads sleep until something arrives. It
is that of the two processes; what the kernel does in threads of its own is not in it.

With --frames squall's packets are also sent as frames through AF_XDP (FI_SQUALL_PORT_KIND=xdp) over the cable of MTU 1500,
in the same rounds, with a table of its own.
"""

import argparse
import contextlib
import math
import os
import re
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from squall_ci import figures
from squall_ci.namespaces import Namespaces
from squall_ci.paths import die, need
from squall_ci.process import run, Word
from squall_ci.programs import example, fi_perf
from squall_ci.rounds import add_options, collect, conclude, environment, ratio
from squall_ci.tally import table

PROVIDERS = ("squall", "tcp")
SIZES = (0, *(1 << power for power in range(23)))


@dataclass(frozen=True)
class Cable:
    """A cable between two hosts: its MTU, and its rate in Gb/s unless the processors are its only limit."""

    mtu: int
    rate: int = 0


NETWORKS = {
    "lo": None,
    "veth 1500": Cable(1500),
    "veth 9000": Cable(9000),
    **{f"{rate}G {mtu}": Cable(mtu, rate) for rate in (10, 25) for mtu in (1500, 9000)},
}
# The sizes whose processor time is measured.
COST_SIZES = (64, 64 << 10, 1 << 20)
# The addresses of the two ends of a cable.
ADDRESSES = ("10.78.0.1", "10.78.0.2")
# The largest UDP payload of squall's packets on loopback.
LOOPBACK_SEGMENT = 16_312
# The largest message that the sockets alone are measured with: more would overrun their buffers.
MOST_ALONE = 1 << 20
# The smallest message whose bandwidth is measured with them: so many shorter ones would overrun their buffers.
LEAST_STREAM = 4 << 10
# Half a round trip that is within reach: times tcp's, or times that of the sockets alone.
WITHIN_TCP, WITHIN_PORT = 1.05, 1.15
PORT = "sockets"
FRAMES = "frames"
# The kinds of measures of fi_perf, their names and units.
KINDS = {"lat": "half round trip", "bw": "bandwidth"}
UNITS = {"lat": "us", "bw": "GB/s", "cost": "ms/GB"}
COST = "processor time"
# Bytes that a measure of one size moves at most, in one direction.
MOVED = 48 << 20


# The value of each measure in each round, by contestant.
Samples = Mapping[str, Sequence[Mapping[str, float]]]


@dataclass
class Network:
    """The place where a benchmark runs: options of fi_perf, and variables for squall."""

    options: list[Word] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def cable(mtu: int, rate: int = 0) -> Iterator[tuple[Network, Namespaces]]:
    """Yields two namespaces joined by a cable of this MTU, as the place of a benchmark. A rate is in Gb/s."""
    need(os.geteuid() == 0, "namespaces need root")
    with Namespaces(["a", "b"]) as net:
        one, other = (f"{address}/24" for address in ADDRESSES)
        net.join("a", "eth0", one, "b", "eth0", other, mtu)
        if rate:
            for node in net.nodes:
                shaper = shlex.split(f"tbf rate {rate}gbit burst 256kb latency 1ms")
                net.inside(node, "tc", "qdisc", "add", "dev", "eth0", "root", *shaper)
        paths = ",".join(f"/run/netns/{net.name(node)}" for node in net.nodes)
        env = {"FI_SQUALL_IFACE": "", "FI_TCP_IFACE": "eth0"}
        yield Network(["-a", ",".join(ADDRESSES), "-n", paths], env), net


def words(sizes: Sequence[int], quick: bool) -> list[str]:
    """Returns the measures as fi_perf takes them."""
    most = 20 if quick else 1000
    found = []
    for size in sizes:
        rounds = max(6, min(most, MOVED // max(1, size) // 2))
        found.append(f"lat:{size}:{rounds}")
        if size:
            found.append(f"bw:{size}:{max(3, min(most // 4, MOVED // (16 * size)))}")
    return found


def costs(quick: bool) -> list[str]:
    """Returns the measures of processor time as fi_perf takes them."""
    most = 20 if quick else 500
    return [f"cost:{size}:{max(3, min(most, MOVED // (16 * size)))}" for size in COST_SIZES]


def measure(where: Network, who: str, plan: list[str]) -> dict[str, float]:
    """Returns the value of each measure. Queues on which threads may sleep are slower to poll: those have a run of their own."""
    own = [word for word in plan if word.startswith("cost")]
    polled = [word for word in plan if word not in own]
    return {word: value for some in (polled, own) if some for word, value in measure_run(where, who, some).items()}


def measure_run(where: Network, who: str, plan: list[str]) -> dict[str, float]:
    """Returns the value of each measure, from one run of fi_perf."""
    provider = "squall" if who == FRAMES else who
    env = environment(provider) | where.env | ({"FI_SQUALL_PORT_KIND": "xdp"} if who == FRAMES else {})
    result = run([fi_perf(), "-p", provider, *where.options, *plan], env, timeout=300)
    lines = [line.split() for line in result.output.splitlines()]
    found = {line[0]: float(line[1]) for line in lines if line and line[0] in plan}
    need("keeps its sockets" not in result.output, f"no frames: {result.output.strip()[-600:]}")
    if not result.ok or len(found) < len(plan):
        die(f"{provider}: {result.why()}: {result.output.strip()[-600:]}", 1)
    return found


def measure_port(where: Network, segment: int, plan: list[str]) -> dict[str, float]:
    """Measures round trips and bandwidth with the sockets alone."""
    words = []
    for word in plan:
        kind, size, *_ = word.split(":")
        if (kind == "lat" and int(size) <= MOST_ALONE) or (kind == "bw" and LEAST_STREAM <= int(size) <= MOST_ALONE):
            words.append(word)
    command = [example("squall-net", "port_limit"), *where.options, "-s", segment, *words]
    result = run(command, os.environ, timeout=300)
    found = {word: float(value) for word, value in re.findall(r"^(\w+:\S+) ([\d.]+)$", result.output, re.M)}
    need(result.ok and len(found) == len(words), f"port_limit: {result.why()}: {result.output.strip()[-400:]}")
    return found


def measure_one(where: Network, segment: int, plan: list[str], who: str) -> dict[str, float]:
    """Returns the value of each measure of one contestant, which may be the sockets alone."""
    return measure_port(where, segment, plan) if who == PORT else measure(where, who, plan)


def faster(word: str, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns how much faster squall is: the median of the ratios within the rounds."""
    return ratio(ours, theirs) if word.startswith("bw") else ratio(theirs, ours)


def values(samples: Samples, who: str, word: str) -> list[float]:
    """Returns what a contestant reached in each round; nothing if it was not measured."""
    return [sample[word] for sample in samples[who] if word in sample]


def median(numbers: Sequence[float]) -> str:
    """Returns the cell for the median; an empty one if there are no numbers."""
    return f"{statistics.median(numbers):.3g}" if numbers else ""


def report(name: str, plan: list[str], samples: Samples) -> None:
    """Prints a network's table, with squall beside tcp and the sockets alone."""
    rows = []
    within = []
    for size in SIZES:
        row = [f"{size}"]
        for kind in KINDS:
            word = next((word for word in plan if word.startswith(f"{kind}:{size}:")), "")
            ours, theirs, alone = (values(samples, who, word) for who in (*PROVIDERS, PORT))
            row += [median(ours), median(theirs), f"{faster(word, ours, theirs):.2f}" if word else ""]
            row.append(median(alone))
            if kind == "lat":
                times = ratio(ours, alone) if alone else math.inf
                row.append(f"{times:.2f}" if alone else "")
                within.append(faster(word, ours, theirs) >= 1 / WITHIN_TCP or times <= WITHIN_PORT)
        rows.append(row)
    head = ["squall us", "tcp us", "faster", "sockets us", "x sockets", "squall GB/s", "tcp GB/s", "faster", "sockets GB/s"]
    print(table(["bytes", *head], rows))
    summarize(name, plan, samples, "squall")
    report_costs(name, plan, samples)
    print(f"{name}: {sum(within)} of {len(within)} sizes within reach there and back\n", flush=True)


def report_costs(name: str, plan: list[str], samples: Samples) -> None:
    """Prints the processor time of both sides, a gigabyte and a message."""
    for word in plan:
        if word.startswith("cost"):
            size = int(word.split(":")[1])
            ours, theirs = (values(samples, who, word) for who in PROVIDERS)
            each = [
                f"{statistics.median(some):.3g} ms/GB ({statistics.median(some) * size * 1e-6:.3g} us each)"
                for some in (ours, theirs)
            ]
            print(
                f"{name}: {figures.bytes_of(size)}: {COST}: squall {each[0]}, tcp {each[1]}: {ratio(ours, theirs):.2f} x tcp's"
            )


def report_frames(name: str, plan: list[str], samples: Samples) -> None:
    """Prints a network's table, with squall by frames beside squall by sockets and tcp."""
    rows = []
    for size in SIZES:
        row = [f"{size}"]
        for kind in KINDS:
            word = next((word for word in plan if word.startswith(f"{kind}:{size}:")), "")
            frames, *others = (values(samples, who, word) for who in (FRAMES, *PROVIDERS))
            row += [median(frames), *map(median, others)]
            row += [f"{faster(word, frames, other):.2f}" if word else "" for other in others]
        rows.append(row)
    head = ["bytes"]
    for unit in ("us", "GB/s"):
        head += [f"frames {unit}", f"sockets {unit}", f"tcp {unit}", "x sockets", "x tcp"]
    print(table(head, rows))
    summarize(f"{name}, frames", plan, samples, FRAMES)
    print(flush=True)


def speeds(kind: str, plan: list[str], samples: Samples, who: str) -> dict[int, float]:
    """Returns how much faster than tcp a contestant is, by size."""
    words = {int(word.split(":")[1]): word for word in plan if word.startswith(kind)}
    return {size: faster(word, values(samples, who, word), values(samples, "tcp", word)) for size, word in words.items()}


def summarize(title: str, plan: list[str], samples: Samples, who: str) -> None:
    """Prints how much faster than tcp a contestant is over all sizes."""
    for kind, what in KINDS.items():
        ratios = speeds(kind, plan, samples, who).values()
        print(
            f"{title}: {what}: {statistics.geometric_mean(ratios):.2f} x tcp's speed in geometric mean, {min(ratios):.2f} at worst"
        )


def figure_name(word: str) -> str:
    """Returns the name and unit under which a measure of fi_perf is recorded."""
    kind, size, *_ = word.split(":")
    return f"{figures.bytes_of(int(size))} {KINDS.get(kind, COST)}, {UNITS[kind]}"


def figures_of(plan: list[str], samples: Samples) -> dict[str, float]:
    """Returns the medians of all sizes, and how much faster squall is over all of them, as they are recorded."""
    sides = (*PROVIDERS, PORT)
    medians = {(word, who): values(samples, who, word) for word in plan for who in sides}
    found = {f"{figure_name(word)}, {who}": statistics.median(some) for (word, who), some in medians.items() if some}
    for kind, what in KINDS.items():
        ratios = speeds(kind, plan, samples, "squall")
        found |= figures.over_all(what, ratios.values())
        found[f"{what}, worst size, B"] = min(ratios, key=lambda size: ratios[size])
    alone = [
        ratio(medians[word, "squall"], some)
        for (word, who), some in medians.items()
        if who == PORT and some and word.startswith("lat")
    ]
    return found | {
        f"half round trip, x {PORT}' time, least": min(alone),
        f"half round trip, x {PORT}' time, most": max(alone),
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, 5, record=True)
    parser.add_argument("--network", action="append", choices=NETWORKS, help="default: all of them")
    parser.add_argument("--frames", action="store_true", help="squall through AF_XDP as well, where it can be")


def main(args: argparse.Namespace) -> int:
    figures.refuse_record(args, args.quick)
    measured = {}
    for name in args.network or NETWORKS:
        wire = NETWORKS[name]
        plan = words(SIZES, args.quick) + (costs(args.quick) if wire else [])
        # A frame fits into a page only at this MTU.
        frames = args.frames and wire == Cable(1500)
        those = (*PROVIDERS, FRAMES) if frames else PROVIDERS
        # The UDP payload of a full packet of squall's.
        segment = wire.mtu - 28 if wire else LOOPBACK_SEGMENT
        with cable(wire.mtu, wire.rate) if wire else contextlib.nullcontext((Network(), None)) as (where, _):
            samples = collect((*those, PORT), args, partial(measure_one, where, segment, plan))
        print(f"## {name}\n")
        report(name, plan, samples)
        if frames:
            report_frames(name, plan, samples)
        measured[shlex.join(["bench", "networks", "--network", name])] = figures_of(plan, samples)
    return conclude(args, measured=measured)
