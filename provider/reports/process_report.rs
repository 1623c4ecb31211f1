//! The report of this process on its use of squall ([`squall_monitor::ProcessReport`]), which `squall run`
//! collects from all ranks of a job.
//!
//! The line is written when the last enabled endpoint closes, because a process may end without calling libfabric's
//! destructor. The destructor writes it for endpoints that were left open, and for a process that enabled none.

use core::sync::atomic::{AtomicU8, Ordering};
use std::collections::BTreeSet;
use std::net::SocketAddr;

use parking_lot::Mutex;

use squall_engine::{Engine, PeerId};
use squall_monitor::ProcessReport;

use crate::host::param::params;
use crate::host::standard_error;
use crate::network::nic::Nic;
use crate::objects::PerProcess;
use crate::reports::monitor;
use crate::reports::stats::{self, Statistics};

/// Totals of this process for its report, and whether they were written.
#[derive(Default)]
struct Totals {
    report: ProcessReport,
    written: bool,
}

static TOTALS: PerProcess<Mutex<Totals>> = PerProcess::new();

/// Best result of the calls of fi_getinfo(3) so far, which explains why a process has no endpoint.
static ANSWERS: AtomicU8 = AtomicU8::new(NOT_CALLED);
const NOT_CALLED: u8 = 0;
const SILENT: u8 = 1;
const REFUSED: u8 = 2;
const OFFERED: u8 = 3;

/// Records whether a call of fi_getinfo(3) was answered with an offer.
pub(crate) fn note_answer(offered: bool) {
    ANSWERS.fetch_max(if offered { OFFERED } else { REFUSED }, Ordering::Relaxed);
}

/// Records that a call of fi_getinfo(3) was not answered, because squall is disabled or not named.
pub(crate) fn note_silence() {
    ANSWERS.fetch_max(SILENT, Ordering::Relaxed);
}

/// Counts an endpoint that was enabled on this network interface.
pub(crate) fn count_endpoint(nic: &Nic) {
    if !params().report {
        return;
    }
    let mut totals = TOTALS.get().lock();
    totals.written = false;
    totals.report.endpoints += 1;
    totals.report.interfaces.insert(nic.name.clone(), nic.mtu);
}

/// Adds the statistics of an endpoint, which closes, to the totals of this process.
pub(crate) fn add(engine: &Engine, statistics: &Statistics<'_>) {
    if !params().report {
        return;
    }
    let mut totals = TOTALS.get().lock();
    totals.written = false;
    let report = &mut totals.report;
    let sent = statistics.flows.iter().filter(|flow| flow.bytes > 0);
    let numbers: BTreeSet<u32> = sent.map(|flow| flow.peer.0).collect();
    let addresses = numbers.into_iter().map(|peer| engine.peers().get(PeerId(peer)).addr());
    // Some MPIs send messages to their own rank through the provider.
    let peers: Vec<SocketAddr> = addresses.filter(|addr| *addr != statistics.local).collect();
    let here = peers.iter().filter(|addr| addr.ip() == statistics.local.ip()).count() as u64;
    let counters = statistics.engine;
    // The first messages to a peer of this host travel by packets, until the channel is open.
    report.packet_peers += peers.len() as u64 - here + here.saturating_sub(counters.shm_channels);
    report.shm_peers += counters.shm_channels;
    for rail in &statistics.rails {
        let (sent, received) = report.rails.entry(rail.name.clone()).or_default();
        *sent += rail.tx_bytes;
        *received += rail.rx_bytes;
    }
    report.encrypted |= statistics.is_encrypted();
    report.retransmitted += statistics.reliability.retransmissions();
    report.failed +=
        counters.op_errors.saturating_sub(counters.op_cancelled) + counters.lost_after_completion;
}

/// Writes the report, because no endpoint of this process is enabled any more.
pub(crate) fn write_when_idle() {
    if params().report {
        write();
    }
}

/// Writes the report of a process that ends, unless it was written.
pub(crate) fn write_at_exit() {
    // Reading all parameters would warn about them, in a process that has used none.
    if monitor::variable("FI_SQUALL_REPORT").is_some() && params().report {
        write();
    }
}

fn write() {
    let mut totals = TOTALS.get().lock();
    if totals.written {
        return;
    }
    totals.written = true;
    let report = &mut totals.report;
    report.host = stats::hostname();
    report.pid = std::process::id();
    env!("CARGO_PKG_VERSION").clone_into(&mut report.version);
    report.place = monitor::job_place();
    if report.endpoints == 0 {
        reason(ANSWERS.load(Ordering::Relaxed)).clone_into(&mut report.reason);
    }
    standard_error::write_for_launcher(&report.line());
}

/// Returns the reason why the process has no endpoint, from the answers of `fi_getinfo`.
fn reason(answers: u8) -> &'static str {
    match answers {
        NOT_CALLED => {
            "libfabric loaded squall and did not ask for it: FI_PROVIDER or the application names another provider"
        }
        SILENT => {
            "squall is disabled (FI_SQUALL_ENABLE, /etc/squall.conf), or is installed for the system and was not named"
        }
        REFUSED => {
            "squall does not offer what the application asks for: FI_LOG_LEVEL=info FI_LOG_PROV=squall names it"
        }
        _ => "squall was offered, and the application used another provider or none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_counts_more_than_a_refusal() {
        let texts = [NOT_CALLED, REFUSED, OFFERED].map(reason);
        assert!(reason(SILENT).contains("FI_SQUALL_ENABLE"));
        note_silence();
        assert!(texts[0].contains("FI_PROVIDER") && texts[1].contains("FI_LOG_LEVEL"));
        note_answer(true);
        note_answer(false);
        assert_eq!(reason(ANSWERS.load(Ordering::Relaxed)), texts[2]);
    }
}
