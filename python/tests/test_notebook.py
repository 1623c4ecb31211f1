"""The notebook runs from a clean start, and what is committed of it was executed."""

import pathlib
import tempfile
import unittest

import nbclient
import nbformat

NOTEBOOK = pathlib.Path(__file__).resolve().parent.parent / "sweep.ipynb"


class Notebook(unittest.TestCase):
    def test_it_runs_and_was_committed_executed(self) -> None:
        committed = nbformat.read(NOTEBOOK, as_version=4)
        code = [cell for cell in committed.cells if cell.cell_type == "code"]
        self.assertEqual([cell.execution_count for cell in code], list(range(1, len(code) + 1)))
        fresh = nbformat.from_dict(committed)
        with tempfile.TemporaryDirectory() as folder:
            nbclient.NotebookClient(fresh, timeout=300, resources={"metadata": {"path": folder}}).execute()
        again = [cell for cell in fresh.cells if cell.cell_type == "code"]

        def tables(cells: list[nbformat.NotebookNode]) -> list[str]:
            outputs = [output for cell in cells for output in cell.outputs if "data" in output]
            return [output.data["text/plain"] for output in outputs if "image/svg+xml" not in output.data]

        # A simulation is a function of its seed.
        self.assertEqual(tables(again), tables(code))
        self.assertTrue(any("image/svg+xml" in output.data for cell in again for output in cell.outputs if "data" in output))
