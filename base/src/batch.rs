//! Datagrams on their way from the transport to the network. Headers lie in one buffer; payload
//! stays in user memory and is named.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;

use crate::UserSlice;

/// The class of a datagram, which decides its DSCP (the traffic class in the IP header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// Data packets. Switches may trim them, and mark them when queues are long (ECN).
    Data,
    /// ACK, NACK and control packets, which switches queue with priority.
    Control,
}

/// Number of path sets for which a port keeps entropies. A transport first sends on set 0, which
/// are the paths `0..n`. When a peer answers on none of these paths, the transport changes to the
/// next set, `n..2n`.
pub const PATH_SETS: u16 = 4;

/// Returns the number of entropies that a port with `paths` paths keeps: [`PATH_SETS`] sets, or as
/// many as fit into 16 bits.
#[must_use]
pub const fn entropy_count(paths: u16) -> u16 {
    let paths = if paths == 0 { 1 } else { paths };
    let most = u16::MAX / paths;
    paths * if most < PATH_SETS { most } else { PATH_SETS }
}

/// One UDP datagram of a [`Batch`], described by ranges of the batch's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Address of the endpoint to which the datagram goes.
    pub dst: SocketAddr,
    /// Path of the datagram. It selects the source port (the entropy), modulo [`entropy_count`].
    pub path: u16,
    /// Traffic class of the datagram, which decides its DSCP.
    pub class: TrafficClass,
    /// Length of the UDP payload in bytes: header, payload and trailer.
    pub len: u32,
    /// First bytes of the UDP payload, as a range in [`Batch::bytes`].
    pub header: Range<u32>,
    /// Pieces of user memory that follow the header, as a range in [`Batch::slices`].
    pub payload: Range<u32>,
    /// Bytes that follow the payload, such as a checksum, as a range in [`Batch::bytes`].
    pub trailer: Range<u32>,
    /// Number that the creator of the datagram chose to recognise it. Ports ignore it.
    pub tag: u64,
    /// The datagram is longer than the known path MTU, so routers may fragment it.
    pub fragment: bool,
    /// Number of datagrams behind this one that belong to the same run; see [`Batch::mark_runs`].
    pub followers: u16,
}

/// Datagrams that are ready to leave. A batch is reused from call to call, so that the steady state
/// allocates nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// The datagrams, in sending order. The packets of a train stand next to each other.
    pub packets: Vec<Datagram>,
    /// Bytes that the batch owns: headers, copied payload and trailers of its datagrams.
    pub bytes: Vec<u8>,
    /// Pieces of user memory with the payload of its datagrams.
    pub slices: Vec<UserSlice>,
}

impl Batch {
    /// Removes all datagrams, and keeps the allocated memory for the next ones.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        self.slices.clear();
    }

    /// Returns the header of a datagram: the first bytes of its UDP payload.
    #[must_use]
    #[inline]
    pub fn header(&self, packet: &Datagram) -> &[u8] {
        &self.bytes[packet.header.start as usize..packet.header.end as usize]
    }

    /// Returns the pieces of user memory that follow the header of a datagram.
    #[must_use]
    #[inline]
    pub fn payload(&self, packet: &Datagram) -> &[UserSlice] {
        &self.slices[packet.payload.start as usize..packet.payload.end as usize]
    }

    /// Returns the trailer of a datagram: the bytes behind its payload, such as a checksum.
    #[must_use]
    #[inline]
    pub fn trailer(&self, packet: &Datagram) -> &[u8] {
        &self.bytes[packet.trailer.start as usize..packet.trailer.end as usize]
    }

    /// Adds a datagram: a copy of `header`, then `payload`, then a copy of `trailer`.
    pub fn push(
        &mut self,
        (dst, path, class): (SocketAddr, u16, TrafficClass),
        header: &[u8],
        payload: impl IntoIterator<Item = UserSlice>,
        trailer: &[u8],
    ) {
        // A batch is far smaller than 4 GiB, so 32 bits are enough for positions and lengths.
        let (start, first) = (self.bytes.len() as u32, self.slices.len() as u32);
        self.bytes.extend_from_slice(header);
        let end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(trailer);
        self.slices.extend(payload);
        let lent: u64 = self.slices[first as usize..].iter().map(|piece| piece.len).sum();
        let stop = self.bytes.len() as u32;
        self.packets.push(Datagram {
            dst,
            path,
            class,
            len: stop - start + lent as u32,
            header: start..end,
            payload: first..self.slices.len() as u32,
            trailer: end..stop,
            tag: 0,
            fragment: false,
            followers: 0,
        });
    }

    /// Marks the datagrams from `first` on as runs, one run for each path, so that a port may
    /// process a run without looking at each datagram.
    ///
    /// The caller guarantees that the datagrams of a run belong to one operation and have one
    /// destination, one class and one length; only the last may be shorter. Their headers have one
    /// length and follow each other in [`Batch::bytes`]. Each has one piece in [`Batch::slices`],
    /// in the same order, or none of them has a piece and the payload follows each header. None has
    /// a trailer.
    pub fn mark_runs(&mut self, first: usize) {
        let (mut path, mut behind) = (0, 0);
        // Backwards, so that each datagram gets the number of those behind it in one pass.
        for packet in self.packets[first..].iter_mut().rev() {
            if packet.path != path {
                (path, behind) = (packet.path, 0);
            }
            packet.followers = behind;
            behind = behind.saturating_add(1);
        }
    }

    /// Returns the headers of the datagrams of a run as one slice, and their pieces of payload.
    #[must_use]
    #[inline]
    pub fn run_parts(&self, run: &[Datagram]) -> (&[u8], &[UserSlice]) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return (&[], &[]) };
        let headers = first.header.start as usize..last.header.end as usize;
        let pieces = first.payload.start as usize..last.payload.end as usize;
        (&self.bytes[headers], &self.slices[pieces])
    }

    /// Removes the datagrams for which `wanted` returns false, and undoes [`Self::mark_runs`].
    pub fn retain(&mut self, wanted: impl FnMut(&Datagram) -> bool) {
        self.packets.retain(wanted);
        self.packets.iter_mut().for_each(|packet| packet.followers = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_keep_to_their_own_ranges() {
        let mut batch = Batch::default();
        let to = (SocketAddr::from(([127, 0, 0, 1], 1)), 3, TrafficClass::Data);
        batch.push(to, b"one", [UserSlice::lent(5, 7)], b"!");
        batch.push(to, b"two", [], b"");
        let [one, two] = &batch.packets[..] else { panic!("two were pushed") };
        assert_eq!((one.len, two.len), (11, 3));
        assert_eq!((batch.header(one), batch.trailer(one)), (&b"one"[..], &b"!"[..]));
        assert_eq!(batch.payload(one), [UserSlice::lent(5, 7)]);
        assert_eq!((batch.header(two), batch.payload(two).len()), (&b"two"[..], 0));
    }

    #[test]
    fn datagrams_of_one_path_are_joined() {
        let mut batch = Batch::default();
        let paths = [1, 2, 2, 2, 1];
        for (n, path) in (0u8..).zip(paths) {
            let to = (SocketAddr::from(([127, 0, 0, 1], 1)), path, TrafficClass::Data);
            batch.push(to, &[n], [UserSlice::lent(u64::from(n), 1)], b"");
        }
        batch.mark_runs(1);
        let alike =
            |batch: &Batch| batch.packets.iter().map(|packet| packet.followers).collect::<Vec<_>>();
        assert_eq!(alike(&batch), [0, 2, 1, 0, 0]);
        let (headers, pieces) = batch.run_parts(&batch.packets[1..4]);
        assert_eq!((headers, pieces.len(), pieces[2].base), (&[1, 2, 3][..], 3, 3));
        batch.retain(|packet| packet.header.start != 2);
        assert_eq!(alike(&batch), [0; 4]);
    }
}
