//! The `squall` command line; see [`squall_tools::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // The build of a release sets SQUALL_COMMIT. It is read in this crate so that another commit
    // only costs linking.
    squall_tools::cli::main(option_env!("SQUALL_COMMIT"))
}
