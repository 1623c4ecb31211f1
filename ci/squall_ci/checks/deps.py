"""Compare the dependencies between our crates, by cargo's metadata, and the imports between the rooms of provider/ with the
tables of those that are allowed.

`A: B` in the table means that A may use B and what B uses. Only the crates of MAY_BE_UNSAFE may have `unsafe`; the others
must forbid it. A dependency that no source of its crate names is a breach, too. The rooms of provider/ are in
squall_ci/rooms.py. Prints a line for each breach; the exit status is 1 when there is one. The last line, the largest
circle of imports between files of provider/, is for looking.
"""

import argparse
import json
import pathlib
import re
import subprocess
from typing import Any

from squall_ci.paths import ROOT
from squall_ci.rooms import graph, largest_circle, room_breaches, ROOMS

# Crate: what it may use among our own.
MAY_USE: dict[str, list[str]] = {
    "squall-base": [],
    "squall-wire": ["squall-base"],
    "squall-seal": ["squall-wire"],
    "squall-cc": ["squall-base"],
    "squall-reliability": ["squall-wire", "squall-cc"],
    # Its tests encrypt what their engines send.
    "squall-engine": ["squall-reliability", "squall-seal"],
    # The layout of the statistics page, without files or mappings.
    "squall-monitor": ["squall-base"],
    "squall-net": ["squall-seal"],
    # The cdylib, directory provider/.
    "squall-fi": ["squall-engine", "squall-monitor", "squall-net"],
    # Preloaded into programs that do not know it: the C library alone.
    "squall-time": [],
    "squall-netsim": ["squall-reliability", "squall-monitor"],
    "squall-research": ["squall-netsim"],
    # Its tests have whole engines at both ends of the network.
    "squall-emulator": ["squall-netsim", "squall-research", "squall-net", "squall-engine"],
    "squall-tools": ["squall-emulator", "squall-research"],
}

MAY_BE_UNSAFE = {"squall-net", "squall-fi", "squall-time"}

# The state machines: what they take from outside must not bring a clock, a thread, a socket or a file along. Values
# and data structures only.
SANS_IO = {"squall-base", "squall-wire", "squall-seal", "squall-cc", "squall-reliability", "squall-engine", "squall-monitor"}
PURE = {
    "aes",
    "bitvec",
    "chacha20",
    "cmac",
    "crc32c",
    "hashbrown",
    "hmac",
    # Ciphers alone: its system calls are those of its random numbers, which nobody draws here.
    "ring",
    # Arithmetic of floating-point types that the processor or Rust does not have.
    "rustc_apfloat",
    "serde",
    "serde_json",
    "sha2",
    "siphasher",
    "smallvec",
    "thiserror",
    "zerocopy",
    "zeroize",
}


def closure(crate: str) -> set[str]:
    """Returns everything that `crate` may use, directly or indirectly."""
    allowed: set[str] = set()
    todo = list(MAY_USE[crate])
    while todo:
        other = todo.pop()
        if other not in allowed:
            allowed.add(other)
            todo += MAY_USE[other]
    return allowed


def sources(package: dict[str, Any], others: list[pathlib.Path]) -> list[pathlib.Path]:
    """Returns the Rust sources of a package, and its README, whose examples may be tests. `others` are the directories of
    the other packages, which may lie inside."""
    root = pathlib.Path(package["manifest_path"]).parent
    inner = [other for other in others if other != root and other.is_relative_to(root)]
    found = {root / "README.md"}
    for path in (pathlib.Path(target["src_path"]) for target in package["targets"]):
        # Beside a build script at the top lies everything else.
        found |= {path} if path.parent == root else set(path.parent.rglob("*.rs"))
    return sorted(path for path in found if path.is_file() and not any(path.is_relative_to(other) for other in inner))


def unused_dependencies(package: dict[str, Any], others: list[pathlib.Path]) -> list[str]:
    """Returns the dependencies, of whatever kind, whose crate no source of the package names in a path or a `use`."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources(package, others))
    unused = []
    for dependency in package["dependencies"]:
        crate = (dependency["rename"] or dependency["name"]).replace("-", "_")
        if not re.search(rf"\b{crate}\s*::|\b(?:use|extern crate)\s+(?:::)?{crate}\b", text):
            unused.append(dependency["name"])
    return unused


def main(_args: argparse.Namespace) -> int:
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--format-version=1", "--no-deps", "--locked", "--offline"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    packages = {package["name"]: package for package in metadata["packages"]}
    directories = [pathlib.Path(package["manifest_path"]).parent for package in packages.values()]
    breaches = []
    for name, package in sorted(packages.items()):
        if name not in MAY_USE:
            breaches.append(f"{name}: not in the table of ci/run check deps; who may it use, and who may use it?")
            continue
        for dependency in package["dependencies"]:
            used, kind = dependency["name"], dependency["kind"]
            ours = used in packages or used in MAY_USE
            if ours and used not in closure(name):
                breaches.append(f"{name} uses {used}, which it may not ({kind or 'normal'} dependency)")
            if not ours and kind is None and name in SANS_IO and used not in PURE:
                breaches.append(f"{name} uses {used}, which is not on the list of pure libraries")
        breaches += [f"{name} does not use its dependency {used}" for used in unused_dependencies(package, directories)]
        for target in package["targets"]:
            if "lib" not in target["kind"] or name in MAY_BE_UNSAFE:
                continue
            if not re.search(r"#!\[forbid\([^)]*\bunsafe_code\b", pathlib.Path(target["src_path"]).read_text()):
                breaches.append(f"{name} does not forbid unsafe_code in {target['src_path']}")
    imports = graph(ROOT / "provider")
    breaches += room_breaches(imports)
    for breach in breaches:
        print(breach)
    print(f"{len(packages)} crates, {len(ROOMS)} rooms of provider/, {len(breaches)} breaches")
    print(f"the largest circle of imports in provider/: {len(largest_circle(imports))} of {len(imports)} files")
    return 1 if breaches else 0
