//! Packet delivery sublayer: the header that starts every UET packet.
//!
//! The prologue is `type[15:11] | next_hdr [10:7] | flags[6:0]`; a control packet has its kind in
//! the place of `next_hdr`. Numbers are big-endian, headers packed.

mod ack;
mod control;
mod datagram;
mod nack;
mod request;
mod tss;

pub(crate) use ack::CheckedAck;
pub use ack::{
    Ack, AckCc, AckCcView, AckCcx, AckCcxView, AckEpsnView, AckExt, AckRequest, AckView, CcState,
    DartState, NsccState,
};
pub use control::{Control, ControlView};
pub use datagram::{RudiRequest, RudiResponse, RudiView, Uud, UudView};
pub use nack::{Nack, NackCcx, NackView};
pub(crate) use request::CheckedRequest;
pub use request::{Ccc, Dest, Mode, Request, RequestView, Speculation};
pub use tss::{Tss, TssView};

use crate::codes::{NextHeader, PdsType};
use crate::error::ParseError;

/// Flag bits of the prologue. Some bits mean different things in different packets.
pub(crate) mod flag {
    /// M: the packet that is answered was marked Congestion Experienced (in ACKs, NACKs and RUDI
    /// responses).
    pub(crate) const M: u8 = 0x20;
    /// The control packet is for a ROD context.
    pub(crate) const ISROD: u8 = 0x20;
    /// The packet is a retransmission, or answers one.
    pub(crate) const RETX: u8 = 0x10;
    /// AR: the receiver should acknowledge the packet at once (in requests and control packets).
    pub(crate) const AR: u8 = 0x08;
    /// P: the ACK answers a probe.
    pub(crate) const P: u8 = 0x08;
    /// NT: the NACK refuses a RUDI packet.
    pub(crate) const NT: u8 = 0x08;
    /// The ACK ends with a PSN for the initiator's next context.
    pub(crate) const EPSN: u8 = 0x40;
    /// SYN: the packet may open a context.
    pub(crate) const SYN: u8 = 0x04;
    /// The two bits of an ACK's REQ field: a request of the target to the initiator.
    pub(crate) const REQ: u8 = 0x06;
}

/// Returns the prologue's two bytes. Flags are (mask, condition) pairs.
pub(crate) fn prologue(kind: PdsType, next: u8, flags: &[(u8, bool)]) -> [u8; 2] {
    let mut bits = 0;
    for &(mask, set) in flags {
        if set {
            bits |= mask;
        }
    }
    let word = u16::from(kind.to_u8()) << 11 | u16::from(next) << 7 | u16::from(bits);
    word.to_be_bytes()
}

/// Returns an error if `flags` has bits outside of `allowed`.
#[inline]
pub(crate) const fn check_flags(flags: u8, allowed: u8) -> Result<(), ParseError> {
    if flags & !allowed == 0 { Ok(()) } else { Err(ParseError::Reserved) }
}

/// Returns the kind of header with this number, or an error if there is none or `allowed` refuses
/// it.
#[inline]
pub(crate) fn next_header(
    number: u8,
    allowed: impl FnOnce(NextHeader) -> bool,
) -> Result<NextHeader, ParseError> {
    match NextHeader::from_u8(number) {
        None => Err(ParseError::NextHeader),
        Some(next) if allowed(next) => Ok(next),
        Some(_) => Err(ParseError::NextHeaderContext),
    }
}

#[inline]
pub(crate) const fn has(flags: u8, mask: u8) -> bool {
    flags & mask != 0
}
