"""MPI between network namespaces behind kernel routers: the true socket path, and a spine that goes down in mid-job.

    ci/run netns [--providers squall,tcp] [--rate 1gbit] [--seconds 9] [--keep]

Four hosts, two leaves and two spines, each a network namespace, joined by veth pairs; the leaves balance by the hash of
addresses and ports (fib_multipath_hash_policy=1), so that the entropy in squall's UDP source port chooses the spine. Links
between leaves and spines are shaped. A permutation of large messages crosses the spines; after a third of the time one spine
dies and routing does not notice; after two thirds routing does.

The job has to end well with every byte right on squall, over both spines before the failure. tcp runs beside it for comparison.
Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN); everything it makes is gone when it ends. `N passed, N failed` comes last.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import Any

from squall_ci.job import run_job
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS, need, need_provider
from squall_ci.process import Word
from squall_ci.tally import table, Tally

HOSTS, LEAVES, SPINES = 4, 2, 2
PREFIX = "squall-"


def ip(*words: Word, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


class Network:
    """The namespaces, for as long as the `with` lasts."""

    def __init__(self, rate: str, keep: bool) -> None:
        self.rate = rate
        self.keep = keep
        self.mark = f"{PREFIX}{os.getpid()}-"

    def name(self, node: str) -> str:
        return self.mark + node

    def __enter__(self) -> "Network":
        self._clean_leftovers()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            for node in self._nodes():
                ip("netns", "del", self.name(node), check=False)

    @staticmethod
    def _nodes() -> list[str]:
        return [f"h{i}" for i in range(HOSTS)] + [f"leaf{i}" for i in range(LEAVES)] + [f"spine{i}" for i in range(SPINES)]

    @staticmethod
    def _clean_leftovers() -> None:
        """Namespaces of runs that were killed."""
        for line in ip("netns", "list", check=False).stdout.splitlines():
            found = re.match(rf"({PREFIX}(\d+)-\S+)", line)
            if found and not os.path.exists(f"/proc/{found.group(2)}"):
                ip("netns", "del", found.group(1), check=False)

    def _inside(self, node: str, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ip", "netns", "exec", self.name(node), *command], check=True, capture_output=True, text=True)

    def _join(self, a: str, a_device: str, a_address: str, b: str, b_device: str, b_address: str) -> None:
        """A veth pair with addresses on both ends."""
        ip(
            "link",
            "add",
            "name",
            a_device,
            "netns",
            self.name(a),
            "mtu",
            9000,
            "type",
            "veth",
            "peer",
            "name",
            b_device,
            "netns",
            self.name(b),
            "mtu",
            9000,
        )
        for node, device, address in ((a, a_device, a_address), (b, b_device, b_address)):
            ip("-n", self.name(node), "addr", "add", address, "dev", device)
            ip("-n", self.name(node), "link", "set", device, "up")

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.{host}.2"

    @staticmethod
    def leaf_of(host: int) -> int:
        return host * LEAVES // HOSTS

    def _build(self) -> None:
        for node in self._nodes():
            ip("netns", "add", self.name(node))
            ip("-n", self.name(node), "link", "set", "lo", "up")
            self._inside(
                node,
                "sysctl",
                "-qw",
                "net.ipv4.ip_forward=1",
                "net.ipv4.fib_multipath_hash_policy=1",
                "net.ipv4.conf.all.rp_filter=0",
                "net.ipv4.conf.default.rp_filter=0",
            )
        for host in range(HOSTS):
            leaf = f"leaf{self.leaf_of(host)}"
            self._join(f"h{host}", "eth0", f"{self.address(host)}/24", leaf, f"h{host}", f"10.77.{host}.1/24")
            ip("-n", self.name(f"h{host}"), "route", "add", "default", "via", f"10.77.{host}.1")
        for number in range(LEAVES):
            for spine in range(SPINES):
                leaf = f"leaf{number}"
                subnet = f"10.77.{100 + number * SPINES + spine}"
                self._join(leaf, f"spine{spine}", f"{subnet}.1/30", f"spine{spine}", leaf, f"{subnet}.2/30")
                for node, device in ((leaf, f"spine{spine}"), (f"spine{spine}", leaf)):
                    self._inside(
                        node,
                        "tc",
                        "qdisc",
                        "add",
                        "dev",
                        device,
                        "root",
                        "tbf",
                        "rate",
                        self.rate,
                        "burst",
                        "128kb",
                        "latency",
                        "4ms",
                    )
        for host in range(HOSTS):
            for spine in range(SPINES):
                via = f"10.77.{100 + self.leaf_of(host) * SPINES + spine}.1"
                ip("-n", self.name(f"spine{spine}"), "route", "add", f"10.77.{host}.0/24", "via", via)
        self.route(range(SPINES))

    def route(self, spines: Iterable[int]) -> None:
        """The leaves send to hosts elsewhere through these spines."""
        for leaf in range(LEAVES):
            ways = [word for spine in spines for word in ("nexthop", "via", f"10.77.{100 + leaf * SPINES + spine}.2")]
            for host in range(HOSTS):
                if self.leaf_of(host) != leaf:
                    ip("-n", self.name(f"leaf{leaf}"), "route", "replace", f"10.77.{host}.0/24", *ways)

    def spine(self, spine: int, up: bool) -> None:
        for leaf in range(LEAVES):
            ip("-n", self.name(f"spine{spine}"), "link", "set", f"leaf{leaf}", "up" if up else "down")
        if up:
            # Routes went with the links.
            for host in range(HOSTS):
                via = f"10.77.{100 + self.leaf_of(host) * SPINES + spine}.1"
                ip("-n", self.name(f"spine{spine}"), "route", "replace", f"10.77.{host}.0/24", "via", via)

    def carried(self, spine: int) -> int:
        """Bytes that went up to a spine from all leaves."""
        total = 0
        for leaf in range(LEAVES):
            text = self._inside(f"leaf{leaf}", "cat", f"/sys/class/net/spine{spine}/statistics/tx_bytes").stdout
            total += int(text)
        return total


def job(network: Network, mpi: Mpi, provider: str, seconds: float) -> tuple[str | None, Any, list[float]]:
    """One job with a spine's death in it. (problem, result of the stream, shares of the spines before the failure)"""
    hosts = ",".join(network.address(host) for host in range(HOSTS))
    env = dict.fromkeys(("FI_SQUALL_IFACE", "FI_TCP_IFACE"), "eth0")
    shares: list[float] = []
    over = threading.Event()

    def fate(begin: float) -> None:
        before = [network.carried(spine) for spine in range(SPINES)]
        if over.wait(max(0.0, begin + seconds / 3 - time.monotonic())):
            return
        sent = [network.carried(spine) - was for spine, was in enumerate(before)]
        shares.extend(n / max(1, sum(sent)) for n in sent)
        network.spine(1, False)
        if over.wait(seconds / 3):
            return
        network.route([0])

    with tempfile.TemporaryDirectory() as directory:
        # What mpiexec takes for ssh.
        remote = os.path.join(directory, "enter")
        cases = "\n".join(f"{network.address(host)}) node={network.name(f'h{host}')} ;;" for host in range(HOSTS))
        with open(remote, "w") as script:
            script.write(
                '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                f'case $host in\n{cases}\n*) echo "no host $host" >&2; exit 1 ;;\nesac\n'
                'exec ip netns exec "$node" sh -c "$*"\n'
            )
        os.chmod(remote, 0o755)
        options = f"-launcher ssh -launcher-exec {remote} -hosts {hosts} -ppn 1 -localhost {network.address(0)}".split()

        def launch(command: list[str]) -> list[str]:
            return ["ip", "netns", "exec", network.name("h0"), command[0], *options, *command[1:]]

        program: list[Word] = [mpi.python, MPI_TESTS / "stream.py", seconds, 1 << 20]
        # The ranks need a moment to start.
        thread = threading.Thread(target=fate, args=(time.monotonic() + 2,))
        thread.start()
        try:
            result, problem, _ = run_job(mpi, provider, HOSTS, program, seconds + 60, 1 << 20, env, launch)
        finally:
            over.set()
            thread.join()
    network.route(range(SPINES))
    network.spine(1, True)
    found = re.search(r"^stream: (\{.*\})$", result.output, re.M)
    if not problem and not found:
        problem = "no result"
    if problem:
        print(result.output[-3000:])
    return problem, json.loads(found.group(1)) if found else None, shares


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--providers", default="squall,tcp")
    parser.add_argument("--rate", default="1gbit", help="of each link between a leaf and a spine, as tc writes it")
    parser.add_argument("--seconds", type=float, default=9)
    parser.add_argument("--keep", action="store_true", help="leave the namespaces, to look around")


def run(args: argparse.Namespace) -> int:
    mpi = MPIS["mpich"]
    mpi.need()
    need(os.geteuid() == 0, "namespaces need root")
    tally = Tally()
    rows = []
    with Network(args.rate, args.keep) as network:
        for provider in args.providers.split(","):
            need_provider(provider)
            begin = time.monotonic()
            problem, stream, shares = job(network, mpi, provider, args.seconds)
            if provider == "squall" and not problem and not (len(shares) == SPINES and min(shares) > 0.2):
                problem = f"the spines did not share the load: {[f'{share:.0%}' for share in shares]}"
            note = ""
            if stream:
                rows.append(
                    [
                        provider,
                        f"{stream['total_gbps']:.2f}",
                        f"{stream['longest_s']:.2f}",
                        " / ".join(f"{share:.0%}" for share in shares),
                    ]
                )
                note = f"{stream['bytes'] / 1e6:.0f} MB, every byte compared"
            # The comparison may fail on its own account.
            if provider == "squall" or not problem:
                tally.add(f"spine down, {provider}", problem, time.monotonic() - begin, note)
            else:
                print(f"note  spine down, {provider}: {problem}")
    print(
        f"\n{HOSTS} hosts behind {LEAVES} leaves and {SPINES} spines at {args.rate} a link; one spine dies after a third, "
        "routing learns after two:\n"
    )
    print(table(["provider", "Gb/s in total", "longest wait, s", "load of the spines before"], rows))
    return tally.finish()
