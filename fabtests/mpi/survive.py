"""A rank dies by a signal: what do the others get from MPI, and when does it let them go?

    mpiexec -n N python survive.py finalize|exchange|wait

The last rank kills itself after a few exchanges with the first one. finalize: the others do nothing more but MPI_Finalize. exchange,
wait: the first has MPI_ERRORS_RETURN on its communicator and exchanges messages with the dead one, or sends one short message and
waits for its answer. Says on a line each, `survive: rank R: ..`, what happened after how many seconds since the death.
SQUALL_TEST_DEADLINE ends what hangs, with a traceback.
"""

import faulthandler
import os
import signal
import sys
import time

import numpy
from mpi4py import MPI

how = sys.argv[1]
faulthandler.dump_traceback_later(float(os.environ.get("SQUALL_TEST_DEADLINE", "600")), exit=True)
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
last = size - 1
room = numpy.zeros(1 << 20, dtype=numpy.uint8)


def say(what):
    print(f"survive: rank {rank}: {what} after {time.monotonic() - begin:.1f} s\n", end="", flush=True)


def turn(number, length):
    """An exchange of `length` bytes between the first rank and the last."""
    mine, peer = numpy.full(length, rank + number, dtype=numpy.uint8), last if rank == 0 else 0
    if rank == 0:
        comm.Send(mine, peer, number)
    comm.Recv(room[:length], peer, number)
    if rank != 0:
        comm.Send(mine, peer, number)
    if not (room[:length] == peer + number).all():
        print(f"survive: rank {rank}: wrong bytes\n", end="", flush=True)


begin = time.monotonic()
if rank in (0, last):
    for number in range(10):
        turn(number, 100 if how == "wait" else 1 << 20)
comm.Barrier()
# What it has sent so far arrives, and it is dead by the time that the others go on.
time.sleep(0.5)
if rank == last:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
time.sleep(0.5)
if rank == 0 and how != "finalize":
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        for number in range(10, 20):
            turn(number, 100 if how == "wait" else 1 << 20)
        say("no error")
    except MPI.Exception as error:
        say(f"error class {error.Get_error_class()}, {error.Get_error_string().splitlines()[0]!r}")
MPI.Finalize()
faulthandler.cancel_dump_traceback_later()
say("MPI_Finalize returned")
