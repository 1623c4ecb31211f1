//! Shares of a receiver's line that it assigns to its senders (Dart).

use squall_base::{Rate, Span};

/// Number that stands for the whole line in [`crate::AckSignals::share`].
pub const WHOLE_SHARE: u16 = 1 << 15;

/// The share of its line that a receiver assigns to one sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LineShare {
    senders: u16,
    share: u16,
}

impl LineShare {
    /// Creates a `share` of the line in units of [`WHOLE_SHARE`], for one of `senders`. Returns
    /// `None` for zero senders, a zero share, or more than the whole line.
    #[must_use]
    pub const fn new(senders: u16, share: u16) -> Option<Self> {
        if senders == 0 || share == 0 || share > WHOLE_SHARE {
            return None;
        }
        Some(Self { senders, share })
    }

    /// Returns the number of senders among which the receiver divides its line.
    #[must_use]
    pub const fn senders(self) -> u16 {
        self.senders
    }

    /// Returns the sender's share of the line in units of 1/[`WHOLE_SHARE`].
    #[must_use]
    pub const fn share(self) -> u16 {
        self.share
    }
}

/// Place of the congestion that a receiver observes (Dart, section III-C, fig. 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Congestion {
    /// No arriving packet is marked.
    #[default]
    None = 0,
    /// Packets are marked and arrive at line rate: the receiver is the bottleneck. Shares resolve
    /// this congestion, so the receiver hides the marks.
    Receiver = 1,
    /// Packets are marked and arrive below line rate: the congestion is elsewhere. DCQCN reacts to
    /// the marks there, and shares do not help.
    Elsewhere = 2,
}

/// Parameters of a receiver that divides its line among senders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShareConfig {
    /// Rate of the receiver's link.
    pub line: Rate,
    /// Share of the line from which the receiver counts as the bottleneck (theta; the paper gives
    /// no value).
    pub theta: f32,
    /// Time over which the receiver measures its rate and marks; a state lasts at least two such
    /// windows.
    pub window: Span,
    /// Silence of a sender after which the receiver no longer counts it.
    pub idle: Span,
    /// Shortest time between two congestion notifications to one flow.
    pub cnp_interval: Span,
    /// Upper bound of valid sender numbers; lists that contain others are ignored.
    pub sources: u32,
}
