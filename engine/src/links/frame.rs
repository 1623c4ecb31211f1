//! Frames: a byte that says what it is, and:
//!
//! | first byte | then |
//! |---|---|
//! | 1 | a standard request with its extension, and payload |
//! | 2 | response data, and payload |
//! | 3 | the number of the frame that is answered, 8 bytes, the lowest first; a response |
//! | 4 | nothing: farewell |
//! | 5 | how many bytes of payload it refers to, 4 bytes, the lowest first; response data without payload |
//! | 6 | the same; a standard request, a write, without payload |
//!
//! Headers are as on the wire, and are checked by the same rules.

use crate::wire::{
    NextHeader, Opcode, Response, ResponseData, Ses, StdBody, StdRequest, parse_semantic,
};

/// Bytes of the longest head of a frame.
pub(crate) const MAX_HEAD: usize = 1 + 44 + 36 + 8;
/// Most payload of a frame, bytes: lengths in semantic headers have 14 bits; whole cache lines.
pub(crate) const MAX_PAYLOAD: u32 = 0x3fc0;
/// Most payload of a request that one frame carries, bytes: what says how long it is has 32 bits. A power of two, as many
/// messages are.
pub(crate) const MAX_WHOLE: u32 = 0x4000;
/// Most payload that a frame refers to, bytes: the peer's other frames wait for as long as it takes to copy.
pub(crate) const MAX_REFERENCE: u32 = 1 << 20;

const REQUEST: u8 = 1;
const DATA: u8 = 2;
const ANSWER: u8 = 3;
const FAREWELL: u8 = 4;
const REFERENCE: u8 = 5;
const WRITE: u8 = 6;

/// A frame, checked.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    Request(StdRequest, &'a [u8]),
    Data(ResponseData, &'a [u8]),
    Answer(u64, Response),
    Farewell,
    Reference(ResponseData, u32),
    Write(StdRequest, u32),
}

impl<'a> Frame<'a> {
    /// Reads a frame; `None` when it breaks a rule.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
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
            FAREWELL if rest.is_empty() => Some(Self::Farewell),
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

/// Writes the head of a request; how many bytes.
#[inline]
pub(crate) fn request(header: &StdRequest, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = REQUEST;
    1 + header.emit(&mut out[1..])
}

/// Writes the head of response data; how many bytes.
#[inline]
pub(crate) fn data(header: &ResponseData, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = DATA;
    1 + header.emit(&mut out[1..])
}

/// Writes response data that refer to their payload; how many bytes.
pub(crate) fn reference(header: &ResponseData, len: u32, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = REFERENCE;
    out[1..5].copy_from_slice(&len.to_le_bytes());
    5 + header.emit(&mut out[5..])
}

/// Writes a write that refers to its payload; how many bytes.
pub(crate) fn write(header: &StdRequest, len: u32, out: &mut [u8; MAX_HEAD]) -> usize {
    let mut header = *header;
    if let StdBody::Next { payload_length, .. } = &mut header.body {
        // It has 14 bits.
        *payload_length = 0;
    }
    out[0] = WRITE;
    out[1..5].copy_from_slice(&len.to_le_bytes());
    5 + header.emit(&mut out[5..])
}

/// Writes the answer to frame `number`; how many bytes.
pub(crate) fn answer(number: u64, response: &Response, out: &mut [u8; MAX_HEAD]) -> usize {
    out[0] = ANSWER;
    out[1..9].copy_from_slice(&number.to_le_bytes());
    9 + response.emit(&mut out[9..])
}

/// The farewell.
pub(crate) const fn farewell() -> [u8; 1] {
    [FAREWELL]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{List, ResponseOpcode, ReturnCode};

    #[test]
    fn frames_are_read_as_they_were_written_and_nothing_else_is() {
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
        let len = answer(1 << 40, &response, &mut out);
        let Some(Frame::Answer(number, read)) = Frame::read(&out[..len]) else {
            panic!("an answer")
        };
        assert_eq!((number, read), (1 << 40, response));
        assert!((0..len).all(|cut| Frame::read(&out[..cut]).is_none()));
        assert!(matches!(Frame::read(&farewell()), Some(Frame::Farewell)));
        for bad in [&[][..], &[0], &[4, 0], &[5], &[1], &[2; 21], &[0xff; 80]] {
            assert!(Frame::read(bad).is_none(), "{bad:?}");
        }
    }
}
