//! Ultra Ethernet packets (UE 1.0.x, target 1.0.3): the packet delivery sublayer (PDS) and the
//! semantic sublayer (SES) as checked views and plain values.
//!
//! [`parse`] reads what a UDP payload holds and checks every rule once; what it returns obeys the
//! tables. Each header is a plain value with `read`, `len` and `emit` ([`Request`], [`Ack`],
//! [`StdRequest`], ...), so a sender can write headers beside a payload that stays where it is.
//! The views ([`RequestView`], [`StdView`], ...) show single fields without the rest.
//!
//! `emit` writes each field into the bits it has and drops the bits that do not fit; whether the
//! values agree with each other (SPDCID not 0, lengths, opcode and header) is the caller's part:
//! a field's documentation says what it may hold, and [`parse`] refuses everything else.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub use squall_base as base;

pub mod codes;
pub mod crc;
mod error;
mod packet;
mod pds;
mod ses;
mod view;

pub use codes::{
    AmoOp, AmoType, ControlKind, List, NackAction, NackCode, NextHeader, Opcode, PdsType,
    ResponseOpcode, ReturnCode,
};
pub use crc::{CRC_LEN, check_and_strip_crc};
pub use error::ParseError;
pub use packet::{MAX_HEADER, Packet, Trimmed, parse, parse_trimmed};
pub use pds::{
    Ack, AckCc, AckCcView, AckCcx, AckCcxView, AckExt, AckRequest, AckView, CcState, Ccc, Control,
    ControlView, Dest, Mode, Nack, NackCcx, NackView, NsccState, Request, RequestView, RudiRequest,
    RudiResponse, RudiView, Tss, TssView, Uud, UudView,
};
pub use ses::{
    Atomic, AtomicView, CompareSwap, CompareSwapView, Extension, MediumRequest, MediumView,
    Rendezvous, RendezvousView, Response, ResponseData, ResponseDataSmall, ResponseDataSmallView,
    ResponseDataView, ResponseView, Ses, SmallRequest, SmallView, StdBody, StdRequest, StdView,
};

/// UDP destination port of UET (IANA).
pub const UDP_PORT: u16 = 4793;
