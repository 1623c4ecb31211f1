//! Scopes by name.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

use crate::budget::Scope;
use crate::choose::{ChoiceError, Named};

impl Scope {
    /// Every scope that flows between two endpoints can have: its name and one line about it.
    pub const NAMES: &'static [Named] = &[
        ("flow", "each packet delivery context has a congestion-control context of its own"),
        ("pair", "one for all flows to a remote endpoint"),
        ("destination", "one for all flows to a remote host"),
        ("host", "one for all flows of this endpoint"),
    ];

    /// The name by which a user asks for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerFlow => "flow",
            Self::PerPair => "pair",
            Self::PerDestination => "destination",
            Self::PerHost => "host",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        [Self::PerFlow, Self::PerPair, Self::PerDestination, Self::PerHost]
            .into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| ChoiceError::Name {
                kind: "scope of congestion control",
                asked: text.to_string(),
                allowed: Self::NAMES,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, _) in Scope::NAMES {
            assert_eq!(name.parse::<Scope>().unwrap().to_string(), *name);
        }
        let error = "group".parse::<Scope>().unwrap_err().to_string();
        assert!(error.contains("flow, pair, destination, host"), "{error}");
    }
}
