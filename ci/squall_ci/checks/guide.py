"""Follow docs/your-algorithm.md to the letter: run its commands, apply its change, write its files, in a copy of the sources.

The copy is of the last commit, in target/guide/tree, made anew each time; what is built stays in target/guide/target, so
that the second time is quicker. At the end a figure must be there, and the job must have run.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import time

from squall_ci.documents import blocks, copy_sources
from squall_ci.paths import die, ROOT, TARGET
from squall_ci.process import run
from squall_ci.tally import Tally

GUIDE = "docs/your-algorithm.md"
# The longest is the first build.
PATIENCE = 1800.0


def copy() -> pathlib.Path:
    """The last commit's files, where the provider and the MPIs of this tree are seen."""
    tree = TARGET / "guide" / "tree"
    copy_sources(tree)
    built = TARGET / "guide" / "target"
    built.mkdir(exist_ok=True)
    (tree / "target").symlink_to(built)
    for venv in TARGET.glob("venv-*"):
        link = built / venv.name
        if not link.exists():
            link.symlink_to(venv)
    return tree


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--until", default="", metavar="HEADING", help="stop before the heading that begins with this, such as 5"
    )


def main(args: argparse.Namespace) -> int:
    steps = blocks((ROOT / GUIDE).read_text())
    if not steps:
        die(f"{GUIDE} has no commands", 1)
    tree = copy()
    env = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    tally = Tally()
    for block in steps:
        heading, name, text = block.heading, block.name, block.text
        if args.until and heading.startswith(args.until):
            break
        begin = time.monotonic()
        if block.kind == "sh":
            for line in block.commands():
                result = run(["bash", "-ec", f"cd {shlex.quote(str(tree))}; {line}"], env, PATIENCE)
                tally.add(f"{heading}: {line}", None if result.ok else result.why(), result.seconds, "", result.output)
        elif block.kind == "diff":
            done = subprocess.run(["patch", "-p1"], cwd=tree, input=text.encode(), capture_output=True)
            problem = done.stdout.decode() if done.returncode else None
            tally.add(f"{heading}: the change", problem, time.monotonic() - begin)
        elif name:
            (tree / name).write_text(text)
            tally.add(f"{heading}: {name}", None)
        else:
            tally.add(f"{heading}: a block of {block.kind}", "no command, change or file with a name")
    figures = sorted((TARGET / "guide" / "tree" / "figures").glob("*over-ideal*senders*.svg"))
    tally.add("the sweep's figure is there", None if figures else "no SVG of over_ideal over senders")
    return tally.finish()
