"""Tests of the proof that one-sided communication of mpi4py's suite took the chosen way."""

import argparse
import contextlib
import io
import json
import pathlib
import unittest

from squall_ci.job import ONE_SIDED, Statistics
from squall_ci.namespaces import Namespaces
from squall_ci.suites import mpi4py


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    mpi4py.arguments(parser)
    return parser.parse_args(["tree", *words])


class OneSided(unittest.TestCase):
    def test_the_files_about_windows_have_to_show_it_where_it_was_asked_for(self) -> None:
        chosen = parsed("openmpi", "--osc", "rdma")
        for name in mpi4py.WINDOWS:
            self.assertEqual(mpi4py.proof(chosen, name), (0, ONE_SIDED))
            self.assertEqual(mpi4py.proof(parsed("openmpi"), name), (None, ()))
        self.assertEqual(mpi4py.proof(chosen, "p2p_buf"), (0, ()))
        self.assertEqual(mpi4py.proof(chosen, "info"), (None, ()))
        # Operations of a rank on itself need not cross the network.
        self.assertEqual(mpi4py.proof(parsed("openmpi", "--osc", "rdma", "--ranks", "1"), "rma"), (None, ()))

    def test_others_are_refused(self) -> None:
        for words in (("mpich",), ("ompi4",), ("impi",), ("openmpi", "tcp")):
            said = io.StringIO()
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                mpi4py.main(parsed(*words, "--osc", "rdma"))
            self.assertIn("--osc is for", said.getvalue())

    def test_a_counter_that_did_not_move_is_named(self) -> None:
        endpoint = {"tx_packets": 9, "rx_packets": 9, "rx_bytes": 900, "tx_writes": 3, "tx_reads": 2, "tx_atomics": 0}
        statistics = Statistics()
        where = pathlib.Path(statistics.env()["FI_SQUALL_STATS"].removeprefix("json:")).parent
        for number in range(2):
            (where / f"{number}.json").write_text(json.dumps(endpoint) + "\n")
        self.assertIsNone(statistics.verdict(2, 0))
        self.assertIsNone(statistics.verdict(2, 0, shows=("tx_writes", "tx_reads")))
        self.assertIn("tx_atomics", statistics.verdict(2, 0, shows=ONE_SIDED) or "")
        self.assertIn("tx_writes 6", statistics.summary())


class Hosts(unittest.TestCase):
    def test_every_host_of_open_mpi_has_a_name_of_its_own(self) -> None:
        network = Namespaces(["h0", "h1"])
        with network.prrte(["h0", "h1"]) as launch:
            words = launch(["mpiexec", "-n", "2", "program"])
            self.assertEqual(words[:4], ["ip", "netns", "exec", network.name("h0")])
            self.assertIn("--uts", words)
            self.assertEqual(words[words.index("--host") + 1], "h0:1,h1:1")
            remote = pathlib.Path(words[words.index("plm_ssh_agent") + 1])
            self.assertIn(f"h1) node={network.name('h1')} ;;", remote.read_text())
            self.assertIn('"$host"', remote.read_text())
        self.assertEqual(words[-3:], ["-n", "2", "program"])
