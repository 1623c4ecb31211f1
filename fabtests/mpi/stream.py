"""A permutation of large messages: every rank sends to the rank half a ring away, all at once, and checks what it gets.

    mpiexec -n N python stream.py [SECONDS] [BYTES]

Prints one line: `stream: {json}` with the bytes of all ranks, the seconds, Gb/s in total, and of the slowest and fastest rank.
"""

import json
import sys
import time

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
length = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 20
WINDOW = 4

there, back = (rank + size // 2) % size, (rank - size // 2) % size
pattern = lambda sender: ((numpy.arange(length, dtype=numpy.uint64) * 2654435761 + sender) % 251).astype(numpy.uint8)
mine, expected = pattern(rank), pattern(back)
room = [numpy.empty(length, dtype=numpy.uint8) for _ in range(WINDOW)]

comm.Barrier()
begin = time.perf_counter()
rounds = wrong = 0
go = numpy.ones(1, dtype=numpy.uint8)
while True:
    for buffer in room:
        buffer[:: 4096] = 255
    requests = [comm.Irecv(buffer, back, 1) for buffer in room] + [comm.Isend(mine, there, 1) for _ in room]
    MPI.Request.Waitall(requests)
    rounds += 1
    # Every byte of one buffer a round, a sample of the others.
    wrong += not numpy.array_equal(room[rounds % WINDOW], expected)
    wrong += sum(not numpy.array_equal(buffer[::509], expected[::509]) for buffer in room)
    mine_took = time.perf_counter() - begin
    # The pairs stop together: the lower rank says when.
    more = mine_took < seconds
    if rank < there:
        comm.send(more, there, 2)
    else:
        more = comm.recv(source=back, tag=2) if size > 1 else more
    if size == 1 or not more:
        break
took = time.perf_counter() - begin
done = comm.gather((rounds * WINDOW * length, took, wrong), 0)
if rank == 0:
    rates = [8e-9 * nbytes / t for nbytes, t, _ in done]
    bad = sum(w for _, _, w in done)
    print("stream: " + json.dumps({
        "bytes": sum(b for b, _, _ in done), "seconds": max(t for _, t, _ in done), "total_gbps": sum(rates),
        "slowest_gbps": min(rates), "fastest_gbps": max(rates), "wrong": bad,
    }), flush=True)
    if bad:
        comm.Abort(1)
