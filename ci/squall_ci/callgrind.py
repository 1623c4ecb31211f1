"""Reads the profiles of valgrind's callgrind."""

import pathlib
import re
from collections import Counter
from dataclasses import dataclass, field

_NAMED = re.compile(r"^(c?fn|fl|fi|fe|cfi|cfl)=\((\d+)\)(?: (.*))?$")


@dataclass
class Profile:
    """Instructions by function and by source file."""

    # Instructions of a function and of the functions it called.
    inclusive: Counter[str] = field(default_factory=Counter)
    # Instructions of the lines of a file, wherever they were inlined.
    own: Counter[str] = field(default_factory=Counter)


def parse(text: str) -> Profile:
    """Reads a profile with one cost (instructions) and lines as positions."""
    profile = Profile()
    # Names are spelled out the first time only, functions and files each in a numbering of their own.
    functions: dict[str, str] = {}
    files: dict[str, str] = {}
    function = file = ""
    of_call = False
    for line in text.splitlines():
        if found := _NAMED.match(line):
            kind, number, name = found.groups()
            names = functions if kind in ("fn", "cfn") else files
            if name is not None:
                names[number] = name
            name = names.get(number, "???")
            if kind == "fn":
                function = name
            elif kind in ("fl", "fi", "fe"):
                file = name
        elif line.startswith("calls="):
            of_call = True
        elif line[:1] in "+-*0123456789" and function:
            fields = line.split()
            if len(fields) == 2:
                cost = int(fields[1])
                profile.inclusive[function] += cost
                # The line behind `calls=` has the cost of the callee.
                if not of_call:
                    profile.own[file] += cost
            of_call = False
    return profile


def read(path: pathlib.Path) -> Profile:
    """Reads the profile in a file."""
    return parse(path.read_text(encoding="utf-8", errors="replace"))
