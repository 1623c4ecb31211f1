//! The table of a host's interfaces: their rank, or why endpoints do not use them.

use std::net::IpAddr;

use squall_net::iface::{Candidate, InterfaceClass, UnaddressedInterface};

/// Number of ends of containers' cables that have a line each. A host of many containers has
/// hundreds of them.
const CABLE_LINES: usize = 2;

const HEADINGS: [&str; 6] = ["NAME", "ADDRESS", "MTU", "SPEED", "RANK", "REASON"];

/// A line of the table of interfaces.
struct Row {
    columns: [String; 6],
    /// True if the interface is the end of a cable to a container, without an address that could be
    /// used.
    container_end: bool,
}

/// Returns the lines of the table of interfaces, the first of which has the headings. `candidates`
/// are in the order of [`squall_net::iface::select`].
pub(super) fn table(candidates: &[Candidate], unaddressed: &[UnaddressedInterface]) -> Vec<String> {
    let is_shown = |(position, candidate): &(usize, &Candidate)| {
        // Nearly every interface has a link-local address of IPv6 beside its others, and loopback
        // has one of each family.
        let name = &candidate.iface.name;
        let first = !candidates[..*position].iter().any(|other| other.iface.name == *name);
        candidate.kept
            || first
            || !(is_link_local(candidate.iface.addr) || candidate.iface.loopback)
    };
    let shown = candidates.iter().enumerate().filter(is_shown).zip(1_u32..);
    let mut rows: Vec<Row> = shown.map(|((_, candidate), rank)| ranked(candidate, rank)).collect();
    rows.extend(unaddressed.iter().map(unranked));
    fold_container_ends(&mut rows);
    let headings = Row { columns: HEADINGS.map(str::to_owned), container_end: false };
    rows.insert(0, headings);
    let widths: [usize; 6] = std::array::from_fn(|column| {
        rows.iter().map(|row| row.columns[column].chars().count()).max().unwrap_or(0)
    });
    let line = |row: &Row| {
        let padded = row.columns.iter().zip(widths);
        let line: String = padded.map(|(text, width)| format!("{text:width$}  ")).collect();
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn ranked(candidate: &Candidate, rank: u32) -> Row {
    let Candidate { iface, kept, reason } = candidate;
    let columns = [
        iface.name.clone(),
        format!("{}/{}", iface.addr, iface.prefix),
        iface.mtu.to_string(),
        iface.speed_mbps.map_or_else(|| "-".to_owned(), speed),
        if *kept { rank.to_string() } else { "not used".to_owned() },
        reason.clone(),
    ];
    let container_end = iface.class() == InterfaceClass::Cable && is_link_local(iface.addr);
    Row { columns, container_end: container_end && !kept }
}

fn unranked(interface: &UnaddressedInterface) -> Row {
    let mut reason = interface.description();
    match &interface.port_of {
        Some(upper) => reason.push_str(&format!("; port of {upper}")),
        None => reason.push_str("; no address"),
    }
    if !interface.up {
        reason.push_str(", down");
    } else if !interface.running {
        reason.push_str(", no carrier");
    }
    let absent = || "-".to_owned();
    let (name, mtu) = (interface.name.clone(), interface.mtu.to_string());
    let columns = [name, absent(), mtu, absent(), "not used".to_owned(), reason];
    Row { columns, container_end: interface.class() == InterfaceClass::Cable }
}

/// Replaces all but the first ends of containers' cables by a count in the last line that is kept.
fn fold_container_ends(rows: &mut Vec<Row>) {
    let ends = rows.iter().filter(|row| row.container_end).count();
    if ends <= CABLE_LINES + 1 {
        return;
    }
    let mut seen = 0;
    rows.retain_mut(|row| {
        seen += usize::from(row.container_end);
        if row.container_end && seen == CABLE_LINES {
            row.columns[5].push_str(&format!("; and {} more like it", ends - CABLE_LINES));
        }
        !row.container_end || seen <= CABLE_LINES
    });
}

/// Returns the speed of a link in words, such as `100 Gb/s`.
pub(super) fn speed(mbps: u32) -> String {
    if mbps >= 1000 && mbps.is_multiple_of(1000) {
        format!("{} Gb/s", mbps / 1000)
    } else {
        format!("{mbps} Mb/s")
    }
}
