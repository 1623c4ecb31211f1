//! What an endpoint is told of the receive buffer of its host, where packets wait until they are handed in.

use super::Engine;
use crate::reliability;

/// The receive buffer of the host, a socket's say, as its driver sees it.
#[derive(Debug)]
pub struct ReceiveBuffer<'a>(&'a mut Engine);

impl<'a> ReceiveBuffer<'a> {
    /// Of the endpoint with this engine.
    pub const fn of(engine: &'a mut Engine) -> Self {
        Self(engine)
    }

    /// Packets of `lost` bytes found no room in it, which holds `bytes`.
    #[cold]
    pub fn overflowed(self, lost: u64, bytes: u64) {
        reliability::ReceiveBuffer::of(&mut self.0.pdcs).overflowed(lost, bytes);
    }

    /// Nothing waits in it any more, after it overflowed.
    #[cold]
    pub fn drained(self) {
        reliability::ReceiveBuffer::of(&mut self.0.pdcs).drained();
    }
}
