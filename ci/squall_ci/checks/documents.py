"""Run the documents: every command line as it stands, and every block of Python, in a copy of the sources.

commands  README.md and the pages of docs/ but one, each block in a copy of its own
guide     docs/your-algorithm.md from beginning to end in one copy: its commands, its change, its files. At the end a figure
          must be there. The second time is quicker, for target/guide/target keeps what was built.

With --options nothing is run: the words of each command are compared with what the programs accept, and each
FI_SQUALL_* with the parameters that there are.

A command is run unless `ELSEWHERE` has the reason why it cannot run here (several hosts, other distributions, a missing
service). A reason for a command that no document has is a failure, too. What a reader has is prepared: `squall` and the
provider, an MPI, a program `./app`, htsim's files.
"""

import argparse
import contextlib
import functools
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from squall_ci import cli
from squall_ci.environment import clean_environment
from squall_ci.mpis import MPIS
from squall_ci.paths import BUILT, MPI_TESTS, need, PROVIDER_DIR, ROOT, TARGET
from squall_ci.process import run
from squall_ci.programs import squall
from squall_ci.registry import find
from squall_ci.tally import Tally

# The page that is run as a whole.
GUIDE = "docs/your-algorithm.md"
# The kinds of blocks that hold commands.
SHELLS = ("sh", "console", "bash")
PYTHON = "python"
# The environment with the packages of such blocks.
BIN = TARGET / "venv-documents" / "bin"
# Seconds for a block, and for a command of the guide, which may build everything.
PATIENCE, GUIDE_PATIENCE = 180.0, 1800.0

HOSTS = "several hosts"
SLURM = "Slurm"
NIXL = "downloads and builds of other projects: `ci/run suite nixl` runs the same program"
PACKAGED = "minutes, and installs packages: `ci/run check packages` tries them"
ROOT_TABLES = "changes the host's firewall"
# The reason why a command is not run here, by how it begins.
ELSEWHERE = {
    "ci/run setup packages && ci/run package": PACKAGED,
    "pip install dist/": PACKAGED,
    "apt install ./dist/": PACKAGED,
    "ci/build ": "`ci/run build`, which would replace the provider that is tried here",
    "cargo build --release -p squall-tools": "what this check does first, beside the copy",
    "ci/run check repro": "a suite of its own",
    "fi_pingpong -p squall": "waits for its other end: `ci/run suite fabtests` runs both",
    "squall sim --topo leaf-spine:2x2x4 --trace job/": "has the traces that an example of netsim writes",
    "squall doctor node2 node3": HOSTS,
    "ssh -f -N ": HOSTS,
    "squall emulate --socket /tmp/emulator join -- mpiexec -n 8 -hosts": HOSTS,
    "squall top  ": "a live view of a terminal: `ci/run check top` drives it",
    "sbatch ": SLURM,
    "git clone https://github.com/ofiwg/libfabric": NIXL,
    "git -C target/libfabric": NIXL,
    "(cd target/libfabric": NIXL,
    "python3 -m venv target/nixl": NIXL,
    "target/nixl/bin/": NIXL,
    "cc -shared -fPIC -Wl,-soname,libcuda.so.1": NIXL,
    "squall run -- srun": SLURM,
    "squall run -- mpiexec -hosts": HOSTS,
    "squall run -- mpirun --host": HOSTS,
    "nft add rule": ROOT_TABLES,
    "firewall-cmd ": ROOT_TABLES,
    "ufw allow": ROOT_TABLES,
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    heading: str
    # `sh`, `toml`, ..
    kind: str
    # The file name after the kind, if there is one.
    name: str
    text: str

    def commands(self) -> list[str]:
        """Returns the commands: a line each, continued lines joined, without comments. A block of Python is one command, which
        runs the file that the block names."""
        if self.kind == "python":
            return [f"python3 {self.name}"]
        lines = re.sub(r"\s*\\\n\s*", " ", self.text).splitlines()
        return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def blocks(text: str) -> list[Block]:
    """Returns the fenced blocks of a document, in order."""
    found = []
    heading = ""
    for match in re.finditer(r"^##+ ([^\n]*)$|^```(\w*) ?([\w./-]*)\n(.*?)^```$", text, re.M | re.S):
        if match[1] is not None:
            heading = match[1]
        else:
            found.append(Block(heading, match[2], match[3], match[4]))
    return found


def copy_sources(tree: pathlib.Path) -> None:
    """Makes `tree` a copy of the last commit's files, and nothing else."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x"], cwd=tree, input=archive.stdout, check=True)


@dataclass(frozen=True)
class Rule:
    """A rule that gives a command what its reader has."""

    # The beginning of the command, with its variables.
    begins: str
    # The MPI whose launcher the command starts.
    mpi: str = ""
    # Commands that run before the command.
    before: str = ""
    # The exit statuses that mean success.
    statuses: tuple[int, ...] = (0,)


RULES = (
    # Open MPI 5 and 4.1, and Intel MPI, have launchers of one name.
    Rule("OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi", "openmpi"),
    Rule("mpirun --mca pml cm", "ompi4"),
    Rule("I_MPI_FABRICS=ofi", "impi"),
    # Doctor exits with 1 on most machines, because it finds something to improve.
    Rule("squall doctor", statuses=(0, 1)),
    # The array of jobs that the document starts before leaves these parts.
    Rule(
        "squall plan merge parts/*",
        before="for k in 1 2; do squall plan run 04b-slow-link --quiet --shard $k/2 --out parts/$k; done > /dev/null",
    ),
    # The program that the page on virtual time builds first.
    Rule("squall run --virtual", before="mpicc -O2 -o job fabtests/virtual/job.c"),
    # The results of a plan of the reader's own.
    Rule(
        "python3 read.py",
        before="squall plan show 04b-slow-link > mine.toml && "
        "squall plan run mine.toml --quick --quiet --parquet --out results > /dev/null",
    ),
)

# A leaf-spine of 16 hosts, and flows over it.
TOPO = """\
Nodes 16
Tiers 2
Podsize 16
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
"""
# Two ranks that compute, and answer each other.
SCHEDULE = """\
num_ranks 2
rank 0 {
l1: calc 1000
l2: send 8192b to 1 tag 7
l2 requires l1
l3: recv 64b from 1
}
rank 1 {
l1: recv 8192b from 0 tag 7
l2: send 64b to 0
l2 requires l1
}
"""
APP = """\
#!/bin/sh
exec "$APP_PYTHON" {stream} 0.3 65536
"""
# All events happen before the job is over.
TIMELINE = """\
0s      set-rate leaf0-spine0 25G
200ms   black-hole leaf1-spine1
300ms   restore-link leaf1-spine1
"""


def matrix(pairs: list[tuple[int, int]]) -> str:
    """Returns a connection matrix in htsim's format."""
    lines = [f"{a}->{b} id {i} start 0 size 200000" for i, (a, b) in enumerate(pairs, 1)]
    return "\n".join(["Nodes 16", f"Connections {len(pairs)}", *lines, ""])


def files() -> dict[str, str]:
    """Returns the files that documents mention and a reader has, by name."""
    return {
        "fat_tree.topo": TOPO,
        "permutation.cm": matrix([(host, (host + 5) % 16) for host in range(16)]),
        "incast.cm": matrix([(host, 0) for host in range(1, 9)]),
        "outcast.cm": matrix([(0, host) for host in range(1, 9)]),
        "job.goal": SCHEDULE,
        "events": TIMELINE,
        "app": APP.format(stream=shlex.quote(str(MPI_TESTS / "stream.py"))),
    }


def documents() -> dict[str, list[Block]]:
    """Returns the blocks with commands of each document but the guide."""
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = str(path.relative_to(ROOT))
        if name != GUIDE:
            found[name] = [block for block in blocks(path.read_text(encoding="utf-8")) if block.kind in (*SHELLS, PYTHON)]
    return found


def reason(command: str) -> str | None:
    """Returns the reason why a command is not run here, or None."""
    return next((why for begins, why in ELSEWHERE.items() if f"{command}  ".startswith(begins)), None)


def rule_of(command: str) -> Rule:
    """Returns the rule for a command."""
    return next((rule for rule in RULES if command.startswith(rule.begins)), Rule(""))


def environment() -> dict[str, str]:
    """Returns the environment of a reader who followed README: the provider is chosen, and MPICH is the MPI at hand."""
    path = os.pathsep.join([str(BUILT), str(MPIS["mpich"].venv / "bin"), os.environ["PATH"]])
    return {
        **clean_environment(),
        **MPIS["mpich"].launching(),
        "PATH": path,
        "FI_PROVIDER_PATH": str(PROVIDER_DIR),
        "FI_PROVIDER": "squall",
        "FI_SQUALL_IFACE": "lo",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "APP_PYTHON": str(MPIS["mpich"].python),
    }


def script(commands: list[str]) -> str:
    """Returns a shell script that runs the commands of a block and prints the status of each."""
    lines = []
    for number, command in enumerate(commands):
        # Exports reach the commands after them.
        rule = rule_of(command)
        if rule.before:
            lines.append(rule.before)
        lines.append(f"echo '::begin {number}'")
        if rule.mpi:
            mpi = MPIS[rule.mpi]
            launcher = mpi.venv / "bin"
            given = {**mpi.launching(), "APP_PYTHON": str(mpi.python), "PATH": f"{launcher}:/usr/bin:/bin"}
            exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in given.items())
            command = f"( export {exports}\n{command}\n)"
        lines += [command, f'echo "::end {number} $?"']
        if command.split("#")[0].rstrip().endswith("&"):
            # A background command has to be up before the next one begins.
            lines.append("sleep 1")
    return "\n".join(lines) + "\n"


def prepare(tree: pathlib.Path, template: pathlib.Path) -> None:
    """Makes `tree` a copy of the sources with the files that a reader has beside them."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(template, tree, symlinks=True)
    for name, text in files().items():
        (tree / name).write_text(text)
    (tree / "app").chmod(0o755)
    (tree / "target").mkdir()
    for name, built in (("provider", PROVIDER_DIR), ("release", BUILT)):
        (tree / "target" / name).symlink_to(built)


def run_block(name: str, block: Block, tree: pathlib.Path, tally: Tally) -> None:
    """Runs the commands of a block, and judges each."""
    commands = [command for command in block.commands() if reason(command) is None]
    if not commands:
        return
    first = f"cd {shlex.quote(str(tree))}\n"
    if block.kind == PYTHON:
        (tree / block.name).write_text(block.text)
        first += f"export PATH={shlex.quote(str(BIN))}:$PATH\n"
    text = first + script(commands)
    result = run(["bash", "-c", text], environment(), PATIENCE)
    for number, command in enumerate(commands):
        part = re.search(rf"^::begin {number}\n(.*?)(?:^::end {number} (\d+)$|\Z)", result.output, re.M | re.S)
        label = f"{name}, {block.heading}: {command}"
        if part is None:
            tally.add(label, "not reached")
        elif part[2] is None:
            tally.add(label, result.why(), output=part[1])
        else:
            status = int(part[2])
            well = status in rule_of(command).statuses
            tally.add(label, None if well else f"exit status {status}", output=part[1])


def run_guide(only: str, tally: Tally) -> None:
    """Does what the guide says, in a copy that sees the provider and the MPIs of this tree."""
    tree, built = TARGET / "guide" / "tree", TARGET / "guide" / "target"
    copy_sources(tree)
    built.mkdir(exist_ok=True)
    (tree / "target").symlink_to(built)
    for venv in TARGET.glob("venv-*"):
        if not (built / venv.name).exists():
            (built / venv.name).symlink_to(venv)
    env = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    # The guide builds `squall` in the profile `sim`. Its export of PATH ends with the shell of that line.
    env["PATH"] = os.pathsep.join([str(built / "sim"), env["PATH"]])
    for block in blocks((ROOT / GUIDE).read_text()):
        if only not in block.text:
            continue
        if block.kind in SHELLS:
            for line in block.commands():
                result = run(["bash", "-ec", f"cd {shlex.quote(str(tree))}; {line}"], env, GUIDE_PATIENCE)
                problem = None if result.ok else result.why()
                tally.add(f"{block.heading}: {line}", problem, result.seconds, "", result.output)
        elif block.kind == "diff":
            done = subprocess.run(["patch", "-p1"], cwd=tree, input=block.text.encode(), capture_output=True)
            tally.add(f"{block.heading}: the change", done.stdout.decode() if done.returncode else None)
        elif block.name:
            (tree / block.name).write_text(block.text)
        else:
            tally.add(f"{block.heading}: a block of {block.kind}", "no command, change or file with a name")
    if not only:
        figures = list((tree / "figures").glob("*over-ideal*senders*.svg"))
        tally.add("the sweep's figure is there", None if figures else "no SVG of over_ideal over senders")


def run_documents(only: str, tally: Tally) -> None:
    """Runs the blocks of all other documents."""
    found = documents()
    every = [command for of in found.values() for block in of for command in block.commands()]
    need(
        (BIN / "python3").exists(), "Dask and pandas of the documents' Python are missing: run ci/run setup documents first"
    )
    squall()
    for begins in ELSEWHERE:
        if not any(f"{command}  ".startswith(begins) for command in every):
            tally.add(f"ELSEWHERE: {begins}", "no document has such a command")
    template, tree = TARGET / "commands" / "sources", TARGET / "commands" / "tree"
    copy_sources(template)
    for name, of in found.items():
        for block in of:
            if only in block.text:
                prepare(tree, template)
                run_block(name, block, tree, tally)


def calls(command: str) -> list[list[str]]:
    """Returns the words of each program that a command line calls, without redirections and variables."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("();<>|&"):
            found.append([])
        elif found[-1] or not re.match(r"\w+=", word):
            found[-1].append(word)
    return [call for call in found if call]


def misuse_of_squall(words: list[str], help_of: Callable[[tuple[str, ...]], str | None]) -> str | None:
    """Returns the first subcommand or option that squall's help does not have, or None."""
    path: tuple[str, ...] = ()
    text = help_of(path) or ""
    for word in words[1:]:
        if word == "--":
            break
        if word.startswith("-"):
            option = re.match(r"--[\w-]+|-\w|", word)
            if option and option[0] and not re.search(rf"(?<![\w-]){re.escape(option[0])}(?![\w-])", text):
                return f"squall {' '.join(path)} has no option {option[0]}"
        elif re.search(rf"^  {re.escape(word)}(?: |$)", text.partition("Commands:\n")[2].partition("\nOptions:")[0], re.M):
            path = (*path, word)
            text = help_of(path) or ""
        elif not path:
            return f"squall has no command {word}"
    return None


def misuse_of_tool(words: list[str]) -> str | None:
    """Returns what `ci/run` does not accept of its words, or None."""
    name = pathlib.PurePath(words[0]).name
    words = words[1:] if name == "run" else [name, *words[1:]]
    group, command, rest = find(words)
    if command is None:
        return (
            None if words in (["list"], ["help"]) or (group.word and not rest) else f"there is no command {' '.join(words)}"
        )
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            _, unknown = cli.parser_of(group, command).parse_known_args(rest)
    except SystemExit as left:
        return said.getvalue() if left.code else None
    return f"unknown: {' '.join(unknown)}" if unknown and not command.passes_on else None


def check_options(tally: Tally) -> None:
    """Compares the commands of the documents with what the programs accept, without running them."""
    program = squall()
    known = set(re.findall(r"FI_SQUALL_\w+", (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")))

    @functools.cache
    def help_of(path: tuple[str, ...]) -> str | None:
        result = run([program, *path, "--help"], clean_environment(), PATIENCE)
        return result.output if result.ok else None

    for name, of in {**documents(), GUIDE: blocks((ROOT / GUIDE).read_text(encoding="utf-8"))}.items():
        commands = [command for block in of if block.kind in SHELLS for command in block.commands()]
        problems = []
        for command in commands:
            for words in calls(command):
                if pathlib.PurePath(words[0]).name == "squall":
                    problems.append(misuse_of_squall(words, help_of))
                elif words[0].startswith("ci/"):
                    problems.append(misuse_of_tool(words))
            problems += [f"there is no parameter {it}" for it in re.findall(r"FI_SQUALL_\w+", command) if it not in known]
        found = [problem for problem in problems if problem]
        if commands:
            tally.add(name, "; ".join(found) or None, note=f"{len(commands)} commands")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--options", action="store_true", help="run nothing, and look up what the commands name")
    parser.add_argument("--list", action="store_true", help="print which commands are run, and why others are not")
    parser.add_argument("--only", default="", metavar="WORDS", help="only the blocks that contain these words")


def main(args: argparse.Namespace) -> int:
    if args.list:
        pages = [blocks((ROOT / GUIDE).read_text())] if args.command == "guide" else documents().values()
        every = [block for page in pages for block in page if block.kind in (*SHELLS, PYTHON)]
        for command in (command for block in every for command in block.commands()):
            why = reason(command)
            print(f"{'run ' if why is None else 'not '}  {command}{'' if why is None else f'   ({why})'}")
        return 0
    tally = Tally()
    if args.options:
        check_options(tally)
    else:
        (run_guide if args.command == "guide" else run_documents)(args.only, tally)
    return tally.finish()
