"""Short-lived jobs that one rank spawns, one after another: each does a little work with its parent, and ends.

    mpiexec -n 1 python spawns.py [ROUNDS]

Children come to the ports that those before them have left. The parent's endpoint is the same all the time.
"""

import sys

import numpy
from mpi4py import MPI

from check import Checks, pattern

CHILDREN, LENGTH = 2, 200_000
ROUNDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 20


def child(parent):
    """Exchanges with the parent, sums with it and the siblings, and leaves."""
    whole = parent.Merge(high=True)
    got = numpy.empty(LENGTH, dtype=numpy.uint8)
    whole.Recv(got, 0, 1)
    whole.Send(got[::-1].copy(), 0, 2)
    whole.allreduce(whole.rank)
    whole.Free()
    parent.Disconnect()


def spawns(check):
    for number in range(ROUNDS):
        inter = MPI.COMM_SELF.Spawn(sys.executable, args=[__file__], maxprocs=CHILDREN)
        whole = inter.Merge(high=False)
        got = numpy.empty(LENGTH, dtype=numpy.uint8)
        for rank in range(1, CHILDREN + 1):
            sent = pattern(LENGTH, number * 10 + rank)
            whole.Send(sent, rank, 1)
            whole.Recv(got, rank, 2)
            check.same(got[::-1], sent, f"what child {rank} of round {number} sent back")
        check.that(whole.allreduce(0) == sum(range(CHILDREN + 1)), f"the sum of round {number}")
        whole.Free()
        inter.Disconnect()


parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    Checks("spawns").run(spawns)
else:
    child(parent)
