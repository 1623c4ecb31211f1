//! Small (20 bytes) and medium (32 bytes) requests: messages of one packet.

use super::std_request::{DC, EOM, HD, IE, REL, SOM};
use super::{Extension, check_single, extension};
use crate::codes::Opcode;
use crate::error::ParseError;
use crate::view::{be16, be32, be64, request_view, view};

request_view! {
    /// A small request's SES header.
    SmallView [20];
    /// Two reserved bits, and the length of the message in bytes.
    request_length: u16 = |b| be16(b, 2);
    /// Small: offset in the target's buffer. Medium: that offset, or with HD the header data.
    buffer_offset: u64 = |b| be64(b, 12);
}

view! {
    /// A medium request's SES header. Its first 20 bytes are a [`SmallView`].
    MediumView [32] if |_b| true;
    /// Number of the endpoint that initiated the request.
    initiator: u32 = |b| be32(b, 20);
    /// Tag of a message, or key of the memory region.
    match_bits: u64 = |b| be64(b, 24);
}

/// A small request, which has no message id and no tag. SOM and EOM are always set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SmallRequest {
    /// Operation that the target performs.
    pub opcode: Opcode,
    /// DC: the target answers only when the data is globally visible.
    pub delivery_complete: bool,
    /// IE: the initiator met an error in the message.
    pub initiator_error: bool,
    /// REL: the process number PIDonFEP is relative to the job.
    pub relative: bool,
    /// Length of the message in bytes, 14 bits.
    pub request_length: u16,
    /// Generation of the resource that `resource_index` names.
    pub ri_generation: u8,
    /// JobID of the initiator's job, 24 bits.
    pub job_id: u32,
    /// Number of the process on the target's endpoint, 12 bits.
    pub pid_on_fep: u16,
    /// Index of the resource in the target's process, 12 bits.
    pub resource_index: u16,
    /// Offset in the target's buffer, in bytes.
    pub buffer_offset: u64,
    /// Extension header that the opcode requires.
    pub extension: Extension,
}

/// A medium request, which has no message id. SOM and EOM are always set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MediumRequest {
    /// Operation that the target performs.
    pub opcode: Opcode,
    /// DC: the target answers only when the data is globally visible.
    pub delivery_complete: bool,
    /// IE: the initiator met an error in the message.
    pub initiator_error: bool,
    /// REL: the process number PIDonFEP is relative to the job.
    pub relative: bool,
    /// HD: bytes 12 to 19 of the header are header data, not an offset.
    pub header_data_present: bool,
    /// Length of the message in bytes, 14 bits.
    pub request_length: u16,
    /// Generation of the resource that `resource_index` names.
    pub ri_generation: u8,
    /// JobID of the initiator's job, 24 bits.
    pub job_id: u32,
    /// Number of the process on the target's endpoint, 12 bits.
    pub pid_on_fep: u16,
    /// Index of the resource in the target's process, 12 bits.
    pub resource_index: u16,
    /// Header data when `header_data_present`, else the offset in the target's buffer.
    pub header_data_or_offset: u64,
    /// Number of the endpoint that initiated the request.
    pub initiator: u32,
    /// Tag of a message, or key of the memory region.
    pub match_bits: u64,
    /// Extension header that the opcode requires.
    pub extension: Extension,
}

impl SmallRequest {
    /// Length of the header in bytes, without its extension.
    pub const LEN: usize = 20;
    /// Length in bytes of the longest message that fits the field of 14 bits.
    pub const MAX_LENGTH: u16 = 0x3FFF;

    /// Returns the length of the header with its extension in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        Self::LEN + self.extension.len()
    }

    /// Writes the header with its extension and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut b = [0; Self::LEN];
        b[0] = self.opcode.to_u8();
        b[1] = if self.delivery_complete { DC } else { 0 }
            | if self.initiator_error { IE } else { 0 }
            | if self.relative { REL } else { 0 }
            | EOM
            | SOM;
        b[2..4].copy_from_slice(&(self.request_length & Self::MAX_LENGTH).to_be_bytes());
        let job = u32::from(self.ri_generation) << 24 | self.job_id & 0x00FF_FFFF;
        b[4..8].copy_from_slice(&job.to_be_bytes());
        b[8..10].copy_from_slice(&(self.pid_on_fep & 0xFFF).to_be_bytes());
        b[10..12].copy_from_slice(&(self.resource_index & 0xFFF).to_be_bytes());
        b[12..20].copy_from_slice(&self.buffer_offset.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        Self::LEN + self.extension.emit(&mut out[Self::LEN..])
    }

    /// Reads the header and its extension at the start of `bytes` and checks their rules.
    ///
    /// # Errors
    /// Returns the rule that they break.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedSmall::new(bytes).map(CheckedSmall::build)
    }
}

impl MediumRequest {
    /// Length of the header in bytes, without its extension.
    pub const LEN: usize = 32;

    /// Returns the length of the header with its extension in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        Self::LEN + self.extension.len()
    }

    /// Writes the header with its extension and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let head = SmallRequest {
            opcode: self.opcode,
            delivery_complete: self.delivery_complete,
            initiator_error: self.initiator_error,
            relative: self.relative,
            request_length: self.request_length,
            ri_generation: self.ri_generation,
            job_id: self.job_id,
            pid_on_fep: self.pid_on_fep,
            resource_index: self.resource_index,
            buffer_offset: self.header_data_or_offset,
            extension: Extension::None,
        };
        head.emit(out);
        if self.header_data_present {
            out[1] |= HD;
        }
        out[20..24].copy_from_slice(&self.initiator.to_be_bytes());
        out[24..32].copy_from_slice(&self.match_bits.to_be_bytes());
        Self::LEN + self.extension.emit(&mut out[Self::LEN..])
    }

    /// Reads the header and its extension at the start of `bytes` and checks their rules.
    ///
    /// # Errors
    /// Returns the rule that they break.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedMedium::new(bytes).map(CheckedMedium::build)
    }
}

/// A small request that obeys its rules, as a reference to its bytes.
#[derive(Clone, Copy)]
pub(crate) struct CheckedSmall<'a> {
    view: SmallView<'a>,
    pub(super) opcode: Opcode,
    extension: extension::CheckedExtension<'a>,
}

impl<'a> CheckedSmall<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut checked = Self::header(bytes, 0)?;
        let rest = bytes.get(SmallRequest::LEN..).unwrap_or_default();
        checked.extension = extension::CheckedExtension::new(checked.opcode, rest)?;
        Ok(checked)
    }

    /// Checks the 20 bytes that small and medium requests share; the medium one also allows `HD`.
    fn header(bytes: &'a [u8], hd: u8) -> Result<Self, ParseError> {
        let view = SmallView::new(bytes)?;
        if view.version() != 0 {
            return Err(ParseError::Version);
        }
        let opcode = Opcode::from_u8(view.opcode()).ok_or(ParseError::Opcode)?;
        let flags = view.flags();
        if flags & HD & !hd != 0 || view.reserved() != 0 {
            return Err(ParseError::Reserved);
        }
        if flags & (SOM | EOM) != SOM | EOM {
            return Err(ParseError::SomEom);
        }
        if (view.pid_on_fep() | view.resource_index()) & 0xF000 != 0
            || view.request_length() > SmallRequest::MAX_LENGTH
        {
            return Err(ParseError::Reserved);
        }
        Ok(Self { view, opcode, extension: extension::CheckedExtension::None })
    }

    pub(super) const fn len(&self) -> usize {
        SmallRequest::LEN + self.extension.len()
    }

    pub(super) fn check_payload(&self, len: usize) -> Result<(), ParseError> {
        check_single(self.opcode, self.view.request_length().into(), &self.extension, len as u64)
    }

    pub(super) const fn build(self) -> SmallRequest {
        let view = self.view;
        let flags = view.flags();
        SmallRequest {
            opcode: self.opcode,
            delivery_complete: flags & DC != 0,
            initiator_error: flags & IE != 0,
            relative: flags & REL != 0,
            request_length: view.request_length(),
            ri_generation: view.ri_generation(),
            job_id: view.job_id(),
            pid_on_fep: view.pid_on_fep(),
            resource_index: view.resource_index(),
            buffer_offset: view.buffer_offset(),
            extension: self.extension.build(),
        }
    }
}

/// A medium request that obeys its rules, as a reference to its bytes.
#[derive(Clone, Copy)]
pub(crate) struct CheckedMedium<'a> {
    view: MediumView<'a>,
    /// The first 20 bytes, as in a small request, and the extension header.
    small: CheckedSmall<'a>,
}

impl<'a> CheckedMedium<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = MediumView::new(bytes)?;
        let mut small = CheckedSmall::header(bytes, HD)?;
        let rest = bytes.get(MediumRequest::LEN..).unwrap_or_default();
        small.extension = extension::CheckedExtension::new(small.opcode, rest)?;
        Ok(Self { view, small })
    }

    pub(super) const fn opcode(&self) -> Opcode {
        self.small.opcode
    }

    pub(super) const fn len(&self) -> usize {
        MediumRequest::LEN + self.small.extension.len()
    }

    pub(super) fn check_payload(&self, len: usize) -> Result<(), ParseError> {
        self.small.check_payload(len)
    }

    pub(super) const fn build(self) -> MediumRequest {
        let head = self.small.build();
        MediumRequest {
            opcode: head.opcode,
            delivery_complete: head.delivery_complete,
            initiator_error: head.initiator_error,
            relative: head.relative,
            header_data_present: self.small.view.flags() & HD != 0,
            request_length: head.request_length,
            ri_generation: head.ri_generation,
            job_id: head.job_id,
            pid_on_fep: head.pid_on_fep,
            resource_index: head.resource_index,
            header_data_or_offset: head.buffer_offset,
            initiator: self.view.initiator(),
            match_bits: self.view.match_bits(),
            extension: head.extension,
        }
    }
}
