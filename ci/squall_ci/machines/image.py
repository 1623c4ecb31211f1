"""Builds what guests boot, once, under target/machines: a disk with Debian 12 and MPIs, and the kernels of Debian 11 to 13.

The disk is read only, and every guest has its changes in memory. A second disk has what is tried: the provider, `squall` and the
programs of fabtests/mpi. It is written for each run.
"""

import hashlib
import lzma
import os
import pathlib
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_ci.commands.setup import MPI4PY, MPICH, OPENMPI
from squall_ci.mpis import MPIS as INSTALLED
from squall_ci.paths import die, MPI_TESTS, PROVIDER_DIR, ROOT, say, shown, TARGET
from squall_ci.process import run, Word
from squall_ci.roots import mirror, Root

MACHINES = TARGET / "machines"
BASE, KEY = MACHINES / "base.ext4", MACHINES / "key"
# The releases of Debian whose kernels boot, by the series of the kernel. Debian 10 (4.19) has left the mirrors.
KERNELS = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie"}
# Where Debian keeps the kernels' small flavour, which lacks the drivers of hardware.
FLAVOUR = "linux-image-cloud-amd64"
PACKAGES = (
    "busybox-static",
    "ethtool",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libfabric-bin",
    "nftables",
    "openssh-client",
    "openssh-server",
    "procps",
    "python3",
    "python3-venv",
    "wireguard-tools",
)
# The environments of the MPIs in a guest are /opt/NAME.
MPIS = {"mpich": (MPICH, MPI4PY, "numpy"), "openmpi": (OPENMPI, MPI4PY, "numpy")}
# What a guest's jobs need not of Intel MPI, which has no package for Debian and comes from this machine's environment.
NEEDLESS = (
    "IMB*",
    "*mpcp*",
    "*java*",
    "libmpifort*",
    "*ilp64*",
    "libmpicxx*",
    "share",
    "include",
    "pip*",
    "setuptools*",
    "__pycache__",
)
# The modules with which a guest finds its disks; the others are on the first.
EARLY = ("virtio_pci", "virtio_blk", "overlay")
# How guests log in to each other, and this machine to them. OpenSSH's first choice of a key exchange takes longer without KVM.
CHEAP = {"KexAlgorithms": "curve25519-sha256", "Ciphers": "aes128-gcm@openssh.com"}
SSH = {
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "LogLevel": "ERROR",
    "BatchMode": "yes",
    "ConnectTimeout": "20",
    **CHEAP,
}
# Unpacks the newest kernel of each release in the root: the packages' own scripts would build a ramdisk.
UNPACK = """
cd /tmp
for kernel in {kernels}; do
    series=${{kernel%=*}} release=${{kernel#*=}}
    echo "deb {mirror} $release main" > /etc/apt/sources.list.d/kernel.list
    apt-get -qq -o APT::Sandbox::User=root update
    package=$(apt-cache show {flavour} | sed -n "s/^Depends: \\(linux-image-$series\\.[^ ]*\\) .*/\\1/p" | head -n 1)
    apt-get -qq -o APT::Sandbox::User=root download "$package"
    mkdir new && dpkg -x "$package"_*.deb new
    modules=$(echo new/lib/modules/* new/usr/lib/modules/* | tr ' ' '\\n' | grep -v '[*]')
    version=$(basename "$modules")
    mkdir -p /usr/lib/modules "/boot/$series"
    mv "$modules" /usr/lib/modules/
    mv new/boot/vmlinuz-* "/boot/$series/vmlinuz"
    depmod "$version"
    for module in {early}; do modprobe -S "$version" --show-depends $module; done > "/boot/$series/modules"
    rm -r new ./*.deb
done
rm /etc/apt/sources.list.d/kernel.list
"""
# The first program of a guest, in its ramdisk.
INIT = """\
#!/bin/busybox sh
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do busybox insmod "$module"; done
until [ -b /dev/vdb ]; do busybox usleep 10000; done
busybox mount -t ext4 -o ro,noload /dev/vda /base
busybox mount -t tmpfs -o size=90% changes /changes
busybox mkdir /changes/upper /changes/work
busybox mount -t overlay -o lowerdir=/base,upperdir=/changes/upper,workdir=/changes/work root /root
busybox cp /guest /root/guest
exec busybox switch_root /root /guest
"""
# The first program on its disk. The card by which this machine controls the guest is in a network namespace of its own, so
# that the networks on trial are the only ones that programs see. Commands come from there into the guest's own network.
GUEST = """\
#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
for directory in /dev/shm /run /tmp; do mount -t tmpfs -o mode=1777 tmpfs $directory; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -sf /proc/self/fd /dev/fd
mount -o ro,noload /dev/vdb /mnt
for word in $(cat /proc/cmdline); do
    case $word in guest=*) hostname "${word#guest=}";; esac
done
modprobe -a vmxnet3 virtio_net
# As docs/hosts.md requires for frames: Linux 5.10 counts the memory of BPF against this limit, and root's is 64 KiB.
ulimit -l unlimited
ln -s /mnt/impi /opt/impi
ip link set lo up
mkdir -p /run/sshd
echo '@SSH@' > /root/.ssh/config
ip netns add control
for card in /sys/class/net/eth*; do
    case $(cat "$card/address") in 52:54:00:ff:*) control=${card##*/};; esac
done
ip link set "$control" netns control
ip -n control link set lo up
ip -n control address add 10.0.2.15/24 dev "$control"
ip -n control link set "$control" up
/usr/sbin/sshd
nsenter --net=/run/netns/control /usr/sbin/sshd -o PidFile=none \
    -o ForceCommand='exec nsenter --net=/proc/1/ns/net sh -c "$SSH_ORIGINAL_COMMAND"'
echo "guest is ready" > /dev/console
while :; do sleep 3600 & wait $!; done
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel that guests boot, and the modules that its ramdisk loads, in order."""

    image: pathlib.Path
    modules: tuple[pathlib.Path, ...]

    def ramdisk(self) -> bytes:
        """Returns the ramdisk with the first programs of a guest."""
        files = {f"modules/{number:02}.ko": module.read_bytes() for number, module in enumerate(self.modules)}
        programs = {
            "init": INIT.encode(),
            "guest": GUEST.replace("@SSH@", "\n".join(map(" ".join, SSH.items()))).encode(),
            "bin/busybox": (MACHINES / "busybox").read_bytes(),
        }
        return archive(files | programs, ["dev", "proc", "base", "changes", "root"])


def archive(files: Mapping[str, bytes], directories: Iterable[str]) -> bytes:
    """Returns an archive that Linux accepts as a ramdisk (cpio, format newc), with executable files."""
    entries: dict[str, bytes | None] = dict.fromkeys(directories)
    for name, content in files.items():
        entries |= dict.fromkeys(str(parent) for parent in pathlib.PurePath(name).parents if str(parent) != ".")
        entries[name] = content
    out = bytearray()
    for number, (name, body) in enumerate([*entries.items(), ("TRAILER!!!", b"")]):
        mode = 0o755 | (stat.S_IFDIR if body is None else stat.S_IFREG)
        content = body or b""
        fields = (number + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)


def _recipe() -> str:
    """Returns a digest of what the first disk is made from."""
    parts = (*KERNELS.items(), FLAVOUR, *PACKAGES, *MPIS.items(), *EARLY, UNPACK)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _write_disk(directory: pathlib.Path, disk: pathlib.Path, spare: int) -> None:
    """Writes a file system with the contents of a directory and `spare` MiB of room."""
    size = int(subprocess.run(["du", "-sm", directory], capture_output=True, text=True, check=True).stdout.split()[0])
    new = disk.with_suffix(".new")
    new.unlink(missing_ok=True)
    command: list[Word] = [
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-O",
        "^has_journal",
        "-d",
        directory,
        new,
        f"{size * 11 // 10 + spare}M",
    ]
    result = run(command, os.environ, 300)
    if not result.ok:
        die(f"mke2fs failed: {result.why()}\n{result.output[-2000:]}", 1)
    new.rename(disk)


def kernels() -> dict[str, Kernel]:
    """Returns the kernels by their series, after building the first disk if it is missing or its recipe has changed."""
    stamp = MACHINES / "recipe"
    if not (BASE.exists() and stamp.exists() and stamp.read_text() == _recipe()):
        stamp.unlink(missing_ok=True)
        _build()
        stamp.write_text(_recipe())
    found = {}
    for series in KERNELS:
        folder = MACHINES / series
        found[series] = Kernel(folder / "vmlinuz", tuple(sorted(folder.glob("*.ko"))))
    return found


def _build() -> None:
    say(f"building the guests' disk, once: a few minutes -> {shown(BASE)}")
    MACHINES.mkdir(parents=True, exist_ok=True)
    for key in (KEY, KEY.with_suffix(".pub")):
        key.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", KEY], check=True, stdin=subprocess.DEVNULL
    )
    with Root("bookworm", "machines") as root:
        script = UNPACK.format(
            kernels=" ".join(f"{series}={release}" for series, release in KERNELS.items()),
            mirror=mirror(),
            flavour=FLAVOUR,
            early=" ".join(EARLY),
        )
        steps = [root.install(*PACKAGES)]
        # The packages may have written certificates of their own.
        root.trust()
        for name, requirements in MPIS.items():
            pip = f"/opt/{name}/bin/pip --quiet install {shlex.join(requirements)}"
            steps.append(root.shell(f"python3 -m venv /opt/{name} && {pip}", timeout=900))
        steps.append(root.shell(script, timeout=900))
        steps.append(
            root.shell("apt-get clean; rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/locale")
        )
        for step in steps:
            if not step.ok:
                die(f"the guests' disk cannot be built: {step.why()}\n{step.output[-3000:]}", 1)
        _log_in(root.path)
        for series in KERNELS:
            _take_kernel(root.path, series)
        shutil.copy(root.path / "usr" / "bin" / "busybox", MACHINES / "busybox")
        _write_disk(root.path, BASE, 64)


def _log_in(root: pathlib.Path) -> None:
    """Lets the key log in, from this machine and between guests."""
    folder = root / "root" / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(KEY, folder / "id_ed25519")
    shutil.copy(KEY.with_suffix(".pub"), folder / "authorized_keys")
    # Without a name server, the server would wait for the name of each client.
    settings = "UseDNS no\nUsePAM no\nPermitRootLogin prohibit-password\nMaxStartups 100\nMaxSessions 100\n"
    (root / "etc" / "ssh" / "sshd_config.d" / "guest.conf").write_text(settings)


def _take_kernel(root: pathlib.Path, series: str) -> None:
    """Copies a kernel, and the modules of its ramdisk in the order in which `modprobe` loads them."""
    folder = MACHINES / series
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    boot = root / "boot" / series
    shutil.copy(boot / "vmlinuz", folder / "vmlinuz")
    lines = [line.split() for line in (boot / "modules").read_text().splitlines()]
    paths = dict.fromkeys(words[1] for words in lines if words[0] == "insmod")
    for number, path in enumerate(paths):
        content = (root / path.lstrip("/")).read_bytes()
        name = pathlib.Path(path).name
        (folder / f"{number:02}-{name.removesuffix('.xz')}").write_bytes(
            lzma.decompress(content) if name.endswith(".xz") else content
        )


def payload(program: pathlib.Path, disk: pathlib.Path) -> None:
    """Writes the second disk: a package of `dist` if there is one, else provider and program, and the programs of jobs."""
    folder = disk.with_suffix(".d")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(MPI_TESTS, folder / "mpi", ignore=shutil.ignore_patterns("__pycache__"))
    package = newest_package()
    if package:
        shutil.copy(package, folder / "squall.deb")
    shutil.copytree(PROVIDER_DIR, folder / "provider")
    (folder / "bin").mkdir()
    shutil.copy(program, folder / "bin" / "squall")
    if INSTALLED["impi"].python.exists():
        _copy_intel_mpi(INSTALLED["impi"].venv, folder / "impi")
    _write_disk(folder, disk, 8)
    shutil.rmtree(folder)


def _copy_intel_mpi(environment: pathlib.Path, folder: pathlib.Path) -> None:
    """Copies the environment of Intel MPI to a folder in which a guest's Python runs it."""
    shutil.copytree(environment, folder, symlinks=True, ignore=shutil.ignore_patterns(*NEEDLESS, "python*", "*.cfg"))
    packages = pathlib.Path("lib") / "python3.11" / "site-packages"
    shutil.copytree(environment / packages, folder / packages, ignore=shutil.ignore_patterns(*NEEDLESS))
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")


def newest_package() -> pathlib.Path | None:
    """Returns the Debian package in `dist`, if there is one."""
    return max((ROOT / "dist").glob("squall_*_amd64.deb"), key=lambda path: path.stat().st_mtime, default=None)
