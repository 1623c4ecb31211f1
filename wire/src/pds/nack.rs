//! Negative acknowledgements: NACK, 16 bytes, and NACK_CCX, 32 bytes.

use super::{check_flags, flag, has, next_header, prologue};
use crate::base::Psn;
use crate::codes::{NackCode, NextHeader, PdsType};
use crate::error::ParseError;
use crate::view::{be16, be32, pds_view};

pds_view! {
    /// The 16 bytes that every NACK starts with.
    NackView [16] types (10 | 12);
    /// Reason of the refusal (table 3-58).
    code: u8 = |b| b[2];
    /// Code of the vendor beside the reason.
    vendor_code: u8 = |b| b[3];
    /// PSN of the refused packet; for RUDI its packet id.
    psn: u32 = |b| be32(b, 4);
    /// Id of the context at the NACK's sender.
    spdcid: u16 = |b| be16(b, 8);
    /// Id of the context at the NACK's receiver.
    dpdcid: u16 = |b| be16(b, 10);
    /// Number whose meaning depends on the code.
    payload: u32 = |b| be32(b, 12);
}

/// The 16 bytes that a NACK_CCX adds: nccx_type in the first four bits, then a vendor's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NackCcx(pub [u8; 16]);

impl NackCcx {
    /// Returns the type of the vendor's congestion-control state (nccx_type), 4 bits.
    #[must_use]
    pub const fn nccx_type(&self) -> u8 {
        self.0[0] >> 4
    }
}

/// A negative acknowledgement, which refuses a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nack {
    /// M: the refused packet was marked Congestion Experienced.
    pub ce: bool,
    /// Echo of the refused packet's flag RETX (retransmission).
    pub retx: bool,
    /// NT: the refused packet was RUDI; `psn` is its packet id and both context ids are 0.
    pub rudi: bool,
    /// Reason why the packet is refused.
    pub code: NackCode,
    /// Code of the vendor beside the reason, 0 when there is none.
    pub vendor_code: u8,
    /// PSN of the refused packet.
    pub psn: Psn,
    /// Id of the context at the NACK's sender; 0 when the target has no context
    /// ([`NackCode::needs_context`] is false).
    pub spdcid: u16,
    /// Id of the context at the NACK's receiver, not 0 except for RUDI.
    pub dpdcid: u16,
    /// The highest PSN received plus 1; for [`NackCode::NewStartPsn`] the new start PSN.
    pub payload: u32,
    /// Congestion-control state of a vendor, which makes the packet a NACK_CCX.
    pub ccx: Option<NackCcx>,
}

impl Nack {
    /// Length of a NACK in bytes.
    pub const LEN: usize = 16;
    /// Length of a NACK_CCX in bytes.
    pub const LEN_CCX: usize = 32;

    /// Returns the length of this NACK in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        if self.ccx.is_some() { Self::LEN_CCX } else { Self::LEN }
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let kind = if self.ccx.is_some() { PdsType::NackCcx } else { PdsType::Nack };
        let flags = [(flag::M, self.ce), (flag::RETX, self.retx), (flag::NT, self.rudi)];
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&prologue(kind, NextHeader::None.to_u8(), &flags));
        b[2] = self.code.to_u8();
        b[3] = self.vendor_code;
        b[4..8].copy_from_slice(&self.psn.0.to_be_bytes());
        b[8..10].copy_from_slice(&self.spdcid.to_be_bytes());
        b[10..12].copy_from_slice(&self.dpdcid.to_be_bytes());
        b[12..16].copy_from_slice(&self.payload.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        if let Some(ccx) = &self.ccx {
            out[Self::LEN..Self::LEN_CCX].copy_from_slice(&ccx.0);
        }
        self.len()
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let view = NackView::new(bytes)?;
        next_header(view.next(), |next| next == NextHeader::None)?;
        let flags = view.flags();
        check_flags(flags, flag::M | flag::RETX | flag::NT)?;
        let rudi = has(flags, flag::NT);
        let Some(code) = NackCode::from_u8(view.code()) else {
            return Err(ParseError::NackCode);
        };
        let (spdcid, dpdcid) = (view.spdcid(), view.dpdcid());
        let bad_spdcid = if rudi { spdcid != 0 } else { spdcid == 0 && code.needs_context() };
        if bad_spdcid {
            return Err(ParseError::Spdcid);
        }
        if rudi != (dpdcid == 0) {
            return Err(ParseError::Dpdcid);
        }
        let ccx = if view.pds_type() == PdsType::NackCcx.to_u8() {
            let Some((_, rest)) = bytes.split_first_chunk::<{ Self::LEN }>() else {
                return Err(ParseError::Truncated);
            };
            let Some(state) = rest.first_chunk() else {
                return Err(ParseError::Truncated);
            };
            Some(NackCcx(*state))
        } else {
            None
        };
        Ok(Self {
            ce: has(flags, flag::M),
            retx: has(flags, flag::RETX),
            rudi,
            code,
            vendor_code: view.vendor_code(),
            psn: Psn(view.psn()),
            spdcid,
            dpdcid,
            payload: view.payload(),
            ccx,
        })
    }
}
