"""Follow docs/your-algorithm.md to the letter: run its commands, apply its change, write its files, in a copy of the sources.

    ci/run guide [--until HEADING]

The copy is of the last commit, in target/guide/tree, made anew each time; what is built stays in target/guide/target, so
that the second time is quicker. At the end a figure must be there, and the job must have run. Ends with `N passed, N failed`.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time

from squall_ci.paths import die, ROOT, TARGET
from squall_ci.process import run as run_command
from squall_ci.tally import Tally

GUIDE = "docs/your-algorithm.md"
# The longest is the first build.
PATIENCE = 1800.0


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Heading, kind (with a file's name behind it) and text of each fenced block, in order."""
    found = []
    heading = ""
    for match in re.finditer(r"^## ([^\n]*)$|^```(\w+ ?[\w./-]*)\n(.*?)^```$", text, re.M | re.S):
        if match[1] is not None:
            heading = match[1]
        else:
            found.append((heading, match[2].strip(), match[3]))
    return found


def copy() -> pathlib.Path:
    """The last commit's files, where the provider and the MPIs of this tree are seen."""
    tree = TARGET / "guide" / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x"], cwd=tree, input=archive.stdout, check=True)
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


def run(args: argparse.Namespace) -> int:
    steps = blocks((ROOT / GUIDE).read_text())
    if not steps:
        die(f"{GUIDE} has no commands", 1)
    tree = copy()
    env = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    tally = Tally()
    for heading, kind, text in steps:
        if args.until and heading.startswith(args.until):
            break
        begin = time.monotonic()
        word, _, name = kind.partition(" ")
        if word == "sh":
            for line in text.strip().splitlines():
                result = run_command(["bash", "-ec", f"cd {shlex.quote(str(tree))}; {line}"], env, PATIENCE)
                tally.add(f"{heading}: {line}", None if result.ok else result.why(), result.seconds, "", result.output)
        elif word == "diff":
            done = subprocess.run(["patch", "-p1"], cwd=tree, input=text.encode(), capture_output=True)
            problem = done.stdout.decode() if done.returncode else None
            tally.add(f"{heading}: the change", problem, time.monotonic() - begin)
        elif name:
            (tree / name).write_text(text)
            tally.add(f"{heading}: {name}", None)
        else:
            tally.add(f"{heading}: a block of {kind}", "no command, change or file with a name")
    figures = sorted((TARGET / "guide" / "tree" / "figures").glob("*over-ideal*senders*.svg"))
    tally.add("the sweep's figure is there", None if figures else "no SVG of over_ideal over senders")
    return tally.finish()
