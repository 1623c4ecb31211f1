//! Finds the interface that endpoints will use, and the reason.

use squall_net::iface::{
    self, Candidate, Iface, InterfaceClass, SelectError, UnaddressedInterface,
};

use squall_net::rails::MAX_RAILS;

use super::finding::Finding;
use super::ranking::{self, speed};

/// An interface is reported as faster than the chosen one if its speed is at least this multiple.
const FASTER: u32 = 2;

/// The interfaces of the host, and the choice among them.
pub(super) struct Selection {
    pub(super) chosen: Option<Iface>,
    /// Lines of the table of all interfaces of the host; empty if they cannot be listed.
    pub(super) table: Vec<String>,
    pub(super) findings: Vec<Finding>,
}

/// Chooses an interface as endpoints do from FI_SQUALL_IFACE, and cards from FI_SQUALL_RAILS.
pub(super) fn choose(expression: &str, rails: &str) -> Selection {
    match iface::list() {
        Ok(all) => {
            // Without this list, the table lacks interfaces that no endpoint can use.
            let unaddressed = iface::list_unaddressed().unwrap_or_default();
            let selected = iface::select(all, expression);
            let rails = selected.as_ref().map(|all| judge_rails(all, rails, is_strict));
            let rails = rails.unwrap_or_default();
            let mut selection = judge(selected, &unaddressed, expression);
            selection.findings.extend(rails);
            selection
        }
        Err(error) => {
            let what = format!("no endpoint can open: the interfaces cannot be listed: {error}");
            let cure = "allow this process netlink sockets and more descriptors (ulimit -n)";
            Selection { chosen: None, table: vec![], findings: vec![Finding::fault(what, cure)] }
        }
    }
}

/// Judges the cards that endpoints use together with `FI_SQUALL_RAILS=rails`, the first of `candidates`. `strict` tells
/// whether the kernel checks that answers to the source of a packet would leave by the interface of this name.
pub(super) fn judge_rails(
    candidates: &[Candidate],
    rails: &str,
    strict: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let most = if rails.eq_ignore_ascii_case("all") {
        MAX_RAILS
    } else {
        rails.parse().map_or(1, |most: usize| most.min(MAX_RAILS))
    };
    let mut kept = candidates.iter().filter(|candidate| candidate.kept).map(|c| &c.iface);
    let Some(first) = kept.next().filter(|_| most > 1) else { return Vec::new() };
    let others = kept.filter(|iface| iface.addr.is_ipv4() == first.addr.is_ipv4());
    let cards: Vec<&Iface> = [first].into_iter().chain(others.take(most - 1)).collect();
    let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
    let [_, _, ..] = cards[..] else {
        return vec![Finding::note(
            format!(
                "FI_SQUALL_RAILS={rails}: endpoints use {} alone: no other card of its address family is selected",
                first.name
            ),
            "name the cards: export FI_SQUALL_IFACE=NAME,NAME",
        )];
    };
    let mut findings = vec![Finding::well(format!("endpoints use {} together", names.join(", ")))];
    for (at, card) in cards.iter().enumerate() {
        let twin = cards[..at].iter().find(|other| other.network() == card.network());
        if let Some(twin) = twin.filter(|_| card.addr.is_ipv4() && strict(&card.name)) {
            findings.push(Finding::fault(
                format!(
                    "packets that arrive at {} are dropped: {} is in its network {}/{}, and rp_filter is strict",
                    card.name, twin.name, card.network(), card.prefix
                ),
                format!("sysctl -w net.ipv4.conf.{}.rp_filter=2   # and at other hosts alike", card.name),
            ));
        }
    }
    findings
}

/// Returns whether the kernel drops packets that arrive at an interface although answers to their source would leave by
/// another one. The stricter of the settings for all interfaces and for this one counts, but 2 is the looser.
fn is_strict(name: &str) -> bool {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    read("all").max(read(name)) == 1
}

/// Judges the selection by `expression`, which is empty without FI_SQUALL_IFACE.
pub(super) fn judge(
    selected: Result<Vec<Candidate>, SelectError>,
    unaddressed: &[UnaddressedInterface],
    expression: &str,
) -> Selection {
    let candidates = match selected {
        Ok(candidates) => candidates,
        Err(SelectError::NothingMatches { candidates, .. }) => {
            let what = format!(
                "no endpoint can open: FI_SQUALL_IFACE={expression} matches no usable interface"
            );
            let cure = "set FI_SQUALL_IFACE to a name or network of an interface above that is up, or unset it";
            let table = ranking::table(&candidates, unaddressed);
            return Selection { chosen: None, table, findings: vec![Finding::fault(what, cure)] };
        }
        Err(error @ SelectError::BadTerm { .. }) => {
            let what = format!("no endpoint can open: FI_SQUALL_IFACE={expression}: {error}");
            let cure = "correct FI_SQUALL_IFACE, or unset it";
            let findings = vec![Finding::fault(what, cure)];
            return Selection { chosen: None, table: Vec::new(), findings };
        }
    };
    let table = ranking::table(&candidates, unaddressed);
    let Some(chosen) = candidates.iter().find(|candidate| candidate.kept) else {
        let what = "no endpoint can open: no interface is up with an IP address";
        let cure = "ip link set NAME up && ip address add ADDRESS/BITS dev NAME";
        return Selection { chosen: None, table, findings: vec![Finding::fault(what, cure)] };
    };
    let mut findings = vec![judge_chosen(chosen, expression)];
    findings.extend(judge_carrier(&chosen.iface));
    if expression.is_empty() {
        findings.extend(report_faster(&chosen.iface, &candidates));
    }
    Selection { chosen: Some(chosen.iface.clone()), table, findings }
}

/// Returns the finding that names the interface which endpoints will use.
fn judge_chosen(chosen: &Candidate, expression: &str) -> Finding {
    let Candidate { iface, reason, .. } = chosen;
    let what = format!("endpoints will be on {iface}: {reason}");
    match iface.class() {
        InterfaceClass::Loopback => Finding::note(
            format!("{what}; only this host can reach them there"),
            "bring up the interface that leads to the other hosts, or name it: export FI_SQUALL_IFACE=NAME",
        ),
        class if class.is_doubtful() => Finding::note(
            format!("{what}; other hosts may not reach them there"),
            "name the network that all hosts of the job share: export FI_SQUALL_IFACE=NAME, or a network such as 10.1.0.0/16",
        ),
        _ if expression.is_empty() => {
            Finding::well(format!("{what}; FI_SQUALL_IFACE=NAME chooses another"))
        }
        _ => Finding::well(what),
    }
}

fn judge_carrier(chosen: &Iface) -> Option<Finding> {
    let what = format!("packets of {} go nowhere: the kernel reports no carrier", chosen.name);
    let cure = "check its cable and its switch, or choose another: export FI_SQUALL_IFACE=NAME";
    (!chosen.running).then(|| Finding::fault(what, cure))
}

/// Reports the fastest other interface that endpoints could use, if it is much faster than the
/// chosen one, which comes first for its default route. On clusters the default route often belongs
/// to the management network.
fn report_faster(chosen: &Iface, candidates: &[Candidate]) -> Option<Finding> {
    let own = chosen.speed_mbps.filter(|_| chosen.default_route.is_some())?;
    // Of equally fast interfaces, `max_by_key` returns the last one.
    let others = candidates.iter().rev().filter(|other| other.kept && other.iface.running);
    let fastest = others.max_by_key(|other| other.iface.speed_mbps)?;
    let iface = &fastest.iface;
    let mbps = iface.speed_mbps.filter(|mbps| *mbps / FASTER >= own)?;
    Some(Finding::note(
        format!(
            "{} is faster than {}: it has {}, and {} has the default route with {}",
            iface.name,
            chosen.name,
            speed(mbps),
            chosen.name,
            speed(own)
        ),
        format!(
            "export FI_SQUALL_IFACE={}   # at every rank, if all hosts of the job are on {}/{}",
            iface.name,
            iface.network(),
            iface.prefix
        ),
    ))
}
