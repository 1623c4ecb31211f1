"""The subcommands of `ci/run`: the one place where each is declared."""

import importlib
from dataclasses import dataclass
from typing import Any

# What a subcommand is for, in the order in which they are listed.
GROUPS = {
    "quick": "what one runs while working",
    "suite": "suites on the built provider, minutes each",
    "long": "the same, for half an hour and more",
    "measure": "numbers, and bounds on them",
    "look": "squall at work, to look at",
}


@dataclass(frozen=True)
class Command:
    """One subcommand. Its module has `arguments(parser)`, `run(args)` and, as its docstring, the help."""

    name: str
    group: str
    # On 2 cores.
    time: str
    what: str
    # Options it does not know go on to somebody else, in `args.rest`.
    passes_on: bool = False

    def load(self) -> Any:
        """Its module, under its own name."""
        name = self.name.replace(" ", "_").replace("-", "_")
        return importlib.import_module(f"squall_ci.commands.{name}")


COMMANDS = (
    Command(
        "setup",
        "quick",
        "2 min, then nothing",
        "install what is missing on Debian 12: `build`, `mpi`, `report`, `lint`, `documents`, `network`, `tools`",
    ),
    Command(
        "build", "quick", "1 min", "the provider into `target/provider`, and what it may export and need", passes_on=True
    ),
    Command(
        "test",
        "quick",
        "27 min, `--fast` less",
        "everything quick; `--fast`: format, lints, documentation, unit tests, dependencies",
    ),
    Command("new-cc", "quick", "1 s", "begin a congestion control of your own: files, rows and tests that pass"),
    Command("deps", "quick", "1 s", "who may depend on whom, read from cargo's metadata"),
    Command("reasons", "quick", "1 s", "every `unsafe` of `provider/` and `net/` says why it is sound, in words of its own"),
    Command("python", "quick", "10 s", "lints, types and unit tests of the Python code"),
    Command(
        "miri", "long", "5 min", "objects, user memory and parsers of untrusted input under Miri (needs a nightly compiler)"
    ),
    Command("tsan", "long", "8 min", "the C ABI tests of `fabtests/abi` under ThreadSanitizer (needs a nightly compiler)"),
    Command("mpi", "suite", "10 to 60 s", "the programs of `fabtests/mpi` under one MPI, on one provider"),
    Command(
        "imb", "suite", "3 min", "Intel's MPI benchmarks, 2 and 4 ranks, 0 to 4 MiB; with `--checking FILE`, results too"
    ),
    Command("fabtests", "suite", "20 s", "fi_info, fi_pingpong and lnx under each libfabric from 1.17 to 2.5"),
    Command("fabsuite", "suite", "6 min", "libfabric's own test suite, built elsewhere"),
    Command("mpi4py", "suite", "5 min", "mpi4py's own test suite under one MPI, from a source tree of it"),
    Command("mpich", "suite", "20 min", "MPICH's own test suite, built elsewhere"),
    Command("nccl", "suite", "1 min", "a network plugin of NCCL, built elsewhere, through the interface that NCCL calls"),
    Command(
        "oneccl",
        "suite",
        "2 min",
        "oneCCL's collectives with every type, over its OFI transport, from an installation of it",
    ),
    Command("shmem", "suite", "3 min", "Sandia OpenSHMEM's own tests, built elsewhere"),
    Command(
        "abi",
        "suite",
        "5 min, `all` 35",
        "the C ABI tests of `fabtests/abi` on bad networks, under valgrind and the address sanitizer",
    ),
    Command("wire-check", "suite", "30 s", "captures of real jobs judged by an independent dissector"),
    Command("guide", "suite", "5 min", "docs/your-algorithm.md to the letter, in a copy of the sources"),
    Command("commands", "suite", "3 min", "every command line of README and docs/ as it stands, or the reason why not"),
    Command(
        "wheel", "suite", "3 min", "the Python package: its wheel built and installed, its tests, its notebook executed"
    ),
    Command("top", "suite", "25 s", "squall top beside running jobs: live, killed, closed; statistics on an interval"),
    Command(
        "doctor",
        "suite",
        "20 s",
        "squall doctor between two hosts with the wrong interface first; then a job, and top; needs root",
    ),
    Command(
        "emulator",
        "suite",
        "30 s",
        "`squall emulate run`: jobs recorded while links fail, and replayed in the simulator, times side by side",
    ),
    Command("report", "suite", "10 s", "a report's plots, looked at by a headless browser"),
    Command("netns", "suite", "30 s", "MPI between namespaces behind kernel ECMP routers, a spine going down; needs root"),
    Command(
        "xdp", "suite", "1 min", "MPI between namespaces by frames through AF_XDP, and where there can be none; needs root"
    ),
    Command(
        "hostile",
        "suite",
        "9 min, `--quick` 90 s",
        "jobs under hostile conditions: right results, or an early end with a reason; needs root",
    ),
    Command(
        "tenants",
        "suite",
        "1 min",
        "two jobs on one emulated link: who gets how much by scope, and how soon two senders have half of it",
    ),
    Command(
        "testbed",
        "long",
        "10 min",
        "a paper's testbed live: 16 ranks over an emulated leaf-spine, incast, permutation and all-to-all, beside the simulator",
    ),
    Command("matrix", "long", "20 min", "every MPI and `imb`, on a clean network, with faults, with a dead path"),
    Command(
        "brains",
        "long",
        "30 min, `--quick` 1",
        "every congestion control x path selection x loss detection in live jobs at 1 % loss",
    ),
    Command(
        "repro",
        "long",
        "an hour, `--quick` 1 min, `--large` an hour",
        "the papers' experiments on the simulator: statement, expected, measured, pass",
    ),
    Command(
        "fuzz",
        "long",
        "2 h, `--quick` 3",
        "random histories of two engines with an attacker or trouble between them, a million of each",
    ),
    Command(
        "mutants",
        "long",
        "25 min",
        "faults put into the engine and the transport, one at a time: the proofs must find every one",
    ),
    Command("bench", "measure", "2 min", "bandwidth, latency and message rate beside tcp and ofi_rxd, with the targets"),
    Command(
        "bench atomics",
        "measure",
        "1 min",
        "fetch_add beside a tagged round trip, and atomics a second beside ofi_rxm and ofi_rxd, with the targets",
    ),
    Command(
        "bench networks",
        "measure",
        "1 min",
        "every size from 0 to 4 MiB beside tcp, on loopback and over cables of MTU 1500 and 9000",
    ),
    Command(
        "bench loss",
        "measure",
        "3 min",
        "bandwidth beside tcp over a cable of MTU 4352 that loses 0, 0.1, 1 and 3 % of the packets",
    ),
    Command(
        "bench host",
        "measure",
        "2 min",
        "two processes of one host, through shared memory, beside packets, tcp and libfabric's shm",
    ),
    Command(
        "bench mpi",
        "measure",
        "10 min, `--quick` 1",
        "ping-pong and collectives under three MPIs, 2 and 4 ranks, beside tcp in the same rounds",
    ),
    Command(
        "bench rma",
        "measure",
        "4 min",
        "one-sided communication of Open MPI beside what it does over TCP, by a program of Intel's built elsewhere",
    ),
    Command(
        "bench packets",
        "measure",
        "2 min",
        "instructions of a message and of a further packet of it, at either side (valgrind)",
    ),
    Command(
        "bench monitor",
        "measure",
        "2 min",
        "what it costs to be looked at: without a board, with one, and with top and lines on an interval",
    ),
    Command("bench scale", "measure", "1 min", "start-up, 100 000 addresses, and the memory of an idle peer"),
    Command(
        "bench threads",
        "measure",
        "2 min",
        "several threads, automatic progress, more ranks than cores, beside tcp; what was sent in vain",
    ),
    Command(
        "bench cc", "measure", "15 s", "instructions and bytes of every congestion control and path selector (valgrind)"
    ),
    Command(
        "bench sim",
        "measure",
        "4 min",
        "seconds, ns an event and memory of simulations; with `--reference DIR` beside htsim's",
    ),
    Command("demo", "look", "2 min", "MPI on squall beside tcp, one table; then `live`"),
    Command(
        "live",
        "look",
        "40 s",
        "MPI over an emulated leaf-spine with a slow and a dying link; `--bandwidth`: what it carries",
    ),
)


def find(words: list[str]) -> tuple[Command | None, list[str]]:
    """The subcommand that `words` name (`bench cc` before `bench`), and the words behind its name."""
    by_name = {command.name: command for command in COMMANDS}
    for length in (2, 1):
        if len(words) >= length and (command := by_name.get(" ".join(words[:length]))):
            return command, words[length:]
    return None, words
