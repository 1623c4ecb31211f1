"""Run MPICH's own test suite on one provider: point-to-point, collectives, one-sided, threads, spawn and the rest.

TREE is MPICH's directory test/mpi, configured with the mpicc of ci/run setup mpi (fabtests/README.md says how). Its own
script builds, runs and judges each program. Tests that failed on tcp when that was recorded (--record;
fabtests/results.json) are excluded. With --hosts up to twelve ranks of a job have a host each; further ranks, and spawned
processes, share them.
"""

import argparse
import pathlib
import re
from collections.abc import Container, Mapping

from squall_ci import foreign, hosts, results
from squall_ci.job import Statistics
from squall_ci.mpis import MPIS
from squall_ci.paths import need, TARGET
from squall_ci.process import run

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
# Ranks that have a host each with --hosts.
HOSTS = 12
TALKS = ("coll", "comm", "pt2pt", "rma", "threads")
# A line of a test: whether it passed, its number, program and processes, and the reason if it was left out.
LINE = re.compile(r"^(ok|not ok) \d+ - (\S+) (\d+)([^#\n]*)(?:#\s*(.*))?$", re.MULTILINE)

KNOWN = "fails on tcp as well"


def parse(tap: str, directory: str) -> list[tuple[str, bool, str, float, str]]:
    """Returns for each test its name, whether it passed, why it was left out, its seconds, and its output."""
    found = []
    lines = list(LINE.finditer(tap))
    for at, line in enumerate(lines):
        end = lines[at + 1].start() if at + 1 < len(lines) else len(tap)
        text, (passed, program, ranks, rest, note) = tap[line.end() : end], line.groups(default="")
        words = " ".join([f"{directory}/{program.removeprefix('./')}", ranks, *rest.split()])
        # The script of the suite is in Perl, which prints numbers below 0.0001 with an exponent.
        seconds = re.search(r"time=([\d.]+(?:e[-+]?\d+)?)", note)
        left_out = note if re.match(r"(?i)skip|todo", note) else ""
        found.append((words, passed == "ok", left_out, float(seconds.group(1)) if seconds else 0.0, text))
    return found


def known(version: str, apart: bool) -> set[str]:
    """Returns what failed on tcp in the recorded runs on one host and, if `apart`, on a host each. Settings of squall do
    not matter to tcp."""
    rows = [row for row in results.load() if (row.suite, row.provider, row.version) == (SUITE, "tcp", version)]
    return {test for row in rows if apart or not row.conditions.endswith(hosts.conditions(True)) for test in row.failed}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tree", type=pathlib.Path, metavar="TREE")
    parser.add_argument("--without", default="^$", metavar="REGEX", help="directories that are left out, and recorded so")
    foreign.add_options(parser, 120.0, "program, unless the suite says how many", ranks=False)


def judge(outcome: foreign.Outcome, test: tuple[str, bool, str, float, str], fails_anyway: Container[str]) -> None:
    """Counts one of the suite's tests, as `parse` returns it; some fail on every provider."""
    name, passed, left_out, seconds, text = test
    if left_out:
        outcome.exclude(f"left out by the suite: {left_out}", name)
    elif not passed and name in fails_anyway:
        outcome.exclude(KNOWN, name)
    else:
        outcome.tally.add(name, None if passed else "not ok", seconds, "", text)


def run_directory(
    outcome: foreign.Outcome, directory: str, mpiexec: pathlib.Path, env: Mapping[str, str], fails_anyway: Container[str]
) -> None:
    """Runs a directory of the suite by the suite's own script, and judges what that says."""
    args = outcome.args
    stats = Statistics()
    tap = TARGET / "mpich.tap"
    tap.unlink(missing_ok=True)
    tree = args.tree.absolute()
    options = ["-srcdir=.", "-tests=testlist", f"-mpiexec={mpiexec}", f"-tapfile={tap}"]
    ran = run(["env", "-C", tree / directory, tree / "runtests", *options], {**env, **stats.env()}, timeout=3600)
    need(tap.exists(), f"{directory}: the suite's script did not run: {ran.why()}\n{ran.output[-2000:]}")
    tests = parse(tap.read_text(errors="replace"), directory)
    need(tests, f"{directory}: the suite's script ran no tests:\n{ran.output[-2000:]}")
    for test in tests:
        judge(outcome, test, fails_anyway)
    if args.provider == "squall" and directory in TALKS:
        verdict = stats.verdict(2, 1 << 20, shows=hosts.shows(args.hosts))
        outcome.tally.add(f"{directory}: through squall", verdict, 0.0, stats.summary())


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    mpi = MPIS["mpich"]
    tree = args.tree.absolute()
    need((tree / "runtests").exists() and (tree / "config.status").exists(), f"{tree} is no configured test/mpi of MPICH")
    outcome.version = run([mpi.venv / "bin" / "mpichversion"], None, timeout=10).output.split()[2]
    conditions = results.conditions(0).partition(", ")[2] or "processes as the suite says"
    fails_anyway = known(outcome.version, args.hosts) if args.provider != "tcp" else set()
    if left_out_whole := [name for name in DIRECTORIES if re.search(args.without, name)]:
        outcome.exclude("not run here, by choice of whoever ran the suite: the whole directory", *left_out_whole)
    env = mpi.env(args.provider)
    env |= {"PATH": f"{mpi.venv / 'bin'}:{env['PATH']}", "MPITEST_TIMEOUT": f"{args.timeout:.0f}"}
    with hosts.launcher(args.hosts, HOSTS, mpi) as (mpiexec, where):
        for directory in (name for name in DIRECTORIES if re.search(args.only, name) and name not in left_out_whole):
            run_directory(outcome, directory, mpiexec, env | where, fails_anyway)
    return outcome.finish(mpi.title, SUITE, conditions=conditions)
