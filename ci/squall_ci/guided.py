"""Profile-guided builds of the provider: the compiler arranges the code by what a training ran, and how often.

The training is fi_perf over packets, encrypted packets and shared memory, and the jobs of fabtests/mpi under MPICH, with faults
and without. What no part of it runs is taken for rare and built small. A profile serves builds of the same sources with the
same features.
"""

import os
import pathlib
import platform
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from squall_ci.environment import provider_run
from squall_ci.paths import die, need, ROOT, RUN, say, shown, TARGET
from squall_ci.process import run, Word
from squall_ci.programs import fi_perf

TRIPLE = f"{platform.machine()}-unknown-linux-gnu"
# The variable with the flags of rustc for what is built for TRIPLE. Build scripts do not get them.
FLAGS = f"CARGO_TARGET_{TRIPLE.upper().replace('-', '_')}_RUSTFLAGS"
DIRECTORY = TARGET / "guided"
_RAW = DIRECTORY / "raw"
# What fi_perf measures in the training. The number of rounds gives each size about the same time.
_MEASURES = (
    *("lat:64:20000", "lat:4096:8000", "lat:65536:2000", "lat:1048576:150"),
    *("bw:64:2000", "bw:4096:1000", "bw:65536:300", "bw:1048576:30", "rate:64:2000"),
)
_KEY = DIRECTORY / "job.key"
_CONDITIONS: tuple[Mapping[str, str], ...] = (
    {"FI_SQUALL_SHM": "no"},
    {"FI_SQUALL_SHM": "yes"},
    {"FI_SQUALL_SHM": "no", "FI_SQUALL_KEY_FILE": str(_KEY), "FI_SQUALL_TSS": "required"},
)
_JOBS: tuple[Mapping[str, str], ...] = (
    {"FI_SQUALL_SHM": "no"},
    {"FI_SQUALL_SHM": "yes"},
    {"FI_SQUALL_SHM": "no", "FI_SQUALL_FAULT": "loss=1%,reorder=2%"},
)


def profdata() -> pathlib.Path:
    """Returns the path of the program that joins profiles, which has to be of the compiler's own LLVM."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout.strip()
    return pathlib.Path(sysroot) / "lib" / "rustlib" / TRIPLE / "bin" / "llvm-profdata"


def _checked(command: Sequence[Word], env: Mapping[str, str], seconds: float) -> None:
    result = run(command, env, timeout=seconds)
    if not result.ok:
        die(f"training: {result.why()}: {result.output.strip()[-600:]}", 1)


def profile(*words: str) -> pathlib.Path:
    """Builds the provider with these options of cargo, lets it count what the training runs, and returns the profile."""
    tool = profdata()
    need(tool.exists(), f"no profile can be made: {tool} is missing; run `rustup component add llvm-tools` first")
    shutil.rmtree(_RAW, ignore_errors=True)
    target = DIRECTORY / "target"
    env = {**os.environ, FLAGS: f"-Cprofile-generate={_RAW}", "CARGO_TARGET_DIR": str(target)}
    say("building the provider that counts")
    cargo = ("cargo", "build", "--quiet", "--release", "--locked", "--target", TRIPLE, "-p", "squall-fi", *words)
    if subprocess.run(cargo, cwd=ROOT, env=env).returncode:
        die("cargo build failed", 1)
    provider = DIRECTORY / "provider"
    provider.mkdir(parents=True, exist_ok=True)
    shutil.copy(target / TRIPLE / "release" / "libsquall_fi.so", provider / "libsquall-fi.so")
    say("training")
    _KEY.touch(mode=0o600)
    _KEY.write_text(secrets.token_urlsafe(32) + "\n")
    of_jobs = {**os.environ, "SQUALL_PROVIDER_DIR": str(provider)}
    for condition in _CONDITIONS:
        perf = {**provider_run("squall"), "FI_PROVIDER_PATH": str(provider), **condition}
        perf.pop("FI_PROVIDER")
        _checked([fi_perf(), "-p", "squall", *_MEASURES], perf, 600)
    for condition in _JOBS:
        _checked([RUN, "suite", "mpi", "--quick", "mpich", "squall", "2"], {**of_jobs, **condition}, 600)
    merged = DIRECTORY / "squall.profdata"
    _checked([tool, "merge", "--output", merged, _RAW], os.environ, 300)
    say(f"{shown(merged)}: {merged.stat().st_size} bytes")
    return merged
