"""Begin a congestion control of your own: its files, its row in the registry, and its place in the documents.

NAME is what users set: FI_SQUALL_CC=NAME, squall sim --cc NAME. The new algorithm works at once: additive increase and
multiplicative decrease, with two parameters and tests. docs/your-algorithm.md, which lists it now, shows how to change it.
"""

import argparse
import pathlib
import re
import subprocess

from squall_ci.paths import die, need, ROOT

TEMPLATES = pathlib.Path(__file__).parents[1] / "templates"
CC = ROOT / "cc"


def type_name(name: str) -> str:
    """Returns the name of the type: `my_cc` becomes `MyCc`."""
    return "".join(word.capitalize() for word in name.split("_"))


def insert(text: str, before: str, line: str) -> str:
    """Inserts `line` before the first line of `text` that matches."""
    found = re.search(before, text, re.M)
    if not found:
        die(f"nothing in the sources matches {before}: they have changed, and ci/run new-cc has to follow", 1)
    return text[: found.start()] + line + text[found.start() :]


def edits(name: str, about: str) -> dict[pathlib.Path, str]:
    """Returns the new text of the files that list all algorithms."""
    kind = type_name(name)
    baselines, registry = CC / "src" / "baselines.rs", CC / "src" / "registry.rs"
    algorithms, parameters = ROOT / "docs" / "your-algorithm.md", ROOT / "docs" / "parameters.md"
    text = insert(baselines.read_text(), r"^mod bbr;", f"mod {name};\n")
    text = insert(text, r"^pub use bbr::", f"pub use {name}::{{{kind}, {kind}Config}};\n")
    row = f'    /// {about}.\n    {kind}({kind}, {kind}Config) = "{name}", "{about}";\n'
    table = insert(registry.read_text(), r"^    /// A window that never changes\.\n    Fixed\(", row)
    table = insert(table, r"^use crate::baselines::", f"use crate::baselines::{{{kind}, {kind}Config}};\n")
    # A test refuses the dashes until ci/run bench cc --write has counted bytes and instructions.
    line = f"| {name} | {about} | marks | nothing | - | - |\n"
    rows = insert(algorithms.read_text(), r"^\| none \|", line)
    names = insert(parameters.read_text(), r", none\. \|$", f", {name}")
    return {baselines: text, registry: table, algorithms: rows, parameters: names}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--about", default="an algorithm to be written", help="what it does, in a few words")


def main(args: argparse.Namespace) -> int:
    name, about = args.name, args.about.strip().rstrip(".")
    need(
        re.fullmatch(r"[a-z][a-z0-9_]{1,15}", name),
        f"{name}: a name has 2 to 16 of a-z, 0-9 and _, and begins with a letter",
    )
    need('"' not in about and "\n" not in about and "|" not in about, "--about is one line without quotes and strokes")
    file = CC / "src" / "baselines" / f"{name}.rs"
    taken = f'= "{name}"' in (CC / "src" / "registry.rs").read_text() or file.exists()
    need(not taken and name != "pace", f"{name}: there is one of that name already")
    changed = edits(name, about)
    made = {
        file: "algorithm.rs",
        file.with_suffix("") / "config.rs": "config.rs",
        file.with_suffix("") / "tests.rs": "tests.rs",
    }
    for path, template in made.items():
        path.parent.mkdir(exist_ok=True)
        text = (TEMPLATES / template).read_text()
        path.write_text(text.replace("@NAME@", name).replace("@TYPE@", type_name(name)))
    for path, text in changed.items():
        path.write_text(text)
    if subprocess.run(["cargo", "fmt", "-p", "squall-cc"], cwd=ROOT).returncode:
        die("cargo fmt failed", 1)
    for path in [*made, *changed]:
        print(f"{'made' if path in made else 'changed'} {path.relative_to(ROOT)}")
    print(f"next: cargo test -p squall-cc {name}; docs/your-algorithm.md goes on from here")
    return 0
