//! Records of shared-memory channels. The first byte is the kind of the record; the rest depends on
//! it:
//!
//! | first byte | then |
//! |---|---|
//! | 1 | a standard request with its extension, and payload |
//! | 2 | response data, and payload |
//! | 3 | the number of the answered record, 8 bytes, little-endian; a response |
//! | 4 | nothing: the close notification |
//! | 5 | the length of the payload referred to, 4 bytes, little-endian; response data without payload |
//! | 6 | as 5; a standard request, a write, without payload |
//! | 7 | a short message: [`Short`], and payload |
//! | 8 | as 5; a standard request, the offer of a message, without payload |
//! | 9 | a longer message of one record: its head as of a short one, and the length of the payload that follows in the ring, 4 bytes |
//!
//! Headers have the format of the wire and are checked by the same rules. The exception is the
//! header of a short message, which contains only what can differ between the messages of one
//! channel.

use crate::memory::Payload;
use crate::operation::MatchSpace;
use crate::wire::{
    Extension, NextHeader, Opcode, Response, ResponseData, Ses, StdBody, StdRequest, parse_semantic,
};

/// Largest length in bytes of the head of a record, which is everything before the payload.
pub(crate) const MAX_HEAD: usize = 1 + 44 + 36 + 8;
/// Largest payload of a record in bytes: lengths in semantic headers have 14 bits, rounded down to
/// whole cache lines.
pub(crate) const MAX_PAYLOAD: u32 = 0x3fc0;
/// Largest payload in bytes of a request that one record carries; its length field has 32 bits. The
/// limit is a power of two because many messages have such lengths.
pub(crate) const MAX_WHOLE: u32 = 0x4000;
/// Largest payload in bytes that a record refers to. The peer's other records wait while it is
/// copied.
pub(crate) const MAX_REFERENCE: u32 = 1 << 20;

/// Longest short message in bytes. A receiver that is short of memory keeps about as much of every
/// message anyway.
pub(crate) const MAX_SHORT: usize = 256;

const REQUEST: u8 = 1;
const DATA: u8 = 2;
const ANSWER: u8 = 3;
const CLOSE_NOTIFICATION: u8 = 4;
const REFERENCE: u8 = 5;
const WRITE: u8 = 6;
const SHORT: u8 = 7;
const OFFER: u8 = 8;
const PARTED: u8 = 9;

/// Flags in the second byte of a short message's head: the message has a tag; it has remote CQ
/// data.
const TAGGED: u8 = 1;
const WITH_DATA: u8 = 2;

/// The head of a message that fits into one record. Layout, little-endian: kind (1 byte), flags for
/// a tag and remote CQ data (1 byte), message id (2 bytes), JobID (4 bytes), tag (8 bytes), and the
/// data (8 bytes) if present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Short {
    /// Number of the message in the order of the messages on its channel.
    pub(crate) id: u16,
    pub(crate) job_id: u32,
    pub(crate) space: MatchSpace,
    /// The tag of the message; 0 if it is untagged.
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
}

impl Short {
    /// Length in bytes of the head of a short message without remote CQ data.
    const LEN: usize = 16;

    /// Writes the head of a longer message whose payload of `len` bytes is not handed out with it.
    /// Returns the length of the head in bytes.
    #[inline]
    pub(crate) fn write_split(&self, len: u32, out: &mut [u8; MAX_HEAD]) -> usize {
        let at = self.write(out);
        out[0] = PARTED;
        out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        at + 4
    }

    /// Writes the head of a short message. Returns its length in bytes.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8; MAX_HEAD]) -> usize {
        let tagged = self.space == MatchSpace::Tagged;
        out[0] = SHORT;
        out[1] = if tagged { TAGGED } else { 0 } | if self.data.is_some() { WITH_DATA } else { 0 };
        out[2..4].copy_from_slice(&self.id.to_le_bytes());
        out[4..8].copy_from_slice(&self.job_id.to_le_bytes());
        out[8..16].copy_from_slice(&self.tag.to_le_bytes());
        let Some(data) = self.data else { return Self::LEN };
        out[Self::LEN..Self::LEN + 8].copy_from_slice(&data.to_le_bytes());
        Self::LEN + 8
    }

    /// Parses a short message behind the first byte of its record. Returns the head and the
    /// payload.
    #[inline]
    fn read(rest: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = rest.split_first_chunk::<{ Self::LEN - 1 }>()?;
        let [bits, id0, id1, job @ .., t0, t1, t2, t3, t4, t5, t6, t7] = *head;
        if bits & !(TAGGED | WITH_DATA) != 0 {
            return None;
        }
        let (data, payload) = if bits & WITH_DATA != 0 {
            let (data, payload) = rest.split_first_chunk()?;
            (Some(u64::from_le_bytes(*data)), payload)
        } else {
            (None, rest)
        };
        let tagged = bits & TAGGED != 0;
        let short = Self {
            id: u16::from_le_bytes([id0, id1]),
            job_id: u32::from_le_bytes(job),
            space: if tagged { MatchSpace::Tagged } else { MatchSpace::Untagged },
            tag: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            data,
        };
        (tagged || short.tag == 0).then_some((short, payload))
    }
}

/// A shared-memory record that was parsed and checked.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    Request(StdRequest, &'a [u8]),
    Data(ResponseData, &'a [u8]),
    Answer(u64, Response),
    CloseNotification,
    Reference(ResponseData, u32),
    Write(StdRequest, u32),
    Short(Short, Payload<'a>),
    Offer(StdRequest, u32),
}

impl<'a> Record<'a> {
    /// Parses the bytes of a shared-memory record. Returns `None` if they are invalid.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            SHORT => {
                let (short, payload) = Short::read(rest)?;
                (payload.len() <= MAX_SHORT).then_some(Self::Short(short, Payload::Here(payload)))
            }
            PARTED => {
                let (short, len) = Short::read(rest)?;
                let len = u32::from_le_bytes(len.try_into().ok()?);
                (len <= MAX_WHOLE).then_some(Self::Short(short, Payload::Elsewhere(len.into())))
            }
            REQUEST => match parse_semantic(NextHeader::RequestStd, rest).ok()? {
                (Ses::Std(request), payload) => Some(Self::Request(request, payload)),
                _ => None,
            },
            DATA => match parse_semantic(NextHeader::ResponseData, rest).ok()? {
                (Ses::ResponseData(header), payload) => Some(Self::Data(header, payload)),
                _ => None,
            },
            ANSWER => {
                let (number, rest) = rest.split_first_chunk()?;
                match parse_semantic(NextHeader::Response, rest).ok()? {
                    (Ses::Response(response), _) => {
                        Some(Self::Answer(u64::from_le_bytes(*number), response))
                    }
                    _ => None,
                }
            }
            CLOSE_NOTIFICATION if rest.is_empty() => Some(Self::CloseNotification),
            REFERENCE => {
                let (len, rest) = rest.split_first_chunk()?;
                let len = u32::from_le_bytes(*len);
                match parse_semantic(NextHeader::ResponseData, rest).ok()? {
                    (Ses::ResponseData(header), []) if len <= MAX_REFERENCE => {
                        Some(Self::Reference(header, len))
                    }
                    _ => None,
                }
            }
            OFFER => {
                let (len, header) = rest.split_first_chunk()?;
                let len = u32::from_le_bytes(*len);
                match parse_semantic(NextHeader::RequestStd, header).ok()? {
                    (Ses::Std(request), []) if can_be_offered(&request, len) => {
                        Some(Self::Offer(request, len))
                    }
                    _ => None,
                }
            }
            WRITE => {
                let (len, header) = rest.split_first_chunk()?;
                let len = u32::from_le_bytes(*len);
                let request = StdRequest::read(header).ok()?;
                let whole = header.len() == StdRequest::LEN;
                let is_write = request.opcode == Opcode::Write && whole && len <= MAX_REFERENCE;
                is_write.then_some(Self::Write(request, len))
            }
            _ => None,
        }
    }
}

/// Returns whether a rendezvous request can offer its whole message of `len` bytes by reference.
fn can_be_offered(request: &StdRequest, len: u32) -> bool {
    let Extension::Rendezvous(rendezvous) = request.extension else { return false };
    (1..=MAX_REFERENCE).contains(&len)
        && request.request_length == len
        && rendezvous.eager_length == 0
        && matches!(request.opcode, Opcode::RendezvousSend | Opcode::RendezvousTsend)
}

/// Writes the head of a request. Returns its length in bytes.
#[inline]
pub(crate) fn write_request(header: &StdRequest, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = REQUEST;
    1 + header.emit(&mut out[1..])
}

/// Writes the head of response data. Returns its length in bytes.
#[inline]
pub(crate) fn write_data(header: &ResponseData, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = DATA;
    1 + header.emit(&mut out[1..])
}

/// Writes response data that refer to their payload. Returns the length in bytes.
pub(crate) fn write_reference(header: &ResponseData, len: u32, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = REFERENCE;
    out[1..5].copy_from_slice(&len.to_le_bytes());
    5 + header.emit(&mut out[5..])
}

/// Writes a write that refers to its payload. Returns the length in bytes.
pub(crate) fn write_remote_write(header: &StdRequest, len: u32, out: &mut [u8; MAX_HEAD]) -> usize {
    let mut header = *header;
    if let StdBody::Next { payload_length, .. } = &mut header.body {
        // The field has only 14 bits; the length is in front of the header.
        *payload_length = 0;
    }
    out[0] = WRITE;
    out[1..5].copy_from_slice(&len.to_le_bytes());
    5 + header.emit(&mut out[5..])
}

/// Writes the offer of a message that refers to its payload. Returns the length in bytes.
pub(crate) fn write_offer(header: &StdRequest, len: u32, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = OFFER;
    out[1..5].copy_from_slice(&len.to_le_bytes());
    5 + header.emit(&mut out[5..])
}

/// Writes the answer to record `number`. Returns the length in bytes.
pub(crate) fn write_answer(number: u64, response: &Response, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = ANSWER;
    out[1..9].copy_from_slice(&number.to_le_bytes());
    9 + response.emit(&mut out[9..])
}

/// Returns the record that notifies the peer that this channel closes.
pub(crate) const fn close_notification() -> [u8; 1] {
    [CLOSE_NOTIFICATION]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{List, ResponseOpcode, ReturnCode};

    #[test]
    fn written_records_are_parsed_and_invalid_ones_are_rejected() {
        let response = Response {
            list: List::Expected,
            opcode: ResponseOpcode::Response,
            return_code: ReturnCode::BadMkey,
            message_id: 7,
            ri_generation: 0,
            job_id: 3,
            modified_length: 9,
        };
        let mut out = [0; MAX_HEAD];
        let len = write_answer(1 << 40, &response, &mut out);
        let Some(Record::Answer(number, read)) = Record::read(&out[..len]) else {
            panic!("an answer")
        };
        assert_eq!((number, read), (1 << 40, response));
        assert!((0..len).all(|cut| Record::read(&out[..cut]).is_none()));
        assert!(matches!(Record::read(&close_notification()), Some(Record::CloseNotification)));
        for bad in [&[][..], &[0], &[4, 0], &[5], &[1], &[2; 21], &[0xff; 80], &[7; 15]] {
            assert!(Record::read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn written_short_messages_are_parsed_and_invalid_ones_are_rejected() {
        let tagged = Short {
            id: 0xfedc,
            job_id: 0x89ab_cdef,
            space: MatchSpace::Tagged,
            tag: 0x0123_4567_89ab_cdef,
            data: None,
        };
        let untagged = Short { space: MatchSpace::Untagged, tag: 0, ..tagged };
        for short in [tagged, untagged] {
            for data in [None, Some(u64::MAX - 1)] {
                let short = Short { data, ..short };
                let mut out = [0; MAX_HEAD];
                let len = short.write(&mut out);
                for payload in [0, 1, MAX_SHORT] {
                    let whole = [&out[..len], &vec![7; payload]].concat();
                    let Some(Record::Short(read, Payload::Here(bytes))) = Record::read(&whole)
                    else {
                        panic!("a short message")
                    };
                    assert_eq!((read, bytes), (short, &whole[len..]));
                }
                assert!((0..len).all(|cut| Record::read(&out[..cut]).is_none()));
                let mut split = [0; MAX_HEAD];
                for (payload, fine) in [(0, true), (MAX_WHOLE, true), (MAX_WHOLE + 1, false)] {
                    let len = short.write_split(payload, &mut split);
                    let read = match Record::read(&split[..len]) {
                        Some(Record::Short(read, Payload::Elsewhere(len))) => {
                            Some((read, u32::try_from(len).expect("32 bits")))
                        }
                        _ => None,
                    };
                    assert_eq!(read, fine.then_some((short, payload)));
                    assert!(Record::read(&split[..len - 1]).is_none());
                    assert!(Record::read(&split[..len + 1]).is_none());
                }
                let long = [&out[..len], &[7; MAX_SHORT + 1]].concat();
                assert!(Record::read(&long).is_none(), "too long");
                out[1] |= 4;
                assert!(Record::read(&out[..len]).is_none(), "an unknown bit");
            }
        }
        let mut out = [0; MAX_HEAD];
        let len = Short { tag: 9, ..untagged }.write(&mut out);
        assert!(Record::read(&out[..len]).is_none(), "an untagged message with a tag");
    }
}
