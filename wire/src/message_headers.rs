//! The headers of ordinary messages. An *ordinary message* is a SEND or TAGGED_SEND of one packet that
//! asks for nothing special: it has no remote CQ data and no extension header, and is not sent again.
//! The headers of two such messages of one context differ in a few numbers.

use crate::Opcode;
use crate::base::Psn;
use crate::codes::NextHeader;
use crate::pds::{Dest, Mode, Request, flag};
use crate::ses::{Extension, StdRequest};

/// Length of the PDS and the SES header together, in bytes.
const LEN: usize = Request::LEN + StdRequest::LEN;

/// The headers of the ordinary messages of a context, made from those of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHeaders {
    bytes: [u8; LEN],
    spdcid: u16,
    dpdcid: u16,
}

/// The numbers in which the headers of two ordinary messages of one context differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageNumbers {
    /// PSN of the message's packet.
    pub psn: Psn,
    /// Distance from the packet's PSN to the PSN up to which responses are cleared; never positive.
    pub clear_psn_offset: i16,
    /// The packet asks for its acknowledgement at once (flag AR).
    pub ack_request: bool,
    /// The message is tagged (TAGGED_SEND); otherwise it is a SEND.
    pub tagged: bool,
    /// Message id in the SES header.
    pub message_id: u16,
    /// Tag of the message, 0 if it is not tagged.
    pub tag: u64,
    /// Length of the whole message in bytes.
    pub len: u32,
}

impl MessageHeaders {
    /// Returns the headers of messages like the one with these `headers`, which obey their rules.
    /// Returns `None` if that message is not ordinary.
    #[must_use]
    pub fn of(headers: &[u8]) -> Option<Self> {
        let bytes: [u8; LEN] = headers.try_into().ok()?;
        let pds = Request::read(&bytes[..Request::LEN]).ok()?;
        let ses = StdRequest::read(&bytes[Request::LEN..]).ok()?;
        let Dest::Pdc(dpdcid) = pds.dest else { return None };
        let sends = matches!(ses.opcode, Opcode::Send | Opcode::TaggedSend);
        let special = ses.delivery_complete || ses.initiator_error || ses.header_data_present;
        let whole = ses.som && ses.eom && ses.extension == Extension::None;
        let ordinary = sends && whole && !special && pds.next == NextHeader::RequestStd;
        let headers = Self { bytes, spdcid: pds.spdcid, dpdcid };
        (ordinary && headers.fits(&pds)).then_some(headers)
    }

    /// Returns whether a packet with this PDS header belongs to the context of these headers, is sent for
    /// the first time, and carries no state of congestion control.
    #[must_use]
    #[inline]
    pub fn fits(&self, pds: &Request) -> bool {
        let context = pds.dest == Dest::Pdc(self.dpdcid) && pds.spdcid == self.spdcid;
        context && pds.mode == Mode::Rud && !pds.retx && pds.ccc.is_none()
    }

    /// Returns the PDS and SES headers of the message with these numbers.
    #[must_use]
    #[inline]
    pub fn with(&self, numbers: &MessageNumbers) -> [u8; LEN] {
        let MessageNumbers { psn, clear_psn_offset, ack_request, tagged, message_id, tag, len } =
            *numbers;
        let mut bytes = self.bytes;
        bytes[1] = bytes[1] & !flag::AR | if ack_request { flag::AR } else { 0 };
        bytes[2..4].copy_from_slice(&clear_psn_offset.to_be_bytes());
        bytes[4..8].copy_from_slice(&psn.0.to_be_bytes());
        let ses = &mut bytes[Request::LEN..];
        ses[0] = if tagged { Opcode::TaggedSend.to_u8() } else { Opcode::Send.to_u8() };
        ses[2..4].copy_from_slice(&message_id.to_be_bytes());
        ses[24..32].copy_from_slice(&tag.to_be_bytes());
        ses[40..44].copy_from_slice(&len.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::ses::StdBody;

    fn pds() -> Request {
        Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx: false,
            ack_request: true,
            clear_psn_offset: -3,
            psn: Psn(u32::MAX),
            spdcid: 7,
            dest: Dest::Pdc(9),
            ccc: None,
        }
    }

    fn message() -> StdRequest {
        StdRequest {
            opcode: Opcode::TaggedSend,
            delivery_complete: false,
            initiator_error: false,
            relative: true,
            header_data_present: false,
            eom: true,
            som: true,
            message_id: 77,
            ri_generation: 0,
            job_id: 5,
            pid_on_fep: 6,
            resource_index: 1,
            buffer_offset: 0,
            initiator: 0x0102_0304,
            match_bits: u64::MAX,
            body: StdBody::First { header_data: 0 },
            request_length: 64,
            extension: Extension::None,
        }
    }

    fn emit(pds: &Request, ses: &StdRequest) -> Vec<u8> {
        let mut out = [0; 256];
        let n = pds.emit(&mut out);
        let n = n + ses.emit(&mut out[n..]);
        out[..n].to_vec()
    }

    #[test]
    fn next_message_has_the_headers_that_it_would_have_without_a_template() {
        let of_first = MessageHeaders::of(&emit(&pds(), &message())).expect("an ordinary message");
        for (tagged, ack_request) in [(true, false), (false, true)] {
            let (opcode, tag) =
                if tagged { (Opcode::TaggedSend, 3 << 40) } else { (Opcode::Send, 0) };
            let next = Request { psn: Psn(5), clear_psn_offset: i16::MIN, ack_request, ..pds() };
            let (message_id, len) = (u16::MAX, 1000);
            let ses = StdRequest {
                opcode,
                message_id,
                match_bits: tag,
                request_length: len,
                ..message()
            };
            let (psn, clear_psn_offset) = (next.psn, next.clear_psn_offset);
            let numbers =
                MessageNumbers { psn, clear_psn_offset, ack_request, tagged, message_id, tag, len };
            assert!(of_first.fits(&next));
            assert_eq!(of_first.with(&numbers)[..], emit(&next, &ses));
        }
    }

    #[test]
    fn what_is_not_ordinary_is_no_template_and_has_none() {
        let ordinary = MessageHeaders::of(&emit(&pds(), &message())).expect("an ordinary message");
        let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
        let others = [
            Request { retx: true, ..pds() },
            Request { mode: Mode::Rod, ..pds() },
            Request { dest: syn, ..pds() },
            Request { ccc: Some(crate::pds::Ccc { ccc_id: 0, credit_target: 4 }), ..pds() },
        ];
        for other in others {
            assert_eq!(MessageHeaders::of(&emit(&other, &message())), None, "{other:?}");
            assert!(!ordinary.fits(&other), "{other:?}");
        }
        for other in [Request { spdcid: 8, ..pds() }, Request { dest: Dest::Pdc(8), ..pds() }] {
            assert!(!ordinary.fits(&other), "of another context: {other:?}");
        }
        let first = StdBody::First { header_data: 8 };
        for other in [
            StdRequest { header_data_present: true, body: first, ..message() },
            StdRequest { delivery_complete: true, ..message() },
            StdRequest { eom: false, ..message() },
            StdRequest { opcode: Opcode::Write, ..message() },
        ] {
            assert_eq!(MessageHeaders::of(&emit(&pds(), &other)), None, "{other:?}");
        }
    }
}
