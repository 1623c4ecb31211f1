//! Control packets, 16 bytes (table 3-38).

use super::{Dest, check_flags, flag, has, prologue};
use crate::base::Psn;
use crate::codes::{ControlKind, PdsType};
use crate::error::ParseError;
use crate::view::{be16, be32, pds_view};

pds_view! {
    /// A control packet's header. The field `next` holds its kind.
    ControlView [16] types (11);
    /// Echoed by the answer to a probe; reserved in the other kinds.
    probe_opaque: u16 = |b| be16(b, 2);
    /// Packet sequence number; its use depends on the packet's kind.
    psn: u32 = |b| be32(b, 4);
    /// Id of the context at the packet's sender.
    spdcid: u16 = |b| be16(b, 8);
    /// Id of the context at the packet's receiver; with SYN as in a request.
    dpdcid: u16 = |b| be16(b, 10);
    /// Number whose meaning depends on the packet's kind.
    payload: u32 = |b| be32(b, 12);
}

/// The content of a control packet, which carries no data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// Kind of the control packet.
    pub kind: ControlKind,
    /// The context is ROD. The flag has a meaning in [`ControlKind::Noop`] and
    /// [`ControlKind::Negotiation`], which may open a context. Receivers ignore it in the other
    /// kinds: SUET sets it in CLOSE_COMMAND too.
    pub isrod: bool,
    /// RETX: this PSN was sent before.
    pub retx: bool,
    /// AR: the receiver should acknowledge the packet at once.
    pub ack_request: bool,
    /// Number of a probe, which its answer echoes; 0 except in a [`ControlKind::Probe`].
    pub probe_opaque: u16,
    /// Packet sequence number. CLOSE_COMMAND and CLOSE_REQUEST consume a new PSN, ACK_REQUEST
    /// repeats the PSN whose acknowledgement it requests, CLEAR_COMMAND and CLEAR_REQUEST use 0.
    pub psn: Psn,
    /// Id of the context at the packet's sender, not 0.
    pub spdcid: u16,
    /// Id of the context at the packet's receiver, or the context to open (SYN).
    pub dest: Dest,
    /// Payload, whose meaning depends on the kind ([`ControlKind`]); 0 in NOOP, CLOSE_COMMAND and
    /// CLOSE_REQUEST.
    pub payload: u32,
}

impl Control {
    /// Length of a control packet's header in bytes.
    pub const LEN: usize = 16;

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
        let flags = [
            (flag::ISROD, self.isrod),
            (flag::RETX, self.retx),
            (flag::AR, self.ack_request),
            (flag::SYN, self.dest.is_syn()),
        ];
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&prologue(PdsType::Control, self.kind.to_u8(), &flags));
        b[2..4].copy_from_slice(&self.probe_opaque.to_be_bytes());
        b[4..8].copy_from_slice(&self.psn.0.to_be_bytes());
        b[8..10].copy_from_slice(&self.spdcid.to_be_bytes());
        b[10..12].copy_from_slice(&self.dest.word().to_be_bytes());
        b[12..16].copy_from_slice(&self.payload.to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        Self::LEN
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let view = ControlView::new(bytes)?;
        let Some(kind) = ControlKind::from_u8(view.next()) else {
            return Err(ParseError::ControlKind);
        };
        let flags = view.flags();
        check_flags(flags, flag::ISROD | flag::RETX | flag::AR | flag::SYN)?;
        if kind != ControlKind::Probe && view.probe_opaque() != 0 {
            return Err(ParseError::Reserved);
        }
        if view.spdcid() == 0 {
            return Err(ParseError::Spdcid);
        }
        let empty = matches!(
            kind,
            ControlKind::Noop | ControlKind::CloseCommand | ControlKind::CloseRequest
        );
        if empty && view.payload() != 0 {
            return Err(ParseError::ControlPayload);
        }
        Dest::check(view.dpdcid(), has(flags, flag::SYN))?;
        Ok(Self {
            kind,
            isrod: has(flags, flag::ISROD),
            retx: has(flags, flag::RETX),
            ack_request: has(flags, flag::AR),
            probe_opaque: view.probe_opaque(),
            psn: Psn(view.psn()),
            spdcid: view.spdcid(),
            dest: Dest::build(view.dpdcid(), has(flags, flag::SYN)),
            payload: view.payload(),
        })
    }
}
