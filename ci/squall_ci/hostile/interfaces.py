"""Hosts whose first interface is not the cable between them: a bridge to their containers, or a VPN."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from squall_ci.hostile import Verdict
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces

# Seconds after which the job, which takes two, gives up on peers that it cannot reach.
DEADLINE = 15
HOST_A, HOST_B = "192.168.0.1", "192.168.0.2"
# The cable's interface, which every host has after the others.
CABLE = "enp28s0"
BRIDGE = "br-3b50"
TUNNEL = "tun0"
# Opens the tunnel as a VPN's program does, prints a line, and keeps the tunnel until its standard input ends.
VPN = f"""
import fcntl, struct, sys
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
tun = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH14x", b"{TUNNEL}", IFF_TUN | IFF_NO_PI))
print("open", flush=True)
sys.stdin.read()
"""


def bridge_first() -> Verdict:
    """Runs a job whose hosts both have a bridge to containers, with the same address, as their first interface."""
    with Namespaces(["a", "b"]) as net:
        for node in net.nodes:
            net.ip(node, "link", "add", BRIDGE, "type", "bridge")
            # A container's cable, so that the bridge has a carrier.
            net.ip(node, "link", "add", "vethc1", "type", "veth", "peer", "name", "vethc2")
            net.ip(node, "link", "set", "vethc1", "master", BRIDGE)
            for end in ("vethc1", "vethc2"):
                net.ip(node, "link", "set", end, "up")
            net.address(node, BRIDGE, "172.18.0.1/16")
        return _job(net)


def vpn_first() -> Verdict:
    """Runs a job where the first interface of one host is that of a VPN to which the other host has no connection."""
    if not os.path.exists("/dev/net/tun"):
        return Verdict("there is no /dev/net/tun: modprobe tun")
    with Namespaces(["a", "b"]) as net:
        net.inside("a", "ip", "tuntap", "add", TUNNEL, "mode", "tun")
        net.ip("a", "addr", "add", "10.8.0.2", "peer", "10.8.0.1", "dev", TUNNEL)
        net.ip("a", "link", "set", TUNNEL, "up")
        with _vpn(net):
            return _job(net)


@contextlib.contextmanager
def _vpn(net: Namespaces) -> Iterator[None]:
    """Runs the VPN's program on the first host for the time of the context."""
    command = net.command("a", sys.executable, "-c", VPN)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            assert process.stdout.readline() == "open\n", "the tunnel cannot be opened"
            yield
        finally:
            process.stdin.close()


def _job(net: Namespaces) -> Verdict:
    """Joins the hosts by a cable, and runs a job between them that finds it by itself."""
    net.join("a", CABLE, f"{HOST_A}/24", "b", CABLE, f"{HOST_B}/24")
    with net.hydra({HOST_A: "a", HOST_B: "b"}) as launch:
        env = {"FI_SQUALL_IFACE": "", "FI_SQUALL_DEADLINE": f"{DEADLINE}s"}
        return Verdict.of(run_program("sums", env=env, launch=launch))
