"""Use `squall doctor` and `squall top` as an engineer does whose job does not run.

Two namespaces are hosts. `eth0` leads to the other one, and the kernel lists it last: before it come a bridge with a
container's cable, a veth pair within the host, a VXLAN tunnel and a VPN's tunnel, each up with an address. Doctor runs on one
host about the other with the wrong interface chosen, with the right one, with none, with a bridge at either end, with a
routing rule, with answers by another cable, with a narrow path, with a firewall (if nft is installed), and with no answer. It
has to name each fault and its cure. With the proposed settings a job runs between the hosts, and top shows both ranks.
"""

import argparse
import contextlib
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

from squall_ci.checks.top import PATIENCE, RANKS, Top
from squall_ci.mpis import MPIS
from squall_ci.namespaces import Namespaces
from squall_ci.paths import MPI_TESTS, need
from squall_ci.process import run
from squall_ci.programs import squall
from squall_ci.tally import Tally

HERE, THERE = "10.77.0.1", "10.77.0.2"
PORTS = "47930-47931"
# A bridge with the same address on both hosts, as container engines make it.
BRIDGE = "br-1f"


class Hosts(Namespaces):
    """Two hosts with a cable between them, the last of their interfaces; the others end at the host itself."""

    def __init__(self) -> None:
        super().__init__(["a", "b"])

    def build(self) -> None:
        for node, host in (("a", 1), ("b", 2)):
            self.ip(node, "link", "add", BRIDGE, "type", "bridge")
            self.ip(node, "link", "add", "wrong0", "type", "veth", "peer", "name", "wrong1")
            self.ip(node, "link", "set", "wrong1", "up", "master", BRIDGE)
            self.ip(node, "link", "add", "vxlan0", "type", "vxlan", "id", 7, "dstport", 4789, "remote", "192.0.2.9")
            self.ip(node, "tuntap", "add", "tun0", "mode", "tun")
            self.address(node, BRIDGE, "172.18.0.1/16")
            self.address(node, "wrong0", f"10.99.0.{host}/24")
            self.address(node, "vxlan0", f"10.98.0.{host}/24")
            self.address(node, "tun0", f"10.97.0.{host}/32")
        self.join("a", "eth0", f"{HERE}/24", "b", "eth0", f"{THERE}/24", mtu=1500)
        # The VPN has a default route, as one with a full tunnel has.
        self.ip("a", "route", "add", "default", "dev", "vxlan0")


class Doctor:
    """The program, in either host."""

    def __init__(self, hosts: Hosts, program: pathlib.Path, env: Mapping[str, str]) -> None:
        self.hosts = hosts
        self.program = program
        self.env = dict(env)

    def ask(self, interface: str) -> subprocess.CompletedProcess[str]:
        """Runs doctor on the first host about the second."""
        command = self.hosts.command("a", self.program, "doctor", THERE)
        env = self.env | {"FI_SQUALL_IFACE": interface}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    @contextlib.contextmanager
    def answering(self, interface: str = "eth0") -> Iterator[None]:
        """Lets the second host answer for the time of the context, with this interface for its endpoints."""
        command = self.hosts.command("b", self.program, "doctor", "--answer")
        env = self.env | {"FI_SQUALL_IFACE": interface}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout
            need(process.stdout.readline().startswith("answering at"), "squall doctor --answer does not answer")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=10)


def check(tally: Tally, name: str, asked: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Checks the exit status of doctor and that its output contains all these words."""
    missing = [word for word in words if word not in asked.stdout]
    problem = f"missing from the output: {missing}" if missing else None
    if asked.returncode != code:
        problem = f"exit status {asked.returncode}, expected {code}"
    tally.add(name, problem, output=asked.stdout + asked.stderr)


def ask_about_the_other_host(doctor: Doctor, tally: Tally) -> None:
    hosts = doctor.hosts
    with doctor.answering():
        cure = "export FI_SQUALL_IFACE=eth0"
        check(tally, "wrong interface", doctor.ask("wrong0"), 1, f"to {THERE}:4793 leaves by eth0", cure)
        agreed = "endpoints of both hosts will be on 10.77.0.0/24"
        good = (f"{THERE}:4793 answers after", "ECN survives", "MTU, 1500, reach", "offers squall", agreed)
        check(tally, "right interface", doctor.ask("eth0"), 0, *good)
        check(
            tally,
            "no interface named",
            doctor.ask(""),
            0,
            "endpoints will be on eth0",
            agreed,
            "answers of",
            "arrive by eth0",
        )
        check_ranking(tally, doctor.ask(""))
        doubtful = (
            f"endpoints will be on {BRIDGE}",
            f"bridge of containers; matches {BRIDGE}; other hosts may not reach",
            cure,
        )
        check(tally, "a bridge here", doctor.ask(BRIDGE), 1, *doubtful)
        rule = ("from", HERE, "lookup", 77)
        hosts.ip("a", "route", "add", "10.77.0.0/24", "dev", "wrong0", "table", 77)
        hosts.ip("a", "rule", "add", *rule)
        check(
            tally,
            "routing rule",
            doctor.ask("eth0"),
            1,
            f"to {THERE}:4793 leaves by wrong0",
            "export FI_SQUALL_IFACE=wrong0",
        )
        hosts.ip("a", "rule", "del", *rule)
        answer_by_another_cable(doctor, tally)
        hosts.set_mtu("b", "eth0", 1400)
        check(tally, "narrow way", doctor.ask("eth0"), 0, f"packets of MTU 1400 reach {THERE}", "FI_SQUALL_MTU=1372")
        hosts.set_mtu("b", "eth0", 1500)
        if shutil.which("nft"):
            chain = "{ type filter hook input priority 0; policy accept; }"
            hosts.inside("b", "nft", "add", "table", "inet", "wall")
            hosts.inside("b", "nft", "add", "chain", "inet", "wall", "input", chain)
            hosts.inside("b", "nft", "add", "rule", "inet", "wall", "input", "udp", "dport", "4793", "drop")
            let_in = "udp dport 47930-47993 accept"
            check(tally, "firewall", doctor.ask("eth0"), 1, f"{THERE}:4793 does not answer", "a firewall drops", let_in)
            hosts.inside("b", "nft", "flush", "ruleset")
        else:
            print("SKIPPED firewall: no nft here, ci/run setup network installs it")
    with doctor.answering(BRIDGE):
        same = f"endpoints of {THERE}:4793 will be on {BRIDGE} 172.18.0.1/16, which is an address of this host as well"
        check(tally, "a bridge there", doctor.ask("eth0"), 1, same, "set FI_SQUALL_IFACE")
    check(tally, "nobody answers", doctor.ask("eth0"), 0, "nothing listens at its UDP port", "squall doctor --answer")
    unmatched = ("FI_SQUALL_IFACE=eth7 matches no usable interface", "eth0 ", "-> set FI_SQUALL_IFACE")
    check(tally, "no such interface", doctor.ask("eth7"), 1, *unmatched)
    names = ("lo", BRIDGE, "wrong0", "wrong1", "vxlan0", "tun0", "eth0")
    for name in names:
        hosts.ip("a", "link", "set", name, "down")
    check(tally, "no interface", doctor.ask(""), 1, "no endpoint can open: no interface is up", "-> ip link set NAME up")
    for name in names:
        hosts.ip("a", "link", "set", name, "up")


def check_ranking(tally: Tally, asked: subprocess.CompletedProcess[str]) -> None:
    """Checks that doctor gives the cable the first rank, and each other interface a line with the reason why it is not used."""
    reasons = {
        "eth0": "1  cable to another namespace (veth); no better interface is up",
        BRIDGE: "not used  bridge of containers; a better interface is up",
        "wrong0": "not used  virtual: cable within this host; a better interface is up",
        "vxlan0": "not used  virtual: VXLAN; a better interface is up",
        "tun0": "not used  virtual: TUN; a better interface is up",
        "lo": "not used  loopback; a better interface is up",
    }
    lines = {line.split()[0]: " ".join(line.split()) for line in asked.stdout.splitlines() if line.startswith("  ")}
    wrong = [name for name, reason in reasons.items() if not lines.get(name, "").endswith(" ".join(reason.split()))]
    tally.add("ranking", f"other lines than expected: {wrong}" if wrong else None, output=asked.stdout)


def answer_by_another_cable(doctor: Doctor, tally: Tally) -> None:
    """Joins the hosts by a second cable, on which the other host answers."""
    hosts = doctor.hosts
    hosts.join("a", "eth1", "10.78.0.1/24", "b", "eth1", "10.78.0.2/24", mtu=1500)
    for node in hosts.nodes:
        # Packets by a cable that is not the way back to their source are accepted.
        lenient = 'for name in all eth0 eth1; do echo 0 > "/proc/sys/net/ipv4/conf/$name/rp_filter"; done'
        hosts.inside(node, "sh", "-c", lenient)
    hosts.ip("b", "route", "add", f"{HERE}/32", "dev", "eth1")
    asked = doctor.ask("eth0")
    check(
        tally, "answers by another cable", asked, 0, f"answers of {THERE}:4793 arrive by eth1, not by eth0", "arp_ignore=1"
    )
    hosts.ip("a", "link", "del", "eth1")


def run_a_job(hosts: Hosts, tally: Tally) -> None:
    """Runs a job between the hosts with the proposed settings, and checks that top shows its ranks."""
    mpi = MPIS["mpich"]
    env = mpi.env("squall") | {"FI_SQUALL_IFACE": "eth0", "FI_SQUALL_PORT": PORTS}
    with hosts.hydra({HERE: "a", THERE: "b"}) as launch:
        command = launch(mpi.command(RANKS, [mpi.python, MPI_TESTS / "steady.py", 6]))
        ended = []
        job = threading.Thread(target=lambda: ended.append(run(command, env, 60)))
        job.start()
        top, until = Top(), time.monotonic() + PATIENCE
        shown: dict[int, str] = {}
        while job.is_alive() and set(shown) != set(range(RANKS)) and time.monotonic() < until:
            found = top.document()["endpoints"]
            ours = [
                e
                for e in found
                if e["alive"] and e["local"].startswith("10.77.0.") and e["counters"]["rx_data_packets"] > 100
            ]
            shown = {endpoint["rank"]: endpoint["local"] for endpoint in ours}
            time.sleep(0.2)
        job.join()
    problem = None if ended[0].ok and " 0 failed" in ended[0].output else ended[0].why()
    tally.add("job", problem, output=ended[0].output)
    first, last = map(int, PORTS.split("-"))
    addresses = [shown.get(rank, "").rpartition(":") for rank in range(RANKS)]
    good = [address for address, _, _ in addresses] == [HERE, THERE]
    good = good and all(first <= int(port) <= last for _, _, port in addresses)
    tally.add("top", None if good else f"ranks and addresses: {shown}")


def main(_args: argparse.Namespace) -> int:
    mpi = MPIS["mpich"]
    tally = Tally()
    with Hosts() as hosts:
        ask_about_the_other_host(Doctor(hosts, squall(), mpi.env("squall")), tally)
        run_a_job(hosts, tally)
    return tally.finish()
