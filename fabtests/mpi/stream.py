"""A permutation of large messages: every rank sends to the rank half a ring away, all at once, and checks what it gets.

    mpiexec -n N python stream.py [SECONDS] [BYTES]

N is even. Prints one line, `stream: {json}`: the bytes of all ranks, the seconds, Gb/s in total and of the slowest and fastest
rank, and the longest time that any rank waited for one window of messages.
"""

import json
import sys
import time

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
if size % 2:
    sys.exit("stream: an even number of ranks is needed")
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
length = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 20
WINDOW = 4

peer = (rank + size // 2) % size


def pattern(sender):
    return ((numpy.arange(length, dtype=numpy.uint64) * 2654435761 + sender) % 251).astype(numpy.uint8)


mine, expected = pattern(rank), pattern(peer)
room = [numpy.empty(length, dtype=numpy.uint8) for _ in range(WINDOW)]

comm.Barrier()
begin = previous = time.perf_counter()
rounds = wrong = 0
longest = 0.0
more = True
while more:
    for buffer in room:
        buffer[::509] = 255
    requests = [comm.Irecv(buffer, peer, 1) for buffer in room] + [comm.Isend(mine, peer, 1) for _ in room]
    MPI.Request.Waitall(requests)
    # Every byte of one buffer a round, a sample of the others.
    wrong += not numpy.array_equal(room[rounds % WINDOW], expected)
    wrong += sum(not numpy.array_equal(buffer[::509], expected[::509]) for buffer in room)
    rounds += 1
    now = time.perf_counter()
    longest, previous = max(longest, now - previous), now
    # The pairs stop together: the lower rank says when.
    if rank < peer:
        more = now - begin < seconds
        comm.send(more, peer, 2)
    else:
        more = comm.recv(source=peer, tag=2)
took = time.perf_counter() - begin
done = comm.gather((rounds * WINDOW * length, took, wrong, longest), 0)
if rank == 0:
    rates = [8e-9 * nbytes / t for nbytes, t, *_ in done]
    bad = sum(d[2] for d in done)
    print(
        "stream: "
        + json.dumps(
            {
                "bytes": sum(d[0] for d in done),
                "seconds": max(d[1] for d in done),
                "total_gbps": sum(rates),
                "slowest_gbps": min(rates),
                "fastest_gbps": max(rates),
                "longest_s": max(d[3] for d in done),
                "wrong": bad,
            }
        ),
        flush=True,
    )
    if bad:
        comm.Abort(1)
