"""Check that every `unsafe` has a reason of its own.

Reads the Rust sources of the directories (by default provider/ and net/), tests and macros included. An unsafe block or impl
needs a comment `// SAFETY:` right above the statement or item. An unsafe function that Rust calls needs a `# Safety` section
in its documentation, unless a trait has it. A reason must not be a phrase that would fit any block ("as above", "the
caller's promise", "an open endpoint"), nor shorter than a sentence. Prints a line for each breach; the exit status is 1 when
there is one.
"""

import argparse
import pathlib
import re
from dataclasses import dataclass

from squall_ci.paths import need, ROOT, shown
from squall_ci.rust_source import blanked

DIRECTORIES = ("provider", "net")

# Phrases that say nothing about their block.
EMPTY = re.compile(
    r"\bas (above|below|before|in)\b|\bsee above\b|\bsame (as|reason)\b|\bcaller(s'|'s) (promise|contract|duty|word)s?\b"
    r"|\btrivially\b|\bobviously\b",
    re.IGNORECASE,
)
# "An open endpoint.", "Valid pointers.", "fi_send(3).": the whole reason.
BARE = re.compile(r"(an?|the)? ?(open|valid|live) [\w ]+|[\w/]+\(\d\)", re.IGNORECASE)
# Fewer words cannot name the pointer, the promise and the bound.
FEWEST_WORDS = 8


@dataclass(frozen=True)
class Use:
    """An `unsafe`: the line of the word, its kind ("block", "impl", "fn") and the reason or section found for it."""

    line: int
    kind: str
    reason: str | None


def _comment_above(lines: list[str], code: list[str], at: int) -> list[str]:
    """Returns the comment above the statement or item that holds line `at` (from 0), without its marks."""
    while at > 0:
        before = code[at - 1].rstrip()
        # A comment, or an empty line: above it is another statement.
        if not before.strip():
            break
        if before[-1] in ";{}," and not before.lstrip().startswith("#["):
            return []
        at -= 1
    comment: list[str] = []
    while at > 0 and (line := lines[at - 1].strip()).startswith("//"):
        comment.insert(0, line.lstrip("/").strip())
        at -= 1
    return comment


def _of_a_trait(code: str) -> bool:
    """Returns whether the text after `code` is inside of an impl of a trait. The trait documents what its methods
    require."""
    depth = 0
    for match in re.finditer(r"[{};]", code[::-1]):
        at = len(code) - 1 - match.start()
        if code[at] == "}":
            depth += 1
        elif code[at] == "{":
            depth -= 1
            if depth < 0:
                head = re.split(r"[;{}]", code[:at])[-1]
                return re.search(r"\bimpl\b.*\bfor\b", head, re.DOTALL) is not None
    return False


def uses(text: str) -> list[Use]:
    """Returns every unsafe block, unsafe impl and documented unsafe function of a source."""
    code = blanked(text)
    lines, code_lines = text.splitlines(), code.splitlines()
    found = []
    for word in re.finditer(r"\bunsafe\b", code):
        line = code.count("\n", 0, word.start())
        behind = code[word.end() :].lstrip()
        comment = _comment_above(lines, code_lines, line)
        if behind.startswith("{") or re.match(r"impl\b", behind):
            kind = "block" if behind.startswith("{") else "impl"
            marked = [i for i, part in enumerate(comment) if part.startswith("SAFETY:")]
            reason = " ".join(comment[marked[-1] :]).removeprefix("SAFETY:").strip() if marked else None
            found.append(Use(line + 1, kind, reason))
        elif re.match(r"fn\s+\w", behind) and not _of_a_trait(code[: word.start()]):
            section = " ".join(comment[comment.index("# Safety") + 1 :]).strip() if "# Safety" in comment else None
            found.append(Use(line + 1, "fn", section))
    return found


def breach(use: Use) -> str | None:
    """Returns what is wrong with a use, or None."""
    if use.reason is None:
        return (
            "an unsafe function without a section `# Safety`"
            if use.kind == "fn"
            else f"an unsafe {use.kind} without a reason"
        )
    if use.kind == "fn":
        # `As [f].` is a link there, and says it all.
        return None if use.reason else "an empty section `# Safety`"
    if phrase := EMPTY.search(use.reason):
        return f"the reason says {phrase[0]!r}: which pointer, whose promise, what bound?"
    if BARE.fullmatch(use.reason.rstrip(".")) or len(use.reason.split()) < FEWEST_WORDS:
        return f"the reason would fit any block: {use.reason!r}"
    return None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directories", nargs="*", metavar="DIRECTORY", type=pathlib.Path, help="instead of provider and net")


def main(args: argparse.Namespace) -> int:
    directories = args.directories or [ROOT / name for name in DIRECTORIES]
    files = sorted(path for directory in directories for path in directory.rglob("*.rs"))
    need(files, "no Rust sources found")
    counts = {"block": 0, "impl": 0, "fn": 0}
    breaches = 0
    for path in files:
        for use in uses(path.read_text()):
            counts[use.kind] += 1
            if problem := breach(use):
                breaches += 1
                print(f"{shown(path)}:{use.line}: {problem}")
    print(
        f"{len(files)} files, {counts['block']} unsafe blocks, {counts['impl']} unsafe impls, "
        f"{counts['fn']} unsafe functions, {breaches} breaches"
    )
    return 1 if breaches else 0
