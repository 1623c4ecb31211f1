//! Addresses on which endpoints could be opened, before the hints select some.

use std::net::SocketAddr;

use crate::network::addr::Name;
use crate::network::nic::Nic;

/// A candidate for an endpoint: an interface, its source address, and a destination if one is known.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) nic: Nic,
    pub(crate) source: SocketAddr,
    /// The destination that the hints name, with its instance if it has one: it is meant for `fi_av_insert`.
    pub(crate) destination: Option<Name>,
}
