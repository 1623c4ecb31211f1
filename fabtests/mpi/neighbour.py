"""One rank exchanges short messages with a healthy rank while its long messages to another rank meet trouble.

    mpiexec -n 3 python neighbour.py [SECONDS]

Rank 0 plays ping-pong with rank 2, and meanwhile sends rank 1 a long message every half second, as soon as the last one is
complete. All contents are compared. Prints one line before the usual summary, `neighbour: {json}`: the ping-pongs within
SECONDS, the seconds that the longest of them took, and the long messages that arrived.
"""

import json
import sys
import time

import numpy
from mpi4py import MPI

from check import Checks, MIB, pattern, RANK, SIZE, WORLD

# The rest of the command line is `Checks`'s.
SECONDS = float(sys.argv.pop(1)) if len(sys.argv) > 1 else 6.0
SHORT = 100
PAUSE = 0.5
PING, LONG = 1, 2
ROOM = numpy.empty(MIB, dtype=numpy.uint8)


def ping_pong(check):
    """Runs rank 0. Both other ranks go on until they get an empty message."""
    begin = time.monotonic()
    pings, longest, longs, request, last = 0, 0.0, 0, MPI.REQUEST_NULL, -PAUSE
    while (now := time.monotonic() - begin) < SECONDS:
        if request.Test() and now - last >= PAUSE:
            request, last = WORLD.Isend(pattern(MIB, longs), 1, LONG), now
            longs += 1
        WORLD.Send(pattern(SHORT, pings), 2, PING)
        WORLD.Recv(ROOM[:SHORT], 2, PING)
        check.same(ROOM[:SHORT], pattern(SHORT, pings + 1), f"the answer to ping {pings}")
        longest = max(longest, time.monotonic() - begin - now)
        pings += 1
    request.Wait()
    for peer, tag in ((1, LONG), (2, PING)):
        WORLD.Send(ROOM[:0], peer, tag)
    told = {"pings": pings, "longest_s": round(longest, 2), "long_messages": longs}
    print("neighbour: " + json.dumps(told), flush=True)


def receive_long(check):
    """Runs rank 1, which looks for its messages from time to time only, to leave the processors to the others."""
    status, number = MPI.Status(), 0
    while True:
        request = WORLD.Irecv(ROOM, 0, LONG)
        while not request.Test(status):
            time.sleep(0.01)
        if not status.Get_count():
            return
        check.same(ROOM, pattern(MIB, number), f"long message {number}")
        number += 1


def answer(check):
    """Runs rank 2."""
    status, number = MPI.Status(), 0
    while True:
        WORLD.Recv(ROOM, 0, PING, status)
        if not status.Get_count():
            return
        check.same(ROOM[:SHORT], pattern(SHORT, number), f"ping {number}")
        number += 1
        WORLD.Send(pattern(SHORT, number), 0, PING)


def neighbour(check):
    if SIZE != 3:
        raise AssertionError(f"{SIZE} ranks run this program, which is for 3")
    (ping_pong, receive_long, answer)[RANK](check)


Checks("neighbour").run(neighbour)
