//! Packet options of transports that ask switches for a rate: rate packets (s-PERC) and speculative
//! data (1RC).

use super::packet_options::{Decoder, Encoder, PacketOption};
use squall_cc::{
    LinkEntries, LinkEntry, LinkState, MOST_LINKS, RatePacket, Speculation, StartEpoch,
};

/// Encoded bytes of the entry that one link has in a rate packet.
const LINK: usize = 17;

fn encode_link(entry: &LinkEntry, to: &mut Encoder<'_>) {
    to.u32(entry.link);
    to.f32(entry.bottleneck);
    to.f32(entry.allocated);
    to.u16(entry.weight);
    to.u16(entry.sweep);
    let state = match entry.state {
        LinkState::New => 0,
        LinkState::Elsewhere => 1,
        LinkState::Here => 2,
    };
    to.u8(state | u8::from(entry.ignore) << 2 | u8::from(entry.fresh) << 3);
}

fn decode_link(from: &mut Decoder<'_>) -> LinkEntry {
    let mut entry = LinkEntry {
        link: from.u32(),
        bottleneck: from.f32(),
        allocated: from.f32(),
        weight: from.u16(),
        sweep: from.u16(),
        ..LinkEntry::default()
    };
    let flags = from.u8();
    entry.state = match flags & 3 {
        0 => LinkState::New,
        1 => LinkState::Elsewhere,
        _ => LinkState::Here,
    };
    (entry.ignore, entry.fresh) = (flags & 4 != 0, flags & 8 != 0);
    entry
}

impl PacketOption for RatePacket {
    const KIND: u8 = 2;
    const LEN: usize = 24 + MOST_LINKS * LINK;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(self.flow);
        to.u16(self.path);
        to.u16(self.serial);
        to.u8(u8::from(self.back) | u8::from(self.leaving) << 1);
        to.u16(self.weight);
        to.f32(self.demand);
        to.u32(self.started.epoch);
        to.u16(self.started.weight);
        to.u16(self.let_through);
        let links = self.links.as_slice();
        // The number is at most `MOST_LINKS`, which fits.
        to.u8(links.len() as u8);
        links.iter().for_each(|entry| encode_link(entry, to));
    }

    fn decode(from: &mut Decoder<'_>) -> Self {
        let (flow, path, serial, flags) = (from.u32(), from.u16(), from.u16(), from.u8());
        let (weight, demand) = (from.u16(), from.f32());
        let started = StartEpoch { epoch: from.u32(), weight: from.u16() };
        let let_through = from.u16();
        let mut links = LinkEntries::default();
        for _ in 0..from.u8() {
            let _ = links.push(decode_link(from));
        }
        let (back, leaving) = (flags & 1 != 0, flags & 2 != 0);
        Self { flow, path, serial, back, leaving, weight, demand, started, let_through, links }
    }
}

impl PacketOption for Speculation {
    const KIND: u8 = 3;
    const LEN: usize = 5;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u8(self.epoch);
        to.u16(self.number);
        to.u16(self.weight);
    }

    fn decode(from: &mut Decoder<'_>) -> Self {
        Self { epoch: from.u8(), number: from.u16(), weight: from.u16() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PacketOptions;

    #[test]
    fn rate_packets_and_speculative_data_read_back() {
        let mut packet = RatePacket {
            flow: 7,
            path: 3,
            serial: 65_535,
            back: true,
            weight: 5,
            demand: 1e11,
            started: StartEpoch { epoch: 1 << 20, weight: 9 },
            let_through: 12,
            ..RatePacket::default()
        };
        for link in 0..MOST_LINKS as u32 {
            let entry = LinkEntry {
                link,
                bottleneck: 0.1,
                allocated: f32::INFINITY,
                weight: 2,
                sweep: 65_534,
                state: LinkState::Here,
                ignore: link % 2 == 0,
                fresh: link % 3 == 0,
            };
            packet.links.push(entry).expect("room");
        }
        let speculation = Speculation { epoch: 127, number: 99, weight: 3 };
        let mut options = PacketOptions::default();
        assert!(options.write(&packet) && options.write(&speculation));
        assert_eq!((options.read(), options.read()), (Some(packet), Some(speculation)));
    }
}
