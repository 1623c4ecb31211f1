//! Baseline algorithms, with which papers compare their own: congestion controls and path selectors
//! that run in live jobs and in the simulator like all others.

mod bbr;
mod bitmap;
mod dcqcn;
mod dctcp;
mod ecmp;
mod fixed;
mod hpcc;
mod mixed;
mod mprdma;
mod oblivious;
mod plb;
mod reps_v1;
mod single;
mod swift;
mod timely;

pub use bbr::{Bbr, BbrConfig};
pub use bitmap::{BitmapConfig, BitmapPaths};
pub use dcqcn::{Dcqcn, DcqcnConfig, DcqcnVariant, NotifyReceiver};
pub use dctcp::{Dctcp, DctcpConfig};
pub use ecmp::{Ecmp, EcmpConfig};
pub use fixed::{FixedWindow, FixedWindowConfig};
pub use hpcc::{Hpcc, HpccConfig};
pub use mixed::{MixedConfig, MixedPaths};
pub use mprdma::{AckClockedConfig, AckClockedPaths, Mprdma, MprdmaConfig};
pub use oblivious::{ObliviousConfig, ObliviousPaths};
pub use plb::{Plb, PlbConfig};
pub use reps_v1::{RepsV1, RepsV1Config};
pub use single::{SingleConfig, SinglePath};
pub use swift::{Swift, SwiftConfig};
pub use timely::{Timely, TimelyConfig};
