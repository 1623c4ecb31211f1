"""One pattern of messages between all ranks, timed from a moment that all know to the last byte's arrival.

    mpiexec -n N python testbed.py PATTERN BYTES

incast        every rank but the first sends it a message
permutation   every rank sends a message to another, and gets one
all-to-all    in N - 1 turns every rank sends to the next, to the one after that, and so on, each turn after its own last

Ranks are processes of one host, whose monotonic clock is the clock of all. Those that send to each other have met before. Every
message is compared. Prints `finish: S`, the seconds until the last rank had everything.
"""

import random
import sys
import time

import numpy
from mpi4py import MPI

# From the agreement on a beginning to the beginning, s.
LEAD = 0.5

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
pattern, size = sys.argv[1], int(sys.argv[2])


def turns():
    """For each turn, to whom each rank sends, and from whom it receives."""
    if pattern == "incast":
        return [([0] if rank else [], [] if rank else list(range(1, ranks)))]
    if pattern == "permutation":
        # A cycle over all ranks: nobody sends to itself.
        order = list(range(ranks))
        random.Random(1).shuffle(order)
        at = order.index(rank)
        return [([order[(at + 1) % ranks]], [order[at - 1]])]
    if pattern == "all-to-all":
        return [([(rank + turn) % ranks], [(rank - turn) % ranks]) for turn in range(1, ranks)]
    sys.exit(f"no pattern is called {pattern}")


def message(source):
    return ((numpy.arange(size, dtype=numpy.uint64) * 2654435761 + source) % 251).astype(numpy.uint8)


def exchange(sending, room, tag):
    """Every turn, one after the other."""
    for turn, (to, sources) in enumerate(plan):
        requests = [comm.Irecv(room[source], source, tag + turn) for source in sources]
        requests += [comm.Isend(sending, peer, tag + turn) for peer in to]
        MPI.Request.Waitall(requests)


plan = turns()
own = message(rank)
room = {source: numpy.zeros(size, dtype=numpy.uint8) for _, sources in plan for source in sources}
exchange(own[:1], {source: buffer[:1] for source, buffer in room.items()}, 0)
comm.Barrier()
begin = comm.bcast(time.monotonic() + LEAD if rank == 0 else None)
time.sleep(max(0.0, begin - time.monotonic()))
exchange(own, room, ranks)
finish = comm.reduce(time.monotonic() - begin, MPI.MAX)
right = comm.allreduce(all(numpy.array_equal(buffer, message(source)) for source, buffer in room.items()), MPI.LAND)
if rank == 0:
    print(f"finish: {finish}" if right else "wrong bytes arrived", flush=True)
if not right:
    comm.Abort(1)
