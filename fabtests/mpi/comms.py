"""Communicators: splits, hundreds of duplicates, inter-communicators, topologies. Traffic must not leak between them."""

import numpy

from check import Checks, MPI, numbers, pattern, RANK, SIZE, WORLD


def exchange(check, comm, size, what):
    """A ring inside `comm`."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    world = comm.allgather(RANK)
    into = numpy.zeros(size, numpy.uint8)
    comm.Sendrecv(pattern(size, RANK), after, 1, into, before, 1)
    check.same(into, pattern(size, world[before]), what)


def splits(check):
    """Halves, reversed orders, single ranks."""
    for colour, key, what in ((RANK % 2, RANK, "odd and even"), (0, -RANK, "reversed"), (RANK, 0, "alone")):
        comm = WORLD.Split(colour, key)
        for size in (1, 10_000, 300_000):
            exchange(check, comm, size, f"ring of {size} bytes, {what}")
        total = comm.allreduce(RANK + 1)
        check.that(total == sum(rank + 1 for rank in comm.allgather(RANK)), f"allreduce, {what}")
        comm.Free()
    nobody = WORLD.Split(MPI.UNDEFINED if RANK else 0, 0)
    check.that((nobody == MPI.COMM_NULL) == (RANK != 0), "undefined colour")
    if nobody != MPI.COMM_NULL:
        nobody.Free()


def many(check):
    """Hundreds of communicators alive at once; one message of the same tag in each, received in reverse."""
    comms = [WORLD.Dup() for _ in range(40 if check.quick else 300)]
    requests = [comm.Isend(pattern(600, i), (RANK + 1) % SIZE, 7) for i, comm in enumerate(comms)]
    into = numpy.zeros(600, numpy.uint8)
    for i in reversed(range(len(comms))):
        comms[i].Recv(into, MPI.ANY_SOURCE, MPI.ANY_TAG)
        check.same(into, pattern(600, i), f"communicator {i}")
    MPI.Request.Waitall(requests)
    for comm in comms:
        comm.Free()


def churn(check):
    """Communicators made, used and freed, over and over."""
    for turn in range(20 if check.quick else 200):
        comm = WORLD.Split((RANK + turn) % 2, turn * RANK)
        got = numpy.zeros(100, numpy.int32)
        comm.Allreduce(numbers(100, numpy.int32, RANK), got)
        check.same(got, sum(numbers(100, numpy.int32, rank) for rank in comm.allgather(RANK)), f"churn {turn}")
        comm.Free()


def groups(check):
    """Communicators made of groups."""
    group = WORLD.Get_group()
    reverse = group.Incl(list(reversed(range(SIZE))))
    comm = WORLD.Create(reverse)
    check.that(comm.rank == SIZE - 1 - RANK, "rank in the reversed group")
    exchange(check, comm, 5000, "ring in the reversed group")
    comm.Free()
    first = group.Excl([SIZE - 1])
    comm = WORLD.Create(first)
    check.that((comm == MPI.COMM_NULL) == (RANK == SIZE - 1), "the last rank stays out")
    if comm != MPI.COMM_NULL:
        exchange(check, comm, 5000, "ring without the last rank")
        comm.Free()


def inter(check):
    """Messages and a broadcast between two groups."""
    half = SIZE // 2
    left = RANK < half
    local = WORLD.Split(0 if left else 1, RANK)
    bridge = local.Create_intercomm(0, WORLD, half if left else 0, 3)
    check.that(bridge.remote_size == (SIZE - half if left else half), "remote size")
    peer = local.rank
    if peer < min(half, SIZE - half):
        into = numpy.zeros(20_000, numpy.uint8)
        bridge.Sendrecv(pattern(20_000, RANK), peer, 4, into, peer, 4)
        check.same(into, pattern(20_000, peer + half if left else peer), "exchange across groups")
    root = (MPI.ROOT if local.rank == 0 else MPI.PROC_NULL) if left else 0
    block = pattern(3000, 1) if left else numpy.zeros(3000, numpy.uint8)
    bridge.Bcast(block, root)
    check.same(block, pattern(3000, 1), "broadcast across groups")
    merged = bridge.Merge(not left)
    check.that(merged.size == SIZE, "merged size")
    exchange(check, merged, 7000, "ring in the merged communicator")
    for comm in (merged, bridge, local):
        comm.Free()


def topologies(check):
    """A periodic grid, its neighbours' collectives and its rows."""
    dims = MPI.Compute_dims(SIZE, 2)
    cart = WORLD.Create_cart(dims, [True, True], reorder=False)
    for direction in (0, 1):
        source, target = cart.Shift(direction, 1)
        into = numpy.zeros(4000, numpy.uint8)
        cart.Sendrecv(pattern(4000, RANK), target, 2, into, source, 2)
        check.same(into, pattern(4000, source), f"shift along {direction}")
    got = numpy.zeros(4 * 500, numpy.int32)
    cart.Neighbor_allgather(numbers(500, numpy.int32, RANK), got)
    neighbours = [rank for direction in (0, 1) for rank in cart.Shift(direction, 1)]
    check.same(got, numpy.concatenate([numbers(500, numpy.int32, rank) for rank in neighbours]), "neighbours' allgather")
    row = cart.Sub([False, True])
    exchange(check, row, 900, "ring in a row")
    row.Free()
    cart.Free()


if __name__ == "__main__":
    Checks("comms").run(splits, many, churn, groups, inter, topologies)
