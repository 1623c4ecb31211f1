"""Run every command line of README.md and docs/ as it stands, and every block of Python, each in a copy of the sources.

A command is run unless `ELSEWHERE` says why it cannot be here (several hosts, other distributions, a service that is not
there); a reason for what no document says is a failure, too. What a reader would have is there: `squall` and the provider, an MPI, a
program `./app`, htsim's files. docs/your-algorithm.md is `ci/run check guide`'s.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
from dataclasses import dataclass

from squall_ci.documents import Block, blocks, copy_sources
from squall_ci.environment import clean_environment
from squall_ci.mpis import MPIS
from squall_ci.paths import CARGO_TARGET, MPI_TESTS, need, PROVIDER_DIR, ROOT, TARGET
from squall_ci.process import run
from squall_ci.programs import squall
from squall_ci.tally import Tally

# Those whose commands are another subcommand's to run.
OTHERS = {"docs/your-algorithm.md": "ci/run check guide"}
# The kinds of blocks that hold commands.
SHELLS = ("sh", "console", "bash")
PYTHON = "python"
# With what such blocks use.
BIN = TARGET / "venv-documents" / "bin"
# Of a block.
PATIENCE = 180.0

HOSTS = "several hosts"
SLURM = "Slurm"
ROOT_TABLES = "changes the host's firewall"
# How a command begins, and why it is not run here.
ELSEWHERE = {
    "ci/demo": "`ci/run demo`, minutes, and installs packages",
    "ci/test": "what runs this tool's suites",
    "ci/run check repro": "a suite of its own",
    "fi_pingpong -p squall": "waits for its other end: `ci/run suite fabtests` runs both",
    "squall doctor node2 node3": HOSTS,
    "squall emulate --socket /tmp/emulator up --topo star:8 --listen": HOSTS,
    "squall emulate --socket /tmp/emulator tunnel": HOSTS,
    "squall emulate --socket /tmp/emulator join -- mpiexec -n 8 -hosts": HOSTS,
    "squall top  ": "a live view of a terminal: `ci/run check top` drives it",
    "sbatch ": SLURM,
    "srun ": SLURM,
    "mpiexec -hosts": HOSTS,
    "mpirun --host": HOSTS,
    "nft add rule": ROOT_TABLES,
    "firewall-cmd ": ROOT_TABLES,
    "ufw allow": ROOT_TABLES,
}


@dataclass(frozen=True)
class Rule:
    """What a command is given that its reader has."""

    # How it begins, behind variables.
    begins: str
    # The MPI whose launcher it starts.
    mpi: str = ""
    # Commands before it.
    before: str = ""
    # Exit statuses that are well.
    statuses: tuple[int, ...] = (0,)


RULES = (
    # Open MPI 5 and 4.1, and Intel MPI, have launchers of one name.
    Rule("OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi", "openmpi"),
    Rule("mpirun --mca pml cm", "ompi4"),
    Rule("I_MPI_FABRICS=ofi", "impi"),
    # It finds fault with most machines.
    Rule("squall doctor", statuses=(0, 1)),
    # What the array before it leaves.
    Rule(
        "squall plan merge parts/*",
        before="for k in 1 2; do squall plan run 04b-slow-link --quiet --shard $k/2 --out parts/$k; done > /dev/null",
    ),
    # A plan of one's own, run.
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
# Every event of it happens before the job is over.
TIMELINE = """\
0s      set-rate leaf0-spine0 25G
200ms   black-hole leaf1-spine1
300ms   restore-link leaf1-spine1
"""


def matrix(pairs: list[tuple[int, int]]) -> str:
    """A connection matrix of htsim's."""
    lines = [f"{a}->{b} id {i} start 0 size 200000" for i, (a, b) in enumerate(pairs, 1)]
    return "\n".join(["Nodes 16", f"Connections {len(pairs)}", *lines, ""])


def files() -> dict[str, str]:
    """What documents name and a reader has, by name."""
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
    """The blocks with commands of each document."""
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = str(path.relative_to(ROOT))
        if name not in OTHERS:
            found[name] = [block for block in blocks(path.read_text(encoding="utf-8")) if block.kind in (*SHELLS, PYTHON)]
    return found


def reason(command: str) -> str | None:
    """Why it is not run here."""
    return next((why for begins, why in ELSEWHERE.items() if f"{command}  ".startswith(begins)), None)


def rule_of(command: str) -> Rule:
    """What it is given."""
    return next((rule for rule in RULES if command.startswith(rule.begins)), Rule(""))


def environment() -> dict[str, str]:
    """A reader's who followed README: the provider is chosen, MPICH is the MPI at hand."""
    path = os.pathsep.join([str(CARGO_TARGET / "release"), str(MPIS["mpich"].venv / "bin"), os.environ["PATH"]])
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
    """One shell for the commands of a block, so that what one exports the next one has. Says of each how it ended."""
    lines = []
    for number, command in enumerate(commands):
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
            # What goes on in the background is there when the next one comes.
            lines.append("sleep 1")
    return "\n".join(lines) + "\n"


def prepare(tree: pathlib.Path, template: pathlib.Path) -> None:
    """A copy of the sources, with what a reader has beside them."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(template, tree, symlinks=True)
    for name, text in files().items():
        (tree / name).write_text(text)
    (tree / "app").chmod(0o755)
    (tree / "target").mkdir()
    for name, built in (("provider", PROVIDER_DIR), ("release", CARGO_TARGET / "release")):
        (tree / "target" / name).symlink_to(built)


def run_block(name: str, block: Block, tree: pathlib.Path, tally: Tally) -> None:
    """Run its commands, and judge each."""
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


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="say what is run, and what is not and why; run nothing")
    parser.add_argument("--only", default="", metavar="WORDS", help="blocks that have these words in them alone")


def main(args: argparse.Namespace) -> int:
    found = documents()
    every = [command for of in found.values() for block in of for command in block.commands()]
    if args.list:
        for command in every:
            why = reason(command)
            print(f"{'run ' if why is None else 'not '}  {command}{'' if why is None else f'   ({why})'}")
        return 0
    need((BIN / "python3").exists(), "what the documents' blocks of Python use is missing: run ci/run setup documents first")
    squall()
    tally = Tally()
    for begins in ELSEWHERE:
        used = any(f"{command}  ".startswith(begins) for command in every)
        if not used:
            tally.add(f"ELSEWHERE: {begins}", "no document has such a command")
    template, tree = TARGET / "commands" / "sources", TARGET / "commands" / "tree"
    copy_sources(template)
    for name, of in found.items():
        for block in of:
            if args.only in block.text:
                prepare(tree, template)
                run_block(name, block, tree, tally)
    return tally.finish()
