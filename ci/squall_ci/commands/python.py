"""Check the Python code: ruff (lints and format), mypy, and the tool's own unit tests.

The rules for ci/, fabtests/mpi, fabtests/nixl and python/ are in ci/pyproject.toml. With --fix, ruff first formats
and mends what it can, and the table of fabtests/README.md and the tables of figures (README.md,
docs/performance.md) are generated anew.
"""

import argparse
import os
import sys

from squall_ci import figures, results
from squall_ci.paths import FABTESTS, MPI_TESTS, need, ROOT, RUN, TARGET
from squall_ci.process import run, Word
from squall_ci.steps import run_steps, Step
from squall_ci.suites import machines

BIN = TARGET / "venv-lint" / "bin"
CONFIG = ROOT / "ci" / "pyproject.toml"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help="mend what can be mended, and write the generated pages")


def main(args: argparse.Namespace) -> int:
    need((BIN / "mypy").exists() and (BIN / "ruff").exists(), "ruff and mypy are missing: run ci/run setup lint first")
    code: list[Word] = [
        ROOT / "ci" / "squall_ci",
        RUN,
        ROOT / "ci" / "draw.py",
        MPI_TESTS,
        FABTESTS / "nixl",
        ROOT / "python",
    ]
    ruff: list[Word] = [BIN / "ruff", "--config", CONFIG]
    cache: list[Word] = ["--cache-dir", TARGET / "lint-cache" / "ruff"]
    if args.fix:
        for words in (["check", "--quiet", "--fix"], ["format", "--quiet"]):
            run([*ruff, *words, *cache, *code], os.environ)
        results.write_page()
        figures.write_pages()
        machines.write_page()
    mypy: list[Word] = [BIN / "mypy", "--config-file", CONFIG, "--cache-dir", TARGET / "lint-cache" / "mypy", *code]
    # The tests run on the Python that runs this tool.
    tests: list[Word] = [sys.executable, "-m", "unittest", "discover", "-s", ROOT / "ci/squall_ci/tests", "-t", ROOT / "ci"]
    steps = [
        Step("ruff check", [[*ruff, "check", *cache, *code]], 300),
        Step("ruff format", [[*ruff, "format", "--check", *cache, *code]], 300),
        Step("mypy", [mypy], 300),
        Step("unit tests", [tests], 300),
    ]
    return run_steps(steps, TARGET / "lint-logs")
