"""Builds the programs that commands run: ours by cargo, C programs against libfabric."""

import contextlib
import os
import pathlib
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from squall_ci.paths import BUILT, CARGO_TARGET, die, FABTESTS, need, PROFILE, RELEASE, ROOT, TARGET
from squall_ci.process import run, Word


def cargo(*words: str, env: Mapping[str, str] | None = None) -> None:
    """Runs cargo, with its errors on the terminal; exits if it fails."""
    need(shutil.which("cargo"), "no cargo here: run ci/run setup build first")
    code = subprocess.run(["cargo", *words], cwd=ROOT, env={**os.environ, **(env or {})}).returncode
    if code:
        die(f"cargo {words[0]} failed", 1)


# What cargo is asked for in the profile `ci`: everything at once, since features of dependencies follow from what is built
# together, and another selection would compile most crates again. Integration tests are the programs that link once each.
# Examples, each of which compiles an engine again, are built by ci/nightly.
WORKSPACE = ("--locked", "--profile", "ci", "--workspace", "--lib", "--bins", "--tests")


def linting() -> dict[str, str]:
    """Returns the variables with which cargo builds our crates by clippy's compiler, which refuses what clippy finds. A check
    apart from the build would go through all crates a second time. Without clippy there is no check."""
    driver = shutil.which("clippy-driver")
    # cargo clippy hands its arguments on in this form.
    return (
        {"RUSTC_WORKSPACE_WRAPPER": driver, "CLIPPY_ARGS": "__CLIPPY_HACKERY__".join(("-D", "warnings", ""))}
        if driver
        else {}
    )


def build(package: str, *words: str) -> None:
    """Builds a package in the profile of this run."""
    if PROFILE == RELEASE:
        cargo("build", "--quiet", "--release", "--locked", "-p", package, *words)
    else:
        cargo("build", "--quiet", *WORKSPACE, env=linting())


def commit() -> str:
    """Returns the commit that is built, with `-dirty` after it if files differ. Empty outside of a repository."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def processor() -> str:
    """Returns the name of this machine's processor."""
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return model[1] if model else platform.machine()


def squall() -> pathlib.Path:
    """Builds the `squall` command line, in the release profile with the features of the packages. Its results name the commit,
    by a variable: linking it anew for each commit takes long."""
    build("squall-tools", "--bin", "squall", "--features", "parquet")
    os.environ["SQUALL_BUILT_FROM"] = commit()
    return BUILT / "squall"


@contextlib.contextmanager
def metrics_server(program: pathlib.Path) -> Iterator[str]:
    """Serves the statistics of this host's endpoints by `squall top --serve`, and yields the page's address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen([program, "top", "--serve", where], stderr=subprocess.DEVNULL)
    try:
        yield f"http://{where}/metrics"
    finally:
        server.terminate()
        server.wait(10)


def example(package: str, name: str) -> pathlib.Path:
    """Builds an example of one of our packages in the release profile."""
    cargo("build", "--quiet", "--release", "--locked", "-p", package, "--example", name)
    return CARGO_TARGET / "release" / "examples" / name


def compile_c(
    sources: Sequence[pathlib.Path],
    program: pathlib.Path,
    options: Sequence[str] = ("-O2",),
    compiler: str = "cc",
    libraries: Sequence[str] = ("-lfabric", "-lpthread"),
) -> pathlib.Path:
    """Compiles the first of the C sources, unless the program is newer than all of them."""
    if program.exists() and all(program.stat().st_mtime > source.stat().st_mtime for source in sources):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    command: list[Word] = [compiler, "-Wall", "-Wextra", *options, "-o", program, sources[0], *libraries]
    result = run(command, os.environ)
    need(result.ok, f"{sources[0].name} does not compile (ci/run setup build installs libfabric-dev):\n{result.output}")
    return program


def fi_perf() -> pathlib.Path:
    """Compiles the benchmark of two processes."""
    return compile_c([FABTESTS / "bench" / "fi_perf.c"], TARGET / "bench" / "fi_perf")


def fi_threads() -> pathlib.Path:
    """Compiles the benchmark of several threads."""
    return compile_c([FABTESTS / "bench" / "fi_threads.c"], TARGET / "bench" / "fi_threads")
