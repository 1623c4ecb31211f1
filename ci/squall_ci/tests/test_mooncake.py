"""Tests of what the suite reads from Mooncake's output."""

import unittest

from squall_ci import mooncake

LINE = "I1130 efa_context.cpp:228] EFA device (libfabric): rdmap0, domain: lo, fabric: 127.0.0.0/8, provider: {} (shared endpoint)"


class Transport(unittest.TestCase):
    def test_both_engines_have_to_name_squall(self) -> None:
        squall, rxd = LINE.format("squall"), LINE.format("udp;ofi_rxd")
        self.assertIsNone(mooncake.transport_problem(f"{squall}\n{squall}\n"))
        for output in ("", squall, f"{squall}\n{rxd}\n", f"{rxd}\n{rxd}\n", "TCP transport installed"):
            with self.subTest(output):
                self.assertIn("expected squall twice", mooncake.transport_problem(output) or "")

    def test_parts_follow_only_and_hosts(self) -> None:
        self.assertEqual(mooncake.chosen("", False), ["packets", "damaged packets", "shared memory"])
        self.assertEqual(mooncake.chosen("mooncake", True), ["packets", "damaged packets"])
        self.assertEqual(mooncake.chosen("^contents", False), [])
