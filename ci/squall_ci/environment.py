"""The environment of a job: one libfabric provider is chosen, and the caller's settings of MPIs and providers are dropped."""

import os

from squall_ci.paths import PROVIDER_DIR

# A run does not see what the caller's shell has set for an MPI or another provider.
_FOREIGN = ("FI_", "MPIR_", "I_MPI_", "OMPI_", "PMIX_", "PRTE_", "HYDRA_", "PMI_", "MPI4PY_")
_KEPT = ("FI_SQUALL_", "FI_LOG_")


def clean_environment() -> dict[str, str]:
    """Returns the caller's environment without settings of MPIs and providers; FI_SQUALL_* and FI_LOG_* are kept."""
    return {name: value for name, value in os.environ.items() if name.startswith(_KEPT) or not name.startswith(_FOREIGN)}


def provider_environment(provider: str, host_libfabric: str = "2") -> dict[str, str]:
    """Returns the variables that make libfabric choose `provider`, over the loopback interface.

    `host_libfabric` is the major version of the libfabric that will load it. Before 2.0, `tcp` had no reliable datagrams of
    its own and needs the ofi_rxm layer.
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


def provider_run(provider: str, host_libfabric: str = "2") -> dict[str, str]:
    """Returns the whole environment of a program that runs on `provider` without an MPI."""
    return {**clean_environment(), **provider_environment(provider, host_libfabric)}
