//! Responses (table 3-11): without data 12 bytes, with data 20, with small data 12.

use crate::codes::{List, ResponseOpcode, ReturnCode};
use crate::error::ParseError;
use crate::view::{be16, be32, response_view};

response_view! {
    /// The SES header of a response without data.
    ResponseView [12];
    /// Message id of the request that is answered.
    message_id: u16 = |b| be16(b, 2);
    /// Generation of the resource index, as in the request.
    ri_generation: u8 = |b| b[4];
    /// Number of bytes that the request moved at the target.
    modified_length: u32 = |b| be32(b, 8);
}

response_view! {
    /// The SES header of a response with data.
    ResponseDataView [20];
    /// Message id of the response itself.
    response_message_id: u16 = |b| be16(b, 2);
    /// Reserved field, zero.
    reserved: u8 = |b| b[4];
    /// Message id of the read request that is answered.
    read_request_message_id: u16 = |b| be16(b, 8);
    /// Two reserved bits, and the length of the payload in bytes.
    payload_length: u16 = |b| be16(b, 10);
    /// Number of bytes that the request moves in all.
    modified_length: u32 = |b| be32(b, 12);
    /// Offset of this packet's payload in the response, in bytes.
    message_offset: u32 = |b| be32(b, 16);
}

response_view! {
    /// The SES header of a response with the data of a request of a single packet.
    ResponseDataSmallView [12];
    /// Two reserved bits, and the length of the payload in bytes.
    payload_length: u16 = |b| be16(b, 2);
    /// Reserved field, zero.
    reserved: u8 = |b| b[4];
    /// PSN of the request that is answered.
    original_request_psn: u32 = |b| be32(b, 8);
}

/// A SES response without data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Response {
    /// The list at the target in which the message found its buffer.
    pub list: List,
    /// Kind of the response, any but [`ResponseOpcode::ResponseWithData`].
    pub opcode: ResponseOpcode,
    /// Result of the request at the target.
    pub return_code: ReturnCode,
    /// Message id of the request that is answered.
    pub message_id: u16,
    /// Generation of the resource index, as in the request.
    pub ri_generation: u8,
    /// JobID of the request, 24 bits.
    pub job_id: u32,
    /// Number of bytes that the request moved at the target.
    pub modified_length: u32,
}

/// A packet of the data that a read or a fetching atomic requested. Its opcode is
/// [`ResponseOpcode::ResponseWithData`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResponseData {
    /// The list at the target in which the message found its buffer.
    pub list: List,
    /// Result of the request at the target.
    pub return_code: ReturnCode,
    /// Message id of the response itself.
    pub response_message_id: u16,
    /// JobID of the request, 24 bits.
    pub job_id: u32,
    /// Message id of the read request that is answered.
    pub read_request_message_id: u16,
    /// Length of this packet's payload in bytes, 14 bits.
    pub payload_length: u16,
    /// Number of bytes that the request moves in all.
    pub modified_length: u32,
    /// Offset of this packet's payload in the response, in bytes.
    pub message_offset: u32,
}

/// The data that a single-packet request asked for. Its opcode is
/// [`ResponseOpcode::ResponseWithData`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResponseDataSmall {
    /// The list at the target in which the message found its buffer.
    pub list: List,
    /// Result of the request at the target.
    pub return_code: ReturnCode,
    /// Length of the payload in bytes, 14 bits.
    pub payload_length: u16,
    /// JobID of the request, 24 bits.
    pub job_id: u32,
    /// PSN of the request that is answered.
    pub original_request_psn: u32,
}

/// Largest payload in bytes that the length field of 14 bits can give.
const MAX_LENGTH: u16 = 0x3FFF;

const fn first_bytes(list: List, opcode: ResponseOpcode, code: ReturnCode) -> [u8; 2] {
    [list.to_u8() << 6 | opcode.to_u8(), code.to_u8() & 0x3F]
}

/// Fields at the start of all three response headers, after their check.
#[derive(Clone, Copy)]
struct ResponseStart {
    list: List,
    opcode: ResponseOpcode,
    return_code: ReturnCode,
}

impl ResponseStart {
    #[inline]
    fn new(b0: u8, b1: u8, with_data: bool) -> Result<Self, ParseError> {
        if b1 >> 6 != 0 {
            return Err(ParseError::Version);
        }
        let opcode = ResponseOpcode::from_u8(b0 & 0x3F).ok_or(ParseError::Opcode)?;
        if (opcode == ResponseOpcode::ResponseWithData) != with_data {
            return Err(ParseError::OpcodeContext);
        }
        let return_code = ReturnCode::from_u8(b1 & 0x3F).ok_or(ParseError::ReturnCode)?;
        let list = match b0 >> 6 {
            0 => List::Expected,
            1 => List::Overflow,
            2 => List::Vendor2,
            _ => List::Vendor3,
        };
        Ok(Self { list, opcode, return_code })
    }
}

impl Response {
    /// Length of the header of a response without data in bytes.
    pub const LEN: usize = 12;

    /// Returns the response that the PDS sends if the message layer has given none.
    #[must_use]
    pub const fn default_for(message_id: u16) -> Self {
        Self {
            list: List::Expected,
            opcode: ResponseOpcode::Default,
            return_code: ReturnCode::Null,
            message_id,
            ri_generation: 0,
            job_id: 0,
            modified_length: 0,
        }
    }

    /// Returns the length of the header in bytes, [`Self::LEN`].
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        Self::LEN
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&first_bytes(self.list, self.opcode, self.return_code));
        b[2..4].copy_from_slice(&self.message_id.to_be_bytes());
        let job = u32::from(self.ri_generation) << 24 | self.job_id & 0x00FF_FFFF;
        b[4..8].copy_from_slice(&job.to_be_bytes());
        b[8..12].copy_from_slice(&self.modified_length.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        Self::LEN
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedResponse::new(bytes).map(CheckedResponse::build)
    }
}

impl ResponseData {
    /// Length of the header of a response with data in bytes.
    pub const LEN: usize = 20;
    /// Largest payload of a packet in bytes: the length field has 14 bits.
    pub const MAX_PAYLOAD: u16 = MAX_LENGTH;

    /// Returns the length of the header in bytes, [`Self::LEN`].
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        Self::LEN
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let opcode = ResponseOpcode::ResponseWithData;
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&first_bytes(self.list, opcode, self.return_code));
        b[2..4].copy_from_slice(&self.response_message_id.to_be_bytes());
        b[4..8].copy_from_slice(&(self.job_id & 0x00FF_FFFF).to_be_bytes());
        b[8..10].copy_from_slice(&self.read_request_message_id.to_be_bytes());
        b[10..12].copy_from_slice(&(self.payload_length & MAX_LENGTH).to_be_bytes());
        b[12..16].copy_from_slice(&self.modified_length.to_be_bytes());
        b[16..20].copy_from_slice(&self.message_offset.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        Self::LEN
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedData::new(bytes).map(CheckedData::build)
    }
}

impl ResponseDataSmall {
    /// Length of the header of a response with small data in bytes.
    pub const LEN: usize = 12;
    /// Largest payload of a packet in bytes: the length field has 14 bits.
    pub const MAX_PAYLOAD: u16 = MAX_LENGTH;

    /// Returns the length of the header in bytes, [`Self::LEN`].
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        Self::LEN
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::LEN`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let opcode = ResponseOpcode::ResponseWithData;
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&first_bytes(self.list, opcode, self.return_code));
        b[2..4].copy_from_slice(&(self.payload_length & MAX_LENGTH).to_be_bytes());
        b[4..8].copy_from_slice(&(self.job_id & 0x00FF_FFFF).to_be_bytes());
        b[8..12].copy_from_slice(&self.original_request_psn.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        Self::LEN
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedDataSmall::new(bytes).map(CheckedDataSmall::build)
    }
}

/// A response that obeys its rules, as a reference to its bytes.
#[derive(Clone, Copy)]
pub(crate) struct CheckedResponse<'a>(ResponseView<'a>, ResponseStart);

impl<'a> CheckedResponse<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = ResponseView::new(bytes)?;
        let b = view.bytes();
        Ok(Self(view, ResponseStart::new(b[0], b[1], false)?))
    }

    #[inline]
    pub(super) const fn build(self) -> Response {
        let Self(view, start) = self;
        Response {
            list: start.list,
            opcode: start.opcode,
            return_code: start.return_code,
            message_id: view.message_id(),
            ri_generation: view.ri_generation(),
            job_id: view.job_id(),
            modified_length: view.modified_length(),
        }
    }
}

/// A response with data that obeys its rules, as a reference to its bytes.
#[derive(Clone, Copy)]
pub(crate) struct CheckedData<'a>(ResponseDataView<'a>, ResponseStart);

impl<'a> CheckedData<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = ResponseDataView::new(bytes)?;
        let b = view.bytes();
        let start = ResponseStart::new(b[0], b[1], true)?;
        if view.reserved() != 0 || view.payload_length() > MAX_LENGTH {
            return Err(ParseError::Reserved);
        }
        Ok(Self(view, start))
    }

    #[inline]
    pub(super) const fn payload_length(&self) -> u16 {
        self.0.payload_length()
    }

    #[inline]
    pub(super) const fn build(self) -> ResponseData {
        let Self(view, start) = self;
        ResponseData {
            list: start.list,
            return_code: start.return_code,
            response_message_id: view.response_message_id(),
            job_id: view.job_id(),
            read_request_message_id: view.read_request_message_id(),
            payload_length: view.payload_length(),
            modified_length: view.modified_length(),
            message_offset: view.message_offset(),
        }
    }
}

/// A response with small data that obeys its rules, as a reference to its bytes.
#[derive(Clone, Copy)]
pub(crate) struct CheckedDataSmall<'a>(ResponseDataSmallView<'a>, ResponseStart);

impl<'a> CheckedDataSmall<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = ResponseDataSmallView::new(bytes)?;
        let b = view.bytes();
        let start = ResponseStart::new(b[0], b[1], true)?;
        if view.reserved() != 0 || view.payload_length() > MAX_LENGTH {
            return Err(ParseError::Reserved);
        }
        Ok(Self(view, start))
    }

    pub(super) const fn payload_length(&self) -> u16 {
        self.0.payload_length()
    }

    pub(super) const fn build(self) -> ResponseDataSmall {
        let Self(view, start) = self;
        ResponseDataSmall {
            list: start.list,
            return_code: start.return_code,
            payload_length: view.payload_length(),
            job_id: view.job_id(),
            original_request_psn: view.original_request_psn(),
        }
    }
}
