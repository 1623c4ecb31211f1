"""A long message whose bytes wait at their sender, and behind it many short messages whose receives are not posted yet.

    mpiexec -n 2 python unexpected.py [MESSAGES [BYTES [FIRST [DELAY]]]]

Rank 0 sends a message of FIRST bytes, then MESSAGES of BYTES each. Rank 1 waits for DELAY seconds, receives the long message, and
only then begins with the short ones. All contents are compared.
"""

import sys
import time

import numpy
from mpi4py import MPI

from check import Checks, pattern, RANK, WORLD


def argument(default):
    """Returns the next positional argument. `Checks` reads the rest of the command line."""
    return type(default)(sys.argv.pop(1)) if len(sys.argv) > 1 else default


MESSAGES, BYTES, FIRST, DELAY = argument(20), argument(100), argument(400_000), argument(0.5)
LONG, SHORT = 1, 2
# Requests that the sender waits for at once.
WINDOW = 1000
# Short messages have one of so many contents, in turn.
CONTENTS = [pattern(BYTES, 1 + number) for number in range(16)]


def unexpected(check):
    if RANK == 0:
        long = WORLD.Isend(pattern(FIRST, 0), 1, LONG)
        for begin in range(0, MESSAGES, WINDOW):
            numbers = range(begin, min(begin + WINDOW, MESSAGES))
            MPI.Request.Waitall([WORLD.Isend(CONTENTS[number % len(CONTENTS)], 1, SHORT) for number in numbers])
        long.Wait()
    elif RANK == 1:
        long, short = numpy.empty(FIRST, dtype=numpy.uint8), numpy.empty(BYTES, dtype=numpy.uint8)
        time.sleep(DELAY)
        WORLD.Recv(long, 0, LONG)
        check.same(long, pattern(FIRST, 0), "the long message")
        for number in range(MESSAGES):
            short[:] = 0
            WORLD.Recv(short, 0, SHORT)
            check.same(short, CONTENTS[number % len(CONTENTS)], f"short message {number}")


Checks("unexpected").run(unexpected)
