"""Collective operations over types, sizes and roots. Contents are verified against what one rank can compute alone."""

import numpy

from check import Checks, KIB, MIB, MPI, numbers, pattern, RANK, SIZE, sizes, WORLD

TYPES = [
    numpy.int8,
    numpy.uint8,
    numpy.int16,
    numpy.int32,
    numpy.uint32,
    numpy.int64,
    numpy.uint64,
    numpy.float32,
    numpy.float64,
    numpy.complex64,
    numpy.complex128,
]


def counts(check):
    """Element counts, from none to more than any protocol threshold."""
    return (0, 1, 3, 1000, 20_000) if check.quick else (0, 1, 2, 3, 17, 500, 1023, 4096, 20_000, 131_072, 524_288)


def byte_sizes(check):
    """For the operations that only move bytes."""
    return sizes(True) if check.quick else [s for s in sizes(False) if s < 256 or s & 1 == 0]


def types(count):
    """All types for short vectors, two for the long ones."""
    return TYPES if count <= 4096 else (numpy.int32, numpy.float64)


def barrier(check):
    """No rank leaves a barrier before all have entered."""
    for turn in range(20 if check.quick else 200):
        late = turn % SIZE
        token = numpy.zeros(1, numpy.int32)
        request = None
        if RANK == late:
            # Sent before entering: whoever has left the barrier must be able to receive it without delay.
            request = [WORLD.Isend(numpy.full(1, turn, numpy.int32), peer, 5) for peer in range(SIZE)]
        WORLD.Barrier()
        WORLD.Recv(token, late, 5)
        check.that(token[0] == turn, f"barrier {turn}")
        if request:
            MPI.Request.Waitall(request)


def bcast(check):
    """Broadcast from every root."""
    for size in byte_sizes(check):
        for root in range(SIZE) if size <= 64 * KIB else (SIZE - 1,):
            block = pattern(size, root + 3) if RANK == root else numpy.zeros(size, numpy.uint8)
            WORLD.Bcast(block, root)
            check.same(block, pattern(size, root + 3), f"bcast of {size} bytes from {root}")


def reductions(check):
    """Reduce, Allreduce, Reduce_scatter and the scans: sums, extrema, products, bits."""
    operations = [(MPI.SUM, numpy.add), (MPI.MAX, numpy.maximum), (MPI.MIN, numpy.minimum), (MPI.PROD, numpy.multiply)]
    for count in counts(check):
        for dtype in types(count):
            parts = [numbers(count, dtype, rank) for rank in range(SIZE)]
            for operation, function in operations if count <= 1000 else operations[:1]:
                if numpy.issubdtype(dtype, numpy.complexfloating) and operation not in (MPI.SUM, MPI.PROD):
                    continue
                if operation == MPI.PROD and numpy.dtype(dtype).itemsize == 1:
                    continue
                name = (
                    f"{operation.name if hasattr(operation, 'name') else function.__name__} of {count} {numpy.dtype(dtype)}"
                )
                want = parts[0].copy()
                for part in parts[1:]:
                    want = function(want, part).astype(dtype)
                got = numpy.zeros(count, dtype)
                WORLD.Allreduce(parts[RANK], got, operation)
                check.same(got, want, f"allreduce {name}")
                root = count % SIZE
                got = numpy.zeros(count, dtype)
                WORLD.Reduce(parts[RANK], got, operation, root)
                if RANK == root:
                    check.same(got, want, f"reduce {name}")
                prefix = parts[0].copy()
                for part in parts[1 : RANK + 1]:
                    prefix = function(prefix, part).astype(dtype)
                got = numpy.zeros(count, dtype)
                WORLD.Scan(parts[RANK], got, operation)
                check.same(got, prefix, f"scan {name}")
            in_place = parts[RANK].copy()
            WORLD.Allreduce(MPI.IN_PLACE, in_place, MPI.SUM)
            total = sum(part.astype(object) for part in parts) if count and count <= 3 else None
            if total is not None and numpy.dtype(dtype).itemsize > 1:
                check.same(in_place, total.astype(dtype), f"allreduce in place of {count} {numpy.dtype(dtype)}")
        # Each rank gets its own share of the sum.
        share = numpy.zeros(count, numpy.int64)
        everything = [numbers(count * SIZE, numpy.int64, rank) for rank in range(SIZE)]
        WORLD.Reduce_scatter_block(everything[RANK], share, MPI.SUM)
        want = sum(everything)[RANK * count : (RANK + 1) * count] if count else share
        check.same(share, want, f"reduce_scatter_block of {count}")
        uneven = [count // (rank + 1) for rank in range(SIZE)]
        parts = [numbers(sum(uneven), numpy.float64, rank) for rank in range(SIZE)]
        share = numpy.zeros(uneven[RANK])
        WORLD.Reduce_scatter(parts[RANK], share, uneven, MPI.SUM)
        begin = sum(uneven[:RANK])
        check.same(share, sum(parts)[begin : begin + uneven[RANK]], f"reduce_scatter of {count}")
        # Exclusive scan: rank 0's result is undefined.
        mine, got = numbers(count, numpy.int32, RANK), numpy.zeros(count, numpy.int32)
        WORLD.Exscan(mine, got, MPI.SUM)
        if RANK:
            want = sum(numbers(count, numpy.int32, rank) for rank in range(RANK))
            check.same(got, want, f"exscan of {count}")
    for operation, function in ((MPI.BAND, numpy.bitwise_and), (MPI.BOR, numpy.bitwise_or), (MPI.BXOR, numpy.bitwise_xor)):
        parts = [pattern(4000, rank).view(numpy.uint32) for rank in range(SIZE)]
        want = parts[0].copy()
        for part in parts[1:]:
            want = function(want, part)
        got = numpy.zeros_like(want)
        WORLD.Allreduce(parts[RANK], got, operation)
        check.same(got, want, f"allreduce {function.__name__}")
    pair = numpy.zeros(1, dtype=[("value", "f8"), ("rank", "i4")])
    got = numpy.zeros_like(pair)
    pair["value"], pair["rank"] = (RANK * 7) % SIZE, RANK
    WORLD.Allreduce([pair, 1, MPI.DOUBLE_INT], [got, 1, MPI.DOUBLE_INT], MPI.MAXLOC)
    want = max(((rank * 7) % SIZE, -rank) for rank in range(SIZE))
    check.that((got["value"][0], -got["rank"][0]) == want, "allreduce maxloc")


def gathers(check):
    """Gather, Scatter, Allgather, and their variants with a count for each rank."""
    for size in byte_sizes(check):
        if size > MIB:
            continue
        root = size % SIZE
        everything = numpy.concatenate([pattern(size, rank) for rank in range(SIZE)])
        nothing = numpy.zeros(size * SIZE, numpy.uint8)
        got = nothing.copy()
        WORLD.Allgather(pattern(size, RANK), got)
        check.same(got, everything, f"allgather of {size}")
        got = nothing.copy()
        WORLD.Gather(pattern(size, RANK), got if RANK == root else None, root)
        if RANK == root:
            check.same(got, everything, f"gather of {size}")
        mine = numpy.zeros(size, numpy.uint8)
        WORLD.Scatter(everything if RANK == root else None, mine, root)
        check.same(mine, pattern(size, RANK), f"scatter of {size}")

        uneven = [size // (rank + 1) for rank in range(SIZE)]
        # A hole of one element between the blocks must stay untouched.
        places = [sum(uneven[:rank]) + rank for rank in range(SIZE)]
        want = numpy.full(sum(uneven) + SIZE, 0xEE, numpy.uint8)
        for rank in range(SIZE):
            want[places[rank] : places[rank] + uneven[rank]] = pattern(uneven[rank], rank)
        got = numpy.full_like(want, 0xEE)
        WORLD.Allgatherv(pattern(uneven[RANK], RANK), [got, uneven, places, MPI.BYTE])
        check.same(got, want, f"allgatherv of {size}")
        got = numpy.full_like(want, 0xEE)
        WORLD.Gatherv(pattern(uneven[RANK], RANK), [got, uneven, places, MPI.BYTE] if RANK == root else None, root)
        if RANK == root:
            check.same(got, want, f"gatherv of {size}")
        mine = numpy.zeros(uneven[RANK], numpy.uint8)
        WORLD.Scatterv([want, uneven, places, MPI.BYTE] if RANK == root else None, mine, root)
        check.same(mine, pattern(uneven[RANK], RANK), f"scatterv of {size}")


def alltoalls(check):
    """Alltoall, Alltoallv and Alltoallw."""
    for size in byte_sizes(check):
        if size > MIB:
            continue
        out = numpy.concatenate([pattern(size, RANK * 100 + peer) for peer in range(SIZE)])
        want = numpy.concatenate([pattern(size, peer * 100 + RANK) for peer in range(SIZE)])
        got = numpy.zeros_like(out)
        WORLD.Alltoall(out, got)
        check.same(got, want, f"alltoall of {size}")

        def length(source, target, size=size):
            return size * ((source + 2 * target) % 3) // 2

        send = [length(RANK, peer) for peer in range(SIZE)]
        receive = [length(peer, RANK) for peer in range(SIZE)]
        out = numpy.concatenate([pattern(n, RANK * 100 + peer) for peer, n in enumerate(send)])
        want = numpy.concatenate([pattern(n, peer * 100 + RANK) for peer, n in enumerate(receive)])
        got = numpy.zeros_like(want)
        starts = [sum(send[:i]) for i in range(SIZE)]
        ends = [sum(receive[:i]) for i in range(SIZE)]
        WORLD.Alltoallv([out, send, starts, MPI.BYTE], [got, receive, ends, MPI.BYTE])
        check.same(got, want, f"alltoallv of {size}")
        got = numpy.zeros_like(want)
        WORLD.Alltoallw([out, send, starts, [MPI.BYTE] * SIZE], [got, receive, ends, [MPI.BYTE] * SIZE])
        check.same(got, want, f"alltoallw of {size}")


def nonblocking(check):
    """Several collectives in flight at once, completed in another order."""
    for turn in range(3 if check.quick else 15):
        count = (10, 3000, 60_000)[turn % 3]
        a, b = numpy.zeros(count, numpy.int64), numpy.zeros(count * SIZE, numpy.int64)
        c = numbers(count, numpy.int64, 99) if RANK == 0 else numpy.zeros(count, numpy.int64)
        mine, too = numbers(count, numpy.int64, RANK), numbers(count, numpy.int64, RANK)
        requests = [
            WORLD.Iallreduce(mine, a, MPI.SUM),
            WORLD.Iallgather(too, b),
            WORLD.Ibcast(c, 0),
            WORLD.Ibarrier(),
        ]
        for request in reversed(requests):
            request.Wait()
        check.same(a, sum(numbers(count, numpy.int64, rank) for rank in range(SIZE)), f"iallreduce of {count}")
        check.same(b, numpy.concatenate([numbers(count, numpy.int64, r) for r in range(SIZE)]), f"iallgather of {count}")
        check.same(c, numbers(count, numpy.int64, 99), f"ibcast of {count}")


if __name__ == "__main__":
    Checks("coll").run(barrier, bcast, reductions, gathers, alltoalls, nonblocking)
