"""What `ci/run suite fuzz` plays, and what it makes of the answer."""

import unittest

from squall_ci.suites.fuzz import findings, SHARE, shares


class Fuzz(unittest.TestCase):
    def test_shares_cover_all_histories_once(self) -> None:
        for histories in (1, SHARE, SHARE + 1, 3 * SHARE):
            parts = shares(7, histories)
            self.assertEqual(sum(count for _, count in parts), histories)
            self.assertEqual([at for at, _ in parts], [7 + SHARE * n for n in range(len(parts))])

    def test_findings_are_the_lines_that_count(self) -> None:
        output = "on-path: 5 histories\n2 x stuck: read (first seed 3)\n12 x panic at a.rs:1 (first seed 4)\n"
        self.assertEqual(len(findings(output)), 2)
        self.assertEqual(findings("honest: 5 histories from seed 0, 3 a second\n"), [])
