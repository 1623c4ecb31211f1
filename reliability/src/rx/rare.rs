//! The parts of a receiving half that most contexts never need: responses that the initiator must not miss (guaranteed
//! delivery), fragments, credit that the peer asks for, and telemetry to send back.

use std::collections::VecDeque;

use crate::base::Psn;
use crate::cc::{self, Hops};
use crate::pdcs::Originals;
use crate::wire::Response;

/// A guaranteed response, kept until the peer confirms that it arrived (clears it).
#[derive(Clone, Copy, Debug)]
struct StoredResponse {
    psn: Psn,
    response: Response,
    /// The response must be sent in the next ACK, for the first time or again.
    due: bool,
}

/// The rarely needed parts of a receiving half, in a box that is allocated when one of them is
/// first needed.
#[derive(Debug, Default)]
struct Parts {
    /// The guaranteed responses that the peer has not cleared yet, by PSN.
    responses: Vec<StoredResponse>,
    /// The default responses that the next ACKs carry, where ACKs carry one: that of the newest packet
    /// of each message.
    answers: VecDeque<(Psn, Response)>,
    /// The default response that was sent last, and the PSN of its packet.
    last_answer: Option<(Psn, Response)>,
    /// The missing packet of a context of ordered delivery about which the peer was last informed.
    reported_gap: Option<Psn>,
    /// The packets of the peer that arrive as fragments, and the fragments still missing.
    originals: Originals,
    /// Total credit that the peer wants since the context opened, as far as known, in nominal
    /// bytes.
    demanded: u64,
    /// The records that switches wrote into the packet that arrived last, where the next ACK sends them back.
    telemetry: Option<Box<Hops>>,
}

/// The parts of a receiving half that most contexts never need. It is one pointer, because an idle
/// context must stay small.
#[derive(Debug, Default)]
pub(crate) struct RareRx(Option<Box<Parts>>);

impl RareRx {
    /// Returns the packets of the peer that arrive as fragments.
    pub(crate) fn originals_mut(&mut self) -> &mut Originals {
        &mut self.0.get_or_insert_default().originals
    }

    /// Returns the credit in bytes that the peer asks for in all; `units` are the low bits of that
    /// sum on the wire.
    pub(crate) fn on_demand(&mut self, units: u32) -> u64 {
        let parts = self.0.get_or_insert_default();
        let demanded = cc::credit_bytes(parts.demanded, units);
        parts.demanded = parts.demanded.max(demanded);
        demanded
    }

    /// Returns the telemetry of the packet that the next ACK will be about, to be echoed.
    pub(crate) fn telemetry(&self) -> &Hops {
        self.0.as_ref().and_then(|parts| parts.telemetry.as_deref()).unwrap_or_default()
    }

    /// Keeps the telemetry of a packet that arrived, to be echoed by its ACK.
    pub(crate) fn keep_telemetry(&mut self, hops: &Hops) {
        **self.0.get_or_insert_default().telemetry.get_or_insert_default() = *hops;
    }

    #[inline]
    fn responses(&self) -> &[StoredResponse] {
        self.0.as_ref().map_or(&[], |parts| &parts.responses)
    }

    #[inline]
    fn responses_mut(&mut self) -> &mut [StoredResponse] {
        self.0.as_mut().map_or(&mut [], |parts| &mut parts.responses)
    }

    /// Returns whether no guaranteed response waits to be cleared by the peer.
    #[inline]
    pub(super) fn has_no_responses(&self) -> bool {
        self.responses().is_empty()
    }

    /// Returns the PSN of the oldest packet whose guaranteed response is kept.
    #[inline]
    pub(super) fn oldest_response(&self) -> Option<Psn> {
        self.responses().first().map(|stored| stored.psn)
    }

    /// Records that packet `psn` of an ordered context is missing. Returns whether the peer was not
    /// informed of it before. If the report is lost, the peer's timer recovers.
    pub(crate) fn reports_gap(&mut self, psn: Psn) -> bool {
        self.0.get_or_insert_default().reported_gap.replace(psn) != Some(psn)
    }

    /// Keeps the default response to packet `psn` for the next ACK. It replaces that of an earlier
    /// packet of the same message.
    pub(super) fn add_answer(&mut self, psn: Psn, response: Response) {
        let all = &mut self.0.get_or_insert_default().answers;
        match all.iter_mut().find(|(_, other)| other.message_id == response.message_id) {
            Some(answer) if psn.is_before(answer.0) => {}
            Some(answer) => *answer = (psn, response),
            None => all.push_back((psn, response)),
        }
    }

    /// Returns the next default response to send, and the PSN of its packet.
    pub(super) fn take_answer(&mut self) -> Option<(Psn, Response)> {
        let parts = self.0.as_mut()?;
        let answer = parts.answers.pop_front()?;
        parts.last_answer = Some(answer);
        Some(answer)
    }

    /// Makes the next ACK carry the last default response again, if no other one waits.
    pub(super) fn repeat_answer(&mut self) {
        if let Some(parts) = &mut self.0
            && parts.answers.is_empty()
        {
            parts.answers.extend(parts.last_answer);
        }
    }

    /// Returns whether default responses wait for an ACK that carries them.
    pub(super) fn has_answers(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| !parts.answers.is_empty())
    }

    /// Returns whether a guaranteed response to packet `psn` is kept.
    pub(super) fn keeps_response(&self, psn: Psn) -> bool {
        self.responses().iter().any(|stored| stored.psn == psn)
    }

    /// Keeps the guaranteed response to packet `psn`, and makes it due to be sent.
    pub(super) fn add_response(&mut self, psn: Psn, response: Response) {
        let all = &mut self.0.get_or_insert_default().responses;
        let at = all.partition_point(|stored| stored.psn.is_before(psn));
        all.insert(at, StoredResponse { psn, response, due: true });
    }

    /// Makes the guaranteed response to packet `psn` due again; `false` if none is kept.
    #[inline]
    pub(super) fn resend_response(&mut self, psn: Psn) -> bool {
        let all = self.responses_mut();
        let found = all.binary_search_by(|stored| stored.psn.distance(psn).cmp(&0));
        if let Ok(at) = found {
            all[at].due = true;
        }
        found.is_ok()
    }

    /// Discards every guaranteed response up to `psn`, which the peer has.
    #[inline]
    pub(super) fn clear_responses(&mut self, psn: Psn) {
        if let Some(parts) = &mut self.0 {
            parts.responses.retain(|stored| stored.psn.is_after(psn));
        }
    }

    /// Returns whether a guaranteed response must be sent, for the first time or again.
    #[inline]
    pub(super) fn is_response_due(&self) -> bool {
        self.responses().iter().any(|stored| stored.due)
    }

    /// Returns the next guaranteed response to send, and the PSN of its packet.
    #[inline]
    pub(super) fn take_due_response(&mut self) -> Option<(Psn, Response)> {
        let stored = self.responses_mut().iter_mut().find(|stored| stored.due)?;
        stored.due = false;
        Some((stored.psn, stored.response))
    }

    /// Clears the bits of packets whose response is kept in a SACK bitmap that begins at `from`.
    /// Only the ACK that carries the response acknowledges such a packet.
    #[inline]
    pub(super) fn hide_responses(&self, from: Psn, mut map: u64) -> u64 {
        for stored in self.responses() {
            let at = stored.psn.distance(from);
            if (0..64).contains(&at) {
                map &= !(1 << at);
            }
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{List, ResponseOpcode, ReturnCode};

    fn response(id: u16) -> Response {
        Response {
            list: List::Expected,
            opcode: ResponseOpcode::Response,
            return_code: ReturnCode::Ok,
            message_id: id,
            ri_generation: 0,
            job_id: 0,
            modified_length: 0,
        }
    }

    #[test]
    fn responses_are_sent_in_order_and_kept_until_cleared() {
        let mut all = RareRx::default();
        for psn in [5, 3, 4] {
            all.add_response(Psn(psn), response(psn as u16));
        }
        assert_eq!(all.oldest_response(), Some(Psn(3)));
        let mut sent =
            || all.take_due_response().map(|(psn, response)| (psn.0, response.message_id));
        assert_eq!(
            [sent(), sent(), sent(), sent()],
            [Some((3, 3)), Some((4, 4)), Some((5, 5)), None]
        );
        assert!(
            all.resend_response(Psn(4)) && !all.resend_response(Psn(6)) && all.is_response_due()
        );
        assert_eq!(all.take_due_response().map(|(psn, _)| psn), Some(Psn(4)));
        assert_eq!(all.hide_responses(Psn(2), u64::MAX), !0b1110);
        all.clear_responses(Psn(4));
        assert_eq!((all.oldest_response(), all.has_no_responses()), (Some(Psn(5)), false));
        all.clear_responses(Psn(9));
        assert!(all.has_no_responses());
    }
}
