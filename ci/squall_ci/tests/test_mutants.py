"""Tests that the mutants fit the sources, and that their proofs exist."""

import tomllib
import unittest

from squall_ci.checks import mutants
from squall_ci.paths import ROOT
from squall_ci.suites.fuzz import MODES


class Mutants(unittest.TestCase):
    def test_every_mutant_fits_its_file_and_changes_it(self) -> None:
        all_mutants = mutants.read()
        self.assertGreaterEqual(len(all_mutants), 20)
        self.assertEqual(len(all_mutants), len({mutant.name for mutant in all_mutants}))
        for mutant in all_mutants:
            with self.subTest(mutant.name):
                text = (ROOT / mutant.file).read_text(encoding="utf-8")
                self.assertNotIn(mutants.apply(mutant, text), (None, text))

    def test_every_proof_is_a_mode_or_a_test_target(self) -> None:
        members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
        manifests = {ROOT / member: tomllib.loads((ROOT / member / "Cargo.toml").read_text()) for member in members}
        directories = {manifest["package"]["name"]: directory for directory, manifest in manifests.items()}
        for mutant in mutants.read():
            with self.subTest(mutant.name):
                if mutant.proof in MODES:
                    continue
                crate, target, *names = mutant.proof.split()
                # The program `tests` has a module for each subject, by which a proof selects.
                file = "main" if target == "tests" else target
                self.assertTrue(target == "lib" or (directories[crate] / "tests" / f"{file}.rs").is_file())
                for module in (name.partition("::")[0] for name in names if target == "tests"):
                    self.assertTrue((directories[crate] / "tests" / f"{module}.rs").is_file(), module)
