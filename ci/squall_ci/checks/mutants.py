"""Put faults into the engine and the transport. A proof must find each of them.

`squall_ci/mutants.toml` lists them: a name, a file, the text that is changed, and the proof, which is a mode of `ci/run
suite fuzz` or a test target. Each mutant is made in a copy of the sources (target/mutants/tree), built, and judged by its
proof alone: by up to ten thousand histories of the mode (twenty of `long`) from seed 0 on, or by the tests. If no proof
finds a mutant, mend the proof, not the mutant.

First the proofs run on the sources as they are, where they must find nothing; --no-baseline leaves that out. A mutant that
does not build, or whose text is not in its file exactly once, counts as failed: a change of that code has to change the
mutant, too.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import time
import tomllib
from dataclasses import dataclass

from squall_ci.paths import die, ROOT
from squall_ci.process import Result, run
from squall_ci.suites.fuzz import MODES
from squall_ci.tally import Tally

LIST = pathlib.Path(__file__).resolve().parent.parent / "mutants.toml"
DIRECTORY = ROOT / "target" / "mutants"
TREE = DIRECTORY / "tree"
# Histories of a mode, and how many a call of the program plays: it goes on after the first finding.
HISTORIES, SHARE = 10_000, 500
# The two numbers for modes whose histories are long.
LONG = {"long": (20, 2)}
# Seconds for a build, and for a proof; what takes longer has not found anything.
BUILD, PROOF = 900, 300


@dataclass(frozen=True)
class Mutant:
    """A fault, and who must find it."""

    name: str
    file: str
    old: str
    new: str
    proof: str


def read() -> list[Mutant]:
    """Reads the list of mutants."""
    return [Mutant(**row) for row in tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]]


def apply(mutant: Mutant, text: str) -> str | None:
    """Returns the file's `text` with the fault in it, or None if the old text is not there exactly once."""
    return text.replace(mutant.old, mutant.new) if text.count(mutant.old) == 1 else None


def copy_sources() -> None:
    """Makes the tree a copy of the sources; files that are alike keep their times, so that little is built again."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for path in [path for path in TREE.rglob("*") if path.is_file()] if TREE.exists() else []:
        if str(path.relative_to(TREE)) not in names:
            path.unlink()
    for name in names:
        source, copy = ROOT / name, TREE / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


def cargo(*words: str) -> Result:
    """Runs cargo in the copy of the sources."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(DIRECTORY / "target"), "CARGO_INCREMENTAL": "1"}
    command = ["cargo", words[0], "--locked", "--manifest-path", str(TREE / "Cargo.toml"), *words[1:]]
    return run(command, environment, BUILD)


def target_of(proof: str) -> tuple[list[str], list[str]]:
    """Returns what cargo builds for a proof, and the arguments of its program."""
    words = proof.split()
    if proof in MODES:
        crate, example = MODES[proof]
        return ["-p", crate, "--example", example], []
    crate, target, *names = words
    return ["-p", crate, *(["--lib"] if target == "lib" else ["--test", target])], names


def build(proof: str) -> tuple[pathlib.Path | None, str]:
    """Builds the program of a proof; returns its path, or None if it does not build, and the output."""
    what, _ = target_of(proof)
    if proof in MODES:
        built = cargo("build", *what)
        return (DIRECTORY / "target" / "debug" / "examples" / MODES[proof][1] if built.ok else None), built.output
    built = cargo("test", "--no-run", *what)
    named = re.search(r"Executable .*\((\S+)\)", built.output)
    if built.ok and "abi" in what:
        # The programs of the C ABI load the provider.
        built = cargo("build", "-p", what[1])
    return (pathlib.Path(named[1]) if built.ok and named else None), built.output


def finds(proof: str, program: pathlib.Path) -> tuple[str | None, float, str]:
    """Runs a proof; returns what it found, the seconds, and the output."""
    begun = time.monotonic()
    if proof not in MODES:
        _, names = target_of(proof)
        environment = {**os.environ, "SQUALL_ABI_PROVIDER": str(DIRECTORY / "target" / "debug" / "libsquall_fi.so")}
        result = run([str(program), *names], environment, PROOF)
        failed = re.findall(r"^    (\S+)$", result.output, re.M)
        ran = re.search(r"^running ([1-9]\d*) test", result.output, re.M)
        if result.code is None or not ran:
            return None, result.seconds, f"no test ran, or one did not end\n{result.output}"
        return (None if result.ok else failed[-1] if failed else result.why()), result.seconds, result.output
    output = ""
    histories, share = LONG.get(proof, (HISTORIES, SHARE))
    for first in range(0, histories, share):
        left = PROOF - (time.monotonic() - begun)
        if left < 1:
            break
        words = ["--mode", proof, "--from", str(first), "--histories", str(share)]
        result = run([str(program), *words], os.environ, left)
        output += result.output
        kinds = re.findall(r"^\d+ x (.*)$", result.output, re.M)
        if kinds or not (result.ok or result.code is None):
            return (kinds[0] if kinds else result.why()), time.monotonic() - begun, output
    return None, time.monotonic() - begun, output


def check_baseline(tally: Tally, proofs: list[str]) -> None:
    """Checks that no proof finds anything in the sources as they are."""
    for proof in proofs:
        program, output = build(proof)
        if program is None:
            die(f"{proof} does not build:\n{output[-4000:]}")
        found, seconds, output = finds(proof, program)
        tally.add(f"without a fault: {proof}", found, seconds, "", output)


def check(tally: Tally, mutant: Mutant) -> None:
    """Applies one mutant, builds it, runs its proof, and restores the file."""
    path = TREE / mutant.file
    right = path.read_text(encoding="utf-8")
    wrong = apply(mutant, right)
    if wrong is None:
        tally.add(mutant.name, f"its text is not in {mutant.file} once")
        return
    path.write_text(wrong, encoding="utf-8")
    try:
        program, output = build(mutant.proof)
        if program is None:
            tally.add(mutant.name, "it does not build", None, "", output)
            return
        found, seconds, output = finds(mutant.proof, program)
    finally:
        path.write_text(right, encoding="utf-8")
    if found is None:
        tally.add(mutant.name, f"NOT FOUND by {mutant.proof}", seconds, "", output)
    else:
        tally.add(mutant.name, None, None, f"found by {mutant.proof} in {seconds:.1f} s: {found}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", metavar="PART", help="mutants whose names hold this")
    parser.add_argument("--list", action="store_true", help="print the mutants and their proofs")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the proofs on the sources as they are")


def main(args: argparse.Namespace) -> int:
    chosen = [m for m in read() if not args.only or any(part in m.name for part in args.only)]
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name}: {mutant.proof}")
        return 0
    copy_sources()
    tally = Tally()
    if not args.no_baseline:
        check_baseline(tally, sorted({mutant.proof for mutant in chosen}))
    for mutant in chosen:
        check(tally, mutant)
    return tally.finish()
