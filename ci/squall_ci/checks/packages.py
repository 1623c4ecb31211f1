"""Install the packages of dist/ as a user does, run MPI jobs on them, and remove them.

The parts: `files` (sums, sizes, C library, debug information, list of crates), `wheel` (an empty virtual environment), `deb`
(Debian 12 and 13, with Open MPI and MPICH on the system's libfabric), `rpm` (contents, installed into a root of its own),
`tar` (with the environment module), `container` (the steps of the Containerfile), `slurm` (two and four tasks of srun) and
`recipes`. The Debian systems are made by debootstrap under target/roots; each part works on a copy and removes it. Every
job proves by the statistics of its endpoints that squall carried it.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from squall_ci import packages
from squall_ci.commands import setup
from squall_ci.environment import clean_environment
from squall_ci.job import Statistics
from squall_ci.packages import DIST, environment, file, PACKAGING, VENV
from squall_ci.paths import need, ROOT, TARGET
from squall_ci.process import Result, run, Word
from squall_ci.roots import Root
from squall_ci.tally import Tally

RING = "-m mpi4py.bench ringtest --size 65536 --loop 20"
# Bytes that four ranks receive in that ring, at least.
RING_BYTES = 65536 * 20
# Seconds for the two commands of the wheel, from an empty virtual environment to the end of a job.
WHEEL_SECONDS = 60
LIBRARY = "/usr/lib/x86_64-linux-gnu/libfabric/libsquall-fi.so"
CONFIGURATION = "/etc/squall.conf"
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
OPENMPI_SQUALL = {
    **OPENMPI,
    "OMPI_MCA_pml": "cm",
    "OMPI_MCA_mtl": "ofi",
    "OMPI_MCA_mtl_ofi_provider_include": "squall",
}


# MPICH of a virtual environment, beside which Debian's Open MPI is installed.
MPICH = {"LD_LIBRARY_PATH": "/opt/mpi/lib", "MPI4PY_MPIABI": "mpich", "MPIR_CVAR_CH4_NETMOD": "ofi"}


@dataclass(frozen=True)
class Debian:
    """A release, its libfabric, and the MPICH that is tried there: one that can use this libfabric, or a current one with
    its own."""

    release: str
    libfabric: str
    mpich: str
    shared: bool

    def mpich_environment(self) -> dict[str, str]:
        """Returns the variables with which MPICH uses squall."""
        path = {} if self.shared else {"FI_PROVIDER_PATH": "/usr/lib/squall"}
        # Ranks of one host would use MPICH's own shared memory.
        return {**MPICH, **path, "FI_PROVIDER": "squall", "MPIR_CVAR_NOLOCAL": "1"}

    def install_mpich(self, root: Root) -> Result:
        """Installs MPICH and mpi4py from PyPI into /opt/mpi."""
        root.trust()
        # The wheel of MPICH brings a libfabric; the system's takes its place.
        link = "ln -sf /usr/lib/x86_64-linux-gnu/libfabric.so.1 /opt/mpi/lib/mpich/libfabric.so.1" if self.shared else "true"
        pip = f"/opt/mpi/bin/pip --quiet install '{self.mpich}' '{setup.MPI4PY}'"
        return root.shell(f"python3 -m venv /opt/mpi\n{pip}\n{link}\nfi_info --version", timeout=300)


# No MPICH of PyPI can use libfabric 1.17.
DEBIANS = (Debian("bookworm", "1.17", setup.MPICH, False), Debian("trixie", "2.1", "mpich==4.2.3", True))


def expect(
    tally: Tally, name: str, result: Result, present: Sequence[str] = (), absent: Sequence[str] = (), note: str = ""
) -> bool:
    """Counts a command that must succeed and print what matches `present` and nothing that matches `absent`."""
    problem = None if result.ok else result.why()
    for pattern in present:
        if problem is None and not re.search(pattern, result.output):
            problem = f"its output has no {pattern!r}"
    for pattern in absent:
        if problem is None and re.search(pattern, result.output):
            problem = f"its output has {pattern!r}"
    tally.add(name, problem, result.seconds, note, result.output)
    return problem is None


def unpack(word: str, directory: pathlib.Path) -> None:
    """Unpacks an archive of dist/."""
    subprocess.run(["tar", "--no-same-owner", "-xf", file(word), "-C", directory], check=True)


def last_line(result: Result) -> str:
    lines = result.output.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def check_files(tally: Tally) -> None:
    """Checks sums, sizes, the C library, debug information and the lists of crates."""
    listed = (DIST / "SHA256SUMS").read_text().splitlines()
    sums = {line.split("  ")[1]: line.split("  ")[0] for line in listed}
    for word, name in packages.names().items():
        path = DIST / name
        problem = "is missing: run ci/run package first" if not path.exists() else None
        if not problem and sums.get(name) != hashlib.sha256(path.read_bytes()).hexdigest():
            problem = "SHA256SUMS has another sum, or none"
        tally.add(f"files: {word}", problem, note=f"{name}, {path.stat().st_size if path.exists() else 0} bytes")
    with tempfile.TemporaryDirectory(dir=TARGET) as scratch:
        unpacked = pathlib.Path(scratch)
        for word in ("tar", "debug"):
            unpack(word, unpacked)
        prefix = unpacked / f"squall-{packages.version()}"
        for name in packages.LARGEST:
            binary = prefix / name
            glibc = ".".join(map(str, packages.newest_glibc(binary)))
            problem = "; ".join(found for found in packages.problems(prefix) if found.startswith(name)) or None
            tally.add(f"files: {name}", problem, note=f"{binary.stat().st_size} bytes, needs glibc {glibc}")
            tally.add(f"files: debug information of {name}", lacks_debug(binary, unpacked / "usr/lib/debug"))
            own = [
                str(ROOT),
                os.environ.get("CARGO_HOME") or f"{pathlib.Path.home()}/.cargo",
                f"{pathlib.Path.home()}/.cache",
            ]
            paths = [path for path in own if path.encode() in binary.read_bytes()]
            tally.add(f"files: {name} names no path of the build", f"it has {paths[0]}" if paths else None)
    for word, package in (("sbom", "squall-tools"), ("provider-sbom", "squall-fi")):
        check_crates(tally, word, package)


def lacks_debug(binary: pathlib.Path, directory: pathlib.Path) -> str | None:
    """Returns what is wrong with the debug information of a binary, which gdb looks for by its build id."""
    notes = run(["readelf", "--wide", "--notes", binary]).output
    found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
    if not found:
        return "it has no build id"
    debug = directory / ".build-id" / found[1] / f"{found[2]}.debug"
    if not debug.exists():
        return f"the archive has no {debug.relative_to(directory)}"
    sections = run(["readelf", "--wide", "--sections", debug]).output
    return None if ".debug_info" in sections else "the file has no .debug_info"


def check_crates(tally: Tally, word: str, package: str) -> None:
    """Compares a list of crates with those that cargo links into the package."""
    bom = json.loads(file(word).read_text())
    listed = {(component["name"], component["version"]) for component in bom["components"]}
    tree = ["cargo", "tree", "--locked", "-p", package, "--no-default-features", "-e", "normal"]
    result = run([*tree, "--target", packages.TRIPLE, "--prefix", "none", "--format", "{p}"], os.environ)
    linked = {tuple(line.split()[:2]) for line in result.output.splitlines() if line.strip()}
    missing = {(name, number.removeprefix("v")) for name, number in linked} - listed - {(package, packages.version())}
    problem = result.why() if not result.ok else None
    if not problem and (missing or len(listed) < 10):
        problem = f"lacks {sorted(missing)[:5]}"
    tally.add(f"files: crates of {package}", problem, note=f"{len(listed)} crates", output=result.output)


def check_wheel(tally: Tally) -> None:
    """Installs the wheel and an MPI into an empty environment without a compiler, and runs a job."""
    wheel = file("wheel")
    expect(tally, "wheel: auditwheel", run([VENV / "auditwheel", "show", wheel], environment()), [r'tag: "manylinux_2_28_'])
    with tempfile.TemporaryDirectory(dir=TARGET) as scratch:
        venv = pathlib.Path(scratch) / "venv"
        made = run([shutil.which("python3", path="/usr/bin") or sys.executable, "-m", "venv", venv])
        if not expect(tally, "wheel: virtual environment", made):
            return
        # What a user types, after `source venv/bin/activate`.
        env = {**clean_environment(), "PATH": f"{venv}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(venv)}
        env = {name: value for name, value in env.items() if not name.startswith("FI_SQUALL_")}
        begin = time.monotonic()
        install = run(["pip", "install", "--only-binary", ":all:", wheel, "mpich", "mpi4py", "numpy"], env, 300)
        if not expect(tally, "wheel: pip install", install, ["Successfully installed .*squall"], [r"\bpandas-"]):
            return
        job = ["--", "mpiexec", "-n", "4", "python", *RING.split()]
        first = run(["squall", "run", "--require", *job], env)
        seconds = time.monotonic() - begin
        expect(tally, "wheel: squall run", first, ["time for 20 loops"], note=last_line(first))
        # Ranks of one host use MPICH's own shared memory without --all.
        statistics = Statistics()
        every = run(["squall", "run", "--require", "--all", *job], {**env, **statistics.env()})
        if expect(tally, "wheel: squall run --all", every, note=last_line(every)):
            tally.add("wheel: carried by squall", statistics.verdict(4, RING_BYTES), note=statistics.summary())
        slow = f"took longer than {WHEEL_SECONDS} s" if seconds > WHEEL_SECONDS else None
        tally.add("wheel: from the wheel to a job", slow, seconds)
        page = venv / "share" / "man" / "man7" / "fi_squall.7"
        tally.add("wheel: manual pages", None if page.exists() else f"there is no {page.relative_to(venv)}")
        simulate = "import squall; print(len(squall.sim('star:9', 'incast:8x64KiB')))"
        bare = run(["python", "-c", simulate], env)
        bare.code = 0 if bare.code == 1 else bare.code
        expect(tally, "wheel: advice without pandas", bare, [r"ImportError: pandas cannot be imported.*squall\[sim\]"])
        extra = run(["pip", "install", "--only-binary", ":all:", f"{wheel}[sim]"], env, 300)
        if expect(tally, "wheel: pip install squall[sim]", extra, ["pandas-"]):
            expect(tally, "wheel: a simulation", run(["python", "-c", simulate], env), [r"^8\n"])


def choices(root: Root) -> dict[str, str]:
    """Returns what libfabric offers and MPIs choose in a root if nobody names a provider, as the MPIs' own words."""
    listed = root.run("fi_info")
    mpich = root.run(
        *("/opt/mpi/bin/mpiexec", "-n", "2", "/opt/mpi/bin/python3", *RING.split()),
        env={**MPICH, "MPIR_CVAR_DEBUG_SUMMARY": "1"},
    )
    openmpi = root.run(
        *("mpiexec", "--oversubscribe", "-n", "2", "python3", *RING.split()),
        env={**OPENMPI, "OMPI_MCA_pml_base_verbose": "10", "OMPI_MCA_mtl_base_verbose": "10"},
    )
    for name, result in (("fi_info", listed), ("MPICH", mpich), ("Open MPI", openmpi)):
        need(result.ok, f"{name} fails in {root.path.name}: {result.why()}\n{result.output[-2000:]}")
    found = {
        "fi_info": listed.output,
        "MPICH": "\n".join(sorted(set(re.findall(r"libfabric provider: .*", mpich.output)))),
        "Open MPI": "\n".join(sorted(set(re.findall(r"select: component \w+ selected", openmpi.output)))),
    }
    for name, text in found.items():
        need(text, f"{name} does not print what it chose in {root.path.name}")
    return found


def ring(root: Root, tally: Tally, name: str, command: Sequence[str], env: dict[str, str], isolated: bool = False) -> None:
    """Runs a job of four ranks in a root, and judges the statistics of its endpoints."""
    with tempfile.TemporaryDirectory(dir=root.path / "tmp") as folder:
        # Jobs may belong to another user.
        pathlib.Path(folder).chmod(0o777)
        inside = f"/tmp/{pathlib.Path(folder).name}"
        statistics = Statistics(pathlib.Path(folder))
        env = {**env, "FI_SQUALL_STATS": f"json:{inside}/%h-%p-%e.json"}
        result = root.run(*command, env=env, isolated=isolated)
        problem = result.why() if not result.ok else statistics.verdict(4, RING_BYTES)
        tally.add(name, problem, result.seconds, statistics.summary(), result.output)


def check_deb(tally: Tally) -> None:
    for debian in DEBIANS:
        with Root(debian.release) as root:
            check_deb_in(tally, root, debian)


def check_deb_in(tally: Tally, root: Root, debian: Debian) -> None:
    """Installs the .deb beside Debian's libfabric and MPIs, tries it, and removes it."""
    title = f"deb on {debian.release}"
    prepared = root.install(
        "libfabric-bin", "libfabric1", "openmpi-bin", "python3-mpi4py", "python3-venv", "ca-certificates"
    )
    if not expect(tally, f"{title}: Debian's libfabric and Open MPI", prepared):
        return
    libfabric = rf"libfabric: {re.escape(debian.libfabric)}"
    if not expect(tally, f"{title}: {debian.mpich}", debian.install_mpich(root), [libfabric]):
        return
    before = choices(root)
    shutil.copy(file("deb"), root.path / "srv" / "squall.deb")
    if not expect(tally, f"{title}: apt-get install", root.install("/srv/squall.deb")):
        return
    for name, text in choices(root).items():
        changed = None if text == before[name] else f"was {before[name][:200]!r}, is {text[:200]!r}"
        tally.add(f"{title}: {name} chooses as before", changed, note=text.replace("\n", "; ")[:100])
    named = root.run("fi_info", env={"FI_PROVIDER": "squall"})
    expect(tally, f"{title}: FI_PROVIDER=squall fi_info", named, ["provider: squall"])
    expect(tally, f"{title}: fi_info -p squall", root.run("fi_info", "-p", "squall"), ["provider: squall"])
    listed = root.shell(f"echo 'enable = yes' >> {CONFIGURATION}; fi_info")
    expect(tally, f"{title}: enable = yes", listed, ["provider: squall"])
    mpich = ("/opt/mpi/bin/mpiexec", "-n", "4", "/opt/mpi/bin/python3", *RING.split())
    ring(root, tally, f"{title}: MPICH", mpich, debian.mpich_environment())
    openmpi = ("mpiexec", "--oversubscribe", "-n", "4", "python3", *RING.split())
    ring(root, tally, f"{title}: Open MPI", openmpi, OPENMPI_SQUALL)
    expect(tally, f"{title}: squall --version", root.run("squall", "--version"), [re.escape(packages.version())])
    run_openmpi = ("squall", "run", "--require", "--", *openmpi)
    ring(root, tally, f"{title}: squall run", run_openmpi, OPENMPI)
    pages = root.shell("for page in /usr/share/man/man1/squall*.gz /usr/share/man/man7/fi_squall.7.gz; do zcat $page; done")
    expect(tally, f"{title}: manual pages", pages, [r"\.TH .?squall-sim.? 1", r'\.TH "fi_squall" "7"'])
    complete = root.shell("bash -c 'source /usr/share/bash-completion/completions/squall; complete -p squall'")
    expect(tally, f"{title}: completions", complete, [r"complete .* squall"])
    removed = root.shell(f"apt-get -qq remove squall; test -e {CONFIGURATION}; grep -q '^enable = yes' {CONFIGURATION}")
    expect(tally, f"{title}: apt-get remove keeps {CONFIGURATION}", removed)
    purged = root.shell(
        "dpkg --purge squall; find / -xdev -iname '*squall*' ! -path '/srv/*' ! -path '/var/cache/*' ! -path '/proc/*'"
    )
    expect(tally, f"{title}: purge leaves nothing", purged, absent=[r"(?m)^/"])


def check_rpm(tally: Tally) -> None:
    """Lists the .rpm, installs it into a root of its own, tries the files, and removes it."""
    package = file("rpm")
    libraries = [f"/usr/lib64/libfabric/{name}" for name in ("libsquall-fi.so", "libsquall_time.so")]
    wanted = [*libraries, "/usr/bin/squall", CONFIGURATION, "/usr/share/man/man7/fi_squall.7"]
    listed = run(["rpm", "-qlp", package])
    expect(tally, "rpm: rpm -qlp", listed, [rf"(?m)^{re.escape(name)}$" for name in wanted])
    expect(tally, "rpm: rpm -K", run(["rpm", "-K", package]), [": digests OK"])
    expect(tally, "rpm: configuration", run(["rpm", "-qcp", package]), [CONFIGURATION])
    expect(tally, "rpm: requires", run(["rpm", "-qp", "--requires", package]), [r"glibc >= 2\.28"])
    with tempfile.TemporaryDirectory(dir=TARGET) as scratch:
        root = pathlib.Path(scratch)
        # The database of this root has no glibc that the package could require.
        rpm: list[Word] = ["rpm", "--root", root, "--nodeps"]
        if not expect(tally, "rpm: rpm -i", run([*rpm, "-i", package])):
            return
        path = {"FI_PROVIDER_PATH": str(root / "usr/lib64/libfabric")}
        offered = run(["fi_info"], {**clean_environment(), **path})
        expect(tally, "rpm: silent unless named", offered, absent=["provider: squall"])
        named = run(["fi_info", "-p", "squall"], {**clean_environment(), **path})
        expect(tally, "rpm: fi_info -p squall", named, ["provider: squall"])
        version = run([root / "usr/bin/squall", "--version"])
        expect(tally, "rpm: squall --version", version, [re.escape(packages.version())])
        variables = run([root / "usr/bin/squall", "env"], clean_environment())
        expect(tally, "rpm: squall env", variables, [rf"FI_PROVIDER_PATH=\S*{re.escape(path['FI_PROVIDER_PATH'])}"])
        expect(tally, "rpm: rpm -V", run([*rpm, "-V", "squall"]))
        expect(tally, "rpm: rpm -e", run([*rpm, "-e", "squall"]))
        left = [str(path.relative_to(root)) for path in root.rglob("*squall*")]
        tally.add("rpm: nothing is left", f"there are {left[:5]}" if left else None)


def check_tar(tally: Tally) -> None:
    """Unpacks the archive below /opt of a root, and loads the environment module."""
    with Root("bookworm", "tar") as root:
        prepared = root.install("environment-modules", "libfabric-bin")
        if not expect(tally, "tar: environment-modules", prepared):
            return
        unpack("tar", root.path / "opt")
        modules = root.path / "opt" / "modulefiles"
        shutil.copytree(PACKAGING / "modulefiles", modules)
        script = """
        . /etc/profile.d/modules.sh
        module use /opt/modulefiles
        module load squall
        fi_info | grep squall
        command -v squall
        squall --version
        module unload squall
        env | grep -E '^FI_' || echo no variable is left
        """
        loaded = root.run("bash", "-ec", script)
        wanted = ["provider: squall", rf"/opt/squall-{re.escape(packages.version())}/bin/squall", "no variable is left"]
        expect(tally, "tar: module load squall", loaded, wanted)


def container_steps(text: str) -> list[tuple[str, str]]:
    """Returns the instructions of a Containerfile: word and argument, with continued lines joined."""
    joined = re.sub(r"\\\n", " ", text)
    lines = [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [(word.upper(), argument.strip()) for word, _, argument in (line.partition(" ") for line in lines)]


def check_container(tally: Tally) -> None:
    """Carries out the Containerfile in a root, and runs a job between two hosts as its user."""
    steps = container_steps((PACKAGING / "container" / "Containerfile").read_text())
    need(
        steps[0] == ("FROM", "debian:12-slim"), "the Containerfile begins with another image than Debian 12: mend this check"
    )
    user, folder = "root", "/"
    with Root("bookworm", "container") as root:
        for word, argument in steps[1:]:
            if word == "COPY":
                source, target = argument.split()
                shutil.copy(DIST / source, root.path / target.lstrip("/"))
            elif word == "RUN":
                done = root.shell(argument, timeout=900)
                if not expect(tally, f"container: {argument[:60]}", done):
                    return
            elif word == "USER":
                user = argument
            elif word == "WORKDIR":
                folder = argument
            else:
                need(False, f"the Containerfile has {word}: teach it to this check")
        job = f"cd {folder} && mpirun --oversubscribe -n 4 python3 {RING}"
        ring(
            root,
            tally,
            f"container: a job of {user}",
            ["runuser", "-u", user, "--", "sh", "-ec", f"{job}"],
            {"HOME": folder},
        )


SLURM = """
ClusterName=proof
SlurmctldHost=node1
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
NodeName=node1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=node1 Default=YES State=UP
"""
SLURM_START = """
mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd /run/munge
chown munge: /run/munge
runuser -u munge -- munged --force
rm -rf /var/spool/slurmctld/* /var/spool/slurmd/*
slurmctld -c && slurmd -c
for attempt in $(seq 100); do sinfo --noheader --format %T | grep -q idle && break; sleep 0.2; done
"""


def check_slurm(tally: Tally) -> None:
    """Starts Slurm of Debian 12 on one host, and runs the example with two and four tasks under two MPIs."""
    with Root("bookworm", "slurm") as root:
        shutil.copy(file("deb"), root.path / "srv" / "squall.deb")
        # Slurm's plugin for PMIx loads the library by the name that the development package has.
        slurm = ("slurmd", "slurmctld", "slurm-client", "munge", "libpmix-dev")
        mpis = ("openmpi-bin", "python3-mpi4py", "python3-venv", "ca-certificates", "libfabric-bin", "/srv/squall.deb")
        if not expect(tally, "slurm: Debian's Slurm, Open MPI and the .deb", root.install(*slurm, *mpis)):
            return
        expect(tally, "slurm: MPICH", DEBIANS[0].install_mpich(root))
        (root.path / "etc" / "slurm").mkdir(exist_ok=True)
        (root.path / "etc" / "slurm" / "slurm.conf").write_text(SLURM.lstrip())
        shutil.copy(PACKAGING / "slurm" / "job.sh", root.path / "srv" / "job.sh")
        # Ranks of one host would use MPICH's own shared memory.
        mpich = {**MPICH, "MPIR_CVAR_NOLOCAL": "1"}
        for mpi, python, env in (("pmix", "python3", {}), ("pmi2", "/opt/mpi/bin/python3", mpich)):
            for tasks in (2, 4):
                check_slurm_job(tally, root, mpi, tasks, shlex.join([python, *RING.split()]), env)


def check_slurm_job(tally: Tally, root: Root, mpi: str, tasks: int, program: str, own: dict[str, str]) -> None:
    """Submits the example and waits for its end."""
    with tempfile.TemporaryDirectory(dir=root.path / "srv") as folder:
        inside = f"/srv/{pathlib.Path(folder).name}"
        statistics = Statistics(pathlib.Path(folder))
        env: dict[str, str] = {**own, "SQUALL_MPI": mpi, "FI_SQUALL_STATS": f"json:{inside}/%h-%p-%e.json"}
        submit = f"sbatch --wait --ntasks={tasks} --output=/srv/out.txt /srv/job.sh {program}; cat /srv/out.txt"
        result = root.shell(f"{SLURM_START}{submit}", env=env, isolated=True)
        problem = result.why() if not result.ok else statistics.verdict(tasks, RING_BYTES)
        name = f"slurm: sbatch, srun --mpi={mpi} with {tasks} tasks"
        tally.add(name, problem, result.seconds, statistics.summary(), result.output)


# Renders the recipe of conda, and validates the pods of the Kubernetes example.
READ_RECIPES = """
import pathlib, sys, kubernetes_validate, yaml
from rattler_build import Stage0Recipe, VariantConfig
folder = pathlib.Path(sys.argv[1])
recipe = Stage0Recipe.from_file(str(folder / "conda" / "recipe.yaml"))
for rendered in recipe.render(VariantConfig.from_file(str(folder / "conda" / "variants.yaml"))):
    package = rendered.recipe.package
    print("conda:", package.name, package.version)
job = yaml.safe_load((folder / "kubernetes" / "mpijob.yaml").read_text())
for name, replica in job["spec"]["mpiReplicaSpecs"].items():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": replica["template"]["spec"]}
    print(f"kubernetes: {name}", kubernetes_validate.validate(pod, "1.30", strict=True))
"""


def check_recipes(tally: Tally) -> None:
    """Reads the recipes with their own tools, as far as PyPI has these."""
    with tempfile.TemporaryDirectory(dir=TARGET) as scratch:
        unpack("recipes", pathlib.Path(scratch))
        (recipes,) = pathlib.Path(scratch).iterdir()
        digest = hashlib.sha256(file("source").read_bytes()).hexdigest()
        for name in ("spack/packages/squall/package.py", "conda/recipe.yaml"):
            text = (recipes / name).read_text()
            tally.add(f"recipes: checksum in {name}", None if digest in text else "it is not that of the source archive")
        spack = recipes / "spack" / "packages" / "squall" / "package.py"
        expect(tally, "recipes: spack compiles", run([sys.executable, "-m", "py_compile", spack]))
        read = run([VENV / "python", "-c", READ_RECIPES, recipes], environment())
        wanted = [rf"conda: squall {re.escape(packages.version())}", "kubernetes: Launcher", "kubernetes: Worker"]
        expect(tally, "recipes: conda and kubernetes", read, wanted)
        expect(tally, "recipes: slurm/job.sh", run(["sh", "-n", recipes / "slurm" / "job.sh"]))
    with tarfile.open(file("source")) as tar:
        names = set(tar.getnames())
    tracked = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    missing = [name for name in tracked.stdout.splitlines() if f"squall-{packages.version()}/{name}" not in names]
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    versions = {package["version"] for package in lock["package"] if package["name"].startswith("squall-")}
    tally.add(
        "recipes: source archive", f"it lacks {missing[:3]}: build it again" if missing else None, note=f"{len(names)} files"
    )
    tally.add("recipes: one version", None if versions == {packages.version()} else f"Cargo.lock has {versions}")


PARTS: dict[str, Callable[[Tally], None]] = {
    "files": check_files,
    "wheel": check_wheel,
    "deb": check_deb,
    "rpm": check_rpm,
    "tar": check_tar,
    "container": check_container,
    "slurm": check_slurm,
    "recipes": check_recipes,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; by default all")


def main(args: argparse.Namespace) -> int:
    for part in args.parts:
        need(part in PARTS, f"there is no part {part}; there are: {', '.join(PARTS)}")
    need((DIST / "SHA256SUMS").exists(), "there are no packages in dist: run ci/run package first")
    tally = Tally()
    for part in args.parts or PARTS:
        PARTS[part](tally)
    return tally.finish()
