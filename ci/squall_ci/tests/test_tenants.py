"""Tests of how `ci/run suite tenants` reads captures and judges shares and times."""

import pathlib
import struct
import tempfile
import unittest

from squall_ci.suites import tenants
from squall_ci.suites.tenants import judge_settling, judge_shares, Packets, settled, slow_motion, Two

SIZE = 1064
RTT = 0.01
# 25 packets a round trip.
HALF = 25 * SIZE * 8 / RTT


def at_rates(*parts: tuple[float, float, float]) -> Packets:
    """Returns evenly spaced packets for each part: begin (s), end (s), and the rate as a share of half the line."""
    times = []
    for begin, end, share in parts:
        gap = RTT / 25 / share
        times += [begin + n * gap for n in range(int((end - begin) / gap))]
    return Packets(times, [1] * len(times), [SIZE] * len(times))


class Settling(unittest.TestCase):
    def test_from_when_on_both_have_half(self) -> None:
        first = at_rates((0.0, 0.505, 2.0), (0.505, 1.5, 1.0))
        second = at_rates((0.495, 0.510, 2.0), (0.510, 1.4, 1.0))
        when = settled([first, second], 0.5, RTT, HALF)
        assert when is not None
        # One packet of 25 may be left of the time at twice the rate.
        self.assertAlmostEqual(when, 1.0, delta=0.15)

    def test_never_where_one_keeps_more(self) -> None:
        first, second = at_rates((0.0, 1.5, 1.25)), at_rates((0.5, 1.5, 0.75))
        self.assertIsNone(settled([first, second], 0.5, RTT, HALF))

    def test_a_short_pause_is_the_hosts_and_a_long_one_is_not(self) -> None:
        second = at_rates((0.5, 1.5, 1.0))
        short = at_rates((0.0, 0.6, 1.0), (0.603, 1.5, 1.0))
        self.assertEqual(settled([short, second], 0.5, RTT, HALF), 0.0)
        long = at_rates((0.0, 0.6, 1.0), (0.630, 1.5, 1.0))
        when = settled([long, second], 0.5, RTT, HALF)
        assert when is not None
        self.assertGreater(when, 10.0)

    def test_bounds(self) -> None:
        self.assertIsNone(judge_settling(Two(RTT, 0.6, 100.0, ""), 0.0, 2.0))
        self.assertEqual(judge_settling(Two(RTT, 2.1, 100.0, ""), 0.0, 2.0), "2.1 round trips, expected 0 to 2")
        self.assertIsNotNone(judge_settling(Two(RTT, None, 100.0, ""), 0.0, 2.0))
        self.assertIsNone(judge_settling(Two(RTT, None, 100.0, ""), 20.0, float("inf")))
        self.assertIsNotNone(judge_settling(Two(RTT, None, 10.0, ""), 20.0, float("inf")))
        self.assertIsNotNone(judge_settling(Two(RTT, 19.0, 100.0, ""), 20.0, float("inf")))


class Shares(unittest.TestCase):
    def test_each_scope_has_its_bounds(self) -> None:
        fair = {1: 0.5, 2: 2 / 3, 4: 0.8, 8: 8 / 9}
        even = dict.fromkeys(fair, 0.5)
        between = {k: (fair[k] + even[k]) / 2 for k in fair if k > 1}
        shares = {"flow": fair, "destination": even, "destination-unsplit": between}
        for scope in tenants.SCOPES:
            self.assertIsNone(judge_shares(scope, shares))
            far = shares | {scope: dict.fromkeys(shares[scope], 0.3)}
            self.assertIn("0.30 of 8", judge_shares(scope, far) or "")
        self.assertIsNotNone(judge_shares("destination", shares | {"destination": fair}))
        self.assertIsNotNone(judge_shares("flow", shares | {"flow": even}))


class Captures(unittest.TestCase):
    def test_long_packets_since_a_time_are_read_and_a_cut_one_is_not(self) -> None:
        def packet(when: float, port: int, payload: int) -> bytes:
            length = 28 + payload
            seconds, rest = int(when), round(when % 1 * 1e9)
            head = struct.pack("<IIII", seconds, rest, length, length)
            return head + bytes(20) + struct.pack(">HHHH", port, 9, 8 + payload, 0) + bytes(payload)

        packets = packet(1.5, 7, 1000) + packet(2.25, 7, 1016) + packet(2.5, 7, 60) + packet(3.0, 8, 1016)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "capture"
            path.write_bytes(bytes(24) + packets + packet(4.0, 8, 1016)[:-1])
            found = Packets.read(path, 2.0)
        self.assertEqual((found.times, found.ports, found.sizes), ([2.25, 3.0], [7, 8], [1064, 1064]))
        self.assertEqual(found.rate(2.0, 3.0), 8 * 1064)


class Names(unittest.TestCase):
    def test_times_get_longer(self) -> None:
        self.assertEqual(slow_motion("dcqcn:vendor=1", 250, {"cnp_interval_us": 4.0}), "dcqcn:vendor=1,cnp_interval_us=1000")
        self.assertEqual(slow_motion("dart", 2, {"increase_period_us": 55.0}), "dart:increase_period_us=110")
