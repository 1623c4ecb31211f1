"""Hosts whose interfaces have misleading names or addresses, and a provider that no variable names."""

import pathlib
import re
import shutil
import tempfile

from squall_ci.hostile import cable, HOSTS, Verdict, WARNINGS
from squall_ci.job import run_job, run_program
from squall_ci.mpis import MPIS
from squall_ci.namespaces import Namespaces
from squall_ci.paths import MPI_TESTS
from squall_ci.process import run, Word

# Seconds that the job may take; it needs two.
PATIENCE = 60.0
# The report of a process that uses squall although no variable names it.
MOVED = "squall: messages go through squall, which libfabric found in FI_PROVIDER_PATH"
# A warning that names both instances.
BOTH = re.compile(r"(\S+:\d+) on (\S+) is this endpoint's own address.*instance ([0-9a-f]{8})\).*instance ([0-9a-f]{8})\)")


def only_a_cable() -> Verdict:
    """Runs a job on two hosts whose only interface is called veth0."""
    with cable("veth0") as (_, launch):
        # Squall finds the interface by itself.
        return Verdict.of(run_program("sums", env={"FI_SQUALL_IFACE": ""}, launch=launch))


def one_address_for_both() -> Verdict:
    """Runs a job on two hosts whose chosen interface has the same address, as containers' have."""
    mpi = MPIS["mpich"]
    with Namespaces(["a", "b"]) as net:
        net.join("a", "mgmt0", "10.78.0.1/24", "b", "mgmt0", "10.78.0.2/24")
        for node in net.nodes:
            # The other end stays on the same host, so that the interface leads nowhere.
            net.ip(node, "link", "add", "eth0", "type", "veth", "peer", "name", "nowhere")
            net.ip(node, "link", "set", "nowhere", "up")
            net.address(node, "eth0", "172.17.0.2/16")
        with net.hydra(HOSTS) as launch:
            env = WARNINGS | {"FI_SQUALL_IFACE": "eth0"}
            program = [mpi.python, MPI_TESTS / "sums.py"]
            result = run_job(mpi, "squall", 2, program, PATIENCE, 0, env, launch).result
    return Verdict(_both_named(result.code, result.output), f"ended after {result.seconds:.1f} s", result.output)


def path_alone() -> Verdict:
    """Runs a job of Open MPI 5 with FI_PROVIDER_PATH alone: it moves to squall, and one rank reports it. Lists of providers
    report nothing.

    MPICH moves as well where no other provider has as good a score, which depends on the host's interfaces.
    """
    mpi = MPIS["openmpi"]
    mpi.need()
    named = {name: value for name, value in mpi.env("squall").items() if not name.startswith("FI_SQUALL_")}
    alone = {name: value for name, value in named.items() if value != "squall"}
    program: list[Word] = [mpi.python, MPI_TESTS / "sums.py"]
    result = run(mpi.command(2, program), alone, PATIENCE)
    reports = result.output.count(MOVED)
    if not result.ok:
        return Verdict(f"with the path alone: {result.why()}", "", result.output)
    if reports != 1:
        return Verdict(f"with the path alone {reports} lines report the move", "", result.output)
    result = run(mpi.command(2, program), named, PATIENCE)
    if not result.ok or MOVED in result.output:
        return Verdict("with FI_PROVIDER=squall it fails, or reports a move", "", result.output)
    if shutil.which("fi_info"):
        result = run(["fi_info", "-l"], alone, PATIENCE)
        if not result.ok or MOVED in result.output:
            return Verdict("a list of providers fails, or reports a move", "", result.output)
    return Verdict(None)


def _both_named(code: int | None, output: str) -> str | None:
    """Returns what is missing from the end of a job whose hosts have one address, or None."""
    if code is None:
        return f"it hung for {PATIENCE:.0f} s"
    if code == 0:
        return "the job ended without an error"
    if re.search(r"^sums: \d+ passed", output, re.M):
        return "it compared sums"
    found = BOTH.search(output)
    if not found:
        return "no line names both instances"
    address, interface, given, ours = found.groups()
    if not address.startswith("172.17.0.2:") or interface != "eth0" or given == ours:
        return f"the line names the wrong ones: {found.group(0)}"
    return None


def keys() -> Verdict:
    """Runs a job whose ranks share a key and name their peers; then one of its ranks has another key."""
    mpi = MPIS["mpich"]
    with tempfile.TemporaryDirectory() as directory:
        for rank in range(2):
            key = pathlib.Path(directory) / str(rank)
            key.touch(0o600)
            key.write_text(f"a key of 16 bytes and more: {rank}\n")
        env = WARNINGS | {"FI_SQUALL_KEY_FILE": f"{directory}/0", "FI_SQUALL_PEERS": "av"}
        program: list[Word] = [mpi.python, MPI_TESTS / "sums.py"]
        job = run_program("sums", env=env)
        if job.problem:
            return Verdict(f"with one key: {job.problem}", "", job.output)
        other = ["sh", "-c", f'FI_SQUALL_KEY_FILE={directory}/$PMI_RANK exec "$@"', "sh"]
        result = run(mpi.command(2, [*other, *program]), mpi.env("squall") | env, PATIENCE)
    problem = None
    if result.code is None:
        problem = f"with two keys it hung for {PATIENCE:.0f} s"
    elif result.ok or re.search(r"^sums: \d+ passed", result.output, re.M):
        problem = "with two keys the ranks talked to each other"
    elif "FI_SQUALL_KEY_FILE" not in result.output:
        problem = "no rank reports that the keys differ"
    return Verdict(problem, f"{job.note}; with two keys ended after {result.seconds:.1f} s", result.output)
