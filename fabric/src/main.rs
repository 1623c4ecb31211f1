//! The `squall` command line; see [`squall_fabric::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    squall_fabric::cli::main()
}
