"""Drive a network plugin of NCCL, aws-ofi-nccl, through the interface that NCCL calls, with one of its protocols.

PLUGIN is a built libnccl-net-ofi.so, or for ROCm librccl-net-ofi.so, whose libfabric (2.x) the loader finds. The driver is
fabtests/nccl/net.c: processes in a ring send 1 KiB to 64 MiB, in groups and many at once, over several communicators, and
check every byte. A plugin for CUDA or ROCm finds the stand-ins of fabtests/devices; with --device, for ROCm, buffers are in
a device's memory, which the CPU cannot access.

The rdma protocol needs a network card on the PCI bus, which hosts of --hosts do not have: FI_SQUALL_IFACE names it, or the
first one that is up is taken. On squall the endpoints' statistics must show the bytes.
"""

import argparse
import os
import pathlib
import re

from squall_ci import foreign
from squall_ci.devices import with_devices
from squall_ci.environment import provider_run
from squall_ci.paths import FABTESTS, need, TARGET
from squall_ci.process import Word
from squall_ci.programs import compile_c

SOURCES = [FABTESTS / "nccl" / "net.c", FABTESTS / "nccl" / "net.h", FABTESTS / "hosts.h"]
# The exit status of the driver if the plugin finds no network (net.c).
NO_NETWORK = 77
# The test that moves least does more in each direction.
LEAST = 1 << 20


def card() -> str | None:
    """Returns the first network interface that is up and has a place on the PCI bus."""
    for interface in sorted(pathlib.Path("/sys/class/net").iterdir()):
        on_bus = re.search(r"/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/", str((interface / "device").resolve()) + "/")
        if on_bus and (interface / "operstate").read_text().strip() == "up":
            return interface.name
    return None


def environment(provider: str, protocol: str) -> dict[str, str]:
    """Returns the environment of the driver."""
    env = {**provider_run(provider), "OFI_NCCL_PROTOCOL": protocol.upper(), "OFI_NCCL_EXCLUDE_TCP_IF": "none"}
    if provider == "squall" and protocol == "rdma":
        interface = os.environ.get("FI_SQUALL_IFACE") or card()
        need(interface, "SKIPPED: the rdma protocol wants a network card on the PCI bus that is up, and there is none")
        env |= {"FI_SQUALL_IFACE": str(interface), "FI_SQUALL_PCI": "yes"}
    # The plugin prints its version at start-up.
    return with_devices(env | {"NCCL_DEBUG": "INFO"})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plugin", type=pathlib.Path, metavar="PLUGIN")
    parser.add_argument("protocol", choices=["sendrecv", "rdma"])
    parser.add_argument("--device", action="store_true", help="buffers in a device's memory")
    foreign.add_options(parser, 90.0)


def main(args: argparse.Namespace) -> int:
    outcome = foreign.Outcome(args)
    need(args.plugin.is_file(), f"SKIPPED: there is no plugin {args.plugin}")
    need(
        not (args.hosts and args.protocol == "rdma"),
        "the rdma protocol wants a card on a PCI bus, which hosts of --hosts have not",
    )
    driver = compile_c(SOURCES, TARGET / "nccl" / "net", ("-std=gnu11", "-g", "-O2"))
    env = environment(args.provider, args.protocol) | {"SQUALL_TEST_DEADLINE": str(int(args.timeout) - 5)}

    def words(test: str) -> list[Word]:
        return [args.plugin.absolute(), args.ranks, test, "device" if args.device else "host"]

    for test, job in foreign.drive(outcome, driver, env, words, LEAST):
        if version := re.search(r"Initializing aws-ofi-nccl ([\w.]+)", job.output):
            outcome.version = version.group(1)
        if job.result.code == NO_NETWORK and args.provider != "squall":
            outcome.exclude(foreign.NOT_OFFERED, test)
        else:
            job.add_to(outcome.tally, test)
    memory = ", device memory" if args.device else ""
    return outcome.finish("aws-ofi-nccl", f"ncclNet, {args.protocol} protocol{memory}")
