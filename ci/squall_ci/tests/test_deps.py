"""Finding the dependencies that no source of a crate uses."""

import pathlib
import tempfile
import unittest
from typing import Any

from squall_ci.checks.deps import sources, unused_dependencies

FILES = {
    "src/lib.rs": "use ::in_use;\n/// A file of the crate `in-words`, in_words.\nfn parse() -> a_path::Error {}\n",
    "tests/whole.rs": "use renamed::Thing;\n",
    "build.rs": "fn main() { of_build::generate(); }\n",
    "README.md": "```\nuse of_readme::Example;\n```\n",
    "elsewhere/notes.rs": "use planted::Thing;\n",
    "inner/src/lib.rs": "use planted::Thing;\n",
}


def package(root: pathlib.Path, dependencies: list[str]) -> dict[str, Any]:
    """Returns cargo's metadata of a package that has FILES and these dependencies."""
    return {
        "manifest_path": str(root / "Cargo.toml"),
        "targets": [{"src_path": str(root / name)} for name in ("src/lib.rs", "tests/whole.rs", "build.rs")],
        "dependencies": [{"name": name, "rename": "renamed" if name == "original" else None} for name in dependencies],
    }


class Unused(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def test_a_planted_dependency_is_found(self) -> None:
        used = ["in-use", "a-path", "of-build", "of-readme", "original"]
        self.assertEqual(unused_dependencies(package(self.root, used), []), [])
        self.assertEqual(unused_dependencies(package(self.root, [*used, "planted"]), []), ["planted"])

    def test_a_word_of_a_comment_is_no_use(self) -> None:
        self.assertEqual(unused_dependencies(package(self.root, ["in-words"]), []), ["in-words"])

    def test_packages_inside_are_not_searched(self) -> None:
        outer = package(self.root, ["planted"])
        outer["targets"].append({"src_path": str(self.root / "inner/src/lib.rs")})
        self.assertEqual(unused_dependencies(outer, []), [])
        self.assertEqual(unused_dependencies(outer, [self.root, self.root / "inner"]), ["planted"])
        self.assertNotIn(self.root / "elsewhere/notes.rs", sources(outer, []))


if __name__ == "__main__":
    unittest.main()
