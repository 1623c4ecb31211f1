"""Build the packages into dist/: wheel, deb, rpm, tar, debug, source, recipes and sbom, with SHA256SUMS.

The program and the provider are built once, for every Linux with glibc 2.28 or newer: cargo-zigbuild links them against
that version of the C library. Debug information goes into an archive of its own, which gdb finds by build id. Without
names, everything that this machine has the tools for is built, and the rest is listed. packaging/README.md describes the
packages; `ci/run check packages` installs and tries them.
"""

import argparse
import gzip
import hashlib
import io
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from squall_ci import guided, packages
from squall_ci.commands import build
from squall_ci.packages import checked, DIST, environment, names, PACKAGING, PREFIX, TOOLS, TRIPLE, VENV
from squall_ci.paths import CARGO_TARGET, die, need, ROOT, say, shown, TARGET
from squall_ci.programs import commit

WORK = TARGET / "package"
RELEASE = CARGO_TARGET / TRIPLE / "release"
# Debug information by build id, as it lies under /usr/lib/debug.
DEBUG = WORK / "debug"
# The wheel without provider and manual pages.
BARE_WHEEL = WORK / "bare"


@dataclass(frozen=True)
class Package:
    """A package: the tools that build it, and the function that writes it into DIST."""

    word: str
    make: Callable[[], None]
    tools: tuple[pathlib.Path | str, ...] = ()
    # Contains the program and the provider.
    binary: bool = True

    def missing(self) -> list[str]:
        """Returns the names of the tools that this machine lacks."""
        tools = [*self.tools, *((*BUILD_TOOLS, guided.profdata()) if self.binary else ())]
        return [pathlib.Path(tool).name for tool in tools if not shutil.which(tool)]


# The tools that build the program and the provider, and lay out the prefix.
BUILD_TOOLS = ("cargo", VENV / "maturin", VENV / "cargo-zigbuild", "objcopy", "lowdown")


def git(*words: str) -> str:
    """Returns what a git command prints; raises an error if it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def build_environment() -> dict[str, str]:
    """Returns the environment of the builds. Binaries name no path of this machine, and archives have the commit's date."""
    cargo_home = os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo"
    flags = [
        "-Clink-arg=-Wl,--build-id=sha1",
        f"--remap-path-prefix={cargo_home}=/cargo",
        f"--remap-path-prefix={ROOT}=/squall",
    ]
    return {
        **environment(),
        guided.FLAGS: " ".join(flags),
        "CARGO_TARGET_DIR": str(CARGO_TARGET),
        "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct"),
        "SQUALL_COMMIT": commit(),
        # bindgen reads libfabric's headers, which zig's own search path does not contain.
        "BINDGEN_EXTRA_CLANG_ARGS": f"-I{headers()}",
    }


def headers() -> pathlib.Path:
    """Returns a directory with libfabric's headers alone, for those of the C library are the linker driver's."""
    include = output_of("pkg-config", "--variable=includedir", "libfabric") or "/usr/include"
    directory = WORK / "include"
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "rdma"
    if not link.is_symlink():
        link.symlink_to(pathlib.Path(include) / "rdma")
    return directory


def output_of(*command: str) -> str:
    """Returns the output of a command, or an empty string if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def split(built: pathlib.Path, installed: pathlib.Path) -> None:
    """Puts a binary without debug information at `installed`, and the debug information into DEBUG."""
    notes = build.output("readelf", "--wide", "--notes", built)
    found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
    if not found:
        die(f"{built} has no build id: the linker ignored --build-id", 1)
    debug = DEBUG / ".build-id" / found[1] / f"{found[2]}.debug"
    debug.parent.mkdir(parents=True, exist_ok=True)
    installed.parent.mkdir(parents=True, exist_ok=True)
    checked("objcopy", "--only-keep-debug", "--compress-debug-sections", built, debug)
    checked("objcopy", "--strip-all", built, installed)


def build_binaries() -> None:
    """Builds the program and the provider, and lays out PREFIX."""
    for directory in (PREFIX, DEBUG, BARE_WHEEL):
        shutil.rmtree(directory, ignore_errors=True)
    env = build_environment()
    linux = f"manylinux_{packages.GLIBC.replace('.', '_')}"
    # One build of the program serves the wheel and all other packages, so maturin must not strip it.
    maturin = ("maturin", "build", "--quiet", "--release", "--locked", "--zig", "--strip", "false", "--target", TRIPLE)
    checked(*maturin, "--compatibility", linux, "--out", BARE_WHEEL, env=env, cwd=ROOT / "python")
    zigbuild = ("cargo", "zigbuild", "--quiet", "--release", "--locked", "--target", f"{TRIPLE}.{packages.GLIBC}")
    # The simulator, which the training does not run, is built without the profile.
    profile = guided.profile("--no-default-features")
    of_provider = {**env, guided.FLAGS: f"{env[guided.FLAGS]} -Cprofile-use={profile}"}
    checked(*zigbuild, "-p", "squall-fi", "--no-default-features", env=of_provider)
    checked(*zigbuild, "-p", "squall-time", env=env)
    libraries = PREFIX / "lib" / "squall"
    split(RELEASE / "libsquall_fi.so", libraries / "libsquall-fi.so")
    split(RELEASE / build.TIME_LIBRARY, libraries / build.TIME_LIBRARY)
    split(RELEASE / "squall", PREFIX / "bin" / "squall")
    found = build.problems(libraries / "libsquall-fi.so") + build.time_problems(libraries / build.TIME_LIBRARY)
    found += packages.problems(PREFIX)
    if found:
        die("; ".join(found), 1)
    lay_out_documents()


def lay_out_documents() -> None:
    """Writes manual pages, completions and documents into PREFIX."""
    program = PREFIX / "bin" / "squall"
    manual = PREFIX / "share" / "man"
    (manual / "man1").mkdir(parents=True)
    checked(program, "man", manual / "man1")
    provider_manual(manual / "man7" / "fi_squall.7")
    for shell, name in (
        ("bash", "bash-completion/completions/squall"),
        ("zsh", "zsh/site-functions/_squall"),
        ("fish", "fish/vendor_completions.d/squall.fish"),
    ):
        path = PREFIX / "share" / name
        path.parent.mkdir(parents=True)
        path.write_text(build.output(program, "completions", shell))
    documents = PREFIX / "share" / "doc" / "squall"
    (documents / "docs").mkdir(parents=True)
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, documents / "docs")
    for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT", "packaging/squall.conf"):
        shutil.copy(ROOT / name, documents)


def provider_manual(page: pathlib.Path) -> None:
    """Writes fi_squall(7) from its Markdown."""
    text = (ROOT / "docs" / "fi_squall.7.md").read_text()
    # man and apropos want a section NAME of this form.
    heading = r"\A# fi_squall\(7\): (.*)\n"
    need(re.match(heading, text), "docs/fi_squall.7.md does not begin with `# fi_squall(7): `: mend its heading")
    text = re.sub(heading, r"## NAME\n\nfi_squall - \1\n\n## DESCRIPTION\n", text)
    facts = {
        "title": "fi_squall",
        "section": "7",
        "date": git("log", "-1", "--format=%cs"),
        "source": f"squall {packages.version()}",
        "shiftheadinglevelby": "-1",
    }
    metadata = [word for key, value in facts.items() for word in ("-m", f"{key}={value}")]
    lowdown = ["lowdown", "-s", "-Tman", *metadata, "--parse-no-intraemph", "--out-no-smarty", "--nroff-nolinks"]
    page.parent.mkdir(parents=True)
    page.write_bytes(subprocess.run(lowdown, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout)


def archive(path: pathlib.Path, members: Iterable[tuple[str, pathlib.Path | bytes]]) -> None:
    """Writes a tar archive of files by name; owner and time do not depend on who builds it."""
    time = int(git("log", "-1", "--format=%ct"))

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = time
        return member

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(members, key=lambda member: member[0]):
            if isinstance(content, bytes):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(plain(member), io.BytesIO(content))
            else:
                tar.add(content, name, recursive=False, filter=plain)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(raw.getvalue(), mtime=time))
        return
    path.write_bytes(lzma.compress(raw.getvalue(), preset=9))


def tree(directory: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Returns the files below a directory with their relative names."""
    return [(str(path.relative_to(directory)), path) for path in directory.rglob("*") if not path.is_dir()]


def make_wheel() -> None:
    """Adds provider and manual pages to maturin's wheel, and strips its program."""
    (bare,) = BARE_WHEEL.glob("*.whl")
    need(bare.name == names()["wheel"], f"maturin named the wheel {bare.name}, expected {names()['wheel']}")
    unpacked = WORK / "wheel"
    shutil.rmtree(unpacked, ignore_errors=True)
    env = build_environment()
    checked("wheel", "unpack", bare, "--dest", unpacked, env=env)
    stem = f"squall-{packages.version()}"
    data = unpacked / stem / f"{stem}.data"
    shutil.copy(PREFIX / "bin" / "squall", data / "scripts" / "squall")
    for part in ("lib", "share/man"):
        shutil.copytree(PREFIX / part, data / "data" / part)
    checked("wheel", "pack", unpacked / stem, "--dest-dir", DIST, env=env)


def make_deb() -> None:
    cargo_deb = ("cargo", "deb", "--quiet", "--no-build", "--no-strip", "-p", "squall-fi", "--target", TRIPLE)
    checked(*cargo_deb, "--output", DIST / names()["deb"], env=build_environment())


def make_rpm() -> None:
    checked("cargo", "generate-rpm", "--target", TRIPLE, "--output", DIST / names()["rpm"], env=build_environment())


def make_tar() -> None:
    stem = f"squall-{packages.version()}"
    archive(DIST / names()["tar"], [(f"{stem}/{name}", path) for name, path in tree(PREFIX)])


def make_debug() -> None:
    archive(DIST / names()["debug"], [(f"usr/lib/debug/{name}", path) for name, path in tree(DEBUG)])


def make_source() -> None:
    if commit().endswith("-dirty"):
        say("the source archive has the files of the commit, not those that were changed since")
    tar = subprocess.run(
        ["git", "archive", "--format=tar", f"--prefix=squall-{packages.version()}/", "HEAD"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    (DIST / names()["source"]).write_bytes(gzip.compress(tar, mtime=0))


def make_recipes() -> None:
    """Writes the recipes with the checksum of the source archive in them."""
    source = DIST / names()["source"]
    if not source.exists():
        make_source()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    listed = git("ls-files", "-z", "packaging").split("\0")
    stem = f"squall-{packages.version()}-recipes"
    members: list[tuple[str, bytes]] = []
    for path in sorted(ROOT / name for name in listed if name):
        text = path.read_text().replace("@SHA256@", digest)
        members.append((f"{stem}/{path.relative_to(PACKAGING)}", text.encode()))
    archive(DIST / names()["recipes"], members)


def make_sbom() -> None:
    """Lists the crates in the program and in the provider. cargo-cyclonedx writes beside the manifests, so it runs in a
    copy of the sources."""
    copy = WORK / "source"
    shutil.rmtree(copy, ignore_errors=True)
    for name in filter(None, git("ls-files", "-z").split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    form = ("--quiet", "--format", "json", "--spec-version", "1.5", "--target", TRIPLE)
    options = (*form, "--no-default-features", "--features", "squall-tools/parquet")
    checked("cargo", "cyclonedx", *options, "--override-filename", "bom", env=build_environment(), cwd=copy)
    for directory, word in (("tools", "sbom"), (".", "provider-sbom")):
        # Crates of the workspace are named after the directory in which they were found.
        text = (copy / directory / "bom.json").read_text().replace(str(copy), "/squall")
        (DIST / names()[word]).write_text(text)


PACKAGES = (
    Package("wheel", make_wheel, (VENV / "wheel",)),
    Package("deb", make_deb, (TOOLS / "cargo-deb",)),
    Package("rpm", make_rpm, (TOOLS / "cargo-generate-rpm",)),
    Package("tar", make_tar),
    Package("debug", make_debug),
    Package("source", make_source, binary=False),
    Package("recipes", make_recipes, binary=False),
    Package("sbom", make_sbom, ("cargo", TOOLS / "cargo-cyclonedx"), binary=False),
)


def write_sums() -> None:
    """Writes SHA256SUMS, which `sha256sum --check` reads."""
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(lines))


def arguments(parser: argparse.ArgumentParser) -> None:
    words = [package.word for package in PACKAGES]
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(words)}; by default all")


def main(args: argparse.Namespace) -> int:
    by_word = {package.word: package for package in PACKAGES}
    for word in args.packages:
        need(word in by_word, f"there is no package {word}; there are: {', '.join(by_word)}")
    wanted = [by_word[word] for word in args.packages] or list(PACKAGES)
    missing = {package.word: tools for package in wanted if (tools := package.missing())}
    for word, tools in missing.items():
        say(f"{word} is not built: {', '.join(tools)} missing; run ci/run setup packages first")
    todo = [package for package in wanted if package.word not in missing]
    need(todo, "nothing can be built here")
    DIST.mkdir(exist_ok=True)
    if not args.packages:
        for old in DIST.iterdir():
            old.unlink()
    if any(package.binary for package in todo):
        build_binaries()
    for package in todo:
        package.make()
    write_sums()
    for path in sorted(DIST.iterdir()):
        say(f"{shown(path)}: {path.stat().st_size} bytes")
    # A package that was asked for by name and is missing is a failure.
    return 1 if args.packages and missing else 0
