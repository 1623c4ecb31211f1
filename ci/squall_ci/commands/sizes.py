"""The largest types of the Rust code, by methods and by fields.

    ci/run sizes [--top N]

Read are the sources that cargo builds into libraries and programs: tests, examples, benchmarks and what is behind
`#[cfg(test)]` are left out. The methods of a type are the functions of all its inherent `impl` blocks, in whichever files
of its crate; implementations of traits do not count. The fields are those of its `struct`. What a macro generates is not
seen. A number to look at: there is no bound, for one is met by moving methods elsewhere.
"""

import argparse
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from squall_ci.paths import die, need, ROOT
from squall_ci.rust_source import Impl, Items, scan
from squall_ci.tally import table

Module = tuple[str, ...]


@dataclass
class Size:
    """Of one type."""

    name: str
    fields: int | None
    methods: int = 0
    files: set[str] = field(default_factory=set)


def child_file(file: pathlib.Path, module: Module, depth: int) -> pathlib.Path | None:
    """The file of a module declared in `file`, which is itself the module of the first `depth` names."""
    base = file.parent if depth == 0 or file.name == "mod.rs" else file.with_suffix("")
    stem = base.joinpath(*module[depth:])
    return next((path for path in (stem.with_suffix(".rs"), stem / "mod.rs") if path.exists()), None)


def files_of(root: pathlib.Path) -> Iterator[tuple[pathlib.Path, Items]]:
    """The files of a crate and what they hold, from its root along the `mod` declarations."""
    todo: list[tuple[pathlib.Path, Module]] = [(root, ())]
    while todo:
        file, module = todo.pop()
        items = scan(file.read_text(encoding="utf-8"), module)
        yield file, items
        for declared in items.modules:
            path = child_file(file, declared, len(module))
            if path is None:
                die(f"{file}: where is module {'::'.join(declared)}?", 1)
            todo.append((path, declared))


def absolute(module: Module, path: Module) -> Module:
    """A path as the crate's root would write it; `module` is where it stands."""
    if path[0] == "crate":
        return path[1:]
    at = module
    while path and path[0] in ("self", "super"):
        at = at[:-1] if path[0] == "super" else at
        path = path[1:]
    return (*at, *path)


def resolve(impl: Impl, candidates: list[Module], uses: dict[tuple[Module, str], Module]) -> Module | None:
    """Which of the types of that name, given by module, an impl is for."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    whole = absolute(impl.module, impl.path)
    if imported := uses.get((impl.module, impl.path[0])):
        whole = absolute(impl.module, (*imported, *impl.path[1:]))
    # What a module does not hold itself it may hand on.
    for _ in range(8):
        if whole[:-1] in candidates:
            return whole[:-1]
        if not (handed_on := uses.get((whole[:-1], whole[-1]))):
            break
        whole = absolute(whole[:-1], handed_on)

    # By way of a glob: the nearest of them.
    def shared(module: Module) -> int:
        return len(os.path.commonprefix([module, impl.module]))

    return max(candidates, key=lambda module: (shared(module), -len(module)))


def sizes_of(crate: str, root: pathlib.Path) -> list[Size]:
    """The types of one crate."""
    read = list(files_of(root))
    types: dict[str, dict[Module, Size]] = {}
    uses: dict[tuple[Module, str], Module] = {}
    for _, items in read:
        for struct in items.structs + items.enums:
            fields = struct.fields if struct in items.structs else None
            whole = "::".join((crate, *struct.module, struct.name))
            types.setdefault(struct.name, {})[struct.module] = Size(whole, fields)
        for module, name, path in items.uses:
            uses[module, name] = path
    for file, items in read:
        for impl in items.impls:
            named = types.setdefault(impl.path[-1], {})
            home = resolve(impl, list(named), uses)
            # Defined by a macro, or an alias.
            module = impl.module if home is None else home
            if home is None:
                named[module] = Size("::".join((crate, *module, impl.path[-1])), None)
            named[module].methods += len(impl.methods)
            named[module].files.add(str(file))
    return [size for named in types.values() for size in named.values()]


def crates() -> Iterator[tuple[str, pathlib.Path]]:
    """(name, root file) of the libraries and programs of the workspace."""
    command = ["cargo", "metadata", "--format-version=1", "--no-deps", "--locked", "--offline"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    for package in metadata["packages"]:
        for target in package["targets"]:
            if {"lib", "rlib", "cdylib", "bin"} & set(target["kind"]):
                yield target["name"], pathlib.Path(target["src_path"])


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many to show (10)")


def run(args: argparse.Namespace) -> int:
    sizes = [size for crate, root in crates() for size in sizes_of(crate, root)]
    need(sizes, "no types found")

    def shown(chosen: list[Size]) -> str:
        rows = [
            [size.name, str(size.methods), "-" if size.fields is None else str(size.fields), str(len(size.files))]
            for size in chosen[: args.top]
        ]
        return table(["type", "methods", "fields", "files"], rows)

    by_methods = sorted(sizes, key=lambda size: (-size.methods, size.name))
    print(f"by methods:\n{shown(by_methods)}\n")
    print(f"by fields:\n{shown(sorted(sizes, key=lambda size: (-(size.fields or 0), size.name)))}\n")
    print(f"{len(sizes)} types")
    return 0
