"""Stand-ins for the libraries of device drivers, which programs and the provider load in place of them."""

import os
from collections.abc import Mapping

from squall_ci.paths import FABTESTS, TARGET
from squall_ci.programs import compile_c

SOURCES = FABTESTS / "devices"
OUT = TARGET / "devices"
LIBRARIES = {
    "cuda": "libcuda.so.1",
    "cudart": "libcudart.so",
    "hip": "libamdhip64.so.5",
    "rocr": "libhsa-runtime64.so.1",
    "ze": "libze_loader.so.1",
}


def with_devices(env: Mapping[str, str]) -> dict[str, str]:
    """Compiles the stand-ins, and returns the environment in which they are found."""
    for name, library in LIBRARIES.items():
        sources = [SOURCES / f"{name}.c", SOURCES / "standin.h"]
        options = ("-std=gnu11", "-g", "-O1", "-shared", "-fPIC", "-Wl,--as-needed", f"-Wl,-soname,{library}")
        compile_c(sources, OUT / library, options)
    where = env.get("LD_LIBRARY_PATH") or os.environ.get("LD_LIBRARY_PATH")
    return {**env, "LD_LIBRARY_PATH": f"{OUT}:{where}" if where else str(OUT)}
