//! Packet delivery contexts (PDCs) of Ultra Ethernet, both ends, mode RUD: every packet reaches the
//! peer's engine exactly once, in any order (UE 1.0 section 3.5).
//!
//! [`Pdcs`] holds all contexts of one endpoint. It is a sans-IO state machine: time is passed in,
//! randomness is seeded, and nothing is allocated per packet in steady state. It never sees payload:
//! a packet is the engine's descriptor `D` (small and `Copy`). [`Pdcs`] returns the descriptor when
//! the packet must be retransmitted and when it is acknowledged or lost.
//!
//! # The order of calls
//!
//! - Commands: [`Pdcs::set_host`], [`Pdcs::admissions`], [`Pdcs::open`], [`Pdcs::next_packet`],
//!   [`Pdcs::close`], [`Pdcs::abort`], [`Pdcs::set_busy`], [`Pdcs::peer_restarted`].
//! - Input: [`Pdcs::rx_request`], [`Pdcs::rx_ack`], [`Pdcs::rx_nack`], [`Pdcs::rx_control`],
//!   [`Pdcs::handle_timeout`].
//! - Output, after any number of the above: [`Pdcs::poll_event`] until `None`;
//!   [`Pdcs::poll_retransmit`] and then [`Pdcs::next_packet`] for contexts that were
//!   [`Event::Ready`] or got new work; [`Pdcs::poll_control`] until `None` (one such round per batch
//!   of received packets coalesces the acknowledgements); [`Pdcs::poll_timeout`] returns when to
//!   call [`Pdcs::handle_timeout`] if nothing else happens.
//!
//! Where one call must be followed by another, the first returns a token that cannot be copied. A new
//! data packet comes with a [`Delivery`], which the caller passes to [`Pdcs::accept`],
//! [`Pdcs::refuse`] or [`Pdcs::drop_malformed`] before it hands in the next packet. A packet that
//! counts as sent comes with a [`TxGrant`].
//!
//! Statistics come from [`Pdcs::counters`], [`Pdcs::info`] (a living context) and [`Pdcs::flows`]
//! (the records of all contexts, also of closed ones).
//!
//! # One context, two directions
//!
//! A context is opened by its initiator, whose requests travel forward. The target's response data
//! travels in the return direction, with the same headers and a PSN space of its own that starts at
//! the same number. Each end therefore has one sending half and one receiving half, and both ends run
//! the same code.
//!
//! # Parts
//!
//! [`Pdcs`] finds the context of a call in its table and owns the state that all contexts share. A
//! context (`Pdc`) has a sending half (`Tx`: ring, flow, round-trip estimator, loss timer, recovery,
//! prober, route, readiness), a receiving half (`Rx`: window, next ACK, responses), a lifecycle, a
//! path of control packets and one table of all its timers (`deadlines`).
//!
//! # Choices
//!
//! These choices are open in UE 1.0, or differ from what suits a network card because this process
//! shares its processor with others:
//!
//! | Matter | Choice |
//! |---|---|
//! | Bytes in flight | The sender adds up the packets that an ACK names; `rcvd_bytes` is sent for peers that count with it. |
//! | Guaranteed responses | Until a response is cleared, only the ACK that carries it acknowledges its packet: CACK_PSN stays before the packet, and no SACK bit shows it. A duplicate of the packet gets the response again. |
//! | Clear | Each request clears all responses before the oldest outstanding packet. With no request to carry it, a Clear Command follows a response after `ack_delay`, and is repeated while the peer's window is closed. |
//! | Coalescing | An ACK becomes due by the byte trigger, AR, SYN, CE, a duplicate, a hole that opens, or a hole before an AR packet that closes. It leaves when the caller polls, once for all packets since. |
//! | SACK window | The newest 64 packets that hold everything new. A wider range takes several ACKs, of which only the first names a packet whose round trip may be measured. |
//! | Probe answer | Complete if its bitmap shows as many packets as `ooo_count` says: then all older packets that it does not show are lost. Otherwise only packets among the 64 are. |
//! | Loss detectors | Any set of trim, ooo, path, probe, rto. Without `rto` the timer is the last resort at ten times its setting. Without `trim` a trimmed packet's NACK is only a sign of life. Refusals are not losses, and their packets are always retransmitted. |
//! | Probes | Sent after three silent round trips or when congestion control wants one, never two at a time. The answer reports losses where `probe` is among the detectors. Without `rto`, probing goes on for as long as the context lives. |
//! | Scope | Flows share a congestion-control context by peer, host, endpoint or [`Label`]. The bytes in flight add up, unless each flow has the whole window. The last 1024 contexts without flows are kept. Flows without room queue, and the longest waiting are woken first. |
//! | Rates | Where switches compute rates, a rate packet leaves before the first data and is identified by its flow alone. Requests sent before it returns name their speculative packet (RUD_CC_REQ). |
//! | Credit | Requests carry the demand (RUD_CC_REQ), also when the payload was trimmed. Grants travel in ACKs (cc_type 1) or alone. A blocked sender asks by Credit Request. |
//! | Peers of another mode | Recognised by the type of their ACKs, or by credit that never comes. They are reported once per context; a plain window, or a timer without service times, replaces the missing feedback. |
//! | Timeout | Only the oldest packet is retransmitted until the peer answers. A peer that does not run then costs one packet per timeout and no window. NACKs, `ooo_count` and probes find the losses. |
//! | Receiver not ready | The NACK codes for a lack of resources (04 to 0B) pause the sending half for 20 us, doubling to 10 ms, and count as a sign of life. |
//! | Close Request | Takes no PSN: it may be repeated and nothing follows it. Close Command takes one, like a packet. |
//! | SYN on control packets | Refused: only the SES header of a data packet names the endpoint instance that opens the context. |
//! | Replay | The last eight contexts that a peer closed are remembered by number and start PSN. |
#![forbid(unsafe_code)]

pub use squall_cc as cc;
pub use squall_wire as wire;
pub use squall_wire::base;

mod bitmap;
mod config;
mod context;
mod counters;
mod deadlines;
mod detection;
mod dialect;
mod flows;
mod pdc;
mod pdcs;
mod rate_packet;
mod rx;
mod schedule;
mod shared;
mod telemetry;
mod tick;
mod tx;
mod types;
mod wait;

pub use config::{
    CREDIT_HEADER, Config, Conflict, LINGER_BYTES, MAX_WINDOW, MPR_UNIT, NOMINAL_OVERHEAD,
};
pub use counters::{Counters, NACK_CODES, NackCounts};
pub use detection::{LossDetection, UnknownDetector};
pub use dialect::Dialect;
pub use flows::{FlowRecord, PathRecord};
pub use pdcs::{Admissions, Pdcs, RatePacketOut, TARDY};
pub use rate_packet::{emit_rates, rates_of, speculation_of};
pub use telemetry::{hop_of, record_of};
pub use types::{
    Arrival, Association, Contact, ControlOut, ControlPacket, Delivery, EndArrival, Event, Label,
    NamedContext, NewPacket, Origin, PdcFailure, PdcId, PdcInfo, PeerKey, QueuedPacket, Refusal,
    RunArrival, RunGrant, RxVerdict, SendError, Target, TxGrant,
};
pub use wait::Wait;
