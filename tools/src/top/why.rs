//! Says in a sentence what limits an endpoint. The first rule that applies decides; the most
//! significant rules come first.
//!
//! The thresholds are set where users notice an effect, not where a counter exceeds zero.

use squall_base::Span;

use super::rates::{Counts, Row};

/// Age of an endpoint's values above which the endpoint counts as not served: four times the
/// default interval.
const QUIET: Span = Span::secs(1);
/// Smallest shares of retransmitted packets and of ECN marks that are reported.
const MANY_RESENT: f64 = 0.001;
const MANY_MARKED: f64 = 0.05;
/// Smallest share of progress calls without work at which an endpoint counts as idle.
const MOSTLY_IDLE: f64 = 0.98;
/// Smallest number of times per second that a full socket is reported.
const MANY_FULL: f64 = 100.0;

/// Returns a sentence that says what has limited the endpoint since the previous reading.
pub(super) fn why(row: &Row) -> String {
    if !row.seen.alive {
        let torn =
            if row.seen.snapshot.torn { ", caught in the middle of writing them" } else { "" };
        return format!("its process is gone; these are its last counters{torn}");
    }
    if row.seen.age > QUIET {
        return format!(
            "not served for {}: its application makes no call, and nothing arrives for it",
            row.seen.age
        );
    }
    let lately = &row.lately;
    let rules: [fn(&Counts) -> Option<String>; 10] =
        [overflow, lost, detoured, held_back, slow_peer, resent, marked, blocked, failed, idle];
    let first = rules.iter().find_map(|rule| rule(lately));
    first.unwrap_or_else(|| "nothing limits it".to_owned())
}

fn percent(share: f64) -> String {
    format!("{:.*} %", if share < 0.01 { 2 } else { 1 }, share * 100.0)
}

fn overflow(lately: &Counts) -> Option<String> {
    let lost = lately.of("rx_overflow");
    (lost > 0).then(|| {
        format!(
            "this host dropped {lost} packets for want of socket buffer: raise net.core.rmem_max and \
             FI_SQUALL_RCVBUF, or leave it more processor time"
        )
    })
}

fn lost(lately: &Counts) -> Option<String> {
    let timeouts = lately.of("timeouts");
    (timeouts > 0 && lately.of("rx_acks") == 0)
        .then(|| format!("peers do not answer: {timeouts} time-outs, and not one acknowledgement"))
}

fn detoured(lately: &Counts) -> Option<String> {
    let detours = lately.of("detours");
    (detours > 0).then(|| {
        format!(
            "a peer answered on none of the paths to it, so contexts left them for other source ports, \
             {detours} in all: a link or switch is dead and routing sends packets there still, or the peer had no \
             processor"
        )
    })
}

fn held_back(lately: &Counts) -> Option<String> {
    let (held, deferred) = (lately.of("rx_held_back"), lately.of("rx_deferred"));
    (held + deferred > 0).then(|| {
        format!(
            "messages come before their receives ({deferred} left at their senders, {held} packets refused): \
             post receives earlier, or raise FI_SQUALL_UNEXPECTED_BYTES"
        )
    })
}

fn slow_peer(lately: &Counts) -> Option<String> {
    let share = lately.share(lately.of("rx_penalties"), lately.of("rx_acks"));
    (share >= MANY_MARKED).then(|| {
        format!(
            "a peer's host does not keep up with what comes to it: {} of the acknowledgements ask for less; raise \
             net.core.rmem_max there, or leave it more processor time",
            percent(share)
        )
    })
}

fn resent(lately: &Counts) -> Option<String> {
    let share = lately.resent();
    if share < MANY_RESENT {
        return None;
    }
    let causes = [
        ("retx_trimmed", "the network trims them: a link is congested"),
        ("retx_nacked", "peers had no room for them"),
        ("retx_out_of_order", "later ones arrived: the network loses packets"),
        ("retx_overtaken", "later ones on their path arrived: the network loses packets"),
        ("retx_probe", "probes showed that they are missing: the network loses packets"),
        ("retx_timeout", "no answer came: paths are dead, or peers have no processor"),
    ];
    let (_, cause) = causes.into_iter().max_by_key(|(name, _)| lately.of(name))?;
    Some(format!("{} of the packets are sent again, most because {cause}", percent(share)))
}

fn marked(lately: &Counts) -> Option<String> {
    let share = lately.marked();
    (share >= MANY_MARKED).then(|| {
        format!(
            "a link on the way is congested: {} of the acknowledgements report marks",
            percent(share)
        )
    })
}

fn blocked(lately: &Counts) -> Option<String> {
    let full = lately.per_second(lately.of("tx_blocked"));
    (full >= MANY_FULL).then(|| {
        format!("the socket is full {full:.0} times a second: the interface is the limit, or FI_SQUALL_SNDBUF")
    })
}

fn failed(lately: &Counts) -> Option<String> {
    let failed = lately.of("op_errors") + lately.of("lost_after_completion");
    (failed > 0).then(|| format!("{failed} operations failed: see its errors"))
}

fn idle(lately: &Counts) -> Option<String> {
    let share = lately.share(lately.of("progress_idle_turns"), lately.of("progress_turns"));
    (share >= MOSTLY_IDLE)
        .then(|| "it waits: for its application or its peers, not for the network".to_owned())
}
