//! Responses that the initiator must not miss (guaranteed delivery), until they are cleared.

use crate::base::Psn;
use crate::wire::Response;

/// A response that the peer has not cleared yet.
#[derive(Clone, Copy, Debug)]
struct StoredResponse {
    psn: Psn,
    response: Response,
    /// To be sent, for the first time or again.
    due: bool,
}

/// The responses that the peer has not cleared yet, by PSN. Most contexts have none.
#[derive(Debug, Default)]
pub(super) struct ResponseStore {
    #[allow(clippy::box_collection)]
    // a third of the size, for something that is hardly ever there
    stored: Option<Box<Vec<StoredResponse>>>,
}

impl ResponseStore {
    #[inline]
    fn all(&self) -> &[StoredResponse] {
        self.stored.as_deref().map_or(&[], Vec::as_slice)
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.stored.is_none()
    }

    /// The packet with the oldest one.
    #[inline]
    pub(super) fn oldest(&self) -> Option<Psn> {
        self.all().first().map(|stored| stored.psn)
    }

    /// Keeps the response to packet `psn`, and sends it.
    pub(super) fn add(&mut self, psn: Psn, response: Response) {
        let all = self.stored.get_or_insert_default();
        let at = all.partition_point(|stored| stored.psn.is_before(psn));
        all.insert(at, StoredResponse { psn, response, due: true });
    }

    /// Sends the response to packet `psn` again; `false` if none is kept.
    #[inline]
    pub(super) fn send_again(&mut self, psn: Psn) -> bool {
        let all = self.stored.as_deref_mut().map_or(&mut [][..], Vec::as_mut_slice);
        let found = all.binary_search_by(|stored| stored.psn.distance(psn).cmp(&0));
        if let Ok(at) = found {
            all[at].due = true;
        }
        found.is_ok()
    }

    /// The peer has every response up to `psn`.
    #[inline]
    pub(super) fn clear(&mut self, psn: Psn) {
        if let Some(all) = &mut self.stored {
            all.retain(|stored| stored.psn.is_after(psn));
            if all.is_empty() {
                self.stored = None;
            }
        }
    }

    /// Whether one is to be sent.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.all().iter().any(|stored| stored.due)
    }

    /// The next one to send, and its packet.
    #[inline]
    pub(super) fn take_due(&mut self) -> Option<(Psn, Response)> {
        let stored = self.stored.as_deref_mut()?.iter_mut().find(|stored| stored.due)?;
        stored.due = false;
        Some((stored.psn, stored.response))
    }

    /// Clears the bits of their packets in a SACK bitmap that begins at `from`: that such a packet arrived
    /// is reported by the ACK that carries the response, and by nothing else.
    #[inline]
    pub(super) fn hide(&self, from: Psn, mut map: u64) -> u64 {
        for stored in self.all() {
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
        let mut all = ResponseStore::default();
        for psn in [5, 3, 4] {
            all.add(Psn(psn), response(psn as u16));
        }
        assert_eq!(all.oldest(), Some(Psn(3)));
        let mut sent = || all.take_due().map(|(psn, response)| (psn.0, response.message_id));
        assert_eq!(
            [sent(), sent(), sent(), sent()],
            [Some((3, 3)), Some((4, 4)), Some((5, 5)), None]
        );
        assert!(all.send_again(Psn(4)) && !all.send_again(Psn(6)) && all.is_due());
        assert_eq!(all.take_due().map(|(psn, _)| psn), Some(Psn(4)));
        assert_eq!(all.hide(Psn(2), u64::MAX), !0b1110);
        all.clear(Psn(4));
        assert_eq!((all.oldest(), all.is_empty()), (Some(Psn(5)), false));
        all.clear(Psn(9));
        assert!(all.is_empty());
    }
}
