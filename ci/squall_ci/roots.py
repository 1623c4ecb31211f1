"""Root directories of Debian, in which packages are installed, tried and removed as on a machine of a user.

debootstrap makes one for each release, which is kept under target/roots, and every use works on a copy of it. Commands run
in namespaces of their own: nothing that they start or mount outlives them.
"""

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from types import TracebackType

from squall_ci.paths import die, need, say, shown, TARGET
from squall_ci.process import Result, run, Word

ROOTS = TARGET / "roots"
# Mounts what programs expect, and changes the root.
ENTER = """
set -e
root=$1; shift
mount --make-rprivate /
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
exec chroot "$root" "$@"
"""
# A host without the machine's networks: it has one interface, at whose other end is nobody.
ISOLATE = """
ip link set lo up
ip link add eth0 type veth peer name eth1
ip address add 10.77.0.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
hostname node1
"""


def mirror() -> str:
    """Returns the address from which this machine gets Debian's packages."""
    indexes = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT)", "Created-By: Packages"]
    listed = subprocess.run(indexes, capture_output=True, text=True).stdout
    found = re.search(r"^(\S+) Debian main$", listed, re.MULTILINE)
    if not found:
        die("no mirror of Debian is known: this needs a Debian machine whose apt-get update has run")
    return found[1]


def base(release: str) -> pathlib.Path:
    """Returns the directory with a minimal system of a Debian release; makes it the first time."""
    directory = ROOTS / f"base-{release}"
    if directory.exists():
        return directory
    need(shutil.which("debootstrap"), "debootstrap is missing: run ci/run setup packages first")
    say(f"debootstrap: {release} -> {shown(directory)}")
    new = ROOTS / f"new-{release}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    result = run(["debootstrap", "--variant=minbase", release, new, mirror()], os.environ, 900)
    if not result.ok:
        die(f"debootstrap failed: {result.why()}\n{result.output[-2000:]}", 1)
    # Packages must not start their services.
    policy = new / "usr" / "sbin" / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    new.rename(directory)
    return directory


class Root:
    """A copy of a Debian release, which is removed at the end."""

    def __init__(self, release: str, name: str = "") -> None:
        self.release = release
        self.path = ROOTS / f"run-{name or release}"

    def __enter__(self) -> "Root":
        system = base(self.release)
        self._remove()
        subprocess.run(["cp", "--archive", "--reflink=auto", system, self.path], check=True)
        (self.path / "etc" / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 node1\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def _remove(self) -> None:
        if self.path.exists():
            # Nothing is mounted here: mounts belong to the namespaces of commands, which have ended.
            need(not os.path.ismount(self.path / "proc"), f"{self.path}/proc is mounted: unmount it first")
            shutil.rmtree(self.path)

    def run(
        self, *command: Word, env: Mapping[str, str] | None = None, timeout: float = 120, isolated: bool = False
    ) -> Result:
        """Runs a command inside; `isolated` gives it a network and a host name of its own."""
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *(["--net", "--uts"] if isolated else [])]
        script = (ISOLATE if isolated else "") + ENTER
        inside = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")},
            **(env or {}),
        }
        return run([*unshare, "sh", "-c", script, "sh", self.path, *command], inside, timeout)

    def shell(
        self, script: str, env: Mapping[str, str] | None = None, timeout: float = 120, isolated: bool = False
    ) -> Result:
        """Runs a shell script inside, up to its first failing command."""
        return self.run("sh", "-ec", script, env=env, timeout=timeout, isolated=isolated)

    def install(self, *packages: str) -> Result:
        """Installs Debian packages by name, or files by their path inside."""
        apt = "apt-get -qq -o APT::Install-Recommends=false -o APT::Sandbox::User=root"
        return self.shell(f"{apt} update && {apt} install -y {' '.join(packages)}", timeout=900)

    def trust(self) -> None:
        """Lets pip use the certificates and the index that this machine uses."""
        for name in ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf"):
            if pathlib.Path("/", name).exists():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(pathlib.Path("/", name), self.path / name)
