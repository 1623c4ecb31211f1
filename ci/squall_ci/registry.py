"""The commands of `ci/run`: tables from which `list`, the help and the dispatch follow."""

import argparse
import importlib
import os
import shutil
from dataclasses import dataclass
from types import ModuleType

from squall_ci.mpis import MPIS
from squall_ci.paths import need, need_provider

# Programs that a command may need, and the part of `ci/run setup` that installs them.
PROGRAMS = {
    "valgrind": "checks",
    "tshark": "checks",
    "nft": "network",
    "ethtool": "network",
    "qemu-system-x86_64": "machines",
    "debootstrap": "machines",
}


@dataclass(frozen=True)
class Command:
    """A row: a name, the time it takes on 2 cores, one line of description, and what has to be there."""

    name: str
    time: str
    what: str
    # Any of: setup (installs and builds first), provider, root, mpi (the one in the arguments), a name of MPIS or PROGRAMS.
    needs: str = ""
    # The module in the group's package; by default it is named after the command.
    module: str = ""
    # Parts of `ci/run setup` that `setup` in `needs` installs.
    parts: tuple[str, ...] = ("all",)
    # True if unknown options go on to another program, in `args.rest`.
    passes_on: bool = False

    def check_needs(self, args: argparse.Namespace) -> None:
        """Exits with advice if something that the command needs is missing."""
        for word in self.needs.split():
            if word == "root":
                need(os.geteuid() == 0, "root is needed, for namespaces")
            elif word == "provider":
                need_provider(getattr(args, "provider", "squall"))
            elif word in MPIS or word == "mpi":
                MPIS[args.mpi if word == "mpi" else word].need()
            elif word in PROGRAMS:
                need(shutil.which(word), f"{word} is missing: run ci/run setup {PROGRAMS[word]} first")


@dataclass(frozen=True)
class Group:
    """Commands that share a first word; those of the first group have none."""

    word: str
    what: str
    package: str
    commands: tuple[Command, ...]

    def load(self, command: Command) -> ModuleType:
        """Imports a command's module: `main(args)`, perhaps `arguments(parser)`, and the help as its docstring.

        Commands may share a module, which distinguishes them by `args.command`.
        """
        name = command.module or command.name.replace("-", "_")
        return importlib.import_module(f"squall_ci.{self.package}.{name}")

    def title(self, command: Command) -> str:
        """Returns what a user types for a command."""
        return f"{self.word} {command.name}".strip()


EVERYDAY = Group(
    "",
    "what one runs while working",
    "commands",
    (
        Command("setup", "2 min, then nothing", "install what is missing on Debian 12"),
        Command(
            "build", "1 min", "the provider and the time library into `target/provider`, and checks of them", passes_on=True
        ),
        Command("test", "13 min, then 5", "what finds faults quickly; `--fast`: without jobs and C ABI tests"),
        Command("nightly", "4 h (estimate)", "everything else, once for each commit"),
        Command("python", "10 s", "lints, types and unit tests of the Python code"),
        Command("package", "8 min", "packages into `dist`: wheel, deb, rpm, archives, recipes, SBOM"),
        Command("new-cc", "1 s", "begin a congestion control of your own: files, rows and tests"),
        Command(
            "demo",
            "90 s",
            "squall beside tcp on this machine; an MPI job on a failing network",
            "setup mpich",
            parts=("demo",),
        ),
    ),
)

SUITES = Group(
    "suite",
    "foreign suites, MPI programs and live experiments",
    "suites",
    (
        Command("mpi", "10 to 60 s", "the programs of `fabtests/mpi` under one MPI, on one provider", "mpi provider"),
        Command("imb", "3 min", "Intel's MPI benchmarks, 2 and 4 ranks, 0 to 4 MiB", "impi provider"),
        Command("mpi4py", "5 min", "mpi4py's tests under one MPI, from a source tree", "mpi provider"),
        Command("mpich", "20 min", "MPICH's tests, built elsewhere", "mpich provider"),
        Command("fabtests", "20 s", "fi_info, fi_pingpong and lnx under libfabric 1.17 to 2.5", "provider"),
        Command("fabsuite", "6 min", "libfabric's fabtests, built elsewhere", "provider"),
        Command("nccl", "1 min", "a network plugin of NCCL, built elsewhere", "provider"),
        Command("oneccl", "2 min", "oneCCL's collectives with every type", "provider"),
        Command(
            "nixl",
            "3 min",
            "transfers of NIXL and Mooncake, which AI inference uses; a libfabric built elsewhere",
            "provider",
        ),
        Command("shmem", "3 min", "Sandia OpenSHMEM's tests, built elsewhere", "mpich provider"),
        Command(
            "matrix", "20 min", "`mpi` and `imb` on a clean network, with faults, with a dead path, encrypted", "provider"
        ),
        Command("live", "40 s", "MPI over an emulated leaf-spine with a slow and a dying link", "setup mpich provider"),
        Command(
            "run",
            "1 min",
            "`squall run` under every MPI, and jobs that do not use squall",
            "impi mpich ompi4 openmpi provider",
        ),
        Command("emulator", "30 s", "`squall run --on`: recorded jobs, replayed", "impi mpich openmpi provider"),
        Command(
            "virtual", "6 min, `--quick` 1", "`squall run --virtual`: exact times, right results, bad ends", "mpich provider"
        ),
        Command("netns", "30 s", "MPI between namespaces behind kernel ECMP routers, a spine going down", "root mpich"),
        Command("rails", "3 min", "messages and MPI over several network cards, one slow or dying", "root mpich provider"),
        Command("xdp", "1 min", "MPI between namespaces by frames through AF_XDP", "root mpich provider"),
        Command("hostile", "9 min, `--quick` 90 s", "jobs under hostile conditions", "root mpich provider"),
        Command(
            "machines",
            "1 h (estimate), `--quick` 6 min",
            "jobs between virtual machines: other kernels, bad networks, hosts that fail",
            "root qemu-system-x86_64 debootstrap provider",
        ),
        Command("tenants", "1 min", "two jobs, and two senders, share an emulated link", "setup mpich provider"),
        Command("testbed", "10 min", "a paper's testbed live, beside the simulator", "setup mpich provider"),
        Command("fuzz", "2 h, `--quick` 3 min", "random histories of two engines, a million of each mode"),
    ),
)

BENCHMARKS = Group(
    "bench",
    "numbers, and bounds on them",
    "benchmarks",
    (
        Command("messages", "2 min", "bandwidth, latency and message rate beside tcp and ofi_rxd", "provider", "perf"),
        Command("atomics", "1 min", "atomics beside a tagged round trip, ofi_rxm and ofi_rxd", "provider", "perf"),
        Command("host", "2 min", "through shared memory beside packets, tcp and libfabric's shm", "provider", "perf"),
        Command("networks", "5 min", "every size to 4 MiB beside tcp, on loopback and over cables", "provider"),
        Command("loss", "3 min", "beside tcp over a cable that loses packets", "root nft ethtool provider"),
        Command("mpi", "10 min, `--quick` 1", "ping-pong and collectives under three MPIs beside tcp", "provider"),
        Command("busy", "2 min", "HPC Challenge and ScaLAPACK where processors are short, beside tcp", "ompi4 provider"),
        Command("timeline", "10 s", "the system calls of both ends of a ping-pong on one axis", "root provider"),
        Command("rma", "4 min", "one-sided communication of Open MPI beside the same over TCP", "openmpi provider"),
        Command("threads", "2 min", "threads, automatic progress, more ranks than cores, beside tcp", "provider"),
        Command("encryption", "3 min", "encrypted beside clear packets, the cipher alone, and tcp", "provider"),
        Command("monitor", "2 min", "the cost of the statistics page and of watching it", "provider", "perf"),
        Command("scale", "1 min", "start-up, 100 000 addresses, and the memory of an idle peer", "provider"),
        Command("packets", "2 min", "instructions of a message and of a further packet", "valgrind provider"),
        Command("cc", "15 s", "instructions and bytes of each congestion control and selector", "valgrind"),
        Command(
            "virtual",
            "10 min, `--quick` 1",
            "programs in virtual time: the figures of docs/virtual-time.md",
            "impi mpich provider",
        ),
        Command("sim", "4 min", "time and memory of simulations, beside htsim's on request"),
    ),
)

CHECKS = Group(
    "check",
    "the sources, the documents, and our own programs",
    "checks",
    (
        Command("deps", "1 s", "the crates' dependencies, and imports in `provider/`"),
        Command("tests", "5 min", "unit, property and C ABI tests, side by side"),
        Command("reasons", "1 s", "every `unsafe` of `provider/` and `net/` has a particular reason"),
        Command(
            "commands",
            "3 min, `--options` 5 s",
            "every command line of README and docs/ as it stands",
            "provider",
            "documents",
        ),
        Command("guide", "5 min", "docs/your-algorithm.md to the letter, in a copy of the sources", "", "documents"),
        Command("abi", "5 min, `all` 35", "the C ABI tests on bad networks and under checkers", "provider"),
        Command("miri", "5 min", "unsafe code that needs no kernel, under Miri (nightly compiler)"),
        Command("mutants", "25 min", "each fault in a list is found by its proof"),
        Command("wire", "30 s", "captures of jobs, judged by an independent dissector", "tshark provider"),
        Command("top", "25 s", "squall top beside running, killed and closed jobs", "mpich provider"),
        Command("doctor", "20 s", "squall doctor between two hosts; then a job, and top", "root mpich provider"),
        Command("wheel", "3 min", "the Python package: wheel, tests, notebook"),
        Command("packages", "8 min", "the packages of `dist`, installed and tried", "root"),
        Command(
            "algorithms", "30 min, `--quick` 1", "congestion control x path selection x loss detection", "impi provider"
        ),
        Command("repro", "1 h, `--quick` 1 min", "the papers' experiments: statement, expected, measured, pass"),
    ),
)

GROUPS = (EVERYDAY, SUITES, BENCHMARKS, CHECKS)


def find(words: list[str]) -> tuple[Group, Command | None, list[str]]:
    """Returns the group and the command that `words` name, and the words after the name."""
    group = next((group for group in GROUPS if words and words[0] == group.word), EVERYDAY)
    rest = words[1:] if group.word else words
    command = next((command for command in group.commands if rest and rest[0] == command.name), None)
    return group, command, rest[1:] if command else rest
