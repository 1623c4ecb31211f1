"""Verified peers that do not belong to the job: another user's endpoints, without a key, in no rank's address vector."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from squall_ci.environment import provider_run
from squall_ci.hostile import cable, HOSTS, Verdict
from squall_ci.job import run_program
from squall_ci.namespaces import Namespaces
from squall_ci.paths import FABTESTS, PROVIDER_DIR, TARGET
from squall_ci.process import Word
from squall_ci.programs import compile_c, example

# The first endpoint of the job on each host listens at Ultra Ethernet's port.
PORT = 4793
TARGETS = [f"{address}:{PORT}" for address in HOSTS]
# Seconds: the attack takes ATTACK at most, the job SECONDS once it has been made, and PATIENCE at most from the beginning; the
# attacker stays for HOLD.
ATTACK = 30
SECONDS = 4
PATIENCE = 90.0
HOLD = 60
# MiB that the resident memory of a rank under attack may grow by. A full table of messages alone took 275.
MOST_GROWTH = 128
# Waits for the endpoint of a rank on this host, for a minute at most, then becomes an attacker with enough descriptors.
WAIT = (
    f'n=0; until grep -qs ":{PORT:04X} " /proc/net/udp /proc/net/udp6 || [ $n = 600 ]; do n=$((n + 1)); sleep 0.1; done; '
    'ulimit -n 4096; exec "$0" "$@"'
)
# User and group of the attackers, who own nothing.
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
# More ports than it takes to have all 65,535 contexts of an endpoint, at 64 for each.
PORTS = 1030


@contextlib.contextmanager
def _readable(*files: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a directory with copies of files that every user may read. Only its owner may be able to read the checkout."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        for file in files:
            shutil.copy(file, directory)
            (directory / file.name).chmod(0o755)
        yield directory


@contextlib.contextmanager
def _attacker(net: Namespaces, command: Sequence[Word], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Runs an attacker as another user of the first host, as soon as a rank has opened its endpoint."""
    words = net.command("a", "sh", "-c", WAIT, *NOBODY, *command)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def _job_under(attack: Sequence[Word], attacker_env: Mapping[str, str], env: Mapping[str, str]) -> tuple[Verdict, str]:
    """Runs a job whose ranks exchange their first message when the attack has been made. Returns the verdict about the job, and
    the line on which the attacker reports."""
    with contextlib.ExitStack() as stack:
        start = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "start"
        net, launch = stack.enter_context(cable("eth0"))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        attacker = stack.enter_context(_attacker(net, attack, attacker_env))
        whole = {"FI_SQUALL_IFACE": "eth0", "SQUALL_TEST_START": str(start), **env}
        running = pool.submit(run_program, "steady", SECONDS, timeout=PATIENCE, at_least=1 << 20, env=whole, launch=launch)
        try:
            assert attacker.stdout
            report = attacker.stdout.readline().strip()
        finally:
            start.touch()
        job = running.result()
    problem = job.problem
    if not problem and (grown := job.figures["grown_mib"]) > MOST_GROWTH:
        problem = f"the memory of a rank grew by {grown} MiB: at most {MOST_GROWTH} are allowed"
    note = f"{report or 'the attacker printed no report'}; {job.figures or 'the job printed no report'}"
    return Verdict(problem, note, job.output), report


def _flood(messages: int, seconds: int, env: Mapping[str, str]) -> Verdict:
    """Sends empty messages that no receive matches, for at most so many seconds."""
    sources = [FABTESTS / "hostile" / "outsider.c", FABTESTS / "abi" / "abi.h"]
    program = compile_c(sources, TARGET / "hostile" / "outsider", ("-std=gnu11", "-g", "-O1"))
    with _readable(program, PROVIDER_DIR / "libsquall-fi.so") as directory:
        attacker_env = provider_run("squall") | {
            "FI_PROVIDER_PATH": str(directory),
            "FI_SQUALL_IFACE": "eth0",
            # The attacker leaves the ports of the ranks free.
            "FI_SQUALL_PORT": "6000-6999",
            "FI_SQUALL_SHM": "no",
            # The attacker may not write the statistics page of the caller.
            "FI_SQUALL_MONITOR": "0ns",
        }
        command: list[Word] = [directory / program.name, "10.78.0.1", messages, seconds, HOLD, *TARGETS]
        verdict, report = _job_under(command, attacker_env, env)
    if not verdict.problem and not report.startswith(f"outsider: {len(TARGETS)} of {len(TARGETS)} targets reached"):
        return Verdict("the attack did not reach the ranks", verdict.note, verdict.output)
    return verdict


def small_flood() -> Verdict:
    """Floods ranks whose tables of unexpected messages are small."""
    return _flood(20_000, 4, {"FI_SQUALL_MAX_UNEXPECTED": "1000"})


def flood() -> Verdict:
    """Sends a million messages to each rank, as many as its table has room for by default."""
    return _flood(2_000_000, ATTACK, {})


def contexts() -> Verdict:
    """Lets other ports of a rank's own host take as many contexts as the rank gives them."""
    program = example("squall-net", "occupy_contexts")
    with _readable(program) as directory:
        command: list[Word] = [directory / program.name, TARGETS[0], PORTS, ATTACK, HOLD]
        verdict, report = _job_under(command, provider_run("squall"), {})
    found = re.match(r"occupy_contexts: (\d+) ports verified", report)
    if not verdict.problem and not (found and int(found.group(1)) >= PORTS // 2):
        return Verdict("the attack proves nothing: too few of its ports were verified", verdict.note, verdict.output)
    return verdict
