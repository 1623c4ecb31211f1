//! The receive buffer of this host, where packets wait until they are handed in: a socket's, say.

use super::Pdcs;
use crate::cc::ReceiverCc;

/// What an endpoint is told of its host's receive buffer.
#[derive(Debug)]
pub struct ReceiveBuffer<'a, D>(&'a mut Pdcs<D>);

impl<'a, D> ReceiveBuffer<'a, D> {
    /// Of this endpoint.
    pub const fn of(pdcs: &'a mut Pdcs<D>) -> Self {
        Self(pdcs)
    }

    /// Packets of `lost` bytes found no room in it, which holds `bytes`.
    #[cold]
    pub fn overflowed(self, lost: u64, bytes: u64) {
        self.0.shared.receiver.on_overflow(lost, bytes);
    }

    /// Nothing waits in it any more, after it overflowed.
    #[cold]
    pub fn drained(self) {
        self.0.shared.receiver.on_drained();
    }
}
