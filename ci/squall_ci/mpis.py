"""The MPI libraries, and how to force every message of theirs onto one libfabric provider on one host."""

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from squall_ci.environment import clean_environment, provider_environment
from squall_ci.paths import need, PROVIDER_DIR, TARGET
from squall_ci.process import Word

# The variables of an MPI for a provider; None removes a variable.
Steering: TypeAlias = dict[str, str | None]

# Variables about how a launcher starts processes here, not about the network.
LAUNCHING = (
    "OMPI_ALLOW_",
    "OMPI_MCA_rmaps_",
    "PRTE_",
    "I_MPI_HYDRA_",
    "LD_LIBRARY_PATH",
    "OMP_",
    "OPENBLAS_",
)


class Mpi:
    """An MPI library: how to start it and how to force every message onto a provider on one host."""

    def __init__(
        self,
        name: str,
        title: str,
        libfabric: str,
        env: Callable[[str], Steering],
        launch: Sequence[str] = (),
        launcher: str = "mpiexec",
        tests: Sequence[str] = ("pt2pt", "coll", "comms", "rma"),
        endpoints: int = 1,
        remote: str = "",
    ) -> None:
        self.name = name
        self.title = title
        self.libfabric = libfabric
        self.venv = TARGET / f"venv-{name}"
        self.python = self.venv / "bin" / "python"
        self._env = env
        self._launch = launch
        self._launcher = launcher
        # The programs of fabtests/mpi it can run over the network.
        self.tests = tests
        # The number of endpoints of a process.
        self.endpoints = endpoints
        # The kind of launcher (hydra, prrte), if `Namespaces` can start its jobs on several hosts.
        self.remote = remote

    def need(self) -> None:
        """Exits with advice if it is not installed."""
        need(self.python.exists(), f"{self.title} is not installed: run ci/run setup mpi first")

    def env(self, provider: str) -> dict[str, str]:
        """Returns the whole environment for a job on `provider`."""
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

    def launching(self) -> dict[str, str]:
        """Returns the variables that a launcher needs to start processes here, without a choice of provider."""
        return {name: value for name, value in self.env("squall").items() if name.startswith(LAUNCHING)}

    def plain_environment(self) -> dict[str, str]:
        """Returns the environment of a user who has named no provider and set nothing of the MPI."""
        # Other suites turn shared memory off.
        env = {name: value for name, value in clean_environment().items() if name != "FI_SQUALL_SHM"}
        iface = os.environ.get("FI_SQUALL_IFACE", "lo")
        return env | self.launching() | {"FI_PROVIDER_PATH": str(PROVIDER_DIR), "FI_SQUALL_IFACE": iface}

    @property
    def launcher(self) -> str:
        """Returns the path of the launcher."""
        return self._launcher if self._launcher.startswith("/") else str(self.venv / "bin" / self._launcher)

    def command(self, ranks: int, program: Sequence[Word]) -> list[str]:
        """Returns the command that launches `program` on `ranks` ranks."""
        return [self.launcher, *self._launch, "-n", str(ranks), *map(str, program)]


def _mpich(_provider: str) -> Steering:
    # The wheel's default netmod is ucx. NOLOCAL turns the shared-memory path off.
    return {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}


def _openmpi(provider: str) -> Steering:
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
        # As `squall run` sets it. For other providers Open MPI decides: it yields when ranks outnumber cores.
        "OMPI_MCA_mpi_yield_when_idle": "0" if provider == "squall" else None,
    }


def _ompi4(provider: str) -> Steering:
    return {
        **_openmpi(provider),
        "FI_TCP_IFACE": "lo",
        "OMPI_MCA_osc": "pt2pt",
        "OMPI_MCA_coll": "^sm,hcoll",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        # Otherwise Open MPI 4 warns about the lack of InfiniBand.
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_base_warn_component_unused": "0",
    }


def _impi(provider: str) -> Steering:
    return {
        "I_MPI_FABRICS": "ofi",
        # Collectives inside of a host go through shared memory otherwise, whatever the provider.
        "I_MPI_COLL_INTRANODE": "pt2pt",
        "I_MPI_OFI_PROVIDER": provider,
        "I_MPI_HYDRA_BOOTSTRAP": "fork",
        # The benchmarks' binaries look for libmpi nowhere else.
        "LD_LIBRARY_PATH": str(TARGET / "venv-impi" / "lib"),
    }


MPIS = {
    mpi.name: mpi
    for mpi in (
        Mpi("mpich", "MPICH 5.0", "2.5", _mpich, remote="hydra"),
        # Besides the endpoint of its messages (mtl/ofi) it opens one for one-sided operations (osc/rdma over btl/ofi). On
        # one host those cross it alone whose windows its ranks do not share anyway.
        Mpi("openmpi", "Open MPI 5.0", "2.5", _openmpi, endpoints=2, remote="prrte"),
        Mpi("ompi4", "Open MPI 4.1", "1.17", _ompi4, ["--oversubscribe"], launcher="/usr/bin/mpiexec.openmpi"),
        Mpi("impi", "Intel MPI", "2.4", _impi, remote="hydra"),
    )
}
