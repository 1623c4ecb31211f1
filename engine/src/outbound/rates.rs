//! Sending of rate packets.

use core::net::SocketAddr;

use super::transmit::push_whole;
use crate::base::Batch;
use crate::peers::Initiator;
use crate::reliability::{cc, emit_rates};
use crate::wire::RatePacket;

/// Adds a rate packet of endpoint `who` to a batch, on the path that the packet names.
pub(crate) fn push_rates(
    batch: &mut Batch,
    dst: SocketAddr,
    packet: &cc::RatePacket,
    who: Initiator,
) {
    push_whole(batch, (dst, packet.path), RatePacket::MAX_LEN, |out| {
        emit_rates(packet, who.field(), out)
    });
}
