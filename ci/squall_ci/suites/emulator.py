"""Run jobs by `squall run --on`: recorded while links fail, then replayed in the simulator, times side by side.

IMB under Intel MPI, and a program of mpi4py under MPICH and Open MPI, run on 4 ranks of an emulated leaf-spine with a
timeline: a slow link from the start, one that swallows everything and comes back, one that loses packets. `squall run` has
to set the variables that make an MPI use squall. Every job has to put rank i on host i, and to leave a record of the events
of the network, and traces that `squall sim --trace` replays over the same network and over another.

Errors come next: a job that sends nothing through the emulator, ranks that never come or have no host, Ctrl-C. (Errors of the
command line and damaged traces are tested in tools/tests/cli.rs and netsim/src/replay/tests.rs.) `squall emulate join` runs two jobs
on one emulator, and is refused without an emulator, squall or host. One job runs on switches that deflect. Two jobs reach an
emulator by a socket that `ssh` forwards, all of their ranks or every second one: sshd on loopback is the other machine.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from squall_ci import ssh
from squall_ci.emulator import Emulator as Running
from squall_ci.mpis import Mpi, MPIS
from squall_ci.paths import MPI_TESTS
from squall_ci.process import Result, run, Word
from squall_ci.programs import squall
from squall_ci.ssh import Forward
from squall_ci.tally import table, Tally

RANKS = 4
# The topology of jobs whose options name none.
TOPOLOGY = "leaf-spine:4x2x2"
# Seconds that the recorded streams take.
SECONDS = 2.5
TIMELINE = """\
# of a leaf-spine of 4 leaves and 2 spines
0s      set-rate leaf0-spine0 25G
400ms   black-hole leaf1-spine1
800ms   loss leaf0-spine1 1%
1.2s    restore-link leaf1-spine1
"""
EVENTS = ["set-rate leaf0-spine0 25000M", "black-hole leaf1-spine1", "loss leaf0-spine1 0.01", "restore-link leaf1-spine1"]
# The exit status of `squall run` and `squall emulate join` if a job shows nothing about the network.
NOTHING = 2


@dataclass(frozen=True)
class Outcome:
    """The result of a job: a problem, and the times of the whole, recorded and simulated (us)."""

    problem: str | None
    recorded: float = 0.0
    same: float = 0.0
    other: float = 0.0
    messages: int = 0


class Emulator:
    """`squall`, and how jobs are run by it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.program = squall()
        self.folder = folder

    def command(self, mpi: Mpi, program: Sequence[Word], options: Sequence[Word] = (), ranks: int = RANKS) -> list[Word]:
        topology = () if "--on" in options else ("--on", TOPOLOGY)
        return [self.program, "run", *topology, *options, "--", *mpi.command(ranks, program)]

    def run(self, mpi: Mpi, program: Sequence[Word], options: Sequence[Word] = (), ranks: int = RANKS) -> Result:
        return run(self.command(mpi, program, options, ranks), mpi.plain_environment(), 60)

    def squall(self, *words: Word) -> Result:
        return run([self.program, *words], timeout=60)

    def timeline(self) -> pathlib.Path:
        path = self.folder / "timeline.txt"
        path.write_text(TIMELINE)
        return path

    def replay(self, record: pathlib.Path, *options: Word) -> tuple[Result, float, float]:
        """Simulates a record; returns the result and the times of the whole that it prints (us)."""
        result = self.squall("sim", "--quiet", "--trace", record, *options)
        whole = re.search(r"^the whole +\d+ +([\d.e+]+) +([\d.e+]+)", result.output, re.M)
        return (result, float(whole[1]), float(whole[2])) if whole else (result, 0.0, 0.0)


def stream(mpi: Mpi, seconds: float) -> list[Word]:
    return [mpi.python, MPI_TESTS / "stream.py", seconds, 1 << 16]


def jobs() -> dict[str, tuple[Mpi, list[Word]]]:
    """Returns the jobs that are run, by name."""
    # The network is in slow motion, so that few repetitions are enough.
    limits: list[Word] = ["-npmin", RANKS, "-time", 5, "-iter", "60,80", "-msglog", "12:17"]
    imb: list[Word] = [MPIS["impi"].venv / "bin" / "IMB-MPI1", *limits, "Sendrecv", "Allreduce"]
    streams = {name: (MPIS[name], stream(MPIS[name], SECONDS)) for name in ("mpich", "openmpi")}
    return {"impi": (MPIS["impi"], imb), **streams}


def problem_of(result: Result, record: pathlib.Path) -> str | None:
    """Returns what is wrong with a job and its record, or None."""
    if not result.ok:
        return f"{result.why()}: {result.output[-1500:]}"
    if '"wrong": ' in result.output and '"wrong": 0' not in result.output:
        return "wrong bytes arrived"
    placed = set(re.findall(r"rank (\d+), is host (\d+)", result.output))
    if placed != {(str(rank), str(rank)) for rank in range(RANKS)}:
        return f"ranks and hosts: {sorted(placed)}"
    kept = json.loads((record / "run.json").read_text())
    settings = kept["provenance"]["settings"]
    # A parameter that has its default.
    if settings.get("variable.FI_SQUALL_EAGER_SIZE") != "256K":
        return f"no parameter of the provider in the provenance: {settings}"
    happened = [event["what"] for event in kept["events"]]
    if happened != EVENTS:
        return f"in the record happened {happened}"
    kinds = {series["kind"] for series in kept["series"]}
    if not {"queue", "load", "throughput"} <= kinds or not kept["network"]["dropped_dead"]:
        return f"the record has {sorted(kinds)}, and {kept['network']}"
    if len(kept["flows"]) < 100:
        return f"{len(kept['flows'])} messages in the record"
    if "marked in the plots" not in (record / "report.html").read_text():
        return "nothing is marked in the report"
    return None


def record_and_replay(emulator: Emulator, name: str, mpi: Mpi, program: list[Word]) -> tuple[Outcome, float]:
    """Runs a job, and its trace in the simulator; returns the outcome, and how long the job took."""
    record = emulator.folder / name
    options: list[Word] = ["--timeline", emulator.timeline(), "--record", record]
    result = emulator.run(mpi, program, options)
    if problem := problem_of(result, record):
        return Outcome(problem), result.seconds
    same, recorded, simulated = emulator.replay(record)
    if not same.ok or "was cut" in same.output or not (recorded and simulated):
        return Outcome(f"replay: {same.why()}: {same.output[-1500:]}"), result.seconds
    other, _, elsewhere = emulator.replay(record, "--topo", "fat-tree:16:1", "--cc", "smartt", "--lb", "oblivious")
    # This network is a hundred times as fast and does not fail: the job's own computation is left.
    if not other.ok or not 0 < elsewhere < simulated:
        return Outcome(f"replay elsewhere: {other.why()}, {elsewhere} us: {other.output[-1500:]}"), result.seconds
    page = emulator.squall("report", record / "run.json", "-o", emulator.folder / "page.html")
    messages = len(json.loads((record / "run.json").read_text())["flows"])
    return Outcome(None if page.ok else page.output, recorded, simulated, elsewhere, messages), result.seconds


def expect(tally: Tally, name: str, result: Result, code: int | None, *says: str) -> None:
    """Checks an exit status, which is any error if `code` is None, and that texts are in the output."""
    missing = [text for text in says if text not in result.output]
    right = result.code == code if code is not None else not result.ok and result.code is not None
    status = "an error" if code is None else f"exit status {code}"
    problem = None if right and not missing else f"{result.why()}, expected {status} and {missing}"
    tally.add(name, problem, result.seconds, output=result.output)


def run_failing_jobs(emulator: Emulator, tally: Tally) -> None:
    """Runs jobs that must fail, or that must be reported as not emulated."""
    mpi = MPIS["mpich"]
    # `squall run` would refuse FI_PROVIDER=tcp as a word of the command.
    other = 'export FI_PROVIDER=tcp FI_TCP_IFACE=lo; exec "$@"'
    tcp = emulator.run(mpi, ["sh", "-c", other, "sh", *stream(mpi, 0.2)], ranks=2)
    expect(tally, "another provider", tcp, NOTHING, "none of its processes attached")
    small = emulator.run(mpi, stream(mpi, 0.2), ["--on", "star:3"])
    expect(tally, "no host for a rank", small, None, "rank 3 wants to be host 3; the hosts are 0 to 2")
    ping = "exec fi_pingpong -p squall -e rdm -I 10 -S 1024"
    # 47593 is B9E9: a client of fi_pingpong does not wait for its server, which on a busy machine may take seconds to listen.
    listens = "grep -q ':B9E9 0*:0000 0A' /proc/net/tcp /proc/net/tcp6"
    client = f"until {listens}; do sleep 0.1; done; {ping} -P 47593 127.0.0.1"
    two = f"case $PMI_RANK in 0) {ping} -B 47593;; 1) {client};; esac"
    away = emulator.run(mpi, ["sh", "-c", two], ranks=3)
    expect(tally, "a rank that never comes", away, NOTHING, "2 of 3 ranks attached to the emulator; not attached: 2")
    stays = f"case $PMI_RANK in 2) {ping} -B 47594;; 3) {client.replace('47593', '47594').replace('B9E9', 'B9EA')};; esac; sleep 50"
    waits = emulator.run(mpi, ["sh", "-c", stays], ["--on", "star:3"])
    problem = None if waits.code and waits.seconds < 40 else f"{waits.why()} after {waits.seconds:.0f} s"
    if "it refused an endpoint, and no packet has entered the network since" not in waits.output:
        problem = "the output does not give the reason of the end"
    tally.add("a job that waits for a rank without a host", problem, waits.seconds, output=waits.output)
    full = emulator.run(mpi, ["env", "FI_SQUALL_TRACE=/dev/null/traces", *stream(mpi, 0.2)], ranks=2)
    expect(tally, "no room for a trace", full, 0, "FI_SQUALL_TRACE: cannot write /dev/null/traces/", '"wrong": 0')


def join_jobs(emulator: Emulator, tally: Tally) -> None:
    """Joins two jobs to one running emulator, and tries what must be refused."""
    mpi = MPIS["mpich"]
    env = mpi.plain_environment()

    def join(socket: Word, hosts: str, ranks: int, *words: Word) -> Result:
        command: list[Word] = [emulator.program, "emulate", "--socket", socket, "join", "--hosts", hosts, "--"]
        return run([*command, *mpi.command(ranks, words or stream(mpi, 0.2))], env, 60)

    absent = join(emulator.folder / "nowhere", "0,1", 2)
    expect(tally, "no emulator to join", absent, NOTHING, "is it running? (squall emulate up)")
    with Running(emulator.program, ["--topo", "star:4"]) as up, ThreadPoolExecutor() as pool:
        jobs = [pool.submit(join, up.socket, hosts, 2, *stream(mpi, 1.0)) for hosts in ("0,1", "3,2")]
        results = [job.result() for job in jobs]
        ports = {port["name"]: port["bytes"] for port in up.status()["ports"]}
        quiet = [name for name, count in ports.items() if name.startswith("h") and count < 1 << 20]
        problem = next((result.why() for result in results if not result.ok), None)
        problem = problem or (f"little came from {quiet}: {ports}" if quiet else None)
        seconds = max(result.seconds for result in results)
        tally.add("two jobs on one emulator", problem, seconds, output="".join(result.output for result in results))
        without = join(up.socket, "0,1", 2, "true")
        expect(tally, "a joined job without squall", without, NOTHING, "none of its processes attached")
        expect(tally, "a host that is not there", join(up.socket, "0,4", 2), NOTHING, "no host 4; the hosts are 0 to 3")


def run_on_deflecting_switches(emulator: Emulator, tally: Tally) -> None:
    """Runs a job with packet loss on switches that send messages round full queues."""
    mpi = MPIS["mpich"]
    env = mpi.plain_environment() | {"FI_SQUALL_LB": "ecmp", "FI_SQUALL_FAULT": "loss=1%"}
    # Every rank sends to the other leaf, four over two spines each way: whichever ECMP draws, two at least meet.
    options = ["--topo", "leaf-spine:2x2x4", "--lossless", "--features", "deflection:short=128KB"]
    with Running(emulator.program, options) as up:
        command: list[Word] = [emulator.program, "emulate", "--socket", up.socket, "join", "--"]
        result = run([*command, *mpi.command(8, stream(mpi, 1.5))], env, 60)
        deflected = up.status()["features"]["deflection.packets"]
    problem = None if result.ok and '"wrong": 0' in result.output else result.why()
    problem = problem or (None if deflected else "no packet was deflected")
    tally.add("switches that deflect", problem, result.seconds, f"{deflected} packets deflected", result.output)


# Ranks of even number use the emulator's own socket, the others the forwarded one.
ATTACH = 'case $PMI_RANK in *[02468]) at=$0 ;; *) at=$1 ;; esac; shift; FI_SQUALL_EMULATOR="$at,host=rank" exec "$@"'
# Every machine counts its own monotonic time. The emulator's machine is given another one, if this is root.
OTHER_CLOCK: list[Word] = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", 100_000]


def run_through_ssh(emulator: Emulator, tally: Tally) -> None:
    """Runs jobs with an emulator on another machine, whose socket ssh forwards."""
    mpi = MPIS["mpich"]
    inside = OTHER_CLOCK if os.geteuid() == 0 and run([*OTHER_CLOCK, "true"]).ok else []
    with Running(emulator.program, ["--topo", f"star:{RANKS}"], inside) as up:
        try:
            with Forward(up.socket) as forward:
                emulate: list[Word] = [emulator.program, "emulate", "--socket", forward.socket]
                expect(tally, "an emulator by ssh", run([*emulate, "status"], timeout=20), 0, "up ")
                join: list[Word] = [*emulate, "join", "--", *mpi.command(RANKS, stream(mpi, 1.0))]
                expect_packets(tally, "a job by ssh", run(join, mpi.plain_environment(), 60), up)
                program: list[Word] = ["sh", "-c", ATTACH, up.socket, forward.socket, *stream(mpi, 1.0)]
                both = run(mpi.command(RANKS, program), mpi.env("squall"), 60)
                expect_packets(tally, "a job on two machines", both, up)
        except RuntimeError as error:
            # Root's password is locked on some distributions, and without PAM sshd then refuses a key, too.
            if "account is locked" in str(error):
                print("not run: an emulator on another machine: sshd refuses this user, whose account is locked")
            else:
                tally.add("a socket that ssh forwards", str(error))
            return
        expect(tally, "an ended ssh", run(join, mpi.plain_environment(), 60), NOTHING, "is it running? (squall emulate up)")


def expect_packets(tally: Tally, name: str, result: Result, up: Running) -> None:
    """Checks that a job received the right bytes, and that every host of the emulator has sent many of them."""
    ports = {port["name"]: port["bytes"] for port in up.status()["ports"] if port["name"].startswith("h")}
    problem = None if result.ok and '"wrong": 0' in result.output else result.why()
    if not problem and min(ports.values()) < 1 << 20:
        problem = f"little crossed the emulator: {ports}"
    tally.add(name, problem, result.seconds, output=result.output)


def interrupt_a_job(emulator: Emulator, tally: Tally) -> None:
    """Sends Ctrl-C in the middle of a job: both end, and the record up to then is there."""
    mpi = MPIS["mpich"]
    record = emulator.folder / "interrupted"
    # This suite may run in the background of a shell, whose processes ignore Ctrl-C.
    words: list[Word] = ["env", "--default-signal=INT", *emulator.command(mpi, stream(mpi, 60), ["--record", record], 2)]
    command = [str(word) for word in words]
    begin = time.monotonic()
    process = subprocess.Popen(
        command, env=mpi.plain_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        traces = record / "trace"
        while time.monotonic() < begin + 20:
            time.sleep(0.2)
            if traces.is_dir() and sum(path.stat().st_size > 20_000 for path in traces.iterdir()) == 2:
                break
        process.send_signal(signal.SIGINT)
        code = process.wait(15)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    again, recorded, simulated = emulator.replay(record)
    problem = None if code and recorded and simulated else f"exit status {code}; replay: {again.output[-1500:]}"
    tally.add("Ctrl-C", problem, time.monotonic() - begin)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="impi, mpich or openmpi; all of them otherwise")


def main(args: argparse.Namespace) -> int:
    every = jobs()
    tally = Tally()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(pathlib.Path(folder))
        for name in args.jobs or every:
            mpi, program = every[name]
            outcome, seconds = record_and_replay(emulator, name, mpi, program)
            tally.add(f"{mpi.title}, recorded and replayed", outcome.problem, seconds)
            times = (outcome.recorded, outcome.same, outcome.other)
            rows.append([mpi.title, str(outcome.messages), *(f"{time / 1e3:.0f}" for time in times)])
        if not args.jobs:
            run_failing_jobs(emulator, tally)
            join_jobs(emulator, tally)
            run_on_deflecting_switches(emulator, tally)
            if ssh.is_installed():
                run_through_ssh(emulator, tally)
            else:
                print(f"not run: an emulator on another machine: {ssh.ADVICE}")
            interrupt_a_job(emulator, tally)
    print(f"\n{RANKS} ranks on a leaf-spine with links that fail; from the first message to the last, ms:\n")
    print(table(["job", "messages", "recorded", "simulated", "fat tree, 100 times as fast"], rows))
    return tally.finish()
