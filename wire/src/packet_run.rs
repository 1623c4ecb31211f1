//! Packet runs. A *packet run* is a sequence of consecutive packets of one message on one context
//! that have payloads of one length, and headers that differ in three fields only: the PSN, the
//! distance to the cleared PSN, and the offset in the message. The packet behind a run is its *end*
//! if it completes the message or asks for an acknowledgement; it may be shorter.

use crate::base::Psn;
use crate::codes::NextHeader;
use crate::pds::{Dest, Request, flag};
use crate::ses::{EOM, ResponseData, ResponseDataView, SOM, StdRequest, StdView};
use crate::{Opcode, ReturnCode};

/// Length of the PDS header and a request's SES header together, in bytes.
const LONG: usize = Request::LEN + StdRequest::LEN;
/// Length of the PDS header and a response's SES header together, in bytes.
const SHORT: usize = Request::LEN + ResponseData::LEN;
// They are compared by words.
const _: () = assert!(LONG.is_multiple_of(8) && SHORT.is_multiple_of(8));

/// The headers of a packet run. Each packet has the next PSN, and its payload is at the next offset.
/// None of them is the last of its message, asks for an acknowledgement, is a retransmission or
/// carries congestion-control state. [`PacketRun::end_message`] and [`PacketRun::request_ack`] change
/// the next packet into the end of the run.
///
/// A sender writes the headers from one template. A receiver that has checked one packet compares
/// the headers of the next with the expected bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRun {
    /// Headers of the next packet; zeros follow a shorter header.
    headers: [u8; LONG],
    is_long: bool,
    psn: Psn,
    clear: Psn,
    offset: u32,
    /// Length of each packet's payload in bytes.
    payload: u32,
    /// Largest offset in the message at which the last packet's payload may end.
    end: u32,
}

impl PacketRun {
    /// Returns the run that follows a packet with these `headers`, which obey their rules and begin
    /// with `pds`, and `payload` bytes. Returns `None` if no packet can follow, as after a message
    /// of one packet, or if the next headers differ in more than the three fields, as those of an
    /// operation with an extension header.
    #[must_use]
    #[inline]
    pub fn after(headers: &[u8], pds: &Request, payload: usize) -> Option<Self> {
        let payload = u16::try_from(payload).ok().filter(|&len| len > 0)?;
        let run = match pds.next {
            NextHeader::RequestStd => Self::from_request(headers.try_into().ok()?, payload),
            NextHeader::ResponseData => Self::from_response(headers.try_into().ok()?, payload),
            _ => None,
        };
        let mut run = run.filter(|_| pds.ccc.is_none() && matches!(pds.dest, Dest::Pdc(_)))?;
        run.headers[1] &= !(flag::RETX | flag::AR);
        run.clear = pds.clear_psn();
        run.offset = run.offset.checked_add(run.payload)?;
        run.write_offset();
        run.write_psn(pds.psn.plus(1));
        Some(run)
    }

    /// Returns a run positioned at the request with these headers, not behind it.
    #[inline]
    fn from_request(headers: [u8; LONG], payload: u16) -> Option<Self> {
        let ses = StdView::new(&headers[Request::LEN..]).ok()?;
        let of_packets = [Opcode::Send, Opcode::TaggedSend, Opcode::Write].map(Opcode::to_u8);
        let simple = of_packets.contains(&ses.opcode())
            && ses.flags() & EOM == 0
            && payload <= StdRequest::MAX_NEXT_PAYLOAD;
        if !simple {
            return None;
        }
        let offset = if ses.flags() & SOM != 0 { 0 } else { ses.message_offset() };
        // The last bytes of a message travel in a packet with EOM, which is not part of the run.
        let end = ses.request_length().checked_sub(1)?;
        let mut run =
            Self { headers, is_long: true, ..Self::without_headers(offset, payload, end) };
        let ses = &mut run.headers[Request::LEN..];
        ses[1] &= !SOM;
        ses[32..36].copy_from_slice(&run.payload.to_be_bytes());
        Some(run)
    }

    /// Returns a run positioned at the response with these headers, not behind it.
    #[inline]
    fn from_response(headers: [u8; SHORT], payload: u16) -> Option<Self> {
        let ses = ResponseDataView::new(&headers[Request::LEN..]).ok()?;
        if ses.return_code() != ReturnCode::Ok.to_u8() || payload > ResponseData::MAX_PAYLOAD {
            return None;
        }
        let mut run = Self::without_headers(ses.message_offset(), payload, ses.modified_length());
        run.headers[..SHORT].copy_from_slice(&headers);
        Some(run)
    }

    /// Returns a run whose headers are still to be filled in.
    #[inline]
    fn without_headers(offset: u32, payload: u16, end: u32) -> Self {
        let (psn, payload) = (Psn(0), payload.into());
        Self { headers: [0; LONG], is_long: false, psn, clear: psn, offset, payload, end }
    }

    /// Returns the PSN of the run's next packet.
    #[must_use]
    #[inline]
    pub const fn psn(&self) -> Psn {
        self.psn
    }

    /// Returns the offset in the message at which the next packet's payload begins.
    #[must_use]
    #[inline]
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the length of the PDS and SES headers of each packet in bytes.
    #[must_use]
    #[inline]
    pub const fn headers_len(&self) -> usize {
        if self.is_long { LONG } else { SHORT }
    }

    /// Returns the number of packets that can follow before the one that ends the message, or whose
    /// header fields would overflow.
    #[must_use]
    pub fn max_packets(&self) -> u32 {
        // Bounds the PSNs ahead of the cleared one, because their distance is a signed 16-bit
        // field.
        let ahead = u32::try_from(self.psn.distance(self.clear)).unwrap_or(u32::MAX);
        let numbers = (i16::MAX as u32).saturating_sub(ahead);
        (self.end.saturating_sub(self.offset) / self.payload).min(numbers)
    }

    /// Returns the next packet's headers, for at most [`PacketRun::max_packets`] packets.
    #[must_use]
    #[inline]
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len()]
    }

    /// Hands the headers of the next `count` packets, at most [`PacketRun::max_packets`], to `write` one by one, and
    /// moves on behind them. Their length is a constant to `write`, so that a few instructions copy them.
    #[inline]
    pub fn write_next(&mut self, count: u16, mut write: impl FnMut(&[u8])) {
        for _ in 0..count {
            match self.headers.first_chunk::<SHORT>() {
                Some(short) if !self.is_long => write(short),
                _ => write(&self.headers),
            }
            self.advance();
        }
    }

    /// Returns whether `packet` is the complete next packet, for at most [`PacketRun::max_packets`]
    /// packets.
    #[must_use]
    #[inline]
    pub fn is_next(&self, packet: &[u8]) -> bool {
        if self.is_long {
            packet.len() == LONG + self.payload as usize
                && begin_alike::<LONG>(packet, &self.headers)
        } else {
            packet.len() == SHORT + self.payload as usize
                && begin_alike::<SHORT>(packet, &self.headers)
        }
    }

    /// Returns whether `packet`, in place of the next packet of the run, is the last of the
    /// message: `Some(true)` if that last packet asks for an acknowledgement, `Some(false)` if it
    /// does not. Returns `None` if it is not the last, or if the run is a response.
    #[must_use]
    #[inline]
    pub fn ends_with(mut self, packet: &[u8]) -> Option<bool> {
        let left = self.end_message().filter(|_| self.is_long)?;
        let found = packet.first_chunk::<LONG>()?;
        let asks = found[1] & flag::AR != 0;
        if asks {
            self.request_ack();
        }
        (packet.len() == LONG + left as usize && *found == self.headers).then_some(asks)
    }

    /// Moves the run on by one packet: the packet after the next becomes the next.
    #[inline]
    pub fn advance(&mut self) {
        // Behind the last packet of a message of nearly 4 GiB no offset fits. `max_packets` and
        // `end_message` leave no packet at the largest one.
        self.offset = self.offset.saturating_add(self.payload);
        self.write_offset();
        self.write_psn(self.psn.plus(1));
    }

    /// Makes the next packet ask for an acknowledgement; it is then the end of the run.
    #[inline]
    pub const fn request_ack(&mut self) {
        self.headers[1] |= flag::AR;
    }

    /// Makes the next packet the message's last and returns the length of its payload, at least one
    /// byte. Returns `None` if more bytes are left than a packet of the run holds.
    #[inline]
    pub fn end_message(&mut self) -> Option<u32> {
        let left = self.end.checked_sub(self.offset)? + u32::from(self.is_long);
        if left == 0 || left > self.payload {
            return None;
        }
        let [.., high, low] = left.to_be_bytes();
        let ses = &mut self.headers[Request::LEN..];
        if self.is_long {
            ses[1] |= EOM;
            (ses[34], ses[35]) = (high, low);
        } else {
            // Nothing marks the last packet of a response: the message length identifies it.
            (ses[10], ses[11]) = (high, low);
        }
        Some(left)
    }

    #[inline]
    fn write_offset(&mut self) {
        let offset = self.offset.to_be_bytes();
        if self.is_long {
            self.headers[LONG - 8..LONG - 4].copy_from_slice(&offset);
        } else {
            self.headers[SHORT - 4..SHORT].copy_from_slice(&offset);
        }
    }

    #[inline]
    fn write_psn(&mut self, psn: Psn) {
        self.psn = psn;
        // `max_packets` limits the distance to the range of the field.
        let clear = i16::try_from(self.clear.distance(psn)).unwrap_or(i16::MIN);
        self.headers[2..4].copy_from_slice(&clear.to_be_bytes());
        self.headers[4..8].copy_from_slice(&psn.0.to_be_bytes());
    }
}

/// Returns whether the first `N` bytes of `a` and `b` are the same; `N` is a multiple of 8. The
/// comparison of arrays would be a call, which takes longer than this.
#[inline]
fn begin_alike<const N: usize>(a: &[u8], b: &[u8]) -> bool {
    let (Some(a), Some(b)) = (a.first_chunk::<N>(), b.first_chunk::<N>()) else { return false };
    let (a, _) = a.as_chunks::<8>();
    let (b, _) = b.as_chunks::<8>();
    let pairs = a.iter().zip(b);
    pairs.fold(0, |all, (a, b)| all | u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::List;
    use crate::pds::Mode;
    use crate::ses::{Extension, Ses, StdBody};
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

    /// What follows a packet with these headers.
    fn after(pds: &Request, ses: &Ses, payload: usize) -> Option<PacketRun> {
        let mut headers = std::vec![0; pds.len() + ses.len()];
        let at = pds.emit(&mut headers);
        ses.emit(&mut headers[at..]);
        PacketRun::after(&headers, pds, payload)
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

    fn follow(mut run: PacketRun, expected: &[Vec<u8>]) {
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
        let run = after(&to, &Ses::Std(message(0, 1000)), 1000).expect("a run");
        assert_eq!((run.psn(), run.offset(), run.max_packets()), (Psn(0), 1000, 2));
        follow(run, &written(&to, |offset| Ses::Std(message(offset, 1000)), 2));
        let run = after(&to, &Ses::Std(message(1000, 1000)), 1000).expect("a run");
        assert_eq!((run.offset(), run.max_packets()), (2000, 1), "the last packet says that it is");
        let back = pds(NextHeader::ResponseData);
        let run = after(&back, &Ses::ResponseData(answer(0)), 1000).expect("a run");
        assert_eq!((run.headers_len(), run.max_packets()), (32, 3));
        follow(run, &written(&back, |offset| Ses::ResponseData(answer(offset)), 3));
    }

    #[test]
    fn the_last_packet_is_what_would_be_written() {
        let to = pds(NextHeader::RequestStd);
        for (left, ask) in [(1, false), (700, true), (1000, false)] {
            let length = 2000 + u32::from(left);
            let message = StdRequest { request_length: length, ..message(0, 1000) };
            let mut run = after(&to, &Ses::Std(message), 1000).expect("a run");
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
            let mut end = run;
            assert_eq!(end.end_message(), Some(left.into()));
            if ask {
                end.request_ack();
            }
            assert_eq!(end.headers(), &bytes[..LONG]);
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
        let back = pds(NextHeader::ResponseData);
        let whole = ResponseData { modified_length: 1700, ..answer(0) };
        let mut run = after(&back, &Ses::ResponseData(whole), 1000).expect("a run");
        let last =
            ResponseData { payload_length: 700, ..ResponseData { message_offset: 1000, ..whole } };
        let expected = written(&back, |_| Ses::ResponseData(last), 1).remove(0);
        assert_eq!(run.ends_with(&expected), None);
        assert_eq!(run.end_message(), Some(700));
        assert_eq!(run.headers(), &expected[..SHORT]);
    }

    #[test]
    fn nothing_follows_the_last_packet_of_the_longest_message() {
        let longest = StdRequest { request_length: u32::MAX, ..message(u32::MAX - 8500, 4000) };
        let run = after(&pds(NextHeader::RequestStd), &Ses::Std(longest), 4000);
        let mut run = run.expect("a run");
        assert_eq!((run.offset(), run.max_packets()), (u32::MAX - 4500, 1));
        run.advance();
        assert_eq!((run.max_packets(), run.end_message()), (0, Some(500)));
        run.advance();
        assert_eq!((run.max_packets(), run.end_message()), (0, None));
    }

    #[test]
    fn what_is_not_simple_is_no_run() {
        let to = pds(NextHeader::RequestStd);
        let none = |pds: Request, ses: StdRequest, len| after(&pds, &Ses::Std(ses), len).is_none();
        let plain = message(0, 1000);
        assert!(!none(to, plain, 1000));
        assert!(none(to, StdRequest { eom: true, ..plain }, 1000));
        assert!(none(to, StdRequest { opcode: Opcode::RendezvousSend, ..plain }, 1000));
        assert!(none(to, plain, 0) && none(to, plain, 16_384));
        let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
        assert!(none(Request { dest: syn, ..to }, plain, 1000));
        let refused = ResponseData { return_code: ReturnCode::BadMkey, ..answer(0) };
        assert!(after(&to, &Ses::ResponseData(refused), 1000).is_none());
        // Numbers too far from what is cleared do not fit.
        let far = Request { clear_psn_offset: i16::MIN + 2, ..to };
        assert_eq!(after(&far, &Ses::Std(plain), 1).map(|run| run.max_packets()), Some(0));
    }
}
