//! Exchanges packets with another `squall doctor`.
//!
//! A question is [`ASK`], a number, and zeros up to its length. The answer is [`ANSWER`], the same
//! number, the length of the question when it arrived, its ECN field, and the interface that
//! endpoints of the answering host will use. The answer is no longer than the shortest question, so
//! that the port cannot be used to amplify traffic.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use squall_base::{Batch, Time, TrafficClass};
use squall_net::iface::Iface;
use squall_net::{ArrivalSocket, Burst, NetError, Port as _, UdpPort};

const ASK: &[u8; 8] = b"sqldoc?\0";
const ANSWER: &[u8; 8] = b"sqldoc!\0";
/// Length of the shortest question and of every answer, bytes.
pub(super) const SHORTEST: usize = 64;
/// Time to wait for the answer to a question before it is asked again.
const PATIENCE: Duration = Duration::from_millis(400);
/// Time after a question for which the port is polled without a pause, and the length of each pause
/// after that.
const EAGER: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(500);

/// The network interface that endpoints of a host will use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) addr: IpAddr,
    /// Length of the interface's network prefix, bits.
    pub(super) prefix: u8,
    /// True if the interface is a tunnel, or a bridge without a device.
    pub(super) doubtful: bool,
}

/// The bytes of an answer that hold a choice: IP version (0 for no choice), prefix, doubtful,
/// address, name.
const CHOICE: std::ops::Range<usize> = 17..SHORTEST;
/// The offsets of address and name within these bytes. The longest name of an interface has 15
/// bytes.
const CHOICE_ADDRESS: usize = 3;
const CHOICE_NAME: usize = 19;
const LONGEST_NAME: usize = 15;

impl Choice {
    /// Returns the choice of a host whose endpoints will be on `iface`.
    pub(super) fn of(iface: &Iface) -> Self {
        let doubtful = iface.class().is_doubtful();
        Self { name: iface.name.clone(), addr: iface.addr, prefix: iface.prefix, doubtful }
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[1] = self.prefix;
        bytes[2] = u8::from(self.doubtful);
        match self.addr {
            IpAddr::V4(ip) => {
                bytes[0] = 4;
                bytes[CHOICE_ADDRESS..][..4].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[0] = 6;
                bytes[CHOICE_ADDRESS..][..16].copy_from_slice(&ip.octets());
            }
        }
        let name = self.name.as_bytes();
        let name = &name[..name.len().min(LONGEST_NAME)];
        bytes[CHOICE_NAME..][..name.len()].copy_from_slice(name);
    }

    /// Decodes a choice. Returns `None` if the host has no choice, or the bytes are invalid.
    fn read(bytes: &[u8]) -> Option<Self> {
        let address = bytes.get(CHOICE_ADDRESS..)?;
        let addr = match bytes.first()? {
            4 => IpAddr::from(*address.first_chunk::<4>()?),
            6 => IpAddr::from(*address.first_chunk::<16>()?),
            _ => return None,
        };
        let name = bytes.get(CHOICE_NAME..)?.get(..LONGEST_NAME)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        // Refuse names that no interface can have, because the name is printed on a terminal.
        let name = std::str::from_utf8(&name[..end]).ok()?;
        if name.chars().any(char::is_control) {
            return None;
        }
        Some(Self { name: name.to_owned(), addr, prefix: bytes[1], doubtful: bytes[2] != 0 })
    }
}

/// A peer's answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// Length of the question when it arrived at the peer, bytes.
    pub(super) arrived: u32,
    /// ECN field of the question when it arrived at the peer.
    pub(super) ecn: u8,
    pub(super) round_trip: Duration,
    /// The interface that endpoints of the answering host will use.
    pub(super) choice: Option<Choice>,
}

#[allow(clippy::disallowed_methods)] // round trips of probes, outside of any transport
fn now() -> Instant {
    Instant::now()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn send(port: &mut UdpPort, to: SocketAddr, bytes: &[u8]) {
    let mut batch = Batch::default();
    batch.push((to, 0, TrafficClass::Data), bytes, [], &[]);
    port.send(Time::ZERO, Burst::from_copies(&batch));
}

/// Sleeps for a moment between two polls, but not at first, when an answer may arrive any moment.
fn pause(since: Instant) {
    if since.elapsed() > EAGER {
        std::thread::sleep(PAUSE);
    }
}

/// Builds a question packet of `len` bytes.
fn question(id: u32, len: usize) -> Vec<u8> {
    let mut question = vec![0; len.max(SHORTEST)];
    question[..8].copy_from_slice(ASK);
    question[8..12].copy_from_slice(&id.to_le_bytes());
    question
}

/// Sends a question of `len` bytes, up to three times. Returns the answer, or the errors that the
/// network reported.
pub(super) fn ask(
    port: &mut UdpPort,
    peer: SocketAddr,
    len: usize,
) -> Result<Answer, Vec<NetError>> {
    let mut errors = Vec::new();
    for id in 0..3u32 {
        let asked = now();
        send(port, peer, &question(id, len));
        while asked.elapsed() < PATIENCE {
            pause(asked);
            let mut answer = None;
            port.recv_each(Time::ZERO, 16, &mut |_, bytes| {
                if bytes.starts_with(ANSWER) && number(bytes, 8) == Some(id) {
                    let choice = bytes.get(CHOICE).and_then(Choice::read);
                    answer = number(bytes, 12).zip(bytes.get(16).copied()).zip(Some(choice));
                }
            });
            if let Some(((arrived, ecn), choice)) = answer {
                return Ok(Answer { arrived, ecn, round_trip: asked.elapsed(), choice });
            }
            let before = errors.len();
            port.take_errors(&mut errors);
            if errors.len() > before {
                break;
            }
        }
    }
    Err(errors)
}

/// Finds the kernel's index of the interface by which an answer of a peer arrives. `from` is the
/// address of endpoints, and `scope` the interface of a link-local IPv6 address.
///
/// # Errors
/// The error of a socket, or `TimedOut` if no answer to three questions arrives.
pub(super) fn find_arrival(mut from: SocketAddr, scope: u32, peer: SocketAddr) -> io::Result<u32> {
    if let SocketAddr::V6(v6) = &mut from
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope);
    }
    let socket = ArrivalSocket::open(from)?;
    let mut answer = [0; SHORTEST];
    for id in 0..3_u32 {
        let asked = now();
        socket.send_to(&question(id, SHORTEST), peer)?;
        while asked.elapsed() < PATIENCE {
            pause(asked);
            match socket.receive(&mut answer) {
                Ok((_, Some(index))) if answer.starts_with(ANSWER) => return Ok(index),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to three packets"))
}

/// Answers every question until `stop` returns true, and returns the number of answers. `choice` is
/// the interface that endpoints of this host will use.
pub(super) fn answer(port: &mut UdpPort, choice: &Choice, mut stop: impl FnMut() -> bool) -> u64 {
    let (mut answered, mut last) = (0, now());
    while !stop() {
        pause(last);
        let mut answers = Vec::new();
        port.recv_each(Time::ZERO, 64, &mut |meta, bytes| {
            if let Some(id) = number(bytes, 8)
                && bytes.starts_with(ASK)
                && bytes.len() >= SHORTEST
            {
                let mut answer = [0; SHORTEST];
                answer[..8].copy_from_slice(ANSWER);
                answer[8..12].copy_from_slice(&id.to_le_bytes());
                // No datagram is longer than 64 KiB.
                answer[12..16].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
                answer[16] = meta.ecn;
                choice.write(&mut answer[CHOICE]);
                answers.push((meta.src, answer));
            }
        });
        for (to, bytes) in answers {
            send(port, to, &bytes);
            answered += 1;
            last = now();
        }
    }
    answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_survives_the_wire() {
        for (addr, prefix) in [("10.1.2.3", 31), ("2001:db8::5", 64)] {
            let choice = Choice {
                name: "enp28s0f1np1.100".to_owned(),
                addr: addr.parse().expect("literal"),
                prefix,
                doubtful: prefix == 64,
            };
            let mut answer = [0_u8; SHORTEST];
            choice.write(&mut answer[CHOICE]);
            // The kernel's names have at most 15 bytes.
            let read = Choice { name: "enp28s0f1np1.10".to_owned(), ..choice };
            assert_eq!(Choice::read(&answer[CHOICE]), Some(read));
        }
        assert_eq!(Choice::read(&[0_u8; SHORTEST]), None, "no choice");
        for len in 0..CHOICE_NAME + LONGEST_NAME {
            assert_eq!(Choice::read(&[4_u8; SHORTEST][..len]), None, "{len} bytes");
        }
        // A name with a control character could change the terminal that it is printed on.
        assert_eq!(Choice::read(&[4_u8; SHORTEST]), None);
    }
}
