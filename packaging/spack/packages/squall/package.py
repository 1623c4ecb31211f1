# SPDX-License-Identifier: Apache-2.0 OR MIT

import os

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Squall(Package):
    """Libfabric provider that speaks Ultra Ethernet in software over plain UDP, with the program
    that runs MPI jobs on it, simulates, emulates and diagnoses."""

    # Nothing is published yet: put the source archive into the current directory or a mirror.
    manual_download = True
    url = f"file://{os.getcwd()}/squall-0.2.0.tar.gz"

    license("Apache-2.0 OR MIT")

    version("0.2.0", sha256="@SHA256@")

    variant("research", default=False, description="Congestion controls of single papers")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    # bindgen reads libfabric's headers by libclang.
    depends_on("llvm+clang", type="build")
    depends_on("libfabric@1.17:", type=("build", "run"))

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)
        env.set("BINDGEN_EXTRA_CLANG_ARGS", "-I" + self.spec["libfabric"].prefix.include)

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        build = ("build", "--release", "--locked")
        features = () if "+research" in spec else ("--no-default-features",)
        cargo(*build, *features, "-p", "squall-fi")
        cargo(*build, "-p", "squall-time")
        cargo(*build, "-p", "squall-tools", "--bin", "squall", "--features", "parquet")
        release = join_path("target", "release")
        mkdirp(prefix.bin, prefix.lib.squall, prefix.share.man.man1)
        install(join_path(release, "squall"), prefix.bin)
        install(
            join_path(release, "libsquall_fi.so"),
            join_path(prefix.lib.squall, "libsquall-fi.so"),
        )
        install(join_path(release, "libsquall_time.so"), prefix.lib.squall)
        Executable(prefix.bin.squall)("man", prefix.share.man.man1)
        install_tree("docs", prefix.share.doc.squall)

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.set("FI_PROVIDER_PATH", self.prefix.lib.squall)
        env.set("FI_PROVIDER", "squall")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_provider(self):
        fi_info = Executable(self.spec["libfabric"].prefix.bin.fi_info)
        fi_info.add_default_env("FI_PROVIDER_PATH", self.prefix.lib.squall)
        assert "provider: squall" in fi_info("-p", "squall", output=str)
