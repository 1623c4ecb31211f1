//! Endpoints of other machines on a fabric, by UDP.
//!
//! A tunnel has two ends. The far one is beside the fabric (`squall fabric up --listen`) and speaks to it as local endpoints do; the
//! near one (`squall fabric tunnel`) is on another machine, and a socket there that endpoints and commands take for a
//! fabric's. Neither the fabric nor its endpoints know of it.
//!
//! Packets cross it a datagram each, and those that get lost are lost: what the emulated network adds to the real one. Greetings
//! and commands are sent until they arrive. The real network's delay comes on top of the emulated one's, so
//! `--host-delay` should say how much that is.
//!
//! Nothing is encrypted, and whoever reaches the port is let in: it is for networks whose users trust each other.

mod datagram;
mod end;
mod pieces;

use std::fmt;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;

use clap::Args;

use super::relay::listen;
use super::run::tell;
use end::End;

/// Leads to a fabric on another machine: opens a socket here that endpoints and commands take for the fabric's, and carries
/// what they say there, until it is interrupted or the fabric is gone.
///
/// The fabric is one that was brought up with --listen. Endpoints need addresses of their own (FI_SQUALL_IFACE names the
/// interface), as on any network.
#[derive(Args, Debug)]
pub struct TunnelArgs {
    /// Where the fabric listens, as its `up --listen` says.
    #[arg(value_name = "HOST:PORT")]
    pub fabric: String,
    /// Say nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Does it.
pub(super) fn run(socket: &Path, args: &TunnelArgs) -> ExitCode {
    match lead(socket, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tell(format_args!("{why}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves as a near end.
fn lead(socket: &Path, args: &TunnelArgs) -> Result<(), String> {
    let named = |error: &dyn fmt::Display| format!("{}: {error}", args.fabric);
    let mut addresses = args.fabric.to_socket_addrs().map_err(|error| {
        named(&format_args!("{error}; expected a host and a port, such as 10.0.0.1:7470"))
    })?;
    let far = addresses.next().ok_or_else(|| named(&"no address has this name"))?;
    let near = listen(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    let _gone = Removed(socket);
    let mut end = End::near(near, far).map_err(|error| named(&error))?;
    let (stop, interrupt) = UnixStream::pair().map_err(|error| error.to_string())?;
    ctrlc::set_handler(move || {
        // A full pipe says the same.
        let _ = (&interrupt).write(b".");
    })
    .map_err(|error| error.to_string())?;
    if !args.quiet {
        tell(format_args!("{} leads to the fabric at {far}", socket.display()));
    }
    end.run(&stop, &mut |line| {
        if !args.quiet {
            tell(line);
        }
    })
}

/// A socket that goes when its end does.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = std::fs::remove_file(self.0);
    }
}

/// The far end of tunnels to a fabric, served by a thread for as long as this lives.
pub(super) struct FarEnd {
    addr: SocketAddr,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl FarEnd {
    /// Listens at `addr` for the fabric whose socket is `fabric`.
    pub(super) fn open(
        addr: SocketAddr,
        fabric: &Path,
        say: impl Fn(fmt::Arguments<'_>) + Send + 'static,
    ) -> Result<Self, String> {
        let refused = |error: std::io::Error| format!("--listen {addr}: {error}");
        let mut end = End::far(addr, fabric.to_owned()).map_err(refused)?;
        let addr = end.addr().map_err(refused)?;
        let (stop, stopped) = UnixStream::pair().map_err(refused)?;
        let thread = std::thread::Builder::new()
            .name("squall-tunnel".to_owned())
            .spawn(move || {
                if let Err(why) = end.run(&stopped, &mut |line| say(line)) {
                    say(format_args!("tunnels end: {why}"));
                }
            })
            .map_err(refused)?;
        Ok(Self { addr, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.stop.write_all(b".");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
