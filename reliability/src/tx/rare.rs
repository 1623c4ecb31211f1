//! What a sending half seldom needs.

use crate::base::{Psn, Time};

/// State of a sending half that most contexts never need: made when it is first needed.
#[derive(Debug)]
pub(super) struct Rare {
    // Receiver not ready.
    pub(super) rnr_doublings: u8,
    /// When the pause began; packets sent no later were under way when it did.
    pub(super) rnr_since: Time,
    pub(super) rnr_until: Time,
    // Loss detection.
    /// When the newest packet left that arrived although older ones did not.
    pub(super) arrived: Time,
    // Guaranteed delivery.
    /// When to send a Clear Command, if no request says the same before.
    pub(super) clear_at: Time,
    /// Up to which PSN that is meant, while `clear_at` is set.
    pub(super) clear_for: Psn,
    /// What the last Clear Command said, if there was one.
    pub(super) clear_told: Option<Psn>,
    // Credit.
    /// Credit granted in all, as far as heard, in nominal bytes.
    pub(super) granted: u64,
    /// Credit the peer wants in all, as far as heard.
    pub(super) wanted: u64,
    /// Nominal bytes known to wait for their first transmission.
    pub(super) backlog: u64,
    /// Credit to ask for.
    pub(super) request: Option<u64>,
}

impl Default for Rare {
    fn default() -> Self {
        Self {
            rnr_doublings: 0,
            rnr_since: Time::NEVER,
            rnr_until: Time::ZERO,
            arrived: Time::ZERO,
            clear_at: Time::NEVER,
            clear_for: Psn(0),
            clear_told: None,
            granted: 0,
            wanted: 0,
            backlog: 0,
            request: None,
        }
    }
}
