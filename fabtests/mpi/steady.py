"""A job that goes on for some time with messages of every protocol, and compares all of them, while something happens to it.

    mpiexec -n N python steady.py [SECONDS]

A turn is a sum over all ranks, twenty short messages, a long one and a read of a neighbour's window. Prints one line before the
usual summary, `steady: {json}`: the turns, the longest one's seconds, how often the first rank saw the wall clock jump, and by
how many MiB the resident memory of any rank grew at most.
If SQUALL_TEST_START names a file, the ranks exchange nothing before that file exists.
"""

import json
import os
import sys
import time

import numpy
from mpi4py import MPI

from check import Checks, MIB, numbers, pattern, RANK, SIZE, WORLD

# The rest of the command line is `Checks`'s.
SECONDS = float(sys.argv.pop(1)) if len(sys.argv) > 1 else 5.0
COUNT = 10_000


def turn(check, number, win):
    """One turn. Whether there is to be another is for `steady` to say."""
    total = numpy.empty(COUNT, dtype=numpy.int64)
    WORLD.Allreduce(numbers(COUNT, numpy.int64, RANK + number), total, MPI.SUM)
    want = sum(numbers(COUNT, numpy.int64, rank + number) for rank in range(SIZE))
    check.same(total, want, f"the sum of turn {number}")
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    late = WORLD.Isend(pattern(MIB, RANK * 7 + number), right, 1)
    requests = [WORLD.Isend(pattern(1000, RANK * 11 + number + n), right, 2) for n in range(20)]
    short, long = numpy.empty(1000, dtype=numpy.uint8), numpy.empty(MIB, dtype=numpy.uint8)
    for n in range(20):
        WORLD.Recv(short, left, 2)
        check.same(short, pattern(1000, left * 11 + number + n), f"short message {n} of turn {number}")
    WORLD.Recv(long, left, 1)
    check.same(long, pattern(MIB, left * 7 + number), f"long message of turn {number}")
    MPI.Request.Waitall([late, *requests])
    win.Lock(right, MPI.LOCK_SHARED)
    win.Get(long, right)
    win.Unlock(right)
    check.same(long, pattern(MIB, right), f"what was read in turn {number}")


def resident():
    """Returns the resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def await_start():
    """Waits until the file that SQUALL_TEST_START names exists. A receive drives the MPI's progress meanwhile."""
    start = os.environ.get("SQUALL_TEST_START")
    if not start:
        return
    none = numpy.empty(0, dtype=numpy.uint8)
    request = WORLD.Irecv(none, (RANK - 1) % SIZE, 3)
    while not os.path.exists(start):
        request.Test()
        time.sleep(0.0002)
    WORLD.Send(none, (RANK + 1) % SIZE, 3)
    request.Wait()


def steady(check):
    before_start = resident()
    await_start()
    window = numpy.empty(MIB, dtype=numpy.uint8)
    window[:] = pattern(MIB, RANK)
    win = MPI.Win.Create(window, comm=WORLD)
    begin, number, longest = time.monotonic(), 0, 0.0
    ahead, steps = time.time() - begin, 0
    # The same number of turns everywhere: the first rank says when it is enough.
    while WORLD.bcast(time.monotonic() - begin < SECONDS):
        at = time.monotonic()
        turn(check, number, win)
        longest = max(longest, time.monotonic() - at)
        number += 1
        before, ahead = ahead, time.time() - time.monotonic()
        steps += abs(ahead - before) > 60
    win.Free()
    longest = WORLD.allreduce(longest, MPI.MAX)
    grown = WORLD.allreduce(resident() - before_start, MPI.MAX)
    if RANK == 0:
        told = {"turns": number, "longest_s": round(longest, 2), "clock_steps": steps, "grown_mib": round(grown)}
        print("steady: " + json.dumps(told), flush=True)


Checks("steady").run(steady)
