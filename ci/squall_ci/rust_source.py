"""Finds the code of a Rust source, without comments and literals."""

import re

# Comments and literals come first; what is matched but not named is dropped.
_TOKEN = re.compile(
    r"""
      \s+ | //[^\n]*
    | (?P<comment>/\*)
    | (?:b|c)?r(?P<hashes>\#*)"(?:.|\n)*?"(?P=hashes)
    | (?:b|c)?"(?:[^"\\]|\\.|\\\n)*"
    | b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))'
    | (?P<token> '[A-Za-z_]\w* | (?:r\#)?[A-Za-z_]\w* | :: | -> | => | != | [0-9]\w* | . )
    """,
    re.VERBOSE | re.DOTALL,
)


def blanked(text: str) -> str:
    """Returns the text with blanks in the place of comments and literals, so that code stays where it was."""
    parts = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match
        end = _comment_end(text, match.end()) if match["comment"] else match.end()
        part = text[at:end]
        parts.append(part if match["token"] else re.sub(r"[^\n]", " ", part))
        at = end
    return "".join(parts)


def _comment_end(text: str, at: int) -> int:
    """Returns the index after a block comment, which may hold others; `at` is inside."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)
