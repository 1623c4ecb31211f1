"""`squall emulate up` for the length of a `with` statement."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from squall_ci.paths import die
from squall_ci.process import Word

# The output of `squall emulate status`.
Status: TypeAlias = dict[str, Any]


class Emulator:
    """A running emulator. `inside` is the command before it that runs it on another host."""

    def __init__(self, program: pathlib.Path, options: Sequence[str], inside: Sequence[Word] = ()) -> None:
        self.program = program
        self.options = options
        self.inside = inside

    def __enter__(self) -> "Emulator":
        self._directory = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self._directory.name, "emulator")
        up: list[Word] = [*self.inside, self.program, "emulate", "up", "--socket", self.socket, "--quiet", *self.options]
        self._process = subprocess.Popen([str(word) for word in up])
        until = time.monotonic() + 10
        while not os.path.exists(self.socket):
            if self._process.poll() is not None or time.monotonic() > until:
                self._process.kill()
                die("squall emulate up did not come up", 1)
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.ask("down")
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    def kill(self) -> None:
        """Ends the relay without any notice to its endpoints."""
        self._process.kill()

    def attach(self) -> list[Word]:
        """Returns the command before a rank's program that makes rank n of MPICH host n."""
        return ["sh", "-c", 'FI_SQUALL_EMULATOR="$0,host=$PMI_RANK" exec "$@"', self.socket]

    def ask(self, *words: str) -> str:
        return subprocess.run(
            [self.program, "emulate", "--socket", self.socket, *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout

    def status(self) -> Status:
        status: Status = json.loads(self.ask("status", "--format", "json"))
        return status
