"""Just enough of Rust's grammar to find the types of a file, their fields and the methods of their inherent impls.

Comments and literals are dropped; brackets are matched. What a macro makes is not seen: neither `macro_rules!` nor the inside of
an invocation is looked into, nor the inside of a function.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = set(_OPEN.values())


def tokens(text: str) -> list[str]:
    """Names, lifetimes and punctuation; a number may be cut into pieces."""
    found = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match
        at = match.end()
        if match["comment"]:
            at = _comment_end(text, at)
        elif match["token"]:
            found.append(match["token"])
    return found


def blanked(text: str) -> str:
    """The text with blanks in the place of comments and literals, so that what is left is code, where it was."""
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
    """Behind a block comment, which may hold others; `at` is inside."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


@dataclass(frozen=True)
class Struct:
    """A struct's definition."""

    module: tuple[str, ...]
    name: str
    fields: int


@dataclass(frozen=True)
class Impl:
    """An inherent impl: the path of its type as it is written, and its functions."""

    module: tuple[str, ...]
    path: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass
class Items:
    """What a file holds, code for tests left out."""

    structs: list[Struct] = field(default_factory=list)
    enums: list[Struct] = field(default_factory=list)
    impls: list[Impl] = field(default_factory=list)
    # Modules in files of their own.
    modules: list[tuple[str, ...]] = field(default_factory=list)
    # Names brought in by `use`: (module, name, path).
    uses: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = field(default_factory=list)


def group_end(words: Sequence[str], at: int) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(words)):
        if words[i] in _OPEN:
            depth += 1
        elif words[i] in _CLOSE:
            depth -= 1
            if depth == 0:
                return i + 1
    return len(words)


def find(words: Sequence[str], at: int, wanted: set[str]) -> int:
    """The first of the wanted tokens outside of brackets, angles included, from `at` on."""
    angles = 0
    while at < len(words) and (angles > 0 or words[at] not in wanted):
        angles += (words[at] == "<") - (words[at] == ">")
        at = group_end(words, at) if words[at] in _OPEN else at + 1
    return at


def commas(words: Sequence[str]) -> Iterator[list[str]]:
    """Splits at the commas outside of all brackets, angles included; empty parts are left out."""
    part: list[str] = []
    depth = 0
    for word in words:
        depth += (word in _OPEN or word == "<") - (word in _CLOSE or word == ">")
        if word == "," and depth == 0:
            if part:
                yield part
            part = []
        else:
            part.append(word)
    if part:
        yield part


def only_for_tests(attribute: Sequence[str]) -> bool:
    """Whether `[cfg(test)]`, or more than that, stands before an item."""
    return attribute[1:2] == ["cfg"] and "test" in attribute and not {"any", "not"} & set(attribute)


def scan(text: str, module: tuple[str, ...] = ()) -> Items:
    """The items of a file that is the given module."""
    items = Items()
    _scan(tokens(text), module, items)
    return items


def _scan(words: list[str], module: tuple[str, ...], items: Items) -> None:
    at, tests = 0, False
    while at < len(words):
        word, after = words[at], words[at + 1] if at + 1 < len(words) else ""
        if word == "#":
            at += 2 if after == "!" else 1
            end = group_end(words, at)
            tests = tests or only_for_tests(words[at:end])
            at = end
            continue
        end = _item(words, at, module, items, tests)
        if end == at:
            # Not the beginning of an item: visibility, `unsafe`, a path.
            at = group_end(words, at) if word in _OPEN else at + 1
            # A body, or a semicolon, ends an item and what its attributes said.
            if word in ("{", ";"):
                tests = False
        else:
            at, tests = end, False


def _item(words: list[str], at: int, module: tuple[str, ...], items: Items, tests: bool) -> int:
    """Behind the item that begins at `at`; `at` itself when none of those that matter does."""
    word, name = words[at], words[at + 1] if at + 1 < len(words) else ""
    if word == "mod" and name.isidentifier():
        if words[at + 2 : at + 3] == ["{"]:
            end = group_end(words, at + 2)
            if not tests:
                _scan(words[at + 3 : end - 1], (*module, name), items)
            return end
        if not tests:
            items.modules.append((*module, name))
        return at + 3
    if word in ("struct", "enum", "union") and name.isidentifier():
        body = find(words, at + 2, {"{", "(", ";", "where"})
        # A where clause may hold parentheses of its own; that of a tuple comes behind it.
        if words[body : body + 1] == ["where"]:
            body = find(words, body, {"{", ";"})
        end = group_end(words, body) if words[body : body + 1] != [";"] else body + 1
        if not tests:
            kind = items.structs if word == "struct" else items.enums
            kind.append(Struct(module, name, _fields(words[body + 1 : end - 1])))
        return end
    if word == "impl":
        body = find(words, at + 1, {"{"})
        end = group_end(words, body)
        path = _inherent(words[at + 1 : body])
        if path and not tests:
            items.impls.append(Impl(module, path, tuple(_methods(words[body + 1 : end - 1]))))
        return end
    if word == "use":
        end = find(words, at + 1, {";"})
        for used, path in _use(words[at + 1 : end], ()):
            items.uses.append((module, used, path))
        return end + 1
    if word == "trait" or (word == "fn" and name.isidentifier()):
        end = find(words, at + 1, {"{", ";"})
        return group_end(words, end) if words[end : end + 1] == ["{"] else end + 1
    if name == "!" and word.isidentifier():
        # A macro: its name when it defines one, then one bracket.
        end = find_bracket(words, at + 2)
        return group_end(words, end)
    return at


def find_bracket(words: Sequence[str], at: int) -> int:
    """The first opening bracket from `at` on."""
    while at < len(words) and words[at] not in _OPEN:
        at += 1
    return at


def _fields(words: list[str]) -> int:
    count = 0
    for part in commas(words):
        at, tests = 0, False
        while part[at : at + 1] == ["#"]:
            end = group_end(part, at + 1)
            tests = tests or only_for_tests(part[at + 1 : end])
            at = end
        count += at < len(part) and not tests
    return count


def _inherent(header: list[str]) -> tuple[str, ...]:
    """The path of an inherent impl's type from what stands between `impl` and its body; empty for a trait's."""
    # The impl's own generics.
    start = angles_end(header, 0) if header[:1] == ["<"] else 0
    end = find(header, start, {"where"})
    at = find(header, start, {"for"})
    while header[at + 1 : at + 2] == ["<"]:
        # `for<'a>` of a bound, not of a trait.
        at = find(header, at + 1, {"for"})
    if at < end:
        return ()
    while start < len(header) and (header[start] in ("for", "dyn", "&", "mut") or header[start][0] == "'"):
        start = angles_end(header, start + 1) if header[start] == "for" else start + 1
    path = []
    for word in header[start:]:
        if word == "::":
            continue
        if not word.isidentifier() or word == "where":
            break
        path.append(word)
    return tuple(path)


def angles_end(words: Sequence[str], at: int) -> int:
    """Behind the angle that closes the one at `at`."""
    depth = 0
    while at < len(words):
        depth += (words[at] == "<") - (words[at] == ">")
        at += 1
        if depth == 0:
            break
    return at


def _methods(body: list[str]) -> Iterator[str]:
    at, tests = 0, False
    while at < len(body):
        word = body[at]
        if word == "#":
            end = group_end(body, at + 1)
            tests = tests or only_for_tests(body[at + 1 : end])
            at = end
            continue
        # A pointer to a function has no name.
        if word == "fn" and body[at + 1 : at + 2] and body[at + 1].removeprefix("r#").isidentifier() and not tests:
            yield body[at + 1]
        if word in ("{", ";"):
            tests = False
        at = group_end(body, at) if word in _OPEN else at + 1


def _use(words: list[str], prefix: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, path) of everything a `use` names; globs are left out."""
    path = list(prefix)
    at = 0
    while at < len(words):
        word = words[at]
        if word == "{":
            for part in commas(words[at + 1 : group_end(words, at) - 1]):
                yield from _use(part, tuple(path))
            return
        if word == "as":
            if len(words) > at + 1:
                yield words[at + 1], tuple(path)
            return
        if word == "*":
            return
        if word != "::":
            path.append(word)
        at += 1
    if path:
        # `self` in braces is what stands before them.
        if path[-1] == "self" and len(path) > 1:
            path.pop()
        yield path[-1], tuple(path)
