//! The standard request, 44 bytes (tables 3-8, 3-9).

use super::{Extension, PayloadRule, check_single, extension, payload_rule};
use crate::codes::Opcode;
use crate::error::ParseError;
use crate::view::{be16, be32, be64, request_view};

request_view! {
    /// A standard request's SES header.
    StdView [44];
    /// Message id of the request.
    message_id: u16 = |b| be16(b, 2);
    /// Offset in the target's buffer in bytes, or restart tokens.
    buffer_offset: u64 = |b| be64(b, 12);
    /// Number of the endpoint that initiated the request.
    initiator: u32 = |b| be32(b, 20);
    /// Tag of a message, key of the memory region, or restart tokens.
    match_bits: u64 = |b| be64(b, 24);
    /// In the first packet of a message (SOM): header data.
    header_data: u64 = |b| be64(b, 32);
    /// In later packets: 18 reserved bits, and the length of the payload in bytes.
    payload_length: u32 = |b| be32(b, 32);
    /// In later packets: offset of the payload in the message, in bytes.
    message_offset: u32 = |b| be32(b, 36);
    /// Length of the whole message in bytes.
    request_length: u32 = |b| be32(b, 40);
}

pub(super) const DC: u8 = 0x20;
pub(super) const IE: u8 = 0x10;
pub(super) const REL: u8 = 0x08;
pub(super) const HD: u8 = 0x04;
pub(crate) const EOM: u8 = 0x02;
pub(crate) const SOM: u8 = 0x01;

/// Bytes 32 to 39, which differ between the first packet of a message and the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StdBody {
    /// Header bytes of the first packet of a message (flag SOM).
    First {
        /// Data for the receiver's completion, meaningful when [`StdRequest::header_data_present`].
        header_data: u64,
    },
    /// Header bytes of a packet of the message after the first.
    Next {
        /// Length of this packet's payload in bytes, 14 bits.
        payload_length: u16,
        /// Offset of this packet's payload in the message, in bytes.
        message_offset: u32,
    },
}

/// A standard request. SOM is [`Self::som`], which follows from the body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StdRequest {
    /// Operation that the target performs.
    pub opcode: Opcode,
    /// DC: the target answers only when the data is globally visible.
    pub delivery_complete: bool,
    /// IE: the initiator met an error in the message.
    pub initiator_error: bool,
    /// REL: the process number PIDonFEP is relative to the job.
    pub relative: bool,
    /// HD: the message has header data for the receiver's completion.
    pub header_data_present: bool,
    /// EOM: the packet is the last of the message.
    pub eom: bool,
    /// SOM: the packet is the first of the message. Agrees with `body` ([`StdBody::First`]);
    /// [`Self::emit`] follows the body.
    pub som: bool,
    /// Number by which both ends name the message.
    pub message_id: u16,
    /// Generation of the resource that `resource_index` names.
    pub ri_generation: u8,
    /// JobID of the initiator's job, 24 bits.
    pub job_id: u32,
    /// Number of the process on the target's endpoint, 12 bits.
    pub pid_on_fep: u16,
    /// Index of the resource in the target's process, 12 bits.
    pub resource_index: u16,
    /// Offset in the target's buffer; restart tokens in a deferrable send
    /// ([`Self::restart_tokens`]).
    pub buffer_offset: u64,
    /// Number of the endpoint that initiated the request.
    pub initiator: u32,
    /// Tag of a message, or key of the memory region; restart tokens in DEFERRABLE_RTR.
    pub match_bits: u64,
    /// Bytes 32 to 39 of the header.
    pub body: StdBody,
    /// Length of the whole message in bytes.
    pub request_length: u32,
    /// Extension header that the opcode demands; a continuation (not SOM) may omit it.
    pub extension: Extension,
}

impl StdRequest {
    /// Length of the header in bytes, without its extension.
    pub const LEN: usize = 44;
    /// Largest payload of a packet that is not the first: the length has 14 bits.
    pub const MAX_NEXT_PAYLOAD: u16 = 0x3FFF;

    /// Returns the length of the header with its extension in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        Self::LEN + self.extension.len()
    }

    /// Returns the offset of the packet's payload in the message, in bytes.
    #[inline]
    #[must_use]
    pub const fn message_offset(&self) -> u32 {
        match self.body {
            StdBody::First { .. } => 0,
            StdBody::Next { message_offset, .. } => message_offset,
        }
    }

    /// Returns the initiator's and the target's restart token, in a deferrable request.
    #[must_use]
    pub const fn restart_tokens(&self) -> Option<(u32, u32)> {
        let word = match self.opcode {
            Opcode::DeferrableSend | Opcode::DeferrableTsend => self.buffer_offset,
            Opcode::DeferrableRtr => self.match_bits,
            _ => return None,
        };
        Some(((word >> 32) as u32, (word & 0xFFFF_FFFF) as u32))
    }

    /// Writes the header with its extension and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut b = [0; Self::LEN];
        b[0] = self.opcode.to_u8();
        b[1] = if self.delivery_complete { DC } else { 0 }
            | if self.initiator_error { IE } else { 0 }
            | if self.relative { REL } else { 0 }
            | if self.header_data_present { HD } else { 0 }
            | if self.eom { EOM } else { 0 };
        b[2..4].copy_from_slice(&self.message_id.to_be_bytes());
        let job = u32::from(self.ri_generation) << 24 | self.job_id & 0x00FF_FFFF;
        b[4..8].copy_from_slice(&job.to_be_bytes());
        b[8..10].copy_from_slice(&(self.pid_on_fep & 0xFFF).to_be_bytes());
        b[10..12].copy_from_slice(&(self.resource_index & 0xFFF).to_be_bytes());
        b[12..20].copy_from_slice(&self.buffer_offset.to_be_bytes());
        b[20..24].copy_from_slice(&self.initiator.to_be_bytes());
        b[24..32].copy_from_slice(&self.match_bits.to_be_bytes());
        match self.body {
            StdBody::First { header_data } => {
                b[1] |= SOM;
                b[32..40].copy_from_slice(&header_data.to_be_bytes());
            }
            StdBody::Next { payload_length, message_offset } => {
                let length = payload_length & Self::MAX_NEXT_PAYLOAD;
                b[34..36].copy_from_slice(&length.to_be_bytes());
                b[36..40].copy_from_slice(&message_offset.to_be_bytes());
            }
        }
        b[40..44].copy_from_slice(&self.request_length.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        Self::LEN + self.extension.emit(&mut out[Self::LEN..])
    }

    /// Reads the header at the start of `bytes`, which end where the packet ends, and checks its
    /// rules. A continuation whose payload_length fills the packet has no extension header.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedStdRequest::new(bytes).map(CheckedStdRequest::build)
    }
}

/// A standard request that obeys its rules, as a reference to its bytes, which is smaller than the
/// value.
#[derive(Clone, Copy)]
pub(crate) struct CheckedStdRequest<'a> {
    view: StdView<'a>,
    pub(super) opcode: Opcode,
    extension: extension::CheckedExtension<'a>,
}

impl<'a> CheckedStdRequest<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut checked = Self::header(bytes)?;
        let rest = bytes.get(StdRequest::LEN..).unwrap_or_default();
        let bare = !checked.is_first() && rest.len() as u64 == checked.view.payload_length().into();
        if !bare {
            checked.extension = extension::CheckedExtension::new(checked.opcode, rest)?;
        }
        Ok(checked)
    }

    /// Checks the 44 bytes of the header without its extension.
    #[inline]
    pub(super) fn header(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = StdView::new(bytes)?;
        if view.version() != 0 {
            return Err(ParseError::Version);
        }
        let opcode = Opcode::from_u8(view.opcode()).ok_or(ParseError::Opcode)?;
        let next = view.flags() & SOM == 0;
        if view.reserved() != 0
            || (view.pid_on_fep() | view.resource_index()) & 0xF000 != 0
            || next && view.payload_length() > StdRequest::MAX_NEXT_PAYLOAD.into()
        {
            return Err(ParseError::Reserved);
        }
        Ok(Self { view, opcode, extension: extension::CheckedExtension::None })
    }

    #[inline]
    pub(super) const fn is_first(&self) -> bool {
        self.view.flags() & SOM != 0
    }

    #[inline]
    pub(super) const fn is_last(&self) -> bool {
        self.view.flags() & EOM != 0
    }

    #[inline]
    pub(super) const fn message_id(&self) -> u16 {
        self.view.message_id()
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        StdRequest::LEN + self.extension.len()
    }

    #[inline]
    pub(super) const fn build(self) -> StdRequest {
        let view = self.view;
        let flags = view.flags();
        StdRequest {
            opcode: self.opcode,
            delivery_complete: flags & DC != 0,
            initiator_error: flags & IE != 0,
            relative: flags & REL != 0,
            header_data_present: flags & HD != 0,
            eom: self.is_last(),
            som: self.is_first(),
            message_id: view.message_id(),
            ri_generation: view.ri_generation(),
            job_id: view.job_id(),
            pid_on_fep: view.pid_on_fep(),
            resource_index: view.resource_index(),
            buffer_offset: view.buffer_offset(),
            initiator: view.initiator(),
            match_bits: view.match_bits(),
            body: if self.is_first() {
                StdBody::First { header_data: view.header_data() }
            } else {
                StdBody::Next {
                    payload_length: (view.payload_length() & 0x3FFF) as u16,
                    message_offset: view.message_offset(),
                }
            },
            request_length: view.request_length(),
            extension: self.extension.build(),
        }
    }

    /// Checks the length of the payload against the lengths in the header.
    #[inline]
    pub(super) fn check_payload(&self, len: usize) -> Result<(), ParseError> {
        let len = len as u64;
        let total = u64::from(self.view.request_length());
        if self.is_first() && self.is_last() {
            return check_single(self.opcode, total, &self.extension, len);
        }
        // Bytes of the message that its packets carry. It is unknown for the continuation of a
        // rendezvous without the extension header.
        let carried = match self.extension {
            extension::CheckedExtension::Rendezvous(r) if u64::from(r.eager_length()) > total => {
                return Err(ParseError::Length);
            }
            extension::CheckedExtension::Rendezvous(r) => Some(u64::from(r.eager_length())),
            _ if self.opcode.is_rendezvous() => None,
            _ => Some(total),
        };
        let here = u64::from(self.view.payload_length());
        let fits = match payload_rule(self.opcode, &self.extension) {
            PayloadRule::Unknown => true,
            PayloadRule::Absent => len == 0,
            PayloadRule::Whole => len == total,
            PayloadRule::AtMost => len <= total && (self.is_first() || len == 0 || len == here),
            PayloadRule::Optional if len == 0 => true,
            // The first of several packets carries some of the message, but not all.
            PayloadRule::Message | PayloadRule::Optional if self.is_first() => {
                len > 0 && carried.is_none_or(|carried| len < carried)
            }
            // A later packet carries its payload_length inside the message, with EOM at the end
            // only.
            PayloadRule::Message | PayloadRule::Optional => {
                let end = u64::from(self.view.message_offset()) + here;
                let inside = match carried {
                    None => end <= total,
                    Some(carried) if self.is_last() => end == carried,
                    Some(carried) => end < carried,
                };
                len == here && inside
            }
        };
        if fits { Ok(()) } else { Err(ParseError::Length) }
    }
}
