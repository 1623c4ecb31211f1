"""Paths that carry smaller packets than the interfaces at their ends, from the beginning or since just now."""

import json
import re
import threading
from collections.abc import Mapping

from squall_ci.hostile import change_amid, Verdict
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces

# Seconds: the job takes SECONDS, and a path that shrank may cost some of them.
SECONDS = 6
PATIENCE = 60.0
# The path shrinks when the router has passed on this many bytes, well before the job ends.
MIDST = 8 << 20
LENGTH = 100_000
HOST_A, HOST_B = "10.79.1.1", "10.79.2.1"
HOSTS = {HOST_A: "a", HOST_B: "b"}
GATE_A, GATE_B = "10.79.1.254", "10.79.2.254"


class Chain(Namespaces):
    """Host a, a router r and host b in a row. The hosts' links carry packets of `near` bytes, the router's one to b of
    `far`."""

    def __init__(self, near: int, far: int) -> None:
        super().__init__(["a", "r", "b"])
        self.near = near
        self.far = far

    def build(self) -> None:
        """Lays two links and the routes over them."""
        self.join("a", "eth0", f"{HOST_A}/24", "r", "near0", f"{GATE_A}/24")
        self.join("r", "far0", f"{GATE_B}/24", "b", "eth0", f"{HOST_B}/24")
        self.inside("r", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        # The launcher's own connections are not tested: their segments are short from the beginning.
        self.ip("a", "route", "add", "10.79.2.0/24", "via", GATE_A, "advmss", 1000)
        self.ip("b", "route", "add", "10.79.1.0/24", "via", GATE_B, "advmss", 1000)
        for node, device in (("a", "eth0"), ("r", "near0")):
            self.set_mtu(node, device, self.near)
        for node, device in (("b", "eth0"), ("r", "far0")):
            self.set_mtu(node, device, self.far)

    def mute(self) -> None:
        """Makes the hosts ignore the router's reports about packets that are too big: the reverse path of its addresses
        fails the kernel's check."""
        for node, gate, device in (("a", GATE_A, "near0"), ("b", GATE_B, "far0")):
            # The hosts do not answer the router's ARP requests either.
            host = HOST_A if node == "a" else HOST_B
            self.ip("r", "neigh", "replace", host, "lladdr", self.ethernet(node, "eth0"), "dev", device)
            self.ip(node, "neigh", "replace", gate, "lladdr", self.ethernet("r", device), "dev", "eth0")
            for scope in ("all", "eth0"):
                self.inside(node, "sysctl", "-qw", f"net.ipv4.conf.{scope}.rp_filter=1")
            self.ip(node, "route", "add", "blackhole", f"{gate}/32")

    def ethernet(self, node: str, device: str) -> str:
        """Returns a device's Ethernet address."""
        shown = self.inside(node, "ip", "-j", "link", "show", "dev", device).stdout
        return str(json.loads(shown)[0]["address"])


def stream(
    net: Namespaces,
    hosts: Mapping[str, str],
    extra_env: Mapping[str, str] | None = None,
    *,
    seconds: float = SECONDS,
    at_least: int = 16 << 20,
    longest: float = PATIENCE,
    shrinks: bool = True,
) -> tuple[str | None, str, str]:
    """Runs a stream over `eth0` between two hosts, given as nodes by their addresses for the launcher. Returns the problem, what
    to say about it, and the output.

    `at_least` bytes must arrive, no window of messages may take longer than `longest` seconds, and with `shrinks` an endpoint
    must report that a path carries smaller packets than its interface.
    """
    with net.hydra(hosts) as launch:
        env = {"FI_SQUALL_IFACE": "eth0", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "squall", **(extra_env or {})}
        job = run_program("stream", seconds, LENGTH, timeout=PATIENCE, at_least=at_least, env=env, launch=launch)
    problem, figures = job.problem, job.figures
    if problem:
        return problem, "", job.output
    sizes = re.findall(r"path to (\S+) carries packets of (\d+) bytes", job.output)
    note = f"{figures}; " + ", ".join(f"to {host} {size}" for host, size in sizes)
    if figures["longest_s"] > longest:
        problem = f"a window of messages took {figures['longest_s']:.1f} s"
    elif shrinks and not sizes:
        problem = "no endpoint reports that a path carries less"
    return problem, note, job.output


def _shrinks(muted: bool) -> Verdict:
    with Chain(1500, 1500) as chain:
        if muted:
            chain.mute()

        shrunk = threading.Event()

        def shrink(_over: threading.Event) -> None:
            for node, device in (("r", "far0"), ("b", "eth0")):
                chain.set_mtu(node, device, 1400)
            shrunk.set()

        with change_amid(lambda: chain.sent("r", "far0") >= MIDST, shrink):
            problem, note, output = stream(chain, HOSTS)
    if not problem and not shrunk.is_set():
        problem = "the path did not shrink before the job was over"
    return Verdict(problem, note, output)


def shrinks() -> Verdict:
    """Shrinks the far link from 1500 to 1400 bytes in mid-job; the router reports it."""
    return _shrinks(muted=False)


def shrinks_silently() -> Verdict:
    """Shrinks the far link in mid-job; the router's reports do not arrive."""
    return _shrinks(muted=True)


def differs() -> Verdict:
    """Runs a job where one end has an interface of MTU 9000, the path and the other end 1500."""
    with Chain(9000, 1500) as chain:
        return Verdict(*stream(chain, HOSTS))


def differs_silently() -> Verdict:
    """Runs a job where the MTUs differ and the router's reports do not arrive."""
    with Chain(9000, 1500) as chain:
        chain.mute()
        return Verdict(*stream(chain, HOSTS))
