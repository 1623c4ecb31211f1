//! Packets behind a private header: telemetry that switches wrote, or the mark of a fragment.

use super::PacketReceiver;
use super::parse::DataPacket;
use crate::base::Psn;
use crate::memory::Memory;
use crate::operation::PeerId;
use crate::packet_outcome::PacketOutcome;
use crate::reliability::{Arrival, Delivery, cc, hop_of};
use crate::wire::{self, Fragment, Packet, PdsType, Telemetry, TelemetryKind};

/// Returns whether a packet may begin with a private header.
#[inline]
pub(super) fn is_prefixed(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 3 >= Fragment::TYPE)
}

/// The content of the private headers (telemetry, fragment mark) in front of a packet.
struct Prefixes {
    /// Length in bytes with which the packet left its sender, which congestion control counts.
    bytes: usize,
    /// Telemetry that switches wrote into the packet, or into the packet that it acknowledges.
    telemetry: cc::Hops,
    /// The PSN of the original packet if this packet is a fragment, and the number of fragments of
    /// that original.
    fragment: Option<(Psn, u8)>,
}

impl Prefixes {
    /// Reads the headers before a packet. Returns them and the packet, or `None` if they break a
    /// rule.
    fn read(mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut prefixes =
            Self { bytes: bytes.len(), telemetry: cc::Hops::default(), fragment: None };
        if Telemetry::is_before(bytes) {
            let read = Telemetry::read(bytes).ok()?;
            // Telemetry before an acknowledgement describes the acknowledged packet; before other
            // packets it describes the packet itself.
            let kind = read.packet.first().and_then(|first| PdsType::from_u8(first >> 3));
            let ack = matches!(kind, Some(PdsType::Ack | PdsType::AckCc | PdsType::AckCcx));
            if ack != (read.kind == TelemetryKind::Echo) {
                return None;
            }
            prefixes.telemetry = read.records().map(|record| hop_of(&record)).collect();
            prefixes.bytes = read.packet.len() + Telemetry::LEN;
            bytes = read.packet;
        }
        if Fragment::is_before(bytes) {
            let fragment = Fragment::read(bytes).ok()?;
            prefixes.fragment = Some((fragment.original, fragment.count));
            bytes = fragment.packet;
        }
        Some((prefixes, bytes))
    }
}

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a packet with private headers (telemetry, fragment mark) in front of it.
    pub(super) fn handle_prefixed(&mut self, arrival: &Arrival, bytes: &[u8]) {
        let Some((prefixes, bytes)) = Prefixes::read(bytes) else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let left_with = u32::try_from(prefixes.bytes).unwrap_or(u32::MAX);
        let arrival = Arrival { bytes: left_with, ..*arrival };
        if arrival.trimmed {
            return self.handle_trimmed(&arrival, bytes);
        }
        let packet = match wire::parse(bytes) {
            Ok(Packet::Request { pds, ses, payload }) => {
                let data = DataPacket::new(&pds, &ses, bytes, payload);
                let Some(origin) = self.find_origin(&data) else { return };
                let Some((peer, delivery)) = self.classify(origin, &data, &arrival) else { return };
                if !prefixes.telemetry.is_empty() {
                    self.engine.pdcs.keep_telemetry(&delivery, &prefixes.telemetry);
                }
                return self.receive_beside_fragments(peer, prefixes.fragment, &data, delivery);
            }
            packet => packet,
        };
        self.handle_packet_without_data(packet, &prefixes.telemetry);
    }

    /// Places a new packet that is a `fragment`, or that may be a late copy of an original that was
    /// replaced by fragments, and reports to the transport what became of it. A fragment whose
    /// original arrived whole is acknowledged and not processed. A late copy of an original whose
    /// fragments were taken is dropped.
    #[cold]
    pub(super) fn receive_beside_fragments(
        &mut self,
        peer: PeerId,
        fragment: Option<(Psn, u8)>,
        data: &DataPacket<'_>,
        delivery: Delivery,
    ) {
        let (id, forward, pdcs) = (delivery.id(), delivery.is_forward(), &mut self.engine.pdcs);
        let wanted = match fragment {
            None if !pdcs.has_fragments() => Some(delivery),
            None => pdcs.discard_original(delivery),
            Some((original, _)) if pdcs.is_fragment_repeated(id, original) => {
                self.engine.report.counters.rx_fragments_repeated += 1;
                return self.conclude_one(delivery, PacketOutcome::Yes(None));
            }
            Some((original, count)) if !pdcs.accepts_fragment(id, original, count) => {
                return self.conclude_one(delivery, PacketOutcome::No);
            }
            Some(_) => Some(delivery),
        };
        let Some(delivery) = wanted else {
            self.engine.report.counters.rx_originals_replaced += 1;
            return;
        };
        let outcome = self.deliver((id.into(), peer), forward, (data.ses, data.payload));
        if let (Some((original, count)), PacketOutcome::Yes(_)) = (fragment, outcome) {
            self.engine.pdcs.take_fragment(id, original, count);
        }
        self.conclude_one(delivery, outcome);
    }
}
