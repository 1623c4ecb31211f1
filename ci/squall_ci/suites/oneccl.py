"""Run oneCCL's collectives with every type and reduction, over its OFI transport, on one provider.

PREFIX is the directory in which oneCCL and its headers are installed, such as a virtual environment after `pip install
oneccl oneccl-devel` (2 GB). It loads the libfabric of the MPICH wheel, or the one that CCL_OFI_LIBRARY_PATH names. The
driver is fabtests/oneccl/collectives.cpp: processes with oneCCL's shared memory turned off reduce, gather, exchange and
broadcast 1 to 30 000 elements of twelve types and 16 MiB of one, and compare all results. Types for which oneCCL has no
instructions on this processor are listed as excluded.
"""

import argparse
import os
import pathlib
import re

from squall_ci import foreign, hosts
from squall_ci.environment import provider_run
from squall_ci.mpis import MPIS
from squall_ci.paths import FABTESTS, need, TARGET
from squall_ci.programs import compile_c

SOURCES = [FABTESTS / "oneccl" / "collectives.cpp", FABTESTS / "hosts.h"]
# The test that moves least does more in each direction.
LEAST = 1 << 20

# Reasons, and the tests they concern.
EXCLUDED = {
    "crashes on every provider: without a stream of a device, a send of oneCCL 2022 looks for that stream's device": [
        "send_recv"
    ],
}


def environment(prefix: pathlib.Path, provider: str) -> dict[str, str]:
    """Returns the environment of the driver."""
    steering = {
        "CCL_ATL_TRANSPORT": "ofi",
        "CCL_ATL_SHM": "0",
        "CCL_PROCESS_LAUNCHER": "none",
        "CCL_KVS_IFACE": "lo",
        "CCL_OFI_LIBRARY_PATH": str(MPIS["mpich"].venv / "lib" / "mpich" / "libfabric.so.1"),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
    }
    chosen = os.environ.get("CCL_OFI_LIBRARY_PATH")
    if chosen:
        steering["CCL_OFI_LIBRARY_PATH"] = chosen
    return {**provider_run(provider), **steering}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", type=pathlib.Path, metavar="PREFIX")
    foreign.add_options(parser, 120.0)


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    outcome.excluded |= EXCLUDED
    prefix = args.prefix.absolute()
    header = prefix / "include" / "oneapi" / "ccl.hpp"
    need(header.is_file(), f"SKIPPED: there is no {header}")
    env = environment(prefix, args.provider) | ({"CCL_KVS_IFACE": hosts.INTERFACE} if args.hosts else {})
    library = env["CCL_OFI_LIBRARY_PATH"]
    need(pathlib.Path(library).is_file(), f"SKIPPED: there is no {library}: run ci/run setup mpi first")
    options = ("-std=c++17", "-O2", "-isystem", str(prefix / "include"))
    libraries = (f"-L{prefix}/lib", f"-Wl,-rpath-link,{prefix}/lib", "-lccl")
    driver = compile_c(SOURCES, TARGET / "oneccl" / "collectives", options, "c++", libraries)
    refused: set[str] = set()
    for test, job in foreign.drive(outcome, driver, env, lambda test: [args.ranks, test], LEAST):
        if version := re.search(r"^oneCCL ([\d.]+)$", job.output, re.M):
            outcome.version = version.group(1)
        counted = re.search(r"^(\d+) collectives$", job.output, re.M)
        problem = None if counted and int(counted.group(1)) else "no collective was checked"
        refused.update(f"{test} {kind}" for kind in re.findall(r"^refused: (\S+)$", job.output, re.M))
        job.add_to(outcome.tally, test, problem, counted.group() if counted else "")
    if refused:
        outcome.exclude("oneCCL has no instructions for it on this processor", *sorted(refused))
    return outcome.finish("oneCCL", "collectives, OFI transport")
