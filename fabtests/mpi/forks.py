"""Ranks that start children in the middle of their work: by fork and exec, and by fork alone, with an orderly exit.

    mpiexec -n N python forks.py

Some children of fork alone run atexit handlers and libraries' destructors: nothing of that may touch what is the parent's. Every child is waited for, for a bounded time, while messages of the parent are on their way.
"""

import ctypes
import fcntl
import multiprocessing
import os
import subprocess
import sys
import time

import numpy
from mpi4py import MPI

from check import Checks, MIB, pattern, RANK, SIZE, WORLD

ROUNDS = 6
# Seconds: a child has nothing to do.
SOON = 20.0


def child():
    """What a child of fork does with what it finds: nothing much."""
    sum(range(1000))


def waits_for(pid):
    """The status of a child, or None if it hangs."""
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def orderly():
    """fork, and an exit with what belongs to it in C: handlers of atexit, libraries' destructors."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        # Not Python's way out, on which mpi4py would finalise the parent's MPI.
        ctypes.CDLL(None).exit(0)
    return waits_for(pid)


def inherited():
    """UDP sockets, which are squall's alone, that a program started by exec would have."""
    known = set()
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        with open(table) as lines:
            known |= {line.split()[9] for line in list(lines)[1:]}
    ours, kept = 0, []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
            flags = fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        if target.removeprefix("socket:[").removesuffix("]") in known:
            ours += 1
            if not flags & fcntl.FD_CLOEXEC:
                kept.append(fd)
    return ours, kept


def forks(check):
    ours, kept = inherited()
    check.that(ours > 0, "there are UDP sockets")
    check.that(not kept, f"UDP sockets {kept} would outlive an exec")
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    spawn = multiprocessing.get_context("fork")
    got, short = numpy.empty(MIB, dtype=numpy.uint8), numpy.empty(1000, dtype=numpy.uint8)
    for turn in range(ROUNDS):
        # All of these are on their way while children come and go.
        receives = [WORLD.Irecv(got, left, 1), WORLD.Irecv(short, left, 2)]
        sends = [WORLD.Isend(pattern(MIB, RANK + turn), right, 1), WORLD.Isend(pattern(1000, RANK * 3 + turn), right, 2)]
        check.that(os.system("exit 3") == 3 << 8, "os.system gives its command's status")
        said = subprocess.run(["echo", "here"], capture_output=True, text=True, timeout=SOON).stdout
        check.that(said == "here\n", "subprocess.run gives its command's output")
        process = spawn.Process(target=child)
        process.start()
        process.join(SOON)
        check.that(process.exitcode == 0, f"a process of multiprocessing ends with {process.exitcode}")
        if process.exitcode is None:
            process.kill()
        status = orderly()
        check.that(status == 0, f"a child that exits in good order ends with {status}")
        MPI.Request.Waitall([*receives, *sends])
        check.same(got, pattern(MIB, left + turn), f"the long message of turn {turn}")
        check.same(short, pattern(1000, left * 3 + turn), f"the short message of turn {turn}")
        total = numpy.empty(1, dtype=numpy.int64)
        WORLD.Allreduce(numpy.array([RANK + turn], dtype=numpy.int64), total, MPI.SUM)
        check.same(total, [sum(range(SIZE)) + SIZE * turn], f"the sum of turn {turn}")


Checks("forks").run(forks)
