//! The live driver: a relay process to which endpoints attach over a Unix socket, and the model of
//! [`squall_netsim::model`] between them in real time. No privileges are needed.
//!
//! - [`Emulation`]: packets with their bytes in the model, without clock and sockets.
//! - [`Relay`]: the process with its sockets, clock and commands; it reports how far behind real
//!   time it is.
//! - [`ask`]: sends a command of the command line to a running emulator.
//! - [`Timeline`]: changes to the network at given times of a job. `squall run --on` starts one
//!   on an emulator of its own, and records the job.
//!
//! In virtual time ([`VirtualTimeConfig`]) the network goes on only when no process can send anything
//! earlier any more, and processes only when the network has reached their time. Rates need no scaling
//! then.
//!
//! In real time the relay scales rates down to those the host can carry. Unless the user chooses otherwise, it
//! scales latencies up by the same factor, so that the network is the same in slow motion:
//! bandwidth-delay products, queues and windows are unchanged, and the host's own delays weigh
//! less.

#![forbid(unsafe_code)]

mod attendance;
mod card;
mod client;
mod clock;
mod command;
mod coordinator;
mod emulation;
mod emulation_delay;
mod inner_path;
mod processor_wait;
mod recorder;
mod relay;
mod run_state;
mod scale;
mod status;
#[cfg(test)]
mod tests;
mod timeline;
mod virtual_relay;

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use squall_net::emulator::frame::{Frame, FrameKind, MAGIC, encode};

pub use attendance::Attendance;
pub use card::CardModel;
pub use command::{Command, CommandError, find_link, find_switch, parse_rate, parse_share};
pub use emulation::{Delivery, Emulation, Route};
pub use emulation_delay::{EmulationDelay, EmulationDelayReport};
pub use inner_path::InnerPath;
pub use processor_wait::{MOST_WAIT_PERCENT, ProcessorWait, ProcessorWaitReport};
pub use relay::{Relay, RelayConfig, RelayError};
pub use scale::scale;
pub use status::{EndpointStatus, PortStatus, Status, Totals};
pub use timeline::Timeline;
pub use virtual_relay::{RankTimes, VirtualTimeConfig, VirtualTimeReport};

/// Sends a command to a running emulator and returns the text of its answer.
///
/// # Errors
/// No emulator listens at `socket`, the process there is no emulator, or it refused the command;
/// the text gives the reason.
pub fn ask(socket: &Path, command: &Command) -> io::Result<String> {
    let say = |error: io::Error| {
        let cure = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                "; is it running? (squall emulate up)"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("emulator {}: {error}{cure}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(say)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let text = [&MAGIC[..], command.to_string().as_bytes()].concat();
    stream.write_all(&encode(FrameKind::Command, &text)).map_err(say)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(say)?;
    let (mut answer, mut refused, mut rest) = (Vec::new(), false, &bytes[..]);
    let invalid = |text: String| say(io::Error::new(ErrorKind::InvalidData, text));
    while let Some(frame) = Frame::first(rest).map_err(|e| invalid(e.to_string()))? {
        match frame.kind {
            FrameKind::Reply => {}
            FrameKind::Refused => refused = true,
            other => return Err(invalid(format!("a command was answered by a {other:?} frame"))),
        }
        answer.extend_from_slice(frame.body());
        rest = &rest[frame.bytes.len()..];
    }
    if bytes.is_empty() || !rest.is_empty() {
        return Err(invalid("it closed the connection before the end of its answer".into()));
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if refused { Err(io::Error::new(ErrorKind::InvalidInput, answer)) } else { Ok(answer) }
}
