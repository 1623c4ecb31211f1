"""Check that every `unsafe` has a reason of its own.

Reads the Rust sources of the directories (by default provider/ and net/), tests and macros included. clippy refuses an unsafe
block or impl without a comment `// SAFETY:` (undocumented_unsafe_blocks). Here such a comment must not be a phrase that
would fit any block ("as above", "the caller's promise", "an open endpoint"), nor shorter than a sentence. An unsafe function
that Rust calls needs a `# Safety` section in its documentation, unless a trait has it. Prints a line for each breach; the
exit status is 1 when there is one.
"""

import argparse
import itertools
import pathlib
import re
from collections.abc import Iterator

from squall_ci.paths import need, ROOT, shown

DIRECTORIES = ("provider", "net")

# Phrases that say nothing about their block.
EMPTY = re.compile(
    r"\bas (above|below|before|in)\b|\bsee above\b|\bsame (as|reason)\b|\bcaller(s'|'s) (promise|contract|duty|word)s?\b"
    r"|\btrivially\b|\bobviously\b",
    re.IGNORECASE,
)
# Whole reasons such as "An open endpoint.", "Valid pointers." and "fi_send(3).".
BARE = re.compile(r"(an?|the)? ?(open|valid|live) [\w ]+|[\w/]+\(\d\)", re.IGNORECASE)
# Fewer words cannot name the pointer, the promise and the bound.
FEWEST_WORDS = 8
FUNCTION = re.compile(r"(pub(\([\w: ]+\))? )?(const )?unsafe fn \w")


def reasons(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the line number and the text of every comment `// SAFETY:`."""
    for at, line in enumerate(lines):
        if line.lstrip().startswith("// SAFETY:"):
            comment = itertools.takewhile(lambda line: line.lstrip().startswith("//"), lines[at:])
            yield at + 1, " ".join(part.strip(" /") for part in comment).removeprefix("SAFETY:").strip()


def sections(lines: list[str]) -> Iterator[tuple[int, str | None]]:
    """Yields the line number of every unsafe function that no trait documents, and its `# Safety` section, or None."""
    for at, line in enumerate(lines):
        if FUNCTION.match(line.lstrip()) and not in_trait_impl(lines, at):
            above = itertools.takewhile(lambda line: line.lstrip().startswith(("///", "#[")), reversed(lines[:at]))
            documentation = " ".join(part.strip(" /") for part in reversed(list(above)) if part.lstrip().startswith("/"))
            _, head, section = documentation.partition("# Safety")
            yield at + 1, section.strip() if head else None


def in_trait_impl(lines: list[str], at: int) -> bool:
    """Returns whether a line is in an impl of a trait. Code is formatted, so that the head is indented less."""

    def indent(line: str) -> int:
        return len(line) - len(line.lstrip())

    before = itertools.dropwhile(lambda line: not line.strip() or indent(line) >= indent(lines[at]), reversed(lines[:at]))
    head = list(itertools.takewhile(str.strip, before))
    return re.search(r"\bimpl\b.*\bfor\b", " ".join(reversed(head))) is not None


def problem_of_reason(reason: str) -> str | None:
    """Returns what is wrong with a reason, or None."""
    if phrase := EMPTY.search(reason):
        return f"the reason says {phrase[0]!r}: which pointer, whose promise, what bound?"
    if BARE.fullmatch(reason.rstrip(".")) or len(reason.split()) < FEWEST_WORDS:
        return f"the reason would fit any block: {reason!r}"
    return None


def problem_of_section(section: str | None) -> str | None:
    """Returns what is wrong with a section, or None. `As [f].` is a link there, and enough."""
    if section is None:
        return "an unsafe function without a section `# Safety`"
    return None if section else "an empty section `# Safety`"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directories", nargs="*", metavar="DIRECTORY", type=pathlib.Path, help="instead of provider and net")


def main(args: argparse.Namespace) -> int:
    directories = args.directories or [ROOT / name for name in DIRECTORIES]
    files = sorted(path for directory in directories for path in directory.rglob("*.rs"))
    need(files, "no Rust sources found")
    breaches = given = functions = 0
    for path in files:
        lines = path.read_text().splitlines()
        found = [(line, problem_of_reason(reason)) for line, reason in reasons(lines)]
        given += len(found)
        documented = [(line, problem_of_section(section)) for line, section in sections(lines)]
        functions += len(documented)
        for line, problem in found + documented:
            if problem:
                breaches += 1
                print(f"{shown(path)}:{line}: {problem}")
    print(f"{len(files)} files, {given} reasons, {functions} unsafe functions, {breaches} breaches")
    return 1 if breaches else 0
