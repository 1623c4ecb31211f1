//! Finds the interface that endpoints will use, and the reason.

use squall_net::iface::{self, Candidate, Iface, SelectError};

use super::finding::Finding;

/// Chooses an interface as endpoints do from FI_SQUALL_IFACE, and returns it with the findings
/// about it.
pub(super) fn choose(expression: &str) -> (Option<Iface>, Vec<Finding>) {
    match iface::list() {
        Ok(all) => judge(iface::select(all, expression), expression),
        Err(error) => {
            let cure = "is /proc mounted, and are there descriptors left (ulimit -n)?";
            (None, vec![Finding::fault(format!("the interfaces cannot be listed: {error}"), cure)])
        }
    }
}

pub(super) fn judge(
    selected: Result<Vec<Candidate>, SelectError>,
    expression: &str,
) -> (Option<Iface>, Vec<Finding>) {
    let candidates = match selected {
        Ok(candidates) => candidates,
        Err(error) => {
            let cure = "set FI_SQUALL_IFACE to an interface of these, or leave it out";
            return (
                None,
                vec![Finding::fault(format!("FI_SQUALL_IFACE={expression}: {error}"), cure)],
            );
        }
    };
    let chosen = candidates.iter().find(|candidate| candidate.kept);
    let mut findings = vec![match chosen {
        None => {
            Finding::fault("no interface is up that endpoints could be on", "ip link set NAME up")
        }
        Some(Candidate { iface, reason, .. }) if iface.loopback => Finding::note(
            format!("endpoints will be on {iface} ({reason}): this host alone can reach them"),
            "set FI_SQUALL_IFACE to the interface that leads to the other hosts, when it is up",
        ),
        Some(Candidate { iface, reason, .. }) if iface.class().is_doubtful() => Finding::note(
            format!(
                "endpoints will be on {iface} ({reason}), which is {}: other hosts may not reach them there",
                iface.class().words()
            ),
            "set FI_SQUALL_IFACE to the network that all hosts of the job share, such as 10.1.0.0/16",
        ),
        Some(Candidate { iface, reason, .. }) => Finding::well(format!(
            "endpoints will be on {iface} ({reason}); MTU {}, {}",
            iface.mtu,
            iface
                .speed_mbps
                .map_or_else(|| "speed not known".to_owned(), |mbps| format!("{mbps} Mb/s"))
        )),
    }];
    if let Some(Candidate { iface, .. }) = chosen
        && !iface.running
    {
        findings.push(Finding::fault(
            format!("{} has no carrier", iface.name),
            "look at the cable and the switch, or set FI_SQUALL_IFACE to another interface",
        ));
    }
    let others = candidates.iter().filter(|candidate| Some(*candidate) != chosen);
    findings.extend(others.map(|other| Finding::well(format!("not chosen: {other}"))));
    (chosen.map(|candidate| candidate.iface.clone()), findings)
}
