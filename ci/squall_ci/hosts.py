"""Places the processes of a suite: together on this host, or with `--hosts` each on a host of its own.

Those hosts are network namespaces on a bridge of MTU 1500, so their packets cross interfaces as between machines, and
FI_SQUALL_PORT_KIND=xdp has an interface for each process.
"""

import contextlib
import os
import pathlib
import shlex
import tempfile
from collections.abc import Callable, Iterator
from typing import TypeAlias

from squall_ci.mpis import Mpi
from squall_ci.namespaces import Bridge
from squall_ci.paths import need

# A function from the command that launches a job to the one that launches it on these hosts.
Launch: TypeAlias = Callable[[list[str]], list[str]]

# Squall's warning if a second process of a host asks for frames. Suites that judge the output of a job must not see it.
SHARED_HOST_WARNING = "squall: FI_SQUALL_PORT_KIND=xdp: .* keeps its sockets: .*another endpoint of this host"
# A script that chooses `mpiexec-N` by the number of ranks.
MPIEXEC = """
count={most} before=
for word; do
    [ "$before" = -n ] && count=$word
    before=$word
done
[ "$count" -gt {most} ] && count={most}
exec "$0-$count" "$@" 2> >(grep --line-buffered -v "{warning}" >&2)
"""

# Every provider's interface there, named `eth0` in each.
INTERFACE = "eth0"
ENVIRONMENT = dict.fromkeys(("FI_SQUALL_IFACE", "FI_TCP_IFACE", "FI_UDP_IFACE"), INTERFACE)


def conditions(apart: bool) -> str:
    """Returns the words that a row's conditions have for `--hosts`."""
    return ", a host each" if apart else ""


def bridge(count: int, mtu: int = 1500) -> Bridge:
    """Returns hosts for so many processes; exits with advice if there can be none."""
    need(os.geteuid() == 0, "a host for each rank is a network namespace, which needs root")
    return Bridge(count, mtu)


def shows(apart: bool) -> tuple[str, ...]:
    """Returns the counters that statistics have to show: those of frames, if the caller's environment asks for them."""
    return ("tx_xdp_packets",) if apart and os.environ.get("FI_SQUALL_PORT_KIND") == "xdp" else ()


@contextlib.contextmanager
def forked(apart: bool, ranks: int) -> Iterator[dict[str, str]]:
    """Yields the variables for programs that fork their own processes and place them by themselves (fabtests/hosts.h)."""
    if not apart:
        yield {}
        return
    with bridge(ranks) as hosts:
        paths = (f"/run/netns/{hosts.name(f'h{host}')}" for host in range(ranks))
        yield {"SQUALL_TEST_HOSTS": ",".join(paths), **ENVIRONMENT}


@contextlib.contextmanager
def launched(apart: bool, ranks: int, mpi: Mpi, mtu: int = 1500) -> Iterator[tuple[Launch, dict[str, str]]]:
    """Yields the launcher of an MPI's jobs on these hosts, with interfaces of this MTU, and the variables that they need."""
    if not apart:
        yield list, {}
        return
    need(mpi.remote, f"a host for each rank is for MPIs that hydra or PRRTE launches, which {mpi.title} is not")
    with bridge(ranks, mtu) as hosts, hosts.launch(range(ranks), mpi.remote) as launch:
        yield launch, ENVIRONMENT


@contextlib.contextmanager
def launcher(apart: bool, most: int, mpi: Mpi) -> Iterator[tuple[pathlib.Path, dict[str, str]]]:
    """Yields an mpiexec for suites that launch jobs of any number of ranks themselves, and the variables they need."""
    mpiexec = mpi.venv / "bin" / "mpiexec"
    if not apart:
        yield mpiexec, {}
        return
    with tempfile.TemporaryDirectory() as directory, bridge(most) as hosts, contextlib.ExitStack() as launches:
        chosen = pathlib.Path(directory) / "mpiexec"
        # Each job gets as many hosts as ranks: MPICH 5.0.2's launcher corrupts its memory if processes are spawned on a
        # host that had none.
        for count in range(1, most + 1):
            launch = launches.enter_context(hosts.launch(range(count), mpi.remote))
            script(pathlib.Path(f"{chosen}-{count}"), f'exec {shlex.join(launch([str(mpiexec)]))} "$@"')
        script(chosen, MPIEXEC.format(most=most, warning=SHARED_HOST_WARNING))
        yield chosen, ENVIRONMENT


def script(path: pathlib.Path, text: str) -> None:
    """Writes an executable script."""
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
