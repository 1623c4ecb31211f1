//! The sending half of a queue pair: go-back-N at the rate of its congestion control.

use std::collections::VecDeque;

use super::super::host::{Sizes, Work};
use super::super::outbox::Lane;
use super::{RoceKind, RocePacket};
use squall_base::{Rate, Span, Time};
use squall_cc::{Feedback, FeedbackKind, FlowEvent, Sender, SenderCc, SenderConfig, SentPacket};

/// Maximum number of timers of an idle period for which a queue pair catches up: 55 ms of DCQCN's
/// rate increases.
const MISSED_TIMERS: u32 = 1000;

/// The part of a flow that one queue pair carries.
#[derive(Debug)]
struct Message {
    flow: u32,
    /// Number of the first packet, and (next field) one past that of the last.
    first: u32,
    end: u32,
    /// Payload bytes of this part of the flow.
    bytes: u64,
}

impl Message {
    /// Returns the payload bytes of the packets from `from` to before `to`; whole packets have
    /// `full` bytes.
    fn payload(&self, from: u32, to: u32, full: u32) -> u64 {
        let before = |psn: u32| (u64::from(psn - self.first) * u64::from(full)).min(self.bytes);
        before(to) - before(from)
    }
}

/// The sending half of a queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    /// Connection, named by the first flow it carried, and number of the queue pair in it.
    name: (u32, u16),
    pub(super) lane: Lane,
    /// Entropy of all packets of the queue pair.
    pub(super) entropy: u32,
    /// Parts of flows that are not fully acknowledged, in the order of sending.
    messages: VecDeque<Message>,
    /// Total number of packets that the queue pair was given so far.
    packets: u32,
    /// Oldest unacknowledged packet; the next two fields are the next packet to send, and one past
    /// the newest packet ever sent.
    acked: u32,
    next: u32,
    newest: u32,
    pace_at: Time,
    /// True if only pacing delays the next packet.
    pacing: bool,
    rto_at: Time,
    pub(super) cc: Sender,
}

impl Qp {
    pub(super) fn new(
        now: Time,
        sender: &SenderConfig,
        name: (u32, u16),
        lane: Lane,
        entropy: u32,
    ) -> Self {
        let (packets, acked, next, newest) = (0, 0, 0, 0);
        Self {
            name,
            lane,
            entropy,
            messages: VecDeque::new(),
            packets,
            acked,
            next,
            newest,
            pace_at: now,
            pacing: false,
            rto_at: Time::NEVER,
            cc: Sender::new(sender, now),
        }
    }

    /// Returns whether all packets of the queue pair were acknowledged.
    pub(super) const fn is_done(&self) -> bool {
        self.acked == self.packets
    }

    /// Returns the approximate number of bytes in flight, counting every packet as a full one.
    pub(super) const fn in_flight(&self, mtu: u32) -> u64 {
        (self.next - self.acked) as u64 * mtu as u64
    }

    /// Accepts `bytes` bytes of a flow, in packets of `full` payload bytes. Returns false if it has
    /// no packet numbers left.
    pub(super) fn begin(&mut self, now: Time, flow: u32, bytes: u64, full: u32) -> bool {
        let packets = u32::try_from(bytes.div_ceil(full.into())).ok();
        let Some(end) = packets.and_then(|packets| self.packets.checked_add(packets)) else {
            return false;
        };
        if self.packets == 0 {
            self.cc.on_event(now, FlowEvent::Opened { flow });
        } else if self.is_done() {
            // The timers of an idle sender are simulated here afterwards, until the rate is that of
            // the line.
            for _ in 0..MISSED_TIMERS {
                let Some(at) = self.cc.next_timer().filter(|&at| at <= now) else { break };
                self.cc.on_timer(at);
            }
            self.cc.on_event(now, FlowEvent::Resumed);
        }
        self.messages.push_back(Message { flow, first: self.packets, end, bytes });
        self.packets = end;
        true
    }

    /// Notifies congestion control that the queue pair is closed or, with `keep`, idle.
    pub(super) fn notify_idle(&mut self, now: Time, keep: bool) {
        self.cc.on_event(now, if keep { FlowEvent::Idle } else { FlowEvent::Closed });
    }

    /// Returns the next packet if one may be sent now, and whether it is a retransmission.
    pub(super) fn next_packet(
        &mut self,
        now: Time,
        sizes: Sizes,
        line: Rate,
        rto: Span,
    ) -> Option<(RocePacket, bool)> {
        self.pacing = self.next < self.packets && now < self.pace_at;
        if self.pacing || self.next == self.packets {
            return None;
        }
        let psn = self.next;
        let of = self.messages.partition_point(|message| message.end <= psn);
        let message = self.messages.get(of)?;
        // The length is at most a packet's payload.
        let payload = message.payload(psn, psn + 1, sizes.payload()) as u32;
        let bytes = payload + sizes.header;
        let budget = self.cc.budget(now);
        let in_flight = self.in_flight(sizes.mtu);
        if in_flight > 0 && !budget.allows(now, in_flight, bytes) {
            return None;
        }
        self.next += 1;
        let again = psn < self.newest;
        self.newest = self.newest.max(self.next);
        let app_limited = self.next == self.packets;
        let sending =
            SentPacket { bytes, retransmitted: again, app_limited, ..SentPacket::default() };
        self.cc.on_send(now, &sending);
        let rate = budget.rate.unwrap_or(line).min(line);
        self.pace_at = self.pace_at.max(now) + rate.transmit_time(bytes.into());
        if self.rto_at == Time::NEVER {
            self.rto_at = now + rto;
        }
        let ((connection, qp), flow) = (self.name, message.flow);
        let kind = RoceKind::Data { last: self.next == message.end };
        Some((RocePacket { kind, connection, qp, flow, psn, payload }, again))
    }

    /// Handles an acknowledgement of all packets before `psn`; packet `psn` did not arrive if there
    /// is a `gap`. Returns false if the acknowledgement is out of date.
    pub(super) fn acknowledged(
        &mut self,
        psn: u32,
        gap: bool,
        sizes: Sizes,
        rto: Span,
        work: &mut Work<'_>,
    ) -> bool {
        // An earlier go-back made this acknowledgement meaningless.
        if psn < self.acked || psn > self.newest {
            return false;
        }
        let packets = psn - self.acked;
        let time = work.now.time();
        if packets > 0 {
            while let Some(message) = self.messages.front() {
                let to = psn.min(message.end);
                let payload = message.payload(self.acked, to, sizes.payload());
                work.acknowledged(message.flow, payload);
                self.acked = to;
                if to < message.end {
                    break;
                }
                self.messages.pop_front();
                if to == psn {
                    break;
                }
            }
            self.next = self.next.max(self.acked);
            self.rto_at = if self.next == self.acked { Time::NEVER } else { time + rto };
            self.cc.on_feedback(&Feedback {
                now: time,
                bytes: u32::try_from(u64::from(packets) * u64::from(sizes.mtu)).unwrap_or(u32::MAX),
                packets: u16::try_from(packets).unwrap_or(u16::MAX),
                in_flight: self.in_flight(sizes.mtu),
                ..Feedback::default()
            });
        }
        if gap {
            self.next = self.acked;
        }
        true
    }

    /// Returns the time of the next call of [`Qp::handle_timeout`].
    pub(super) fn poll_timeout(&self) -> Time {
        let pace = if self.pacing { self.pace_at } else { Time::NEVER };
        self.rto_at.min(pace).min(self.cc.next_timer().unwrap_or(Time::NEVER))
    }

    /// Handles the timers that have expired. Returns true if there may be something to send now.
    pub(super) fn handle_timeout(&mut self, now: Time, sizes: Sizes, rto: Span) -> bool {
        if self.cc.next_timer().is_some_and(|when| when <= now) {
            self.cc.on_timer(now);
        }
        let timed_out = self.rto_at <= now;
        if timed_out {
            self.cc.on_feedback(&Feedback {
                now,
                kind: FeedbackKind::TimedOut,
                bytes: sizes.mtu,
                packets: 1,
                ..Feedback::default()
            });
            self.next = self.acked;
            self.rto_at = now + rto;
        }
        let paced = self.pacing && self.pace_at <= now;
        self.pacing &= !paced;
        timed_out || paced
    }
}
