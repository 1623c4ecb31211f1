"""Where the processes of a suite are: together on this host, or each on a host of its own, which `--hosts` makes.

Those hosts are network namespaces on a bridge of MTU 1500, so their packets cross interfaces as between machines, and
FI_SQUALL_PORT_KIND=xdp has an interface for each process.
"""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

from squall_ci.mpis import Mpi
from squall_ci.namespaces import Bridge
from squall_ci.paths import need

# Makes of the launch of a job the one that is to run.
Launch: TypeAlias = Callable[[list[str]], list[str]]

# Every provider's interface there.
ENVIRONMENT = dict.fromkeys(("FI_SQUALL_IFACE", "FI_TCP_IFACE", "FI_UDP_IFACE"), "eth0")


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", action="store_true", help="a network namespace for every process; needs root")


def conditions(apart: bool) -> str:
    """What the conditions of a run say besides."""
    return ", a host each" if apart else ""


def bridge(count: int) -> Bridge:
    """Hosts for so many processes; leaves with advice when there can be none."""
    need(os.geteuid() == 0, "--hosts: namespaces need root")
    return Bridge(count)


@contextlib.contextmanager
def launched(apart: bool, ranks: int, mpi: Mpi) -> Iterator[tuple[Launch, dict[str, str]]]:
    """What launches jobs of an MPI where they are to run, and what they have to know."""
    if not apart:
        yield list, {}
        return
    need(mpi.remote, f"--hosts is for MPIs that hydra or PRRTE launches, which {mpi.title} is not")
    with bridge(ranks) as hosts, hosts.launch(range(ranks), mpi.remote) as launch:
        yield launch, ENVIRONMENT
