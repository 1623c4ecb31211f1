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
//! - Commands: [`Pdcs::set_host`], [`Pdcs::admissions`], [`Pdcs::open`], [`Pdcs::next_packet`], [`Pdcs::close`], [`Pdcs::abort`],
//!   [`Pdcs::set_busy`], [`Pdcs::peer_restarted`].
//! - What happened: [`Pdcs::rx_request`], [`Pdcs::rx_ack`], [`Pdcs::rx_nack`], [`Pdcs::rx_control`],
//!   [`Pdcs::handle_timeout`].
//! - What to do next, after any number of the above: [`Pdcs::poll_event`] until `None`;
//!   [`Pdcs::poll_retransmit`] and then [`Pdcs::next_packet`] for contexts that were
//!   [`Event::Ready`] or got new work; [`Pdcs::poll_control`] until `None` (one round of this per batch
//!   of received packets is what coalesces acknowledgements); [`Pdcs::poll_timeout`] says when to call
//!   [`Pdcs::handle_timeout`] if nothing else happens.
//!
//! Where one call must be followed by another, the first gives a token that cannot be copied: a new data
//! packet comes with a [`Delivery`], which [`Pdcs::accept`], [`Pdcs::refuse`] or [`Pdcs::drop_malformed`]
//! takes before the next packet is handed in, and a packet that counts as sent is a [`TxGrant`].
//!
//! Statistics come from [`Pdcs::counters`], [`Pdcs::info`] (a living context) and [`Pdcs::flows`] (what is
//! remembered of all contexts, also of those that closed).
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
//! [`Pdcs`] finds the context a call is about in its table and looks after what all share. A context
//! (`Pdc`) has a sending half (`Tx`: ring, flow, round-trip estimator, loss timer, recovery, prober, route,
//! readiness), a receiving half (`Rx`: window, next ACK, responses), a life, a path of control packets and
//! one table of timers (`deadlines`), which is all it can wait for.
//!
//! # Choices
//!
//! Where UE 1.0 leaves it open, or a process that shares its processor asks for something else than a
//! network card:
//!
//! | Matter | Choice |
//! |---|---|
//! | Bytes in flight | The sender adds up the packets an ACK names; `rcvd_bytes` is sent for peers that count with it. |
//! | Guaranteed responses | Until one is cleared, neither CACK_PSN passes its packet nor does a SACK bit show it: only the ACK that carries the response acknowledges it. A duplicate gets it again. |
//! | Clear | Each request clears all before the oldest outstanding packet. With no request to carry it, a Clear Command follows a response after `ack_delay`, and is repeated while the window is shut. |
//! | Coalescing | An ACK becomes due by trigger, AR, SYN, CE, duplicate, a hole that opens, or an AR packet's hole that closes; it leaves when the caller asks, once for all packets since. |
//! | SACK window | The newest 64 packets that hold everything new; a wider range takes several ACKs, of which only the first is about a packet whose round trip may be measured. |
//! | Probe answer | Complete if its bitmap shows as many packets as `ooo_count` says: then all older packets it does not show are lost; else only those among the 64. |
//! | Loss detectors | Any set of trim, ooo, probe, rto. Without `rto` the timer is the last resort at ten times its setting; without `trim` a trimmed packet's NACK is a sign of life; refusals are no losses and always answered by trying again. |
//! | Probes | Three silent round trips, or the congestion control's wish, and never two at a time. The answer reports losses where `probe` is among the detectors. Without `rto` they go on for as long as the context lives. |
//! | Scope | Flows share a congestion-control context by peer, host, endpoint or [`Label`]; the bytes in flight add up, unless each is to have the whole window. The last 1024 contexts without a flow are kept. Those that find no room stand in line; the longest waiting is woken first, as many as there is room for. |
//! | Rates | Where switches compute them, a rate packet goes before the first data, known by the flow alone; requests sent before it is back say which speculative packet they are (RUD_CC_REQ). |
//! | Credit | Requests carry the demand (RUD_CC_REQ), also when the payload was trimmed; grants travel in ACKs (cc_type 1) or alone; who is blocked asks by Credit Request. |
//! | Peers of another mode | Known by the type of their ACKs, or by credit that never comes: reported once a context, and a plain window or a timer without service times does instead. |
//! | Timeout | One packet, the oldest, until the peer answers; a peer that is not running then costs one packet a timeout and loses no window. Losses are found by NACKs, `ooo_count` and probes. |
//! | Receiver not ready | The NACK codes that mean a lack (04 to 0B) pause the sending half for 20 us, doubling to 10 ms, and count as a sign of life. |
//! | Close Request | Takes no PSN: it may be repeated and nothing follows it. Close Command takes one, like a packet. |
//! | SYN on control packets | Refused: only a data packet's SES header says which endpoint instance opens the context. |
//! | Replay | The last eight contexts a peer closed are remembered by number and start PSN. |
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
pub use flows::{FlowRecord, PathRecord};
pub use pdcs::{Admissions, Pdcs, QueuedPacket, RatePacketOut, TARDY};
pub use rate_packet::{emit_rates, rates_of, speculation_of};
pub use telemetry::{hop_of, record_of};
pub use types::{
    Arrival, Association, Contact, ControlOut, ControlPacket, Delivery, EndArrival, Event, Label,
    NewPacket, PdcFailure, PdcId, PdcInfo, PeerKey, Refusal, RunArrival, RunGrant, RxVerdict,
    SendError, Target, TxGrant,
};
pub use wait::Wait;
