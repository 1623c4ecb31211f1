"""A Unix socket of another machine that ssh forwards. A server of ssh on the loopback interface stands for that machine."""

import contextlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

from squall_ci.process import Word

# Seconds that the server, and then the client, may take to come up, and that they may take to end.
PATIENCE, GRACE = 15.0, 5.0
# What a user without the programs is told.
ADVICE = "ci/run setup ssh installs ssh and sshd"
# The name of the other machine in the client's configuration.
MACHINE = "machine"

# The server admits one key. It has no passwords, no PAM, no terminals, and reads no file of the user's. Without
# AllowTcpForwarding it would refuse sockets, too.
SERVER = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PermitTTY no
PermitUserRC no
AllowTcpForwarding local
AllowStreamLocalForwarding yes
"""
# The client offers that key alone, and knows that server alone.
CLIENT = """\
Host {machine}
HostName 127.0.0.1
Port {port}
User {user}
IdentityFile {folder}/user
IdentitiesOnly yes
IdentityAgent none
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
BatchMode yes
ConnectTimeout 10
"""


def server_program() -> str | None:
    """Returns the path of sshd, which users other than root rarely have on their path."""
    return shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


def is_installed() -> bool:
    """Returns whether the programs are there."""
    return bool(server_program() and shutil.which("ssh") and shutil.which("ssh-keygen"))


class Forward:
    """`ssh -N -L` of a Unix socket for the length of a `with` statement. Keys and configurations are temporary.

    `socket` is the path on this side. `RuntimeError` reports a server or a client that does not come up.
    """

    def __init__(self, remote: Word) -> None:
        self._remote = remote
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> "Forward":
        with contextlib.ExitStack() as stack:
            self._folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.socket = self._folder / "emulator"
            self._configure()
            if directory := self._missing_directory():
                directory.mkdir(exist_ok=True)
                stack.callback(_remove, directory)
            stack.enter_context(self._serve())
            stack.enter_context(self._forward())
            # From here on, `__exit__` cleans up.
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _configure(self) -> None:
        for key in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(self._folder / key)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        user = pwd.getpwuid(os.geteuid()).pw_name
        for name, text in (("sshd_config", SERVER), ("ssh_config", CLIENT)):
            (self._folder / name).write_text(text.format(port=port, user=user, folder=self._folder, machine=MACHINE))
        (self._folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(self._folder / 'host.pub').read_text()}")

    def _server(self, *words: str) -> list[str]:
        return [server_program() or "sshd", "-f", str(self._folder / "sshd_config"), *words]

    def _missing_directory(self) -> pathlib.Path | None:
        """Returns the directory that the service of a distribution makes for sshd, if root's sshd needs it and it is missing."""
        tried = subprocess.run(self._server("-t"), capture_output=True, text=True, timeout=PATIENCE)
        missing = re.search(r"Missing privilege separation directory: (\S+)", tried.stderr)
        return pathlib.Path(missing[1]) if missing else None

    @contextlib.contextmanager
    def _serve(self) -> Iterator[None]:
        log = self._folder / "sshd.log"
        log.touch()
        with _running(self._server("-D", "-E", str(log)), log) as server:
            _wait_until("sshd", server, log, lambda: "Server listening" in log.read_text())
            try:
                yield
            finally:
                # The client has ended, and its session ends by itself. The server would not wait for it.
                with contextlib.suppress(OSError):
                    _end_children(server.pid)

    @contextlib.contextmanager
    def _forward(self) -> Iterator[None]:
        log = self._folder / "ssh.log"
        # The options are those of docs/emulator.md, in the foreground.
        options = ["-N", "-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindUnlink=yes"]
        route = ["-L", f"{self.socket}:{self._remote}", MACHINE]
        command = ["ssh", "-F", str(self._folder / "ssh_config"), *options, *route]
        with _running(command, log) as client:
            _wait_until("ssh", client, log, self.socket.exists)
            yield


def _remove(directory: pathlib.Path) -> None:
    # Another run may have removed it.
    with contextlib.suppress(OSError):
        directory.rmdir()


@contextlib.contextmanager
def _running(command: list[str], log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program whose output goes to `log`, and ends it."""
    with open(log, "ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_children(parent: int) -> None:
    """Waits until the children of a process have ended, and kills those that have not after a while."""
    children = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
    until = time.monotonic() + GRACE
    while children.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    for child in children.read_text().split():
        os.kill(int(child), signal.SIGKILL)


def _wait_until(name: str, process: subprocess.Popen[bytes], log: pathlib.Path, is_up: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_up():
        ended = process.poll()
        if ended is not None or time.monotonic() > until:
            why = f"did not come up within {PATIENCE:.0f} s" if ended is None else f"ended with exit status {ended}"
            logs = "".join(path.read_text(errors="replace")[-1500:] for path in log.parent.glob("*.log"))
            raise RuntimeError(f"{name} {why}: {logs}")
        time.sleep(0.02)
