"""The congestion control of the TCP that squall is measured beside: cubic, Linux's default, whatever this machine's is."""

import atexit
import ctypes
import functools
import os
import pathlib
import subprocess

from squall_ci.paths import say

CONTROL = "cubic"
SETTINGS = pathlib.Path("/proc/sys/net/ipv4")
# What a network namespace's control is set with.
CHOOSE = ("sh", "-c", f"echo {CONTROL} > {SETTINGS}/tcp_congestion_control")
CLONE_NEWNET = 0x40000000


@functools.cache
def allow() -> None:
    """Lets network namespaces choose cubic until this process ends. Needs root."""
    try:
        # Only the system's first network namespace has the list; the open file stays its own in another namespace.
        allowed = (SETTINGS / "tcp_allowed_congestion_control").open("r+")
    except FileNotFoundError:
        return
    before = allowed.read()

    def write(names: str) -> None:
        allowed.seek(0)
        allowed.write(names)
        allowed.flush()

    if CONTROL not in before.split():
        try:
            write(f"{before.strip()} {CONTROL}")
        except OSError as error:
            say(f"tcp does not run under {CONTROL}: the kernel does not have it: {error}")
        else:
            atexit.register(write, before)


def enter_own_network() -> None:
    """Moves this process into a network namespace of its own, with loopback, a card that leads nowhere, and cubic as its control.

    The benchmarks of this host would have the host's control otherwise, which may be another one. Without root they do.
    """
    if os.geteuid() != 0:
        say(f"tcp runs under {control()}, the setting of this machine: {CONTROL} needs root")
        return
    allow()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        why = os.strerror(ctypes.get_errno())
        say(f"tcp runs under {control()}, the setting of this machine: no network namespace of its own: {why}")
        return
    # libfabric's tcp does not start under Open MPI where there is no interface but loopback.
    card = (
        "link add eth0 type veth peer name cable",
        "address add 192.0.2.1/24 dev eth0",
        "link set eth0 up",
        "link set cable up",
    )
    for words in ("link set lo up", *card):
        subprocess.run(["ip", *words.split()], check=True)
    subprocess.run(CHOOSE, stderr=subprocess.DEVNULL, check=False)


def control() -> str:
    """Returns the congestion control of new connections in this process's network namespace."""
    return (SETTINGS / "tcp_congestion_control").read_text().strip()
