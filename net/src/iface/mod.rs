//! Network interfaces, and the selection of interfaces by an expression.

use std::fmt;
use std::net::IpAddr;

mod device;
mod facts;
mod list;
mod rank;
mod route;
#[cfg(test)]
mod tests;
mod words;

pub use device::{Device, PciAddress};
pub use list::{list, list_unaddressed};
pub use rank::{InterfaceClass, InterfaceFacts};
use rank::{Rank, classify, rank};
pub use route::Route;

/// A network interface with one of its IP addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iface {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// Kernel's index of the interface, which is also the scope of a link-local IPv6 address.
    pub index: u32,
    /// IP address of the interface; an interface with several has one entry for each.
    pub addr: IpAddr,
    /// Length of the address's network prefix in bits.
    pub prefix: u8,
    /// The administrator has set the interface up.
    pub up: bool,
    /// The link works (it has a carrier). The kernel may report the carrier up to a second late.
    pub running: bool,
    /// The interface is the loopback interface.
    pub loopback: bool,
    /// Largest IP packet of the interface in bytes (MTU); 0 when unknown.
    pub mtu: u32,
    /// Speed of the link in megabits per second, if the driver reports it.
    pub speed_mbps: Option<u32>,
    /// Metric of the best default route through this interface, if there is one.
    pub default_route: Option<u32>,
    /// Facts about the interface by which it is classified, as the kernel reports them.
    pub facts: InterfaceFacts,
}

impl Iface {
    /// Returns the network of the address: the bits behind the prefix are zero.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        masked(self.addr, self.prefix)
    }

    /// Returns the class of the interface: the kind of network that it leads to.
    #[must_use]
    pub fn class(&self) -> InterfaceClass {
        if self.loopback { InterfaceClass::Loopback } else { classify(&self.name, &self.facts) }
    }

    /// Returns in words what the interface is, such as "virtual: WireGuard" or "bond over eth0,
    /// eth1".
    #[must_use]
    pub fn description(&self) -> String {
        words::describe(&self.name, &self.facts, self.class())
    }
}

impl fmt::Display for Iface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.name, self.addr, self.prefix)
    }
}

/// An interface that has no IP address, so that no endpoint can use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnaddressedInterface {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// The administrator has set the interface up.
    pub up: bool,
    /// The link of the interface works (it has a carrier).
    pub running: bool,
    /// Largest IP packet of the interface in bytes (MTU).
    pub mtu: u32,
    /// Bond, team or bridge of which the interface is a port.
    pub port_of: Option<String>,
    /// Facts about the interface by which it is classified, as the kernel reports them.
    pub facts: InterfaceFacts,
}

impl UnaddressedInterface {
    /// Returns the class of the interface. Loopback is not among the interfaces without address,
    /// unless it is down.
    #[must_use]
    pub fn class(&self) -> InterfaceClass {
        classify(&self.name, &self.facts)
    }

    /// Returns in words what the interface is, such as "bond over eth0, eth1".
    #[must_use]
    pub fn description(&self) -> String {
        words::describe(&self.name, &self.facts, self.class())
    }
}

/// An interface and address, with the decision of [`select`] to keep or drop it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The interface and its address.
    pub iface: Iface,
    /// True if the interface was selected, false if it was dropped.
    pub kept: bool,
    /// Reason why the interface was selected or dropped.
    pub reason: String,
}

/// Writes a line for the log, such as "eth0 10.0.0.1/24: kept (device; matches 10.0.0.0/8)".
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.kept { "kept" } else { "dropped" };
        write!(f, "{}: {verdict} ({})", self.iface, self.reason)
    }
}

/// The reason why no interface can be selected by an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectError {
    /// A term of the selection expression is neither a name, an address nor a CIDR.
    BadTerm {
        /// The malformed term of the selection expression.
        term: String,
        /// Description of the error in the term.
        why: &'static str,
    },
    /// No usable interface matches the selection expression.
    NothingMatches {
        /// The whole selection expression.
        expression: String,
        /// All interfaces of the host, with the reasons why they were dropped.
        candidates: Vec<Candidate>,
    },
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadTerm { term, why } => write!(
                f,
                "interface selection: \"{term}\" {why}; a term is a name (eth0, eth*), an address \
                 (10.0.0.1) or a network (10.0.0.0/8), with ^ in front to exclude it"
            ),
            Self::NothingMatches { expression, candidates } => {
                write!(
                    f,
                    "interface selection \"{expression}\" matches no usable interface; the host has"
                )?;
                for (i, candidate) in candidates.iter().enumerate() {
                    write!(f, "{}{candidate}", if i == 0 { " " } else { "; " })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for SelectError {}

/// Selects among the addresses of the host. Returns all of them with a decision; those that are
/// kept come first, in order of preference.
///
/// `expression` is a comma-separated list of names (a final `*` matches any rest), addresses and
/// CIDRs. Terms with `^` in front exclude; `^` in front of the whole list excludes all of it, as in
/// `^docker0,eth1`. An interface that is down is never kept. An interface without carrier is kept
/// only when no other one is. Link-local addresses need a scope, so they are selected only by
/// address or network, not by the name of the interface.
///
/// With an including term, every match is kept. Without one, the best group of interfaces that is
/// up is kept ([`InterfaceClass::group`]): devices; else virtual cables (veth) to other network namespaces;
/// else tunnels and bridges; else loopback.
///
/// The order of preference is: the order of the including terms, then the group, IPv4 before IPv6,
/// the metric of the default route, tunnels before bridges, the speed, and the kernel's index of
/// the interface; loopback comes last. The result does not depend on the order of `ifaces`, except
/// for several addresses of one interface.
///
/// # Errors
/// A term is malformed, or an including list matches nothing that is usable.
pub fn select(ifaces: Vec<Iface>, expression: &str) -> Result<Vec<Candidate>, SelectError> {
    let terms = parse(expression)?;
    let including = terms.iter().any(|t| !t.exclude);
    let mut ranked: Vec<(Rank, Candidate)> = ifaces
        .into_iter()
        .map(|iface| {
            let (term, reason) = evaluate(&iface, &terms, including);
            let kept = term.is_some();
            (rank(&iface, term.unwrap_or(usize::MAX)), Candidate { iface, kept, reason })
        })
        .collect();
    // The user's terms override the groups: a named bridge is used beside a card.
    if !including {
        keep_best_group(&mut ranked);
    }
    drop_quiet(&mut ranked);
    // Interfaces that are not kept stay in the list, because the log and error messages show their
    // reasons.
    ranked.sort_by_key(|(rank, c)| (!c.kept, c.iface.loopback, *rank));
    let candidates: Vec<_> = ranked.into_iter().map(|(_, c)| c).collect();
    // A term without a match is probably a typing error, but other terms may still select an
    // interface.
    for term in terms.iter().filter(|t| !t.exclude) {
        if !candidates.iter().any(|c| term.matches(&c.iface)) {
            log::warn!(
                "interface selection: no interface of this host matches \"{}\"; correct or remove it",
                term.text
            );
        }
    }
    if including && !candidates.iter().any(|c| c.kept) {
        return Err(SelectError::NothingMatches { expression: expression.into(), candidates });
    }
    Ok(candidates)
}

/// Drops the interfaces whose class is in a worse group than the best class that is up.
fn keep_best_group(ranked: &mut [(Rank, Candidate)]) {
    let kept = ranked.iter().filter(|(_, c)| c.kept);
    let Some(best) = kept.map(|(_, c)| c.iface.class().group()).min() else { return };
    for (_, candidate) in ranked.iter_mut().filter(|(_, c)| c.kept) {
        let class = candidate.iface.class();
        if class.group() > best {
            let reason = format!("{}; a better interface is up", candidate.iface.description());
            mark_dropped(candidate, reason);
        } else if class != InterfaceClass::Device {
            candidate.reason.push_str("; no better interface is up");
        }
    }
}

/// Drops interfaces without a carrier if other selected interfaces have one.
fn drop_quiet(ranked: &mut [(Rank, Candidate)]) {
    let works = |c: &Candidate| c.kept && !c.iface.loopback && c.iface.running;
    let others = ranked.iter().any(|(_, c)| works(c));
    for (_, candidate) in ranked.iter_mut() {
        let quiet = candidate.kept && !candidate.iface.loopback && !candidate.iface.running;
        if quiet && others {
            let reason = format!(
                "{}; its link has no carrier, and that of another interface has one",
                candidate.iface.description()
            );
            mark_dropped(candidate, reason);
        } else if quiet {
            candidate.reason.push_str("; no interface has a link with a carrier");
        }
    }
}

/// Marks an interface as dropped for this reason.
fn mark_dropped(candidate: &mut Candidate, reason: String) {
    candidate.kept = false;
    candidate.reason = reason;
}

/// Decides about an address. Returns the number of the including term that selects it (0 without
/// such terms) if the address may be kept, and the reason for the decision.
fn evaluate(iface: &Iface, terms: &[Term], including: bool) -> (Option<usize>, String) {
    let (term, why) = apply_terms(iface, terms, including);
    let what = iface.description();
    (term, if why.is_empty() { what } else { format!("{what}; {why}") })
}

/// Decides like [`evaluate`]. The reason is empty for an address without default route that no term
/// concerns.
fn apply_terms(iface: &Iface, terms: &[Term], including: bool) -> (Option<usize>, String) {
    if !iface.up {
        return (None, "down".into());
    }
    // Exclusion wins over inclusion, as in `eth*,^eth3`.
    if let Some(term) = terms.iter().find(|t| t.exclude && t.matches(iface)) {
        return (None, format!("excluded by ^{}", term.text));
    }
    let link_local = match iface.addr {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    if including {
        let found = terms.iter().position(|t| !t.exclude && t.matches(iface));
        return match found {
            None => (None, "not selected".into()),
            // A card usually has both a link-local and a global address. By name only the global
            // one is meant.
            Some(i) if link_local && matches!(terms[i].what, TermTarget::Name(_)) => {
                (None, "link-local address: to use it, select it by address".into())
            }
            Some(i) => (Some(i), format!("matches {}", terms[i].text)),
        };
    }
    if link_local {
        return (None, "link-local address".into());
    }
    let default_route = iface.default_route.is_some();
    (Some(0), if default_route { "carries the default route" } else { "" }.into())
}

struct Term {
    text: String,
    exclude: bool,
    what: TermTarget,
}

enum TermTarget {
    Name(String),
    Network(IpAddr, u8),
}

impl Term {
    fn matches(&self, iface: &Iface) -> bool {
        match &self.what {
            TermTarget::Name(pattern) => name_matches(&iface.name, pattern),
            TermTarget::Network(net, prefix) => {
                net.is_ipv4() == iface.addr.is_ipv4() && masked(iface.addr, *prefix) == *net
            }
        }
    }
}

/// Returns whether a name matches a pattern. `eth0:1` is an alias of `eth0` and matches both names.
fn name_matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern || name.split(':').next() == Some(pattern),
    }
}

fn parse(expression: &str) -> Result<Vec<Term>, SelectError> {
    let expression = expression.trim();
    let all = expression.starts_with('^');
    expression
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| {
            let (exclude, text) = match text.strip_prefix('^') {
                Some(rest) => (true, rest.trim()),
                None => (all, text),
            };
            let what =
                parse_term(text).map_err(|why| SelectError::BadTerm { term: text.into(), why })?;
            Ok(Term { text: text.into(), exclude, what })
        })
        .collect()
}

fn parse_term(text: &str) -> Result<TermTarget, &'static str> {
    if let Some((addr, prefix)) = text.split_once('/') {
        let addr: IpAddr = addr.parse().map_err(|_| "has no IP address before the /")?;
        let prefix: u8 = prefix.parse().map_err(|_| "has no number behind the /")?;
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        if prefix > bits {
            return Err("has a prefix longer than the address");
        }
        return Ok(TermTarget::Network(masked(addr, prefix), prefix));
    }
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Ok(TermTarget::Network(addr, if addr.is_ipv4() { 32 } else { 128 }));
    }
    if text.is_empty() {
        return Err("is empty");
    }
    if text.chars().any(|c| c.is_whitespace() || c == '/' || c == '^') {
        return Err("is not an interface name");
    }
    Ok(TermTarget::Name(text.into()))
}

/// Returns the network of an address: the bits behind the prefix are zero.
pub fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            // A shift by all 32 bits overflows, and stands for the empty mask.
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(a) & mask).into())
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(a) & mask).into())
        }
    }
}
