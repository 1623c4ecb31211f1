"""Jobs under the kernels of Debian 11 to 13."""

from collections.abc import Callable

from squall_ci.hostile import Verdict
from squall_ci.machines import Case, case, CASES
from squall_ci.machines.image import KERNELS, newest_package
from squall_ci.machines.room import Room, Topology
from squall_ci.mpis import MPIS

# Prints the facilities of a kernel that squall uses and this one lacks.
PROBE = """
import ctypes, socket
def has(name, look):
    try:
        look()
    except OSError as error:
        print("lacks", name)
def udp(option):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as each:
        each.setsockopt(17, option, 1)
def peer():
    one, other = socket.socketpair()
    one.getsockopt(socket.SOL_SOCKET, 77, 4)
def barrier():
    libc = ctypes.CDLL(None, use_errno=True)
    # MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
    if libc.syscall(324, 16, 0, 0):
        raise OSError(ctypes.get_errno(), "")
has("UDP_SEGMENT", lambda: udp(103))
has("UDP_GRO", lambda: udp(104))
has("SO_PEERPIDFD", peer)
has("membarrier", barrier)
has("AF_XDP", lambda: socket.socket(44, socket.SOCK_RAW).close())
"""
# What each kernel lacks.
LACKS = {"5.10": {"SO_PEERPIDFD"}, "6.1": {"SO_PEERPIDFD"}, "6.12": set[str]()}
# The jobs that run under each kernel: their title, where, and their variables.
JOBS: tuple[tuple[str, tuple[int, ...], int, dict[str, str]], ...] = (
    ("two hosts", (0, 1), 2, {}),
    ("one host, shared memory", (0,), 2, {"FI_SQUALL_SHM": "yes", "MPIR_CVAR_NOLOCAL": "1"}),
    ("two hosts, frames", (0, 1), 2, {"FI_SQUALL_PORT_KIND": "xdp"}),
    ("two hosts, encrypted", (0, 1), 2, {"FI_SQUALL_KEY_FILE": "/tmp/job-key"}),
)


@case("data right, and all bytes through squall", tcp=True, quick=True)
def job(room: Room, provider: str) -> Verdict:
    """Two hosts with Debian 12 run a job of four ranks under MPICH, launched over ssh. A package of `dist` is installed
    before, as packaging/README.md says."""
    installed = provider == "squall" and newest_package() is not None
    if installed:
        for guest in room.guests:
            guest.must("dpkg -i /mnt/squall.deb", 120)
    return Verdict.of(room.job("sums", provider=provider, ranks=4, installed=installed))


@case("data right, and all bytes through squall")
def open_mpi(room: Room, provider: str) -> Verdict:
    """Two hosts with Debian 12 run a job of two ranks under Open MPI 5."""
    return Verdict.of(room.job("sums", provider=provider, mpi="openmpi"))


@case("data right, and all bytes through squall")
def intel_mpi(room: Room, provider: str) -> Verdict:
    """Two hosts with Debian 12 run a job of two ranks under Intel MPI."""
    if not MPIS["impi"].python.exists():
        return Verdict(f"{MPIS['impi'].title} is not installed: run ci/run setup mpi first")
    return Verdict.of(room.job("sums", provider=provider, mpi="impi"))


def _under(series: str) -> Callable[[Room, str], Verdict]:
    def check(room: Room, provider: str) -> Verdict:
        guest = room.guests[0]
        release = guest.must("uname -r").strip()
        if not release.startswith(series):
            return Verdict(f"the guest runs {release}")
        probed = guest.run(f"python3 -c '{PROBE}'")
        lacks = {line.partition(" ")[2] for line in probed.output.splitlines() if line.startswith("lacks ")}
        if not probed.ok or lacks != LACKS[series]:
            return Verdict(f"the kernel lacks {sorted(lacks)}, expected {sorted(LACKS[series])}", "", probed.output)
        doctor = guest.run("/mnt/bin/squall doctor", 60)
        if "FAULT" in doctor.output or "GSO" not in doctor.output:
            return Verdict("squall doctor finds a fault", "", doctor.output)
        for each in room.guests:
            each.must("umask 77; echo a key of a job of two hosts > /tmp/job-key")
        for title, hosts, ranks, env in JOBS:
            ran = room.job("sums", provider=provider, ranks=ranks, on=hosts, env=env)
            shown = "tx_xdp_packets" in ran.note or "FI_SQUALL_PORT_KIND" not in env
            if ran.problem or not shown:
                return Verdict(f"{title}: {ran.problem or 'no packet was a frame'}", ran.note, ran.output)
        return Verdict(None, f"{release}, lacks {', '.join(sorted(lacks)) or 'nothing'}")

    check.__doc__ = f"Hosts with the kernel of Debian {KERNELS[series]} load squall, and run jobs by every way of packets."
    return check


for _series in KERNELS:
    CASES[f"kernel-{_series}"] = Case(
        f"kernel-{_series}",
        f"lacks {', '.join(LACKS[_series]) or 'nothing'}; data right over the network, shared memory, frames, and encrypted",
        _under(_series),
        Topology((_series, _series)),
    )


@case("data right", Topology(("5.10", "6.12")))
def kernels_differ(room: Room, provider: str) -> Verdict:
    """The oldest and the newest kernel are in one job."""
    return Verdict.of(room.job("sums", provider=provider))
