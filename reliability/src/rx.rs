//! The receiving half of a context: the packets that arrived, and the acknowledgements of them.

mod next_ack;
mod rare;
mod unreported;
mod window;

use crate::base::{Psn, Span, Time};
use crate::cc;
use crate::config::Config;
use crate::deadlines::{Deadlines, Timer};
use crate::types::PdcId;
use crate::wire::Response;
use next_ack::NextAck;
pub(crate) use rare::RareRx;
pub(crate) use window::{Holes, Window};

/// Distance of a PSN from the window, in packets, up to which a packet is taken for late or early.
/// Beyond, it is taken for forged.
const PREVIOUS: i32 = 2 * 4096;

/// Unit of an ACK's `service_time` in nanoseconds (UE 1.0 table 3-74).
const SERVICE_UNIT: u64 = 128;

/// Where a PSN lies relative to the receive window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PsnPlace {
    /// The PSN is in the window and was not received yet.
    New,
    /// The packet with this PSN was received before.
    Duplicate,
    /// The PSN is somewhat ahead of the window, which the sender therefore exceeded.
    Ahead,
    /// The PSN is far outside of the window: the packet is very late or forged.
    Nonsense,
}

/// Properties of a data packet that the engine accepted and that is now recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPsn {
    pub(crate) psn: Psn,
    pub(crate) bytes: u32,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    /// The sender asks for an acknowledgement at once (flag AR). The next hole that closes before
    /// the packet makes one due, too.
    pub(crate) ask: bool,
    /// The packet opened the context (flag SYN): it is acknowledged at once, but not again when a
    /// hole before it closes.
    pub(crate) prompt: bool,
}

/// The content of an ACK as far as the receiving half knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AckBody {
    pub(crate) cack: Psn,
    /// The PSN of the packet that the ACK is about: the peer measures a round trip by it.
    pub(crate) ack_psn: Psn,
    /// The opaque number of the probe that the ACK answers; the ACK carries it in the place of
    /// `ack_psn`.
    pub(crate) probe: Option<u16>,
    pub(crate) sack_base: Psn,
    pub(crate) bitmap: u64,
    /// The time for which the packet waited for this ACK, in units of 128 ns; zero where the ACK
    /// has none.
    pub(crate) service_time: u16,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    pub(crate) response: Option<Response>,
}

impl AckBody {
    /// Returns the acknowledgement of a Close Command at `psn`, which ends the context.
    pub(crate) const fn last(psn: Psn) -> Self {
        Self {
            cack: psn,
            ack_psn: psn,
            probe: None,
            sack_base: psn.plus(1),
            bitmap: 0,
            service_time: 1,
            ce: false,
            retx: false,
            response: None,
        }
    }
}

/// The receiving half. [`Timer::Ack`] holds the time of an ACK that nothing else causes or that is
/// delayed. The timer runs while a received packet is not yet acknowledged.
#[derive(Debug)]
pub(crate) struct Rx {
    window: Window,
    /// State of this flow that the receiver's part of congestion control keeps.
    flow: cc::RxFlow,
    next_ack: NextAck,
    rare: RareRx,
}

impl Rx {
    /// Creates a receiving half whose first PSN is `start`; the receiver's congestion control knows
    /// its flow as `id`.
    pub(crate) fn new(start: Psn, id: PdcId) -> Self {
        Self {
            window: Window::new(start),
            flow: cc::RxFlow::new(id.to_u32()),
            next_ack: NextAck::new(start),
            rare: RareRx::default(),
        }
    }

    /// Returns the state of the receiving half that most contexts never need.
    pub(crate) const fn rare_mut(&mut self) -> &mut RareRx {
        &mut self.rare
    }

    /// Returns the receive window: which PSNs arrived.
    #[inline]
    pub(crate) const fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the state of this flow that the receiver's part of congestion control keeps.
    #[inline]
    pub(crate) fn flow_mut(&mut self) -> &mut cc::RxFlow {
        &mut self.flow
    }

    /// Returns the newest PSN up to which all packets were received and none has a response that
    /// waits to be cleared.
    #[inline]
    pub(crate) fn cack(&self) -> Psn {
        let end = match self.rare.oldest_response() {
            // A response may belong to a packet beyond a hole.
            Some(psn) if psn.is_before(self.window.base()) => psn,
            _ => self.window.base(),
        };
        end.minus(1)
    }

    /// Returns where `psn` lies relative to a receive window of `window` packets.
    #[inline]
    pub(crate) fn place(&self, psn: Psn, window: u16) -> PsnPlace {
        let distance = psn.distance(self.window.base());
        if distance < 0 {
            return if distance >= -PREVIOUS { PsnPlace::Duplicate } else { PsnPlace::Nonsense };
        }
        // `psn.distance(cack)` would change its sign where `distance` is largest.
        let ahead = distance.saturating_add(self.window.base().distance(self.cack()));
        if ahead > i32::from(window) {
            return if distance < PREVIOUS { PsnPlace::Ahead } else { PsnPlace::Nonsense };
        }
        if self.window.has(psn) { PsnPlace::Duplicate } else { PsnPlace::New }
    }

    /// Returns whether `psn` was received, on a context on which no PSN is used twice.
    pub(crate) fn has(&self, psn: Psn) -> bool {
        psn.is_before(self.window.base()) || self.window.has(psn)
    }

    /// Returns whether no packet was ever received on the context.
    pub(crate) fn is_untouched(&self) -> bool {
        self.window.base() == self.next_ack.newest()
            && self.window.ahead() == 0
            && !self.has_received()
    }

    /// Returns whether a data packet was ever received whole on the context.
    pub(crate) fn has_received(&self) -> bool {
        self.flow.received() != 0
    }

    // Received packets.

    /// Records that the engine accepted a packet whose place was [`PsnPlace::New`]. Its `response`
    /// is kept until the peer clears it.
    #[inline]
    pub(crate) fn record(
        &mut self,
        now: Time,
        received: &ReceivedPsn,
        response: Option<Response>,
        config: &Config,
        timers: &mut Deadlines,
        pool: &mut Vec<Holes>,
    ) {
        let psn = received.psn;
        let prompt = self.window.insert(psn, received.ask, pool);
        let wait = self.next_ack.count_bytes(received.bytes.max(config.ack_min_pkt), config);
        if prompt || received.ask || received.prompt || received.ce {
            self.next_ack.request();
        }
        match response {
            Some(response) => self.rare.add_response(psn, response),
            None => self.next_ack.set_subject(now, psn, received.retx, received.ce),
        }
        timers.set_earlier(Timer::Ack, now + wait);
    }

    /// Returns whether [`Rx::takes_run`] accepts the `count` packets behind `psn` once `psn`, whose
    /// place is [`PsnPlace::New`], is recorded without a response.
    #[inline]
    pub(crate) fn takes_run_behind(&self, psn: Psn, count: u16, window: u16) -> bool {
        let base = self.window.base();
        let last = psn.plus(1).plus(u32::from(count)).distance(base);
        !psn.is_before(self.window.end())
            && self.rare.has_no_responses()
            && (psn == base || last <= i32::from(window))
    }

    /// Returns whether no packet is missing before one that arrived.
    #[inline]
    pub(crate) const fn has_no_gaps(&self) -> bool {
        self.window.has_no_gaps()
    }

    /// Returns whether [`Rx::record_run`] accepts `count` packets from `psn` on with a window of
    /// `window` packets. No packet at or after `psn` may have arrived and no response may wait to
    /// be cleared; packets before `psn` may be missing.
    #[inline]
    pub(crate) fn takes_run(&self, psn: Psn, count: u16, window: u16) -> bool {
        let last = psn.plus(u32::from(count)).distance(self.window.base());
        self.window.end() == psn
            && self.rare.has_no_responses()
            && (self.has_no_gaps() || last <= i32::from(window))
    }

    /// Records `count` consecutive packets like `first`, of which the last may ask for an
    /// acknowledgement, as [`Rx::record`] would record each. [`Rx::takes_run`] must hold.
    #[inline]
    pub(crate) fn record_run(
        &mut self,
        now: Time,
        first: &ReceivedPsn,
        count: u16,
        config: &Config,
        timers: &mut Deadlines,
    ) {
        self.window.extend(count, first.ask);
        let each = first.bytes.max(config.ack_min_pkt);
        let wait = self.next_ack.count_bytes(each.saturating_mul(u32::from(count)), config);
        if first.ce || first.ask {
            self.next_ack.request();
        }
        let last = self.window.end().minus(1);
        self.next_ack.set_subject(now, last, first.retx, first.ce);
        timers.set_earlier(Timer::Ack, now + wait);
    }

    /// Acknowledges again a packet whose place was [`PsnPlace::Duplicate`].
    #[inline]
    pub(crate) fn on_duplicate(&mut self, now: Time, psn: Psn, retx: bool) {
        if !self.rare.resend_response(psn) {
            self.next_ack.set_subject(now, psn, retx, false);
            if !psn.is_before(self.window.base())
                && let Some(unreported) = self.window.unreported_mut()
            {
                unreported.add(psn, psn);
            }
        }
        self.next_ack.request();
    }

    /// Handles a probe of the peer: makes an ACK due that reports all packets at or after `from`.
    pub(crate) fn on_probe(&mut self, now: Time, opaque: u16, from: Psn) {
        self.next_ack.answer(now, opaque);
        let (base, last) = (self.window.base(), self.window.end().minus(1));
        if let Some(unreported) = self.window.unreported_mut() {
            let first = if from.is_after(base) && !from.is_after(last) { from } else { base };
            unreported.add(first, last);
        }
    }

    /// Keeps the response for the next acknowledgement of packet `psn`.
    pub(crate) fn answer(&mut self, psn: Psn, response: Response) {
        // A packet that was refused is not answered otherwise later.
        if !self.rare.keeps_response(psn) {
            self.rare.add_answer(psn, response);
        }
    }

    /// Discards all guaranteed responses up to `psn`, because the peer has received them.
    #[inline]
    pub(crate) fn on_cleared(&mut self, psn: Psn) {
        self.rare.clear_responses(psn);
    }

    /// Requests an acknowledgement because a Clear Command may have moved the receive window. The window may
    /// have moved beyond a packet whose acknowledgement was lost, so the ACK carries the last default response
    /// again, where ACKs carry one.
    pub(crate) fn report_window(&mut self) {
        self.rare.repeat_answer();
        self.next_ack.request();
    }

    /// Cancels an ACK that waits if the response that leaves now was all that it had to report. If the
    /// network drops this response, an ACK without one would acknowledge the packet, and the reference
    /// provider would wait for the response for ever.
    #[cold]
    fn skip_bare_ack(&mut self, timers: &mut Deadlines) {
        if self.rare.has_answers() || self.next_ack.probe().is_some() {
            return;
        }
        let _ = self.next_ack.take_subject();
        self.next_ack.on_complete();
        timers.stop(Timer::Ack);
    }

    /// Requests an acknowledgement although no packet arrived, or because its timer expired.
    pub(crate) fn request_ack(&mut self) {
        self.next_ack.request();
    }

    // Acknowledgements.

    /// Returns whether an ACK leaves in this round, so that its timer does not matter.
    #[inline]
    pub(crate) const fn is_ack_requested(&self) -> bool {
        self.next_ack.is_due()
    }

    /// Returns whether [`Rx::next_ack`] has an ACK to send now.
    #[inline]
    pub(crate) fn is_ack_due(&self) -> bool {
        self.next_ack.is_due() || self.rare.is_response_due()
    }

    /// Returns whether responses are kept that the initiator should be asked to clear.
    #[inline]
    pub(crate) fn should_request_clear(&self) -> bool {
        !self.rare.has_no_responses()
    }

    /// Returns the next ACK of this round. ACKs with responses come first, then one about the
    /// newest packet and the newest holes, then as many as are needed to describe a wide window.
    #[inline]
    pub(crate) fn next_ack(
        &mut self,
        now: Time,
        timers: &mut Deadlines,
        config: &Config,
    ) -> Option<AckBody> {
        if let Some((psn, response)) = self.rare.take_due_response() {
            if config.dialect.answers {
                self.skip_bare_ack(timers);
            }
            let cack = self.cack();
            let sack_base = cack.plus(1);
            return Some(AckBody {
                cack,
                ack_psn: psn,
                probe: None,
                sack_base,
                bitmap: self.sack(sack_base),
                service_time: 0,
                ce: false,
                retx: false,
                response: Some(response),
            });
        }
        if config.dialect.answers
            && self.next_ack.is_due()
            && let Some((psn, response)) = self.rare.take_answer()
        {
            let subject = self.next_ack.take_subject();
            if !self.rare.has_answers() {
                self.next_ack.on_complete();
                timers.stop(Timer::Ack);
            }
            let (cack, sack_base) = (self.cack(), self.cack().plus(1));
            return Some(AckBody {
                cack,
                ack_psn: psn,
                probe: None,
                sack_base,
                bitmap: 0,
                service_time: 0,
                ce: subject.ce,
                retx: subject.retx,
                response: Some(response),
            });
        }
        if !self.next_ack.is_due() {
            if !self.next_ack.is_fresh() && self.window.is_reported() {
                // Only responses had to be sent, and all were.
                self.next_ack.on_complete();
                timers.stop(Timer::Ack);
            }
            return None;
        }
        let (cack, probe) = (self.cack(), self.next_ack.probe());
        let sack_base = match self.window.unreported_mut() {
            None => cack.plus(1),
            // A probe's answer covers everything, because its sender has lost track of its packets.
            Some(unreported) if config.acks.lowest_segment && probe.is_none() => {
                unreported.lowest_segment(cack)
            }
            Some(unreported) => unreported.next_window(cack),
        };
        let subject = self.next_ack.take_subject();
        let sampled = subject.psn.is_some() || probe.is_some();
        let ack = AckBody {
            cack,
            ack_psn: subject.psn.unwrap_or(cack),
            probe,
            sack_base,
            bitmap: self.sack(sack_base),
            service_time: if sampled { service_time(now.since(subject.at)) } else { 0 },
            ce: subject.ce,
            retx: subject.retx,
            response: None,
        };
        if self.window.is_reported() {
            self.next_ack.on_complete();
            timers.stop(Timer::Ack);
        }
        Some(ack)
    }

    /// Returns the SACK bitmap of the 64 packets from `from` on.
    #[inline]
    fn sack(&self, from: Psn) -> u64 {
        self.rare.hide_responses(from, self.window.map(from))
    }

    /// Returns the map of packets received ahead to `pool`. No packet may be received afterwards.
    pub(crate) fn return_holes(&mut self, pool: &mut Vec<Holes>) {
        self.window.return_holes(pool);
    }
}

/// Returns a time in the unit of an ACK's field `service_time`. The result is never 0, which means
/// no time; 0xffff stands for times that do not fit.
fn service_time(span: Span) -> u16 {
    u16::try_from(span.0 / SERVICE_UNIT).unwrap_or(u16::MAX).max(1)
}

/// Returns the time that an ACK's field `service_time` stands for, if it has one.
pub(crate) fn service_span(service_time: u16) -> Option<Span> {
    match service_time {
        0 | u16::MAX => None,
        units => Some(Span(u64::from(units) * SERVICE_UNIT)),
    }
}
