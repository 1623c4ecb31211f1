"""A permutation of large messages: every rank sends to the rank half a ring away, all at once, and checks what it gets.

    mpiexec -n N python stream.py [SECONDS] [BYTES] [WINDOW]

N is even. Prints one line, `stream: {json}`: the bytes of all ranks, the seconds, Gb/s in total and of the slowest and fastest
rank, the longest time that any rank waited for one window of messages, and the longest standstill: for how long no message of
the window came in, with that less the time for which the rank's process waited for a processor meanwhile (the kernel's
account, /proc/self/schedstat).
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
WINDOW = int(sys.argv[3]) if len(sys.argv) > 3 else 4

peer = (rank + size // 2) % size


def queued():
    """Seconds for which this process was ready to run and did not."""
    with open("/proc/self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) * 1e-9


def wait(receives):
    """Until all are there. The longest time without one, and the longest less what went by in the run queue."""
    still = still_running = 0.0
    left, at, before = len(receives), time.perf_counter(), queued()
    while left:
        left -= len(MPI.Request.Waitsome(receives))
        now, delay = time.perf_counter(), queued()
        still = max(still, now - at)
        still_running = max(still_running, now - at - (delay - before))
        at, before = now, delay
    return still, still_running


def pattern(sender):
    return ((numpy.arange(length, dtype=numpy.uint64) * 2654435761 + sender) % 251).astype(numpy.uint8)


mine, expected = pattern(rank), pattern(peer)
room = [numpy.empty(length, dtype=numpy.uint8) for _ in range(WINDOW)]

comm.Barrier()
begin = previous = time.perf_counter()
rounds = wrong = 0
longest = still = still_running = 0.0
more = True
while more:
    for buffer in room:
        buffer[::509] = 255
    receives = [comm.Irecv(buffer, peer, 1) for buffer in room]
    sends = [comm.Isend(mine, peer, 1) for _ in room]
    stood = wait(receives)
    still, still_running = max(still, stood[0]), max(still_running, stood[1])
    MPI.Request.Waitall(sends)
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
done = comm.gather((rounds * WINDOW * length, took, wrong, longest, still, still_running), 0)
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
                "still_s": max(d[4] for d in done),
                "still_running_s": max(d[5] for d in done),
                "wrong": bad,
            }
        ),
        flush=True,
    )
    if bad:
        comm.Abort(1)
