//! Runs: the packets of which a long message is mostly made.

use crate::base::Psn;
use crate::pds::{Dest, Request, flag};
use crate::ses::{EOM, Extension, ResponseData, Ses, StdBody, StdRequest};
use crate::{Opcode, ReturnCode};

/// Bytes of the longer kind of header.
const LONG: usize = Request::LEN + StdRequest::LEN;
/// Bytes of the shorter kind.
const SHORT: usize = Request::LEN + ResponseData::LEN;

/// The headers of packets that follow one another in a message: to one context, each with the next PSN and as
/// many bytes of payload as the one before, behind the bytes of that; none is the last of its message, asks for
/// an acknowledgement, was sent before, or carries what congestion control says. Such headers differ in three
/// fields, so a sender writes them from one template, and a receiver that has checked one packet compares the next
/// with what it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Of the next packet; a shorter header is followed by zeros.
    headers: [u8; LONG],
    is_long: bool,
    psn: Psn,
    clear: Psn,
    offset: u32,
    /// Bytes of each payload.
    payload: u32,
    /// Where in its message the last payload must end, at the latest.
    end: u32,
}

impl Run {
    /// What follows a packet with these headers and `payload` bytes. `None` when nothing can, or something
    /// that is not as simple: a message's first bytes that are all of it, an operation with an extension header.
    #[must_use]
    pub fn after(pds: &Request, ses: &Ses, payload: usize) -> Option<Self> {
        if pds.ccc.is_some() || !matches!(pds.dest, Dest::Pdc(_)) {
            return None;
        }
        let payload = u16::try_from(payload).ok().filter(|&len| len > 0)?;
        let len = u32::from(payload);
        let mut headers = [0; LONG];
        let template = Request { retx: false, ack_request: false, ..*pds };
        let (upper, offset, end) = match ses {
            Ses::Std(ses) => {
                let simple =
                    matches!(ses.opcode, Opcode::Send | Opcode::TaggedSend | Opcode::Write)
                        && ses.extension == Extension::None
                        && !ses.eom
                        && payload <= StdRequest::MAX_NEXT_PAYLOAD;
                if !simple {
                    return None;
                }
                let offset = ses.message_offset().checked_add(len)?;
                let body = StdBody::Next { payload_length: payload, message_offset: offset };
                let ses = StdRequest { som: false, body, ..*ses };
                // The last bytes of a message come in a packet that says so.
                (Ses::Std(ses), offset, ses.request_length.checked_sub(1)?)
            }
            Ses::ResponseData(ses) => {
                if ses.return_code != ReturnCode::Ok || payload > ResponseData::MAX_PAYLOAD {
                    return None;
                }
                let offset = ses.message_offset.checked_add(len)?;
                let ses = ResponseData { payload_length: payload, message_offset: offset, ..*ses };
                (Ses::ResponseData(ses), offset, ses.modified_length)
            }
            _ => return None,
        };
        let at = template.emit(&mut headers);
        upper.emit(&mut headers[at..]);
        let mut run = Self {
            headers,
            is_long: matches!(upper, Ses::Std(_)),
            psn: pds.psn,
            clear: pds.clear_psn(),
            offset,
            payload: len,
            end,
        };
        run.number(pds.psn.plus(1));
        Some(run)
    }

    /// The PSN of the next packet.
    #[must_use]
    #[inline]
    pub const fn psn(&self) -> Psn {
        self.psn
    }

    /// Where in the message its payload belongs.
    #[must_use]
    #[inline]
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// Bytes of each packet's headers.
    #[must_use]
    #[inline]
    pub const fn headers_len(&self) -> usize {
        if self.is_long { LONG } else { SHORT }
    }

    /// How many packets can follow each other before the one that ends the message, or whose header would not
    /// hold what it must.
    #[must_use]
    pub fn most(&self) -> u32 {
        // A bound on PSNs ahead of what is cleared: their distance has 16 bits, and a sign.
        let ahead = u32::try_from(self.psn.distance(self.clear)).unwrap_or(u32::MAX);
        let numbers = (i16::MAX as u32).saturating_sub(ahead);
        (self.end.saturating_sub(self.offset) / self.payload).min(numbers)
    }

    /// The next packet's headers. At most [`Run::most`] can be had.
    #[must_use]
    #[inline]
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len()]
    }

    /// Whether `packet` is the next one, whole. At most [`Run::most`] are asked for.
    #[must_use]
    #[inline]
    pub fn is_next(&self, packet: &[u8]) -> bool {
        if self.is_long {
            packet.len() == LONG + self.payload as usize
                && packet.first_chunk::<LONG>() == Some(&self.headers)
        } else {
            packet.len() == SHORT + self.payload as usize
                && packet.first_chunk::<SHORT>() == self.headers.first_chunk::<SHORT>()
        }
    }

    /// Whether `packet` ends the message where the next one would be: with all bytes that are left, and EOM; whether it asks
    /// for an acknowledgement, which ends do. `None` when it does not, or more is left than packets of a run hold.
    #[must_use]
    #[inline]
    pub fn ends_with(&self, packet: &[u8]) -> Option<bool> {
        // What `end` leaves is for the last packet.
        let left = self.end.checked_sub(self.offset)? + 1;
        let found = packet.first_chunk::<LONG>()?;
        let fits = self.is_long && left <= self.payload && packet.len() == LONG + left as usize;
        let mut headers = self.headers;
        let asks = found[1] & flag::AR;
        headers[1] |= asks;
        let [.., high, low] = left.to_be_bytes();
        let ses = &mut headers[Request::LEN..];
        ses[1] |= EOM;
        (ses[34], ses[35]) = (high, low);
        (fits && *found == headers).then_some(asks != 0)
    }

    /// Goes on to the packet after the next.
    #[inline]
    pub fn advance(&mut self) {
        self.offset += self.payload;
        let at = if self.is_long { LONG - 8 } else { SHORT - 4 };
        self.headers[at..at + 4].copy_from_slice(&self.offset.to_be_bytes());
        self.number(self.psn.plus(1));
    }

    #[inline]
    fn number(&mut self, psn: Psn) {
        self.psn = psn;
        // `most` leaves no more than the field holds.
        let clear = i16::try_from(self.clear.distance(psn)).unwrap_or(i16::MIN);
        self.headers[2..4].copy_from_slice(&clear.to_be_bytes());
        self.headers[4..8].copy_from_slice(&psn.0.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::{List, NextHeader};
    use crate::pds::Mode;
    use crate::{Packet, parse};
    use std::vec::Vec;

    fn pds(next: NextHeader) -> Request {
        Request {
            mode: Mode::Rud,
            next,
            retx: true,
            ack_request: true,
            clear_psn_offset: -3,
            psn: Psn(u32::MAX),
            spdcid: 7,
            dest: Dest::Pdc(9),
            ccc: None,
        }
    }

    fn message(offset: u32, len: u16) -> StdRequest {
        let first = StdBody::First { header_data: 0x0102_0304_0506_0708 };
        let next = StdBody::Next { payload_length: len, message_offset: offset };
        StdRequest {
            opcode: Opcode::TaggedSend,
            delivery_complete: true,
            initiator_error: false,
            relative: false,
            header_data_present: true,
            eom: false,
            som: offset == 0,
            message_id: 77,
            ri_generation: 0,
            job_id: 5,
            pid_on_fep: 6,
            resource_index: 0,
            buffer_offset: 3,
            initiator: 99,
            match_bits: 0xabcd,
            body: if offset == 0 { first } else { next },
            request_length: 4000,
            extension: Extension::None,
        }
    }

    fn answer(offset: u32) -> ResponseData {
        ResponseData {
            list: List::Expected,
            return_code: ReturnCode::Ok,
            response_message_id: 3,
            job_id: 5,
            read_request_message_id: 8,
            payload_length: 1000,
            modified_length: 4000,
            message_offset: offset,
        }
    }

    /// The packets that follow, as they would be written one by one.
    fn written(pds: &Request, ses: impl Fn(u32) -> Ses, count: u32) -> Vec<Vec<u8>> {
        let one = |n: u32| {
            let pds = Request {
                retx: false,
                ack_request: false,
                psn: pds.psn.plus(n),
                clear_psn_offset: pds.clear_psn_offset - n as i16,
                ..*pds
            };
            let packet = Packet::Request { pds, ses: ses(1000 * n), payload: &[n as u8; 1000] };
            let mut bytes = std::vec![0; packet.len()];
            packet.emit(&mut bytes);
            bytes
        };
        (1..=count).map(one).collect()
    }

    fn follow(mut run: Run, expected: &[Vec<u8>]) {
        for packet in expected {
            assert_eq!(run.headers(), &packet[..run.headers_len()]);
            assert!(run.is_next(packet) && parse(packet).is_ok());
            // Any other header, and any other length, is another packet.
            for at in 0..run.headers_len() {
                let mut other = packet.clone();
                other[at] ^= 1;
                assert!(!run.is_next(&other), "byte {at}");
            }
            assert!(!run.is_next(&packet[..packet.len() - 1]) && !run.is_next(&[]));
            run.advance();
        }
    }

    #[test]
    fn what_follows_is_what_would_be_written() {
        let to = pds(NextHeader::RequestStd);
        let run = Run::after(&to, &Ses::Std(message(0, 1000)), 1000).expect("a run");
        assert_eq!((run.psn(), run.offset(), run.most()), (Psn(0), 1000, 2));
        follow(run, &written(&to, |offset| Ses::Std(message(offset, 1000)), 2));
        let run = Run::after(&to, &Ses::Std(message(1000, 1000)), 1000).expect("a run");
        assert_eq!((run.offset(), run.most()), (2000, 1), "the last packet says that it is");
        let back = pds(NextHeader::ResponseData);
        let run = Run::after(&back, &Ses::ResponseData(answer(0)), 1000).expect("a run");
        assert_eq!((run.headers_len(), run.most()), (32, 3));
        follow(run, &written(&back, |offset| Ses::ResponseData(answer(offset)), 3));
    }

    #[test]
    fn the_last_packet_is_what_would_be_written() {
        let to = pds(NextHeader::RequestStd);
        for (left, ask) in [(1, false), (700, true), (1000, false)] {
            let length = 2000 + u32::from(left);
            let message = StdRequest { request_length: length, ..message(0, 1000) };
            let mut run = Run::after(&to, &Ses::Std(message), 1000).expect("a run");
            let body = StdBody::Next { payload_length: left, message_offset: 2000 };
            let pds = Request {
                retx: false,
                ack_request: ask,
                psn: to.psn.plus(2),
                clear_psn_offset: to.clear_psn_offset - 2,
                ..to
            };
            let ses = Ses::Std(StdRequest { som: false, eom: true, body, ..message });
            let payload = std::vec![9; left.into()];
            let packet = Packet::Request { pds, ses, payload: &payload };
            let mut bytes = std::vec![0; packet.len()];
            packet.emit(&mut bytes);
            assert_eq!(run.ends_with(&bytes), None, "it comes after the next");
            run.advance();
            assert_eq!(run.ends_with(&bytes), Some(ask));
            for at in 0..LONG {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[at] ^= 1 << bit;
                    let asks = at == 1 && 1 << bit == flag::AR;
                    assert_eq!(run.ends_with(&other), asks.then_some(!ask), "bit {bit} of {at}");
                }
            }
            assert_eq!(run.ends_with(&bytes[..bytes.len() - 1]), None);
            bytes.push(0);
            assert_eq!(run.ends_with(&bytes), None);
        }
        // An answer to a read does not say where it ends.
        let back = pds(NextHeader::ResponseData);
        let run = Run::after(&back, &Ses::ResponseData(answer(0)), 1000).expect("a run");
        assert_eq!(run.ends_with(&[0; 1032]), None);
    }

    #[test]
    fn what_is_not_simple_is_no_run() {
        let to = pds(NextHeader::RequestStd);
        let none =
            |pds: Request, ses: StdRequest, len| Run::after(&pds, &Ses::Std(ses), len).is_none();
        let plain = message(0, 1000);
        assert!(!none(to, plain, 1000));
        assert!(none(to, StdRequest { eom: true, ..plain }, 1000));
        assert!(none(to, StdRequest { opcode: Opcode::RendezvousSend, ..plain }, 1000));
        assert!(none(to, plain, 0) && none(to, plain, 16_384));
        let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
        assert!(none(Request { dest: syn, ..to }, plain, 1000));
        let refused = ResponseData { return_code: ReturnCode::BadMkey, ..answer(0) };
        assert!(Run::after(&to, &Ses::ResponseData(refused), 1000).is_none());
        // Numbers too far from what is cleared do not fit.
        let far = Request { clear_psn_offset: i16::MIN + 2, ..to };
        assert_eq!(Run::after(&far, &Ses::Std(plain), 1).map(|run| run.most()), Some(0));
    }
}
