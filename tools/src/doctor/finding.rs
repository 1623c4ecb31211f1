//! Findings: what a check of `squall doctor` saw, how serious it is, and what to do about it.

use std::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    /// All is well, and there is nothing to do.
    Well,
    /// Jobs work, but the item could be improved.
    Note,
    /// Jobs will not start, or will not reach each other.
    Fault,
}

/// The result of a check of `squall doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) what: String,
    /// Suggested remedy, if there is one.
    pub(super) cure: Option<String>,
}

impl Finding {
    pub(super) fn well(what: impl Into<String>) -> Self {
        Self { level: Level::Well, what: what.into(), cure: None }
    }

    pub(super) fn note(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Note, what: what.into(), cure: Some(cure.into()) }
    }

    pub(super) fn fault(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Fault, what: what.into(), cure: Some(cure.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Well => "ok   ",
            Level::Note => "note ",
            Level::Fault => "FAULT",
        };
        write!(f, "{level} {}", self.what)?;
        self.cure
            .iter()
            .flat_map(|cure| cure.lines())
            .try_for_each(|line| write!(f, "\n      -> {line}"))
    }
}
