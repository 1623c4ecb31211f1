"""Allreduce, alltoall and ping-pong over a few sizes: medians, as one JSON object on standard output.

    perf.py [NAME ..] [BYTES:REPETITIONS ..]

A NAME is one of these three; by default all are measured. Each result of a collective is verified once before it is timed.
For ci/demo, ci/run bench mpi and ci/run bench timeline.
"""

import json
import sys
import time

import numpy

from check import KIB, MIB, MPI, pattern, RANK, SIZE, WORLD

# Bytes: repetitions. For an alltoall, bytes to each rank.
PLAN = {8: 400, KIB: 400, 64 * KIB: 100, MIB: 20}
NAMES = [word for word in sys.argv[1:] if ":" not in word]
if len(sys.argv) > 1 + len(NAMES):
    PLAN = {int(size): int(count) for size, count in (word.split(":") for word in sys.argv[1:] if ":" in word)}

# The ranks of a ping-pong.
ENDS = (0, SIZE - 1)


def median_time(operation, repetitions, only=None):
    """Median over repetitions of the slowest rank's time, in microseconds.

    With `only`, these ranks take part and the others sleep, so that they leave the cores alone.
    """
    part = range(SIZE) if only is None else only
    times = numpy.zeros(repetitions)
    if RANK in part:
        for _ in range(max(3, repetitions // 10)):
            operation()
        for i in range(repetitions):
            if only is None:
                WORLD.Barrier()
            begin = MPI.Wtime()
            operation()
            times[i] = MPI.Wtime() - begin
    done = WORLD.Ibarrier()
    while not done.Test():
        if RANK not in part:
            time.sleep(0.005)
    slowest = numpy.zeros_like(times)
    WORLD.Allreduce(times, slowest, MPI.MAX)
    return float(numpy.median(slowest)) * 1e6


def expect(holds, what):
    if not holds:
        print(f"perf: rank {RANK}: wrong result of {what}", file=sys.stderr, flush=True)
        WORLD.Abort(1)


def allreduce(size):
    mine, got = numpy.full(size // 8, RANK + 1.0), numpy.zeros(size // 8)
    WORLD.Allreduce(mine, got)
    expect((got == SIZE * (SIZE + 1) / 2).all(), "allreduce")
    return lambda: WORLD.Allreduce(mine, got)


def alltoall(size):
    mine = numpy.concatenate([pattern(size, RANK * 100 + peer) for peer in range(SIZE)])
    want = numpy.concatenate([pattern(size, peer * 100 + RANK) for peer in range(SIZE)])
    got = numpy.zeros_like(mine)
    WORLD.Alltoall(mine, got)
    expect(numpy.array_equal(got, want), "alltoall")
    return lambda: WORLD.Alltoall(mine, got)


def ping_pong(size):
    """A round trip between the first and the last rank."""
    mine, got = pattern(size, RANK), numpy.zeros(size, numpy.uint8)
    first, last = ENDS

    def once():
        if RANK == first:
            WORLD.Send(mine, last, 1)
            WORLD.Recv(got, last, 1)
        elif RANK == last:
            WORLD.Recv(got, first, 1)
            WORLD.Send(mine, first, 1)

    once()
    if RANK in ENDS:
        expect(numpy.array_equal(got, pattern(size, first + last - RANK)), "ping-pong")
    return once


def main():
    found = {}
    for name, make, only in (
        ("allreduce", allreduce, None),
        ("alltoall", alltoall, None),
        ("ping-pong", ping_pong, ENDS),
    ):
        if NAMES and name not in NAMES:
            continue
        for size, repetitions in PLAN.items():
            if name == "alltoall" and size == MIB:
                repetitions //= 2
            found[f"{name} {size}"] = median_time(make(size), repetitions, only)
    if RANK == 0:
        print("perf: " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
