//! Congestion control and path selection: one file an algorithm, no I/O, no clock, no allocation
//! after construction.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub use squall_base as base;

mod budget;
mod error;
mod feedback;
mod fixed;
mod nscc;
mod path;
mod receiver;
mod sender;

pub use budget::{Action, Budget, FlowEvent, Metrics, Scope, Sending, Stamp};
pub use error::ConfigError;
pub use feedback::{Feedback, Grant, GroupOp, IntHop, Kind};
pub use fixed::{FixedWindow, FixedWindowConfig};
pub use nscc::{Averaging, Nscc, NsccConfig, Scaling};
pub use path::{
    Oblivious, PathMetrics, PathSelector, PathSignal, Paths, PathsConfig, Reps, RepsConfig, Single,
};
pub use receiver::{
    AckSignals, NsccReceiver, RCVD_UNIT, Receiver, ReceiverAction, ReceiverCc, RxFlow, RxMeta,
    received_between,
};
pub use sender::{Sender, SenderCc, SenderConfig};
