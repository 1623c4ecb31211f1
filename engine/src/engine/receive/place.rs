//! The third step of receiving: the content of a new packet, and of the packets that continue it,
//! is placed where it belongs.

use super::PacketReceiver;
use super::parse::{DataPacket, Followers};
use crate::base::Train;
use crate::channel::ChannelId;
use crate::engine::step;
use crate::memory::{Memory, Payload};
use crate::operation::PeerId;
use crate::packet_outcome::PacketOutcome;
use crate::reliability::{Delivery, RunArrival};
use crate::wire::{Opcode, Ses};

/// The outcome of a data packet in the message layer, and the packets behind it whose payload was
/// placed with its own.
pub(super) struct Placed {
    pub(super) outcome: PacketOutcome,
    pub(super) followers: Option<RunArrival>,
}

impl<M: Memory> PacketReceiver<'_, M> {
    /// Places a new packet, and the packets in `train` that continue it and are new as well; these
    /// leave the train. Only this function decides how the packets of a train are taken. A message
    /// that is in the train from its first packet to its last is placed as a whole. Packets that
    /// differ only in their numbers are placed together behind the first of them. All others stay in
    /// the train.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        peer: PeerId,
        delivery: &Delivery,
        data: &DataPacket<'_>,
        train: &mut Train<'_>,
    ) -> Placed {
        let from = (ChannelId::Context(delivery.id()), peer);
        let content = (data.ses, data.payload);
        let Some(followers) = Followers::find(data, train) else {
            let outcome = self.deliver(from, delivery.is_forward(), content);
            return Placed { outcome, followers: None };
        };
        self.place_with_followers(from, delivery, data, (&followers, train))
    }

    fn place_with_followers<'t>(
        &mut self,
        from: (ChannelId, PeerId),
        delivery: &Delivery,
        data: &DataPacket<'_>,
        (followers, train): (&Followers<'t>, &mut Train<'t>),
    ) -> Placed {
        let new = self.engine.pdcs.accepts_run_behind(delivery, followers.run.packets());
        let (outcome, taken) = if new && self.place_whole(from, delivery, data, followers) {
            (PacketOutcome::Yes(None), true)
        } else {
            let outcome = self.deliver(from, delivery.is_forward(), (data.ses, data.payload));
            let goes_on = new && matches!(outcome, PacketOutcome::Yes(None));
            (outcome, goes_on && self.place_run(from.0, data.ses, followers))
        };
        if taken {
            *train = followers.rest;
        }
        Placed { outcome, followers: taken.then_some(followers.run) }
    }

    /// Places a whole message if the packets make up one message and a receive waits for it.
    /// Returns whether it did.
    fn place_whole(
        &mut self,
        from: (ChannelId, PeerId),
        delivery: &Delivery,
        data: &DataPacket<'_>,
        followers: &Followers<'_>,
    ) -> bool {
        let Ses::Std(request) = data.ses else { return false };
        if !followers.complete_message || !delivery.is_forward() {
            return false;
        }
        let payloads = core::iter::once(data.payload).chain(followers.payloads());
        let step = &mut step!(self.engine, self.now);
        self.engine.inbox.take_whole(step, self.mem, from, request, payloads)
    }

    /// Copies the payloads of the packets behind one that was taken, if they only have to be copied
    /// to their place. Returns whether it did.
    fn place_run(&mut self, channel: ChannelId, ses: &Ses, followers: &Followers<'_>) -> bool {
        let step = &mut step!(self.engine, self.now);
        let (range, payloads) = (followers.range, followers.payloads());
        match ses {
            Ses::Std(request) if request.opcode == Opcode::Write => {
                let target = self.engine.target.write_target(self.mem, request, range);
                let Some(target) = target else { return false };
                let mut at = 0;
                for bytes in payloads {
                    let len = bytes.len() as u64;
                    self.mem.write(target.part(at, len), bytes);
                    at += len;
                }
                step.report.counters.rx_payload_bytes += at;
                true
            }
            Ses::Std(request) => {
                let message = (channel, request.message_id);
                self.engine.inbox.place_run(step, self.mem, message, range, payloads)
            }
            Ses::ResponseData(header) => {
                let slot = (channel, header.read_request_message_id);
                self.engine.outbound.place_run(step, self.mem, slot, range, payloads)
            }
            _ => false,
        }
    }

    /// Passes the content of a packet to the part of the engine that handles it. `forward` says
    /// that the context's initiator sent the packet.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        from: (ChannelId, PeerId),
        forward: bool,
        (ses, payload): (&Ses, &[u8]),
    ) -> PacketOutcome {
        match ses {
            Ses::Std(request) if forward => self.handle_initiator_request(from, request, payload),
            Ses::ResponseData(header) if !forward => self.engine.outbound.handle_response_data(
                &mut step!(self.engine, self.now),
                self.mem,
                from.0,
                header,
                Payload::Here(payload),
            ),
            _ => PacketOutcome::No,
        }
    }
}
