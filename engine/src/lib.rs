//! Messages on packet delivery contexts: matching, inline, eager and rendezvous protocols, RMA and
//! completions of one endpoint, as one sans-IO state machine, [`Engine`].
//!
//! # The contract
//!
//! Methods of [`Engine`] come in four kinds:
//!
//! - getters;
//! - commands ([`Engine::submit`], [`Engine::receive`], [`Engine::cancel`] ..): a request of the
//!   user;
//! - `handle_*`: an event (a packet, a timeout, an ICMP error);
//! - `poll_*`: the next thing for the caller to do. After commands and `handle_*` call
//!   [`Engine::poll_transmit`] until it returns false, then [`Engine::poll_completion`] until
//!   `None`, then [`Engine::poll_timeout`], and arrange for [`Engine::handle_timeout`] to be called
//!   at that time.
//!
//! One place, `policy.rs`, decides whether an operation's data is copied or lent, which protocol
//! carries it, when it is complete and how that is reported.
//!
//! Messages that arrive before their receive are kept, or deferred to their sender; see
//! `inbox/budget.rs`.
//!
//! Time is passed in and never goes backwards. User memory is named by addresses and accessed only
//! through [`Memory`]. The engine has no thread, lock, clock, socket or log.
#![forbid(unsafe_code)]

mod access_groups;
mod atomics;
mod channel;
mod completion;
mod config;
mod contexts;
mod counters;
mod engine;
mod fences;
mod foreign_wire;
mod fragments;
mod handshake;
mod holdings;
mod inbox;
mod liveness;
mod matching;
mod memory;
mod message_ids;
mod messages;
mod operation;
mod ops;
mod order;
mod outbound;
mod packet_form;
mod packet_outcome;
mod part;
mod path_sizes;
mod peers;
mod policy;
mod report;
mod shm;
mod slab;
mod step;
mod target;
mod unmatched_packets;

use squall_reliability as reliability;
use squall_reliability::{base, wire};

pub use atomics::{atomic_combine, atomic_has_comparands, atomic_size, max_atomic_count};
pub use channel::ShmId;
pub use completion::{Completion, Notice, OpError, OpKind, WaitLimit};
pub use config::{Config, UET_PORT};
pub use counters::Counters;
pub use engine::{Engine, PacketMarks, ShmCloseReason, ShmInterface, Shutdown, VerifiedPeer};
pub use fences::{OperationClasses, Order};
pub use foreign_wire::{ForeignWire, PeerAddress};
pub use handshake::{RecordedHandshake, SecretEvent, SharedSecret};
pub use holdings::Holdings;
pub use memory::{Access, Buf, KeyError, Memory};
pub use operation::{
    Action, Atomic, Level, MatchSpace, Operation, Options, PeerId, RecvMode, RecvOp, RemoteIov,
    RemoteSeg, SubmitError, Submitted, Visibility,
};
pub use peers::{DestinationError, PeerState, Peers};
pub use reliability::{
    Config as TransportConfig, Conflict as TransportConflict, Counters as TransportCounters,
    FlowRecord, LossDetection, NOMINAL_OVERHEAD, NackCounts, PathRecord, PdcInfo, PeerKey,
};
pub use shm::{NoChannels, RecordOutcome, RecordOutput, RecordPayload, ReferenceResult, Room};
pub use wire::{AmoOp, AmoType, ReturnCode, WIRE_VERSION};
