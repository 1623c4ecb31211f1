//! `squall emulate tunnel`: the near end of a tunnel to an emulator on another machine.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use squall_emulator::tunnel::serve_near_end;

use super::cli::print_line;

/// Leads to an emulator on another machine: opens a socket here that endpoints and commands use like the emulator's own, and
/// carries their frames there, until it is interrupted or the emulator ends.
///
/// The emulator was started with --listen. Endpoints need addresses of their own (FI_SQUALL_IFACE names the
/// interface), as on any network.
#[derive(Args, Debug)]
pub(crate) struct TunnelArgs {
    /// Address at which the emulator listens, that of its --listen.
    #[arg(value_name = "HOST:PORT")]
    pub emulator: String,
    /// Say nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Serves the near end until it ends or is interrupted.
pub(super) fn run(socket: &Path, args: &TunnelArgs) -> ExitCode {
    let served = stop_on_interrupt().and_then(|stop| {
        serve_near_end(socket, &args.emulator, &stop, &mut |line| {
            if !args.quiet {
                print_line(line);
            }
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_line(format_args!("{why}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns a stream that receives a byte when the user interrupts the program.
fn stop_on_interrupt() -> Result<UnixStream, String> {
    let (stop, interrupt) = UnixStream::pair().map_err(|error| error.to_string())?;
    ctrlc::set_handler(move || {
        // If the write fails because the stream is full, a byte is already there.
        let _ = (&interrupt).write(b".");
    })
    .map_err(|error| error.to_string())?;
    Ok(stop)
}
