//! Failures and repairs of links and switches, and their times.

use crate::Picos;
use squall_base::Rate;

/// Number of a link: its index in [`crate::topology::Topology::links`].
pub type LinkId = u32;

/// A change of links or switches, such as a failure or a repair, which a user commands or a
/// schedule contains.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Failure {
    /// The link goes down in both directions and loses all packets on it. Routing avoids it after
    /// [`super::NetworkConfig::reroute`].
    LinkDown(LinkId),
    /// The link works again (after any failure but a rate change).
    LinkUp(LinkId),
    /// All links of the switch go down.
    SwitchDown(u32),
    /// All links of the switch come up.
    SwitchUp(u32),
    /// Both directions of the link run at this rate from now on.
    Rate(LinkId, Rate),
    /// One direction of a link, named by its sending port, runs at another rate from now on. Its
    /// queue capacity and marking thresholds are scaled in proportion, as htsim degrades a link.
    Degrade(u32, Rate),
    /// The link discards all packets in both directions, and routing does not notice.
    BlackHole(LinkId),
    /// The link's bit error rate becomes this probability. A packet with at least one wrong bit is
    /// lost, so long packets are lost more often.
    BitErrors(LinkId, f64),
    /// The link loses each packet with this probability, whatever its length.
    Loss(LinkId, f64),
}

/// A failure or repair of the network, and the time at which it happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FailureEvent {
    /// Time at which the failure or repair happens.
    pub at: Picos,
    /// The failure or repair.
    pub what: Failure,
}
