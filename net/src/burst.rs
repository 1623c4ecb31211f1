//! A batch on its way through the ports. Only this module reads user memory for packets.

use std::ops::Range;
use std::ptr;

use crate::base::{Batch, Datagram, UserSlice};

/// Consecutive datagrams of a batch, whose payload is readable until the call that takes the burst
/// returns.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    batch: &'a Batch,
    packets: &'a [Datagram],
}

impl<'a> Burst<'a> {
    /// Creates a burst from the datagrams of `range` in `batch`.
    ///
    /// # Safety
    /// For `'a`, every piece of user memory that they name is readable: its address was exposed
    /// (`expose_provenance`), and its bytes stay mapped. Others may write to the bytes meanwhile.
    /// The port then sends a mixture, and no reference to the bytes may exist.
    ///
    /// # Panics
    /// `range` is not inside the batch.
    #[must_use]
    pub unsafe fn new(batch: &'a Batch, range: Range<usize>) -> Self {
        Self { batch, packets: &batch.packets[range] }
    }

    /// Creates a burst from a batch that names no user memory.
    ///
    /// # Panics
    /// The batch names user memory.
    #[must_use]
    pub fn from_copies(batch: &'a Batch) -> Self {
        assert!(
            batch.slices.is_empty(),
            "the batch names user memory, for which only Burst::new can vouch"
        );
        Self { batch, packets: &batch.packets }
    }

    /// Returns the datagrams of the burst, in sending order.
    #[must_use]
    #[inline]
    pub const fn packets(&self) -> &'a [Datagram] {
        self.packets
    }

    /// Returns the datagrams of the burst whose indexes are in `range`, as a burst.
    ///
    /// # Panics
    /// `range` is not inside the burst.
    #[must_use]
    #[inline]
    pub fn part(&self, range: Range<usize>) -> Self {
        Self { batch: self.batch, packets: &self.packets[range] }
    }

    /// Returns a burst of `packets` in place of the burst's own. They are copies of its own, with other destinations.
    #[must_use]
    pub(crate) fn with_packets(&self, packets: &'a [Datagram]) -> Self {
        debug_assert!(
            packets.iter().zip(self.packets).all(|(new, old)| new.payload == old.payload)
        );
        Self { batch: self.batch, packets }
    }

    /// Returns the datagrams run by run (see [`Batch::mark_runs`]): the first of each run, and the
    /// length of the run.
    #[inline]
    pub fn groups(&self) -> impl Iterator<Item = (&'a Datagram, usize)> + use<'a> {
        let mut rest = self.packets;
        core::iter::from_fn(move || {
            let first = rest.first()?;
            let count = rest.len().min(usize::from(first.followers) + 1);
            rest = &rest[count..];
            Some((first, count))
        })
    }

    /// Returns the headers of the burst, which is one run, as a slice, and its pieces of user
    /// memory.
    #[must_use]
    #[inline]
    pub fn run_parts(&self) -> (&'a [u8], &'a [UserSlice]) {
        self.batch.run_parts(self.packets)
    }

    /// Returns the bytes of a datagram's UDP payload that stand before its pieces of user memory.
    #[must_use]
    #[inline]
    pub fn header(&self, packet: &Datagram) -> &'a [u8] {
        self.batch.header(packet)
    }

    /// Returns the pieces of user memory that follow the header.
    #[must_use]
    #[inline]
    pub fn payload(&self, packet: &Datagram) -> &'a [UserSlice] {
        self.batch.payload(packet)
    }

    /// Returns the bytes of a datagram's UDP payload that stand behind its pieces of user memory.
    #[must_use]
    #[inline]
    pub fn trailer(&self, packet: &Datagram) -> &'a [u8] {
        self.batch.trailer(packet)
    }

    /// Appends a copy of a datagram's payload pieces to `out`.
    pub fn copy_payload(&self, packet: &Datagram, out: &mut Vec<u8>) {
        self.payload(packet).iter().for_each(|piece| self.copy_piece(piece, out));
    }

    /// Appends a copy of a piece of the burst to `out`.
    #[inline]
    fn copy_piece(&self, piece: &UserSlice, out: &mut Vec<u8>) {
        let len = usize::try_from(piece.len).unwrap_or(0);
        out.reserve(len);
        // SAFETY: the piece's `len` bytes are readable for 'a: who made the burst by `new` said so, and
        // `from_copies` has none. `reserve` made room for as many behind those that `out` has, in an
        // allocation that a piece cannot overlap; they are initialised when `set_len` counts them. That
        // the application may write to the piece meanwhile makes the copy a mixture; no reference to it
        // is made.
        unsafe {
            ptr::copy_nonoverlapping(address(piece), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    /// Appends copies of the datagrams of the burst, which is one run with pieces of user memory and has `bytes` bytes,
    /// to `out`.
    #[inline]
    pub(crate) fn copy_run(&self, bytes: usize, out: &mut Vec<u8>) {
        let (headers, pieces) = self.run_parts();
        let Some(first) = self.packets.first() else { return };
        out.reserve(bytes);
        let head = first.header.len();
        for (header, piece) in headers.chunks_exact(head).zip(pieces) {
            let (at, len) = (out.len(), usize::try_from(piece.len).unwrap_or(0));
            if head + len > out.capacity() - at {
                return;
            }
            // SAFETY: the header is a slice of `head` bytes. The piece's `len` bytes are readable for 'a: who made the burst
            // by `new` said so, and `from_copies` has none. Behind the `at` bytes that `out` has, there is room for both,
            // as was just compared, in an allocation that neither can overlap; they are initialised when `set_len` counts
            // them. That the application may write to the piece meanwhile makes the copy a mixture; no reference to it is
            // made.
            unsafe {
                let to = out.as_mut_ptr().add(at);
                ptr::copy_nonoverlapping(header.as_ptr(), to, head);
                ptr::copy_nonoverlapping(address(piece), to.add(head), len);
                out.set_len(at + head + len);
            }
        }
    }

    /// Copies a whole datagram to the beginning of `out`.
    ///
    /// # Panics
    /// The datagram is longer than `out`.
    pub(crate) fn copy_into(&self, packet: &Datagram, out: &mut [u8]) {
        let (header, mut rest) = out.split_at_mut(packet.header.len());
        header.copy_from_slice(self.header(packet));
        for piece in self.payload(packet) {
            let (to, behind) = rest.split_at_mut(usize::try_from(piece.len).unwrap_or(usize::MAX));
            // SAFETY: the piece's `len` bytes are readable for 'a: who made the burst by `new` said so, and `from_copies`
            // has none. `to` has as many, of memory that is borrowed mutably and so none of the piece's.
            unsafe { ptr::copy_nonoverlapping(address(piece), to.as_mut_ptr(), to.len()) };
            rest = behind;
        }
        let trailer = self.trailer(packet);
        rest[..trailer.len()].copy_from_slice(trailer);
    }

    /// Appends a copy of a datagram's whole UDP payload to `out`.
    pub fn copy(&self, packet: &Datagram, out: &mut Vec<u8>) {
        out.extend_from_slice(self.header(packet));
        self.copy_payload(packet, out);
        out.extend_from_slice(self.trailer(packet));
    }
}

/// Returns the address of the first byte of a piece of user memory.
#[inline]
pub(crate) fn address(piece: &UserSlice) -> *const u8 {
    ptr::with_exposed_provenance(usize::try_from(piece.base).unwrap_or(0))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::base::{Time, TrafficClass};
    use crate::{Port, SendReport};

    /// Returns bytes of a test as a piece of user memory.
    pub(crate) fn lend(bytes: &[u8]) -> UserSlice {
        UserSlice::lent(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)
    }

    /// A datagram in the form in which tests write it down.
    #[derive(Clone, Copy)]
    pub(crate) struct Sample<'a> {
        pub(crate) dst: SocketAddr,
        pub(crate) path: u16,
        pub(crate) class: TrafficClass,
        pub(crate) header: &'a [u8],
        pub(crate) payload: &'a [&'a [u8]],
        pub(crate) trailer: &'a [u8],
    }

    /// Sends sample datagrams through a port as one burst.
    pub(crate) fn send(
        port: &mut (impl Port + ?Sized),
        now: Time,
        samples: &[Sample<'_>],
    ) -> SendReport {
        let mut batch = Batch::default();
        for s in samples {
            let payload = s.payload.iter().map(|piece| lend(piece));
            batch.push((s.dst, s.path, s.class), s.header, payload, s.trailer);
        }
        // SAFETY: `lend` exposed the addresses of what the samples borrow, and they outlive the call.
        port.send(now, unsafe { Burst::new(&batch, 0..samples.len()) })
    }

    #[test]
    fn a_datagram_is_copied_in_its_order() {
        let (a, b) = (*b"user ", *b"memory");
        let mut batch = Batch::default();
        let to = (SocketAddr::from(([127, 0, 0, 1], 1)), 0, TrafficClass::Data);
        batch.push(to, b"<", [lend(&a), lend(&b)], b">");
        // SAFETY: `lend` exposed the addresses of the two arrays, which live to the end of the test.
        let burst = unsafe { Burst::new(&batch, 0..1) };
        let mut out = b"# ".to_vec();
        burst.copy(&burst.packets()[0], &mut out);
        assert_eq!(out, b"# <user memory>");
    }
}
