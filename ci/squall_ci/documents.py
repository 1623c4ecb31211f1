"""The documents' fenced blocks, and a copy of the sources in which their commands are run."""

import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass

from squall_ci.paths import ROOT


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    heading: str
    # `sh`, `toml`, ..
    kind: str
    # The file's, where one stands behind the kind.
    name: str
    text: str

    def commands(self) -> list[str]:
        """Its commands: a line each, with those that a backslash continues; without comments that stand alone. A block of
        Python is one: it is run as the file that it names."""
        if self.kind == "python":
            return [f"python3 {self.name}"]
        lines = re.sub(r"\s*\\\n\s*", " ", self.text).splitlines()
        return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found = []
    heading = ""
    for match in re.finditer(r"^##+ ([^\n]*)$|^```(\w*) ?([\w./-]*)\n(.*?)^```$", text, re.M | re.S):
        if match[1] is not None:
            heading = match[1]
        else:
            found.append(Block(heading, match[2], match[3], match[4]))
    return found


def copy_sources(tree: pathlib.Path) -> None:
    """The last commit's files, and nothing else, in `tree`."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x"], cwd=tree, input=archive.stdout, check=True)
