"""The C ABI tests of fabtests/abi under ThreadSanitizer: an access to memory that nothing orders becomes an error.

Builds the provider and Rust's standard library with the sanitizer, in target/tsan, and links the tests, compiled by clang, with
the runtime of the same nightly compiler, so that the process has one. Runs the programs of ci/run check abi; `threads` has most
of the concurrency, under manual and under automatic progress. There messages between sockets count as no order (io_sync=0): both
ends are in one process, and the order of their packets would hide races. `messages` looks at a buffer on the peer's word, so
that there, and in what needs no threads, they do.

It sees what a run did, not what another might have done. It knows no membarrier(2): of the lock-free gate (FI_THREAD_DOMAIN, with
the attendant as visitor) it judges what the two sides hand over, not the order of their announcements, which is the business of
the model in provider/gate/doors.rs. libfabric itself is not instrumented.

Needs clang, and a nightly compiler with the source of its library: rustup component add --toolchain nightly rust-src.
"""

import argparse
import os
import pathlib
import re
import shutil

from squall_ci.checks.abi import PROGRAMS, SOURCES
from squall_ci.commands.build import install
from squall_ci.paths import need, say, TARGET
from squall_ci.process import run, Word
from squall_ci.tally import Tally

HOME = TARGET / "tsan"
# Status of a program in which something was found, apart from those of failed checks and signals.
FOUND = 66
# Programs of `processes` leave and die with everything open: threads, too.
OPTIONS = f"exitcode={FOUND} die_after_fork=0 report_thread_leaks=0"
# Programs in which only locks, and nothing on the wire, order the threads.
LOCKS_ALONE = ("threads",)


def toolchain() -> tuple[str, pathlib.Path]:
    """The host's target of the nightly compiler, and the directory of its libraries."""
    version = run(["rustc", "+nightly", "-vV"], os.environ, 60)
    host = re.search(r"^host: (\S+)", version.output, re.M)
    root = run(["rustc", "+nightly", "--print", "sysroot"], os.environ, 60)
    need(host and root.ok, "no nightly compiler here: rustup toolchain install nightly --component rust-src")
    assert host
    return host[1], pathlib.Path(root.output.strip()) / "lib" / "rustlib" / host[1] / "lib"


def provider(target: str) -> pathlib.Path:
    """The directory of the provider, built with the sanitizer down to the standard library."""
    say("building the provider and the standard library with the sanitizer")
    flags = {"RUSTFLAGS": "-Zsanitizer=thread -Cforce-frame-pointers=yes -g", "CARGO_TARGET_DIR": str(HOME)}
    command = ["cargo", "+nightly", "build", "--locked", "--release", "-Zbuild-std", "--target", target, "-p", "squall-fi"]
    result = run(command, {**os.environ, **flags}, 3000)
    need(result.ok, f"the provider does not build with the sanitizer:\n{result.output[-3000:]}")
    say(f"built in {result.seconds:.0f} s")
    return install(HOME / target / "release" / "libsquall_fi.so", HOME / "provider").parent


def program(name: str, runtime: pathlib.Path) -> pathlib.Path:
    """One test, instrumented, with the whole runtime in it and visible to the provider."""
    built = HOME / "programs" / name
    built.parent.mkdir(parents=True, exist_ok=True)
    made = built.with_suffix(".o")
    options = ["-Wall", "-Wextra", "-std=gnu11", "-g", "-O1", "-fsanitize=thread", "-fno-omit-frame-pointer"]
    whole: list[Word] = ["-Wl,--whole-archive", runtime, "-Wl,--no-whole-archive", "-Wl,--export-dynamic"]
    steps: list[list[Word]] = [
        ["clang", *options, "-c", "-o", made, SOURCES / f"{name}.c"],
        ["cc", "-o", built, made, *whole, "-lfabric", "-lpthread", "-ldl", "-lm", "-lrt"],
    ]
    for step in steps:
        result = run(step, os.environ)
        need(result.ok, f"{name}.c does not compile with the sanitizer:\n{result.output}")
    return built


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}; all by default")


def main(args: argparse.Namespace) -> int:
    unknown = set(args.programs) - set(PROGRAMS)
    need(not unknown, f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    need(shutil.which("clang"), "clang is missing: apt-get install clang")
    target, libraries = toolchain()
    runtimes = sorted(libraries.glob("librustc*_rt.tsan.a"))
    need(runtimes, f"no thread sanitizer for {target} in {libraries}")
    environment = {
        **os.environ,
        "FI_PROVIDER_PATH": str(provider(target)),
        "FI_SQUALL_DEADLINE": "8s",
        "ABI_SLOW": "1",
    }
    tally = Tally(tail=60)
    for name in args.programs or PROGRAMS:
        environment["TSAN_OPTIONS"] = f"{OPTIONS} io_sync={0 if name in LOCKS_ALONE else 1}"
        result = run([program(name, runtimes[0])], environment, 600)
        (HOME / "programs" / f"{name}.log").write_text(result.output)
        findings = result.output.count("WARNING: ThreadSanitizer")
        why = f"{findings} findings, the whole in target/tsan/programs/{name}.log" if findings else result.why()
        last = result.output.strip().rpartition("\n")[2] if result.ok else ""
        tally.add(f"tsan {name}", None if result.ok and not findings else why, result.seconds, last, result.output)
    return tally.finish()
