"""Ranks that are stopped in the middle of their work, as a debugger, a scheduler or a lid does it, and go on.

SQUALL_TEST_STOPPED names the ranks ("1", or "all"), SQUALL_TEST_PAUSE the seconds. Messages of all protocols are on their way when
it happens: eager ones, a rendezvous whose receive is not posted yet, a read that was begun.
"""

import os
import subprocess
import time

import numpy
from mpi4py import MPI

from check import Checks, MIB, pattern, RANK, SIZE, WORLD

PAUSE = float(os.environ.get("SQUALL_TEST_PAUSE", "15"))
STOPPED = os.environ.get("SQUALL_TEST_STOPPED", "1")


def stop_soon():
    """Something that outlives our being stopped stops us in a moment, and wakes us in the end."""
    pid = os.getpid()
    return subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -STOP {pid}; sleep {PAUSE}; kill -CONT {pid}"])


def pauses(check):
    peer = RANK ^ 1
    if peer >= SIZE:
        return
    window = numpy.empty(MIB, dtype=numpy.uint8)
    window[:] = pattern(MIB, RANK)
    win = MPI.Win.Create(window, comm=WORLD)
    stopper = stop_soon() if STOPPED in ("all", str(RANK)) else None
    begin, turn, longest = time.monotonic(), 0, 0.0
    got = numpy.empty(MIB, dtype=numpy.uint8)
    short = numpy.empty(1000, dtype=numpy.uint8)
    while True:
        at = time.monotonic()
        # Long enough to be stopped in, and the same number of turns on both sides.
        again = WORLD.allreduce(int(time.monotonic() - begin < PAUSE + 2), MPI.MAX)
        if not again:
            break
        late = WORLD.Isend(pattern(MIB, RANK * 7 + turn), peer, 1)
        requests = [WORLD.Isend(pattern(1000, RANK * 11 + turn + n), peer, 2) for n in range(20)]
        for n in range(20):
            WORLD.Recv(short, peer, 2)
            check.same(short, pattern(1000, peer * 11 + turn + n), f"short message {n} of turn {turn}")
        WORLD.Recv(got, peer, 1)
        check.same(got, pattern(MIB, peer * 7 + turn), f"long message of turn {turn}")
        MPI.Request.Waitall([late, *requests])
        win.Lock(peer, MPI.LOCK_SHARED)
        win.Get(got, peer)
        win.Unlock(peer)
        check.same(got, pattern(MIB, peer), f"what was read in turn {turn}")
        longest = max(longest, time.monotonic() - at)
        turn += 1
    win.Free()
    if stopper:
        stopper.wait()
    if longest < PAUSE - 1:
        raise AssertionError(f"nobody was stopped: the longest of {turn} turns took {longest:.1f} s")


Checks("pause").run(pauses)
