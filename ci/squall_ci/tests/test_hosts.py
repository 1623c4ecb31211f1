"""Tests of where suites put their processes, and of the page of results."""

import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from squall_ci import hosts, results
from squall_ci.suites import mpich
from squall_ci.tally import Tally


def row(conditions: str, provider: str = "tcp", failed: tuple[str, ...] = ()) -> results.Row:
    """Returns a row of MPICH's suite."""
    return results.Row("MPICH", "5", mpich.SUITE, provider, conditions, 1, failed, {}, "2026-01-01", "abc")


class Hosts(unittest.TestCase):
    def test_a_job_gets_as_many_hosts_as_it_has_ranks(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            chosen = pathlib.Path(directory) / "mpiexec"
            hosts.script(chosen, hosts.MPIEXEC.format(most=3, warning=hosts.SHARED_HOST_WARNING))
            for count in range(1, 4):
                hosts.script(pathlib.Path(f"{chosen}-{count}"), f'echo {count}: "$@"')
            for words, on in (["-n", "2", "./a", "x y"], 2), (["-n", "1", "./a"], 1), (["-n", "9", "./a"], 3), (["./a"], 3):
                said = subprocess.run([chosen, *words], capture_output=True, text=True, check=True, timeout=10).stdout
                self.assertEqual(said, f"{on}: {' '.join(words)}\n")

    def test_what_squall_says_of_a_shared_host_is_not_the_jobs(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            chosen = pathlib.Path(directory) / "mpiexec"
            hosts.script(chosen, hosts.MPIEXEC.format(most=1, warning=hosts.SHARED_HOST_WARNING))
            known = "squall: FI_SQUALL_PORT_KIND=xdp: 10.0.0.1:1 keeps its sockets: busy (another endpoint of this host, or"
            other = "squall: FI_SQUALL_PORT_KIND=xdp: 10.0.0.1:1 keeps its sockets: no CAP_NET_RAW"
            hosts.script(pathlib.Path(f"{chosen}-1"), f"echo '{known}' >&2; echo '{other}' >&2; exit 3")
            ran = subprocess.run([chosen, "-n", "1"], capture_output=True, text=True, timeout=10)
            self.assertEqual((ran.returncode, ran.stderr), (3, f"{other}\n"))

    def test_frames_have_to_show_where_they_are_asked_for(self) -> None:
        with mock.patch.dict(os.environ, {"FI_SQUALL_PORT_KIND": "xdp"}):
            self.assertEqual((hosts.shows(True), hosts.shows(False)), (("tx_xdp_packets",), ()))
        with mock.patch.dict(os.environ, {"FI_SQUALL_PORT_KIND": "udp"}):
            self.assertEqual(hosts.shows(True), ())


class Results(unittest.TestCase):
    def test_what_fails_on_tcp_is_looked_up_by_where_processes_were(self) -> None:
        rows = [
            row("SHM=no", failed=("one",)),
            row("all" + hosts.conditions(True), failed=("two",)),
            row("x", "squall", ("me",)),
        ]
        with mock.patch.object(results, "load", lambda: rows):
            self.assertEqual(mpich.known("5", False), {"one"})
            self.assertEqual(mpich.known("5", True), {"one", "two"})
            self.assertEqual(mpich.known("4", True), set())

    def test_failures_are_named_below_the_table(self) -> None:
        page = results.render([row("SHM=no", failed=("one", "two"))])
        self.assertIn("Failed:\n\n- MPICH, test/mpi on tcp, SHM=no: `one`, `two`\n", page)
        self.assertNotIn("`one`", page.partition("Failed:")[0])
        self.assertNotIn("Failed:", results.render([row("SHM=no")]))

    def test_conditions_are_columns_and_builds_with_local_changes_have_no_cells(self) -> None:
        rows = [
            row("2 processes, SHM=no", "squall"),
            dataclasses.replace(row("3 processes, SHM=no", "squall"), passed=7),
            row("2 processes, PORT_KIND=xdp, SHM=no, a host each", "squall"),
            dataclasses.replace(row("2 processes, SHM=yes", "squall"), commit="abc-dirty"),
            row("2 processes, SHM=no", failed=("one",)),
            dataclasses.replace(row("2 processes, SHM=no, osc/rdma", "squall", ("one",)), commit="abc-dirty"),
        ]
        page = results.render(rows)
        self.assertIn("| MPICH | test/mpi (5) | 1; 7 |   |   |   | 1 | 1, 1 failed |\n", page)
        self.assertIn("changes alone:\n\n- MPICH, test/mpi, osc/rdma (5): 1, 1 failed\n", page)
        self.assertEqual(page.count("osc/rdma"), 1)

    def test_the_page_is_made_of_the_recorded_rows(self) -> None:
        page = results.SHOWN.read_text()
        self.assertTrue(page == results.with_results(page, results.load()), "README.md differs: run ci/run python --fix")

    def test_a_later_outcome_replaces_the_earlier_one(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            kept, shown = pathlib.Path(directory) / "results.json", pathlib.Path(directory) / "README.md"
            kept.write_text(json.dumps([dataclasses.asdict(row("SHM=no"))]))
            shown.write_text(f"before\n{results.BEGIN}{results.END}\nafter\n")
            with mock.patch.multiple(results, KEPT=kept, SHOWN=shown):
                tally = Tally(quiet=True)
                tally.add("a", None)
                tally.add("b", None)
                for conditions in ("SHM=no", "SHM=yes"):
                    results.record("MPICH", mpich.SUITE, "tcp", conditions, tally, version="5")
                rows = results.load()
                self.assertEqual([(row.conditions, row.passed) for row in rows], [("SHM=no", 2), ("SHM=yes", 2)])
                self.assertIsNotNone(rows[0].seconds)
                page = f"before\n{results.BEGIN}{results.render(rows)}{results.END}\nafter\n"
                self.assertEqual(shown.read_text(), page)
