"""What the MPI test programs share: reproducible contents, counting, and an end even when a rank hangs."""

import argparse
import faulthandler
import os
import sys
import traceback

import mpi4py
import numpy

# Open MPI 4's one-sided component refuses MPI_THREAD_MULTIPLE, and no program here has a second thread.
mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI  # noqa: E402  (it initialises MPI)

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank
SIZE = WORLD.size

KIB = 1 << 10
MIB = 1 << 20


def sizes(quick=False, most=4 * MIB):
    """Message sizes around every boundary a transport is likely to have: powers of two and their neighbours."""
    steps = [0, 1, 7, 8, 63, 64, 65]
    power = 256
    while power <= most:
        steps += [power] if quick and power > 16 * KIB else [power - 1, power, power + 1]
        power *= 4 if quick else 2
    return [size for size in steps if size <= most]


def pattern(length, seed):
    """`length` bytes that differ at every offset and for every `seed`, so that a misplaced packet shows."""
    # A 64-bit mix of (seed, word index): no period a packet size could divide.
    words = numpy.arange((length + 7) // 8, dtype=numpy.uint64)
    words += numpy.uint64((seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    words ^= words >> numpy.uint64(31)
    words *= numpy.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> numpy.uint64(29)
    return words.view(numpy.uint8)[:length]


def numbers(count, dtype, seed):
    """`count` small numbers of `dtype`: sums and products over a few ranks stay exact in every type."""
    index = numpy.arange(count, dtype=numpy.int64)
    return ((index * 7 + seed * 13) % 11 + 1).astype(dtype)


class Checks:
    """Counts what held and what did not, on every rank."""

    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failed = 0
        parser = argparse.ArgumentParser()
        parser.add_argument("--quick", action="store_true")
        parser.add_argument("--skip", action="append", default=[], help="a part not to run")
        parser.add_argument("--part", action="append", default=[], help="run this part alone")
        args = parser.parse_args()
        self.quick = args.quick
        self._skip, self._only = args.skip, args.part
        # A rank that hangs says where, shortly before the driver ends the job.
        deadline = float(os.environ.get("SQUALL_TEST_DEADLINE", "600"))
        faulthandler.dump_traceback_later(deadline, exit=True)

    def that(self, holds, what):
        """Count one expectation; say what failed, the first few times."""
        if holds:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= 20:
            print(f"{self.name}: rank {RANK} of {SIZE}: FAILED: {what}", flush=True)

    def same(self, got, want, what):
        """Expect two arrays to be equal, byte for byte; say where they part."""
        got, want = numpy.asarray(got), numpy.asarray(want)
        if got.shape == want.shape and numpy.array_equal(got, want):
            self.passed += 1
            return
        where = ""
        if got.shape == want.shape:
            wrong = numpy.flatnonzero(got.reshape(-1) != want.reshape(-1))
            first = wrong[0]
            where = (
                f"; {wrong.size} of {got.size} differ, first at {first}"
                f" ({got.reshape(-1)[first]} for {want.reshape(-1)[first]}), last at {wrong[-1]}"
            )
        else:
            where = f"; shape {got.shape} for {want.shape}"
        self.that(False, what + where)

    def run(self, *parts):
        """Run the parts in turn on all ranks, print the summary, and leave with its status."""
        try:
            for part in parts:
                if part.__name__ in self._skip or (self._only and part.__name__ not in self._only):
                    continue
                if "SQUALL_TEST_TRACE" in os.environ:
                    print(f"{self.name}: rank {RANK}: {part.__name__}", flush=True)
                part(self)
                WORLD.Barrier()
            passed = WORLD.allreduce(self.passed)
            failed = WORLD.allreduce(self.failed)
        except BaseException:
            # Print before MPI tears the job down, and take the other ranks along: they would wait for ever.
            traceback.print_exc()
            sys.stderr.flush()
            WORLD.Abort(1)
            raise
        if RANK == 0:
            print(f"{self.name}: {passed} passed, {failed} failed", flush=True)
        MPI.Finalize()
        faulthandler.cancel_dump_traceback_later()
        sys.exit(1 if failed or not passed else 0)
