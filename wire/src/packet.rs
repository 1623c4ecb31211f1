//! Whole packets: what a UDP payload holds.

use crate::codes::{ControlKind, NextHeader, PdsType};
use crate::error::ParseError;
use crate::pds::{
    Ack, CheckedAck, CheckedRequest, Control, Nack, Request, RudiRequest, RudiResponse, Tss, Uud,
};
use crate::rates::RatePacket;
use crate::ses::{CheckedSes, Ses, StdRequest};

/// The most bytes before a payload: a request with congestion-control state, a standard header and
/// a compare-swap extension.
pub const MAX_HEADER: usize = Request::LEN_CC + StdRequest::LEN + crate::ses::CompareSwap::LEN;

/// A packet without a CRC trailer. Payloads stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// RUD or ROD.
    Request {
        /// Delivery header.
        pds: Request,
        /// Semantic header.
        ses: Ses,
        /// What follows.
        payload: &'a [u8],
    },
    /// Acknowledgement.
    Ack {
        /// Delivery header.
        pds: Ack,
        /// A response, or none.
        ses: Ses,
        /// The data of a response with data.
        payload: &'a [u8],
    },
    /// Negative acknowledgement.
    Nack(Nack),
    /// Control packet other than a negotiation.
    Control(Control),
    /// Control packet of kind [`ControlKind::Negotiation`].
    Negotiation {
        /// Delivery header.
        pds: Control,
        /// The type-length-values behind it, which no table numbers.
        values: &'a [u8],
    },
    /// Reliable without a context: request.
    RudiRequest {
        /// Delivery header.
        pds: RudiRequest,
        /// Semantic header.
        ses: Ses,
        /// What follows.
        payload: &'a [u8],
    },
    /// Reliable without a context: response.
    RudiResponse {
        /// Delivery header.
        pds: RudiResponse,
        /// Semantic header.
        ses: Ses,
        /// What follows.
        payload: &'a [u8],
    },
    /// Unreliable.
    Uud {
        /// Delivery header.
        pds: Uud,
        /// Semantic header.
        ses: Ses,
        /// What follows.
        payload: &'a [u8],
    },
    /// Encrypted.
    Tss {
        /// Security header.
        header: Tss,
        /// Everything else, with the integrity check value at the end.
        sealed: &'a [u8],
    },
    /// What asks links for a rate.
    Rates(RatePacket<'a>),
}

/// A packet that a switch cut: its delivery header is whole, and of what followed there is as much
/// as the switch left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimmedPacket {
    /// Delivery header.
    pub pds: Request,
    /// Semantic header, when all of it is left and obeys its rules; of a continuation without its
    /// extension header.
    pub ses: Option<Ses>,
}

/// Reads a packet that fills `bytes` (no CRC trailer: see [`crate::check_and_strip_crc`]) and
/// checks every rule of the tables. Nothing is allocated.
///
/// # Errors
/// The first rule that the packet breaks.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
    let Some(&[b0, _]) = bytes.first_chunk::<2>() else {
        return Err(ParseError::Truncated);
    };
    let Some(kind) = PdsType::from_u8(b0 >> 3) else {
        return Err(ParseError::Type);
    };
    match kind {
        PdsType::RudReq | PdsType::RodReq | PdsType::RudCcReq | PdsType::RodCcReq => {
            let pds = CheckedRequest::new(bytes)?;
            let (ses, payload) = upper(kind, pds.next, bytes, pds.len())?;
            Ok(Packet::Request { pds: pds.build(), ses: ses.build(), payload })
        }
        PdsType::Ack | PdsType::AckCc | PdsType::AckCcx => {
            let pds = CheckedAck::new(bytes)?;
            let (ses, payload) = upper(kind, pds.next, bytes, pds.len())?;
            Ok(Packet::Ack { pds: pds.build(), ses: ses.build(), payload })
        }
        PdsType::Nack | PdsType::NackCcx => {
            let pds = Nack::read(bytes)?;
            nothing_after(bytes, pds.len())?;
            Ok(Packet::Nack(pds))
        }
        PdsType::Control => {
            let pds = Control::read(bytes)?;
            if pds.kind == ControlKind::Negotiation {
                return Ok(Packet::Negotiation { pds, values: after(bytes, pds.len()) });
            }
            nothing_after(bytes, pds.len())?;
            Ok(Packet::Control(pds))
        }
        PdsType::RudiReq => {
            let pds = RudiRequest::read(bytes)?;
            let (ses, payload) = upper(kind, pds.next, bytes, pds.len())?;
            Ok(Packet::RudiRequest { pds, ses: ses.build(), payload })
        }
        PdsType::RudiResp => {
            let pds = RudiResponse::read(bytes)?;
            let (ses, payload) = upper(kind, pds.next, bytes, pds.len())?;
            Ok(Packet::RudiResponse { pds, ses: ses.build(), payload })
        }
        PdsType::UudReq => {
            let pds = Uud::read(bytes)?;
            let (ses, payload) = upper(kind, pds.next, bytes, pds.len())?;
            Ok(Packet::Uud { pds, ses: ses.build(), payload })
        }
        PdsType::Tss => {
            let header = Tss::read(bytes)?;
            let sealed = after(bytes, header.len());
            // The shortest delivery header.
            if sealed.len() < Uud::LEN {
                return Err(ParseError::Truncated);
            }
            Ok(Packet::Tss { header, sealed })
        }
        PdsType::Rates => RatePacket::read(bytes).map(Packet::Rates),
    }
}

/// Reads a packet that a switch trimmed (its DSCP says so): a RUD or ROD request whose delivery
/// header is whole. A CRC trailer is gone with the payload, so the bytes are trusted as little as
/// any other: good for a NACK or an ACK, not for data.
///
/// # Errors
/// The rule that the delivery header breaks; [`ParseError::Kind`] for another packet, which a
/// switch does not trim.
pub fn parse_trimmed(bytes: &[u8]) -> Result<TrimmedPacket, ParseError> {
    let pds = Request::read(bytes)?;
    let kind = PdsType::from_u8(bytes[0] >> 3).ok_or(ParseError::Type)?;
    let rest = after(bytes, pds.len());
    Ok(TrimmedPacket { pds, ses: Ses::read_trimmed(kind, pds.next, rest) })
}

/// Reads what is left of a reliable packet without its delivery header: a semantic header, which `next` announces,
/// and the payload, which fill `bytes`. Checks every rule of the tables.
///
/// # Errors
/// The first rule that it breaks.
#[inline]
pub fn parse_semantic(next: NextHeader, bytes: &[u8]) -> Result<(Ses, &[u8]), ParseError> {
    let (ses, payload) = upper(PdsType::RudReq, next, bytes, 0)?;
    Ok((ses.build(), payload))
}

/// The semantic header behind `at` bytes, and the payload behind that.
#[inline]
fn upper(
    kind: PdsType,
    next: NextHeader,
    bytes: &[u8],
    at: usize,
) -> Result<(CheckedSes<'_>, &[u8]), ParseError> {
    let rest = after(bytes, at);
    let ses = CheckedSes::new(kind, next, rest)?;
    let payload = after(rest, ses.len());
    ses.check_payload(payload.len())?;
    Ok((ses, payload))
}

#[inline]
fn after(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

#[inline]
fn nothing_after(bytes: &[u8], at: usize) -> Result<(), ParseError> {
    if after(bytes, at).is_empty() { Ok(()) } else { Err(ParseError::Trailing) }
}

impl Packet<'_> {
    /// Bytes of the packet.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a packet is never empty
    pub fn len(&self) -> usize {
        match self {
            Self::Request { pds, ses, payload } => pds.len() + ses.len() + payload.len(),
            Self::Ack { pds, ses, payload } => pds.len() + ses.len() + payload.len(),
            Self::Nack(pds) => pds.len(),
            Self::Control(pds) => pds.len(),
            Self::Negotiation { pds, values } => pds.len() + values.len(),
            Self::RudiRequest { pds, ses, payload } => pds.len() + ses.len() + payload.len(),
            Self::RudiResponse { pds, ses, payload } => pds.len() + ses.len() + payload.len(),
            Self::Uud { pds, ses, payload } => pds.len() + ses.len() + payload.len(),
            Self::Tss { header, sealed } => header.len() + sealed.len(),
            Self::Rates(packet) => packet.len(),
        }
    }

    /// Writes the packet, payload included, and returns its length. A sender that leaves the
    /// payload where it is writes the headers one by one instead.
    ///
    /// # Panics
    /// When `out` is shorter than [`Self::len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let (at, payload) = match self {
            Self::Request { pds, ses, payload } => {
                let at = pds.emit(out);
                (at + ses.emit(&mut out[at..]), *payload)
            }
            Self::Ack { pds, ses, payload } => {
                let at = pds.emit(out);
                (at + ses.emit(&mut out[at..]), *payload)
            }
            Self::Nack(pds) => (pds.emit(out), &[][..]),
            Self::Control(pds) => (pds.emit(out), &[][..]),
            Self::Negotiation { pds, values } => (pds.emit(out), *values),
            Self::RudiRequest { pds, ses, payload } => {
                let at = pds.emit(out);
                (at + ses.emit(&mut out[at..]), *payload)
            }
            Self::RudiResponse { pds, ses, payload } => {
                let at = pds.emit(out);
                (at + ses.emit(&mut out[at..]), *payload)
            }
            Self::Uud { pds, ses, payload } => {
                let at = pds.emit(out);
                (at + ses.emit(&mut out[at..]), *payload)
            }
            Self::Tss { header, sealed } => (header.emit(out), *sealed),
            Self::Rates(packet) => (packet.emit(out), &[][..]),
        };
        out[at..at + payload.len()].copy_from_slice(payload);
        at + payload.len()
    }
}
