//! Attaches endpoints of other machines to an emulator, over UDP.
//!
//! A tunnel has two ends. The far end is beside the emulator (`squall emulate up --listen`) and
//! connects to it as local endpoints do. The near end (`squall emulate tunnel`) is on another
//! machine, where it opens a socket that looks like the emulator's to endpoints and commands.
//! Neither the emulator nor its endpoints know of the tunnel.
//!
//! Each packet crosses the tunnel in one datagram, and a lost datagram is a lost packet: the real
//! network adds its losses to those of the emulated one. Greetings and commands are retransmitted
//! until they arrive. The real network's delay comes on top of the emulated one's, so
//! `--host-delay` should include it.
//!
//! Nothing is encrypted, and any host that reaches the port is let in. Use tunnels only on networks
//! whose users trust each other.

mod datagram;
mod end;
mod pieces;

use std::fmt;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use super::relay::listen;
use end::End;

/// Serves the near end of a tunnel. It opens `socket` for endpoints and commands, and carries what
/// they send to the emulator that listens at `far` (`HOST:PORT`), until a byte arrives at `stop` or
/// the emulator ends. `report` gets a line for each event that a user may want to know.
///
/// # Errors
/// `far` is no address, the socket cannot be opened, or no emulator answers.
pub fn serve_near_end(
    socket: &Path,
    far: &str,
    stop: &UnixStream,
    report: &mut dyn FnMut(fmt::Arguments<'_>),
) -> Result<(), String> {
    let named = |error: &dyn fmt::Display| format!("{far}: {error}");
    let mut addresses = far.to_socket_addrs().map_err(|error| {
        named(&format_args!("{error}; expected a host and a port, such as 10.0.0.1:7470"))
    })?;
    let addr = addresses.next().ok_or_else(|| named(&"no address has this name"))?;
    let near = listen(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    let _gone = SocketGuard(socket);
    let mut end = End::near(near, addr).map_err(|error| named(&error))?;
    report(format_args!("{} leads to the emulator at {addr}", socket.display()));
    end.run(stop, &mut |line| report(line))
}

/// Removes a socket when the guard is dropped.
struct SocketGuard<'a>(&'a Path);

impl Drop for SocketGuard<'_> {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(self.0);
    }
}

/// The far end of tunnels to an emulator. A thread serves it until this is dropped.
pub struct FarEnd {
    addr: SocketAddr,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl FarEnd {
    /// Listens at `addr` on behalf of the emulator whose socket is `emulator`.
    pub fn open(
        addr: SocketAddr,
        emulator: &Path,
        say: impl Fn(fmt::Arguments<'_>) + Send + 'static,
    ) -> Result<Self, String> {
        let refused = |error: std::io::Error| format!("--listen {addr}: {error}");
        let mut end = End::far(addr, emulator.to_owned()).map_err(refused)?;
        let addr = end.addr().map_err(refused)?;
        let (stop, stopped) = UnixStream::pair().map_err(refused)?;
        let thread = std::thread::Builder::new()
            .name("squall-tunnel".to_owned())
            .spawn(move || {
                if let Err(why) = end.run(&stopped, &mut |line| say(line)) {
                    say(format_args!("the tunnels are closed: {why}"));
                }
            })
            .map_err(refused)?;
        Ok(Self { addr, stop, thread: Some(thread) })
    }

    /// Returns the address at which the end listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        // The thread may have ended by itself.
        let _ = self.stop.write_all(b".");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
