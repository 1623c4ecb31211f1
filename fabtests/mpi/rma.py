"""One-sided communication: put, get, accumulates, under fences, locks and post-start-complete-wait."""

import numpy

from check import Checks, KIB, MIB, MPI, numbers, pattern, RANK, SIZE, sizes, WORLD

NEXT = (RANK + 1) % SIZE
PREVIOUS = (RANK - 1) % SIZE

# Intel MPI descends from MPICH 3.4, which lost a get from a dynamic window, and waited for it for ever in MPI_Win_free,
# if the response overtook the completion of the request. The acknowledgement of a request may be lost, so this happens
# on a network with faults. Only gets whose response is longer than one active message (16 KiB) are concerned. MPICH 4.0
# corrected it (32e8296181). See "Intel MPI hangs in MPI_Win_free" in docs/troubleshooting.md.
LONGEST_SAFE_GET = 4 * KIB if "Intel(R) MPI" in MPI.Get_library_version() else None


def window(size, unit=1):
    """A window of `size` zeroed bytes and its memory."""
    win = MPI.Win.Allocate(max(size, 1), unit, comm=WORLD)
    memory = numpy.frombuffer(win.tomemory(), numpy.uint8)
    memory[:] = 0
    WORLD.Barrier()
    return win, memory


def fences(check):
    """Put and get of every size between fences."""
    most = 256 * KIB if check.quick else 4 * MIB
    win, memory = window(2 * most)
    for size in sizes(check.quick, most):
        win.Fence()
        memory[:size] = pattern(size, RANK)
        win.Fence()
        into = numpy.zeros(size, numpy.uint8)
        win.Get(into, NEXT, 0)
        out = pattern(size, RANK + 50)
        win.Put(out, NEXT, most)
        win.Fence()
        check.same(into, pattern(size, NEXT), f"get of {size}")
        check.same(memory[most : most + size], pattern(size, PREVIOUS + 50), f"put of {size}")
    win.Fence()
    win.Free()


def locks(check):
    """Passive target: exclusive and shared locks, flushes, lock_all."""
    count = 100
    win, memory = window(8 * count * SIZE, 8)
    for turn in range(5):
        win.Lock(NEXT, MPI.LOCK_EXCLUSIVE if turn % 2 else MPI.LOCK_SHARED)
        out = numbers(count, numpy.int64, RANK + turn)
        win.Put(out, NEXT, RANK * count)
        win.Flush(NEXT)
        back = numpy.zeros(count, numpy.int64)
        win.Get(back, NEXT, RANK * count)
        win.Unlock(NEXT)
        check.same(back, numbers(count, numpy.int64, RANK + turn), f"read back under lock, turn {turn}")
    win.Lock_all()
    # An origin buffer must live until the flush.
    out = [numbers(count, numpy.int64, RANK * 100 + peer) for peer in range(SIZE)]
    for peer in range(SIZE):
        win.Put(out[peer], peer, RANK * count)
    win.Flush_all()
    win.Unlock_all()
    WORLD.Barrier()
    win.Lock(RANK)
    got = memory.view(numpy.int64).copy()
    win.Unlock(RANK)
    want = numpy.concatenate([numbers(count, numpy.int64, rank * 100 + RANK) for rank in range(SIZE)])
    check.same(got, want, "puts of all ranks under lock_all")
    win.Free()


def active(check):
    """Post, start, complete, wait."""
    win, memory = window(100_000)
    group = WORLD.Get_group()
    for turn in range(5):
        win.Post(group.Incl([PREVIOUS]))
        win.Start(group.Incl([NEXT]))
        out = pattern(100_000, RANK + turn)
        win.Put(out, NEXT, 0)
        win.Complete()
        win.Wait()
        check.same(memory, pattern(100_000, PREVIOUS + turn), f"post-start-complete-wait, turn {turn}")
    win.Free()


def accumulates(check):
    """All ranks add to the same place; the sum must be whole. Then replace, extrema and bits."""
    for dtype in (numpy.int32, numpy.int64, numpy.float64):
        for count in (1, 1000, 30_000):
            width = numpy.dtype(dtype).itemsize
            win, memory = window(count * width, width)
            mine, more = numbers(count, dtype, RANK), numbers(count, dtype, RANK + 5)
            win.Fence()
            for _ in range(3):
                win.Accumulate(mine, 0, 0, MPI.SUM)
            win.Fence()
            if RANK == 0:
                want = 3 * sum(numbers(count, dtype, rank) for rank in range(SIZE))
                check.same(memory.view(dtype), want.astype(dtype), f"accumulate {count} {numpy.dtype(dtype)}")
            win.Fence()
            win.Accumulate(mine, NEXT, 0, MPI.REPLACE)
            win.Fence()
            check.same(memory.view(dtype), numbers(count, dtype, PREVIOUS), f"replace {count} {numpy.dtype(dtype)}")
            win.Fence()
            win.Accumulate(more, NEXT, 0, MPI.MAX)
            win.Fence()
            want = numpy.maximum(numbers(count, dtype, PREVIOUS), numbers(count, dtype, PREVIOUS + 5))
            check.same(memory.view(dtype), want, f"max {count} {numpy.dtype(dtype)}")
            win.Free()


def fetches(check):
    """Fetch-and-op hands every rank another ticket; compare-and-swap lets exactly one win."""
    turns = 20 if check.quick else 200
    win, memory = window(16, 8)
    win.Lock_all()
    tickets = numpy.zeros(turns, numpy.int64)
    one, got = numpy.ones(1, numpy.int64), numpy.zeros(1, numpy.int64)
    for turn in range(turns):
        win.Fetch_and_op(one, got, 0, 0, MPI.SUM)
        win.Flush(0)
        tickets[turn] = got[0]
    everyone = numpy.zeros(turns * SIZE, numpy.int64)
    WORLD.Allgather(tickets, everyone)
    check.same(numpy.sort(everyone), numpy.arange(turns * SIZE), "every ticket is handed out once")
    check.that(bool((numpy.diff(tickets) > 0).all()), "a rank's tickets grow")
    mine, zero = numpy.full(1, RANK + 1, numpy.int64), numpy.zeros(1, numpy.int64)
    win.Compare_and_swap(mine, zero, got, SIZE - 1, 1)
    win.Flush(SIZE - 1)
    winners = WORLD.allreduce(int(got[0] == 0))
    check.that(winners == 1, f"{winners} ranks won the compare-and-swap")
    block, old = numbers(500, numpy.int64, RANK), numpy.zeros(500, numpy.int64)
    win.Unlock_all()
    win.Free()
    win, memory = window(4000, 8)
    win.Lock(NEXT)
    win.Get_accumulate(block, old, NEXT, 0, MPI.SUM)
    win.Unlock(NEXT)
    WORLD.Barrier()
    check.same(old, numpy.zeros(500, numpy.int64), "get_accumulate returns what was there")
    win.Lock(RANK)
    check.same(memory.view(numpy.int64).copy(), numbers(500, numpy.int64, PREVIOUS), "get_accumulate added")
    win.Unlock(RANK)
    win.Free()


def dynamic(check):
    """A window without memory, to which memory is attached later and addressed absolutely."""
    win = MPI.Win.Create_dynamic(comm=WORLD)
    memory = numpy.zeros(50_000, numpy.uint8)
    win.Attach(memory)
    addresses = WORLD.allgather(MPI.Get_address(memory))
    win.Lock_all()
    out = pattern(50_000, RANK)
    win.Put(out, NEXT, addresses[NEXT])
    win.Flush(NEXT)
    into = numpy.zeros(50_000, numpy.uint8)
    step = LONGEST_SAFE_GET or into.size
    for start in range(0, into.size, step):
        win.Get(into[start : start + step], NEXT, addresses[NEXT] + start)
    win.Flush(NEXT)
    check.same(into, pattern(50_000, RANK), "dynamic window, read back")
    win.Unlock_all()
    WORLD.Barrier()
    check.same(memory, pattern(50_000, PREVIOUS), "dynamic window, put")
    win.Detach(memory)
    win.Free()


def strided(check):
    """Derived types at both ends."""
    win, memory = window(80_000, 8)
    column = MPI.DOUBLE.Create_vector(100, 1, 100).Commit()
    win.Fence()
    out = numpy.arange(100.0) + RANK
    win.Put([out, 100, MPI.DOUBLE], NEXT, [3, 1, column])
    win.Fence()
    got = memory.view(numpy.float64).reshape(100, 100)
    check.same(got[:, 3].copy(), numpy.arange(100.0) + PREVIOUS, "a column put")
    check.that(not got[:, 4].any(), "its neighbour is untouched")
    win.Fence()
    back = numpy.zeros((100, 100))
    win.Get([back, 1, column], NEXT, [3, 1, column])
    win.Fence()
    check.same(back[:, 0].copy(), numpy.arange(100.0) + RANK, "a column got")
    column.Free()
    win.Free()


if __name__ == "__main__":
    Checks("rma").run(fences, locks, active, accumulates, fetches, dynamic, strided)
