//! The option area of a packet, which carries values for switch features in addition to the header
//! that every switch reads.
//!
//! Each option has a kind and a fixed length, so a packet can carry telemetry, a rate request and
//! the header of a research feature at once. Values are encoded as bytes by their [`PacketOption`]
//! codec; the network copies the area with the packet and does not interpret it.

use core::fmt;

use squall_base::{Rate, Time};
use squall_cc::{Hops, IntHop, MOST_HOPS};

/// Bytes of the option area: telemetry of eight hops, a rate packet of eight links and some 50
/// bytes for others.
const OPTION_AREA: usize = 512;
/// Bytes of kind and length in front of each option.
const PREFIX: usize = 3;

/// A value that packets carry as an option.
pub trait PacketOption: Sized {
    /// Identifies the option; features in use at the same time have different ones. Kinds below 32
    /// are netsim's.
    const KIND: u8;
    /// Encoded length in bytes, the same for all values so that switches can rewrite an option in
    /// place.
    const LEN: usize;

    /// Encodes the value: appends its fields to `to`, at most [`PacketOption::LEN`] bytes.
    fn encode(&self, to: &mut Encoder<'_>);

    /// Decodes a value: reads its fields in the order in which [`PacketOption::encode`] wrote them.
    fn decode(from: &mut Decoder<'_>) -> Self;
}

/// Writes the fields of an option, little-endian. Bytes that do not fit are cut off.
#[derive(Debug)]
pub struct Encoder<'a>(&'a mut [u8]);

impl Encoder<'_> {
    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.0.len());
        let (to, rest) = core::mem::take(&mut self.0).split_at_mut(len);
        to.copy_from_slice(&bytes[..len]);
        self.0 = rest;
    }

    /// Appends an integer of one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Appends an integer of two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends an integer of four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends an integer of eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends the four bytes of a float.
    pub fn f32(&mut self, value: f32) {
        self.u32(value.to_bits());
    }
}

/// Reads the fields of an option; zeros follow its end.
#[derive(Debug)]
pub struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (value, rest) = self.0.split_at(N.min(self.0.len()));
        bytes[..value.len()].copy_from_slice(value);
        self.0 = rest;
        bytes
    }

    /// Reads an integer of one byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    /// Reads an integer of two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    /// Reads an integer of four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    /// Reads an integer of eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Reads the four bytes of a float.
    pub fn f32(&mut self) -> f32 {
        f32::from_bits(self.u32())
    }
}

/// The options that one packet carries, in its option area, and the lane it is on.
#[derive(Clone, Copy)]
pub struct PacketOptions {
    /// Virtual lane of the link that the packet is on; switch programs set the lane it leaves by.
    /// See the module `lane`.
    pub lane: u8,
    len: u16,
    area: [u8; OPTION_AREA],
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PacketOptions {
    /// An option area without options, with lane 0.
    pub const EMPTY: Self = Self { lane: 0, len: 0, area: [0; OPTION_AREA] };

    /// Removes all options. The bytes of the area stay as they are, so this is cheap.
    pub const fn clear(&mut self) {
        (self.lane, self.len) = (0, 0);
    }

    /// Copies lane and options of `other`.
    pub fn copy_from(&mut self, other: &Self) {
        let len = usize::from(other.len);
        (self.lane, self.len) = (other.lane, other.len);
        self.area[..len].copy_from_slice(&other.area[..len]);
    }

    /// Returns the kind of each option, and the range of the option area that holds its value.
    fn options(&self) -> impl Iterator<Item = (u8, core::ops::Range<usize>)> {
        let mut at = 0;
        core::iter::from_fn(move || {
            if at >= usize::from(self.len) {
                return None;
            }
            let start = at + PREFIX;
            let len = u16::from_le_bytes([self.area[at + 1], self.area[at + 2]]);
            at = start + usize::from(len);
            Some((self.area[start - PREFIX], start..at))
        })
    }

    fn find(&self, kind: u8) -> Option<core::ops::Range<usize>> {
        self.options().find(|(found, _)| *found == kind).map(|(_, place)| place)
    }

    /// Finds the option of a kind, or makes room of `len` zeros for it; `None` if the area is full.
    fn place(&mut self, kind: u8, len: usize) -> Option<core::ops::Range<usize>> {
        if let Some(place) = self.find(kind) {
            return Some(place);
        }
        let start = usize::from(self.len) + PREFIX;
        let end = start + len;
        if end > OPTION_AREA {
            return None;
        }
        let [low, high] = u16::try_from(len).ok()?.to_le_bytes();
        self.area[start - PREFIX..start].copy_from_slice(&[kind, low, high]);
        self.area[start..end].fill(0);
        self.len = u16::try_from(end).ok()?;
        Some(start..end)
    }

    /// Decodes the option of this type; `None` if the packet does not carry one.
    #[must_use]
    pub fn read<T: PacketOption>(&self) -> Option<T> {
        let place = self.find(T::KIND)?;
        Some(T::decode(&mut Decoder(&self.area[place])))
    }

    /// Adds an option, or replaces the one of the same type. Returns false, and leaves the packet
    /// unchanged, if the area has no room for it.
    pub fn write<T: PacketOption>(&mut self, option: &T) -> bool {
        match self.place(T::KIND, T::LEN) {
            Some(place) => {
                option.encode(&mut Encoder(&mut self.area[place]));
                true
            }
            None => false,
        }
    }

    /// Decodes the option of this type, lets `change` modify it and writes it back; `None` if there
    /// is none.
    pub fn update<T: PacketOption, R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let place = self.find(T::KIND)?;
        let mut option = T::decode(&mut Decoder(&self.area[place.clone()]));
        let result = change(&mut option);
        option.encode(&mut Encoder(&mut self.area[place]));
        Some(result)
    }

    /// Appends a telemetry record, as far as there is room for it; the other records are not
    /// decoded.
    pub fn push_hop(&mut self, hop: IntHop) {
        let Some(place) = self.place(Hops::KIND, Hops::LEN) else { return };
        let option = &mut self.area[place];
        let count = usize::from(option[0]);
        if count < MOST_HOPS {
            option[0] += 1;
            encode_hop(hop, &mut Encoder(&mut option[1 + count * HOP..]));
        }
    }
}

impl PartialEq for PacketOptions {
    fn eq(&self, other: &Self) -> bool {
        let used = |options: &Self| usize::from(options.len);
        self.lane == other.lane && self.area[..used(self)] == other.area[..used(other)]
    }
}

impl fmt::Debug for PacketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"lane", &self.lane);
        for (kind, place) in self.options() {
            map.entry(&kind, &&self.area[place]);
        }
        map.finish()
    }
}

/// Bytes of a telemetry record, which one switch writes into a packet (HPCC).
const HOP: usize = 32;

fn encode_hop(hop: IntHop, to: &mut Encoder<'_>) {
    to.u32(hop.hop);
    to.u64(hop.at.0);
    to.u64(hop.tx_bytes);
    to.u32(hop.queue);
    to.u64(hop.line.0);
}

/// The option for in-band telemetry: the number of records, and one record per switch.
impl PacketOption for Hops {
    const KIND: u8 = 1;
    const LEN: usize = 1 + MOST_HOPS * HOP;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u8(self.len());
        self.iter().for_each(|hop| encode_hop(hop, to));
    }

    fn decode(from: &mut Decoder<'_>) -> Self {
        let mut hops = Self::default();
        for _ in 0..from.u8() {
            hops.push(IntHop {
                hop: from.u32(),
                at: Time(from.u64()),
                tx_bytes: from.u64(),
                queue: from.u32(),
                line: Rate(from.u64()),
            });
        }
        hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Colour(u16);

    impl PacketOption for Colour {
        const KIND: u8 = 200;
        const LEN: usize = 2;

        fn encode(&self, to: &mut Encoder<'_>) {
            to.u16(self.0);
        }

        fn decode(from: &mut Decoder<'_>) -> Self {
            Self(from.u16())
        }
    }

    struct Large;

    impl PacketOption for Large {
        const KIND: u8 = 201;
        const LEN: usize = 300;

        fn encode(&self, to: &mut Encoder<'_>) {
            to.bytes(&[7; 300]);
        }

        fn decode(_: &mut Decoder<'_>) -> Self {
            Self
        }
    }

    fn hop(hop: u32) -> IntHop {
        IntHop { hop, at: Time(1 << 40), tx_bytes: 9, queue: 5, line: Rate::gbps(100) }
    }

    #[test]
    fn a_packet_carries_several_options_at_once() {
        let mut options = PacketOptions::default();
        assert_eq!(options.read::<Colour>(), None);
        options.push_hop(hop(1));
        assert!(options.write(&Colour(3)));
        options.push_hop(hop(2));
        assert_eq!(options.update(|colour: &mut Colour| colour.0 += 1), Some(()));
        assert_eq!(options.read(), Some(Colour(4)));
        let hops: Hops = options.read().expect("two records");
        assert_eq!(hops.iter().collect::<Vec<_>>(), [hop(1), hop(2)]);
        let mut copy = PacketOptions::default();
        copy.copy_from(&options);
        assert_eq!(copy, options);
        copy.clear();
        assert_eq!(copy, PacketOptions::EMPTY);
    }

    #[test]
    fn an_option_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut options = PacketOptions::default();
        options.push_hop(hop(1));
        let before = options;
        assert!(!options.write(&Large), "257 and 300 bytes are more than the area holds");
        assert_eq!(options, before);
    }

    #[test]
    fn telemetry_has_room_for_eight_records() {
        let mut options = PacketOptions::default();
        (0..20).for_each(|n| options.push_hop(hop(n)));
        let hops: Hops = options.read().expect("records");
        assert_eq!(usize::from(hops.len()), MOST_HOPS);
        assert_eq!(hops.get(7).map(|hop| hop.hop), Some(7));
    }
}
