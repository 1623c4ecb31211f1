//! Generates the libfabric types from the installed headers and sets the link arguments that make
//! the cdylib a libfabric provider.

// Cargo speaks to build scripts through the environment; the rule is for the provider.
#![allow(clippy::disallowed_methods)]

use std::env;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::exit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=include/wrapper.h");
    println!("cargo::rerun-if-env-changed=BINDGEN_EXTRA_CLANG_ARGS");
    println!("cargo::rerun-if-env-changed=CPATH");

    // libfabric looks for files that end in `fi.so`; the name inside the object must agree with
    // the one `ci/build` gives the file. The object stays mapped after dlclose: it has thread-local
    // destructors and may still own a thread when a host unloads it. rustc itself hides every
    // symbol but `fi_prov_ini` (its version script lists the `no_mangle` functions).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsquall-fi.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Nothing is left to be found in the host, but for a sanitizer's runtime in instrumented builds.
    if !env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("sanitizer")) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    }

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bindings = match catch_unwind(generate) {
        Ok(Ok(bindings)) => bindings,
        Ok(Err(error)) => fail(&format!("the libfabric headers could not be read: {error}")),
        // bindgen panics when it finds no libclang.
        Err(_) => fail("bindgen stopped: most likely libclang is missing"),
    };
    if let Err(error) = bindings.write_to_file(out.join("fabric.rs")) {
        fail(&format!("cannot write fabric.rs: {error}"));
    }
}

fn generate() -> Result<bindgen::Bindings, bindgen::BindgenError> {
    bindgen::Builder::default()
        .header("include/wrapper.h")
        .allowlist_type("fi_.*|fid|fid_.*")
        .allowlist_var("FI_.*")
        .ignore_functions()
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .derive_default(false)
        .layout_tests(false)
        .generate_comments(false)
        .sort_semantically(true)
        .formatter(bindgen::Formatter::None)
        .generate()
}

fn fail(what: &str) -> ! {
    println!("cargo::error={what}");
    println!(
        "cargo::error=squall needs libfabric's headers (1.17 or later) and libclang at build time; \
         on Debian and Ubuntu: apt-get install libfabric-dev libclang-dev clang"
    );
    println!(
        "cargo::error=headers elsewhere: BINDGEN_EXTRA_CLANG_ARGS=-I/prefix/include; \
         libclang elsewhere: LIBCLANG_PATH=/prefix/lib"
    );
    exit(1)
}
