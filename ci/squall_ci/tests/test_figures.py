"""Tests of the way from a benchmark's samples to the tables of README.md and docs/performance.md."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import tempfile
import unittest
from collections.abc import Iterator
from unittest import mock

from squall_ci import figures
from squall_ci.benchmarks import mpi, networks, perf
from squall_ci.paths import ROOT
from squall_ci.rounds import conclude
from squall_ci.suites import netns


def lines(table: str) -> list[str]:
    """Returns the rows of a table of the recorded figures."""
    return figures.TABLES[table](figures.Reader("a page", figures.load())).splitlines()


@contextlib.contextmanager
def copies() -> Iterator[list[pathlib.Path]]:
    """Puts copies in the places of the file of figures and its pages, and yields the pages."""
    with tempfile.TemporaryDirectory() as directory:
        kept, *pages = copied = [pathlib.Path(directory) / path.name for path in (figures.KEPT, *figures.PAGES)]
        for path, copy in zip((figures.KEPT, *figures.PAGES), copied):
            copy.write_text(path.read_text())
        with mock.patch.multiple(figures, KEPT=kept, PAGES=pages, processor=lambda: "Z80"):
            yield pages


class Pages(unittest.TestCase):
    def test_the_tables_are_made_of_the_recorded_figures(self) -> None:
        found = []
        for page in figures.PAGES:
            text = page.read_text()
            found += [block[1] for block in figures.BLOCK.findall(text)]
            with self.subTest(page.name):
                same = text == figures.render(page.name, text, figures.load())
                self.assertTrue(same, f"{page.name} differs from docs/figures.json: run ci/run python --fix")
        self.assertEqual(sorted(found), sorted(figures.TABLES), "a table has lost the comments around it, or has them twice")

    def test_every_record_stands_in_a_table(self) -> None:
        self.assertEqual(figures.commands_shown(figures.load()), set(figures.load()))

    def test_a_figure_that_is_missing_is_an_error_and_no_empty_cell(self) -> None:
        records = figures.load()
        rest = {key: value for key, value in records["bench host"].figures.items() if not key.endswith("shm")}
        for changed, missing in (
            (
                records | {"bench host": dataclasses.replace(records["bench host"], figures=rest)},
                "'64 B half round trip, us, shm'",
            ),
            (
                {command: record for command, record in records.items() if command != "bench host"},
                "'64 B half round trip, us, squall'",
            ),
        ):
            said = io.StringIO()
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(said):
                figures.render("README.md", (ROOT / "README.md").read_text(), changed)
            why = f"docs/figures.json has no figure {missing} of `bench host`; run ci/run bench host --record"
            self.assertEqual(said.getvalue(), f"ci: README.md cannot be written: {why}\n")


class Recording(unittest.TestCase):
    def conclude(self, command: str, measured: dict[str, float]) -> None:
        args = argparse.Namespace(record=True, quick=False, rounds=3)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            conclude(args, [], {command: measured})
        self.assertEqual(said.getvalue(), f"ci: recorded {command}\n")

    def test_samples_of_providers_become_rows(self) -> None:
        tested = perf.TABLES["host"]
        samples: perf.Samples = {
            measure.name: {side: [4.0 + at, 2.0 + at, None] for at, side in enumerate(tested.sides)}
            for measure in tested.measures
        }
        with copies() as pages:
            self.conclude("bench host", perf.figures_of(tested, samples))
            row = "| one host, shared memory: 64 B half round trip, us | 3 | 6 | shm 5 | `bench host`, `demo` |\n"
            self.assertIn(row, pages[0].read_text())
            self.assertIn("| 64 B half round trip, us | 3 | 4 | 5 | 6 |", lines("host"))
            self.assertRegex(lines("host")[-1], r"^\*Z80, \d+ cores, 3 rounds, tcp under \w+, 2\d{3}-\d\d-\d\d\.\*$")
            self.assertIn(lines("host")[-1], pages[1].read_text())
            self.assertIn('\n   "1 MiB bandwidth, GB/s, packets": 4.0,\n', figures.KEPT.read_text())

    def test_samples_of_networks_become_rows(self) -> None:
        plan = networks.words(networks.SIZES, False) + networks.costs(False)
        sides = {"squall": 100.04, "tcp": 50.0, networks.PORT: 80.0}
        samples = {
            who: [{word: value / 4 if who == "tcp" and word.startswith("lat:8192:") else value for word in plan}]
            for who, value in sides.items()
        }
        samples[networks.PORT] = [
            {word: value for word, value in samples[networks.PORT][0].items() if not word.startswith("cost")}
        ]
        with copies() as pages:
            self.conclude(figures.CABLES[1], networks.figures_of(plan, samples))
            row = next(line for line in pages[0].read_text().splitlines() if line.startswith("| 2 hosts, MTU 1500"))
            self.assertIn("| 0.47 | 0.12 at 8 KiB |", row)
            cells = next(line for line in lines("networks") if line.startswith("| 64 KiB |")).split("|")
            self.assertEqual((cells[3], cells[5]), (" 100, 50 ", " 100, 50 "))
            cells = next(line for line in lines("cables") if line.startswith("| unlimited 1500 |")).split("|")
            self.assertEqual((cells[3], cells[6], cells[7]), (" 100, 50 ", " 100, 50 ", " 80 "))

    def test_ratios_of_an_mpi_become_rows(self) -> None:
        ratios = {(name, size): value for name in mpi.IMB for size, value in ((8, 4.0), (64, 1.0))}
        with copies() as pages:
            for ranks, mtu in ((4, 0), (2, 1500)):
                self.conclude(figures.mpi_job("impi", ranks, mtu), mpi.figures_of(ratios))
            self.assertIn("| Intel MPI | 4 | 2.00 |" + " 2.00 (1.00) |" * len(figures.EVERYWHERE), lines("mpis"))
            self.assertRegex(pages[0].read_text(), r"MTU 1500 \| [\d.]+, [\d.]+, 2\.00 \| [\d.]+, [\d.]+, 1\.00 \|")

    def test_waits_of_a_job_become_a_row(self) -> None:
        streams = [{field: seconds for _, field in netns.WAITS} for seconds in (0.02, 0.0251, 4.0)]
        with copies(), contextlib.redirect_stderr(io.StringIO()):
            figures.record(5, {figures.NETNS: netns.figures_of({"squall": streams, "tcp": streams[2:]})})
            self.assertIn(" standstill, ms | 25.1 | 4000 |", "".join(lines("comparison")))

    def test_a_command_line_that_no_table_shows_is_reported(self) -> None:
        with copies(), contextlib.redirect_stderr(io.StringIO()) as said:
            figures.record(5, {"suite netns --mtu 1500 --rounds 5": {"longest standstill, ms, squall": 1.0}})
            self.assertIn("no table shows this command line", said.getvalue())

    def test_parts_and_other_settings_are_not_recorded(self) -> None:
        args = argparse.Namespace(record=True)
        for part, variables, why in (
            (True, {}, "a part of a suite is not recorded"),
            (False, {"FI_SQUALL_SHM": "no", "FI_SQUALL_CC": "swift"}, "nothing is recorded: FI_SQUALL_CC set"),
        ):
            said = io.StringIO()
            with (
                mock.patch.dict(os.environ, variables, clear=True),
                contextlib.redirect_stderr(said),
                self.assertRaises(SystemExit),
            ):
                figures.refuse_record(args, part)
            self.assertIn(why, said.getvalue())
        with mock.patch.dict(os.environ, {"FI_SQUALL_SHM": "no"}, clear=True):
            figures.refuse_record(args, False)

    def test_one_figure_stands_on_one_line(self) -> None:
        text = figures.KEPT.read_text()
        self.assertEqual(text, json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n")
