"""Direct cables whose ends take packets of different sizes, and a path that silently drops large packets."""

import re
import shutil
from collections.abc import Sequence

from squall_ci.hostile import HOSTS, Verdict
from squall_ci.hostile.links import Pair
from squall_ci.hostile.packets import stream
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces

# The MTUs of a cable's two ends: which one is smaller, by how much, and whether packets or messages of their size are common.
ENDS = ((9000, 1500), (1600, 1500), (3000, 1500), (1500, 9000))
# Seconds: a stream lasts for STREAM, and none of its windows of messages may take longer than SOON. Endpoints give up on a
# silent peer after DEADLINE.
STREAM = 2.0
SOON = 12.0
DEADLINE = "20s"
# Ping-pongs of a healthy pair: seconds, and how many there must be. Thousands a second are usual.
PINGS = 6.0
FEWEST_PINGS = 2000
# The kernel drops UDP datagrams beyond this many bytes, header included, although all interfaces have an MTU of ETHERNET.
HOLE = 1400
ETHERNET = 1500


def _set_mtus(pair: Pair, near: int, far: int) -> None:
    for node, mtu in (("a", near), ("b", far)):
        pair.set_mtu(node, "eth0", mtu)


def _streams(ends: Sequence[tuple[int, int]]) -> Verdict:
    """Runs streams over cables with these MTUs, with GSO trains, whose length the cable does not check, and without."""
    notes = []
    for near, far in ends:
        for trains in ("yes", "no"):
            with Pair() as pair:
                _set_mtus(pair, near, far)
                env = {"FI_SQUALL_GSO": trains, "FI_SQUALL_DEADLINE": DEADLINE}
                problem, note, output = stream(
                    pair, HOSTS, env, seconds=STREAM, at_least=4 << 20, longest=SOON, shrinks=False
                )
            what = f"{near}/{far}, FI_SQUALL_GSO={trains}"
            if problem:
                return Verdict(f"{what}: {problem}", note, output)
            longest = re.search(r"'longest_s': ([\d.]+)", note)
            notes.append(f"{what}: {float(longest.group(1)) if longest else 0:.1f} s")
    return Verdict(None, f"longest windows: {'; '.join(notes)}")


def narrow_peer() -> Verdict:
    """Runs streams over a cable whose far end takes packets of 1500 bytes and the near end of 9000."""
    return _streams(ENDS[:1])


def narrow_peers() -> Verdict:
    """Runs streams over cables with other differences between the MTUs of their ends."""
    return _streams(ENDS[1:])


def black_hole() -> Verdict:
    """Runs a stream while both hosts silently drop UDP datagrams of more than 1400 bytes on arrival."""
    if not shutil.which("nft"):
        return Verdict("there is no nft: ci/run setup network installs it")
    with Pair() as pair:
        _set_mtus(pair, ETHERNET, ETHERNET)
        for node in pair.nodes:
            pair.inside(node, "nft", "add", "table", "inet", "hole")
            chain = "{ type filter hook input priority 0; policy accept; }"
            pair.inside(node, "nft", "add", "chain", "inet", "hole", "arrive", chain)
            rule = f"meta l4proto udp udp length > {HOLE} drop"
            pair.inside(node, "nft", "add", "rule", "inet", "hole", "arrive", *rule.split())
        # Trains cross a cable of the kernel in one piece, so that the rule would drop them whatever their packets' size.
        env = {"FI_SQUALL_GSO": "no", "FI_SQUALL_DEADLINE": DEADLINE}
        return Verdict(*stream(pair, HOSTS, env, seconds=STREAM, at_least=4 << 20, longest=SOON))


# The hosts of a corner by their addresses.
CORNER = {"10.79.1.1": "a", "10.79.1.2": "b", "10.79.2.2": "c"}


class Corner(Namespaces):
    """Three hosts, with a cable from a to b and one to c. Host b takes packets of 1500 bytes, c and both ends at a 9000."""

    def __init__(self) -> None:
        super().__init__(list(CORNER.values()))

    def build(self) -> None:
        """Lays the two cables. Hosts b and c reach each other through a."""
        self.join("a", "eth0", "10.79.1.1/24", "b", "eth0", "10.79.1.2/24")
        self.join("a", "eth1", "10.79.2.1/24", "c", "eth0", "10.79.2.2/24")
        self.set_mtu("b", "eth0", ETHERNET)
        self.inside("a", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        # The launcher's own connections are not tested: their segments are short from the beginning.
        self.ip("b", "route", "add", "10.79.2.0/24", "via", "10.79.1.1", "advmss", 1000)
        self.ip("c", "route", "add", "10.79.1.0/24", "via", "10.79.2.1", "advmss", 1000)


def healthy_neighbour() -> Verdict:
    """Exchanges short messages with a healthy host while long messages go to one behind a narrow cable."""
    env = {"FI_SQUALL_IFACE": "eth0,eth1", "FI_SQUALL_DEADLINE": DEADLINE}
    with Corner() as net, net.hydra(CORNER) as launch:
        job = run_program("neighbour", PINGS, ranks=3, at_least=1 << 20, env=env, launch=launch)
    few = job.figures.get("pings", 0) < FEWEST_PINGS
    return Verdict.of(job, f"there were fewer than {FEWEST_PINGS} ping-pongs in {PINGS:.0f} s" if few else None)
