//! The receiving half of a context: what arrived, and what is acknowledged of it.

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

/// How many PSNs below the window a late packet may lie and still be told from nonsense.
const PREVIOUS: i32 = 2 * 4096;

/// One unit of an ACK's `service_time` (UE 1.0 table 3-74).
const SERVICE_UNIT: u64 = 128;

/// The place of a PSN relative to the receive window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PsnPlace {
    /// In the window, and not yet received.
    New,
    /// Received before.
    Duplicate,
    /// Somewhat ahead of the window: the sender exceeded it.
    Ahead,
    /// Neither: very late, or forged.
    Nonsense,
}

/// A data packet as it was when the engine took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPsn {
    pub(crate) psn: Psn,
    pub(crate) bytes: u32,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    /// Acknowledge at once: AR.
    pub(crate) ask: bool,
    /// Acknowledge at once, but do not wait for a hole to close: SYN, CE.
    pub(crate) prompt: bool,
}

/// The parts of one ACK that this half knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AckBody {
    pub(crate) cack: Psn,
    /// The packet the ACK is about.
    pub(crate) ack_psn: Psn,
    /// In place of `ack_psn`, when it answers a probe.
    pub(crate) probe: Option<u16>,
    pub(crate) sack_base: Psn,
    pub(crate) bitmap: u64,
    /// In units of 128 ns; zero when it means nothing.
    pub(crate) service_time: u16,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    pub(crate) response: Option<Response>,
}

impl AckBody {
    /// The acknowledgement of a Close Command at `psn`, with which the context ends.
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

/// The receiving half. When an ACK is due that nothing else causes, or that is put off, is [`Timer::Ack`], which runs while
/// anything received was not yet acknowledged.
#[derive(Debug)]
pub(crate) struct Rx {
    window: Window,
    /// Congestion control's part.
    flow: cc::RxFlow,
    next_ack: NextAck,
    rare: RareRx,
}

impl Rx {
    /// A half whose flow the receiver knows as `id`.
    pub(crate) fn new(start: Psn, id: PdcId) -> Self {
        Self {
            window: Window::new(start),
            flow: cc::RxFlow::new(id.to_u32()),
            next_ack: NextAck::new(start),
            rare: RareRx::default(),
        }
    }

    /// Returns the parts that most contexts never need.
    pub(crate) const fn rare_mut(&mut self) -> &mut RareRx {
        &mut self.rare
    }

    /// What arrived.
    #[inline]
    pub(crate) const fn window(&self) -> &Window {
        &self.window
    }

    /// What the receiver's congestion control knows of the flow.
    #[inline]
    pub(crate) fn flow_mut(&mut self) -> &mut cc::RxFlow {
        &mut self.flow
    }

    /// The newest PSN up to which everything is received, and its response received or the default
    /// one. It does not pass a response that waits to be cleared.
    #[inline]
    pub(crate) fn cack(&self) -> Psn {
        let end = match self.rare.oldest_response() {
            // A response may lie beyond a hole.
            Some(psn) if psn.is_before(self.window.base()) => psn,
            _ => self.window.base(),
        };
        end.minus(1)
    }

    /// Where `psn` lies when the window is `window` packets.
    #[inline]
    pub(crate) fn place(&self, psn: Psn, window: u16) -> PsnPlace {
        let distance = psn.distance(self.window.base());
        if distance < 0 {
            return if distance >= -PREVIOUS { PsnPlace::Duplicate } else { PsnPlace::Nonsense };
        }
        // Not `psn.distance(cack)`, which changes its sign where `distance` is largest.
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

    /// Nothing was ever received.
    pub(crate) fn is_untouched(&self) -> bool {
        self.window.base() == self.next_ack.newest()
            && self.window.ahead() == 0
            && !self.has_received()
    }

    /// Whether data were ever received.
    pub(crate) fn has_received(&self) -> bool {
        self.flow.received() != 0
    }

    // What arrives.

    /// The engine took a packet whose place was [`PsnPlace::New`]; `response` is kept until cleared.
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
        let wait = self.next_ack.gather(received.bytes.max(config.ack_min_pkt), config);
        if prompt || received.ask || received.prompt || received.ce {
            self.next_ack.request();
        }
        match response {
            Some(response) => self.rare.add_response(psn, response),
            None => self.next_ack.set_subject(now, psn, received.retx, received.ce),
        }
        timers.set_earlier(Timer::Ack, now + wait);
    }

    /// Whether all that came before `psn` was received and acknowledged without a response, and nothing after it
    /// came: then [`Rx::record_run`] takes what begins there, however much it is.
    #[inline]
    pub(crate) fn goes_on_at(&self, psn: Psn) -> bool {
        self.is_whole() && self.window.end() == psn && self.rare.has_no_responses()
    }

    /// Whether nothing is missing before what arrived.
    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.window.is_whole()
    }

    /// Whether [`Rx::record_run`] takes `count` packets from `psn` on, when the window is `window` packets: nothing at or after
    /// it came, whatever is missing before it, and no response waits to be cleared.
    #[inline]
    pub(crate) fn takes_run(&self, psn: Psn, count: u16, window: u16) -> bool {
        let last = psn.plus(u32::from(count)).distance(self.window.base());
        self.window.end() == psn
            && self.rare.has_no_responses()
            && (self.is_whole() || last <= i32::from(window))
    }

    /// As [`Rx::record`] for each of `count` packets in a row like `first`, of which the last may ask, where they are
    /// [taken](Self::takes_run).
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
        let wait = self.next_ack.gather(each.saturating_mul(u32::from(count)), config);
        if first.ce || first.ask {
            self.next_ack.request();
        }
        let last = self.window.end().minus(1);
        self.next_ack.set_subject(now, last, first.retx, first.ce);
        timers.set_earlier(Timer::Ack, now + wait);
    }

    /// A packet whose place was [`PsnPlace::Duplicate`] arrived: acknowledge again what is known.
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

    /// A probe arrived: report all that is known at or after `from`.
    pub(crate) fn on_probe(&mut self, now: Time, opaque: u16, from: Psn) {
        self.next_ack.answer(now, opaque);
        let (base, last) = (self.window.base(), self.window.end().minus(1));
        if let Some(unreported) = self.window.unreported_mut() {
            let first = if from.is_after(base) && !from.is_after(last) { from } else { base };
            unreported.add(first, last);
        }
    }

    /// The peer has every response up to `psn`.
    #[inline]
    pub(crate) fn on_cleared(&mut self, psn: Psn) {
        self.rare.clear_responses(psn);
    }

    /// An acknowledgement is wanted although nothing arrived, or because its time has come.
    pub(crate) fn request_ack(&mut self) {
        self.next_ack.request();
    }

    // What is acknowledged.

    /// An ACK leaves in this round, so that nobody waits for its time.
    #[inline]
    pub(crate) const fn is_ack_requested(&self) -> bool {
        self.next_ack.is_due()
    }

    /// Whether [`Rx::next_ack`] has one.
    #[inline]
    pub(crate) fn is_ack_due(&self) -> bool {
        self.next_ack.is_due() || self.rare.is_response_due()
    }

    /// Whether the initiator should be asked to clear responses.
    #[inline]
    pub(crate) fn wants_clear(&self) -> bool {
        !self.rare.has_no_responses()
    }

    /// The next ACK of this round, if any: those with a response first, then one that describes the
    /// newest packet and the newest holes, then as many as it takes to describe a wide window.
    #[inline]
    pub(crate) fn next_ack(
        &mut self,
        now: Time,
        timers: &mut Deadlines,
        config: &Config,
    ) -> Option<AckBody> {
        if let Some((psn, response)) = self.rare.take_due_response() {
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
        if !self.next_ack.is_due() {
            if !self.next_ack.is_fresh() && self.window.is_reported() {
                // Only responses were to be sent, and they were.
                self.next_ack.on_complete();
                timers.stop(Timer::Ack);
            }
            return None;
        }
        let (cack, probe) = (self.cack(), self.next_ack.probe());
        let sack_base = match self.window.unreported_mut() {
            None => cack.plus(1),
            // A probe is answered whole: its sender lost count.
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

    /// What arrived of the 64 packets from `from` on and may be shown.
    #[inline]
    fn sack(&self, from: Psn) -> u64 {
        self.rare.hide_responses(from, self.window.map(from))
    }

    /// Gives back what it borrowed; nothing may be received any more.
    pub(crate) fn give_back(&mut self, pool: &mut Vec<Holes>) {
        self.window.give_back(pool);
    }
}

/// A time as an ACK's `service_time`: never 0, which means none, and 0xffff when it does not fit.
fn service_time(span: Span) -> u16 {
    u16::try_from(span.0 / SERVICE_UNIT).unwrap_or(u16::MAX).max(1)
}

/// The time an ACK's `service_time` means, if any.
pub(crate) fn service_span(service_time: u16) -> Option<Span> {
    match service_time {
        0 | u16::MAX => None,
        units => Some(Span(u64::from(units) * SERVICE_UNIT)),
    }
}
