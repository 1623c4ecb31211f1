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
        named = {manifest["package"]["name"]: manifest.get("test", []) for manifest in manifests.values()}
        for mutant in mutants.read():
            with self.subTest(mutant.name):
                if mutant.proof in MODES:
                    continue
                crate, target, *names = mutant.proof.split()
                # The program `tests` has a module for each subject, by which a proof selects. Others may have a name of
                # their own.
                folder = directories[crate] / "tests"
                known = {"lib", *(test["name"] for test in named[crate]), *(file.stem for file in folder.glob("*.rs"))}
                self.assertIn(target, known)
                for module in (name.partition("::")[0] for name in names if target == "tests"):
                    files = (folder / f"{module}.rs", folder / module / "mod.rs")
                    self.assertTrue(any(file.is_file() for file in files), module)
