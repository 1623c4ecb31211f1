//! Conversion of rate packets, and of the state that speculative requests carry, between congestion
//! control's form and the wire's.

use crate::cc::{self, LinkEntries, LinkEntry, LinkState, StartEpoch};
use crate::wire::{
    LinkRate, RateEntry, RateHead, RatePacket, RateStage, RateState, Request, Speculation,
};

/// Writes a rate packet of endpoint `initiator` into `out`, which has at least
/// [`RatePacket::MAX_LEN`] bytes. Returns the packet's length.
///
/// # Panics
/// Panics if `out` is too short.
pub fn emit_rates(packet: &cc::RatePacket, initiator: u32, out: &mut [u8]) -> usize {
    let mut entries = [[0; RateEntry::LEN]; RatePacket::MOST];
    let links = packet.links.as_slice();
    for (bytes, entry) in entries.iter_mut().zip(links) {
        *bytes = entry_of(entry).to_bytes();
    }
    let head = RateHead {
        stage: match (packet.back, packet.leaving) {
            (true, _) => RateStage::Back,
            (false, true) => RateStage::Leaves,
            (false, false) => RateStage::Asks,
        },
        weight: packet.weight.max(1),
        initiator,
        flow: packet.flow,
        path: packet.path,
        serial: packet.serial,
        demand: LinkRate::new(packet.demand),
        epoch: packet.started.epoch,
        epoch_weight: packet.started.weight.max(1),
        let_through: packet.let_through,
    };
    let count = links.len().min(RatePacket::MOST);
    RatePacket::new(head, &entries[..count]).emit(out)
}

/// Returns a rate packet from the wire in congestion control's form.
#[must_use]
pub fn rates_of(packet: &RatePacket<'_>) -> cc::RatePacket {
    let head = &packet.head;
    let mut links = LinkEntries::default();
    for entry in packet.entries() {
        links.push(link_of(&entry));
    }
    cc::RatePacket {
        flow: head.flow,
        path: head.path,
        serial: head.serial,
        back: head.stage == RateStage::Back,
        leaving: head.stage == RateStage::Leaves,
        weight: head.weight,
        demand: head.demand.get(),
        started: StartEpoch { epoch: head.epoch, weight: head.epoch_weight },
        let_through: head.let_through,
        links,
    }
}

/// Returns the state of a request that left before its flow had a rate; `None` for other requests.
#[must_use]
pub fn speculation_of(pds: &Request) -> Option<cc::Speculation> {
    let Speculation { epoch, number, weight } = Speculation::of(pds.ccc?)?;
    Some(cc::Speculation { epoch, number, weight })
}

fn entry_of(entry: &LinkEntry) -> RateEntry {
    RateEntry {
        link: entry.link,
        bottleneck: LinkRate::new(entry.bottleneck),
        allocated: LinkRate::new(entry.allocated),
        weight: entry.weight,
        sweep: entry.sweep,
        state: match entry.state {
            LinkState::New => RateState::New,
            LinkState::Elsewhere => RateState::Elsewhere,
            LinkState::Here => RateState::Here,
        },
        ignore: entry.ignore,
        fresh: entry.fresh,
    }
}

const fn link_of(entry: &RateEntry) -> LinkEntry {
    LinkEntry {
        link: entry.link,
        bottleneck: entry.bottleneck.get(),
        allocated: entry.allocated.get(),
        weight: entry.weight,
        sweep: entry.sweep,
        state: match entry.state {
            RateState::New => LinkState::New,
            RateState::Elsewhere => LinkState::Elsewhere,
            RateState::Here => LinkState::Here,
        },
        ignore: entry.ignore,
        fresh: entry.fresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Packet, parse};

    #[test]
    fn a_rate_packet_survives_the_wire() {
        let mut links = LinkEntries::default();
        let states = [LinkState::New, LinkState::Elsewhere, LinkState::Here, LinkState::Here];
        for (link, state) in (7..).zip(states.into_iter().cycle().take(RatePacket::MOST)) {
            links.push(LinkEntry {
                link,
                bottleneck: 9.6e10 / link as f32,
                allocated: 4.8e10 / link as f32,
                weight: 3,
                sweep: u16::MAX,
                state,
                ignore: link % 2 == 0,
                fresh: link % 3 == 0,
            });
        }
        let asks = cc::RatePacket {
            flow: 0x0102_0304,
            path: 5,
            serial: 6,
            weight: 2,
            started: StartEpoch { epoch: 1 << 31, weight: 4 },
            let_through: 36,
            links,
            ..cc::RatePacket::default()
        };
        let back = cc::RatePacket { back: true, demand: 1e9, ..asks };
        let leaves = cc::RatePacket { leaving: true, links: LinkEntries::default(), ..asks };
        for packet in [asks, back, leaves] {
            let mut bytes = [0; RatePacket::MAX_LEN];
            let len = emit_rates(&packet, 0x5eed_12b9, &mut bytes);
            let Ok(Packet::Rates(read)) = parse(&bytes[..len]) else { panic!("{packet:?}") };
            assert_eq!((rates_of(&read), read.head.initiator), (packet, 0x5eed_12b9));
        }
    }
}
