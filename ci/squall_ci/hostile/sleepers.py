"""A thread asleep on a completion queue while an operation times out that another thread began."""

import re

from squall_ci.environment import provider_run
from squall_ci.hostile import run_at_once, Verdict
from squall_ci.namespaces import Namespaces
from squall_ci.paths import FABTESTS, TARGET
from squall_ci.process import run
from squall_ci.programs import compile_c

WAYS = ("sread", "fd")
# Seconds: when the operation times out, by when the sleeper must be awake, and when the program is ended.
DEADLINE = "2s"
SOON = 20
PATIENCE = 40.0
# The address that leads to a cable at whose other end no interface has this Ethernet address.
SILENT, ETHERNET = "10.79.0.9", "02:00:00:00:00:99"


def woken_by_timeout() -> Verdict:
    """Checks that the timeout of one thread's operation wakes another, in fi_cq_sread or in poll on the descriptor."""
    sources = [FABTESTS / "hostile" / "sleeper.c", FABTESTS / "abi" / "abi.h"]
    program = compile_c(sources, TARGET / "hostile" / "sleeper", ("-std=gnu11", "-g", "-O1"))
    env = provider_run("squall") | {"FI_SQUALL_IFACE": "eth0", "FI_SQUALL_DEADLINE": DEADLINE}
    with Namespaces(["a", "b"]) as net:
        net.join("a", "eth0", "10.79.0.1/24", "b", "eth0", "10.79.0.2/24")
        net.ip("a", "neigh", "replace", SILENT, "lladdr", ETHERNET, "dev", "eth0", "nud", "permanent")

        def sleep(way: str) -> Verdict:
            result = run(net.command("a", program, "10.79.0.1", SILENT, way, SOON), env, PATIENCE)
            woken = re.search(r"woken after [\d.]+ s", result.output)
            return Verdict(None if result.ok else result.why(), woken[0] if woken else "", result.output)

        return run_at_once({way: way for way in WAYS}, sleep)
