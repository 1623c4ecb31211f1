"""Finding the dependencies that no source of a crate uses, and imports against the order of rooms."""

import pathlib
import re
import tempfile
import unittest
from typing import Any

from squall_ci.checks.deps import sources, unused_dependencies
from squall_ci.paths import ROOT
from squall_ci.rooms import graph, largest_circle, Module, room_breaches, ROOMS, UPWARDS

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


ROOM_FILES = {
    "lib.rs": "mod abi;\n",
    "abi/mod.rs": "pub(crate) mod errno;\n",
    "abi/errno.rs": "// crate::endpoint::poller is of no room below.\n",
    "host/mod.rs": "pub(crate) mod param;\n",
    "host/param.rs": "use crate::abi::{self, errno::Errno};\n#[cfg(test)]\nmod tests {\n    use crate::endpoint;\n}\n",
    "endpoint/mod.rs": "mod poller;\nfn serve() { poller::turn(); }\n",
    "endpoint/poller.rs": "use super::Endpoint;\nfn turn() { crate::host::param::params(); }\n",
    "time/src/lib.rs": "use crate::clocks;\n",
}


class Rooms(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        for name, text in ROOM_FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def edges(self, **planted: str) -> dict[Module, set[Module]]:
        """Returns the imports, with a line planted into each of these files of abi/."""
        for name, line in planted.items():
            (self.root / "abi" / f"{name}.rs").write_text(line)
        return graph(self.root)

    def wrong_imports(self, **planted: str) -> list[str]:
        return [breach for breach in room_breaches(self.edges(**planted)) if "exception" not in breach]

    def test_imports_are_read(self) -> None:
        self.assertEqual(
            self.edges(),
            {
                ("abi",): set(),
                ("abi", "errno"): set(),
                ("host",): set(),
                ("host", "param"): {("abi",), ("abi", "errno")},
                ("endpoint",): {("endpoint", "poller")},
                ("endpoint", "poller"): {("endpoint",), ("host", "param")},
            },
        )

    def test_imports_of_rooms_below_are_allowed(self) -> None:
        self.assertEqual(self.wrong_imports(), [])

    def test_a_planted_import_of_a_room_above_is_found(self) -> None:
        for line in (
            "use crate::endpoint::poller;",
            "use crate::{abi, endpoint::{poller as p}};",
            "fn f() { crate::endpoint::poller::turn() }",
        ):
            self.assertEqual(self.wrong_imports(errno=line), ["abi::errno imports endpoint::poller, a room above its own"])

    def test_a_room_that_is_not_in_the_table_is_found(self) -> None:
        (self.root / "attic.rs").write_text("")
        self.assertEqual(len(self.wrong_imports()), 1)

    def test_an_exception_that_nothing_needs_is_found(self) -> None:
        self.assertEqual(len(room_breaches(self.edges())), len(UPWARDS))

    def test_the_table_of_the_document_has_the_same_order(self) -> None:
        page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
        section = page.partition("## The rooms of the provider")[2].partition("\n## ")[0]
        cells = re.findall(r"^\| (`[^|]*) \|", section, re.M)
        rooms = [room.removesuffix("/").removesuffix(".rs") for cell in cells for room in re.findall(r"`([^`]+)`", cell)]
        self.assertEqual(rooms, ROOMS)

    def test_the_largest_circle_is_found(self) -> None:
        self.assertEqual(largest_circle(self.edges()), {("endpoint",), ("endpoint", "poller")})
        circle = largest_circle(self.edges(errno="use crate::endpoint;"))
        self.assertEqual(circle, {("abi", "errno"), ("host", "param"), ("endpoint",), ("endpoint", "poller")})


if __name__ == "__main__":
    unittest.main()
