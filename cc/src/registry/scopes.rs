//! Names of the scopes: which flows share a congestion-control context.

use alloc::string::ToString;
use core::fmt;

use crate::by_name::{ChoiceError, NameAndSummary};
use crate::controller::Scope;
use crate::registry::SenderConfig;

/// Name for the scope that the chosen algorithm asks for.
const AUTO: NameAndSummary =
    ("auto", "what the algorithm is made for: host with 3cpo, flow with all others");

/// Every scope of congestion control: its name and a one-line description.
const ALL: [(Scope, NameAndSummary); 7] = [
    (
        Scope::PerFlow,
        ("flow", "each packet delivery context has a congestion-control context of its own"),
    ),
    (
        Scope::PerServiceLevel,
        ("service-level", "one for all flows at a service level; an endpoint has one level"),
    ),
    (Scope::PerPair, ("pair", "one for all flows to a remote endpoint")),
    (Scope::PerDestination, ("destination", "one for all flows to a remote host")),
    (
        Scope::PerDestinationUnsplit,
        (
            "destination-unsplit",
            "the same, but each flow has its whole window and rate, as ConnectX-5 does it (the thesis that describes it cites a \
             patent of Mellanox)",
        ),
    ),
    (Scope::PerHost, ("host", "one for all flows of this endpoint")),
    (Scope::PerGroup, ("group", "one for all flows of a job; an endpoint is of one job")),
];

impl Scope {
    /// Name that selects the scope of the chosen algorithm ([`SenderConfig::scope`]).
    pub const AUTO: &'static str = AUTO.0;

    /// Returns the scope of this name, for contexts of `cc`.
    ///
    /// # Errors
    /// Returns the allowed names if there is none of this name.
    pub fn by_name(text: &str, cc: &SenderConfig) -> Result<Self, ChoiceError> {
        if text == Self::AUTO {
            return Ok(cc.scope());
        }
        Self::all().find(|scope| scope.name() == text).ok_or_else(|| ChoiceError::Name {
            kind: "scope of congestion control",
            requested: text.to_string(),
            allowed: Self::NAMES,
        })
    }

    /// Every scope that the flows between two endpoints can have: its name and a one-line
    /// description.
    pub const NAMES: &'static [NameAndSummary] =
        &[AUTO, ALL[0].1, ALL[1].1, ALL[2].1, ALL[3].1, ALL[4].1, ALL[5].1, ALL[6].1];

    /// Returns all scopes of congestion control.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.into_iter().map(|(scope, _)| scope)
    }

    /// Returns the name by which a user asks for the scope.
    #[must_use]
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(scope, _)| *scope == self).map_or("", |(_, named)| named.0)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use squall_base::{Rate, Span};

    use super::*;
    use crate::network::NetworkProfile;

    #[test]
    fn names_are_read_as_they_are_written() {
        let network = NetworkProfile::new(Rate::gbps(100), Span::micros(10), 4096, false);
        let nscc = SenderConfig::by_name("nscc", &network).unwrap();
        for (name, _) in &Scope::NAMES[1..] {
            assert_eq!(Scope::by_name(name, &nscc).unwrap().to_string(), *name);
        }
        for (cc, text, scope) in [
            #[cfg(feature = "research")]
            ("3cpo", "auto", Scope::PerHost),
            ("nscc:vai=1", "auto", Scope::PerFlow),
            #[cfg(feature = "research")]
            ("3cpo", "flow", Scope::PerFlow),
        ] {
            let cc = SenderConfig::by_name(cc, &network).unwrap();
            assert_eq!(Scope::by_name(text, &cc), Ok(scope));
        }
        let error = Scope::by_name("rack", &nscc).unwrap_err().to_string();
        let all = "auto, flow, service-level, pair, destination, destination-unsplit, host, group";
        assert!(error.contains(all), "{error}");
    }
}
