"""Use `squall doctor` and `squall top` as an engineer does whose job does not run.

Two namespaces are hosts with three interfaces each: `eth0` leads to the other one, `wrong0` and the bridge `br-1f` nowhere.
Doctor runs on one host about the other with the wrong interface chosen, with the right one, with none, with a bridge at
either end, with a narrow path, with a firewall (if nft is installed), and with no answer. It has to name each fault and its
cure. With the proposed settings a job runs between the hosts, and top shows both ranks.
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
    """Two hosts with a cable between them, and a network each that ends at itself."""

    def __init__(self) -> None:
        super().__init__(["a", "b"])

    def build(self) -> None:
        self.join("a", "eth0", f"{HERE}/24", "b", "eth0", f"{THERE}/24", mtu=1500)
        for node, address in (("a", "10.99.0.1/24"), ("b", "10.99.0.2/24")):
            self.ip(node, "link", "add", "wrong0", "type", "veth", "peer", "name", "wrong1")
            self.ip(node, "link", "set", "wrong1", "up")
            self.address(node, "wrong0", address)
            self.ip(node, "link", "add", BRIDGE, "type", "bridge")
            self.address(node, BRIDGE, "172.18.0.1/16")


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
        check(tally, "no interface named", doctor.ask(""), 0, "endpoints will be on eth0", agreed)
        doubtful = (f"endpoints will be on {BRIDGE}", "a bridge or virtual interface without a device", cure)
        check(tally, "a bridge here", doctor.ask(BRIDGE), 1, *doubtful)
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
    check(tally, "nobody answers", doctor.ask("eth0"), 0, "nobody listens there", "squall doctor --answer")
    check(tally, "no such interface", doctor.ask("eth7"), 1, "FI_SQUALL_IFACE=eth7", "matches nothing usable", "eth0 ")


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
