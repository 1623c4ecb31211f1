//! Header prediction: a receiver compares the headers of a message with those of the last one on the
//! same context, and reads them without checking each rule again.

use crate::base::Psn;
use crate::codes::{NextHeader, Opcode, PdsType};
use crate::packet::Packet;
use crate::pds::{Dest, Request, flag};
use crate::ses::{EOM, Extension, SOM, Ses, StdRequest};
use crate::view::{be16, be16_signed, be32, be64};

/// Length of the PDS and the SES header together, in bytes.
const LEN: usize = Request::LEN + StdRequest::LEN;
/// Byte offsets of fields in the PDS and SES headers.
const DPDCID: usize = 10;
const SES_FLAGS: usize = Request::LEN + 1;
const MESSAGE_ID: usize = Request::LEN + 2;
const MATCH_BITS: usize = Request::LEN + 24;
const REQUEST_LENGTH: usize = Request::LEN + 40;

/// The bits that are the same in all messages that a template predicts. The others are the request
/// for an acknowledgement, the distance to the cleared PSN, the PSN, the message id, the tag, and the
/// length.
const FIXED: [u64; LEN / 8] = {
    let mut bytes = [0xff; LEN];
    bytes[1] = !flag::AR;
    let varying = [(2, 6), (MESSAGE_ID, 2), (MATCH_BITS, 8), (REQUEST_LENGTH, 4)];
    let mut field = 0;
    while field < varying.len() {
        let (from, len) = varying[field];
        let mut at = from;
        while at < from + len {
            bytes[at] = 0;
            at += 1;
        }
        field += 1;
    }
    words(&bytes)
};

/// Returns the bytes of the headers as words of 64 bits.
#[inline]
const fn words(bytes: &[u8; LEN]) -> [u64; LEN / 8] {
    let (chunks, _) = bytes.as_chunks::<8>();
    let mut words = [0; LEN / 8];
    let mut at = 0;
    while at < words.len() {
        words[at] = u64::from_ne_bytes(chunks[at]);
        at += 1;
    }
    words
}

/// The headers of a message in one packet, as [`crate::parse`] accepted them. They predict the
/// headers of later messages on the same context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageTemplate {
    /// Value of the header bits that [`FIXED`] selects; the other bits are zero.
    fixed: [u64; LEN / 8],
    pds: Request,
    ses: StdRequest,
}

impl MessageTemplate {
    /// Returns the template of a packet with these `headers`, which were read as `pds` and `ses`.
    /// Returns `None` unless the packet is an ordinary message: a send that one packet carries, which
    /// is sent for the first time on an open context, without remote CQ data.
    #[must_use]
    pub fn new(headers: &[u8], pds: &Request, ses: &Ses) -> Option<Self> {
        let Ses::Std(ses) = ses else { return None };
        let ordinary = ses.som
            && ses.eom
            && !ses.header_data_present
            && matches!(ses.opcode, Opcode::Send | Opcode::TaggedSend)
            && matches!(ses.extension, Extension::None)
            && matches!(pds.dest, Dest::Pdc(_))
            && !pds.retx
            && pds.ccc.is_none();
        if !ordinary {
            return None;
        }
        let mut fixed = words(headers.try_into().ok()?);
        for (word, mask) in fixed.iter_mut().zip(FIXED) {
            *word &= mask;
        }
        Some(Self { fixed, pds: *pds, ses: *ses })
    }

    /// Returns the context number in a packet that a template may predict: the place where the
    /// receiver looks for the template.
    #[must_use]
    #[inline]
    pub fn context_number(packet: &[u8]) -> Option<u16> {
        let headers = packet.first_chunk::<LEN>()?;
        let whole = SOM | EOM;
        let may_be = headers[0]
            == PdsType::RudReq.to_u8() << 3 | NextHeader::RequestStd.to_u8() >> 1
            && headers[1] & flag::SYN == 0
            && headers[SES_FLAGS] & whole == whole;
        may_be.then(|| be16(headers, DPDCID))
    }

    /// Returns the headers and the payload of `packet`, as [`crate::parse`] would, if they are those
    /// of another ordinary message on the same context. Returns `None` if they differ in more than
    /// the fields in which such messages differ, or break a rule.
    #[must_use]
    #[inline]
    pub fn read<'a>(&self, packet: &'a [u8]) -> Option<Packet<'a>> {
        let (headers, payload) = packet.split_first_chunk::<LEN>()?;
        let mut difference = 0;
        for ((found, fixed), mask) in words(headers).into_iter().zip(self.fixed).zip(FIXED) {
            difference |= found & mask ^ fixed;
        }
        let (clear_psn_offset, length) = (be16_signed(headers, 2), be32(headers, REQUEST_LENGTH));
        if difference != 0 || clear_psn_offset > 0 || payload.len() as u64 != u64::from(length) {
            return None;
        }
        let pds = Request {
            ack_request: headers[1] & flag::AR != 0,
            clear_psn_offset,
            psn: Psn(be32(headers, 4)),
            ..self.pds
        };
        let ses = Ses::Std(StdRequest {
            message_id: be16(headers, MESSAGE_ID),
            match_bits: be64(headers, MATCH_BITS),
            request_length: length,
            ..self.ses
        });
        Some(Packet::Request { pds, ses, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::pds::Mode;
    use crate::ses::StdBody;
    use std::vec::Vec;

    fn message() -> (Request, StdRequest) {
        let pds = Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx: false,
            ack_request: false,
            clear_psn_offset: -3,
            psn: Psn(u32::MAX),
            spdcid: 7,
            dest: Dest::Pdc(0x1234),
            ccc: None,
        };
        let ses = StdRequest {
            opcode: Opcode::TaggedSend,
            delivery_complete: false,
            initiator_error: false,
            relative: false,
            header_data_present: false,
            eom: true,
            som: true,
            message_id: 77,
            ri_generation: 0,
            job_id: 5,
            pid_on_fep: 6,
            resource_index: 0,
            buffer_offset: 0,
            initiator: 99,
            match_bits: 0xabcd,
            body: StdBody::First { header_data: 0 },
            request_length: 5,
            extension: Extension::None,
        };
        (pds, ses)
    }

    fn written(pds: Request, ses: StdRequest) -> Vec<u8> {
        let payload = std::vec![1; ses.request_length as usize];
        let packet = Packet::Request { pds, ses: Ses::Std(ses), payload: &payload };
        let mut bytes = std::vec![0; packet.len()];
        packet.emit(&mut bytes);
        bytes
    }

    #[test]
    fn any_other_bit_of_the_headers_is_either_read_as_by_the_parser_or_not_predicted() {
        let (pds, ses) = message();
        let bytes = written(pds, ses);
        let template = MessageTemplate::new(&bytes[..LEN], &pds, &Ses::Std(ses)).expect("ordinary");
        assert_eq!(MessageTemplate::context_number(&bytes), Some(0x1234));
        assert_eq!(template.read(&bytes).as_ref(), parse(&bytes).as_ref().ok());
        let mut predicted = 0;
        for at in 0..LEN {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                if let Some(packet) = template.read(&other) {
                    assert_eq!(Ok(packet), parse(&other), "bit {bit} of byte {at}");
                    assert_eq!(MessageTemplate::context_number(&other), Some(0x1234));
                    predicted += 1;
                }
            }
        }
        // The flag AR, the distance without its sign, the PSN, the id and the tag.
        assert_eq!(predicted, 1 + 15 + 32 + 16 + 64);
        for len in 0..bytes.len() {
            assert_eq!(template.read(&bytes[..len]), None);
        }
    }

    #[test]
    fn messages_of_any_length_are_predicted() {
        let (pds, ses) = message();
        let bytes = written(pds, ses);
        let template = MessageTemplate::new(&bytes[..LEN], &pds, &Ses::Std(ses)).expect("ordinary");
        for length in [0, 1, 64, 9000] {
            let other = written(
                Request { psn: Psn(0), ack_request: true, clear_psn_offset: 0, ..pds },
                StdRequest { request_length: length, message_id: 78, match_bits: 1, ..ses },
            );
            assert_eq!(template.read(&other).as_ref(), parse(&other).as_ref().ok());
        }
    }

    #[test]
    fn unusual_packets_make_no_template() {
        let (pds, ses) = message();
        let none = |pds: Request, ses: StdRequest| {
            let bytes = written(pds, ses);
            let len = bytes.len() - ses.request_length as usize;
            MessageTemplate::new(&bytes[..len], &pds, &Ses::Std(ses)).is_none()
        };
        assert!(!none(pds, ses) && !none(pds, StdRequest { opcode: Opcode::Send, ..ses }));
        assert!(none(Request { retx: true, ..pds }, ses));
        assert!(none(
            Request { dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 }, ..pds },
            ses
        ));
        assert!(none(pds, StdRequest { header_data_present: true, ..ses }));
        assert!(none(pds, StdRequest { opcode: Opcode::Write, ..ses }));
        assert!(none(pds, StdRequest { eom: false, request_length: 9, ..ses }));
    }
}
