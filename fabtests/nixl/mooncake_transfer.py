"""Moves host memory between two of Mooncake's transfer engines by its protocol `efa`.

    python mooncake_transfer.py pair contents               both engines here, or on the hosts of SQUALL_TEST_HOSTS
    python mooncake_transfer.py target PORT                 one engine, which waits for the other
    python mooncake_transfer.py initiator HOST:PORT contents

Run by `ci/run suite nixl`, which preloads verbs.c: the engine asks for a verbs device and for libfabric's provider `efa`.
The initiator writes to the target's memory and reads from it, and both compare every byte.
"""

import sys

import numpy
from mooncake.engine import TransferEngine
from pairs import accept, connect, expect, pair, pattern, report, WrongResultError

LARGEST = 64 << 20
SIZES = tuple(1 << bits for bits in range(10, 27, 2))
PROTOCOL = "efa"
# Name of the device, as in verbs.c.
DEVICE = "rdmap0"


class Engine:
    """A transfer engine with registered memory, connected to the engine of the other process."""

    def __init__(self, control):
        self.engine = TransferEngine()
        status = self.engine.initialize(control.address, "P2PHANDSHAKE", PROTOCOL, DEVICE)
        expect(status == 0, f"initialize returned {status}, expected 0")
        self.memory = numpy.zeros(LARGEST, numpy.uint8)
        self._address = self.memory.ctypes.data
        status = self.engine.register_memory(self._address, LARGEST)
        expect(status == 0, f"register_memory returned {status}, expected 0")
        control.send(name=f"{control.address}:{self.engine.get_rpc_port()}", address=self._address)
        other = control.receive()
        expect(other, "the other process ended at its start: its output tells why")
        self._peer, self._remote = other["name"], other["address"]

    def write(self, length):
        status = self.engine.transfer_sync_write(self._peer, self._address, self._remote, length)
        expect(status == 0, f"a WRITE of {length} bytes returned {status}, expected 0")

    def read(self, length):
        status = self.engine.transfer_sync_read(self._peer, self._address, self._remote, length)
        expect(status == 0, f"a READ of {length} bytes returned {status}, expected 0")

    def close(self):
        self.engine.unregister_memory(self._address)


def serve(control):
    """Serves the requests of the initiator until it ends."""
    engine = Engine(control)
    while question := control.receive():
        match question["do"]:
            case "fill":
                engine.memory[: question["length"]] = pattern(question["length"], question["seed"])
                control.send(done=True)
            case "check":
                expected = pattern(question["length"], question["seed"])
                control.send(right=numpy.array_equal(engine.memory[: question["length"]], expected))
            case "end":
                engine.close()
                control.send(done=True)
                return


def contents(engine, control):
    """Writes and reads data of each size, and compares every byte."""
    for number, length in enumerate(SIZES):
        engine.memory[:length] = pattern(length, 2 * number)
        engine.write(length)
        answer = control.ask(do="check", length=length, seed=2 * number)
        expect(answer["right"], f"the {length} bytes at the target are not those of the WRITE")
        control.ask(do="fill", length=length, seed=2 * number + 1)
        engine.memory[:length] = 0
        engine.read(length)
        right = numpy.array_equal(engine.memory[:length], pattern(length, 2 * number + 1))
        expect(right, f"the {length} bytes of a READ are not those of the target")
    return 2 * len(SIZES)


def initiate(host, port):
    """Runs the test as the initiator. Returns the exit status."""
    control = connect(host, port)
    try:
        engine = Engine(control)
        passed = contents(engine, control)
    except WrongResultError as error:
        report(f"contents: 0 passed, 1 failed: {error}")
        return 1
    report(f"contents: {passed} passed, 0 failed")
    control.ask(do="end")
    engine.close()
    return 0


def main(words):
    match words:
        case ["pair", "contents"]:
            return pair(__file__, "contents")
        case ["target", port]:
            serve(accept(int(port)))
        case ["initiator", target, "contents"]:
            host, _, port = target.partition(":")
            return initiate(host, int(port))
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
