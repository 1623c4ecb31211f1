"""The package as a user has it: installed from its wheel."""

import json
import pathlib
import shlex
import subprocess
import tempfile
import unittest

import pandas
import pyarrow.parquet
import squall


class Package(unittest.TestCase):
    def test_a_simulation_is_a_data_frame(self) -> None:
        flows = squall.sim("star:9", "incast:8x64KiB", cc="swift", seed=3, sample=5)
        self.assertEqual(list(flows.bytes), [65536] * 8)
        self.assertEqual(flows.dst.nunique(), 1)
        self.assertTrue((flows.fct_us > 5).all() and flows.reason.isna().all())
        made = flows.attrs["provenance"]
        self.assertEqual((made["settings"]["transport.cc"], made["settings"]["seed"]), ("swift", "3"))
        self.assertEqual(flows.attrs["network"]["hosts"], 9)
        series = flows.attrs["series"]
        self.assertEqual(list(series.columns), ["kind", "name", "time_us", "value"])
        self.assertIn("queue", set(series.kind))
        # The command line gives the same.
        words = f"{squall.program()} sim -q --topo star:9 --load incast:8x64KiB --cc swift --seed 3 --format csv"
        said = subprocess.run(shlex.split(words), capture_output=True, text=True, check=True).stdout
        self.assertEqual(float(said.splitlines()[2].split(",")[5]), flows.fct_us[0])

    def test_options_are_those_of_the_command_line(self) -> None:
        flows = squall.sim("star:9", "incast:8x64KiB", no_trim=True, loss=["ooo", "rto"], no_ecn=False, end=None)
        settings = flows.attrs["provenance"]["settings"]
        self.assertEqual((settings["network.trimming"], settings["transport.loss"]), ("false", "ooo,rto"))

    def test_flows_that_do_not_finish_are_there_with_a_reason(self) -> None:
        flows = squall.sim("star:9", "incast:8x64MiB", end=100)
        self.assertTrue(flows.fct_us.isna().all() and flows.reason.notna().all())

    def test_what_makes_no_sense_is_said_in_the_programs_words(self) -> None:
        with self.assertRaisesRegex(squall.SquallError, "nscc"):
            squall.sim("star:9", "incast:8x64KiB", cc="nonsense")
        with self.assertRaisesRegex(squall.SquallError, "gone.toml"):
            squall.plan("gone")

    def test_an_experiment_is_a_row_a_run(self) -> None:
        runs = squall.plan("07-base-rtts", quick=True)
        self.assertTrue({"seed", "max_fct", "jain"} <= set(runs.columns) and len(runs) > 0)
        self.assertIn("topology.kind", runs.attrs["provenance"]["settings"])

    def test_parquet_is_the_table_of_csv_with_types(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            out = pathlib.Path(name)
            words = f"{squall.program()} plan run 07-base-rtts --quick --quiet --summary --parquet --out {out}"
            subprocess.run(shlex.split(words), stdout=subprocess.DEVNULL, check=True)
            for table in ("runs", "flows"):
                file = out / "07-base-rtts" / f"{table}.parquet"
                typed = pandas.read_parquet(file)
                pandas.testing.assert_frame_equal(
                    typed, pandas.read_csv(file.with_suffix(".csv"), comment="#"), check_dtype=False
                )
                self.assertEqual(str(typed.seed.dtype), "uint64")
                made = json.loads(pyarrow.parquet.read_metadata(file).metadata[b"provenance"])
                self.assertIn("topology.kind", made["settings"])
