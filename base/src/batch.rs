//! Datagrams on their way from the transport to the network: headers in one piece of memory, payload named
//! where it lies.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;

use crate::UserSlice;

/// Which of the two DSCPs a datagram leaves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// Data: trimmable, ECN-capable.
    Data,
    /// ACK, NACK and control packets: the switches' priority lane.
    Control,
}

/// Sets of paths that a port keeps entropies for. A transport uses the first, paths `0..n`, and another one, `n..2n` and so
/// on, for a peer that answers on no path of it.
pub const PATH_SETS: u16 = 4;

/// How many entropies a port of so many paths keeps: as many sets as fit into 16 bits.
#[must_use]
pub const fn entropies(paths: u16) -> u16 {
    let paths = if paths == 0 { 1 } else { paths };
    let most = u16::MAX / paths;
    paths * if most < PATH_SETS { most } else { PATH_SETS }
}

/// One datagram of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where to: the peer's endpoint address.
    pub dst: SocketAddr,
    /// The entropy: which source port it leaves from, taken modulo their number, [`entropies`].
    pub path: u16,
    /// Which DSCP.
    pub class: TrafficClass,
    /// Length of the UDP payload, bytes: header, payload and trailer.
    pub len: u32,
    /// First bytes of the UDP payload, a range in [`Batch::bytes`].
    pub header: Range<u32>,
    /// Then these pieces of user memory, a range in [`Batch::slices`].
    pub payload: Range<u32>,
    /// Then these (a checksum), a range in [`Batch::bytes`].
    pub trailer: Range<u32>,
    /// Whatever its maker knows it by.
    pub tag: u64,
    /// It is longer than the path is known to carry in one piece: routers may fragment it.
    pub fragment: bool,
    /// So many of those behind it are its likes: see [`Batch::join`].
    pub alike: u16,
}

/// Datagrams ready to leave. Used again from call to call, so that a steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// The datagrams, in sending order. Those of one train stand next to each other.
    pub packets: Vec<Datagram>,
    /// Headers, copied payload and trailers.
    pub bytes: Vec<u8>,
    /// Payload pieces in user memory.
    pub slices: Vec<UserSlice>,
}

impl Batch {
    /// Forgets the datagrams, keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        self.slices.clear();
    }

    /// The first bytes of a datagram.
    #[must_use]
    #[inline]
    pub fn header(&self, packet: &Datagram) -> &[u8] {
        &self.bytes[packet.header.start as usize..packet.header.end as usize]
    }

    /// The payload pieces of a datagram.
    #[must_use]
    #[inline]
    pub fn payload(&self, packet: &Datagram) -> &[UserSlice] {
        &self.slices[packet.payload.start as usize..packet.payload.end as usize]
    }

    /// The last bytes of a datagram.
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
        // A batch is far smaller than 4 GiB.
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
            alike: 0,
        });
    }

    /// Says that the datagrams from `first` on are alike, those of one path at least: of one operation, in one class and to
    /// one destination, as long as the first of them but for the last, which may be shorter; with headers as long,
    /// one behind the other in [`Batch::bytes`], a piece each of which the same is true in [`Batch::slices`] (or none, and the
    /// payload behind each header), and no trailer. A port may then take them together, without a look at each.
    pub fn join(&mut self, first: usize) {
        let (mut path, mut behind) = (0, 0);
        for packet in self.packets[first..].iter_mut().rev() {
            if packet.path != path {
                (path, behind) = (packet.path, 0);
            }
            packet.alike = behind;
            behind = behind.saturating_add(1);
        }
    }

    /// The headers of datagrams that are alike, one behind the other, and their pieces.
    #[must_use]
    #[inline]
    pub fn joined(&self, alike: &[Datagram]) -> (&[u8], &[UserSlice]) {
        let (Some(first), Some(last)) = (alike.first(), alike.last()) else { return (&[], &[]) };
        let headers = first.header.start as usize..last.header.end as usize;
        let pieces = first.payload.start as usize..last.payload.end as usize;
        (&self.bytes[headers], &self.slices[pieces])
    }

    /// Keeps the datagrams of which `wanted` says so; that two are alike is known of none of them any more.
    pub fn retain(&mut self, wanted: impl FnMut(&Datagram) -> bool) {
        self.packets.retain(wanted);
        self.packets.iter_mut().for_each(|packet| packet.alike = 0);
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
        batch.join(1);
        let alike =
            |batch: &Batch| batch.packets.iter().map(|packet| packet.alike).collect::<Vec<_>>();
        assert_eq!(alike(&batch), [0, 2, 1, 0, 0]);
        let (headers, pieces) = batch.joined(&batch.packets[1..4]);
        assert_eq!((headers, pieces.len(), pieces[2].base), (&[1, 2, 3][..], 3, 3));
        batch.retain(|packet| packet.header.start != 2);
        assert_eq!(alike(&batch), [0; 4]);
    }
}
