"""Run Sandia OpenSHMEM's own tests on a provider: one-sided, atomics, signals, collectives, locks, threads.

BUILD_DIR is a built tree of Sandia OpenSHMEM with its tests (modules/tests-sos), configured `--enable-pmi-simple` and with a
libfabric that the loader finds. The jobs are launched by MPICH's hydra. On squall the endpoints' statistics must show the
bytes.
"""

import argparse
import pathlib
import re

from squall_ci import foreign, hosts
from squall_ci.environment import provider_environment
from squall_ci.job import run_job
from squall_ci.mpis import MPIS
from squall_ci.paths import need
from squall_ci.process import run, Word

TESTS = pathlib.PurePath("modules", "tests-sos", "test")
# Programs that fail, or pass without having done anything, are the suite's `make check`'s; performance is not judged.
SUITES = ("unit", "shmemx", "spec-example", "apps")

# The library's message if a provider lacks what it asks for.
NOT_OFFERED = "did not find any valid fabric services"

# Programs that end every process at once, so that no endpoint leaves statistics.
LEAVES = {"global_exit"}


def programs(directory: pathlib.Path) -> list[str]:
    """Returns the programs that `make check` would run in a directory, and builds them if need be."""
    quiet: list[Word] = ["make", "--no-print-directory", "-s", "-C", directory]
    built = run([*quiet, "check", "TESTS="], None, timeout=600)
    need(built.ok, f"the tests in {directory} do not build:\n{built.output[-2000:]}")
    listed = run([*quiet, "--eval=squall-list: ; @echo $(TESTS)", "squall-list"], None, timeout=60)
    need(listed.ok and listed.output.strip(), f"{directory} names no tests:\n{listed.output[-2000:]}")
    return listed.output.split()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD_DIR")
    foreign.add_options(parser, 120.0, "program")


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    mpi = MPIS["mpich"]
    build = args.build.absolute()
    need((build / "config.status").exists(), f"{build} is no built tree of Sandia OpenSHMEM")
    outcome.version = run([build / "config.status", "--version"], None, timeout=10).output.split()[3]
    configured = run([build / "config.status", "--config"], None, timeout=10).output
    basic = "--enable-ofi-mr=basic" in configured
    # The library has the loader's libfabric, not that of the MPI whose launcher starts it; before 2.0 tcp needs a layer.
    extra = provider_environment(args.provider, "1")
    extra["SHMEM_OFI_PROVIDER"] = extra["FI_PROVIDER"]
    # A library that Debian's libfabric 1.17 brings with it leaves a file wherever a program aborts, otherwise.
    extra["IPATH_NO_BACKTRACE"] = "1"
    wanted = [(suite, name) for suite in SUITES for name in programs(build / TESTS / suite) if re.search(args.only, name)]
    shows = hosts.shows(args.hosts)
    with hosts.launched(args.hosts, args.ranks, mpi) as (launch, env):
        for suite, name in wanted:
            least = None if name in LEAVES else 0
            program = [build / TESTS / suite / name]
            job = run_job(mpi, args.provider, args.ranks, program, args.timeout, least, extra | env, launch, shows)
            if job.problem and args.provider != "squall" and NOT_OFFERED in job.output:
                outcome.exclude(foreign.NOT_OFFERED, f"{suite}/{name}")
            else:
                job.add_to(outcome.tally, f"{suite}/{name}")
    suite = "make check, hard polling, basic regions" if basic else "make check"
    return outcome.finish("Sandia OpenSHMEM", suite, provider=extra["FI_PROVIDER"])
