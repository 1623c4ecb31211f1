"""Paths, and how a command exits with advice when something is missing."""

import os
import pathlib
import shutil
import sys
from typing import NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Everything that is fetched, built or written lives under target/.
TARGET = ROOT / "target"
# The cargo profile of what is built and tried. `ci/test` sets `ci`, which has the assertions of a debug build.
RELEASE = "release"
PROFILE = os.environ.get("SQUALL_CI_PROFILE") or RELEASE
# Appended to the names of directories, so that benchmarks do not find a provider of another profile by chance.
_OF_PROFILE = "" if PROFILE == RELEASE else f"-{PROFILE}"
# The directory to give as FI_PROVIDER_PATH: it holds libsquall-fi.so and the time library, and nothing else.
BUILT_PROVIDER = TARGET / f"provider{_OF_PROFILE}"
# The directory with the copy of the provider that registers as tcp (docs/consumers.md).
BUILT_TCP_PROVIDER = TARGET / f"provider-as-tcp{_OF_PROFILE}"
# Another build, a debug or sanitizer one, can be tried by naming its directory.
PROVIDER_DIR = pathlib.Path(os.environ.get("SQUALL_PROVIDER_DIR") or BUILT_PROVIDER).absolute()
# The directory in which cargo builds.
CARGO_TARGET = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")
# The directory in which cargo leaves libraries and programs of the profile.
BUILT = CARGO_TARGET / PROFILE
FABTESTS = ROOT / "fabtests"
MPI_TESTS = FABTESTS / "mpi"
RUN = ROOT / "ci" / "run"


def find_cargo() -> None:
    """Puts cargo on the path if rustup left it where a login shell looks, but not a CI job."""
    directory = pathlib.Path.home() / ".cargo" / "bin"
    if not shutil.which("cargo") and (directory / "cargo").exists():
        os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ.get('PATH', '')}"


def shown(path: pathlib.Path) -> str:
    """Returns a path as one would type it in the checkout."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def dissector(given: str | None = None) -> pathlib.Path:
    """Returns the directory with check_pcap.sh: the one given, $SQUALL_ORACLE, or ../shared/oracle beside the checkout."""
    return pathlib.Path(given or os.environ.get("SQUALL_ORACLE") or ROOT.parent / "shared" / "oracle").absolute()


def say(text: str) -> None:
    """Prints a progress line to standard error."""
    print(f"ci: {text}", file=sys.stderr, flush=True)


def die(text: str, code: int = 2) -> NoReturn:
    """Exits with advice; code 2 means that nothing was tried."""
    say(text)
    raise SystemExit(code)


def need(condition: object, advice: str) -> None:
    """Exits with `advice` if something is missing."""
    if not condition:
        die(advice)


def need_provider(provider: str = "squall") -> None:
    """Exits with advice if squall is asked for and has not been built."""
    library = PROVIDER_DIR / "libsquall-fi.so"
    need(provider != "squall" or library.exists(), f"{library} is missing: run ci/build first")


def need_release() -> None:
    """Exits with advice if what is built here, or the provider that is named, has another profile than `release`."""
    named = PROVIDER_DIR.name.removeprefix("provider")
    advice = "measure and package release builds alone: unset SQUALL_CI_PROFILE and SQUALL_PROVIDER_DIR, and run ci/build"
    need(PROFILE == RELEASE and named != "-ci", f"{PROVIDER_DIR} has the assertions of the profile ci: {advice}")
