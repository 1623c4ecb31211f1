//! The receiving half of a context: what arrived, and what to say about it.

use crate::base::{Psn, Span, Time};
use crate::bitmap::Bitmap;
use crate::cc;
use crate::config::Config;
use crate::types::PdcId;
use crate::wire::Response;

/// How many PSNs below the window a late packet may lie and still be told from nonsense.
const PREVIOUS: i32 = 2 * 4096;

/// One unit of an ACK's `service_time` (UE 1.0 table 3-74).
const SERVICE_UNIT: u64 = 128;

/// Where a PSN lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In the window, and not yet received.
    New,
    /// Received before.
    Duplicate,
    /// Somewhat ahead of the window: the sender exceeded it.
    Ahead,
    /// Neither: very late, or forged.
    Nonsense,
}

/// What is known of a data packet when the engine took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) psn: Psn,
    pub(crate) bytes: u32,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    /// Acknowledge at once: AR.
    pub(crate) ask: bool,
    /// Acknowledge at once, but do not wait for a hole to close: SYN, CE.
    pub(crate) prompt: bool,
}

/// A response that the initiator must not miss (guaranteed delivery).
#[derive(Clone, Copy, Debug)]
struct Stored {
    psn: Psn,
    response: Response,
    /// To be sent, for the first time or again.
    due: bool,
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

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Rx {
    /// The oldest PSN not received.
    base: Psn,
    /// One past the newest PSN received, never before `base`.
    end: Psn,
    /// Packets received at or after `base` (`ooo_count`).
    ahead: u16,
    /// Which; absent while `ahead` is zero.
    bits: Option<Bitmap>,
    /// Congestion control's part.
    pub(crate) flow: cc::RxFlow,
    /// Bytes received since the last ACK, small packets rounded up.
    gathered: u32,
    /// An ACK shall leave in this round.
    due: bool,
    /// The newest packet was not yet the subject of an ACK.
    fresh: bool,
    /// ... and this is what is said about it.
    newest: Psn,
    newest_at: Time,
    newest_retx: bool,
    ce: bool,
    /// When an ACK is due if nothing else makes it so.
    ack_at: Time,
    /// Packets received out of order whose SACK bits were not yet sent lie in here, both ends included.
    dirty: Option<(Psn, Psn)>,
    /// The newest packet with AR that has a hole before it.
    asked_behind: Option<Psn>,
    /// The probe to be answered.
    probe: Option<u16>,
    /// Responses not yet cleared, by PSN; rare.
    #[allow(clippy::box_collection)]
    // a third of the size, for something that is hardly ever there
    stored: Option<Box<Vec<Stored>>>,
}

impl Rx {
    /// A half whose flow the receiver knows as `id`.
    pub(crate) fn new(start: Psn, id: PdcId) -> Self {
        Self {
            base: start,
            end: start,
            ahead: 0,
            bits: None,
            flow: cc::RxFlow::new(id.to_u32()),
            gathered: 0,
            due: false,
            fresh: false,
            newest: start,
            newest_at: Time::ZERO,
            newest_retx: false,
            ce: false,
            ack_at: Time::NEVER,
            dirty: None,
            asked_behind: None,
            probe: None,
            stored: None,
        }
    }

    /// Reads a little of everything that packets need.
    pub(crate) fn glance(&self) -> u64 {
        let ahead = self.bits.as_ref().map_or(0, |bits| bits.window(self.base));
        ahead ^ self.flow.received() ^ self.ack_at.0
    }

    /// The oldest PSN not received.
    pub(crate) const fn base(&self) -> Psn {
        self.base
    }

    /// The newest PSN up to which everything is received, and its response received or the default
    /// one. It does not pass a response that waits to be cleared.
    pub(crate) fn cack(&self) -> Psn {
        let end = match self.stored().first() {
            // A response may lie beyond a hole.
            Some(stored) if stored.psn.is_before(self.base) => stored.psn,
            _ => self.base,
        };
        end.minus(1)
    }

    /// Where `psn` lies when the window is `window` packets.
    pub(crate) fn place(&self, psn: Psn, window: u16) -> Place {
        let distance = psn.distance(self.base);
        if distance < 0 {
            return if distance >= -PREVIOUS { Place::Duplicate } else { Place::Nonsense };
        }
        if psn.distance(self.cack()) > i32::from(window) {
            return if distance < PREVIOUS { Place::Ahead } else { Place::Nonsense };
        }
        match &self.bits {
            Some(bits) if self.ahead > 0 && bits.get(psn) => Place::Duplicate,
            _ => Place::New,
        }
    }

    /// The engine took a packet whose place was [`Place::New`]; `response` is kept until cleared.
    pub(crate) fn record(
        &mut self,
        now: Time,
        arrival: &Arrival,
        response: Option<Response>,
        config: &Config,
        pool: &mut Vec<Bitmap>,
    ) {
        let psn = arrival.psn;
        if psn == self.base {
            self.base = psn.plus(1);
            self.advance(pool);
        } else {
            let bits = self.bits.get_or_insert_with(|| pool.pop().unwrap_or_else(Bitmap::new));
            bits.set(psn);
            if self.ahead == 0 {
                self.due = true; // a hole opened
            }
            self.ahead += 1;
            self.touch(psn, psn);
            if arrival.ask && self.asked_behind.is_none_or(|asked| psn.is_after(asked)) {
                self.asked_behind = Some(psn);
            }
        }
        if !self.end.is_after(psn) {
            self.end = psn.plus(1);
        }
        if let Some(asked) = self.asked_behind
            && self.base.is_after(asked)
        {
            self.asked_behind = None;
            self.due = true; // the hole before it closed
        }
        self.gathered = self.gathered.saturating_add(arrival.bytes.max(config.ack_min_pkt));
        if arrival.ask || arrival.prompt || arrival.ce || self.gathered >= config.ack_after() {
            self.due = true;
        }
        if let Some(response) = response {
            let all = self.stored.get_or_insert_default();
            let at = all.partition_point(|stored| stored.psn.is_before(psn));
            all.insert(at, Stored { psn, response, due: true });
        } else {
            self.subject(now, psn, arrival.retx, arrival.ce);
        }
        self.ack_at = self.ack_at.min(now + config.ack_delay);
    }

    /// A packet whose place was [`Place::Duplicate`] arrived: say again what is known.
    pub(crate) fn again(&mut self, now: Time, psn: Psn, retx: bool) {
        let all = self.stored.as_deref_mut().map_or(&mut [][..], Vec::as_mut_slice);
        if let Ok(at) = all.binary_search_by(|stored| stored.psn.distance(psn).cmp(&0)) {
            all[at].due = true;
        } else {
            self.subject(now, psn, retx, false);
            if !psn.is_before(self.base) {
                self.touch(psn, psn);
            }
        }
        self.due = true;
    }

    /// A probe arrived: say all that is known at or after `from`.
    pub(crate) fn probed(&mut self, now: Time, opaque: u16, from: Psn) {
        self.probe = Some(opaque);
        self.newest_at = now;
        self.due = true;
        if self.ahead > 0 {
            let last = self.end.minus(1);
            let first =
                if from.is_after(self.base) && !from.is_after(last) { from } else { self.base };
            self.touch(first, last);
        }
    }

    /// The peer has every response up to `psn`.
    pub(crate) fn cleared(&mut self, psn: Psn) {
        if let Some(all) = &mut self.stored {
            all.retain(|stored| stored.psn.is_after(psn));
            if all.is_empty() {
                self.stored = None;
            }
        }
    }

    fn stored(&self) -> &[Stored] {
        self.stored.as_deref().map_or(&[], Vec::as_slice)
    }

    /// An acknowledgement is wanted although nothing arrived.
    pub(crate) fn say_so(&mut self) {
        self.due = true;
    }

    /// Nothing was ever received.
    pub(crate) fn untouched(&self) -> bool {
        self.base == self.newest && self.ahead == 0 && self.flow.received() == 0
    }

    /// Time passed.
    pub(crate) fn on_timer(&mut self, now: Time) {
        if self.ack_at <= now {
            self.due = true;
        }
    }

    /// When [`Rx::on_timer`] has something to do.
    pub(crate) const fn timer(&self) -> Time {
        if self.due { Time::NEVER } else { self.ack_at }
    }

    /// Whether [`Rx::next_ack`] has something to say.
    pub(crate) fn ack_due(&self) -> bool {
        self.due || self.stored().iter().any(|stored| stored.due)
    }

    /// Whether anything received was not yet acknowledged. A response that was not yet cleared does not
    /// count: whoever does not clear it has forgotten it, or has nothing to say until it closes.
    pub(crate) fn unsettled(&self) -> bool {
        self.ack_at != Time::NEVER
    }

    /// Whether the initiator should be asked to clear responses.
    pub(crate) const fn wants_clear(&self) -> bool {
        self.stored.is_some()
    }

    /// One past the newest PSN received.
    pub(crate) const fn end(&self) -> Psn {
        self.end
    }

    /// The bitmap, if there is one; nothing may be received any more.
    pub(crate) fn take_bits(&mut self) -> Option<Bitmap> {
        self.bits.take()
    }

    /// Packets received out of order.
    pub(crate) const fn ahead(&self) -> u16 {
        self.ahead
    }

    /// The next ACK of this round, if any: those with a response first, then one that describes the
    /// newest packet and the newest holes, then as many as it takes to describe a wide window.
    pub(crate) fn next_ack(&mut self, now: Time, config: &Config) -> Option<AckBody> {
        if let Some(stored) = self.next_response() {
            let Stored { psn, response, .. } = stored;
            let sack_base = self.cack().plus(1);
            return Some(AckBody {
                cack: self.cack(),
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
        if !self.due {
            self.settle_if_silent();
            return None;
        }
        let cack = self.cack();
        // A probe is answered whole: its sender lost count.
        let sack_base = if config.acks.lowest_segment && self.probe.is_none() {
            self.lowest_segment(cack)
        } else {
            self.next_window(cack)
        };
        let fresh = core::mem::replace(&mut self.fresh, false);
        let sampled = fresh || self.probe.is_some();
        let ack = AckBody {
            cack,
            ack_psn: if fresh { self.newest } else { cack },
            probe: self.probe,
            sack_base,
            bitmap: self.sack(sack_base),
            service_time: if sampled { service_time(now.since(self.newest_at)) } else { 0 },
            ce: core::mem::replace(&mut self.ce, false),
            retx: fresh && self.newest_retx,
            response: None,
        };
        if self.dirty.is_none() {
            self.due = false;
            self.probe = None;
            self.gathered = 0;
            self.ack_at = Time::NEVER;
        }
        Some(ack)
    }

    /// The next response to send.
    fn next_response(&mut self) -> Option<Stored> {
        let stored = self.stored.as_deref_mut()?.iter_mut().find(|stored| stored.due)?;
        stored.due = false;
        Some(*stored)
    }

    /// Only responses were to be said, and they were.
    fn settle_if_silent(&mut self) {
        if !self.fresh && self.dirty.is_none() {
            self.gathered = 0;
            self.ack_at = Time::NEVER;
        }
    }

    /// Where the next SACK window begins; takes what it describes off the dirty range. A window that
    /// holds the whole range reaches as far back as it can, so that a lost ACK is made good.
    fn next_window(&mut self, cack: Psn) -> Psn {
        let floor = cack.plus(1);
        let Some((low, high)) = self.dirty.take() else { return floor };
        if high.is_before(floor) {
            return floor;
        }
        let low = if low.is_before(floor) { floor } else { low };
        if high.distance(low) < 64 {
            let back = high.minus(63);
            return if back.is_before(floor) { floor } else { back };
        }
        self.dirty = Some((low.plus(64), high));
        low
    }

    /// STrack section 3.3.1: the bitmap from the expected PSN on is cut into segments of what a SACK
    /// holds, and the one is shown in which the lowest packet lies that arrived since the last SACK: the
    /// sender's timer runs from the lowest packet not acknowledged. One SACK at a time; segments follow
    /// each other as packets come.
    fn lowest_segment(&mut self, cack: Psn) -> Psn {
        let expected = cack.plus(1);
        let Some((lowest, _)) = self.dirty.take() else { return expected };
        match u32::try_from(lowest.distance(expected)) {
            Ok(ahead) => expected.plus(ahead / 64 * 64),
            Err(_) => expected,
        }
    }

    /// What arrived of the 64 packets from `from` on; bits beyond the window are clear. A packet whose response is not cleared is not
    /// shown: its arrival is told by the ACK that carries the response, and by nothing else.
    fn sack(&self, from: Psn) -> u64 {
        let below = self.base.distance(from);
        let mut map = ones(below);
        if let (Some(bits), 1..) = (&self.bits, self.ahead)
            && below < 64
        {
            map |= if below > 0 { bits.window(self.base) << below } else { bits.window(from) };
        }
        for stored in self.stored() {
            let at = stored.psn.distance(from);
            if (0..64).contains(&at) {
                map &= !(1 << at);
            }
        }
        map
    }

    /// `base` moved by one; go on over what arrived earlier.
    fn advance(&mut self, pool: &mut Vec<Bitmap>) {
        if let Some(bits) = &mut self.bits {
            while self.ahead > 0 && bits.take(self.base) {
                self.ahead -= 1;
                self.base = self.base.plus(1);
            }
            if self.ahead == 0 {
                pool.extend(self.bits.take());
                self.dirty = None;
            }
        }
    }

    /// The ACK to come is about `psn`; of several, about the newest, or the newest marked.
    fn subject(&mut self, now: Time, psn: Psn, retx: bool, ce: bool) {
        if self.fresh && self.ce && !ce {
            return;
        }
        self.fresh = true;
        self.ce |= ce;
        self.newest = psn;
        self.newest_at = now;
        self.newest_retx = retx;
    }

    fn touch(&mut self, first: Psn, last: Psn) {
        self.dirty = Some(match self.dirty {
            None => (first, last),
            Some((low, high)) => (
                if first.is_before(low) { first } else { low },
                if last.is_after(high) { last } else { high },
            ),
        });
    }
}

/// The lowest `n` of 64 bits.
const fn ones(n: i32) -> u64 {
    match n {
        ..=0 => 0,
        1..64 => (1 << n) - 1,
        _ => u64::MAX,
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
