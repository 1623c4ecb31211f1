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
pub(crate) use std_request::{EOM, SOM};
pub use std_request::{StdBody, StdRequest, StdView};

use crate::codes::{AmoOp, NextHeader, Opcode, PdsType};
use crate::error::ParseError;

/// The SES header of a packet, with its extension header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ses {
    /// No SES header (an ACK without a response).
    None,
    /// Request with the standard header, for messages of any length.
    Std(StdRequest),
    /// Request with the small header, for a message of one packet.
    Small(SmallRequest),
    /// Request with the medium header, for a message of one packet.
    Medium(MediumRequest),
    /// Response to a request, without data.
    Response(Response),
    /// Response that carries data that a request asked for.
    ResponseData(ResponseData),
    /// Response that carries the data that a request of a single packet asked for.
    ResponseDataSmall(ResponseDataSmall),
}

impl Ses {
    /// Returns the value of the PDS field `next_hdr` that announces this header.
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

    /// Returns the length of the header with its extension in bytes.
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
    /// Panics if `out` is shorter than [`Self::len`].
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

    /// Reads the header that `next` announces at the start of `bytes`, and checks its rules.
    /// `bytes` must end where the packet ends: a continuation may leave its extension header out,
    /// and only the length shows it. `pds` is the packet's type: DATAGRAM_SEND belongs to UUD.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(pds: PdsType, next: NextHeader, bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedSes::new(pds, next, bytes).map(CheckedSes::build)
    }

    /// Reads the header of a packet that a switch trimmed, whose length carries no information: the
    /// extension header of a continuation is not read. Returns `None` if the header is incomplete
    /// or breaks a rule.
    #[must_use]
    pub fn read_trimmed(pds: PdsType, next: NextHeader, bytes: &[u8]) -> Option<Self> {
        if next == NextHeader::RequestStd {
            let header = std_request::CheckedStdRequest::header(bytes).ok()?;
            if !header.is_first() {
                return Some(Self::Std(header.build()));
            }
        }
        Self::read(pds, next, bytes).ok()
    }
}

/// A SES header that obeys its rules, as a reference to its bytes. [`crate::parse`] checks all of a
/// packet in this form before it builds the value, so that the value is written once and not moved.
#[derive(Clone, Copy)]
pub(crate) enum CheckedSes<'a> {
    None,
    Std(std_request::CheckedStdRequest<'a>),
    Small(compact::CheckedSmall<'a>),
    Medium(compact::CheckedMedium<'a>),
    Response(response::CheckedResponse<'a>),
    ResponseData(response::CheckedData<'a>),
    ResponseDataSmall(response::CheckedDataSmall<'a>),
}

impl<'a> CheckedSes<'a> {
    #[inline]
    pub(crate) fn new(pds: PdsType, next: NextHeader, bytes: &'a [u8]) -> Result<Self, ParseError> {
        Ok(match next {
            NextHeader::None => Self::None,
            NextHeader::RequestStd => {
                let request = std_request::CheckedStdRequest::new(bytes)?;
                let single = request.is_first() && request.is_last();
                check_context(pds, request.opcode, single)?;
                if request.opcode == Opcode::DatagramSend && request.message_id() != 0 {
                    return Err(ParseError::MessageId);
                }
                Self::Std(request)
            }
            NextHeader::RequestSmall => {
                let request = compact::CheckedSmall::new(bytes)?;
                check_context(pds, request.opcode, true)?;
                Self::Small(request)
            }
            NextHeader::RequestMedium => {
                let request = compact::CheckedMedium::new(bytes)?;
                check_context(pds, request.opcode(), true)?;
                Self::Medium(request)
            }
            NextHeader::Response => Self::Response(response::CheckedResponse::new(bytes)?),
            NextHeader::ResponseData => Self::ResponseData(response::CheckedData::new(bytes)?),
            NextHeader::ResponseDataSmall => {
                Self::ResponseDataSmall(response::CheckedDataSmall::new(bytes)?)
            }
        })
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Std(h) => h.len(),
            Self::Small(h) => h.len(),
            Self::Medium(h) => h.len(),
            Self::Response(_) => Response::LEN,
            Self::ResponseData(_) => ResponseData::LEN,
            Self::ResponseDataSmall(_) => ResponseDataSmall::LEN,
        }
    }

    /// Checks the length of the payload against the lengths in the header.
    #[inline]
    pub(crate) fn check_payload(&self, len: usize) -> Result<(), ParseError> {
        match self {
            Self::None | Self::Response(_) if len != 0 => Err(ParseError::Trailing),
            Self::None | Self::Response(_) => Ok(()),
            Self::Std(h) => h.check_payload(len),
            Self::Small(h) => h.check_payload(len),
            Self::Medium(h) => h.check_payload(len),
            Self::ResponseData(h) => exactly(len as u64, h.payload_length().into()),
            Self::ResponseDataSmall(h) => exactly(len as u64, h.payload_length().into()),
        }
    }

    #[inline]
    pub(crate) const fn build(self) -> Ses {
        match self {
            Self::None => Ses::None,
            Self::Std(h) => Ses::Std(h.build()),
            Self::Small(h) => Ses::Small(h.build()),
            Self::Medium(h) => Ses::Medium(h.build()),
            Self::Response(h) => Ses::Response(h.build()),
            Self::ResponseData(h) => Ses::ResponseData(h.build()),
            Self::ResponseDataSmall(h) => Ses::ResponseDataSmall(h.build()),
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

/// Checks that there are `want` payload bytes, as the header says.
#[inline]
const fn exactly(len: u64, want: u64) -> Result<(), ParseError> {
    if len == want { Ok(()) } else { Err(ParseError::Length) }
}

/// How many payload bytes a packet must have, by the lengths in its SES header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PayloadRule {
    /// The payload is the message, or this packet's part of it.
    Message,
    /// The packet has no payload.
    Absent,
    /// The payload is the message, or empty because the operation needs no operand.
    Optional,
    /// The payload is no longer than the message.
    AtMost,
    /// The payload has request_length bytes, whatever the flags SOM and EOM are.
    Whole,
    /// The payload may have any length: the opcode or operation is a vendor's.
    Unknown,
}

/// Returns how many payload bytes a packet with this opcode and extension must have.
#[inline]
const fn payload_rule(opcode: Opcode, extension: &extension::CheckedExtension<'_>) -> PayloadRule {
    use extension::CheckedExtension as E;
    match (opcode, extension) {
        (Opcode::Vendor(_) | Opcode::Extended, _) => PayloadRule::Unknown,
        (Opcode::Read | Opcode::DeferrableRtr, _) | (_, E::CompareSwap(..)) => PayloadRule::Absent,
        (Opcode::MsgError, _) => PayloadRule::AtMost,
        (Opcode::NoOp, _) => PayloadRule::Whole,
        (_, E::Atomic(_, AmoOp::Read | AmoOp::Inval, _)) => PayloadRule::Optional,
        (_, E::Atomic(_, AmoOp::Vendor(_), _)) => PayloadRule::Unknown,
        _ => PayloadRule::Message,
    }
}

/// Checks the payload of a message in one packet. `total` is request_length.
#[inline]
fn check_single(
    opcode: Opcode,
    total: u64,
    extension: &extension::CheckedExtension<'_>,
    len: u64,
) -> Result<(), ParseError> {
    // The packets of a rendezvous carry only its eager part.
    let here = match extension {
        extension::CheckedExtension::Rendezvous(r) => r.eager_length().into(),
        _ => total,
    };
    let fits = here <= total
        && match payload_rule(opcode, extension) {
            PayloadRule::Unknown => true,
            PayloadRule::Absent => len == 0,
            PayloadRule::AtMost => len <= total,
            PayloadRule::Optional if len == 0 => true,
            PayloadRule::Message | PayloadRule::Optional | PayloadRule::Whole => len == here,
        };
    if fits { Ok(()) } else { Err(ParseError::Length) }
}
