"""A network plugin of NCCL, aws-ofi-nccl, driven through the interface that NCCL calls, with one of its protocols.

    ci/run nccl [--device] [--ranks N] [--only REGEX] [--timeout S] [--record] PLUGIN PROTOCOL [PROVIDER=squall]

PLUGIN is a built libnccl-net-ofi.so, or for ROCm librccl-net-ofi.so, whose libfabric (2.x) the loader finds, PROTOCOL sendrecv or rdma. The driver is
fabtests/nccl/net.c: processes in a ring send 1 KiB to 64 MiB, in groups and many at once, over several communicators, and check
every byte. A plugin built for CUDA or ROCm finds the stand-ins of fabtests/devices; with --device, for ROCm, buffers are a device's memory, of
which the CPU dies. The rdma protocol wants a network card with a place on
the PCI bus: FI_SQUALL_IFACE names it, or the first one that is up is taken. On squall the endpoints' statistics must show
that the bytes went through it. Ends with `N passed, N failed`.
"""

import argparse
import os
import pathlib
import re

from squall_ci import results
from squall_ci.devices import with_devices
from squall_ci.environment import provider_run
from squall_ci.job import Statistics
from squall_ci.paths import FABTESTS, need, need_provider, TARGET
from squall_ci.process import run as run_command
from squall_ci.programs import compile_c
from squall_ci.tally import Tally

SOURCES = FABTESTS / "nccl"
# What the driver ends with when the plugin finds no network (net.c).
NO_NETWORK = 77
# The test that moves least does more in each direction.
LEAST = 1 << 20


def card() -> str | None:
    """The first network interface that is up and has a place on the PCI bus."""
    for interface in sorted(pathlib.Path("/sys/class/net").iterdir()):
        on_bus = re.search(r"/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/", str((interface / "device").resolve()) + "/")
        if on_bus and (interface / "operstate").read_text().strip() == "up":
            return interface.name
    return None


def environment(provider: str, protocol: str) -> dict[str, str]:
    """Of the driver."""
    env = {**provider_run(provider), "OFI_NCCL_PROTOCOL": protocol.upper(), "OFI_NCCL_EXCLUDE_TCP_IF": "none"}
    if provider == "squall" and protocol == "rdma":
        interface = os.environ.get("FI_SQUALL_IFACE") or card()
        need(interface, "SKIPPED: the rdma protocol wants a network card on the PCI bus that is up, and there is none")
        env |= {"FI_SQUALL_IFACE": str(interface), "FI_SQUALL_PCI": "yes"}
    # The version of the plugin is in what it says while it begins.
    return with_devices(env | {"NCCL_DEBUG": "INFO"})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plugin", type=pathlib.Path)
    parser.add_argument("protocol", choices=["sendrecv", "rdma"])
    parser.add_argument("provider", nargs="?", default="squall")
    parser.add_argument("--device", action="store_true", help="buffers in a device's memory")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for each test")
    results.add_option(parser)


def run(args: argparse.Namespace) -> int:
    results.check(args)
    need(args.plugin.is_file(), f"SKIPPED: there is no plugin {args.plugin}")
    need_provider(args.provider)
    driver = compile_c([SOURCES / "net.c", SOURCES / "net.h"], TARGET / "nccl" / "net", ("-std=gnu11", "-g", "-O2"))
    env = environment(args.provider, args.protocol) | {"SQUALL_TEST_DEADLINE": str(int(args.timeout) - 5)}
    tally = Tally()
    unoffered: list[str] = []
    version = ""
    for test in run_command([driver, "list"], env, timeout=10).output.split():
        if not re.search(args.only, test):
            continue
        statistics = Statistics()
        command = [driver, args.plugin.absolute(), args.ranks, test, "device" if args.device else "host"]
        result = run_command(command, env | statistics.env(), args.timeout)
        said = re.search(r"Initializing aws-ofi-nccl ([\w.]+)", result.output)
        version = said.group(1) if said else version
        if result.code == NO_NETWORK and args.provider != "squall":
            unoffered.append(test)
            continue
        problem, note = None if result.ok else result.why(), ""
        if args.provider == "squall" and not problem:
            problem = statistics.verdict(args.ranks, LEAST, bool(env.get("FI_SQUALL_FAULT")))
            note = statistics.summary()
        tally.add(test, problem, result.seconds, note, result.output)
    return results.finish(
        tally,
        args.record,
        consumer="aws-ofi-nccl",
        version=version,
        suite=f"ncclNet, {args.protocol} protocol" + (", device memory" if args.device else ""),
        provider=args.provider,
        conditions=results.conditions(args.ranks),
        excluded={"not offered: the plugin finds no provider that has what it asks for": unoffered} if unoffered else {},
    )
