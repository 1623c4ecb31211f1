"""Networks that delay, lose, reorder, duplicate and damage packets; bonds, VLANs, tunnels, routers, firewalls."""

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

from squall_ci.hostile import Verdict, WARNINGS
from squall_ci.machines import Case, case, CASES
from squall_ci.machines.faults import disturbed, survived
from squall_ci.machines.room import DATA, Guest, LAUNCH, Network, OFFLOADING, Room, Topology

# What squall doctor prints where the kernel takes trains of packets, and where it does not.
TAKES_TRAINS, REFUSES_TRAINS = "ok    trains of packets out (GSO)", "note  trains of packets out (GSO)"
# Seconds for a job that fails within seconds of its launch, which takes most of them without KVM.
LAUNCHING = 120.0
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


def through(device: str, guest: Guest, room: Room, provider: str, **env: str) -> Verdict:
    """Runs the short job, whose bytes must leave a guest by a device."""
    before = guest.sent(device)
    verdict = sums(room, provider, **env)
    went = guest.sent(device) - before
    if verdict.problem or went > 1 << 20:
        return verdict
    return Verdict(f"{went} bytes left {guest.name} by {device}", verdict.note, verdict.output)


def with_doctor(verdict: Verdict, guest: Guest, words: str) -> Verdict:
    """Adds to a verdict whether squall doctor prints these words on a guest."""
    output = guest.run("/mnt/bin/squall doctor", 60).output
    if verdict.problem or words in output:
        return verdict
    return Verdict(f"squall doctor does not print {words!r} on {guest.name}", verdict.note, output)


def move(room: Room, device: str, source: str = DATA.name) -> None:
    """Moves the guests' addresses from the card `data` to another device, or back from there. Like the network of a cluster's
    jobs it has the default route, by which squall prefers it to that of the launcher."""
    for guest in room.guests:
        address = f"{room.topology.address(guest.number, DATA.name)}/24"
        guest.must(
            f"set -e\nip address flush dev {source}\nip link set {device} up\nip address add {address} dev {device}\n"
            f"ip route replace default dev {device}"
        )


TWO_CABLES = Topology(networks=(DATA, Network("spare"), LAUNCH))


@case("data right; the job goes on by the other cable", TWO_CABLES, tcp=True, spoils=True)
def bond(room: Room, provider: str) -> Verdict:
    """The hosts have bonds of two cards (active-backup), and one of the cables is pulled in mid-job."""
    slaves = "\n".join(f"ip link set {card} down; ip link set {card} master bond" for card in ("data", "spare"))
    on_all(room, f"ip link add bond type bond mode active-backup miimon 100\nip address flush dev spare\n{slaves}")
    on_all(room, "ip link set bond type bond primary data")
    move(room, "bond")

    def pull(_: threading.Event) -> None:
        for guest in room.guests:
            guest.set_link("data", False)

    job, began = disturbed(room, pull, provider, env={"FI_TCP_IFACE": "bond"})
    verdict = survived(job, began)
    if not verdict.problem and not all(guest.sent("spare") > 1 << 16 for guest in room.guests):
        return Verdict("the job did not go on by the other cable", verdict.note, job.output)
    return verdict


# Seconds of a job of which both cables carry packets, then one, then both. A card that is used sends at least so many bytes in
# each of the three phases.
CABLES_SECONDS = 120.0
USED = 128 << 10
# A card whose cable is pulled still sends questions whether it works, five a second for each pair of cards. They may be at
# most this part of what the other card sends.
UNUSED = 1 / 10


@case(
    "data right; both cards carry packets, while one is out the other one carries all, and then both again",
    TWO_CABLES,
)
def card_pulled(room: Room, provider: str) -> Verdict:
    """A job uses two cards in two subnets (`FI_SQUALL_RAILS=all`), and the cable of one of them is pulled for a time."""
    cards = ("data", "spare")
    # Bytes that each card of the first host has sent: at the beginning, before the cable is pulled, a second later, when it is
    # put back, and at the end.
    counts: list[tuple[int, ...]] = []

    def count() -> tuple[int, ...]:
        return tuple(room.guests[0].sent(card) for card in cards)

    def wait_for(over: threading.Event, used: Sequence[int]) -> None:
        """Waits until these cards have sent enough since the last count, and adds a count."""
        before = counts[-1]
        while not over.wait(0.5):
            now = count()
            if all(now[card] - before[card] >= USED for card in used):
                break
        counts.append(count())

    def pull(over: threading.Event) -> None:
        wait_for(over, (0, 1))
        room.guests[1].set_link("spare", False)
        over.wait(1)
        counts.append(count())
        wait_for(over, (0,))
        room.guests[1].set_link("spare", True)
        wait_for(over, (0, 1))

    counts.append(count())
    env = {"FI_SQUALL_IFACE": ",".join(cards), "FI_SQUALL_RAILS": "all"}
    job, began = disturbed(room, pull, provider, CABLES_SECONDS, env=env)
    verdict = survived(job, began)
    spans = [tuple(then[card] - now[card] for card in (0, 1)) for now, then in pairwise(counts)]
    note = "; ".join([f"KiB of each card: {[tuple(sent >> 10 for sent in span) for span in spans]}", verdict.note])
    if verdict.problem:
        return Verdict(verdict.problem, note, verdict.output)
    both, _, one, again = spans
    problem = None
    if min(both) < USED:
        problem = "one of the cards carried nothing before the pull"
    elif one[0] < USED or one[1] > UNUSED * one[0]:
        problem = "the job did not go on by the other card alone"
    elif min(again) < USED:
        problem = "the card was not used again after its return"
    return Verdict(problem, note, job.output)


@case("data right over the VLAN, which squall finds by the default route")
def vlan(room: Room, provider: str) -> Verdict:
    """The hosts' addresses are on VLAN 7 of their cards."""
    on_all(room, "ip link add link data name data.7 type vlan id 7")
    move(room, "data.7")
    verdict = through("data.7", room.guests[0], room, provider)
    move(room, DATA.name, "data.7")
    on_all(room, "ip link del data.7; ip route del default")
    return verdict


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
    verdict = through("wg0", room.guests[0], room, provider, FI_SQUALL_IFACE="wg0")
    on_all(room, "ip link del wg0")
    return verdict


@case("data right over the overlay network, whose MTU is 1450")
def vxlan(room: Room, provider: str) -> Verdict:
    """The hosts talk through a VXLAN, which the job names."""
    for guest, other in zip(room.guests, reversed(room.guests)):
        remote = room.topology.address(other.number, DATA.name)
        guest.must(
            f"set -e\nip link add vxlan0 mtu 1450 type vxlan id 7 dstport 4789 remote {remote} dev data\n"
            f"ip address add 10.98.0.{guest.number + 1}/24 dev vxlan0\nip link set vxlan0 up"
        )
    verdict = through("vxlan0", room.guests[0], room, provider, FI_SQUALL_IFACE="vxlan0")
    on_all(room, "ip link del vxlan0")
    return verdict


@case("data right", tcp=True)
def mtu_differs(room: Room, provider: str) -> Verdict:
    """The card of one host has an MTU of 9000, that of the other one 1500."""
    room.guests[0].must("ip link set data mtu 9000")
    try:
        return sums(room, provider)
    finally:
        room.guests[0].must("ip link set data mtu 1500")


@case("data right over IPv6")
def ipv6_only(room: Room, provider: str) -> Verdict:
    """The network of the data, which the job names, has no IPv4 addresses; that of the launcher has, because MPICH's launcher
    finds hosts by IPv4 alone."""
    on_all(room, "ip -4 address flush dev data")
    verdict = through(DATA.name, room.guests[0], room, provider, FI_SQUALL_IFACE=DATA.name)
    for guest in room.guests:
        guest.must(f"ip address add {room.topology.address(guest.number, DATA.name)}/24 dev data")
    return verdict


ROUTED = Topology(("6.1",) * 3, (Network("west", (0, 2)), Network("east", (1, 2)), Network("launch", (0, 1))))


@case("data right", ROUTED)
def router(room: Room, provider: str) -> Verdict:
    """A third host routes between the subnets of the two hosts of the job."""
    topology = room.topology
    room.guests[2].must("sysctl -w net.ipv4.ip_forward=1")
    room.guests[0].must(f"ip route add 10.81.0.0/24 via {topology.address(2, 'west')}")
    room.guests[1].must(f"ip route add 10.80.0.0/24 via {topology.address(2, 'east')}")
    return through("east", room.guests[2], room, provider)


CARDS_THAT_OFFLOAD = Topology(networks=(Network("data", card=OFFLOADING), LAUNCH))


@case("data right; squall doctor finds that the kernel takes trains of packets", CARDS_THAT_OFFLOAD)
def offloads(room: Room, provider: str) -> Verdict:
    """The cards calculate checksums and cut segments (vmxnet3)."""
    return with_doctor(sums(room, provider), room.guests[0], TAKES_TRAINS)


@case("data right, before and after; squall doctor notes that the kernel refuses trains of packets", CARDS_THAT_OFFLOAD)
def offloads_go(room: Room, provider: str) -> Verdict:
    """The offloads of both cards are turned off in mid-job."""

    def turn_off(_: threading.Event) -> None:
        on_all(room, "ethtool -K data tx off rx off tso off gso off gro off")

    try:
        verdict = survived(*disturbed(room, turn_off, provider))
        return with_doctor(verdict, room.guests[0], REFUSES_TRAINS)
    finally:
        on_all(room, "ethtool -K data tx on rx on tso on gso on gro on")


# Removes the firewall of a case.
OPEN = "nft flush ruleset"
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


@case("data right, or an error that names the peer; squall doctor notes the full table")
def conntrack_full(room: Room, provider: str) -> Verdict:
    """The firewalls' tables of connections have 8 entries, and are full."""
    on_all(
        room, f"{TRACK}\nsysctl -n net.netfilter.nf_conntrack_max > /tmp/most\nsysctl -w net.netfilter.nf_conntrack_max=8"
    )
    try:
        job = room.job("sums", provider=provider, env={**WARNINGS, "FI_SQUALL_DEADLINE": "10s"})
        is_right = not job.problem or "[peer " in job.output
        ended = f"the job ended with an error: {job.problem}" if job.problem else "the job was right"
        verdict = Verdict(None if is_right else job.problem, f"{ended}; {job.note}", job.output)
        # The entries of a job that has ended stay for half a minute and more.
        return with_doctor(verdict, room.guests[0], "nf_conntrack")
    finally:
        on_all(room, f"sysctl -w net.netfilter.nf_conntrack_max=$(cat /tmp/most)\n{OPEN}")


# A firewall that admits what docs/hosts.md says, and the launcher's network.
FIREWALL = """
nft add table inet filter
nft add chain inet filter input '{ type filter hook input priority 0; policy drop; }'
nft add rule inet filter input iifname '{ lo, launch }' accept
nft add rule inet filter input udp dport 47930-47993 accept
"""


@case("data right")
def firewall(room: Room, provider: str) -> Verdict:
    """The hosts admit nothing but the range of ports that the job uses, by the rule of docs/hosts.md."""
    on_all(room, FIREWALL)
    try:
        return sums(room, provider, FI_SQUALL_PORT="47930-47993")
    finally:
        on_all(room, OPEN)


@case("an error that names the peer and the firewall, once the job has run for the deadline (8 s here)")
def firewall_closed(room: Room, provider: str) -> Verdict:
    """The hosts admit another range of ports than the job uses."""
    on_all(room, FIREWALL)
    env = {**WARNINGS, "FI_SQUALL_PORT": "48930-48993", "FI_SQUALL_DEADLINE": "8s"}
    try:
        job = room.job("sums", provider=provider, env=env, timeout=LAUNCHING)
    finally:
        on_all(room, OPEN)
    named = "[peer " in job.output and "firewall" in job.output
    if job.result.ok or job.result.code in (None, 124):
        return Verdict(f"{job.result.why()} after {job.result.seconds:.0f} s", "", job.output)
    return Verdict(None if named else "no line names the peer and the firewall", "", job.output)
