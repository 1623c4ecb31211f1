"""Build the Python package's wheel, install it in an environment of its own, and run its tests and its notebook.

The wheel, with the program `squall` in it, is left in target/wheel. With --execute, the notebook's outputs are written into
python/sweep.ipynb, as they are to be committed.
"""

import argparse
import os
import shutil

from squall_ci.paths import CARGO_TARGET, need, ROOT, TARGET
from squall_ci.process import Word
from squall_ci.programs import commit
from squall_ci.steps import run_steps, Step

PACKAGE = ROOT / "python"
BIN = TARGET / "venv-python" / "bin"
WHEELS = TARGET / "wheel"
EXECUTE = """
import sys, nbclient, nbformat
path = sys.argv[1]
book = nbformat.read(path, as_version=4)
nbclient.NotebookClient(book, timeout=300, record_timing=False).execute()
nbformat.write(book, path)
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--execute", action="store_true", help="write the notebook's outputs into it")


def main(args: argparse.Namespace) -> int:
    need((BIN / "maturin").exists(), "maturin is missing: run ci/run setup python first")
    shutil.rmtree(WHEELS, ignore_errors=True)
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CARGO_TARGET_DIR": str(CARGO_TARGET), "SQUALL_COMMIT": commit()}
    pip: list[Word] = [BIN / "pip", "--quiet", "--disable-pip-version-check"]
    execute: list[Word] = [BIN / "python", "-c", EXECUTE, PACKAGE / "sweep.ipynb"]
    options = ("--no-deps", "--no-index", "--force-reinstall", "--find-links", WHEELS)
    commands: list[list[Word]] = [
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", WHEELS, PACKAGE],
        [*pip, "install", *options, "squall"],
        *([execute] if args.execute else []),
        [BIN / "python", "-m", "unittest", "discover", "-s", PACKAGE / "tests"],
    ]
    return run_steps([Step("wheel", commands, env=env)], TARGET / "wheel-logs")
