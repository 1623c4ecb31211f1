"""Network namespaces in the place of hosts, and MPI jobs between them. Needs root."""

import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from squall_ci import tcp_control
from squall_ci.process import Word

PREFIX = "squall-"
BARE = 'env -i PATH="$PATH" HOME="$HOME" PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1'


def ip(*words: Word, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Calls ip(8)."""
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


class Namespaces:
    """Namespaces by the names of their nodes, for as long as the `with` lasts; loopback is up in each, and TCP uses cubic."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = nodes
        # What a launcher's daemon on another node is started through; `BARE` leaves it few variables, as ssh does.
        self.login = ""
        self._mark = f"{PREFIX}{os.getpid()}-"

    def name(self, node: str) -> str:
        """Returns the system's name of a node."""
        return self._mark + node

    def __enter__(self) -> Self:
        self._clean_leftovers()
        tcp_control.allow()
        try:
            for node in self.nodes:
                ip("netns", "add", self.name(node))
                self.ip(node, "link", "set", "lo", "up")
                # A kernel without it keeps its own, which measurements print.
                subprocess.run(self.command(node, *tcp_control.CHOOSE), stderr=subprocess.DEVNULL, check=False)
            self.build()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._take_down()

    def build(self) -> None:
        """Adds what a subclass needs besides the namespaces."""

    def _take_down(self) -> None:
        for node in self.nodes:
            ip("netns", "del", self.name(node), check=False)

    @staticmethod
    def _clean_leftovers() -> None:
        """Deletes the namespaces of runs that were killed."""
        for line in ip("netns", "list", check=False).stdout.splitlines():
            found = re.match(rf"({PREFIX}(\d+)-\S+)", line)
            if found and not os.path.exists(f"/proc/{found.group(2)}"):
                ip("netns", "del", found.group(1), check=False)

    def ip(self, node: str, *words: Word) -> None:
        """Calls ip(8) inside of a node."""
        ip("-n", self.name(node), *words)

    def command(self, node: str, *words: Word) -> list[str]:
        """Returns the command that runs inside of a node."""
        return ["ip", "netns", "exec", self.name(node), *map(str, words)]

    def inside(self, node: str, *words: Word) -> subprocess.CompletedProcess[str]:
        """Runs a command inside of a node."""
        return subprocess.run(self.command(node, *words), check=True, capture_output=True, text=True)

    def join(self, a: str, a_device: str, a_address: str, b: str, b_device: str, b_address: str, mtu: int = 9000) -> None:
        """Adds a veth pair with addresses on both ends."""
        one: list[Word] = ["name", a_device, "netns", self.name(a), "mtu", mtu]
        other: list[Word] = ["name", b_device, "netns", self.name(b), "mtu", mtu]
        ip("link", "add", *one, "type", "veth", "peer", *other)
        for node, device, address in ((a, a_device, a_address), (b, b_device, b_address)):
            self.address(node, device, address)

    def address(self, node: str, device: str, address: str) -> None:
        """Gives a device an address and takes it up."""
        # The kernel lets nobody use an IPv6 address before it has looked for duplicates.
        at_once = ["nodad"] if ":" in address else []
        self.ip(node, "addr", "add", address, "dev", device, *at_once)
        self.ip(node, "link", "set", device, "up")

    def set_mtu(self, node: str, device: str, size: int) -> None:
        """Sets the size of the largest packet that may leave from a device."""
        self.ip(node, "link", "set", device, "mtu", size)

    def sent(self, node: str, device: str) -> int:
        """Returns the bytes that left from a device."""
        return int(self.inside(node, "cat", f"/sys/class/net/{device}/statistics/tx_bytes").stdout)

    @contextlib.contextmanager
    def _remote(self, hosts: Mapping[str, str], inside: str) -> Iterator[pathlib.Path]:
        """Yields a program that a launcher takes for ssh: it runs `inside`, with $host and a command ($*), in a node."""
        with tempfile.TemporaryDirectory() as directory:
            remote = pathlib.Path(directory) / "enter"
            cases = "\n".join(f"{host}) node={self.name(node)} ;;" for host, node in hosts.items())
            remote.write_text(
                '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                f'case $host in\n{cases}\n*) echo "no host $host" >&2; exit 1 ;;\nesac\n'
                f'exec ip netns exec "$node" {self.login} {inside}\n'
            )
            remote.chmod(0o755)
            yield remote

    @contextlib.contextmanager
    def hydra(self, hosts: Mapping[str, str]) -> Iterator[Callable[[list[str]], list[str]]]:
        """Yields a function that turns a launch by hydra (MPICH's, Intel MPI's) into one with a rank on each host.

        Nodes are given by the addresses by which the launcher's own connections reach them. The launcher runs on the first.
        """
        with self._remote(hosts, 'sh -c "$*"') as remote:
            first, node = next(iter(hosts.items()))
            options = f"-bootstrap ssh -bootstrap-exec {remote} -hosts {','.join(hosts)} -ppn 1 -localhost {first}".split()
            yield lambda command: self.command(node, command[0], *options, *command[1:])

    @contextlib.contextmanager
    def prrte(self, nodes: Sequence[str]) -> Iterator[Callable[[list[str]], list[str]]]:
        """Yields a function that turns a launch by PRRTE (Open MPI 5) into one with a rank on each host.

        Each node has a host name of its own, because to Open MPI hosts of one name are one host, whose memory the ranks
        share. Daemons find the launcher by the addresses of its interfaces other than loopback.
        """
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']
        with self._remote({node: node for node in nodes}, f'{shlex.join(named)} "$host" sh -c "$*"') as remote:
            hosts = ",".join(f"{node}:1" for node in nodes)
            options = ["--prtemca", "plm_ssh_agent", str(remote), "--host", hosts, "--map-by", "node"]
            first: list[Word] = [*named, nodes[0]]
            yield lambda command: self.command(nodes[0], *first, command[0], *options, *command[1:])


class Bridge(Namespaces):
    """Hosts on a bridge, with an address of either IP each on their `eth0`."""

    def __init__(self, hosts: int, mtu: int = 1500) -> None:
        super().__init__([*(f"h{host}" for host in range(hosts)), "switch"])
        self.hosts = hosts
        self._mtu = mtu

    @staticmethod
    def address_of(host: int) -> str:
        """Returns a host's IPv4 address."""
        return f"10.79.0.{host + 1}"

    @staticmethod
    def address_6_of(host: int) -> str:
        """Returns a host's IPv6 address."""
        return f"fd79::{host + 1}"

    def build(self) -> None:
        self.ip("switch", "link", "add", "bridge", "type", "bridge")
        self.ip("switch", "link", "set", "bridge", "up")
        for host in range(self.hosts):
            node, port = f"h{host}", f"h{host}"
            address = f"{self.address_of(host)}/24"
            self.join(node, "eth0", address, "switch", port, f"169.254.0.{host + 1}/32", self._mtu)
            self.ip(node, "addr", "add", f"{self.address_6_of(host)}/64", "dev", "eth0", "nodad")
            self.ip("switch", "link", "set", port, "master", "bridge")

    def mtu(self, mtu: int) -> None:
        """Sets the MTU of all interfaces."""
        for host in range(self.hosts):
            self.set_mtu("switch", f"h{host}", mtu)
            self.set_mtu(f"h{host}", "eth0", mtu)

    def launch(
        self, hosts: Sequence[int], launcher: str = "hydra"
    ) -> contextlib.AbstractContextManager[Callable[[list[str]], list[str]]]:
        """Returns the context that launches a job on these hosts, by hydra or by PRRTE."""
        if launcher == "prrte":
            return self.prrte([f"h{host}" for host in hosts])
        return self.hydra({self.address_of(host): f"h{host}" for host in hosts})
