"""MPICH's own test suite on one provider, built elsewhere: point-to-point, collectives, one-sided, threads, spawn and the rest.

    ci/run mpich [--only REGEX] [--without REGEX] [--timeout S] [--record] TREE [PROVIDER=squall]

TREE is MPICH's directory test/mpi, configured with the mpicc of ci/run setup mpi (fabtests/README.md says how); its own script
builds, runs and judges each program. What is known to fail on tcp (its row in fabtests/results.json, from a run with --record)
is counted apart, for it says nothing of squall. A directory that hangs for longer than there is time can be left out by --without, and
is named in the row. Ends with `N passed, N failed`.
"""

import argparse
import pathlib
import re

from squall_ci import results
from squall_ci.job import Statistics
from squall_ci.mpis import MPIS
from squall_ci.paths import need, need_provider, TARGET
from squall_ci.process import run as run_command
from squall_ci.tally import Tally

SUITE = "test/mpi"
# Directories of the suite, and those of them whose programs talk so much that squall must have seen it.
DIRECTORIES = (
    "attr",
    "coll",
    "comm",
    "datatype",
    "errhan",
    "errors",
    "group",
    "info",
    "init",
    "io",
    "part",
    "pt2pt",
    "rma",
    "session",
) + ("spawn", "threads", "topo")
TALKS = ("coll", "comm", "pt2pt", "rma", "threads")
# One line for a test: whether it passed, its place, its program and processes, and, if any, why it was left out.
LINE = re.compile(r"^(ok|not ok) \d+ - (\S+) (\d+)([^#\n]*)(?:#\s*(.*))?$", re.MULTILINE)

KNOWN = "fails on tcp as well"


def parse(tap: str, directory: str) -> list[tuple[str, bool, str, float, str]]:
    """Of each test its name, whether it passed, why it was left out, its seconds, and what it said."""
    found = []
    lines = list(LINE.finditer(tap))
    for at, line in enumerate(lines):
        end = lines[at + 1].start() if at + 1 < len(lines) else len(tap)
        said, (passed, program, ranks, rest, note) = tap[line.end() : end], line.groups(default="")
        words = " ".join([f"{directory}/{program.removeprefix('./')}", ranks, *rest.split()])
        seconds = re.search(r"time=([\d.]+)", note)
        left_out = note if re.match(r"(?i)skip|todo", note) else ""
        found.append((words, passed == "ok", left_out, float(seconds.group(1)) if seconds else 0.0, said))
    return found


def known(version: str, conditions: str) -> set[str]:
    """What failed on tcp when it was recorded last."""
    rows = [row for row in results.load() if (row.suite, row.provider, row.version) == (SUITE, "tcp", version)]
    return {test for row in rows if row.conditions == conditions for test in row.failed}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("provider", nargs="?", default="squall")
    parser.add_argument("--only", default="", help="directories of the suite")
    parser.add_argument("--without", default="^$", help="directories that are not run, which a row with --record names")
    parser.add_argument(
        "--timeout", type=float, default=120.0, help="seconds for each program, unless the suite says how many"
    )
    results.add_option(parser)


def run(args: argparse.Namespace) -> int:
    results.check(args)
    mpi = MPIS["mpich"]
    mpi.need()
    need_provider(args.provider)
    tree = args.tree.absolute()
    need((tree / "runtests").exists() and (tree / "config.status").exists(), f"{tree} is no configured test/mpi of MPICH")
    version = run_command([mpi.venv / "bin" / "mpichversion"], None, timeout=10).output.split()[2]
    conditions = results.conditions(0).partition(", ")[2] or "processes as the suite says"
    fails_anyway = known(version, conditions) if args.provider != "tcp" else set()
    tally, excluded = Tally(), dict[str, list[str]]()
    if left_out_whole := [name for name in DIRECTORIES if re.search(args.without, name)]:
        excluded["not run here, by choice of whoever ran the suite: the whole directory"] = left_out_whole
    for directory in (name for name in DIRECTORIES if re.search(args.only, name) and name not in left_out_whole):
        stats = Statistics()
        path = f"{mpi.venv / 'bin'}:{mpi.env(args.provider)['PATH']}"
        env = mpi.env(args.provider) | stats.env() | {"PATH": path, "MPITEST_TIMEOUT": f"{args.timeout:.0f}"}
        tap = TARGET / "mpich.tap"
        tap.unlink(missing_ok=True)
        options = ["-srcdir=.", "-tests=testlist", f"-mpiexec={mpi.venv / 'bin' / 'mpiexec'}", f"-tapfile={tap}"]
        ran = run_command(["env", "-C", tree / directory, tree / "runtests", *options], env, timeout=3600)
        need(tap.exists(), f"{directory}: the suite's script did not run: {ran.why()}\n{ran.output[-2000:]}")
        tests = parse(tap.read_text(errors="replace"), directory)
        need(tests, f"{directory}: the suite's script ran no tests:\n{ran.output[-2000:]}")
        for name, passed, left_out, seconds, said in tests:
            if left_out:
                excluded.setdefault(f"left out by the suite: {left_out}", []).append(name)
            elif not passed and name in fails_anyway:
                excluded.setdefault(KNOWN, []).append(name)
            else:
                tally.add(name, None if passed else "not ok", seconds, "", said)
        if args.provider == "squall" and directory in TALKS:
            tally.add(f"{directory}: through squall", stats.verdict(2, 1 << 20), 0.0, stats.summary())
    return results.finish(
        tally,
        args.record,
        consumer=mpi.title,
        version=version,
        suite=SUITE,
        provider=args.provider,
        conditions=conditions,
        excluded=excluded,
    )
