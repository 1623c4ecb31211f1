"""Count the instructions of a message in user space, at its sender and at its receiver, and of a further packet of it.

callgrind counts the instructions of one side from fi_tsend until the message has arrived and its sender knows
(fabtests/bench/send_path.c): everything above the system calls, libfabric and libc included. The copying of bytes by libc is
left out, because callgrind takes each byte for an instruction. An empty poll is a fi_cq_read that finds nothing. Both sides are in one process, on the loopback interface.

A message is in one piece, or in --pieces of an iovec (fi_tsendv). The cost of a further packet is the difference between one
size and the next, divided by the packets that are added. A busy machine does not disturb the counts, but trains end
elsewhere in every run, which changes them by a few per cent.
"""

import argparse
import pathlib
import re
import tempfile

from squall_ci import callgrind
from squall_ci.environment import provider_run
from squall_ci.paths import FABTESTS, need, TARGET
from squall_ci.process import run
from squall_ci.programs import compile_c
from squall_ci.tally import table

ROUNDS = 20
SIZES = (64, 4096, 16384, 65536, 262144)
MTUS = (1472, 8972)
SIDES = ("sender", "receiver")
# A minimum round trip that hides the slowness of callgrind. Otherwise windows shrink, and messages leave in pieces.
PATIENCE = "200ms"
# The sources of memcpy and memmove.
COPIES = re.compile(r"/mem(move|cpy)[^/]*$")
# Bytes of headers before the payload of a packet.
HEADERS = 56


def packets(size: int, mtu: int) -> int:
    """Returns the number of packets of a message. Payloads are whole cache lines."""
    return max(1, -(-size // ((mtu - HEADERS) // 64 * 64)))


def measure(program: pathlib.Path, side: str, size: int, mtu: int, pieces: int) -> float:
    """Returns the instructions of one side for a message."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind.out"
        counter = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}"]
        env = provider_run("squall") | {"FI_SQUALL_MTU": str(mtu), "FI_SQUALL_MIN_RTT": PATIENCE}
        env.pop("FI_PROVIDER")
        result = run([*counter, program, "squall", side, ROUNDS, size, pieces], env, 300)
        need(result.ok, f"{side}, {size} bytes: {result.why()}\n{result.output}")
        own = callgrind.read(out).own
        return sum(cost for file, cost in own.items() if not COPIES.search(file)) / ROUNDS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pieces", type=int, default=1, help="of user memory that a message is in (at most 4)")


def main(args: argparse.Namespace) -> int:
    program = compile_c([FABTESTS / "bench" / "send_path.c"], TARGET / "bench" / "send_path")
    print(f"An empty poll: {measure(program, 'poll', SIZES[0], MTUS[0], 1):.0f}\n", flush=True)
    for mtu in MTUS:
        rows = []
        before: dict[str, tuple[float, int]] = {}
        for size in SIZES:
            count = packets(size, mtu)
            row = [str(size), str(count)]
            for side in SIDES:
                total = measure(program, side, size, mtu, args.pieces)
                former, fewer = before.get(side, (0.0, count))
                further = f"{(total - former) / (count - fewer):.0f}" if count > fewer else ""
                row += [f"{total:.0f}", further]
                before[side] = (total, count)
            rows.append(row)
        print(f"## packets of {mtu} bytes\n")
        print(table(["bytes", "packets", "sender", "a further packet", "receiver", "a further packet"], rows), flush=True)
    return 0
