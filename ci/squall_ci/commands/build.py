"""Build the provider and the time library into target/provider, the directory to give as FI_PROVIDER_PATH; check them.

target/provider-as-tcp gets a copy that registers under the name tcp (docs/consumers.md).

The library must export fi_prov_ini and nothing else, must not be linked to libfabric (the process that loads it has its
own), and must never be unmapped. The time library (provider/time/) needs the C library and the runtime of the compiler alone.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess

from squall_ci import guided
from squall_ci.paths import BUILT, BUILT_PROVIDER, BUILT_TCP_PROVIDER, CARGO_TARGET, need, PROFILE, RELEASE, say, shown
from squall_ci.programs import build

# The library that is preloaded into programs in virtual time. libfabric does not load it, for its name does not end in fi.so.
TIME_LIBRARY = "libsquall_time.so"


def install(built: pathlib.Path, directory: pathlib.Path, name: str = "libsquall-fi.so") -> pathlib.Path:
    """Puts the library into a directory of its own, under a name that libfabric looks for."""
    library = directory / name
    directory.mkdir(parents=True, exist_ok=True)
    # libfabric loads whatever ends in fi.so here: nothing else may lie beside it but the time library.
    for other in directory.iterdir():
        if other.name not in (name, TIME_LIBRARY):
            shutil.rmtree(other) if other.is_dir() and not other.is_symlink() else other.unlink()
    replace(built, library)
    return library


def replace(built: pathlib.Path, library: pathlib.Path) -> None:
    """Copies a library through a new name, so that a process that has the old file mapped keeps it."""
    new = library.with_name(".new")
    shutil.copy(built, new)
    os.replace(new, library)


def output(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def exports(library: pathlib.Path) -> list[str]:
    """Returns the names that a library defines for others."""
    symbols = output("nm", "--dynamic", "--defined-only", "--extern-only", library)
    # Absolute symbols are the names of versions.
    return [line.split()[-1].split("@")[0] for line in symbols.splitlines() if line.split()[-2] != "A"]


def problems(library: pathlib.Path) -> list[str]:
    """Returns what is wrong with a built library, in words."""
    dynamic = output("readelf", "--wide", "--dynamic", library)
    exported = exports(library)
    undefined = [line.split()[-1] for line in output("nm", "--dynamic", "--undefined-only", library).splitlines()]
    found = []
    if exported != ["fi_prov_ini"]:
        found.append(f"exports {' '.join(exported)[:200]}, expected fi_prov_ini alone")
    if not re.search(r"SONAME.*\[libsquall-fi\.so\]", dynamic):
        found.append("its soname is not libsquall-fi.so")
    if not re.search(r"FLAGS_1.*NODELETE", dynamic):
        found.append("not linked with -z nodelete")
    if re.search(r"NEEDED.*libfabric", dynamic):
        found.append("linked to libfabric")
    if of_libfabric := [name for name in undefined if name.startswith("fi_")]:
        found.append(f"undefined symbols of libfabric: {' '.join(of_libfabric)}")
    return found


def time_problems(library: pathlib.Path) -> list[str]:
    """Returns what is wrong with a built time library, in words."""
    needed = re.findall(r"NEEDED.*\[(.*?)\]", output("readelf", "--wide", "--dynamic", library))
    # Before glibc 2.34, these were several libraries.
    system = re.compile(r"(libc|libdl|libpthread|librt|libgcc_s|ld-linux[\w-]*)\.so\.\d")
    found = [f"needs {name}" for name in needed if not system.fullmatch(name)]
    if "squall_time_register" not in exports(library):
        found.append("does not export squall_time_register, which the provider calls")
    return [f"{library.name} {problem}" for problem in found]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Options it does not know go to cargo build."
    parser.add_argument(
        "--guided", action="store_true", help="by a profile of training runs under MPICH, as the packages (10 minutes)"
    )


def build_guided(*words: str) -> pathlib.Path:
    """Builds the provider with options of cargo by a profile of itself."""
    os.environ[guided.FLAGS] = f"-Cprofile-use={guided.profile(*words)}"
    build("squall-fi", "--target", guided.TRIPLE, *words)
    del os.environ[guided.FLAGS]
    return CARGO_TARGET / guided.TRIPLE / "release" / "libsquall_fi.so"


def main(args: argparse.Namespace) -> int:
    need(not args.guided or PROFILE == RELEASE, "only a release is built by a profile: unset SQUALL_CI_PROFILE")
    if args.guided:
        built = build_guided(*args.rest)
    else:
        build("squall-fi", *args.rest)
        built = BUILT / "libsquall_fi.so"
    library = install(built, BUILT_PROVIDER)
    # The name of its file decides under which name the provider registers.
    install(built, BUILT_TCP_PROVIDER, "libsquall-as-tcp-fi.so")
    # It has no features: the caller's options are the provider's.
    build("squall-time")
    time_library = BUILT_PROVIDER / TIME_LIBRARY
    replace(BUILT / TIME_LIBRARY, time_library)
    found = problems(library) + time_problems(time_library)
    for wrong in found:
        say(wrong)
    if not found:
        for built in (library, time_library):
            say(f"{shown(built)}: {built.stat().st_size} bytes")
    return 1 if found else 0
