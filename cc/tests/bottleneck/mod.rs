//! Convergence of flows to a fair and full bottleneck. The tables are snapshots: when one changes
//! on purpose, replace its file by the output of the failing test.
//!
//! `SQUALL_SVG=DIR cargo test -p squall-cc --test tests bottleneck` draws queue and windows of every row.

mod bed;
mod draw;
mod every;
mod nscc;
mod pace;
mod smartt;
mod strack;

use bed::{FlowSpec, MTU, Outcome, Scene, run};
use squall_cc::base::{Rate, Span, Time};
use squall_cc::{NetworkProfile, SenderConfig};

const LINE: Rate = Rate::gbps(100);
const BASE: Span = Span::micros(12);

/// The reference network of UE 1.0: 100 Gb/s, 12 us.
const fn network(trimming: bool) -> NetworkProfile {
    NetworkProfile::new(LINE, BASE, MTU, trimming)
}

fn millis(n: u64) -> Time {
    Time::ZERO + Span::millis(n)
}

/// Returns an environment variable by which the user of the tests controls them.
#[allow(clippy::disallowed_methods)] // a test, not the provider
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// `n` endless flows of the base round-trip time, started `apart`.
fn flows(n: u64, apart: Span) -> Vec<FlowSpec> {
    let flow = |i| FlowSpec { start: Time::ZERO + apart * i, stop: Time::NEVER, base_rtt: BASE };
    (0..n).map(flow).collect()
}

/// A scene on the reference network.
fn scene(cc: SenderConfig, flows: Vec<FlowSpec>, trimming: bool, seed: u64) -> Scene {
    Scene { network: network(trimming), cc, flows, seed }
}

/// `n` equal flows, started `apart`; measured from 2 to 6 ms.
fn equal_flows(cc: &SenderConfig, n: u64, apart: Span, trimming: bool) -> Outcome {
    let scene = scene(cc.clone(), flows(n, apart), trimming, n);
    run(&scene, millis(2), millis(6))
}
