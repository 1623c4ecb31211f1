"""Moves host memory between two NIXL agents over the backend LIBFABRIC, as the key-value cache of a model moves from the host
that reads a prompt to the one that answers it.

    python transfer.py list                              the tests
    python transfer.py pair TEST                         both agents here, or on the hosts of SQUALL_TEST_HOSTS
    python transfer.py target [PORT]                     one agent, which waits for the other
    python transfer.py initiator HOST[:PORT] TEST ..     the other one

The initiator writes to the target's memory and reads from it. It prints `TEST: N passed, 0 failed`, or what is wrong, and
after `speed` a line of JSON: for each size the bytes, and the seconds of a WRITE and of a READ.
"""

import base64
import json
import os
import signal
import sys
import time

import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config
from pairs import accept, connect, expect, pair, PATIENCE, pattern, report, WrongResultError

PORT = 5791
LARGEST = 64 << 20
SIZES = tuple(1 << bits for bits in range(10, 27, 2))
# Seconds for which `speed` repeats each operation.
SPAN = 0.3


class Agent:
    """An agent with registered memory. After `meet` it has the description of the other process' memory."""

    def __init__(self, name):
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        self.agent.create_backend("LIBFABRIC")
        self.memory = numpy.zeros(LARGEST, numpy.uint8)
        self._address = self.memory.ctypes.data
        self._registered = self.agent.register_memory([(self._address, LARGEST, 0, "")], "DRAM")

    def meet(self, control):
        metadata = base64.b64encode(self.agent.get_agent_metadata()).decode()
        control.send(metadata=metadata, address=self._address)
        other = control.receive()
        expect(other, "the other process ended at its start: its output tells why")
        self.peer = self.agent.add_remote_agent(base64.b64decode(other["metadata"]))
        self._remote = other["address"]

    def start(self, operation, pieces, notification=b""):
        """Prepares the transfer of (offset here, offset there, length) for each piece. Returns its handle."""
        here = [(self._address + mine, length, 0) for mine, _, length in pieces]
        there = [(self._remote + theirs, length, 0) for _, theirs, length in pieces]
        descriptors = [self.agent.get_xfer_descs(list_, "DRAM") for list_ in (here, there)]
        return self.agent.initialize_xfer(operation, *descriptors, self.peer, notification)

    def finish(self, handle, what):
        """Runs a prepared transfer to its end."""
        state, until = self.agent.transfer(handle), time.monotonic() + PATIENCE
        while state == "PROC" and time.monotonic() < until:
            state = self.agent.check_xfer_state(handle)
        expect(state == "DONE", f"{what} is in state {state} after {PATIENCE:.0f} s at most; expected DONE")

    def move(self, operation, pieces, notification=b""):
        handle = self.start(operation, pieces, notification)
        self.finish(handle, f"{operation} of {sum(piece[2] for piece in pieces)} bytes in {len(pieces)} pieces")
        self.agent.release_xfer_handle(handle)

    def notifications(self, count):
        """Waits for so many notifications and returns them."""
        found: list[bytes] = []
        until = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < until:
            for texts in self.agent.get_new_notifs().values():
                found += texts
        return [text.decode() for text in found]

    def close(self):
        self.agent.deregister_memory(self._registered)
        self.agent.remove_remote_agent(self.peer)


def serve(control):
    """Serves the requests of the initiator until it ends."""
    agent = Agent("target")
    agent.meet(control)
    while question := control.receive():
        length = question.get("length", 0)
        match question["do"]:
            case "fill":
                agent.memory[:length] = pattern(length, question["seed"])
                control.send(done=True)
            case "check":
                # The notification comes after the contents.
                found = agent.notifications(question["notifications"])
                right = numpy.array_equal(agent.memory[:length], pattern(length, question.get("seed", 0)))
                control.send(notifications=found, right=right)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "end":
                agent.close()
                control.send(done=True)
                return


def check_target(control, length, seed, notifications):
    answer = control.ask(do="check", length=length, seed=seed, notifications=len(notifications))
    expect(answer["notifications"] == notifications, f"the target was notified of {answer['notifications']}")
    expect(answer["right"], f"the {length} bytes at the target are not those of the WRITE")


def contents(agent, control):
    """Writes with a notification, and reads, data of each size, and compares every byte."""
    for number, length in enumerate(SIZES):
        agent.memory[:length] = pattern(length, 2 * number)
        agent.move("WRITE", [(0, 0, length)], b"written %d" % length)
        check_target(control, length, 2 * number, [f"written {length}"])
        control.ask(do="fill", length=length, seed=2 * number + 1)
        agent.memory[:length] = 0
        agent.move("READ", [(0, 0, length)])
        right = numpy.array_equal(agent.memory[:length], pattern(length, 2 * number + 1))
        expect(right, f"the {length} bytes of a READ are not those of the target")
    return 2 * len(SIZES)


def descriptors(agent, control):
    """One transfer of 256 pieces that lie apart, in another order than in memory, as the blocks of a cache do."""
    count, length = 256, 16 << 10
    order = [97 * piece % count for piece in range(count)]
    pieces = [(piece * length, piece * length, length) for piece in order]
    agent.memory[: count * length] = pattern(count * length, 5)
    agent.move("WRITE", pieces, b"pieces")
    check_target(control, count * length, 5, ["pieces"])
    agent.memory[: count * length] = 0
    agent.move("READ", pieces)
    right = numpy.array_equal(agent.memory[: count * length], pattern(count * length, 5))
    expect(right, "a READ of 256 pieces differs from the target's memory")
    return 2


def notifications(agent, control):
    """Notifications without a transfer: each arrives once."""
    sent = [f"notification {number}" for number in range(200)]
    for text in sent:
        agent.agent.send_notif(agent.peer, text.encode())
    answer = control.ask(do="check", notifications=len(sent))
    expect(sorted(answer["notifications"]) == sorted(sent), f"{len(answer['notifications'])} of {len(sent)} arrived")
    return 1


def killed(agent, control):
    """Transfers to a target that was killed end with an error."""
    agent.memory[:] = 7
    agent.move("WRITE", [(0, 0, LARGEST)])
    control.send(do="die")
    expect(control.receive() is None, "the target answered instead of ending")
    begun = time.monotonic()
    handle = agent.start("WRITE", [(0, 0, 1 << 20)])
    try:
        # A transfer may complete at its start when a kernel or a memory has the bytes.
        while time.monotonic() < begun + PATIENCE:
            agent.finish(handle, "a WRITE to the killed target")
    except WrongResultError as error:
        expect("in state ERR" in str(error), f"no error was reported: {error}")
    except Exception as error:
        report(f"the WRITE ends with {type(error).__name__}: {error}")
    else:
        raise WrongResultError(f"no WRITE failed in {PATIENCE:.0f} s")
    report(f"the error came after {time.monotonic() - begun:.1f} s")
    return 1


def speed(agent, _control):
    """The time of a WRITE and of a READ of each size, one after another."""
    rows = []
    for length in SIZES:
        times = []
        for operation in ("WRITE", "READ"):
            handle = agent.start(operation, [(0, 0, length)])
            agent.finish(handle, "the first one")
            count, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < SPAN:
                agent.finish(handle, f"{operation} of {length} bytes")
                count += 1
            times.append((time.perf_counter() - begun) / count)
            agent.agent.release_xfer_handle(handle)
        rows.append((length, *times))
        report(f"{length:9} bytes: " + ", ".join(f"{time_ * 1e6:.1f} us" for time_ in times))
    report(f"figures: {json.dumps(rows)}")
    return len(rows)


TESTS = {test.__name__: test for test in (contents, descriptors, notifications, killed, speed)}


def initiate(host, port, tests):
    """Runs tests as the initiator. Returns the exit status."""
    control = connect(host, port)
    agent = Agent("initiator")
    agent.meet(control)
    for test in tests:
        try:
            passed = TESTS[test](agent, control)
        except WrongResultError as error:
            report(f"{test}: 0 passed, 1 failed: {error}")
            return 1
        report(f"{test}: {passed} passed, 0 failed")
    if "killed" not in tests:
        control.ask(do="end")
        agent.close()
    return 0


def main(words):
    match words:
        case ["list"]:
            print(*TESTS, sep="\n")
        case ["pair", test] if test in TESTS:
            return pair(__file__, test, -signal.SIGKILL if test == "killed" else 0)
        case ["target", *port] if len(port) < 2:
            serve(accept(int(*port) if port else PORT))
        case ["initiator", host, *tests] if tests and all(test in TESTS for test in tests):
            name, _, port = host.partition(":")
            return initiate(name, int(port or PORT), tests)
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
