//! RUD and ROD requests (table 3-33), with and without congestion-control state.

use super::{check_flags, flag, has, next_header, prologue};
use crate::base::Psn;
use crate::codes::{NextHeader, PdsType};
use crate::error::ParseError;
use crate::view::{be16, be16_signed, be24, be32, pds_view};

pds_view! {
    /// The 12 bytes that every RUD or ROD request starts with.
    RequestView [12] types (2 | 3 | 13 | 14);
    /// Distance from the PSN to CLEAR_PSN, up to which responses may be forgotten; signed.
    clear_psn_offset: i16 = |b| be16_signed(b, 2);
    /// Packet sequence number of the request.
    psn: u32 = |b| be32(b, 4);
    /// Id of the context at the request's sender.
    spdcid: u16 = |b| be16(b, 8);
    /// Id of the context at the request's receiver; with SYN `use_rsv_pdc[15], reserved[14:12],
    /// psn_offset[11:0]`.
    dpdcid: u16 = |b| be16(b, 10);
}

/// Delivery mode of a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Reliable, unordered delivery: packets are delivered in the order in which they arrive.
    Rud,
    /// Reliable, ordered delivery: packets are delivered in the order of their PSNs.
    Rod,
}

/// The receiver's context, as a request or a control packet names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dest {
    /// Id of a context that the receiver has opened, never 0.
    Pdc(u16),
    /// SYN: the receiver opens the context if it is new.
    Syn {
        /// The receiver should take the context from its reserved pool.
        use_rsv_pdc: bool,
        /// Distance from the context's first PSN to this packet's, 12 bits.
        psn_offset: u16,
    },
}

impl Dest {
    /// Largest value that the field psn_offset can hold (12 bits).
    pub const MAX_PSN_OFFSET: u16 = 0x0FFF;

    /// Checks the field: a context id is not 0, and the reserved bits of a SYN are 0.
    #[inline]
    pub(crate) const fn check(word: u16, syn: bool) -> Result<(), ParseError> {
        match (syn, word) {
            (true, _) if word & 0x7000 != 0 => Err(ParseError::Reserved),
            (false, 0) => Err(ParseError::Dpdcid),
            _ => Ok(()),
        }
    }

    /// Returns the destination that the bits of a valid field stand for.
    #[inline]
    pub(crate) const fn build(word: u16, syn: bool) -> Self {
        if syn {
            let psn_offset = word & Self::MAX_PSN_OFFSET;
            Self::Syn { use_rsv_pdc: word >> 15 == 1, psn_offset }
        } else {
            Self::Pdc(word)
        }
    }

    pub(crate) const fn word(self) -> u16 {
        match self {
            Self::Pdc(id) => id,
            Self::Syn { use_rsv_pdc, psn_offset } => {
                (use_rsv_pdc as u16) << 15 | psn_offset & Self::MAX_PSN_OFFSET
            }
        }
    }

    pub(crate) const fn is_syn(self) -> bool {
        matches!(self, Self::Syn { .. })
    }
}

/// Congestion-control state of a request (RUD_CC_REQ, ROD_CC_REQ).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ccc {
    /// Number of the congestion-control context; 0 where there is only one.
    pub ccc_id: u8,
    /// Total credit that the sender wants since the context opened, units of 256 bytes, 24 bits.
    pub credit_target: u32,
}

/// Content of [`Ccc`] in a network whose switches run 1RC, between endpoints that run s-PERC with
/// it: the packet was sent before its flow had a rate, and switches drop it if its number exceeds
/// the allowance of its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Speculation {
    /// Number of the epoch in which the flow started, modulo 128.
    pub epoch: u8,
    /// Number of the packet among the speculative packets of all flows of its host that started in
    /// this epoch, 14 bits.
    pub number: u16,
    /// Number of connections that the host had when the epoch began, 10 bits.
    pub weight: u16,
}

impl Speculation {
    /// Bit of `ccc_id` that is set for speculation and clear for credit.
    const MARK: u8 = 0x80;

    /// Returns the word on the wire: a one, `epoch[30:24]`, `number[23:10]`, `weight[9:0]`.
    #[must_use]
    pub const fn pack(self) -> Ccc {
        let low = (self.number as u32 & 0x3fff) << 10 | self.weight as u32 & 0x3ff;
        Ccc { ccc_id: self.epoch | Self::MARK, credit_target: low }
    }

    /// Returns the speculation in a word, if the word holds one.
    #[must_use]
    pub const fn of(ccc: Ccc) -> Option<Self> {
        if ccc.ccc_id & Self::MARK == 0 {
            return None;
        }
        Some(Self {
            epoch: ccc.ccc_id & !Self::MARK,
            // The number has 14 bits, the weight 10.
            number: (ccc.credit_target >> 10 & 0x3fff) as u16,
            weight: (ccc.credit_target & 0x3ff) as u16,
        })
    }
}

/// A RUD or ROD request. 12 bytes, 16 with [`Ccc`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Delivery mode of the context: RUD or ROD.
    pub mode: Mode,
    /// Kind of the SES header behind this one: a request, RESPONSE_DATA or RESPONSE_DATA_SMALL.
    pub next: NextHeader,
    /// RETX: this PSN was sent before.
    pub retx: bool,
    /// AR: the receiver should acknowledge the packet at once.
    pub ack_request: bool,
    /// Distance from the PSN to CLEAR_PSN, never positive: the responses of PSNs up to CLEAR_PSN
    /// may be forgotten.
    pub clear_psn_offset: i16,
    /// Packet sequence number of the request.
    pub psn: Psn,
    /// Id of the context at the request's sender, not 0.
    pub spdcid: u16,
    /// Id of the context at the request's receiver, or the context to open (SYN).
    pub dest: Dest,
    /// Congestion-control state, which makes the packet a RUD_CC_REQ or ROD_CC_REQ.
    pub ccc: Option<Ccc>,
}

impl Request {
    /// Length of the header in bytes, without [`Ccc`].
    pub const LEN: usize = 12;
    /// Length of the header in bytes, with [`Ccc`].
    pub const LEN_CC: usize = 16;

    /// Returns the length of this header in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        if self.ccc.is_some() { Self::LEN_CC } else { Self::LEN }
    }

    /// Returns the PSN of the context's first packet if this one is a SYN.
    #[must_use]
    pub const fn start_psn(&self) -> Option<Psn> {
        match self.dest {
            Dest::Syn { psn_offset, .. } => Some(self.psn.minus(psn_offset as u32)),
            Dest::Pdc(_) => None,
        }
    }

    /// Returns the PSN up to which responses are no longer needed.
    #[must_use]
    pub const fn clear_psn(&self) -> Psn {
        self.psn.offset(self.clear_psn_offset)
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let kind = match (self.mode, self.ccc.is_some()) {
            (Mode::Rud, false) => PdsType::RudReq,
            (Mode::Rod, false) => PdsType::RodReq,
            (Mode::Rud, true) => PdsType::RudCcReq,
            (Mode::Rod, true) => PdsType::RodCcReq,
        };
        let flags = [
            (flag::RETX, self.retx),
            (flag::AR, self.ack_request),
            (flag::SYN, self.dest.is_syn()),
        ];
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&prologue(kind, self.next.to_u8(), &flags));
        b[2..4].copy_from_slice(&self.clear_psn_offset.to_be_bytes());
        b[4..8].copy_from_slice(&self.psn.0.to_be_bytes());
        b[8..10].copy_from_slice(&self.spdcid.to_be_bytes());
        b[10..12].copy_from_slice(&self.dest.word().to_be_bytes());
        out[..Self::LEN].copy_from_slice(&b);
        if let Some(ccc) = self.ccc {
            let word = u32::from(ccc.ccc_id) << 24 | ccc.credit_target & 0x00FF_FFFF;
            out[Self::LEN..Self::LEN_CC].copy_from_slice(&word.to_be_bytes());
        }
        self.len()
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedRequest::new(bytes).map(CheckedRequest::build)
    }
}

/// A request header that obeys its rules, as a reference to its bytes, which is smaller than the
/// value.
#[derive(Clone, Copy)]
pub(crate) struct CheckedRequest<'a> {
    view: RequestView<'a>,
    pub(crate) next: NextHeader,
    /// The 16 bytes of the header, if the request carries congestion-control state.
    cc: Option<&'a [u8; Request::LEN_CC]>,
}

impl<'a> CheckedRequest<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = RequestView::new(bytes)?;
        let next = next_header(view.next(), |next| {
            !matches!(next, NextHeader::None | NextHeader::Response)
        })?;
        let flags = view.flags();
        check_flags(flags, flag::RETX | flag::AR | flag::SYN)?;
        if view.clear_psn_offset() > 0 {
            return Err(ParseError::ClearPsnOffset);
        }
        if view.spdcid() == 0 {
            return Err(ParseError::Spdcid);
        }
        Dest::check(view.dpdcid(), has(flags, flag::SYN))?;
        let cc = if view.pds_type() >= PdsType::RudCcReq.to_u8() {
            Some(bytes.first_chunk().ok_or(ParseError::Truncated)?)
        } else {
            None
        };
        Ok(Self { view, next, cc })
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        if self.cc.is_some() { Request::LEN_CC } else { Request::LEN }
    }

    #[inline]
    pub(crate) const fn build(self) -> Request {
        let view = self.view;
        let flags = view.flags();
        let rud = matches!(view.pds_type(), 2 | 13);
        Request {
            mode: if rud { Mode::Rud } else { Mode::Rod },
            next: self.next,
            retx: has(flags, flag::RETX),
            ack_request: has(flags, flag::AR),
            clear_psn_offset: view.clear_psn_offset(),
            psn: Psn(view.psn()),
            spdcid: view.spdcid(),
            dest: Dest::build(view.dpdcid(), has(flags, flag::SYN)),
            ccc: match self.cc {
                Some(b) => Some(Ccc { ccc_id: b[12], credit_target: be24(b, 13) }),
                None => None,
            },
        }
    }
}
