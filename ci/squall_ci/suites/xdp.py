"""Run MPI jobs whose packets are frames through AF_XDP (FI_SQUALL_PORT_KIND=xdp), between network namespaces.

Four hosts are on a bridge of MTU 1500. The programs of fabtests/mpi, which verify contents, run under MPICH with two and
four ranks, over IPv4 and IPv6, under faults, and with one rank on sockets. The job's statistics have to show that its
packets were frames.

Where frames are impossible, endpoints have to report it and the job has to be right on sockets: an MTU that is too long, a
second rank on a host, and no rights.
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence

from squall_ci.commands.test import FAULTS
from squall_ci.job import run_program
from squall_ci.namespaces import Bridge
from squall_ci.process import Word
from squall_ci.suites.mpi import FLOOR
from squall_ci.tally import Tally

HOSTS = 4
# The share of packets that have to be frames. By the others the kernel keeps its entries of neighbours.
FRAMED = 0.9
# The message of an endpoint that cannot have frames.
REFUSED = "FI_SQUALL_PORT_KIND=xdp: "
# Rank 0 uses sockets, the others frames.
ONE_UDP = ["sh", "-c", '[ "$PMI_RANK" = 0 ] && export FI_SQUALL_PORT_KIND=udp; exec "$0" "$@"']
# Root without its capabilities.
NO_RIGHTS = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]


class Suite:
    """Jobs on these hosts, and what became of them."""

    def __init__(self, hosts: Bridge, quick: bool) -> None:
        self.hosts = hosts
        self.quick = quick
        self.tally = Tally()

    def job(
        self,
        title: str,
        name: str,
        ranks: int,
        env: Mapping[str, str],
        judge: Callable[[str, str], str | None],
        under: Sequence[Word] = (),
        on: Sequence[int] | None = None,
    ) -> None:
        """Runs one program under these conditions; `judge` gets the statistics and the output of a job that ended well."""
        nodes = on if on is not None else range(ranks)
        asked = {"FI_SQUALL_PORT_KIND": "xdp", "FI_SQUALL_IFACE": "eth0", **env}
        with self.hosts.launch(nodes) as launch:
            least = FLOOR[name]
            ran = run_program(
                name, "--quick", ranks=ranks, timeout=120, at_least=least, env=asked, launch=launch, under=under
            )
        ran.add_to(self.tally, f"{name}: {title}, {ranks} ranks", judge(ran.note, ran.output))

    def frames(self) -> None:
        """Runs the jobs whose packets are frames."""
        for ranks in (2, HOSTS):
            for name in ("comms",) if self.quick else ("pt2pt", "coll", "comms", "rma"):
                self.job("frames", name, ranks, {}, framed)
        self.job("frames, IPv6", "coll", 2, {"FI_SQUALL_IFACE": "fd79::/64"}, framed)
        self.job("a path for every packet", "coll", 2, {"FI_SQUALL_TRAIN": "1"}, framed)
        self.job("frames under faults", "coll", HOSTS, FAULTS, framed)
        self.job("a rank on sockets", "coll", 2, {}, lambda summary, _: some_frames(summary), ONE_UDP)

    def refusals(self) -> None:
        """Runs the jobs that cannot have frames."""
        self.job("two ranks of a host", "comms", 2, {}, refused("another endpoint of this host"), on=[0])
        self.job("no rights", "comms", 2, {}, refused("CAP_NET_RAW"), NO_RIGHTS)
        self.hosts.mtu(9000)
        self.job("MTU 9000", "comms", 2, {}, refused("MTU 9000 is too large"))


def count(summary: str, counter: str) -> int:
    """Returns a counter of the job's statistics, which do not name counters that are 0."""
    found = re.search(rf"\b{counter} (\d+)", summary)
    return int(found[1]) if found else 0


def framed(summary: str, output: str) -> str | None:
    frames, packets = count(summary, "tx_xdp_packets"), count(summary, "tx_packets")
    if REFUSED in output:
        return "an endpoint kept its sockets"
    return None if frames >= FRAMED * packets else f"{frames} of {packets} packets were frames"


def some_frames(summary: str) -> str | None:
    frames, packets = count(summary, "tx_xdp_packets"), count(summary, "tx_packets")
    return None if 0 < frames < FRAMED * packets else f"{frames} of {packets} packets were frames"


def refused(why: str) -> Callable[[str, str], str | None]:
    """Returns a judge that expects this reason for a refusal."""

    def judge(_: str, output: str) -> str | None:
        lines = [line for line in output.splitlines() if REFUSED in line]
        return None if any(why in line for line in lines) else f"no endpoint reports {why!r}: {lines}"

    return judge


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="one program where there are four")


def main(args: argparse.Namespace) -> int:
    with Bridge(HOSTS) as hosts:
        suite = Suite(hosts, args.quick)
        suite.frames()
        suite.refusals()
    return suite.tally.finish()
