//! Messages on packet delivery contexts: matching, inline, eager and rendezvous protocols, RMA and
//! completions of one endpoint, as one sans-IO state machine, [`Engine`].
//!
//! # The contract
//!
//! Methods of [`Engine`] come in four kinds:
//!
//! - getters;
//! - commands ([`Engine::send`], [`Engine::recv`], [`Engine::cancel`] ..): what the user wants;
//! - `handle_*`: what happened (a packet, a timeout, an ICMP error);
//! - `poll_*`: what to do next. After commands and `handle_*` call [`Engine::poll_transmit`] until it
//!   returns false, then [`Engine::poll_completion`] until `None`, then [`Engine::poll_timeout`] and
//!   arrange for [`Engine::handle_timeout`] to be called then.
//!
//! Time is passed in and never goes backwards. User memory is named by addresses and touched only
//! through [`Memory`]. There is no thread, lock, clock, socket or log below this line.
#![forbid(unsafe_code)]

mod api;
mod batch;
mod config;
mod counters;
mod engine;
mod matching;
mod memory;
mod messages;
mod ops;
mod order;

pub use squall_reliability as reliability;
pub use squall_reliability::{base, cc, wire};

pub use api::{
    Class, Completion, Level, Notify, OpError, OpKind, Peek, PeerId, RecvOp, Refused, RemoteIov,
    RemoteSeg, RmaOp, SendOp, Trouble,
};
pub use batch::{Batch, TxPacket};
pub use config::Config;
pub use counters::Counters;
pub use engine::{Engine, RxMeta};
pub use memory::{Access, Buf, KeyError, Memory, Seg};
