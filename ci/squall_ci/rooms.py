"""Which room of provider/ may import which, and the largest circle of imports between its files.

A room is a directory of provider/, or a file that stands above its directory. `ci/run check deps` compares the imports of their sources, without
tests, with the order of ROOMS.
"""

import pathlib
import re
from collections.abc import Iterator

# A path of modules below the root of the crate.
Module = tuple[str, ...]

# The rooms from the bottom up, as in docs/architecture.md: each may import those before it. lib.rs is above all. Its record of the
# provider, which is no room's, gives every log line and parameter its name, so that all may name what lib.rs itself defines.
ROOMS = [
    "clock",
    "abi",
    "objects",
    "host",
    "network",
    "reports",
    "device_memory",
    "fabric",
    "waiting",
    "virtual_time",
    "domain",
    "mr",
    "queues",
    "av",
    "info",
    "endpoint",
    "optional",
    # They open all other objects.
    "domain/calls",
    "fabric/calls",
]

# Imports against the order, each with its reason.
UPWARDS = {
    ("domain", "mr"): "closing a region and posting an operation look at the domain's table of regions",
    ("domain", "queues"): "a counter of a region or of deferred work follows every endpoint of the domain",
    ("domain", "endpoint"): "a region that closes ends its uses in every endpoint of the domain",
    ("domain", "optional"): "deferred work is queued in the domain (fi_trigger(3))",
    ("mr", "queues"): "a region counts the accesses of peers",
    ("queues", "endpoint"): "reading a queue or counter drives the endpoints bound to it, which fill it",
    ("queues", "optional"): "the owner of a peer provider replaces a queue, and a counter begins deferred work",
    ("endpoint", "optional"): "the data path asks facilities before an operation is submitted and after one of theirs ends",
}

# Directories of provider/ that are crates of their own.
CRATES = {"time"}


def modules(root: pathlib.Path) -> dict[Module, pathlib.Path]:
    """Returns the sources below `root`, but lib.rs, by their paths as modules."""
    found = {}
    for path in sorted(root.rglob("*.rs")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] not in CRATES and parts != ("lib",):
            found[parts[:-1] if parts[-1] == "mod" else parts] = path
    return found


def without_tests(text: str) -> str:
    """Returns a source without comments and without its module of tests, which ends the file."""
    return re.split(r"#\[cfg\(test\)\]\s+(?:pub\(crate\) )?mod tests\b", re.sub(r"//[^\n]*", "", text))[0]


def leaves(tree: str) -> Iterator[str]:
    """Yields the paths of a `use` declaration."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        yield re.sub(r"\s+as\s+\w+$", "", head)
        return
    depth, begin, body = 0, 0, rest.rpartition("}")[0] + ","
    for at, character in enumerate(body):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if piece := body[begin:at].strip():
                yield from (head.strip() + leaf for leaf in leaves(piece))
            begin = at + 1


def imports(module: Module, text: str, known: dict[Module, pathlib.Path]) -> set[Module]:
    """Returns the modules that a source names in its `use` declarations and paths."""
    text = without_tests(text)
    declarations = re.findall(r"\buse\s+([^;]+);", text)
    paths = [leaf for declaration in declarations for leaf in leaves(declaration)]
    paths += re.findall(r"\b\w+(?:::\w+)+", re.sub(r"\buse\s+[^;]+;", "", text))
    found = set()
    for path in paths:
        names = [name.strip() for name in path.split("::")]
        base = list(module)
        if names[0] == "crate":
            base, names = [], names[1:]
        while names and names[0] == "super":
            base, names = base[:-1], names[1:]
        best = tuple(base) if tuple(base) in known else None
        for name in names:
            base.append(name)
            if tuple(base) not in known:
                break
            best = tuple(base)
        if best and best != module:
            found.add(best)
    return found


def graph(root: pathlib.Path) -> dict[Module, set[Module]]:
    """Returns what each source imports."""
    known = modules(root)
    return {module: imports(module, path.read_text(encoding="utf-8"), known) for module, path in known.items()}


def room_of(module: Module) -> str | None:
    """Returns the room of a module, if it is in the table."""
    names = ["/".join(module[:length]) for length in range(len(module), 0, -1)]
    return next((name for name in names if name in ROOMS), None)


def room_breaches(edges: dict[Module, set[Module]]) -> list[str]:
    """Returns the imports that the order of rooms does not allow, and the entries of the tables that nothing needs."""
    breaches = []
    used = set()
    for module, targets in sorted(edges.items()):
        room = room_of(module)
        if room is None:
            breaches.append(f"provider/{module[0]} is not in the table of rooms (ci/squall_ci/rooms.py)")
            continue
        for target in sorted(targets):
            other = room_of(target)
            if (room, other) in UPWARDS:
                used.add((room, other))
            elif other not in ROOMS[: ROOMS.index(room) + 1]:
                breaches.append(f"{'::'.join(module)} imports {'::'.join(target)}, a room above its own")
    breaches += [f"no file of {room} imports {above}: remove the exception" for room, above in sorted(set(UPWARDS) - used)]
    return breaches


def largest_circle(edges: dict[Module, set[Module]]) -> set[Module]:
    """Returns the largest set of sources each of which imports each other one, directly or through others."""

    def reached(start: Module) -> set[Module]:
        found: set[Module] = set()
        todo = [start]
        while todo:
            for target in edges[todo.pop()] - found:
                found.add(target)
                todo.append(target)
        return found

    reach = {module: reached(module) for module in edges}
    circles = [{other for other in reach[module] if module in reach[other]} for module in edges]
    return max(circles, key=len, default=set())
