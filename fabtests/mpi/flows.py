"""Flows from rank to rank that begin and end at given times.

    mpiexec -n N python flows.py FOLDER FLOW..

Jobs that are to keep the same time share a folder: each leaves a file `ready-PID` there, and waits for one called `begin`, with the
time of the host's monotonic clock (Python's time.monotonic()) from which the times of flows count. A FLOW is JSON: {"from": 0, "to": 1, "at": 0.5, "bytes": 65536} sends one message of so many bytes at
half a second; with "until": 2.0 it goes on with messages of that length, WINDOW of them at a time, until then. Every message is
compared, a sample of its bytes and its end.

Prints one line, `flows: {json}`: for each flow the messages that arrived, their bytes, and when the first and the last was there
(seconds since that time).
"""

import json
import os
import pathlib
import sys
import time

import numpy
from mpi4py import MPI

WINDOW = 8
# From one byte that is compared to the next: a prime, so that every offset in a packet comes to be.
STRIDE = 509

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
folder = pathlib.Path(sys.argv[1])
flows = [json.loads(text) for text in sys.argv[2:]]


def now():
    return time.monotonic() - origin


def beginning():
    """The time from which others count, too, once they say so."""
    (folder / f"ready-{os.getpid()}").touch()
    while not (folder / "begin").exists():
        time.sleep(0.002)
    return float((folder / "begin").read_text())


def pattern(flow):
    return ((numpy.arange(flow["bytes"], dtype=numpy.uint64) * 2654435761 + flow["from"]) % 251).astype(numpy.uint8)


class Sending:
    """A flow at its source. An empty message is its end."""

    def __init__(self, tag, flow):
        self.tag, self.flow = tag, flow
        self.data = pattern(flow)
        self.sent = 0
        self.pending = []
        self.ended = False

    def is_early(self):
        return now() < self.flow["at"]

    def is_over(self):
        return self.ended and not self.pending

    def go_on(self):
        """Begins what may begin."""
        while not self.ended and len(self.pending) < WINDOW:
            self.ended = now() >= self.flow["until"] if "until" in self.flow else self.sent > 0
            part = self.data[:0] if self.ended else self.data
            self.pending.append(comm.Isend(part, self.flow["to"], self.tag))
            self.sent += not self.ended

    def requests(self):
        return self.pending

    def completed(self, request, _status):
        self.pending = [other for other in self.pending if other is not request]


class Receiving:
    """A flow at its destination."""

    def __init__(self, tag, flow):
        self.tag, self.flow = tag, flow
        self.expected = pattern(flow)
        depth = WINDOW if "until" in flow else 2
        self.room = [numpy.empty(flow["bytes"], dtype=numpy.uint8) for _ in range(depth)]
        self.posted = [comm.Irecv(buffer, flow["from"], tag) for buffer in self.room]
        self.oldest = 0
        self.messages = self.wrong = 0
        self.first = self.last = None

    def is_early(self):
        return False

    def is_over(self):
        return not self.posted

    def go_on(self):
        pass

    def requests(self):
        # Messages of one source arrive in order.
        return [self.posted[self.oldest]]

    def completed(self, _request, status):
        if status.Get_count(MPI.BYTE) == 0:
            self.end()
            return
        buffer = self.room[self.oldest]
        self.wrong += not numpy.array_equal(buffer[::STRIDE], self.expected[::STRIDE])
        self.wrong += bool(buffer[-1] != self.expected[-1])
        buffer[::STRIDE] = 255
        self.messages += 1
        self.last = now()
        self.first = self.last if self.first is None else self.first
        self.posted[self.oldest] = comm.Irecv(buffer, self.flow["from"], self.tag)
        self.oldest = (self.oldest + 1) % len(self.room)

    def end(self):
        """Nothing more comes for the receives that are left."""
        for at, request in enumerate(self.posted):
            if at != self.oldest:
                request.Cancel()
                request.Wait()
        self.posted = []

    def result(self):
        return {
            "messages": self.messages,
            "bytes": self.messages * self.flow["bytes"],
            "first": self.first,
            "last": self.last,
            "wrong": self.wrong,
        }


def meet():
    """Every source and its destination know each other before the first flow begins."""
    for tag, flow in numbered:
        if flow["from"] == rank:
            comm.send(None, flow["to"], len(flows) + tag)
        if flow["to"] == rank:
            comm.recv(source=flow["from"], tag=len(flows) + tag)
    comm.Barrier()


def play(under_way):
    """Until all flows are over. Whoever has nothing to begin later waits in MPI, which leaves the processor to others."""
    status = MPI.Status()
    while under_way:
        early = [flow for flow in under_way if flow.is_early()]
        going = [flow for flow in under_way if not flow.is_early()]
        for flow in going:
            flow.go_on()
        waits = [(request, flow) for flow in going for request in flow.requests()]
        requests = [request for request, _ in waits]
        if not requests:
            time.sleep(max(0.0, min(flow.flow["at"] for flow in early) - now()))
            continue
        if early:
            at, done = MPI.Request.Testany(requests, status)
        else:
            at, done = MPI.Request.Waitany(requests, status), True
        if done:
            waits[at][1].completed(waits[at][0], status)
        under_way = [flow for flow in under_way if not flow.is_over()]


numbered = list(enumerate(flows))
receiving = [Receiving(tag, flow) for tag, flow in numbered if flow["to"] == rank]
sending = [Sending(tag, flow) for tag, flow in numbered if flow["from"] == rank]
meet()
origin = comm.bcast(beginning() if rank == 0 else None)
play([*receiving, *sending])
found = comm.gather([(flow.tag, flow.result()) for flow in receiving], 0)
if rank == 0:
    results = dict(pair for part in found for pair in part)
    print("flows: " + json.dumps([results[tag] for tag, _ in numbered]), flush=True)
    if any(result["wrong"] for result in results.values()):
        comm.Abort(1)
comm.Barrier()
