//! Packets to and from another `squall doctor`.
//!
//! A question is [`ASK`], a number, and zeros up to its length. The answer is [`ANSWER`], the same number, how long the
//! question was when it arrived and its ECN field. It is no longer than the shortest question, so that nobody is
//! answered with more than he sent.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use squall_base::{Batch, Time, TrafficClass};
use squall_net::{Burst, NetError, Port as _, UdpPort};

const ASK: &[u8; 8] = b"sqldoc?\0";
const ANSWER: &[u8; 8] = b"sqldoc!\0";
/// Shortest question: what an answer is long.
pub(super) const SHORTEST: usize = 32;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long one looks without a pause, and the pause after that.
const EAGER: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(500);

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// Bytes that arrived there.
    pub(super) arrived: u32,
    /// The ECN field they had there.
    pub(super) ecn: u8,
    pub(super) round_trip: Duration,
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
    port.send(Time::ZERO, Burst::of_copies(&batch));
}

/// Lets a little time pass between two looks: none at first, when an answer may come any moment.
fn pause(since: Instant) {
    if since.elapsed() > EAGER {
        std::thread::sleep(PAUSE);
    }
}

/// Asks the peer with `len` bytes, a few times. The answer, or what the network said instead.
pub(super) fn ask(
    port: &mut UdpPort,
    peer: SocketAddr,
    len: usize,
) -> Result<Answer, Vec<NetError>> {
    let mut errors = Vec::new();
    for id in 0..3u32 {
        let mut question = vec![0; len.max(SHORTEST)];
        question[..8].copy_from_slice(ASK);
        question[8..12].copy_from_slice(&id.to_le_bytes());
        let asked = now();
        send(port, peer, &question);
        while asked.elapsed() < PATIENCE {
            pause(asked);
            let mut answer = None;
            port.recv_each(Time::ZERO, 16, &mut |_, bytes| {
                if bytes.starts_with(ANSWER) && number(bytes, 8) == Some(id) {
                    answer = number(bytes, 12).zip(bytes.get(16).copied());
                }
            });
            if let Some((arrived, ecn)) = answer {
                return Ok(Answer { arrived, ecn, round_trip: asked.elapsed() });
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

/// Answers whoever asks, until `stop` says so. How many were answered.
pub(super) fn answer(port: &mut UdpPort, mut stop: impl FnMut() -> bool) -> u64 {
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
