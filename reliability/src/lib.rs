//! Packet delivery contexts (PDCs) of Ultra Ethernet, both ends, mode RUD: every packet reaches the
//! peer's engine exactly once, in any order (UE 1.0 section 3.5).
//!
//! [`Pdcs`] holds all contexts of one endpoint. It is a sans-IO state machine: time is passed in,
//! randomness is seeded, and nothing is allocated per packet in steady state. What it never sees is a
//! payload: a packet is the engine's descriptor `D` (small and `Copy`), which comes back when the
//! packet must be sent again and when its fate is known.
//!
//! # The order of calls
//!
//! - Commands: [`Pdcs::open`], [`Pdcs::next_packet`], [`Pdcs::close`], [`Pdcs::abort`],
//!   [`Pdcs::set_busy`], [`Pdcs::peer_restarted`].
//! - What happened: [`Pdcs::rx_request`] (then [`Pdcs::accept`] or [`Pdcs::refuse`] at once),
//!   [`Pdcs::rx_ack`], [`Pdcs::rx_nack`], [`Pdcs::rx_control`], [`Pdcs::handle_timeout`].
//! - What to do next, after any number of the above: [`Pdcs::poll_event`] until `None`;
//!   [`Pdcs::poll_retransmit`] and then [`Pdcs::next_packet`] for contexts that were
//!   [`Event::Ready`] or got new work; [`Pdcs::poll_control`] until `None` (one round of this per batch
//!   of received packets is what coalesces acknowledgements); [`Pdcs::poll_timeout`] says when to call
//!   [`Pdcs::handle_timeout`] if nothing else happens.
//!
//! # One context, two directions
//!
//! A context is opened by its initiator, whose requests travel forward. The target's response data
//! travels in the return direction, with the same headers and a PSN space of its own that starts at
//! the same number. Each end therefore has one sending half and one receiving half, and both ends run
//! the same code.
#![forbid(unsafe_code)]

pub use squall_cc as cc;
pub use squall_wire as wire;
pub use squall_wire::base;

mod bitmap;
mod config;
mod counters;
mod pdc;
mod pdcs;
mod rx;
mod shared;
mod timers;
mod tx;
mod types;

pub use config::{Config, LossDetection, MAX_WINDOW, MPR_UNIT, NOMINAL_OVERHEAD};
pub use counters::{Counters, NACK_CODES};
pub use pdcs::Pdcs;
pub use types::{
    Blocked, ControlOut, ControlPacket, Event, Failure, PdcId, PdcInfo, PeerKey, Refusal, RxMeta,
    RxVerdict, TxGrant, TxPacket,
};
