"""Functions that the programs here share: two processes, one of which moves memory of the other and compares it."""

import json
import os
import socket
import subprocess
import sys
import time

import numpy

# Seconds until an operation has failed. SQUALL_TEST_DEADLINE ends the whole before.
PATIENCE = float(os.environ.get("SQUALL_TEST_DEADLINE", "60")) / 2
# The address of the target where both processes are on one host.
LOCAL = "127.0.0.1"


def report(text):
    """Prints a line in one piece: both processes write to the same file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class WrongResultError(Exception):
    """A failed test. The text has the reason."""


def expect(condition, reason):
    if not condition:
        raise WrongResultError(reason)


def pattern(length, seed):
    """Returns test data that follow from the offset and the seed."""
    words = numpy.arange(length // 8, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    return (words + numpy.uint64(seed)).view(numpy.uint8)


class Control:
    """The connection over which the two processes agree: a line of JSON for each question and answer."""

    def __init__(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The address of this host, by which the other process reaches it.
        self.address = connection.getsockname()[0]
        self._file = connection.makefile("rw", encoding="ascii")

    def send(self, **message):
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def receive(self):
        """Returns the next message; None if the other process has ended."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def ask(self, **question):
        self.send(**question)
        answer = self.receive()
        expect(answer is not None, f"the target ended before it answered {question['do']}")
        return answer


def connect(host, port):
    """Connects to the target, which may begin a little later. Exits with advice if it does not."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return Control(socket.create_connection((host, port)))
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"no target at {host}, port {port}: {error}; start `{sys.argv[0]} target {port}` there")
            time.sleep(0.1)


def accept(port):
    """Accepts the connection of the initiator."""
    with socket.create_server(("", port)) as listener:
        report(f"waiting for an initiator at port {port}")
        return Control(listener.accept()[0])


def pair(program, test, ending=0):
    """Runs both processes of a test, each on a host of SQUALL_TEST_HOSTS if that is set, and expects that the target ends with
    the status `ending`. Returns the exit status."""
    with socket.create_server((LOCAL, 0)) as free:
        port = free.getsockname()[1]
    hosts = [os.path.basename(path) for path in os.environ.get("SQUALL_TEST_HOSTS", "").split(",") if path]
    inside = [["ip", "netns", "exec", host] for host in hosts] or [[], []]
    address = os.environ.get("SQUALL_TEST_TARGET", LOCAL)
    words = (["target", str(port)], ["initiator", f"{address}:{port}", test])
    target, initiator = (subprocess.Popen([*before, sys.executable, program, *role]) for before, role in zip(inside, words))
    status = initiator.wait()
    if status:
        target.kill()
    ended = target.wait(PATIENCE)
    if not status and ended != ending:
        report(f"the target ended with {ended}, expected {ending}")
        status = 1
    return status
