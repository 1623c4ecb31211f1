//! Whole packets: the content of a UDP payload.

use crate::codes::{ControlKind, NextHeader, PdsType};
use crate::error::ParseError;
use crate::pds::{
    Ack, CheckedAck, CheckedRequest, Control, Nack, Request, RudiRequest, RudiResponse, Tss, Uud,
};
use crate::rates::RatePacket;
use crate::ses::{CheckedSes, Ses, StdRequest};

/// Largest number of bytes before a payload: a request with congestion-control state, a standard
/// header and a compare-swap extension.
pub const MAX_HEADER: usize = Request::LEN_CC + StdRequest::LEN + crate::ses::CompareSwap::LEN;

/// A packet without a CRC trailer. The payload is borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// Request on a context, of reliable delivery in any order (RUD) or in order (ROD).
    Request {
        /// PDS header (packet delivery sublayer).
        pds: Request,
        /// SES header (semantic sublayer).
        ses: Ses,
        /// Bytes behind the SES header.
        payload: &'a [u8],
    },
    /// Acknowledgement of packets on a context.
    Ack {
        /// PDS header (packet delivery sublayer).
        pds: Ack,
        /// SES response, or [`Ses::None`].
        ses: Ses,
        /// Data of a response that carries data.
        payload: &'a [u8],
    },
    /// Negative acknowledgement, which refuses a packet.
    Nack(Nack),
    /// Control packet of any kind but [`ControlKind::Negotiation`].
    Control(Control),
    /// Control packet of kind [`ControlKind::Negotiation`].
    Negotiation {
        /// PDS header (packet delivery sublayer).
        pds: Control,
        /// Bytes of the type-length-values behind the header; no table numbers them.
        values: &'a [u8],
    },
    /// Request of reliable delivery without a context (RUDI).
    RudiRequest {
        /// PDS header (packet delivery sublayer).
        pds: RudiRequest,
        /// SES header (semantic sublayer).
        ses: Ses,
        /// Bytes behind the SES header.
        payload: &'a [u8],
    },
    /// Response to a RUDI request, which needs no context.
    RudiResponse {
        /// PDS header (packet delivery sublayer).
        pds: RudiResponse,
        /// SES header (semantic sublayer).
        ses: Ses,
        /// Bytes behind the SES header.
        payload: &'a [u8],
    },
    /// Request of unreliable delivery (UUD).
    Uud {
        /// PDS header (packet delivery sublayer).
        pds: Uud,
        /// SES header (semantic sublayer).
        ses: Ses,
        /// Bytes behind the SES header.
        payload: &'a [u8],
    },
    /// Encrypted packet of the transport security sublayer (TSS).
    Tss {
        /// TSS header, which is not encrypted.
        header: Tss,
        /// Encrypted bytes behind the TSS header, with the integrity check value at the end.
        sealed: &'a [u8],
    },
    /// Rate packet, in which the links of a path write the rate of a flow (s-PERC).
    Rates(RatePacket<'a>),
}

/// A packet that a switch trimmed: its delivery header is complete, and the switch may have left
/// some of the bytes behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimmedPacket {
    /// PDS header (packet delivery sublayer).
    pub pds: Request,
    /// SES header, if it is complete and obeys its rules; for a continuation without its extension
    /// header.
    pub ses: Option<Ses>,
}

/// Reads a packet that fills `bytes` (no CRC trailer: see [`crate::check_and_strip_crc`]) and
/// checks every rule of the tables. It allocates nothing.
///
/// # Errors
/// Returns the first rule that the packet breaks.
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
            if sealed.len() < Tss::MIN_SEALED {
                return Err(ParseError::Truncated);
            }
            Ok(Packet::Tss { header, sealed })
        }
        PdsType::Rates => RatePacket::read(bytes).map(Packet::Rates),
    }
}

/// Reads a packet that a switch trimmed, as its DSCP shows: a RUD or ROD request whose delivery
/// header is complete. The trimming removed any CRC trailer, so the bytes are unverified: they
/// suffice for a NACK or an ACK, not for data.
///
/// # Errors
/// Returns the rule that the delivery header breaks; [`ParseError::Kind`] for another packet, which
/// a switch does not trim.
pub fn parse_trimmed(bytes: &[u8]) -> Result<TrimmedPacket, ParseError> {
    let pds = Request::read(bytes)?;
    let kind = PdsType::from_u8(bytes[0] >> 3).ok_or(ParseError::Type)?;
    let rest = after(bytes, pds.len());
    Ok(TrimmedPacket { pds, ses: Ses::read_trimmed(kind, pds.next, rest) })
}

/// Reads the part of a reliable packet behind its delivery header: a semantic header, which `next`
/// announces, and the payload, which together fill `bytes`. Checks every rule of the tables.
///
/// # Errors
/// Returns the first rule that it breaks.
#[inline]
pub fn parse_semantic(next: NextHeader, bytes: &[u8]) -> Result<(Ses, &[u8]), ParseError> {
    let (ses, payload) = upper(PdsType::RudReq, next, bytes, 0)?;
    Ok((ses.build(), payload))
}

/// Reads the SES header behind `at` bytes and the payload behind that.
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
    /// Returns the length of the packet in bytes, payload included.
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

    /// Writes the packet, payload included, and returns its length. A sender that does not copy the
    /// payload writes the headers one by one instead.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
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
