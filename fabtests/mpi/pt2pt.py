"""Point-to-point messages: every size, matching rules, probes, errors, floods. Contents are verified."""

import numpy

from check import Checks, KIB, MIB, MPI, pattern, RANK, SIZE, sizes, WORLD

NEXT = (RANK + 1) % SIZE
PREVIOUS = (RANK - 1) % SIZE


def ring(check):
    """Each rank sends to the next and receives from the previous one, every size, non-blocking."""
    for size in sizes(check.quick) + ([] if check.quick else [16 * MIB]):
        out, into = pattern(size, RANK), numpy.full(size, 0xEE, numpy.uint8)
        status = MPI.Status()
        requests = [WORLD.Irecv(into, PREVIOUS, size % 1000), WORLD.Isend(out, NEXT, size % 1000)]
        requests[0].Wait(status)
        requests[1].Wait()
        check.same(into, pattern(size, PREVIOUS), f"ring of {size} bytes")
        check.that(status.Get_count(MPI.BYTE) == size, f"count {status.Get_count(MPI.BYTE)} of {size}")


def blocking(check):
    """Ping-pong with MPI_Send and MPI_Ssend between even and odd ranks."""
    peer = RANK ^ 1
    if peer >= SIZE:
        return
    for size in sizes(quick=True):
        for send in (WORLD.Send, WORLD.Ssend):
            into = numpy.empty(size, numpy.uint8)
            if RANK % 2 == 0:
                send(pattern(size, RANK), peer, 5)
                WORLD.Recv(into, peer, 6)
            else:
                WORLD.Recv(into, peer, 5)
                send(pattern(size, RANK), peer, 6)
            check.same(into, pattern(size, peer), f"blocking exchange of {size} bytes")


def self_messages(check):
    """A rank may send to itself."""
    for size in (0, 1, 64 * KIB, MIB):
        into = numpy.empty(size, numpy.uint8)
        request = WORLD.Irecv(into, RANK, 9)
        WORLD.Send(pattern(size, size), RANK, 9)
        request.Wait()
        check.same(into, pattern(size, size), f"self message of {size} bytes")


def wildcards(check):
    """ANY_SOURCE and ANY_TAG: rank 0 collects what all others send, and each message says who it is."""
    rounds = 10 if check.quick else 50
    for size in (8, 2000, 40 * KIB):
        # Rank 0 takes whatever comes: nobody may be in the next round yet.
        WORLD.Barrier()
        if RANK:
            for i in range(rounds):
                WORLD.Send(pattern(size, RANK * 1000 + i), 0, 100 + i)
            continue
        seen = dict.fromkeys(range(1, SIZE), 0)
        into = numpy.empty(size, numpy.uint8)
        for _ in range(rounds * (SIZE - 1)):
            status = MPI.Status()
            WORLD.Recv(into, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            source, number = status.Get_source(), status.Get_tag() - 100
            check.that(number == seen[source], f"from {source}: message {number}, expected {seen[source]}")
            seen[source] = number + 1
            check.same(into, pattern(size, source * 1000 + number), f"wildcard, {source}/{number}, {size} bytes")
    WORLD.Barrier()


def tags(check):
    """Messages are matched by tag, not by arrival: receive in the reverse order."""
    count = 50 if check.quick else 300
    for size in (4, 3000):
        requests = [WORLD.Isend(pattern(size, i), NEXT, i) for i in range(count)]
        into = numpy.empty(size, numpy.uint8)
        for i in reversed(range(count)):
            WORLD.Recv(into, PREVIOUS, i)
            check.same(into, pattern(size, i), f"tag {i}")
        MPI.Request.Waitall(requests)


def order(check):
    """Messages of equal tag arrive in the order sent, whatever their sizes: small ones may not overtake large."""
    plan = [(i * 7919) % 5 for i in range(60 if check.quick else 300)]
    lengths = [(1, 900, 9000, 70 * KIB, 300 * KIB)[kind] for kind in plan]
    requests = []
    for i, length in enumerate(lengths):
        requests.append(WORLD.Isend(pattern(length, i), NEXT, 3))
    into = numpy.empty(MIB, numpy.uint8)
    for i, length in enumerate(lengths):
        status = MPI.Status()
        WORLD.Recv(into, PREVIOUS, 3, status)
        got = status.Get_count(MPI.BYTE)
        check.that(got == length, f"message {i} has {got} bytes, expected {length}")
        check.same(into[:length], pattern(length, i), f"ordered message {i}")
    MPI.Request.Waitall(requests)


def probes(check):
    """Probe and Iprobe report size, source and tag, and leave the message to be received."""
    for size in (0, 5, 5000, 200 * KIB):
        request = WORLD.Isend(pattern(size, RANK), NEXT, 77)
        status = MPI.Status()
        WORLD.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        check.that(status.Get_count(MPI.BYTE) == size, f"probe says {status.Get_count(MPI.BYTE)} for {size}")
        check.that((status.Get_source(), status.Get_tag()) == (PREVIOUS, 77), "probe names source and tag")
        check.that(WORLD.Iprobe(PREVIOUS, 77), "a probed message stays")
        check.that(not WORLD.Iprobe(PREVIOUS, 78), "a probe for another tag finds nothing")
        into = numpy.empty(size, numpy.uint8)
        WORLD.Recv(into, PREVIOUS, 77)
        check.same(into, pattern(size, PREVIOUS), f"probed message of {size} bytes")
        request.Wait()
    WORLD.Barrier()
    check.that(not WORLD.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "nothing is left over")


def matched_probes(check):
    """Mprobe and Improbe take messages in order; what they took may be received in another."""
    for size in (0, 5, 5000, 200 * KIB):
        into = numpy.empty(size, numpy.uint8)
        requests = [WORLD.Isend(pattern(size, i), NEXT, 78) for i in (1, 2)]
        first = WORLD.Mprobe(PREVIOUS, 78)
        second = None
        while second is None:
            second = WORLD.Improbe(PREVIOUS, 78)
        other = numpy.empty(size, numpy.uint8)
        second.Recv(other)
        pending = first.Irecv(into)
        pending.Wait()
        check.same(into, pattern(size, 1), f"first matched probe, {size} bytes")
        check.same(other, pattern(size, 2), f"second matched probe, {size} bytes")
        MPI.Request.Waitall(requests)
    WORLD.Barrier()
    check.that(not WORLD.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "nothing is left over")


def truncation(check):
    """A message longer than the receive is an error of the receiver, fills its buffer and harms nothing else."""
    for size, room in ((100, 10), (3000, 2999), (100 * KIB, KIB), (MIB, 0)):
        for early in (True, False):
            into = numpy.full(room + 16, 0xEE, numpy.uint8)
            window = into[:room]
            pending = WORLD.Irecv(window, PREVIOUS, 11) if early else None
            WORLD.Barrier()
            request = WORLD.Isend(pattern(size, RANK), NEXT, 11)
            error = None
            try:
                if pending:
                    pending.Wait()
                else:
                    WORLD.Probe(PREVIOUS, 11)
                    WORLD.Recv(window, PREVIOUS, 11)
            except MPI.Exception as exception:
                error = exception.Get_error_class()
            check.that(error == MPI.ERR_TRUNCATE, f"{size} into {room} bytes: error class {error}")
            check.same(into[room:], numpy.full(16, 0xEE, numpy.uint8), f"{size} into {room}: bytes behind the buffer")
            request.Wait()
            # The pair still works.
            tail = numpy.empty(100, numpy.uint8)
            WORLD.Sendrecv(pattern(100, RANK), NEXT, 12, tail, PREVIOUS, 12)
            check.same(tail, pattern(100, PREVIOUS), "message after a truncation")


def cancel(check):
    """A cancelled receive does not take a message that arrives later."""
    for size in (16, 64 * KIB):
        into, other = numpy.zeros(size, numpy.uint8), numpy.empty(size, numpy.uint8)
        request = WORLD.Irecv(into, PREVIOUS, 21)
        request.Cancel()
        status = MPI.Status()
        request.Wait(status)
        check.that(status.Is_cancelled(), "the receive is cancelled")
        WORLD.Barrier()
        WORLD.Sendrecv(pattern(size, RANK), NEXT, 21, other, PREVIOUS, 21)
        check.same(other, pattern(size, PREVIOUS), "the message went to the second receive")
        check.same(into, numpy.zeros(size, numpy.uint8), "the cancelled buffer is untouched")


def persistent(check):
    """Persistent requests, started again and again."""
    size = 10_000
    out, into = numpy.empty(size, numpy.uint8), numpy.empty(size, numpy.uint8)
    requests = [WORLD.Send_init(out, NEXT, 31), WORLD.Recv_init(into, PREVIOUS, 31)]
    for i in range(20):
        out[:] = pattern(size, RANK * 100 + i)
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        check.same(into, pattern(size, PREVIOUS * 100 + i), f"persistent round {i}")
    for request in requests:
        request.Free()


def floods(quick):
    """(messages, bytes each) of a flood."""
    return ((300, 64), (50, 20 * KIB)) if quick else ((5000, 64), (2000, 1500), (200, 100 * KIB), (20, MIB))


def unexpected(check):
    """Thousands of messages arrive before a single receive is posted: none may be lost."""
    for count, size in floods(check.quick):
        requests = [WORLD.Isend(pattern(size, RANK * 7 + i), NEXT, 41) for i in range(count)]
        # Looking for a message that never comes lets the library take in the flood.
        until = MPI.Wtime() + 0.3
        while MPI.Wtime() < until:
            if WORLD.Iprobe(PREVIOUS, 43):
                check.that(False, "a probe found a message of a tag that nobody sent")
                break
        into = numpy.empty(size, numpy.uint8)
        for i in range(count):
            WORLD.Recv(into, PREVIOUS, 41)
            check.same(into, pattern(size, PREVIOUS * 7 + i), f"unexpected message {i} of {count}, {size} bytes")
        MPI.Request.Waitall(requests)


def overtake(check):
    """A message behind an unreceived flood can be received first: MPI's progress rule knows no full buffers."""
    for count, size in floods(check.quick):
        requests = [WORLD.Isend(pattern(size, RANK * 7 + i), NEXT, 44) for i in range(count)]
        mark = numpy.empty(8, numpy.uint8)
        requests.append(WORLD.Isend(pattern(8, RANK), NEXT, 45))
        WORLD.Recv(mark, PREVIOUS, 45)
        check.same(mark, pattern(8, PREVIOUS), f"message behind a flood of {count} times {size} bytes")
        into = numpy.empty(size, numpy.uint8)
        for i in range(count):
            WORLD.Recv(into, PREVIOUS, 44)
            check.same(into, pattern(size, PREVIOUS * 7 + i), f"overtaken message {i} of {count}, {size} bytes")
        MPI.Request.Waitall(requests)


def flood_one(check):
    """All ranks flood rank 0, which is slow to look."""
    count = 100 if check.quick else 1000
    if RANK:
        requests = [WORLD.Isend(pattern(512, RANK * 10_000 + i), 0, 51) for i in range(count)]
        MPI.Request.Waitall(requests)
    else:
        into = numpy.empty(512, numpy.uint8)
        for source in range(SIZE - 1, 0, -1):
            for i in range(count):
                WORLD.Recv(into, source, 51)
                check.same(into, pattern(512, source * 10_000 + i), f"flood from {source}, message {i}")
    WORLD.Barrier()


def posted(check):
    """Many receives posted ahead, with and without wildcards, filled in the order posted."""
    count = 100 if check.quick else 1000
    size = 700
    into = numpy.empty((count, size), numpy.uint8)
    requests = [
        WORLD.Irecv(into[i], MPI.ANY_SOURCE if i % 3 == 0 else PREVIOUS, MPI.ANY_TAG if i % 5 == 0 else 61)
        for i in range(count)
    ]
    WORLD.Barrier()
    for i in range(count):
        WORLD.Send(pattern(size, RANK * 100_000 + i), NEXT, 61)
    MPI.Request.Waitall(requests)
    for i in range(count):
        check.same(into[i], pattern(size, PREVIOUS * 100_000 + i), f"posted receive {i}")


def everyone(check):
    """Every rank to every rank at once, both directions in flight, mixed sizes, several rounds."""
    lengths = [1, 300, 5000, 66_000, 700_000]
    for turn in range(2 if check.quick else 6):
        requests, blocks = [], []
        for length in lengths:
            for peer in range(SIZE):
                block = numpy.empty(length, numpy.uint8)
                blocks.append((peer, length, block))
                requests.append(WORLD.Irecv(block, peer, length % 30_000))
        for length in lengths:
            requests += [
                WORLD.Isend(pattern(length, RANK * 100 + peer + turn), peer, length % 30_000) for peer in range(SIZE)
            ]
        MPI.Request.Waitall(requests)
        for peer, length, block in blocks:
            check.same(block, pattern(length, peer * 100 + RANK + turn), f"from {peer}, {length} bytes, turn {turn}")


def derived(check):
    """Messages of non-contiguous types: strided columns, indexed blocks, structures of holes."""
    rows, columns = 128, 96
    matrix = numbers_matrix(rows, columns, RANK)
    column = MPI.DOUBLE.Create_vector(rows, 3, columns).Commit()
    into = numpy.zeros((rows, columns))
    WORLD.Sendrecv([matrix, 1, column], NEXT, 71, [into, 1, column], PREVIOUS, 71)
    want = numpy.zeros((rows, columns))
    want[:, :3] = numbers_matrix(rows, columns, PREVIOUS)[:, :3]
    check.same(into, want, "three columns of a matrix")
    column.Free()

    lengths = [(i % 5) + 1 for i in range(2000)]
    places = [i * 8 for i in range(2000)]
    blocks = MPI.INT.Create_indexed(lengths, places).Commit()
    source = numpy.arange(16_000, dtype=numpy.intc) + RANK
    target = numpy.full(16_000, -1, numpy.intc)
    WORLD.Sendrecv([source, 1, blocks], NEXT, 72, [target, 1, blocks], PREVIOUS, 72)
    want = numpy.full(16_000, -1, numpy.intc)
    for length, place in zip(lengths, places):
        want[place : place + length] = numpy.arange(place, place + length) + PREVIOUS
    check.same(target, want, "indexed blocks")
    blocks.Free()

    # Packed at one end, strided at the other.
    every_other = MPI.BYTE.Create_vector(50_000, 1, 2).Commit()
    target = numpy.zeros(100_000, numpy.uint8)
    WORLD.Sendrecv(pattern(50_000, RANK), NEXT, 73, [target, 1, every_other], PREVIOUS, 73)
    check.same(target[::2], pattern(50_000, PREVIOUS), "contiguous into strided")
    check.that(not target[1::2].any(), "the holes stay untouched")
    every_other.Free()


def numbers_matrix(rows, columns, seed):
    return numpy.arange(rows * columns, dtype=numpy.float64).reshape(rows, columns) + seed * 1e6


def objects(check):
    """mpi4py's pickled messages: a probe and a receive of unknown size behind one call."""
    thing = {"rank": RANK, "list": list(range(500 * (RANK + 1))), "text": "squall" * 1000}
    got = WORLD.sendrecv(thing, NEXT, 81, None, PREVIOUS, 81)
    check.that(got["rank"] == PREVIOUS and len(got["list"]) == 500 * (PREVIOUS + 1), "pickled object")
    check.that(got["text"] == "squall" * 1000, "pickled text")


if __name__ == "__main__":
    Checks("pt2pt").run(
        ring,
        blocking,
        self_messages,
        wildcards,
        tags,
        order,
        probes,
        matched_probes,
        truncation,
        cancel,
        persistent,
        unexpected,
        overtake,
        flood_one,
        posted,
        everyone,
        derived,
        objects,
    )
