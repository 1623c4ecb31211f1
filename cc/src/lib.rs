//! Congestion control and path selection: one folder per algorithm, no I/O, no clock, no allocation
//! after construction.
//!
//! Three traits, each with an enum over its implementations (static dispatch) and a configuration
//! that an endpoint checks once and all its flows share:
//!
//! - [`SenderCc`] / [`Sender`] / [`SenderConfig`]: the sender's congestion control. It receives
//!   [`Feedback`] and answers with a [`Budget`].
//! - [`PathSelector`] / [`Paths`] / [`PathsConfig`]: the choice of the entropy for the next packet
//!   or train.
//! - [`ReceiverCc`] / [`Receiver`]: the signals that a receiving host returns to its senders; one
//!   object per host.
//!
//! An endpoint chooses algorithms by name ([`SenderConfig::by_name`], [`PathsConfig::by_name`]);
//! their defaults follow from its [`NetworkProfile`]. `docs/your-algorithm.md` lists the names. The
//! sender's choice decides what the receiver must do ([`SenderConfig::receiver`]).
//!
//! A [`Scope`] says which flows share one sender context. The caller keeps it; it is independent of
//! the algorithm. In a shared context `in_flight` is the sum over its flows.
//!
//! ```
//! use squall_cc::base::{Rate, Rng, Span, Time};
//! use squall_cc::{Feedback, NetworkProfile, PathSelector, PathSignal, Paths, PathsConfig};
//! use squall_cc::{Sender, SenderCc, SenderConfig, SentPacket};
//!
//! // Once per endpoint: a 100 Gb/s network of 12 us that trims, packets of 4096 bytes, 64 paths.
//! let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true);
//! let config = SenderConfig::by_name("nscc:gamma=0.7", &network)?;
//! let paths = PathsConfig::by_name("reps", 64)?;
//!
//! // Once per flow.
//! let mut cc = Sender::new(&config, Time::ZERO);
//! let mut selector = Paths::new(&paths, Rng::new(1));
//!
//! // Once per packet.
//! let mut now = Time::ZERO;
//! assert!(cc.budget(now).allows(now, 0, 4096));
//! cc.on_send(now, &SentPacket { bytes: 4096, ..SentPacket::default() });
//! let path = selector.pick(now, 55);
//!
//! // Once per ACK.
//! now += Span::micros(12);
//! let rtt = Some(Span::micros(12));
//! cc.on_feedback(&Feedback { now, path, bytes: 4096, packets: 1, rtt, ..Feedback::default() });
//! selector.on_feedback(now, path, PathSignal::Good);
//! # Ok::<(), squall_cc::ChoiceError>(())
//! ```
//!
//! # Signals and actions of each algorithm
//!
//! The table lists the signals that each algorithm reads, the actions it takes and the part of its
//! receiver. "PDC" means that the packet delivery context's ordinary behaviour is enough.
//!
//! | algorithm | reads | acts by | receiver |
//! |---|---|---|---|
//! | NSCC, SMaRTT | `ecn`, `rtt`, `bytes`, [`FeedbackKind::Nacked`], `penalty`, `restore_cwnd` | `window`, [`SenderAction::Probe`] | [`AckSignals`]`::{received, penalty}` |
//! | STrack | `ecn`, `rtt`, `bytes`, `ooo`, [`FeedbackKind::ProbeAnswered`] | `window`, `pick(cwnd_packets)`, [`SenderAction::Probe`] | `ooo`; which SACK segment: PDC |
//! | Swift | `rtt`, `packets` | `window`, `not_before` below one packet | PDC |
//! | DCTCP | `ecn`, `marked` of `packets`, `in_flight` | `window` | PDC |
//! | HPCC | `int` | `rate`, `window`, `burst` | echo of `int` ([`AckStyle::telemetry`]) |
//! | VAI and SF, round Swift, HPCC, NSCC, STrack and DCTCP | `packets`, `round_end`, what the algorithm sees ([`CongestionSample`]) | [`ReferenceUpdate`] | as the algorithm |
//! | BBR | `delivered`, `rtt`, `app_limited`, `in_flight` | `rate`, `window` | PDC |
//! | DCQCN | [`FeedbackKind::Notified`], bytes of `on_send`, `on_timer` | `rate` | [`ReceiverAction::Notify`] |
//! | TIMELY | `rtt`, `bytes` | `rate`, `burst` | PDC |
//! | MPRDMA | `ecn`, `marked` of `packets` | `window` | PDC |
//! | Dart | [`FeedbackExtension::Share`], and as DCQCN | `rate`, `window` | [`AckSignals`]`::{share, state, hide_marks}`, messages and sources counted, [`ReceiverAction::Notify`] |
//! | EQDS, RCCC | [`FeedbackExtension::Credit`], [`FlowEvent::Blocked`] | `credit`, [`RequestState::Demand`], [`SenderAction::RequestCredit`] | [`ReceivedPacket::demand`], [`ReceiverAction::Credit`], `next_timer` |
//! | 3CPO, where nothing is multicast | `rtt`, `round_end` | `rate` | PDC |
//! | s-PERC, 1RC | [`FeedbackExtension::Rates`], [`FlowEvent::Blocked`] | `rate`, `credit` (none until there is a rate), [`SenderAction::SendRatePacket`], [`RequestState::Speculative`], [`SenderAction::Rewind`] | rate packets sent back; switches: [`SpercLink`], [`WindowTable`] |
//! | REPS, STrack's, bitmap, mixed | [`PathSignal`] | `pick(cwnd_packets)` | none |
//! | MPRDMA's virtual paths | [`PathSignal`] of each ACK | `pick(cwnd_packets)` | none |
//! | PLB | [`PathSignal`] counted per `cwnd_packets`, `on_idle` | `pick` | none |
//!
//! Every sender receives the same signals, and no signal is invented when it is missing: a
//! round-trip sample exists exactly where the caller knows which transmission of a packet was
//! answered.
//!
//! Networks whose switches replicate and reduce throttle operations instead of flows. [`Injection`]
//! is the limiter of one such host; [`ThreeCpo`] is its kind that also reacts to the operations of
//! other hosts.
//!
//! State that the contexts of one host share (1RC's numbers) lives in atomics behind the same `Arc`
//! as the parameters; see [`SenderConfig::of_another_host`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub use squall_base as base;

#[macro_use]
mod table;

mod baselines;
mod by_name;
mod controller;
mod eqds;
mod error;
mod fair;
mod math;
mod network;
mod nscc;
mod pace;
mod registry;
mod reps;
#[cfg(feature = "research")]
mod research;
mod selector;
mod smartt;
mod strack;
#[cfg(test)]
mod testing;
mod tuning;

pub use baselines::*;
pub use by_name::{ChoiceError, NameAndSummary};
pub use controller::{
    AckSignals, AckStyle, Budget, CREDIT_UNIT, Congestion, CreditConfig, Feedback,
    FeedbackExtension, FeedbackKind, FlowEvent, Hops, IntHop, LineShare, LinkEntries, LinkEntry,
    LinkState, LossThreshold, MOST_HOPS, MOST_LINKS, RCVD_UNIT, RatePacket, ReceivedPacket,
    ReceiverAction, ReceiverCc, ReceiverConfig, RequestState, RxFlow, Scope, SenderAction,
    SenderCc, SenderList, SenderMetrics, SenderParameters, SentPacket, ShareConfig, Speculation,
    Stamp, StartEpoch, WHOLE_SHARE, credit_bytes, credit_units, received_between,
};
pub use eqds::{CreditReceiver, CreditWindow, CreditedConfig, CreditedSender, Eqds, EqdsConfig};
pub use error::ConfigError;
pub use fair::{
    CongestionSample, FairCc, FairConfig, FairParameters, FairSender, Fairness, Reference,
    ReferenceUpdate, VaiConfig,
};
pub use network::NetworkProfile;
pub use nscc::{Averaging, Nscc, NsccConfig, NsccParts, NsccReceiver, Scaling};
pub use pace::{PacedConfig, PacedSender};
pub use registry::{Paths, PathsConfig, Receiver, Sender, SenderConfig};
pub use reps::{Reps, RepsConfig};
#[cfg(feature = "research")]
pub use research::*;
pub use selector::{PathMetrics, PathParameters, PathSelector, PathSignal};
pub use smartt::{Smartt, SmarttConfig};
pub use strack::{Strack, StrackConfig, StrackPaths, StrackPathsConfig};
pub use tuning::{Parameter, Setting, Tunable};
