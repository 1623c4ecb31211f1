"""The recipes name the version of the workspace, and the packages contain the same files."""

import tomllib
import unittest

from squall_ci import packages
from squall_ci.packages import PACKAGING
from squall_ci.paths import ROOT


class Packages(unittest.TestCase):
    def test_recipes_and_changes_name_the_version_of_the_workspace(self) -> None:
        number = packages.version()
        for name, text in (
            ("spack/packages/squall/package.py", f'version("{number}"'),
            ("spack/packages/squall/package.py", f"squall-{number}.tar.gz"),
            ("conda/recipe.yaml", f'version: "{number}"'),
            ("container/Containerfile", f"squall_{number}-1_amd64.deb"),
            ("kubernetes/mpijob.yaml", f"squall:{number}"),
            (f"modulefiles/squall/{number}", f"/opt/squall-{number}"),
            ("README.md", f"squall-{number}-1.x86_64.rpm"),
            ("../python/README.md", f"squall-{number}-*.whl"),
            ("../CHANGELOG.md", f"\n## {number}\n"),
        ):
            with self.subTest(name):
                self.assertIn(text, (PACKAGING / name).read_text())

    def test_deb_and_rpm_have_the_same_files(self) -> None:
        metadata = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["metadata"]
        deb = {asset[0] for asset in metadata["deb"]["assets"] if isinstance(asset, list)}
        rpm = {asset["source"] for asset in metadata["generate-rpm"]["assets"]}
        self.assertEqual(deb, rpm)

    def test_versions_compare_by_number(self) -> None:
        self.assertLess(packages.numbers("2.9"), packages.numbers("2.28"))
