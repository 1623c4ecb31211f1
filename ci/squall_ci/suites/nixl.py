"""Move host memory between two agents of NIXL, over its backend LIBFABRIC and the copy of squall that registers as tcp.

NIXL's wheel and NVIDIA's CUDA runtime are installed into target/venv-nixl (350 MB); a library stands in for CUDA's driver. The
wheel needs a libfabric newer than 2.6 (FABRIC_1.10), whose prefix --libfabric names. To build that, in libfabric's sources:

    ./autogen.sh
    ./configure --prefix=PREFIX --enable-only --enable-tcp --enable-rxm --enable-rxd --enable-udp
    make install

The program is fabtests/nixl/transfer.py. Its tests compare every byte of 1 KiB to 64 MiB, of 256 pieces, and 200
notifications; a transfer to a killed target has to fail. On squall the contents are also compared with damaged packets and
through shared memory. The times of transfers beside libfabric's own tcp are printed as a table, medians of the rounds.

Then two of Mooncake's transfer engines move and compare memory (target/venv-mooncake, 220 MB; fabtests/nixl/
mooncake_transfer.py): by packets, by damaged packets and through shared memory. That is a test alone: a library stands in
for the verbs device that Mooncake needs, and gives it squall where it asks for efa. --only mooncake needs no --libfabric.
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics

from squall_ci import foreign, hosts, mooncake
from squall_ci.commands import setup
from squall_ci.environment import provider_run
from squall_ci.job import Job, run_ranks
from squall_ci.namespaces import Bridge
from squall_ci.paths import die, FABTESTS, need, PROVIDER_DIR, TARGET
from squall_ci.process import Word
from squall_ci.programs import compile_c
from squall_ci.tally import table

VERSION = "1.5.1"
# Without what they depend on: torch, 5 GB, which transfers of host memory do not use.
REQUIREMENTS = ("--no-deps", f"nixl-cu12=={VERSION}", "nvidia-cuda-runtime-cu12", "numpy")
VENV = TARGET / "venv-nixl"
PROGRAM = FABTESTS / "nixl" / "transfer.py"
OUT = TARGET / "nixl"
# The bytes that each test moves in each direction at least; None where an endpoint is killed.
LEAST = {"contents": 64 << 20, "descriptors": 4 << 20, "notifications": 0, "killed": None}
# Further conditions in which the contents are compared on squall.
CONDITIONS = {
    "damaged packets": {"FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=1%"},
    "shared memory": {"FI_SQUALL_SHM": "yes"},
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--libfabric", type=pathlib.Path, metavar="PREFIX", help="an installed libfabric newer than 2.6")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the table; 0 for none")
    foreign.add_options(parser, 90.0, ranks=False)
    parser.set_defaults(ranks=2)


def library(prefix: pathlib.Path | None) -> pathlib.Path:
    """Returns the directory of libfabric's library; exits with advice if NIXL would not load with it."""
    if prefix is None:
        die("SKIPPED: no --libfabric: NIXL needs one newer than 2.6; ci/run help suite nixl tells how to build it")
    found = next((path for path in sorted(prefix.absolute().glob("lib*/libfabric.so.1"))), None)
    if found is None:
        die(f"SKIPPED: there is no libfabric.so.1 in a lib directory of {prefix}")
    need(b"FABRIC_1.10" in found.read_bytes(), f"SKIPPED: {found} is older than NIXL needs: it has no FABRIC_1.10")
    return found.parent


def environment(provider: str, libfabric: pathlib.Path) -> dict[str, str]:
    """Returns the environment of the program."""
    cuda = compile_c(
        [FABTESTS / "nixl" / "cuda.c"],
        OUT / "libcuda.so.1",
        ("-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"),
        libraries=(),
    )
    runtime = next(VENV.glob("lib/python3*/site-packages/nvidia/cuda_runtime/lib"))
    libraries = ":".join(map(str, (libfabric, cuda.parent, runtime)))
    env = {**provider_run(provider), "LD_LIBRARY_PATH": libraries}
    # With FI_TCP_IFACE=lo, fi_enable of NIXL's rail fails on tcp (EBADF). Without it tcp uses the host's first card.
    env.pop("FI_TCP_IFACE", None)
    if provider == "squall":
        # A copy of the provider under this name registers as tcp, which is on NIXL's list.
        copy = OUT / "provider-as-tcp" / "libsquall-as-tcp-fi.so"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROVIDER_DIR / "libsquall-fi.so", copy)
        env |= {"FI_PROVIDER_PATH": str(copy.parent), "FI_PROVIDER": "tcp"}
    return env


def measure(rounds: dict[str, list[Job]]) -> str:
    """Returns the table of the times that jobs printed, by the title of their column."""
    figures: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for title, jobs in rounds.items():
        for job in jobs:
            printed = re.search(r"^figures: (.*)$", job.output, re.M)
            for length, write, read in json.loads(printed[1]) if printed else ():
                figures.setdefault(title, {}).setdefault(length, []).append((write, read))

    def cell(times: list[tuple[float, float]], length: int) -> str:
        write, read = (statistics.median(column) for column in zip(*times))
        if length < 1 << 18:
            return f"{write * 1e6:.0f} / {read * 1e6:.0f} us"
        return f"{length / write / 1e9:.2f} / {length / read / 1e9:.2f} GB/s"

    lengths = sorted({length for column in figures.values() for length in column})
    rows = [
        [f"{length >> 10} KiB", *(cell(column[length], length) if length in column else "" for column in figures.values())]
        for length in lengths
    ]
    return table(["WRITE / READ", *figures], rows)


def main(args: argparse.Namespace) -> int:
    outcome, of_mooncake = foreign.Outcome(args), foreign.Outcome(args)
    outcome.version = VERSION
    chosen = [test for test in LEAST if re.search(args.only, test)]
    speed = bool(args.rounds and re.search(args.only, "speed"))
    titles = mooncake.chosen(args.only, args.hosts) if args.provider == "squall" else []
    need(chosen or speed or titles, f"no test matches --only {args.only}")
    # Mooncake's engine runs on an older libfabric, too.
    libfabric = library(args.libfabric) if chosen or speed or args.libfabric else None
    if titles and (why := mooncake.missing()):
        need(chosen or speed, f"SKIPPED: {why}")
        print(f"SKIPPED Mooncake: {why}")
        titles = []
    status = 0
    with hosts.forked(args.hosts, args.ranks) as where:
        where = {**where, **({"SQUALL_TEST_TARGET": Bridge.address_of(0)} if args.hosts else {})}
        where |= {"SQUALL_TEST_DEADLINE": str(int(args.timeout) - 5)}
        if libfabric and (chosen or speed):
            setup.venv("nixl", *REQUIREMENTS)
            run_nixl(outcome, chosen, speed, libfabric, where)
            status = outcome.finish("NIXL", "host memory, backend LIBFABRIC")
        if titles:
            status |= mooncake.run_all(of_mooncake, titles, libfabric, where)
    return status


def run_nixl(
    outcome: foreign.Outcome, chosen: list[str], speed: bool, libfabric: pathlib.Path, where: dict[str, str]
) -> None:
    """Runs the chosen tests between two agents of NIXL, and their times beside tcp if `speed` is set."""
    args = outcome.args

    def run_pair(provider: str, test: str, more: dict[str, str], at_least: int | None) -> Job:
        command: list[Word] = [VENV / "bin" / "python", PROGRAM, "pair", test]
        env = environment(provider, libfabric) | where | more
        shown = run_ranks(provider, args.ranks, command, env, args.timeout, at_least, hosts.shows(args.hosts))
        missing = not re.search(rf"^{test}: \d+ passed, 0 failed$", shown.output, re.M)
        problem = "the program did not report success" if missing and not shown.problem else shown.problem
        return Job(shown.result, problem, shown.note)

    for test in chosen:
        short = {"FI_SQUALL_DEADLINE": "3s"} if test == "killed" else {}
        run_pair(args.provider, test, short, LEAST[test]).add_to(outcome.tally, test)
    if args.provider == "squall" and "contents" in chosen:
        for title, more in CONDITIONS.items():
            if not (args.hosts and "FI_SQUALL_SHM" in more):
                run_pair("squall", "contents", more, LEAST["contents"]).add_to(outcome.tally, f"contents, {title}")
    if speed:
        columns: dict[str, tuple[str, dict[str, str]]] = {"tcp": ("tcp", {}), "squall": ("squall", {})}
        if not args.hosts:
            columns["squall, shared memory"] = ("squall", CONDITIONS["shared memory"])
        rounds: dict[str, list[Job]] = {title: [] for title in columns}
        for _ in range(args.rounds):
            for title, (provider, more) in columns.items():
                rounds[title].append(run_pair(provider, "speed", more, 0))
        for title, jobs in rounds.items():
            worst = next((job for job in jobs if job.problem), jobs[-1])
            worst.add_to(outcome.tally, f"speed, {title}")
        print(measure(rounds))
