//! Packets without a delivery context: RUDI, 8 bytes, and UUD, 4 bytes.

use super::{check_flags, flag, has, next_header, prologue};
use crate::codes::{NextHeader, PdsType};
use crate::error::ParseError;
use crate::view::{be16, be32, pds_view};

pds_view! {
    /// The header of a RUDI request or response: reliable delivery without a context.
    RudiView [8] types (4 | 5);
    /// Reserved field, zero.
    reserved: u16 = |b| be16(b, 2);
    /// Number that the initiator gave to the packet.
    packet_id: u32 = |b| be32(b, 4);
}

pds_view! {
    /// The header of a UUD request: unreliable delivery.
    UudView [4] types (6);
    /// Reserved field, zero.
    reserved: u16 = |b| be16(b, 2);
}

/// A RUDI request, which arrives at least once and needs no context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RudiRequest {
    /// Kind of the SES header behind this one: a small, medium or standard request.
    pub next: NextHeader,
    /// RETX: this packet was sent before.
    pub retx: bool,
    /// Number that the initiator gave to the packet, by which the answer names it.
    pub packet_id: u32,
}

/// The target's answer to a RUDI request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RudiResponse {
    /// Kind of the SES header behind this one: a response.
    pub next: NextHeader,
    /// M: the request was marked Congestion Experienced.
    pub ce: bool,
    /// Echo of the request's flag RETX (retransmission).
    pub retx: bool,
    /// The number of the request that is answered.
    pub packet_id: u32,
}

/// A request of unreliable delivery (UUD).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Uud {
    /// Kind of the SES header behind this one: a small, medium or standard request.
    pub next: NextHeader,
}

const fn is_request(next: NextHeader) -> bool {
    matches!(next, NextHeader::RequestSmall | NextHeader::RequestMedium | NextHeader::RequestStd)
}

fn emit_rudi(out: &mut [u8], head: [u8; 2], packet_id: u32) -> usize {
    let mut b = [0; 8];
    b[0..2].copy_from_slice(&head);
    b[4..8].copy_from_slice(&packet_id.to_be_bytes());
    out[..8].copy_from_slice(&b);
    8
}

impl RudiRequest {
    /// Length of a RUDI request's PDS header in bytes.
    pub const LEN: usize = 8;

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
        let flags = [(flag::RETX, self.retx)];
        emit_rudi(out, prologue(PdsType::RudiReq, self.next.to_u8(), &flags), self.packet_id)
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let view = RudiView::new(bytes)?;
        if view.pds_type() != PdsType::RudiReq.to_u8() {
            return Err(ParseError::Kind);
        }
        let next = next_header(view.next(), is_request)?;
        check_flags(view.flags(), flag::RETX)?;
        if view.reserved() != 0 {
            return Err(ParseError::Reserved);
        }
        Ok(Self { next, retx: has(view.flags(), flag::RETX), packet_id: view.packet_id() })
    }
}

impl RudiResponse {
    /// Length of a RUDI response's PDS header in bytes.
    pub const LEN: usize = 8;

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
        let flags = [(flag::M, self.ce), (flag::RETX, self.retx)];
        emit_rudi(out, prologue(PdsType::RudiResp, self.next.to_u8(), &flags), self.packet_id)
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let view = RudiView::new(bytes)?;
        if view.pds_type() != PdsType::RudiResp.to_u8() {
            return Err(ParseError::Kind);
        }
        let next = next_header(view.next(), |next| next != NextHeader::None && !is_request(next))?;
        check_flags(view.flags(), flag::M | flag::RETX)?;
        if view.reserved() != 0 {
            return Err(ParseError::Reserved);
        }
        Ok(Self {
            next,
            ce: has(view.flags(), flag::M),
            retx: has(view.flags(), flag::RETX),
            packet_id: view.packet_id(),
        })
    }
}

impl Uud {
    /// Length of a UUD request's PDS header in bytes.
    pub const LEN: usize = 4;

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
        out[..2].copy_from_slice(&prologue(PdsType::UudReq, self.next.to_u8(), &[]));
        out[2..Self::LEN].fill(0);
        Self::LEN
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let view = UudView::new(bytes)?;
        let next = next_header(view.next(), is_request)?;
        check_flags(view.flags(), 0)?;
        if view.reserved() != 0 {
            return Err(ParseError::Reserved);
        }
        Ok(Self { next })
    }
}
