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
                crate, target = mutant.proof.split()[:2]
                self.assertTrue(target == "lib" or (directories[crate] / "tests" / f"{target}.rs").is_file())
