//! Packets on their way from the engine to the port, and operations whose sending is deferred.

use squall_base::{Batch, Span, Time};
use squall_engine::Engine;
use squall_net::{Burst, Port};

use crate::clock::{self, hooks};

/// Number of batches of packets that a turn sends before it receives again.
const TX_BATCHES: usize = 4;
/// Largest number of operations whose sending is deferred, to send them together.
const MOST_DEFERRED: u32 = 32;
/// Largest number of payload bytes of operations whose sending is deferred.
const MOST_DEFERRED_BYTES: u64 = 32 * 1024;
/// Time after the last transmission within which an operation counts as one of a burst, and is deferred. The next call
/// that makes progress sends it.
const BURST: Span = Span::micros(3);

/// The packets that wait for the socket, and the operations whose sending is deferred.
#[derive(Default)]
pub(crate) struct Outbox {
    batch: Batch,
    /// Number of packets of the current batch that the socket has taken.
    sent: usize,
    deferred: u32,
    deferred_bytes: u64,
    last_flush: Time,
    revoked: u64,
}

impl Outbox {
    /// Returns the number of packets that were dropped because their memory had been released before the socket took
    /// them.
    pub(crate) fn revoked(&self) -> u64 {
        self.revoked
    }

    /// Returns the time at which packets were last sent.
    #[inline]
    pub(crate) const fn last_flush(&self) -> Time {
        self.last_flush
    }

    /// Returns whether packets or operations wait for something that no event announces.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.batch.packets.len() || self.deferred > 0
    }

    /// Defers the sending of an operation of `bytes` bytes. `more` says that another one follows. Returns whether it is
    /// time to send.
    #[inline]
    pub(crate) fn defer(&mut self, now: Time, bytes: u64, more: bool) -> bool {
        self.deferred += 1;
        self.deferred_bytes = self.deferred_bytes.saturating_add(bytes);
        let full = self.deferred >= MOST_DEFERRED || self.deferred_bytes >= MOST_DEFERRED_BYTES;
        full || (!more && now.since(self.last_flush) >= BURST)
    }

    /// Sends the packets that the engine has ready. Returns whether any was sent.
    pub(crate) fn flush(&mut self, now: Time, engine: &mut Engine, port: &mut dyn Port) -> bool {
        (self.deferred, self.deferred_bytes) = (0, 0);
        if self.sent < self.batch.packets.len() {
            self.drop_revoked(engine);
        }
        let (mut busy, mut more) = (false, true);
        for _ in 0..TX_BATCHES {
            if self.sent == self.batch.packets.len() {
                if !more {
                    break;
                }
                self.batch.clear();
                self.sent = 0;
                more = engine.poll_transmit(now, &mut self.batch);
                if self.batch.packets.is_empty() {
                    break;
                }
            }
            let before = self.sent;
            let all = self.send(now, port);
            // In virtual time the port takes no more at this time, however often it is tried.
            busy |= self.sent > before || hooks::now().is_none();
            if !all {
                break;
            }
        }
        if busy {
            // Sending takes about as long as a burst may last, so it counts from the end.
            self.last_flush = clock::now();
        }
        busy
    }

    /// Drops packets left over from an earlier turn whose memory was given back meanwhile; they are lost.
    #[cold]
    fn drop_revoked(&mut self, engine: &Engine) {
        let mut at = 0;
        let sent = self.sent;
        let waiting = self.batch.packets.len() - sent;
        self.batch.retain(|packet| {
            at += 1;
            at > sent && engine.may_send(packet)
        });
        self.revoked += (waiting - self.batch.packets.len()) as u64;
        self.sent = 0;
    }

    /// Offers the rest of the batch to the packet port. Returns whether the port took all of it.
    fn send(&mut self, now: Time, port: &mut dyn Port) -> bool {
        let all = self.batch.packets.len();
        // SAFETY: the batch is what `poll_transmit` filled in during this call of `flush`, or left-overs that
        // `may_send` just agreed to, and no call to the engine came in between, nor can one before this
        // returns (`engine` is behind the endpoint lock, which this thread holds): every piece is part of
        // a buffer whose operation has not completed (`transmit`'s contract keeps it mapped until then), or
        // of a region that is not closed (closing it waits for the endpoint lock, `Endpoint::release_region`).
        // `endpoint/buffer.rs` and `mr/mod.rs` exposed the addresses.
        let burst = unsafe { Burst::new(&self.batch, self.sent..all) };
        self.sent += port.send(now, burst).sent;
        self.sent == all
    }
}
