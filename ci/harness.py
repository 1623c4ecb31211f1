"""What the Python scripts in ci/ share: the MPI libraries and how to steer them onto one libfabric provider,
running a command under a hard deadline, and the proof, from its statistics, that `squall` carried the bytes.

Only the standard library: this must run on a machine where nothing has been set up yet.
"""

import ctypes
import glob
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / "target"
# Another build, a debug or sanitizer one, can be tried by naming its directory.
PROVIDER_DIR = pathlib.Path(os.environ.get("SQUALL_PROVIDER_DIR") or CACHE / "provider")
MPI_TESTS = ROOT / "fabtests" / "mpi"

# Marks every process of a run in its environment, so that none survives it.
RUN_MARK = "SQUALL_CI_RUN"


# ---------------------------------------------------------------- the environment of a run

# A run does not see what the caller's shell has set for some other fabric or MPI.
_FOREIGN = ("FI_", "MPIR_", "I_MPI_", "OMPI_", "PMIX_", "PRTE_", "HYDRA_", "PMI_", "MPI4PY_")


def clean_environment():
    """The caller's environment without settings of fabrics and MPIs; FI_SQUALL_* and FI_LOG_* are kept."""
    kept = ("FI_SQUALL_", "FI_LOG_")
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(kept) or not name.startswith(_FOREIGN)
    }


def provider_environment(provider, host_libfabric="2"):
    """Variables that make libfabric choose `provider`, over the loopback interface.

    `host_libfabric` is the major version of the libfabric that will load it: before 2.0, `tcp` had no
    reliable datagrams of its own and needs the ofi_rxm layer.
    """
    if provider == "squall":
        return {
            "FI_PROVIDER_PATH": str(PROVIDER_DIR),
            "FI_PROVIDER": "squall",
            "FI_SQUALL_IFACE": os.environ.get("FI_SQUALL_IFACE", "lo"),
        }
    if provider == "tcp" and host_libfabric == "1":
        return {"FI_PROVIDER": "tcp;ofi_rxm", "FI_TCP_IFACE": "lo"}
    return {"FI_PROVIDER": provider, "FI_TCP_IFACE": "lo", "FI_UDP_IFACE": "lo"}


class Mpi:
    """One MPI library: how to start it and how to force every message onto a provider on one host."""

    def __init__(self, name, title, libfabric, env, launch, launcher="mpiexec", tests=("pt2pt", "coll", "comms", "rma")):
        self.name = name
        self.title = title
        self.libfabric = libfabric
        self.venv = CACHE / f"venv-{name}"
        self.python = self.venv / "bin" / "python"
        self._env = env
        self._launch = launch
        self._launcher = launcher
        # The programs of fabtests/mpi it can run over the network.
        self.tests = tests

    def installed(self):
        return self.python.exists()

    def env(self, provider):
        """The whole environment for a job on `provider`."""
        env = clean_environment()
        env.update(provider_environment(provider, self.libfabric.split(".")[0]))
        for variable, value in self._env(env["FI_PROVIDER"]).items():
            if value is None:
                env.pop(variable, None)
            else:
                env[variable] = value
        # Ranks share the cores already; numpy's threads would only get in their way.
        env["OMP_NUM_THREADS"] = env["OPENBLAS_NUM_THREADS"] = "1"
        return env

    def command(self, ranks, program):
        """The launch of `program` (a list) on `ranks` ranks."""
        launcher = self._launcher
        if not launcher.startswith("/"):
            launcher = str(self.venv / "bin" / launcher)
        return [launcher, *self._launch, "-n", str(ranks), *map(str, program)]


def _mpich(provider):
    # The wheel's default netmod is ucx. NOLOCAL turns the shared-memory path off.
    return {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}


def _openmpi(provider):
    return {
        # With `lo` the tcp provider of libfabric 2.5 fails to enable Open MPI's endpoint (EBADF); what it
        # chooses by itself works, and the kernel keeps one host's traffic on the loopback device all the same.
        "FI_TCP_IFACE": None,
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        "OMPI_MCA_mtl_ofi_provider_include": provider,
        "OMPI_MCA_opal_common_ofi_provider_include": provider,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        # Collectives over point-to-point messages, and none through shared memory.
        "OMPI_MCA_coll": "^sm,xhc,acoll,ucc,hcoll,han",
        # Ranks outnumber cores: give the core away while waiting.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


def _ompi4(provider):
    return {
        **_openmpi(provider),
        "FI_TCP_IFACE": "lo",
        "OMPI_MCA_osc": "pt2pt",
        "OMPI_MCA_coll": "^sm,hcoll",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        # It complains about the lack of InfiniBand otherwise.
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_base_warn_component_unused": "0",
    }


def _impi(provider):
    return {
        "I_MPI_FABRICS": "ofi",
        "I_MPI_OFI_PROVIDER": provider,
        "I_MPI_HYDRA_BOOTSTRAP": "fork",
        # The benchmarks' binaries look for libmpi nowhere else.
        "LD_LIBRARY_PATH": str(CACHE / "venv-impi" / "lib"),
    }


MPIS = {
    mpi.name: mpi
    for mpi in (
        Mpi("mpich", "MPICH 5.0", "2.5", _mpich, []),
        # Its one-sided component over libfabric (osc/rdma over btl/ofi) wants atomics, which squall does not offer
        # yet; the other components go through shared memory or TCP, which would prove nothing.
        Mpi("openmpi", "Open MPI 5.0", "2.5", _openmpi, [], tests=("pt2pt", "coll", "comms")),
        Mpi("ompi4", "Open MPI 4.1", "1.17", _ompi4, ["--oversubscribe"], launcher="/usr/bin/mpiexec.openmpi"),
        Mpi("impi", "Intel MPI", "2.4", _impi, []),
    )
}


# ---------------------------------------------------------------- running under a deadline


class Result:
    """How a command ended. `code` is None when the deadline ended it."""

    def __init__(self, code, output, seconds):
        self.code = code
        self.output = output
        self.seconds = seconds

    @property
    def ok(self):
        return self.code == 0

    def why(self):
        """The ending in words, for a failure line."""
        if self.code is None:
            return f"still running after {self.seconds:.0f} s"
        if self.code < 0:
            return f"killed by signal {-self.code}"
        return f"exit status {self.code}"


def _become_reaper():
    # Launchers double-fork; as sub-reaper we inherit what they leave behind and can end it.
    pr_set_child_subreaper = 36
    try:
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    except OSError:
        pass


def _marked(mark):
    """The ids of the processes that carry `mark`, or one that began with it, in their environment."""
    needle = f"{RUN_MARK}={mark}".encode()
    found = []
    for process in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{process}/environ", "rb") as environ:
                if any(entry.startswith(needle) for entry in environ.read().split(b"\0")):
                    found.append(int(process[6:]))
        except OSError:
            continue
    return found


def _end(process, mark):
    """End the run: politely once, so that launchers take their ranks along, then whatever is left."""
    for sig, grace in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        ids = set(_marked(mark))
        if process.poll() is None:
            ids.add(process.pid)
        ids.discard(os.getpid())
        if not ids:
            break
        for pid in ids:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass
        until = time.monotonic() + grace
        while time.monotonic() < until and (process.poll() is None or _marked(mark)):
            time.sleep(0.05)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break


def run(command, env=None, timeout=120.0, cwd=None, echo=False):
    """Run `command`; end it and all it started after `timeout` seconds. Output is standard output and error."""
    _become_reaper()
    env = dict(clean_environment() if env is None else env)
    # A run inside of another carries both marks: the end of the outer one reaches it.
    mark = env[RUN_MARK] = f"{os.environ.get(RUN_MARK, '')}/{uuid.uuid4().hex}"
    started = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=env,
            cwd=str(cwd or ROOT),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process, mark)
        out.seek(0)
        output = out.read().decode(errors="replace")
    if echo:
        sys.stdout.write(output)
        sys.stdout.flush()
    return Result(code, output, time.monotonic() - started)


def compile_c(source, program):
    """Compile one C file against libfabric's headers, unless the program is newer."""
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    result = run(["cc", "-O2", "-Wall", "-Wextra", "-o", program, source, "-lfabric"])
    need(result.ok, f"{source.name} does not compile (ci/setup build installs libfabric-dev):\n{result.output}")


# ---------------------------------------------------------------- the proof


class Statistics:
    """Collects what squall's endpoints report at close: one JSON object each, in files of a private directory."""

    def __init__(self):
        (CACHE / "stats").mkdir(parents=True, exist_ok=True)
        self._dir = tempfile.TemporaryDirectory(dir=CACHE / "stats")

    def env(self):
        """Variables for the job."""
        return {"FI_SQUALL_STATS": f"json:{self._dir.name}/%h-%p-%e.json"}

    def endpoints(self):
        """What the endpoints said, as dictionaries."""
        found = []
        for path in sorted(pathlib.Path(self._dir.name).iterdir()):
            for line in path.read_text(errors="replace").splitlines():
                line = line.strip()
                if line.startswith("squall"):
                    line = line[line.find("{"):]
                if line:
                    found.append(json.loads(line))
        return found

    def total(self):
        """The sum of each numeric field over all endpoints."""
        sums = {}
        for endpoint in self.endpoints():
            for field, value in endpoint.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    sums[field] = sums.get(field, 0) + value
        return sums

    def verdict(self, ranks, at_least, faulty=False):
        """None if `ranks` processes sent and received `at_least` bytes together, otherwise what is missing.

        With `faulty`, packets must have been damaged on purpose, too.
        """
        try:
            endpoints = self.endpoints()
        except ValueError as error:
            return f"statistics are not JSON: {error}"
        if len(endpoints) < ranks:
            return f"{len(endpoints)} endpoints left statistics, expected {ranks} or more"
        total = self.total()
        for field in ("tx_packets", "rx_packets"):
            if not total.get(field):
                return f"{field} is {total.get(field)} over {len(endpoints)} endpoints"
        for field in ("tx_bytes", "rx_bytes"):
            if total.get(field, 0) < at_least:
                return f"{field} is {total.get(field)} over {len(endpoints)} endpoints, expected {at_least} or more"
        # Of a few packets, none may have been unlucky.
        if faulty and total["tx_packets"] > 2000:
            if not any(value for field, value in total.items() if field.startswith("fault_")):
                return "FI_SQUALL_FAULT was set, but no packet was damaged"
        return None

    def summary(self):
        """The interesting counters in one line."""
        total = self.total()
        words = [f"{len(self.endpoints())} endpoints"]
        for field in sorted(total):
            interesting = field.startswith(("tx_packets", "tx_bytes", "retrans", "fault_", "timeout"))
            if interesting and total[field]:
                words.append(f"{field} {total[field]:.0f}")
        return ", ".join(words)


def run_job(mpi, provider, ranks, program, timeout, at_least=0, extra_env=None):
    """Run an MPI job on `provider`.

    Returns (result, problem, summary): problem is None when the job ended well and, on squall, its statistics
    prove `at_least` bytes in each direction.
    """
    env = mpi.env(provider)
    env.update(extra_env or {})
    env["SQUALL_TEST_DEADLINE"] = str(max(5, int(timeout) - 5))
    statistics = Statistics() if provider == "squall" else None
    if statistics:
        env.update(statistics.env())
    result = run(mpi.command(ranks, program), env, timeout)
    if not result.ok:
        return result, result.why(), ""
    if statistics:
        return result, statistics.verdict(ranks, at_least, bool(env.get("FI_SQUALL_FAULT"))), statistics.summary()
    return result, None, ""


# ---------------------------------------------------------------- reporting


def need(condition, advice):
    """Leave with `advice` when something is not installed."""
    if not condition:
        print(f"{pathlib.Path(sys.argv[0]).name}: {advice}", file=sys.stderr)
        sys.exit(2)


def need_provider(provider):
    """`squall` must have been built."""
    need(
        provider != "squall" or (PROVIDER_DIR / "libsquall-fi.so").exists(),
        f"{PROVIDER_DIR}/libsquall-fi.so is missing: run ci/build first",
    )


class Tally:
    """Counts passed and failed steps; `finish` prints the summary line and gives the exit status."""

    def __init__(self):
        self.passed = 0
        self.failed = []

    def add(self, name, problem, seconds=None, note="", output=""):
        """One step: `problem` is None for success. The output's tail is shown for a failure."""
        took = "" if seconds is None else f" ({seconds:.1f} s)"
        if problem is None:
            self.passed += 1
            print(f"ok    {name}{took}{' ' if note else ''}{note}", flush=True)
        else:
            self.failed.append(name)
            print(f"FAIL  {name}{took}: {problem}{'; ' if note else ''}{note}", flush=True)
            for line in output.splitlines()[-40:]:
                print(f"      | {line[:300]}", flush=True)

    def finish(self):
        if self.failed:
            print("failed: " + ", ".join(self.failed))
        print(f"{self.passed} passed, {len(self.failed)} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


def table(head, rows):
    """Lay out rows of strings: the first column left, the others right aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join(("-" * (w + 1) + (":" if i else "-")) for i, w in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])
