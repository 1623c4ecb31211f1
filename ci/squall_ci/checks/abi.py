"""Run the C ABI tests of fabtests/abi under checkers, and over bad networks.

lossy     over networks that lose, reorder, damage, or swallow all of a path: the programs that take longest there (the default)
valgrind  under memcheck: no invalid access, no use of undefined bytes, no leaks
asan      with AddressSanitizer in the tests and, if the toolchain can, in the provider too
all       these three
tsan      with ThreadSanitizer in the tests, the provider and Rust's standard library. Messages between sockets do not count as an
          order of threads in `threads` (io_sync=0): both ends are in one process, and the order of their packets would hide races.
          The sanitizer does not know membarrier(2): the order within the asymmetric lock is judged by its model instead. Needs
          clang and a nightly compiler: rustup component add --toolchain nightly rust-src.

`cargo test -p squall-fi --test abi` runs all programs as they are, by packets and through shared memory
(fabtests/abi/runs.toml). `histories` plays random histories beside a model; HISTORIES_SEED=n plays one again. `order` plays
random operations whose order is promised beside another model; `order SEED` plays one sequence again. `model` and
`receives` try the options of every data call beside a model of the manual pages; MODEL_EVERY=n takes about every n-th
combination, as slow checkers do.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from squall_ci.commands.build import install
from squall_ci.devices import with_devices
from squall_ci.job import Statistics
from squall_ci.paths import FABTESTS, need, PROVIDER_DIR, say, TARGET
from squall_ci.process import Result, run, Word
from squall_ci.programs import compile_c
from squall_ci.tally import Tally

SOURCES = FABTESTS / "abi"
OUT = TARGET / "abi"
PROGRAMS = ("getinfo", "objects", "waits", "triggers", "messages", "onesided", "processes", "threads")
MODELS = ("model", "receives")
# Random histories that are compared with a model, whatever the network and whatever checker runs the program.
HISTORIES = ("histories", "order")
# Programs whose tests have a process each.
APART = ("findings", "identity", "collectives", "operators")
# Programs that run under two libfabrics. Other providers lend us their queues under 2.3 and later; each is unloaded in a way of its own.
LENT = ("peers", "unload")
# The directory of such a libfabric, if ci/run setup has installed the MPICH wheel.
LATER = TARGET / "venv-mpich" / "lib" / "mpich"
# Programs that load stand-ins for the libraries of device drivers, as the provider does then.
DEVICE = ("device",)
# A network that loses, and a deadline of unreachable peers that stays out of the way of retransmissions.
LOSS = {"FI_SQUALL_DEADLINE": "20s", "FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=1%,seed=5"}
LOSS_NOTE = "loss 1%, reordering 2%, duplication 1%"
# A network that damages packets, too, which the CRC detects; and one with a path that swallows everything.
DAMAGE = {
    "FI_SQUALL_DEADLINE": "20s",
    "FI_SQUALL_CRC": "yes",
    "FI_SQUALL_FAULT": "loss=1%,reorder=2%,dup=1%,corrupt=1%,seed=8",
}
DAMAGE_NOTE = f"{LOSS_NOTE}, damage 1%"
DEAD_PATH = {"FI_SQUALL_DEADLINE": "20s", "FI_SQUALL_FAULT": "blackhole=3"}
DEAD_PATH_NOTE = "a dead path"
# Programs about shared memory, in which memcheck sees nothing.
SHARED = ("same_host",)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, and how it is run."""

    program: str
    env: Mapping[str, str]
    suffix: str = ""
    provider: pathlib.Path = PROVIDER_DIR
    # A command that it runs under, if there is one.
    under: Sequence[Word] = ()
    note: str = ""
    # A counter of the endpoints that must have moved; not for programs that keep the statistics to themselves.
    shows: str = ""

    def program_path(self) -> pathlib.Path:
        return OUT / f"{self.program}{self.suffix}"

    def run(self) -> Result:
        """Runs the program, and keeps its output beside it. A missing counter and findings of ThreadSanitizer are failures."""
        env = {**os.environ, "FI_PROVIDER_PATH": str(self.provider), **self.env}
        statistics = Statistics() if self.shows else None
        if statistics:
            env |= statistics.env()
        result = run([*self.under, self.program_path()], env, 600)
        self.program_path().with_suffix(".log").write_text(result.output)
        problem = f"no endpoint shows {self.shows}" if statistics and not statistics.total().get(self.shows) else ""
        if findings := result.output.count("WARNING: ThreadSanitizer"):
            problem = f"{findings} findings"
        return Result(1, f"{result.output}\n{problem}", result.seconds) if result.ok and problem else result


def cases(programs: Sequence[str], **how: Any) -> list[Case]:
    """Returns the cases of several programs that are run in one way."""
    return [Case(program, **how) for program in programs]


def run_cases(tally: Tally, todo: Sequence[Case], at_once: int = 1) -> None:
    """Runs cases, one after the other by default, because some measure times or processor load."""
    with ThreadPoolExecutor(at_once) as pool:
        for case, result in zip(todo, pool.map(Case.run, todo)):
            last = result.output.strip().rpartition("\n")[2] if result.ok else ""
            note = ", ".join(filter(None, (last, case.note)))
            tally.add(f"abi {case.program}", None if result.ok else result.why(), result.seconds, note, result.output)


def compile_all(suffix: str = "", *options: str) -> None:
    # Libraries call the functions that a program defines (ioctl). Programs that load libfabric are not linked with it.
    options = ("-rdynamic", "-Wl,--as-needed", *options)
    for program in (*PROGRAMS, *MODELS, *HISTORIES, *APART, *LENT, *DEVICE, *SHARED):
        sources = [SOURCES / f"{program}.c", *sorted(SOURCES.glob("*.h"))]
        compiler = os.environ.get("CC") or "cc"
        compile_c(sources, OUT / f"{program}{suffix}", ("-std=gnu11", "-g", "-O1", *options), compiler)


def lent(env: Mapping[str, str], note: str = "", **how: Any) -> list[Case]:
    """Returns the cases of programs that are run under the system's libfabric, which lends no queues, and a later one."""
    system = cases(LENT, env=env, note=note, **how)
    if not (LATER / "libfabric.so.1").exists():
        print(f"SKIPPED: {', '.join(LENT)} under libfabric 2.3 or later: run ci/run setup mpi first", flush=True)
        return system
    words = ", ".join(filter(None, ("MPICH's libfabric", note)))
    return system + cases(LENT, env={**env, "LD_LIBRARY_PATH": str(LATER)}, note=words, **how)


def bad_networks(damaged: Sequence[str], dead: Sequence[str]) -> list[Case]:
    """Returns the cases over a network that damages packets, and over one with a dead path. Counters have to show either."""
    found = cases(damaged, env=DAMAGE, note=DAMAGE_NOTE, shows="fault_corrupted")
    return found + cases(dead, env=DEAD_PATH, note=DEAD_PATH_NOTE, shows="fault_blackholed")


def lossy(tally: Tally) -> None:
    compile_all()
    todo = bad_networks(["threads"], ["messages", "triggers", "threads"])
    for env, note in ((LOSS, LOSS_NOTE), (DAMAGE, DAMAGE_NOTE), (DEAD_PATH, DEAD_PATH_NOTE)):
        todo += cases(["collectives"], env=env, note=note) + cases(DEVICE, env=with_devices(env), note=note)
    run_cases(tally, todo, at_once=2)


def valgrind(tally: Tally) -> None:
    need(shutil.which("valgrind"), "valgrind is missing: run ci/run setup checks first")
    compile_all()
    memcheck = ["valgrind", "--quiet", "--error-exitcode=9", "--num-callers=30"]
    leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]
    strict = [*memcheck, *leaks, f"--suppressions={SOURCES / 'valgrind.supp'}"]
    apart = [*memcheck, "--trace-children=yes"]
    env = {"FI_SQUALL_DEADLINE": "8s", "ABI_SLOW": "1"}
    note = "memcheck"
    todo = [
        *cases(["getinfo", "objects", "waits", "triggers", "messages", "onesided"], under=strict, env=env, note=note),
        *lent(env, note, under=strict),
        # A forked child drops its parent's objects without freeing them, by design: no leaks to look for.
        *cases(["processes"], under=memcheck, env=env, note=note),
        *cases(MODELS, under=memcheck, env=env | {"MODEL_EVERY": "100"}, note=note),
        *cases(HISTORIES, under=memcheck, env=env, note=note),
        *cases(APART, under=apart, env=env, note=note),
        *cases(DEVICE, under=apart, env=with_devices(env | {"FI_SQUALL_SHM": "no"}), note=note),
    ]
    run_cases(tally, todo)


def instrumented() -> pathlib.Path | None:
    """Builds the provider with AddressSanitizer if the toolchain can, and returns its directory."""
    version = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"^host: (\S+)", version, re.M)
    if not found:
        return None
    target, home = found.group(1), TARGET / "asan"
    # The option -Zsanitizer is unstable.
    flags = {"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": "-Zsanitizer=address", "CARGO_TARGET_DIR": str(home)}
    command = ["cargo", "build", "--quiet", "--release", "--target", target, "-p", "squall-fi"]
    result = run(command, {**os.environ, **flags}, 1800)
    (OUT / "asan-build.log").write_text(result.output)
    if not result.ok:
        return None
    return install(home / target / "release" / "libsquall_fi.so", home / "provider").parent


def asan(tally: Tally) -> None:
    provider = instrumented()
    note = "address sanitizer, " + ("provider instrumented" if provider else "tests only")
    compile_all("-asan", "-fsanitize=address", "-fno-omit-frame-pointer")
    # libfabric is not instrumented and leaks a little at exit, so leaks are valgrind's business.
    env = {"FI_SQUALL_DEADLINE": "8s", "ABI_SLOW": "1", "ASAN_OPTIONS": "detect_leaks=0:exitcode=9"}
    how: dict[str, Any] = {"suffix": "-asan", "provider": provider or PROVIDER_DIR}
    shared = env | {"FI_SQUALL_SHM": "yes"}
    todo = [
        *cases((*PROGRAMS, *APART), env=env, note=note, **how),
        *cases((*PROGRAMS, *SHARED), env=shared, note=f"{note}, shared memory", **how),
        *cases(HISTORIES, env=env, note=note, **how),
        *cases(MODELS, env=env | {"MODEL_EVERY": "8"}, note=note, **how),
        *lent(env, note, **how),
        *cases(DEVICE, env=with_devices(env), note=note, **how),
    ]
    run_cases(tally, todo)


TSAN = TARGET / "tsan"
TSAN_SUFFIX = "-tsan"
# Programs of `processes` leave and die with everything open: threads, too.
TSAN_OPTIONS = "exitcode=66 die_after_fork=0 report_thread_leaks=0"
# Programs in which only locks, and nothing on the wire, order the threads.
LOCKS_ALONE = ("threads",)


def nightly() -> tuple[str, pathlib.Path]:
    """Returns the host's target of the nightly compiler, and the directory of its libraries."""
    version = run(["rustc", "+nightly", "-vV"], os.environ, 60)
    host = re.search(r"^host: (\S+)", version.output, re.M)
    root = run(["rustc", "+nightly", "--print", "sysroot"], os.environ, 60)
    need(host and root.ok, "no nightly compiler here: rustup toolchain install nightly --component rust-src")
    assert host
    return host[1], pathlib.Path(root.output.strip()) / "lib" / "rustlib" / host[1] / "lib"


def tsan_provider(target: str) -> pathlib.Path:
    """Builds the provider with the sanitizer down to the standard library, and returns its directory."""
    say("building the provider and the standard library with the sanitizer")
    flags = {"RUSTFLAGS": "-Zsanitizer=thread -Cforce-frame-pointers=yes -g", "CARGO_TARGET_DIR": str(TSAN)}
    command = ["cargo", "+nightly", "build", "--locked", "--release", "-Zbuild-std", "--target", target, "-p", "squall-fi"]
    result = run(command, {**os.environ, **flags}, 3000)
    need(result.ok, f"the provider does not build with the sanitizer:\n{result.output[-3000:]}")
    say(f"built in {result.seconds:.0f} s")
    return install(TSAN / target / "release" / "libsquall_fi.so", TSAN / "provider").parent


def compile_for_tsan(name: str, runtime: pathlib.Path) -> None:
    """Compiles one test with the sanitizer. The whole runtime is in it, visible to the provider."""
    built = OUT / f"{name}{TSAN_SUFFIX}"
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


def tsan(tally: Tally) -> None:
    need(shutil.which("clang"), "clang is missing: apt-get install clang")
    target, libraries = nightly()
    runtimes = sorted(libraries.glob("librustc*_rt.tsan.a"))
    need(runtimes, f"no thread sanitizer for {target} in {libraries}")
    provider = tsan_provider(target)
    todo = []
    for name in PROGRAMS:
        compile_for_tsan(name, runtimes[0])
        options = f"{TSAN_OPTIONS} io_sync={0 if name in LOCKS_ALONE else 1}"
        env = {"FI_SQUALL_DEADLINE": "8s", "ABI_SLOW": "1", "TSAN_OPTIONS": options}
        todo.append(Case(name, env, TSAN_SUFFIX, provider, note="thread sanitizer"))
    run_cases(tally, todo)


WAYS = {"lossy": lossy, "valgrind": valgrind, "asan": asan, "tsan": tsan}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("way", nargs="?", choices=[*WAYS, "all"], default="lossy")


def main(args: argparse.Namespace) -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    for name, way in WAYS.items():
        if args.way == name or (args.way == "all" and name != "tsan"):
            way(tally)
    return tally.finish()
