//! The `squall` command line; see [`squall_tools::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // Set by whoever builds to give away. Here, so that another commit costs linking alone.
    squall_tools::cli::main(option_env!("SQUALL_COMMIT"))
}
