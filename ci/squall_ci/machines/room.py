"""Boots guests with QEMU, joins them by networks of their own, and runs commands and jobs on them.

A frame goes from guest to guest through Unix sockets of a private directory, so nothing else can be reached. Commands reach a
guest by ssh over a card of its own, which its programs do not see, from a port of this machine's loopback interface. Everything
ends with the room.
"""

import collections
import contextlib
import functools
import json
import os
import pathlib
import re
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall_ci.job import Job, Statistics
from squall_ci.machines.image import BASE, Kernel, KEY, SSH
from squall_ci.paths import TARGET
from squall_ci.process import Result, run, Word

# Seconds: a guest boots in ten to sixty without KVM. One stood still before its first line, so each is started anew if it does.
BOOT, BOOTS = 120.0, 3
# Seconds beyond the deadline of a command in which ssh reports its end.
GRACE = 15.0
READY = "guest is ready"
# A card whose offers depend on the machine, and one to which QEMU lends the calculation of checksums.
PLAIN, OFFLOADING = "virtio-net-pci", "vmxnet3"
# The directories of MPIs in a guest, and of what is tried.
OPT, TRIED = "/opt", "/mnt"
# The launchers, the words before the number of ranks, and variables that belong to how an MPI is installed or run here.
LAUNCHERS = {
    "mpich": ("mpich/bin/mpiexec", "-f hosts -ppn 1", {}),
    "openmpi": (
        "openmpi/bin/mpirun",
        "--host {listed} --map-by node --bind-to none",
        dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT"), "1")
        | {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    ),
    "impi": ("impi/bin/mpiexec.hydra", "-f hosts -ppn 1", {"LD_LIBRARY_PATH": "/opt/impi/lib"}),
}


# The share of the processors that a guest gets beside other work of the machine, as nice(1) counts. Each guest is a group of the
# scheduler, which would get as much as a whole build.
NICE = 3


# A boot sector that ends QEMU by its debugging port: mov dx,0x501; mov al,0x15; out dx,al.
SECTOR = bytes.fromhex("ba0105b015ee") + bytes(504) + b"\x55\xaa"
SECTOR_RUN = 0x15 * 2 + 1


@functools.cache
def accelerator() -> tuple[str, ...]:
    """Returns the options for KVM if a guest runs under it, else those for translated code.

    A device that opens proves nothing: inside of another virtual machine a guest may never begin.
    """
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        with tempfile.NamedTemporaryFile() as disk:
            disk.write(SECTOR)
            disk.flush()
            words = (
                "-nodefaults -no-user-config -display none -accel kvm -cpu max -smp 2 -device isa-debug-exit,iobase=0x501"
            )
            drive = f"file={disk.name},format=raw"
            if run(["qemu-system-x86_64", *words.split(), "-drive", drive], None, 5).code == SECTOR_RUN:
                return ("-accel", "kvm", "-cpu", "max")
    return ("-accel", "tcg", "-cpu", "max")


# Seconds that a job may take. An emulated processor beside other work takes minutes for what a core does in seconds.
PATIENCE = 600.0


@dataclass(frozen=True)
class Network:
    """A network that has a card in each of its guests, named after it. Two guests have a cable, more of them a switch."""

    name: str
    # The numbers of its guests; all of the room if there is none.
    guests: tuple[int, ...] = ()
    mtu: int = 1500
    card: str = PLAIN


# By the first, which they find themselves, jobs talk; by the other one they are launched, as in a cluster.
DATA, LAUNCH = Network("data"), Network("launch")


@dataclass(frozen=True)
class Topology:
    """The guests of a room, by the series of their kernels, and their networks."""

    kernels: tuple[str, ...] = ("6.1", "6.1")
    networks: tuple[Network, ...] = (DATA, LAUNCH)
    # The memory of a guest in MiB, and its processors. Without KVM each takes a core of this machine.
    memory: int = 512
    processors: int = 1

    def members(self, network: Network) -> tuple[int, ...]:
        """Returns the numbers of a network's guests."""
        return network.guests or tuple(range(len(self.kernels)))

    def number(self, network: str) -> int:
        """Returns the position of a network."""
        return next(at for at, known in enumerate(self.networks) if known.name == network)

    def address(self, guest: int, network: str) -> str:
        """Returns the IPv4 address of a guest in a network."""
        return f"10.{80 + self.number(network)}.0.{guest + 1}"

    def address_6(self, guest: int, network: str) -> str:
        """Returns the IPv6 address of a guest in a network."""
        return f"fd{80 + self.number(network)}::{guest + 1}"

    def mac(self, guest: int, network: str) -> str:
        """Returns the hardware address of a guest's card."""
        return f"52:54:00:{self.number(network):02x}:00:{guest + 1:02x}"

    def configuration(self, guest: int) -> str:
        """Returns the script that names a guest's cards and gives them their addresses."""
        cards = [
            f"card=$(grep -lix {self.mac(guest, network.name)} /sys/class/net/*/address | cut -d/ -f5)\n"
            f'ip link set "$card" name {network.name}\n'
            f"ip link set {network.name} mtu {network.mtu} up\n"
            f"ip address add {self.address(guest, network.name)}/24 dev {network.name}\n"
            f"ip address add {self.address_6(guest, network.name)}/64 dev {network.name} nodad"
            for network in self.networks
            if guest in self.members(network)
        ]
        names = [f"{self.address(other, self.networks[-1].name)} node{other}" for other in range(len(self.kernels))]
        hosts = f"printf '%s\\n' '127.0.0.1 localhost' {shlex.join(names)} > /etc/hosts"
        return "\n".join(["set -e", *cards, hosts])


TWO_HOSTS = Topology()


class Switch:
    """Forwards frames between the sockets of more than two cards: to the card that has sent from an address, else to all.

    The socket of a card takes ten frames. What it has no room for waits in a queue, as in any switch.
    """

    # Frames that wait for a card at most, and the seconds after which they are offered again.
    QUEUE, PAUSE = 1000, 0.001

    def __init__(self, folder: pathlib.Path, network: str, guests: Sequence[int]) -> None:
        self._over = threading.Event()
        self._ports: dict[socket.socket, str] = {}
        for guest in guests:
            port = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            port.setblocking(False)
            port.bind(str(folder / f"{network}-switch-{guest}"))
            self._ports[port] = str(folder / f"{network}-{guest}")
        self._thread = threading.Thread(target=self._forward)
        self._thread.start()

    def _forward(self) -> None:
        learnt: dict[bytes, str] = {}
        queues: dict[str, collections.deque[bytes]] = {path: collections.deque() for path in self._ports.values()}
        while not self._over.is_set():
            waiting = any(queues.values())
            for port in select.select(list(self._ports), [], [], self.PAUSE if waiting else 0.2)[0]:
                with contextlib.suppress(BlockingIOError):
                    frame = port.recv(1 << 17)
                    learnt[frame[6:12]] = self._ports[port]
                    known = learnt.get(frame[:6])
                    for path in [known] if known else [path for path in queues if path != self._ports[port]]:
                        if len(queues[path]) < self.QUEUE:
                            queues[path].append(frame)
            for path, queue in queues.items():
                self._offer(path, queue)

    def _offer(self, path: str, queue: collections.deque[bytes]) -> None:
        """Sends the frames of a queue to a card, as many as it takes. A card whose guest has ended loses them."""
        port = next(iter(self._ports))
        while queue:
            try:
                port.sendto(queue[0], path)
            except BlockingIOError:
                return
            except OSError:
                pass
            queue.popleft()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for port in self._ports:
            port.close()


class Guest:
    """A virtual machine."""

    def __init__(self, room: "Room", number: int) -> None:
        self.number = number
        self.name = f"node{number}"
        self._room = room
        self._folder = room.folder
        self._kernel = room.kernels[room.topology.kernels[number]]
        self._console = room.folder / f"{self.name}.console"
        self._master: subprocess.Popen[bytes] | None = None
        self._boots = 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def command(self) -> list[Word]:
        """Returns the command of QEMU. The machine uses KVM if it works."""
        topology = self._room.topology
        ramdisk = self._folder / f"{self.name}.ramdisk"
        ramdisk.write_bytes(self._kernel.ramdisk())
        boot = f"console=ttyS0 net.ifnames=0 panic=1 quiet tsc=reliable mitigations=off guest={self.name}"
        words: list[Word] = ["nice", "-n", NICE, "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"]
        words += ["-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", *accelerator()]
        words += [
            "-smp",
            topology.processors,
            "-m",
            topology.memory,
            "-kernel",
            self._kernel.image,
            "-initrd",
            ramdisk,
            "-append",
            boot,
        ]
        words += ["-serial", f"file:{self._console}", "-qmp", f"unix:{self._qmp()},server=on,wait=off"]
        words += ["-device", "virtio-rng-pci"]
        for disk in (BASE, self._room.payload):
            words += ["-drive", f"file={disk},if=virtio,format=raw,readonly=on,file.locking=off"]
        for network in topology.networks:
            members = topology.members(network)
            if self.number in members:
                words += self._card(network, members)
        words += ["-netdev", f"user,id=control,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"]
        words += ["-device", f"virtio-net-pci,netdev=control,romfile=,mac=52:54:00:ff:00:{self.number + 1:02x}"]
        return words

    def _card(self, network: Network, members: Sequence[int]) -> list[Word]:
        name = network.name
        others = [member for member in members if member != self.number]
        other = f"{name}-{others[0]}" if len(others) == 1 else f"{name}-switch-{self.number}"
        ends = f"local.type=unix,local.path={self._folder}/{name}-{self.number}"
        ends += f",remote.type=unix,remote.path={self._folder}/{other}"
        mac = self._room.topology.mac(self.number, name)
        words: list[Word] = [
            "-netdev",
            f"dgram,id={name},{ends}",
            "-device",
            f"{network.card},netdev={name},romfile=,mac={mac}",
        ]
        if self._room.captures:
            file = self._room.captures / f"{self.name}-{name}.pcap"
            words += ["-object", f"filter-dump,id=dump-{name},netdev={name},file={file}"]
        return words

    def _qmp(self) -> pathlib.Path:
        return self._folder / f"{self.name}.qmp"

    def start(self) -> None:
        """Starts QEMU. The caller has to await `ready` before commands."""
        with open(self._folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command())), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        # A kernel without groups follows the value of the process, which `nice` sets.
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{self.process.pid}/autogroup").write_text(str(NICE))
        self._boots = 1

    def ready(self) -> None:
        """Waits until the guest has booted, and configures its networks."""
        for _ in range(BOOTS):
            if self._has_booted():
                break
            self.kill()
            self.start()
        else:
            log = (self._folder / f"{self.name}.log").read_text(errors="replace")
            raise RuntimeError(f"{self.name} does not boot: {log}\n{self._console_text()[-3000:]}")
        self._log_in()
        result = self.run(self._room.topology.configuration(self.number))
        if not result.ok:
            raise RuntimeError(f"{self.name} cannot be configured: {result.why()}\n{result.output}")

    def _has_booted(self) -> bool:
        """Waits until the guest has booted, and returns whether it has in time."""
        until = time.monotonic() + BOOT
        while self.process.poll() is None and time.monotonic() < until:
            if self._console_text().count(READY) >= self._boots:
                return True
            time.sleep(0.1)
        return False

    def _console_text(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def _ssh(self, *words: str) -> list[Word]:
        options = {"IdentityFile": KEY, "Port": self._port, "ControlPath": self._folder / f"{self.name}.ssh", **SSH}
        return ["ssh", "-F", "none", *(f"-o{name}={value}" for name, value in options.items()), *words]

    def _log_in(self) -> None:
        """Opens the connection that commands share."""
        self._log_out()
        until = time.monotonic() + BOOT
        while True:
            self._master = subprocess.Popen(
                list(map(str, self._ssh("-M", "-N", "root@127.0.0.1"))),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            while self._master.poll() is None and time.monotonic() < until:
                if (self._folder / f"{self.name}.ssh").exists():
                    return
                time.sleep(0.05)
            if time.monotonic() > until:
                raise RuntimeError(f"{self.name} does not answer ssh")

    def _log_out(self) -> None:
        if self._master:
            self._master.kill()
            self._master.wait()
            (self._folder / f"{self.name}.ssh").unlink(missing_ok=True)
            self._master = None

    def run(self, script: str, timeout: float = 60.0) -> Result:
        """Runs a shell script in the guest, which ends it after `timeout` seconds."""
        limited = f"timeout -k 2 {timeout:.0f} sh -c {shlex.quote(script)}"
        return run(self._ssh("root@127.0.0.1", limited), None, timeout + GRACE)

    def must(self, script: str, timeout: float = 60.0) -> str:
        """Runs a script that has to succeed, and returns its output."""
        result = self.run(script, timeout)
        if not result.ok:
            raise RuntimeError(f"{self.name}: {script}: {result.why()}\n{result.output}")
        return result.output

    def qmp(self, execute: str, **arguments: object) -> None:
        """Has QEMU execute a command of its machine protocol."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self._qmp()))
            with client.makefile("rw") as lines:
                for words in ({"execute": "qmp_capabilities"}, {"execute": execute, "arguments": arguments}):
                    lines.write(json.dumps(words))
                    lines.flush()
                    while not ("return" in (answer := json.loads(lines.readline())) or "error" in answer):
                        pass
                    if "error" in answer:
                        raise RuntimeError(f"QEMU refuses {execute}: {answer['error']['desc']}")

    def set_link(self, network: str, up: bool) -> None:
        """Pulls the cable out of a card, or puts it back."""
        self.qmp("set_link", name=network, up=up)

    def stop(self, stopped: bool = True) -> None:
        """Stops all processors of the guest, or lets them go on."""
        self.process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)

    def reset(self) -> None:
        """Resets the guest as its button does. The caller has to await `ready` before commands."""
        self._boots += 1
        self.qmp("system_reset")

    def kill(self) -> None:
        """Ends QEMU, as a power failure ends a host."""
        self._log_out()
        self.process.kill()
        self.process.wait()
        self._console.unlink(missing_ok=True)

    def sent(self, card: str) -> int:
        """Returns the number of bytes that left by a card."""
        result = self.run(f"cat /sys/class/net/{card}/statistics/tx_bytes", 10)
        return int(result.output) if result.ok else 0


@dataclass
class Room:
    """The guests of a topology, from the beginning of a `with` statement to its end."""

    kernels: Mapping[str, Kernel]
    payload: pathlib.Path
    topology: Topology = TWO_HOSTS
    # The directory for captures of all cards, if they are wanted.
    captures: pathlib.Path | None = None

    def __enter__(self) -> "Room":
        with contextlib.ExitStack() as stack:
            # Paths of Unix sockets are short.
            self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="squall-machines-")))
            for network in self.topology.networks:
                if len(members := self.topology.members(network)) > 2:
                    stack.callback(Switch(self.folder, network.name, members).close)
            self.guests = [Guest(self, number) for number in range(len(self.topology.kernels))]
            for guest in self.guests:
                guest.start()
                stack.callback(guest.kill)
            for guest in self.guests:
                guest.ready()
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def job(
        self,
        program: str,
        *words: Word,
        provider: str = "squall",
        mpi: str = "mpich",
        ranks: int = 2,
        on: Sequence[int] = (0, 1),
        timeout: float = PATIENCE,
        at_least: int = 1 << 20,
        env: Mapping[str, str] | None = None,
        installed: bool = False,
    ) -> Job:
        """Runs fabtests/mpi/`program`.py on guests in turn, launched from the first over ssh, by `squall run` on squall, which was
        `installed` or is the one on the second disk.

        On squall the endpoints' statistics prove that `at_least` bytes went through it.
        """
        for number in on:
            self.guests[number].run("rm -rf /tmp/stats; mkdir /tmp/stats")
        deadline = {"SQUALL_TEST_DEADLINE": f"{max(5, timeout - 5):.0f}"}
        command = [f"{TRIED}/mpi/{program}.py", *words]
        if provider == "squall":
            under: list[Word] = ["squall" if installed else f"{TRIED}/bin/squall", "run", "--require", "--"]
            values = {"FI_SQUALL_STATS": "json:/tmp/stats/%h-%p-%e.json"}
        else:
            under = []
            values = {"FI_PROVIDER": provider, "FI_TCP_IFACE": DATA.name}
            values |= {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}
        script = self._script(command, under, mpi, ranks, on, {**values, **deadline, **(env or {})})
        result = self.guests[on[0]].run(script, timeout)
        found = re.search(rf"^{program}: (\{{.*\}})$", result.output, re.M)
        figures: dict[str, Any] = json.loads(found[1]) if found else {}
        problem = None if result.ok else result.why()
        if not problem and not re.search(rf"^{program}: \d+ passed, 0 failed$", result.output, re.M):
            problem = "the ranks did not report success"
        if provider != "squall" or problem:
            return Job(result, problem, figures=figures)
        with tempfile.TemporaryDirectory(dir=TARGET) as directory:
            for number in on:
                report = self.guests[number].must("cat /tmp/stats/*.json")
                (pathlib.Path(directory) / f"{number}.json").write_text(report)
            statistics = Statistics(pathlib.Path(directory))
            return Job(result, statistics.verdict(ranks, at_least), statistics.summary(), figures)

    def _script(
        self,
        program: Sequence[Word],
        under: Sequence[Word],
        mpi: str,
        ranks: int,
        on: Sequence[int],
        env: Mapping[str, str],
    ) -> str:
        """Returns the script that launches a job by an MPI's launcher, which runs under another program."""
        launcher, options, allowed = LAUNCHERS[mpi]
        each = -(-ranks // len(on))
        names = [f"node{number}" for number in on]
        options = options.format(each=each, listed=",".join(f"{name}:{each}" for name in names))
        command = [*under, f"{OPT}/{launcher}", *options.split(), "-n", ranks, f"{OPT}/{mpi}/bin/python", *program]
        caller = {name: value for name, value in os.environ.items() if name.startswith(("FI_SQUALL_", "FI_LOG_"))}
        values = {**allowed, **caller, "OMP_NUM_THREADS": "1", **env}
        exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items())
        return f"cd /tmp\nprintf '%s\\n' {' '.join(names)} > hosts\n{exports}\n{shlex.join(map(str, command))}"
