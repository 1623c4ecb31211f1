"""Networks that delay, lose, reorder, duplicate and damage packets; bonds, VLANs, tunnels, routers, firewalls."""

import threading
from collections.abc import Callable

from squall_ci.hostile import Verdict, WARNINGS
from squall_ci.machines import Case, case, CASES
from squall_ci.machines.faults import disturbed, survived
from squall_ci.machines.room import DATA, LAUNCH, Network, OFFLOADING, Room, Topology

# What netem does to the packets of both hosts, by the name of the case.
NETEM = {
    "delay": "delay 1ms",
    "jitter": "delay 1ms 500us distribution normal",
    "loss": "loss 1%",
    "reordering": "delay 1ms reorder 25% 50%",
    "duplication": "duplicate 1%",
    "corruption": "corrupt 0.5%",
}


def on_all(room: Room, script: str) -> None:
    """Runs a script, which has to succeed, on all guests. `$n` is the number of a guest."""
    for guest in room.guests:
        guest.must(f"set -e\nn={guest.number}\n{script}")


def sums(room: Room, provider: str, **env: str) -> Verdict:
    """Runs the short job."""
    return Verdict.of(room.job("sums", provider=provider, env=env))


def _netem(words: str) -> Callable[[Room, str], Verdict]:
    def disturb(room: Room, provider: str) -> Verdict:
        on_all(room, f"tc qdisc add dev data root netem {words}")
        try:
            return sums(room, provider)
        finally:
            on_all(room, "tc qdisc del dev data root")

    disturb.__doc__ = f"Each host sends through `netem {words}`."
    return disturb


for _name, _words in NETEM.items():
    CASES[f"netem-{_name}"] = Case(f"netem-{_name}", "data right", _netem(_words), Topology(), ("squall", "tcp"))


def move(room: Room, device: str) -> None:
    """Moves the guests' addresses from the card `data` to another device."""
    for guest in room.guests:
        address = f"{room.topology.address(guest.number, DATA.name)}/24"
        guest.must(f"ip address flush dev data; ip link set {device} up; ip address add {address} dev {device}")


BONDED = Topology(networks=(DATA, Network("spare"), LAUNCH))


@case("data right; no turn takes longer than 5 s", BONDED, tcp=True, spoils=True)
def bond(room: Room, provider: str) -> Verdict:
    """The hosts have bonds of two cards (active-backup), and one of the cables is pulled in mid-job."""
    slaves = "\n".join(f"ip link set {card} down; ip link set {card} master bond" for card in ("data", "spare"))
    on_all(room, f"ip link add bond type bond mode active-backup miimon 100\nip address flush dev spare\n{slaves}")
    move(room, "bond")

    def pull(_: threading.Event) -> None:
        for guest in room.guests:
            guest.set_link("data", False)

    job, began = disturbed(room, pull, provider, env={"FI_TCP_IFACE": "bond"})
    verdict = survived(job, began)
    longest = job.figures.get("longest_s", 0.0)
    return verdict if verdict.problem or longest <= 5 else Verdict(f"a turn took {longest} s", verdict.note, job.output)


@case("data right", spoils=True)
def vlan(room: Room, provider: str) -> Verdict:
    """The hosts' addresses are on VLAN 7 of their cards."""
    on_all(room, "ip link add link data name data.7 type vlan id 7")
    move(room, "data.7")
    return sums(room, provider)


@case("data right over the tunnel, whose MTU is 1420")
def wireguard(room: Room, provider: str) -> Verdict:
    """The hosts talk through a WireGuard tunnel, which the job names."""
    keys = [guest.must("umask 77; wg genkey | tee /tmp/key | wg pubkey").strip() for guest in room.guests]
    for guest, other in zip(room.guests, reversed(room.guests)):
        peer = f"peer {keys[other.number]} allowed-ips 10.99.0.{other.number + 1}/32"
        guest.must(
            "set -e\nip link add wg0 mtu 1420 type wireguard\n"
            f"wg set wg0 listen-port 51820 private-key /tmp/key {peer} "
            f"endpoint {room.topology.address(other.number, DATA.name)}:51820\n"
            f"ip address add 10.99.0.{guest.number + 1}/24 dev wg0\nip link set wg0 up"
        )
    before = room.guests[0].sent("wg0")
    verdict = sums(room, provider, FI_SQUALL_IFACE="wg0")
    went = room.guests[0].sent("wg0") - before
    on_all(room, "ip link del wg0")
    return verdict if verdict.problem or went > 1 << 20 else Verdict(f"{went} bytes went by the tunnel", verdict.note)


@case("data right", tcp=True)
def mtu_differs(room: Room, provider: str) -> Verdict:
    """The card of one host has an MTU of 9000, that of the other one 1500."""
    room.guests[0].must("ip link set data mtu 9000")
    try:
        return sums(room, provider)
    finally:
        room.guests[0].must("ip link set data mtu 1500")


@case("data right over IPv6, which squall finds by itself", spoils=True)
def ipv6_only(room: Room, provider: str) -> Verdict:
    """The hosts have no IPv4 address besides that of loopback."""
    names = "\\n".join(f"{room.topology.address_6(guest.number, LAUNCH.name)} node{guest.number}" for guest in room.guests)
    on_all(room, f"for card in data launch; do ip -4 address flush dev $card; done\nprintf '{names}\\n' > /etc/hosts")
    return sums(room, provider)


ROUTED = Topology(("6.1",) * 3, (Network("west", (0, 2)), Network("east", (1, 2)), Network("launch", (0, 1))))


@case("data right", ROUTED)
def router(room: Room, provider: str) -> Verdict:
    """A third host routes between the subnets of the two hosts of the job."""
    topology = room.topology
    room.guests[2].must("sysctl -w net.ipv4.ip_forward=1")
    room.guests[0].must(f"ip route add 10.81.0.0/24 via {topology.address(2, 'west')}")
    room.guests[1].must(f"ip route add 10.80.0.0/24 via {topology.address(2, 'east')}")
    before = room.guests[2].sent("east")
    verdict = sums(room, provider)
    went = room.guests[2].sent("east") - before
    return verdict if verdict.problem or went > 1 << 20 else Verdict(f"{went} bytes went by the router", verdict.note)


CARDS_THAT_OFFLOAD = Topology(networks=(Network("data", card=OFFLOADING), LAUNCH))


@case("data right, with trains of packets while the card calculates checksums", CARDS_THAT_OFFLOAD)
def offloads(room: Room, provider: str) -> Verdict:
    """The cards calculate checksums and cut segments (vmxnet3)."""
    return sums(room, provider)


@case("data right, before and after", CARDS_THAT_OFFLOAD)
def offloads_go(room: Room, provider: str) -> Verdict:
    """The offloads of both cards are turned off in mid-job."""

    def turn_off(_: threading.Event) -> None:
        on_all(room, "ethtool -K data tx off rx off tso off gso off gro off")

    try:
        return survived(*disturbed(room, turn_off, provider))
    finally:
        on_all(room, "ethtool -K data tx on rx on tso on gso on gro on")


# Lets a firewall track connections, of which the cards of the launcher are no part.
TRACK = """
nft add table inet track
nft add chain inet track raw '{ type filter hook prerouting priority raw; }'
nft add chain inet track out '{ type filter hook output priority raw; }'
nft add rule inet track raw iifname != data notrack
nft add rule inet track out oifname != data notrack
nft add chain inet track input '{ type filter hook input priority 0; }'
nft add rule inet track input ct state invalid drop
"""


@case("data right, or an error that names the peer; squall doctor notes the full table", spoils=True)
def conntrack_full(room: Room, provider: str) -> Verdict:
    """The firewalls' tables of connections have 8 entries, and are full."""
    on_all(room, f"{TRACK}\nsysctl -w net.netfilter.nf_conntrack_max=8")
    job = room.job("sums", provider=provider, env={**WARNINGS, "FI_SQUALL_DEADLINE": "10s"})
    if job.problem and "[peer " not in job.output:
        return Verdict.of(job)
    ended = f"the job ended with an error: {job.problem}" if job.problem else "the job was right"
    # The entries of a job that has ended stay for half a minute and more.
    doctor = room.guests[0].run("/mnt/bin/squall doctor", 60).output
    noted = "nf_conntrack" in doctor
    return Verdict(None if noted else "squall doctor does not note the full table", f"{ended}; {job.note}", doctor)


# A firewall that admits what docs/hosts.md says, and the launcher's network.
FIREWALL = """
nft add table inet filter
nft add chain inet filter input '{ type filter hook input priority 0; policy drop; }'
nft add rule inet filter input iifname '{ lo, launch }' accept
nft add rule inet filter input udp dport 47930-47993 accept
"""


@case("data right", spoils=True)
def firewall(room: Room, provider: str) -> Verdict:
    """The hosts admit nothing but the range of ports that the job uses, by the rule of docs/hosts.md."""
    on_all(room, FIREWALL)
    return sums(room, provider, FI_SQUALL_PORT="47930-47993")


@case("an error that names the peer and the firewall within the deadline (8 s here)", spoils=True)
def firewall_closed(room: Room, provider: str) -> Verdict:
    """The hosts admit another range of ports than the job uses."""
    on_all(room, FIREWALL)
    env = {**WARNINGS, "FI_SQUALL_PORT": "48930-48993", "FI_SQUALL_DEADLINE": "8s"}
    job = room.job("sums", provider=provider, env=env)
    named = "[peer " in job.output and "firewall" in job.output
    if job.result.ok or job.result.seconds > 60:
        return Verdict(f"{job.result.why()} after {job.result.seconds:.0f} s", "", job.output)
    return Verdict(None if named else "no line names the peer and the firewall", "", job.output)
