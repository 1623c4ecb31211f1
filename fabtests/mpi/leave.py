"""A rank is killed in mid-job, after a few rounds of a megabyte between each two ranks: how does it end for the others?

    mpiexec -n N python leave.py

The last rank kills itself. The others go on until MPI ends them, or SQUALL_TEST_DEADLINE with a traceback.
"""

import faulthandler
import os
import signal

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
faulthandler.dump_traceback_later(float(os.environ.get("SQUALL_TEST_DEADLINE", "600")), exit=True)
mine = numpy.full(1 << 20, rank, dtype=numpy.uint8)
room = numpy.empty_like(mine)
for turn in range(1000000):
    if turn == 20 and rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for peer in range(size):
        # The lower one sends first, so each has an operation of its own that the dead one cannot serve.
        if rank < peer:
            comm.Send(mine, peer, turn)
            comm.Recv(room, peer, turn)
        elif rank > peer:
            comm.Recv(room, peer, turn)
            comm.Send(mine, peer, turn)
        if rank != peer and not (room == peer).all():
            print(f"leave: rank {rank}: wrong bytes from {peer}", flush=True)
