"""Runs commands under a hard deadline, and ends everything that they started."""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeAlias

from squall_ci.environment import clean_environment
from squall_ci.paths import ROOT

# Marks every process of a run in its environment, so that none survives it.
RUN_MARK = "SQUALL_CI_RUN"
# Seconds between signals: launchers need time to end their ranks and to delete namespaces, the kernel to end processes.
GRACE = ((signal.SIGTERM, 4.0), (signal.SIGKILL, 2.0))

# A word of a command line.
Word: TypeAlias = str | os.PathLike[str] | int | float


class Result:
    """The end of a command. `code` is None if the deadline ended it."""

    def __init__(self, code: int | None, output: str, seconds: float) -> None:
        self.code = code
        self.output = output
        self.seconds = seconds

    @property
    def ok(self) -> bool:
        return self.code == 0

    def why(self) -> str:
        """Returns the ending in words, for a failure line."""
        if self.code is None:
            return f"still running after {self.seconds:.0f} s"
        if self.code < 0:
            return f"killed by signal {-self.code}"
        return f"exit status {self.code}"


def leave_on_signals() -> None:
    """Makes SIGTERM and SIGHUP exit as Ctrl-C does, so that processes, namespaces and directories are cleaned up."""

    def leave(number: int, _frame: object) -> NoReturn:
        # A second signal must not interrupt the clean-up that the first has started.
        signal.signal(number, lambda *_: None)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def _become_reaper() -> None:
    # Launchers double-fork; as sub-reaper we inherit what they leave behind and can end it.
    pr_set_child_subreaper = 36
    try:
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    except OSError:
        pass


def _marked(mark: str) -> set[int]:
    """Returns the ids of the processes whose environment carries `mark` or a mark that begins with it."""
    needle = f"{RUN_MARK}={mark}".encode()
    found = set()
    for pid in _processes():
        try:
            environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        # A process has no environment in the middle of an exec. An orphan of the run is a child of ours by then.
        until = time.monotonic() + 1
        while not environ and time.monotonic() < until and _orphan(pid):
            time.sleep(0.001)
            try:
                environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                break
        if any(entry.startswith(needle) for entry in environ.split(b"\0")):
            found.add(pid)
    return found


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[str, int, int] | None:
    """Returns state, parent and session of a process, if it exists."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The fields come after the name, which may hold anything.
    state, parent, _, session = stat.rpartition(")")[2].split()[:4]
    return state, int(parent), int(session)


def _orphan(pid: int) -> bool:
    """Returns whether a process is a living child of ours."""
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z" and stat[1] == os.getpid()


def _reap(session: int, known: set[int]) -> None:
    """Waits for dead orphans of the run. Other children of ours have their own waiters."""
    for pid in _processes():
        stat = _stat(pid)
        if stat and stat[0] == "Z" and stat[1] == os.getpid() and (pid in known or stat[2] == session):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends the run: first by SIGTERM, so that launchers end their ranks, then by SIGKILL."""
    known: set[int] = set()
    for number, grace in GRACE:
        ids = _marked(mark)
        if process.poll() is None:
            ids.add(process.pid)
        ids.discard(os.getpid())
        if not ids:
            break
        known |= ids
        for pid in ids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        until = time.monotonic() + grace
        while time.monotonic() < until and (process.poll() is None or _marked(mark)):
            time.sleep(0.05)
    process.poll()
    _reap(process.pid, known - {process.pid})


def run(
    command: Sequence[Word],
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    *,
    log: pathlib.Path | None = None,
    terminal: bool = False,
) -> Result:
    """Runs `command` in the root of the checkout, and ends it and all that it started after `timeout` seconds.

    The output is standard output and error; with `log` it is added to that file, where one can follow it.
    With `terminal` the command may ask at the caller's terminal, for a password perhaps; otherwise it has none.
    """
    _become_reaper()
    env = dict(clean_environment() if env is None else env)
    # A run inside of another carries both marks: the end of the outer one reaches it.
    mark = env[RUN_MARK] = f"{os.environ.get(RUN_MARK, '')}/{uuid.uuid4().hex}"
    started = time.monotonic()
    with open(log, "a+b") if log else tempfile.TemporaryFile() as out:
        begin = out.seek(0, os.SEEK_END)
        try:
            process = subprocess.Popen(
                [str(word) for word in command],
                env=env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=not terminal,
            )
        except OSError as error:
            text = f"{command[0]}: {error.strerror}\n"
            out.write(text.encode())
            return Result(127, text, 0.0)
        code: int | None = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process, mark)
        out.seek(begin)
        output = out.read().decode(errors="replace")
    return Result(code, output, time.monotonic() - started)


@contextmanager
def computing(processes: int) -> Iterator[None]:
    """Runs processes that compute, beside what the caller does."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
