"""Facts about the packages that `ci/run package` builds and `ci/run check packages` proves."""

import os
import pathlib
import platform
import re
import subprocess
import tomllib

from squall_ci import guided
from squall_ci.commands.build import output
from squall_ci.paths import need, ROOT, TARGET
from squall_ci.process import Word

DIST = ROOT / "dist"
PACKAGING = ROOT / "packaging"
# Everything that the packages contain, laid out as under a prefix such as /opt/squall.
PREFIX = TARGET / "package" / "prefix"
VENV = TARGET / "venv-package" / "bin"
# The programs that cargo installed for ci/run setup.
TOOLS = TARGET / "tools" / "bin"
# The oldest C library that the packages serve, that of RHEL 8 and Debian 10.
GLIBC = "2.28"
ARCHITECTURE = platform.machine()
TRIPLE = guided.TRIPLE
# The largest files, without debug information, in bytes.
LARGEST = {"lib/squall/libsquall-fi.so": 4_500_000, "lib/squall/libsquall_time.so": 500_000, "bin/squall": 20_000_000}


def version() -> str:
    """Returns the version of the workspace."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def names() -> dict[str, str]:
    """Returns the file name of each package in DIST, by the word that selects it on the command line."""
    number = version()
    return {
        "wheel": f"squall-{number}-py3-none-manylinux_{GLIBC.replace('.', '_')}_{ARCHITECTURE}.whl",
        "deb": f"squall_{number}-1_amd64.deb",
        "rpm": f"squall-{number}-1.{ARCHITECTURE}.rpm",
        "tar": f"squall-{number}-{ARCHITECTURE}.tar.xz",
        "debug": f"squall-{number}-{ARCHITECTURE}-debug.tar.xz",
        "source": f"squall-{number}.tar.gz",
        "recipes": f"squall-{number}-recipes.tar.gz",
        "sbom": f"squall-{number}-program.cdx.json",
        "provider-sbom": f"squall-{number}-provider.cdx.json",
    }


def file(word: str) -> pathlib.Path:
    """Returns the path of a package; exits with advice if it is not built."""
    path = DIST / names()[word]
    need(path.exists(), f"{path.name} is missing: run ci/run package {word} first")
    return path


def environment() -> dict[str, str]:
    """Returns the caller's environment with the tools of the packages on the path."""
    return {**os.environ, "PATH": os.pathsep.join([str(VENV), str(TOOLS), os.environ.get("PATH", "")])}


def numbers(text: str) -> tuple[int, ...]:
    """Returns a dotted version as numbers that compare."""
    return tuple(map(int, text.split(".")))


def problems(prefix: pathlib.Path) -> list[str]:
    """Returns what is wrong with the programs under a prefix: their size, or the C library that they need."""
    found = []
    for name, largest in LARGEST.items():
        binary = prefix / name
        size = binary.stat().st_size
        if size > largest:
            found.append(f"{name} has {size} bytes, more than {largest}")
        if newest_glibc(binary) > numbers(GLIBC):
            found.append(f"{name} needs glibc {'.'.join(map(str, newest_glibc(binary)))}, newer than {GLIBC}")
        if re.search(r"\.debug_info|\.symtab", output("readelf", "--wide", "--sections", binary)):
            found.append(f"{name} is not stripped")
    return found


def newest_glibc(binary: pathlib.Path) -> tuple[int, ...]:
    """Returns the newest version of the C library whose symbols a binary uses."""
    used = re.findall(r"\(?GLIBC_([0-9.]+)\)?", output("objdump", "--dynamic-syms", binary))
    return max(map(numbers, used), default=(0,))


def checked(*command: Word, env: dict[str, str] | None = None, cwd: pathlib.Path = ROOT) -> None:
    """Runs a command of the build of packages, with its errors on the terminal; exits if it fails."""
    done = subprocess.run(list(map(str, command)), env=env or environment(), cwd=cwd)
    if done.returncode:
        raise SystemExit(f"ci: failed with exit status {done.returncode}: {' '.join(map(str, command))}")
