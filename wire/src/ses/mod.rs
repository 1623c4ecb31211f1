//! Semantic sublayer: the requests and responses behind a PDS header, and their extension headers.

mod compact;
mod extension;
mod response;
mod std_request;

pub use compact::{MediumRequest, MediumView, SmallRequest, SmallView};
pub use extension::{
    Atomic, AtomicView, CompareSwap, CompareSwapView, Extension, Rendezvous, RendezvousView,
};
pub use response::{
    Response, ResponseData, ResponseDataSmall, ResponseDataSmallView, ResponseDataView,
    ResponseView,
};
pub use std_request::{StdBody, StdRequest, StdView};

use crate::codes::{NextHeader, Opcode, PdsType};
use crate::error::ParseError;

/// The SES header of a packet, with its extension header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ses {
    /// None (an ACK that says nothing more).
    None,
    /// Standard request.
    Std(StdRequest),
    /// Small request.
    Small(SmallRequest),
    /// Medium request.
    Medium(MediumRequest),
    /// Response without data.
    Response(Response),
    /// Response with data.
    ResponseData(ResponseData),
    /// Response with data to a single-packet request.
    ResponseDataSmall(ResponseDataSmall),
}

impl Ses {
    /// What `next_hdr` says of this header.
    #[must_use]
    pub const fn next_header(&self) -> NextHeader {
        match self {
            Self::None => NextHeader::None,
            Self::Std(_) => NextHeader::RequestStd,
            Self::Small(_) => NextHeader::RequestSmall,
            Self::Medium(_) => NextHeader::RequestMedium,
            Self::Response(_) => NextHeader::Response,
            Self::ResponseData(_) => NextHeader::ResponseData,
            Self::ResponseDataSmall(_) => NextHeader::ResponseDataSmall,
        }
    }

    /// Bytes of the header with its extension.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // `Ses::None` is the empty one
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Std(h) => h.len(),
            Self::Small(h) => h.len(),
            Self::Medium(h) => h.len(),
            Self::Response(h) => h.len(),
            Self::ResponseData(h) => h.len(),
            Self::ResponseDataSmall(h) => h.len(),
        }
    }

    /// Writes the header with its extension and returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Self::len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Self::None => 0,
            Self::Std(h) => h.emit(out),
            Self::Small(h) => h.emit(out),
            Self::Medium(h) => h.emit(out),
            Self::Response(h) => h.emit(out),
            Self::ResponseData(h) => h.emit(out),
            Self::ResponseDataSmall(h) => h.emit(out),
        }
    }

    /// Reads the header that `next` announces at the start of `bytes`, which end where the packet
    /// ends (a continuation may leave its extension header out, and only the length tells), and
    /// checks the header's rules. `pds` is the packet's type: DATAGRAM_SEND belongs to UUD.
    ///
    /// # Errors
    /// The rule that it breaks.
    #[inline]
    pub fn read(pds: PdsType, next: NextHeader, bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(match next {
            NextHeader::None => Self::None,
            NextHeader::RequestStd => {
                let request = StdRequest::read(bytes)?;
                let single = request.som && request.eom;
                check_context(pds, request.opcode, single)?;
                if request.opcode == Opcode::DatagramSend && request.message_id != 0 {
                    return Err(ParseError::MessageId);
                }
                Self::Std(request)
            }
            NextHeader::RequestSmall => {
                let request = SmallRequest::read(bytes)?;
                check_context(pds, request.opcode, true)?;
                Self::Small(request)
            }
            NextHeader::RequestMedium => {
                let request = MediumRequest::read(bytes)?;
                check_context(pds, request.opcode, true)?;
                Self::Medium(request)
            }
            NextHeader::Response => Self::Response(Response::read(bytes)?),
            NextHeader::ResponseData => Self::ResponseData(ResponseData::read(bytes)?),
            NextHeader::ResponseDataSmall => {
                Self::ResponseDataSmall(ResponseDataSmall::read(bytes)?)
            }
        })
    }

    /// The same in a packet that a switch cut, where a length tells nothing: a continuation's
    /// extension header is not looked for. `None` when the header is not all there or breaks a rule.
    #[must_use]
    pub fn read_trimmed(pds: PdsType, next: NextHeader, bytes: &[u8]) -> Option<Self> {
        if next == NextHeader::RequestStd {
            let header = StdRequest::read_header(StdView::new(bytes).ok()?).ok()?;
            if !header.som {
                return Some(Self::Std(header));
            }
        }
        Self::read(pds, next, bytes).ok()
    }

    /// Checks the payload's length against the header's lengths.
    ///
    /// # Errors
    /// [`ParseError::Length`], or [`ParseError::Trailing`] when the header allows no payload.
    #[inline]
    pub fn check_payload(&self, len: usize) -> Result<(), ParseError> {
        match self {
            Self::None | Self::Response(_) if len != 0 => Err(ParseError::Trailing),
            Self::None | Self::Response(_) => Ok(()),
            Self::Std(h) => h.check_payload(len),
            Self::Small(h) => check_single(h.opcode, h.request_length.into(), &h.extension, len),
            Self::Medium(h) => check_single(h.opcode, h.request_length.into(), &h.extension, len),
            Self::ResponseData(h) => exactly(len, h.payload_length.into()),
            Self::ResponseDataSmall(h) => exactly(len, h.payload_length.into()),
        }
    }
}

#[inline]
fn check_context(pds: PdsType, opcode: Opcode, single: bool) -> Result<(), ParseError> {
    let uud = matches!(pds, PdsType::UudReq);
    match opcode {
        Opcode::DatagramSend if !uud => Err(ParseError::OpcodeContext),
        Opcode::DatagramSend if !single => Err(ParseError::SomEom),
        Opcode::MsgError if uud => Err(ParseError::OpcodeContext),
        _ => Ok(()),
    }
}

/// `len` payload bytes where the header says `want`.
#[inline]
fn exactly(len: usize, want: u32) -> Result<(), ParseError> {
    if len as u64 == u64::from(want) { Ok(()) } else { Err(ParseError::Length) }
}

/// How the payload of an opcode relates to the header's lengths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// It is the message, or this packet's part of it.
    Message,
    /// There is none.
    Absent,
    /// The message, or nothing: the operation needs no operand.
    Optional,
    /// At most the message.
    AtMost,
    /// All of request_length, whatever SOM and EOM say.
    Whole,
    /// Not known: a vendor's opcode or operation.
    Unknown,
}

/// The relation for an opcode and its extension.
#[inline]
const fn payload_rule(opcode: Opcode, extension: &Extension) -> Payload {
    use crate::codes::AmoOp;
    match (opcode, extension) {
        (Opcode::Vendor(_) | Opcode::Extended, _) => Payload::Unknown,
        (Opcode::Read | Opcode::DeferrableRtr, _) | (_, Extension::CompareSwap(_)) => {
            Payload::Absent
        }
        (Opcode::MsgError, _) => Payload::AtMost,
        (Opcode::NoOp, _) => Payload::Whole,
        (_, Extension::Atomic(Atomic { op: AmoOp::Read | AmoOp::Inval, .. })) => Payload::Optional,
        (_, Extension::Atomic(Atomic { op: AmoOp::Vendor(_), .. })) => Payload::Unknown,
        _ => Payload::Message,
    }
}

/// The payload rule of a message in one packet. `length` is request_length.
#[inline]
fn check_single(
    opcode: Opcode,
    length: u32,
    extension: &Extension,
    len: usize,
) -> Result<(), ParseError> {
    // Of a rendezvous only the eager part is in the packets.
    let here = match extension {
        Extension::Rendezvous(r) if r.eager_length > length => return Err(ParseError::Length),
        Extension::Rendezvous(r) => r.eager_length,
        _ => length,
    };
    match payload_rule(opcode, extension) {
        Payload::Unknown => Ok(()),
        Payload::Absent => exactly(len, 0),
        Payload::Optional if len == 0 => Ok(()),
        Payload::AtMost if len as u64 <= u64::from(length) => Ok(()),
        Payload::AtMost => Err(ParseError::Length),
        Payload::Message | Payload::Optional | Payload::Whole => exactly(len, here),
    }
}
