//! The `squall` command line; see [`squall_fabric::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // Set by whoever builds to give away. Here, so that another commit costs linking alone.
    squall_fabric::cli::main(option_env!("SQUALL_COMMIT"))
}
