//! Shares of a receiver's line that it apportions to its senders.

use squall_base::{Rate, Span};

/// A whole share: [`crate::AckSignals::share`] counts in this unit.
pub const WHOLE_SHARE: u16 = 1 << 15;

/// What a receiver apportions to one of its senders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LineShare {
    senders: u16,
    share: u16,
}

impl LineShare {
    /// `share` of the line, of [`WHOLE_SHARE`], because there are so many `senders`; `None` where that cannot be: of nobody,
    /// nothing, or more than all.
    #[must_use]
    pub const fn new(senders: u16, share: u16) -> Option<Self> {
        if senders == 0 || share == 0 || share > WHOLE_SHARE {
            return None;
        }
        Some(Self { senders, share })
    }

    /// How many share the receiver.
    #[must_use]
    pub const fn senders(self) -> u16 {
        self.senders
    }

    /// The share, of [`WHOLE_SHARE`].
    #[must_use]
    pub const fn share(self) -> u16 {
        self.share
    }
}

/// What congestion a receiver sees (section III-C, fig. 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Congestion {
    /// No packet is marked.
    #[default]
    None = 0,
    /// Packets are marked, and as much arrives as the line carries: shares are the cure, and marks are not told.
    Receiver = 1,
    /// Packets are marked, and less arrives: the congestion is elsewhere, where DCQCN acts on marks and shares do not help.
    Elsewhere = 2,
}

/// Parameters of a receiver that apportions its line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShareConfig {
    /// The receiver's line.
    pub line: Rate,
    /// Share of the line from which on as much arrives as it carries (theta; the paper does not say it).
    pub theta: f32,
    /// Time over which that, and marks, are looked at; a state lasts two of them at least.
    pub window: Span,
    /// Silence after which a sender counts no more.
    pub idle: Span,
    /// Shortest time between two notifications of a flow.
    pub cnp_interval: Span,
    /// Senders have numbers below this one; others are strangers.
    pub sources: u32,
}
