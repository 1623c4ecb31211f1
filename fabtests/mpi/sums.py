"""The least a job must get right: sums over all ranks, and a megabyte there and back.

Every rank compares what it got with what the others must have sent, so that a rank that talks to itself shows.
"""

import numpy
from mpi4py import MPI

from check import Checks, MIB, numbers, pattern, RANK, SIZE, WORLD


def allreduce(check):
    for count in (1, 100, 10000, MIB // 8):
        total = numpy.empty(count, dtype=numpy.int64)
        WORLD.Allreduce(numbers(count, numpy.int64, RANK), total, MPI.SUM)
        want = sum(numbers(count, numpy.int64, rank) for rank in range(SIZE))
        check.same(total, want, f"the sum of {count} numbers over {SIZE} ranks")


def pingpong(check):
    """Pairs of neighbours, a megabyte each way in turn."""
    peer = RANK ^ 1
    if peer >= SIZE:
        return
    got = numpy.empty(MIB, dtype=numpy.uint8)
    for turn in range(8):
        got.fill(0)
        if RANK < peer:
            WORLD.Send(pattern(MIB, RANK * 100 + turn), peer, turn)
            WORLD.Recv(got, peer, turn)
        else:
            WORLD.Recv(got, peer, turn)
            WORLD.Send(pattern(MIB, RANK * 100 + turn), peer, turn)
        check.same(got, pattern(MIB, peer * 100 + turn), f"turn {turn} from rank {peer}")


Checks("sums").run(allreduce, pingpong)
