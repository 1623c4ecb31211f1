"""The source files that a small send crosses, from the exported call to the system call.

    ci/run send-path [--max-files N] [--call tsend|tinject]

Counted are the files of this repository whose lines execute at least one instruction while a 64-byte fi_tsend, or
fi_tinject, is under way to a peer that has answered before: over loopback, with nothing else in flight, in the release
build, with the default parameters. Code that the compiler has inlined counts for the file it is written in; what runs
later (progress, acknowledgements, completion queues) does not count, nor do the standard library, other crates, libfabric
and generated code. The sends are those of fabtests/bench/send_path.c; callgrind collects inside of the calls alone, and
each call must have reached sendmsg. 100 sends of each kind, and a file that one of them crossed is crossed.

Prints the files of both calls with their instructions a send, their count, and the count of those in which at least one per
cent of the instructions are executed. Exit status 1 when the count of all is above --max-files.
"""

import argparse
import pathlib
import shutil
import tempfile

from squall_ci import callgrind
from squall_ci.environment import provider_run
from squall_ci.paths import CARGO_TARGET, die, FABTESTS, need, need_provider, ROOT, TARGET
from squall_ci.process import run as run_command
from squall_ci.programs import compile_c
from squall_ci.tally import table

ROUNDS = 100
CALLS = ("tsend", "tinject")


def ours(file: str) -> str | None:
    """The path in the checkout of a source file of the provider; None for what belongs to others, or is generated."""
    path = pathlib.Path(file)
    path = path if path.is_absolute() else ROOT / path
    for outside in (TARGET, CARGO_TARGET, FABTESTS):
        if path.is_relative_to(outside):
            return None
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) and path.is_file() else None


def measure(program: pathlib.Path, call: str) -> dict[str, int]:
    """Instructions of the rounds by source file of ours."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind.out"
        counter = ["valgrind", "--tool=callgrind", "--dump-line=yes", "--collect-atstart=no", f"--callgrind-out-file={out}"]
        env = provider_run("squall")
        env.pop("FI_PROVIDER")
        result = run_command([*counter, program, "squall", call, ROUNDS], env, 120)
        need(result.ok, f"{call}: {result.why()}\n{result.output}")
        profile = callgrind.read(out)
    sent = profile.called["sendmsg"]
    if sent < ROUNDS:
        die(f"{call}: {sent} of {ROUNDS} calls reached sendmsg", 1)
    files: dict[str, int] = {}
    for file, cost in profile.own.items():
        if cost and (path := ours(file)):
            files[path] = files.get(path, 0) + cost
    need(files, "no source file of this checkout was crossed: was the provider built here, with line tables?")
    return files


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-files", type=int, default=25, metavar="N", help="bound on the files of one call (25)")
    parser.add_argument("--call", choices=CALLS, action="append", help="this call alone")


def run(args: argparse.Namespace) -> int:
    need(shutil.which("valgrind"), "valgrind is missing: run ci/run setup build first")
    need_provider()
    program = compile_c([FABTESTS / "bench" / "send_path.c"], TARGET / "bench" / "send_path")
    calls = args.call or CALLS
    found = {call: measure(program, call) for call in calls}
    rows = [
        [path, *(f"{files[path] / ROUNDS:.0f}" if path in files else "-" for files in found.values())]
        for path in sorted({path for files in found.values() for path in files})
    ]
    rows.append(["instructions in them", *(f"{sum(files.values()) / ROUNDS:.0f}" for files in found.values())])
    rows.append(["files", *(str(len(files)) for files in found.values())])
    large = [sum(100 * cost >= sum(files.values()) for cost in files.values()) for files in found.values()]
    rows.append(["files with 1 % of them", *map(str, large)])
    print(table(["instructions a send of 64 bytes", *(f"fi_{call}" for call in calls)], rows))
    over = [call for call, files in found.items() if len(files) > args.max_files]
    for call in over:
        print(f"missed: fi_{call} crosses {len(found[call])} files, {args.max_files} are allowed")
    return 1 if over else 0
