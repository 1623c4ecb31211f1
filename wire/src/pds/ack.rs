//! ACK (table 3-35), ACK_CC and ACK_CCX (tables 3-36, 3-37).

use super::{check_flags, flag, has, next_header, prologue};
use crate::base::Psn;
use crate::codes::{NextHeader, PdsType};
use crate::error::ParseError;
use crate::view::{be16, be16_signed, be24, be32, be64, pds_view};

pds_view! {
    /// The 12 bytes that every ACK starts with.
    AckView [12] types (7..=9);
    /// ACK_PSN - CACK_PSN, signed; the echoed probe_opaque with the P flag.
    ack_psn_offset: i16 = |b| be16_signed(b, 2);
    /// Cumulative acknowledgement: every PSN up to this one was received.
    cack_psn: u32 = |b| be32(b, 4);
    /// Id of the context at the ACK's sender.
    spdcid: u16 = |b| be16(b, 8);
    /// Id of the context at the ACK's receiver.
    dpdcid: u16 = |b| be16(b, 10);
}

pds_view! {
    /// An ACK with the EPSN flag, 16 bytes. The fields before byte 12 are in [`AckView`].
    AckEpsnView [16] types (7);
    /// PSN at which the target expects the initiator's next context to start.
    expected_psn: u32 = |b| be32(b, 12);
}

pds_view! {
    /// An ACK_CC, 32 bytes. The fields before byte 12 are in [`AckView`].
    AckCcView [32] types (8);
    /// Congestion-control type, 4 bits: 0 for NSCC, 1 for credit.
    cc_type: u8 = |b| b[12] >> 4;
    /// Reserved field cc_flags, 4 bits.
    cc_flags: u8 = |b| b[12] & 0x0F;
    /// Maximum PSN range, units of 128 PSNs; 0 means unknown.
    mpr: u8 = |b| b[13];
    /// Distance from CACK_PSN to the PSN of the bitmap's first bit (SACK_Base), signed.
    sack_psn_offset: i16 = |b| be16_signed(b, 14);
    /// SACK bitmap: bit i tells that packet SACK_Base + i was received.
    sack_bitmap: u64 = |b| be64(b, 16);
    /// Field of NSCC: time between the packet's arrival and the ACK, in units of 128 ns.
    service_time: u16 = |b| be16(b, 24);
    /// Field of NSCC: the sender should restore its window from before the penalty.
    restore_cwnd: bool = |b| b[26] >> 7 == 1;
    /// Field of NSCC: penalty by which the sender lowers its window, 7 bits.
    rcv_cwnd_pend: u8 = |b| b[26] & 0x7F;
    /// Field of NSCC: bytes received on the context, 24 bits, units of 256 bytes.
    rcvd_bytes: u32 = |b| be24(b, 27);
    /// Field of credit: total credit granted, 24 bits, units of 256 bytes.
    credit: u32 = |b| be24(b, 24);
    /// Number of packets received out of order at this moment.
    ooo_count: u16 = |b| be16(b, 30);
}

pds_view! {
    /// An ACK_CCX, 40 bytes. The fields before byte 12 are in [`AckView`].
    AckCcxView [40] types (9);
    /// Congestion-control type, 4 bits; 14 and 15 belong to vendors.
    cc_type: u8 = |b| b[12] >> 4;
    /// Reserved field cc_flags, 4 bits.
    cc_flags: u8 = |b| b[12] & 0x0F;
    /// Maximum PSN range, units of 128 PSNs; 0 means unknown.
    mpr: u8 = |b| b[13];
    /// Distance from CACK_PSN to the PSN of the bitmap's first bit (SACK_Base), signed.
    sack_psn_offset: i16 = |b| be16_signed(b, 14);
    /// SACK bitmap: bit i tells that packet SACK_Base + i was received.
    sack_bitmap: u64 = |b| be64(b, 16);
    /// Congestion-control state in the vendor's own format.
    state: [u8; 16] = |b| {
        let (_, state) = b.split_at(24);
        match state.first_chunk() { Some(state) => *state, None => [0; 16] }
    };
}

/// Request of the target to the initiator in an ACK (its 2-bit REQ field, table 3-44).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum AckRequest {
    /// The target requests nothing.
    #[default]
    None = 0,
    /// Advance CLEAR_PSN: the memory for guaranteed responses is running out.
    Clear = 1,
    /// Close the context: the target has no more use for it.
    Close = 2,
}

/// Congestion-control state of NSCC in an ACK_CC (cc_type 0; table 3-74).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NsccState {
    /// Time between the packet's arrival and this ACK in units of 128 ns; 0 means that it is
    /// invalid, 0xFFFF that it does not fit.
    pub service_time: u16,
    /// The penalty is over: restore the window that it reduced.
    pub restore_cwnd: bool,
    /// Window penalty, 0 to 127: 0 none, 64 about half of the window per RTT, 127 down to one
    /// packet per RTT.
    pub rcv_cwnd_pend: u8,
    /// Bytes received on the context since it was opened, rounded up to units of 256; 24 bits that
    /// wrap.
    pub rcvd_bytes: u32,
    /// Packets received out of order at this moment; 0xFFFF means that the target did not count
    /// them.
    pub ooo_count: u16,
}

/// Congestion-control state of Dart: cc_type 14 of an ACK_CCX. The format is this project's own. Of
/// the 16 bytes, the fields have 0 and 1, 2, 4 and 5, 6 and 7, 8 and 9; the others are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DartState {
    /// Time between the packet's arrival and the ACK, see [`NsccState::service_time`].
    pub service_time: u16,
    /// Place of the congestion that the target observes: 0 none, 1 the target's own link, 2
    /// elsewhere in the network.
    pub congestion: u8,
    /// Number of senders to the target; 0 means that the field is unused.
    pub senders: u16,
    /// The initiator's share of the target's line, units of 1/32768; 0 and values above 32768 mean
    /// that the field is unused.
    pub share: u16,
    /// Packets received out of order, see [`NsccState::ooo_count`].
    pub ooo_count: u16,
}

impl DartState {
    /// Congestion-control type (cc_type) of an ACK_CCX that carries this state.
    pub const CC_TYPE: u8 = 14;

    /// Returns the state as the bytes of [`AckCcx::state`].
    #[must_use]
    pub const fn pack(&self) -> [u8; 16] {
        let [time, senders, share, ooo] = [
            self.service_time.to_be_bytes(),
            self.senders.to_be_bytes(),
            self.share.to_be_bytes(),
            self.ooo_count.to_be_bytes(),
        ];
        let mut state = [0; 16];
        (state[0], state[1]) = (time[0], time[1]);
        state[2] = self.congestion & 3;
        (state[4], state[5]) = (senders[0], senders[1]);
        (state[6], state[7]) = (share[0], share[1]);
        (state[8], state[9]) = (ooo[0], ooo[1]);
        state
    }

    /// Reads [`AckCcx::state`].
    ///
    /// # Errors
    /// Returns an error if a reserved bit is set or the congestion value is unknown.
    pub const fn read(state: &[u8; 16]) -> Result<Self, ParseError> {
        let reserved =
            state[3] | state[10] | state[11] | state[12] | state[13] | state[14] | state[15];
        if state[2] > 2 || reserved != 0 {
            return Err(ParseError::Reserved);
        }
        Ok(Self {
            service_time: u16::from_be_bytes([state[0], state[1]]),
            congestion: state[2],
            senders: u16::from_be_bytes([state[4], state[5]]),
            share: u16::from_be_bytes([state[6], state[7]]),
            ooo_count: u16::from_be_bytes([state[8], state[9]]),
        })
    }
}

/// Congestion-control state that an ACK_CC carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CcState {
    /// Signals for NSCC (cc_type 0).
    Nscc(NsccState),
    /// Credit that the receiver grants (cc_type 1).
    Credit {
        /// Total credit granted since the context opened, units of 256 bytes, 24 bits that wrap.
        credit: u32,
        /// Packets received out of order at this moment; 0xFFFF means that the target did not count
        /// them.
        ooo_count: u16,
    },
}

/// The part of an ACK_CC behind the fields of every ACK: SACK and congestion-control state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AckCc {
    /// Maximum PSN range: the peer may send PSNs up to CACK_PSN + 128 * `mpr`; 0 means unknown.
    pub mpr: u8,
    /// Distance from CACK_PSN to SACK_Base, the PSN of the bitmap's first bit.
    pub sack_psn_offset: i16,
    /// Bit i (least significant first): SACK_Base + i was received. 0 means "no information".
    pub sack_bitmap: u64,
    /// State of the sender's congestion control, NSCC's or credit.
    pub state: CcState,
}

/// The part of an ACK_CCX behind the fields of every ACK: SACK and a vendor's congestion-control
/// state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AckCcx {
    /// Congestion-control type: 14 and 15 are vendors' (14: [`DartState`]), 0 and 1 those of
    /// ACK_CC, others reserved.
    pub cc_type: u8,
    /// Maximum PSN range, see [`AckCc::mpr`].
    pub mpr: u8,
    /// Distance from CACK_PSN to SACK_Base, see [`AckCc::sack_psn_offset`].
    pub sack_psn_offset: i16,
    /// Bitmap of the packets received from SACK_Base on, see [`AckCc::sack_bitmap`].
    pub sack_bitmap: u64,
    /// Congestion-control state in the vendor's format, which this crate does not interpret.
    pub state: [u8; 16],
}

/// The part of an ACK behind the fields of every ACK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AckExt {
    /// Nothing follows (a plain ACK).
    None,
    /// PSN at which, or after which, the target accepts the initiator's next context without a
    /// NEW_START_PSN (an ACK with the EPSN flag). The reference provider sends it to acknowledge
    /// the CLOSE_COMMAND of a context in a secure domain. ACK_CC and ACK_CCX cannot carry it.
    ExpectedPsn(Psn),
    /// SACK and congestion-control state follow (ACK_CC).
    Cc(AckCc),
    /// SACK and a vendor's congestion-control state follow (ACK_CCX).
    Ccx(AckCcx),
}

/// An acknowledgement: ACK 12 bytes or, with the EPSN flag, 16; ACK_CC 32, ACK_CCX 40.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ack {
    /// Kind of the SES header behind the ACK: none or a response.
    pub next: NextHeader,
    /// M: the acknowledged packet was marked Congestion Experienced.
    pub ce: bool,
    /// Echo of the acknowledged packet's flag RETX (retransmission).
    pub retx: bool,
    /// P: the ACK answers a probe.
    pub probe: bool,
    /// Request of the target to the initiator, such as to close the context.
    pub request: AckRequest,
    /// ACK_PSN - CACK_PSN; with `probe` the bits of the echoed probe_opaque
    /// ([`Self::probe_opaque`]).
    pub ack_psn_offset: i16,
    /// Every PSN up to this one was received.
    pub cack_psn: Psn,
    /// Id of the context at the ACK's sender, not 0.
    pub spdcid: u16,
    /// Id of the context at the ACK's receiver, not 0.
    pub dpdcid: u16,
    /// The rest of the ACK: SACK and congestion-control state, or the expected PSN.
    pub ext: AckExt,
}

impl Ack {
    /// Length of a plain ACK in bytes.
    pub const LEN: usize = 12;
    /// Length of an ACK with the EPSN flag in bytes.
    pub const LEN_EPSN: usize = 16;
    /// Length of an ACK_CC in bytes.
    pub const LEN_CC: usize = 32;
    /// Length of an ACK_CCX in bytes.
    pub const LEN_CCX: usize = 40;

    /// Returns the length of this ACK in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        match self.ext {
            AckExt::None => Self::LEN,
            AckExt::ExpectedPsn(_) => Self::LEN_EPSN,
            AckExt::Cc(_) => Self::LEN_CC,
            AckExt::Ccx(_) => Self::LEN_CCX,
        }
    }

    /// Returns the PSN whose arrival caused this ACK; `None` for the answer to a probe.
    #[must_use]
    pub const fn ack_psn(&self) -> Option<Psn> {
        if self.probe { None } else { Some(self.cack_psn.offset(self.ack_psn_offset)) }
    }

    /// Returns the echoed probe_opaque; `None` when this ACK does not answer a probe.
    #[must_use]
    pub const fn probe_opaque(&self) -> Option<u16> {
        if self.probe { Some(self.ack_psn_offset.cast_unsigned()) } else { None }
    }

    /// Returns the PSN of the SACK bitmap's bit 0, and the bitmap.
    #[must_use]
    pub const fn sack(&self) -> Option<(Psn, u64)> {
        match self.ext {
            AckExt::None | AckExt::ExpectedPsn(_) => None,
            AckExt::Cc(AckCc { sack_psn_offset, sack_bitmap, .. })
            | AckExt::Ccx(AckCcx { sack_psn_offset, sack_bitmap, .. }) => {
                Some((self.cack_psn.offset(sack_psn_offset), sack_bitmap))
            }
        }
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let kind = match self.ext {
            AckExt::None | AckExt::ExpectedPsn(_) => PdsType::Ack,
            AckExt::Cc(_) => PdsType::AckCc,
            AckExt::Ccx(_) => PdsType::AckCcx,
        };
        let request = (self.request as u8) << 1;
        let flags = [
            (flag::EPSN, matches!(self.ext, AckExt::ExpectedPsn(_))),
            (flag::M, self.ce),
            (flag::RETX, self.retx),
            (flag::P, self.probe),
            (request, true), // REQ 3, both bits set
        ];
        let mut b = [0; Self::LEN_CCX];
        b[0..2].copy_from_slice(&prologue(kind, self.next.to_u8(), &flags));
        b[2..4].copy_from_slice(&self.ack_psn_offset.to_be_bytes());
        b[4..8].copy_from_slice(&self.cack_psn.0.to_be_bytes());
        b[8..10].copy_from_slice(&self.spdcid.to_be_bytes());
        b[10..12].copy_from_slice(&self.dpdcid.to_be_bytes());
        match &self.ext {
            AckExt::None => {}
            AckExt::ExpectedPsn(psn) => b[12..16].copy_from_slice(&psn.0.to_be_bytes()),
            AckExt::Cc(cc) => {
                b[13] = cc.mpr;
                b[14..16].copy_from_slice(&cc.sack_psn_offset.to_be_bytes());
                b[16..24].copy_from_slice(&cc.sack_bitmap.to_be_bytes());
                let (cc_type, state) = cc.state.pack();
                b[12] = cc_type << 4;
                b[24..32].copy_from_slice(&state.to_be_bytes());
            }
            AckExt::Ccx(ccx) => {
                b[12] = ccx.cc_type << 4;
                b[13] = ccx.mpr;
                b[14..16].copy_from_slice(&ccx.sack_psn_offset.to_be_bytes());
                b[16..24].copy_from_slice(&ccx.sack_bitmap.to_be_bytes());
                b[24..40].copy_from_slice(&ccx.state);
            }
        }
        let len = self.len();
        out[..len].copy_from_slice(&b[..len]);
        len
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedAck::new(bytes).map(CheckedAck::build)
    }
}

/// An ACK that obeys its rules, as a reference to its bytes, which is smaller than the value.
#[derive(Clone, Copy)]
pub(crate) struct CheckedAck<'a> {
    view: AckView<'a>,
    pub(crate) next: NextHeader,
    ext: CheckedExt<'a>,
}

#[derive(Clone, Copy)]
enum CheckedExt<'a> {
    None,
    ExpectedPsn(AckEpsnView<'a>),
    Cc(AckCcView<'a>),
    Ccx(AckCcxView<'a>),
}

impl<'a> CheckedAck<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = AckView::new(bytes)?;
        let next = next_header(view.next(), |next| {
            matches!(
                next,
                NextHeader::None
                    | NextHeader::Response
                    | NextHeader::ResponseData
                    | NextHeader::ResponseDataSmall
            )
        })?;
        let flags = view.flags();
        // Only the form without congestion-control state is known to have the EPSN flag.
        let epsn = if view.pds_type() == PdsType::Ack.to_u8() { flag::EPSN } else { 0 };
        check_flags(flags, epsn | flag::M | flag::RETX | flag::P | flag::REQ)?;
        if flags & flag::REQ == flag::REQ {
            return Err(ParseError::AckRequest);
        }
        if view.spdcid() == 0 {
            return Err(ParseError::Spdcid);
        }
        if view.dpdcid() == 0 {
            return Err(ParseError::Dpdcid);
        }
        let ext = match view.pds_type() {
            7 if has(flags, flag::EPSN) => CheckedExt::ExpectedPsn(AckEpsnView::new(bytes)?),
            7 => CheckedExt::None,
            8 => CheckedExt::Cc(AckCcView::new(bytes)?.check()?),
            _ => CheckedExt::Ccx(AckCcxView::new(bytes)?.check()?),
        };
        Ok(Self { view, next, ext })
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        match self.ext {
            CheckedExt::None => Ack::LEN,
            CheckedExt::ExpectedPsn(_) => Ack::LEN_EPSN,
            CheckedExt::Cc(_) => Ack::LEN_CC,
            CheckedExt::Ccx(_) => Ack::LEN_CCX,
        }
    }

    #[inline]
    pub(crate) const fn build(self) -> Ack {
        let view = self.view;
        let flags = view.flags();
        Ack {
            next: self.next,
            ce: has(flags, flag::M),
            retx: has(flags, flag::RETX),
            probe: has(flags, flag::P),
            request: match (flags & flag::REQ) >> 1 {
                1 => AckRequest::Clear,
                2 => AckRequest::Close,
                _ => AckRequest::None,
            },
            ack_psn_offset: view.ack_psn_offset(),
            cack_psn: Psn(view.cack_psn()),
            spdcid: view.spdcid(),
            dpdcid: view.dpdcid(),
            ext: match self.ext {
                CheckedExt::None => AckExt::None,
                CheckedExt::ExpectedPsn(view) => AckExt::ExpectedPsn(Psn(view.expected_psn())),
                CheckedExt::Cc(view) => AckExt::Cc(view.build()),
                CheckedExt::Ccx(view) => AckExt::Ccx(view.build()),
            },
        }
    }
}

impl CcState {
    /// Returns the congestion-control type (cc_type) and the eight bytes of its state
    /// (ack_cc_state).
    const fn pack(&self) -> (u8, u64) {
        match *self {
            Self::Nscc(s) => {
                let penalty = (s.restore_cwnd as u64) << 7 | (s.rcv_cwnd_pend & 0x7F) as u64;
                let rcvd = (s.rcvd_bytes & 0x00FF_FFFF) as u64;
                let time = s.service_time as u64;
                (0, time << 48 | penalty << 40 | rcvd << 16 | s.ooo_count as u64)
            }
            Self::Credit { credit, ooo_count } => {
                (1, ((credit & 0x00FF_FFFF) as u64) << 40 | ooo_count as u64)
            }
        }
    }
}

impl AckCcView<'_> {
    #[inline]
    const fn check(self) -> Result<Self, ParseError> {
        match self.cc_type() {
            _ if self.cc_flags() != 0 => Err(ParseError::Reserved),
            // Bytes 27 to 29 are reserved with credit.
            1 if self.rcvd_bytes() != 0 => Err(ParseError::Reserved),
            0 | 1 => Ok(self),
            _ => Err(ParseError::CcType),
        }
    }

    #[inline]
    const fn build(self) -> AckCc {
        let state = if self.cc_type() == 0 {
            CcState::Nscc(NsccState {
                service_time: self.service_time(),
                restore_cwnd: self.restore_cwnd(),
                rcv_cwnd_pend: self.rcv_cwnd_pend(),
                rcvd_bytes: self.rcvd_bytes(),
                ooo_count: self.ooo_count(),
            })
        } else {
            CcState::Credit { credit: self.credit(), ooo_count: self.ooo_count() }
        };
        AckCc {
            mpr: self.mpr(),
            sack_psn_offset: self.sack_psn_offset(),
            sack_bitmap: self.sack_bitmap(),
            state,
        }
    }
}

impl AckCcxView<'_> {
    #[inline]
    const fn check(self) -> Result<Self, ParseError> {
        match self.cc_type() {
            _ if self.cc_flags() != 0 => Err(ParseError::Reserved),
            2..=13 => Err(ParseError::CcType),
            DartState::CC_TYPE => match DartState::read(&self.state()) {
                Ok(_) => Ok(self),
                Err(error) => Err(error),
            },
            _ => Ok(self),
        }
    }

    #[inline]
    const fn build(self) -> AckCcx {
        AckCcx {
            cc_type: self.cc_type(),
            mpr: self.mpr(),
            sack_psn_offset: self.sack_psn_offset(),
            sack_bitmap: self.sack_bitmap(),
            state: self.state(),
        }
    }
}
