"""Show squall beside libfabric's tcp on this machine in five lines, then an MPI job on an emulated network with a report.

same host     64 B through shared memory; a program of libfabric (fi_perf), as in ci/run bench host
cable         64 B and 1 MiB under MPICH, 2 ranks in network namespaces that a virtual cable of MTU 1500 joins
lossy cable   64 KiB where 1 % of the packets are lost; fi_perf, as in ci/run bench loss
dying spine   MPICH, 4 ranks behind the kernel's routers; every byte compared, as in ci/run suite netns
emulator      MPICH, 8 ranks by `squall run --on` on a leaf-spine with a slow and a dying link, as in ci/run suite live

On a fresh Debian 12 machine this first installs what it shows (ci/run setup demo) and builds the provider (ci/build). The
providers take turns; figures are medians of the rounds, factors medians of the ratios within the rounds. Network namespaces
need root, or a kernel on which users may create them; where there are none, the lines that need them say so.
"""

import argparse
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall_ci.benchmarks import loss, perf
from squall_ci.benchmarks.networks import ADDRESSES, cable, measure, PROVIDERS
from squall_ci.hosts import ENVIRONMENT
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces
from squall_ci.paths import die, RUN, say, TARGET
from squall_ci.programs import fi_perf, processor, squall
from squall_ci.rounds import collect, ratio
from squall_ci.suites import live, netns

REPORT = TARGET / "demo.html"
# The seconds of the job on the emulated network.
EMULATED_SECONDS = 6.0
# The percentage of the packets that the lossy cable drops.
LOST = 1.0
# Words of fi_perf.
SAME_HOST, LOSSY = "lat:64:20000", "lat:65536:100"
# Sizes and repetitions of the ping-pong over the cable.
SIZES = {64: 1000, 1 << 20: 40}
# MPI_Init on the tcp of libfabric 2.5 fails now and then (fi_enable returns EBADF), and its job then hangs.
REPEATS = {"squall": 0, "tcp": 2}
# The seconds after which a ping-pong is taken to hang.
PATIENCE = 20.0
# The load average of a processor from which on the figures say little.
BUSY = 0.5
# A new user and network namespace, in which a user may make others. /run holds the names of network namespaces.
OWN_NAMESPACE = ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c"]
PREPARE_NAMESPACE = 'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"'


def line(what: str, unit: str, samples: Mapping[str, Sequence[float]], how: str) -> str:
    """Returns the line of a measurement, by provider, in which less is better."""
    ours, theirs = (samples[provider] for provider in PROVIDERS)
    medians = [statistics.median(values) for values in (ours, theirs)]
    one, other = (f"{median:{'.3g' if median < 1000 else '.0f'}} {unit}" for median in medians)
    return f"{what:48} squall {one:>8}  tcp {other:>8}  {ratio(theirs, ours):6.2f} x  {how}"


def figures_of(provider: str, run: Callable[[str], tuple[str | None, Any]]) -> Any:
    """Runs a job of MPICH, which returns its problem and its figures, and returns the figures; exits if it fails."""
    problem, figures = run(provider)
    repeats = REPEATS[provider]
    while problem and repeats:
        repeats -= 1
        problem, figures = run(provider)
    if problem:
        die(f"MPICH on {provider}: {problem}", 1)
    return figures


def same_host(args: argparse.Namespace) -> Iterator[str]:
    """Measures half a round trip between two processes of this host."""

    def one(name: str) -> float:
        problem, values = perf.perf(perf.TABLES["host"].sides[name], {}, SAME_HOST)
        if problem:
            die(f"{name}: {problem}", 1)
        return values[SAME_HOST]

    samples = collect(PROVIDERS, args, one)
    yield line("same host, 64 B half round trip", "us", samples, f"fi_perf, median of {args.rounds}")


def mpi_over_a_cable(args: argparse.Namespace) -> Iterator[str]:
    """Measures half a round trip of MPI between two namespaces."""
    plan = [f"{size}:{count}" for size, count in SIZES.items()]
    with cable(1500) as (_, net), net.hydra(dict(zip(ADDRESSES, net.nodes))) as launch:

        def one(provider: str) -> tuple[str | None, Any]:
            job = run_program(
                "perf", *plan, provider=provider, timeout=PATIENCE, at_least=1 << 20, env=ENVIRONMENT, launch=launch
            )
            return job.problem and f"{job.problem}\n{job.output[-1500:]}", job.figures

        samples = collect(PROVIDERS, args, lambda provider: figures_of(provider, one))
    for size, name in zip(SIZES, ("64 B", "1 MiB")):
        of_size = {who: [times[f"ping-pong {size}"] / 2 for times in rounds] for who, rounds in samples.items()}
        yield line(f"clean cable, MPI, {name} half round trip", "us", of_size, f"MPICH, median of {args.rounds}")


def lossy_cable(args: argparse.Namespace) -> Iterator[str]:
    """Measures half a round trip over a cable that loses packets."""
    with loss.cable_without_offloads() as (where, net):
        loss.lose(net, LOST)
        samples = collect(PROVIDERS, args, lambda provider: measure(where, provider, [LOSSY])[LOSSY])
        if not loss.dropped(net):
            die("no packet was dropped: nftables is there and does not work", 1)
    what = f"{LOST:g} % of the packets lost, 64 KiB half round trip"
    yield line(what, "us", samples, f"fi_perf, median of {args.rounds}")


def dying_spine(_: argparse.Namespace) -> Iterator[str]:
    """Measures the longest time in which no message reached some rank while a spine dies."""
    waits = {}
    with netns.Network(9000) as network:
        for provider in PROVIDERS:
            figures = figures_of(provider, lambda provider: netns.job(network, provider)[:2])
            waits[provider] = [1e3 * figures["still_s"]]
    yield line("spine dies, MPI: longest standstill", "ms", waits, "MPICH, 4 ranks, one job each")


def emulated_job(_: argparse.Namespace) -> Iterator[str]:
    """Runs a job over an emulated network that fails, and writes a report of it."""
    job, crossed = live.run_failing(EMULATED_SECONDS, {}, REPORT)
    if job.problem or not crossed:
        die(f"MPICH on an emulated network: {job.problem or 'no packet was lost'}\n{job.output[-1500:]}", 1)
    rate, wait = job.figures["total_gbps"], job.figures["longest_s"]
    yield (
        f"emulated leaf-spine, a link dies under 8 ranks: {rate:.2f} Gb/s in total, longest wait {wait:.2f} s, "
        f"{crossed[3]} packets lost, every byte compared"
    )
    yield f"its queues, links and flows over time: {REPORT}"


@dataclass(frozen=True)
class Step:
    """A part of the demo: it yields the lines that it prints."""

    what: str
    seconds: int
    lines: Callable[[argparse.Namespace], Iterator[str]]
    namespaces: bool = True

    def run(self, args: argparse.Namespace, obstacle: str) -> bool:
        """Prints the lines, or why there are none. Returns whether nothing failed."""
        if self.namespaces and obstacle:
            print(f"not measured: {self.what}: {obstacle}", flush=True)
            return True
        say(f"{self.what}: about {self.seconds} s")
        try:
            for text in self.lines(args):
                print(text, flush=True)
            return True
        except subprocess.CalledProcessError as error:
            why = f"{shlex.join(error.cmd)}: {(error.stderr or '').strip()}"
        except SystemExit as left:
            # A signal ends the demo, a failed measurement only its step.
            if left.code not in (1, 2):
                raise
            why = "see above"
        print(f"failed: {self.what}: {why}", flush=True)
        return False


STEPS = (
    Step("64 B between two processes of this host", 5, same_host, namespaces=False),
    Step("MPI ping-pong over a virtual cable", 20, mpi_over_a_cable),
    Step(f"64 KiB over a cable that loses {LOST:g} % of the packets", 10, lossy_cable),
    Step("MPI job while a spine dies", 30, dying_spine),
    Step("MPI job over an emulated leaf-spine with a slow and a dying link", 10, emulated_job, namespaces=False),
)


def enter_namespace() -> None:
    """Continues as root of a user namespace, in which network namespaces can be made; returns if the kernel refuses one."""
    os.environ["PATH"] += f"{os.pathsep}/usr/sbin{os.pathsep}/sbin"
    enter = [*OWN_NAMESPACE, PREPARE_NAMESPACE, "sh"]
    if subprocess.run([*enter, "ip", "netns", "add", "probe"], capture_output=True).returncode == 0:
        os.execvp(enter[0], [*enter, str(RUN), *sys.argv[1:], "--no-setup"])


def find_obstacle() -> str:
    """Returns why no network namespaces can be made here and what to do, or an empty string."""
    if os.geteuid() != 0:
        return 'it needs network namespaces; run sudo env PATH="$PATH" ci/demo --no-setup'
    for program in ("ip", "tc", "sysctl", "nft", "ethtool"):
        if not shutil.which(program):
            return f"{program} is missing; run ci/run setup demo"
    try:
        with Namespaces(["probe"]):
            return ""
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made ({error.stderr.strip()}); in a container, run it privileged"


def machine() -> str:
    """Returns the processor and the kernel of this machine in words."""
    return f"{os.cpu_count()} cores ({processor()}), Linux {platform.release()}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="figures are medians of so many interleaved rounds")
    parser.set_defaults(quick=False)


def main(args: argparse.Namespace) -> int:
    if not args.no_setup:
        say("compiling the program squall: 3 to 6 minutes the first time, else 1 s")
        squall()
        fi_perf()
    if os.geteuid() != 0:
        enter_namespace()
    begun, load, obstacle = time.monotonic(), os.getloadavg()[0], find_obstacle()
    print(f"squall beside libfabric's tcp on {machine()}; x: times as fast\n", flush=True)
    if load > BUSY * (os.cpu_count() or 1):
        print(
            f"the load average is {load:.1f}: other programs delay both, so measure again when they have ended\n", flush=True
        )
    passed = [step.run(args, obstacle) for step in STEPS]
    print(
        "\nSquall loses on a clean cable with messages of 16 to 128 KiB (ci/run bench networks prints every size), and where "
        f"ranks outnumber cores (ci/run bench mpi).\nDone in {time.monotonic() - begun:.0f} s."
    )
    return 0 if all(passed) else 1
