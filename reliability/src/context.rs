//! Which flows share a congestion-control context: a table of scopes, independent of the algorithm.
//!
//! A flow with a context of its own carries it inside, so that the ordinary case costs a branch. Shared
//! contexts live in [`Groups`]; in them the bytes in flight are the sum over the flows, and a flow that
//! found no room is woken when another one made some.

use std::collections::{BTreeMap, VecDeque};

use crate::base::Time;
use crate::cc::{self, Scope, SenderCc};
use crate::types::PeerKey;

/// A congestion-control context, and the pacer that its rate drives.
#[derive(Debug)]
pub(crate) struct Governor {
    pub(crate) cc: cc::Sender,
    /// When what has left so far would have left at the rate.
    pub(crate) pace_at: Time,
}

impl Governor {
    fn new(config: &cc::SenderConfig, now: Time) -> Self {
        Self { cc: cc::Sender::new(config, now), pace_at: Time::ZERO }
    }
}

/// Where a flow's congestion-control context is.
#[derive(Debug)]
pub(crate) enum Context {
    /// In the flow.
    Own(Governor),
    /// In [`Groups`], at this index.
    Shared(u16),
}

impl Context {
    pub(crate) fn get<'a>(&'a self, groups: &'a Groups) -> &'a Governor {
        match self {
            Self::Own(own) => own,
            Self::Shared(at) => &groups.list[usize::from(*at)].governor,
        }
    }

    pub(crate) fn get_mut<'a>(&'a mut self, groups: &'a mut Groups) -> &'a mut Governor {
        match self {
            Self::Own(own) => own,
            Self::Shared(at) => &mut groups.list[usize::from(*at)].governor,
        }
    }

    /// The shared context, if it is one.
    pub(crate) fn group<'a>(&self, groups: &'a mut Groups) -> Option<&'a mut Group> {
        match self {
            Self::Own(_) => None,
            Self::Shared(at) => Some(&mut groups.list[usize::from(*at)]),
        }
    }

    pub(crate) const fn index(&self) -> Option<u16> {
        match self {
            Self::Own(_) => None,
            Self::Shared(at) => Some(*at),
        }
    }

    /// Nominal bytes in flight in the context, `own` of them the flow's.
    pub(crate) fn in_flight(&self, own: u32, groups: &Groups) -> u64 {
        match self {
            Self::Own(_) => u64::from(own),
            Self::Shared(at) => groups.list[usize::from(*at)].in_flight,
        }
    }

    /// Nominal bytes delivered in the context, `own` of them the flow's; wraps.
    pub(crate) fn delivered(&self, own: u32, groups: &Groups) -> u32 {
        match self {
            Self::Own(_) => own,
            Self::Shared(at) => groups.list[usize::from(*at)].delivered,
        }
    }
}

/// A context that flows share.
#[derive(Debug)]
pub(crate) struct Group {
    governor: Governor,
    /// Sums over the flows.
    pub(crate) in_flight: u64,
    pub(crate) delivered: u32,
    /// A packet sent when this much was delivered ends the round by being acknowledged.
    pub(crate) round: u32,
    /// Flows with something outstanding.
    pub(crate) active: u32,
    /// Slots of the flows; empty when the place is free.
    members: Vec<u16>,
    /// Slots of flows that found no room, the longest waiting first.
    pub(crate) waiting: VecDeque<u16>,
}

/// The shared contexts of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    list: Vec<Group>,
    by_key: BTreeMap<u32, u16>,
    free: Vec<u16>,
    /// The host of each peer, as far as known.
    hosts: Vec<u32>,
}

impl Groups {
    /// The host on which `peer` lives.
    #[inline]
    pub(crate) fn host_of(&self, peer: PeerKey) -> u32 {
        self.hosts.get(peer.0 as usize).copied().unwrap_or(peer.0)
    }

    /// `peer` lives on `host`; until then each peer is a host of its own.
    pub(crate) fn set_host(&mut self, peer: PeerKey, host: u32) {
        let at = peer.0 as usize;
        for unknown in self.hosts.len()..=at {
            // Not above `peer`, which has 32 bits.
            self.hosts.push(unknown as u32);
        }
        self.hosts[at] = host;
    }

    /// The context of a new flow in `slot` to endpoint `peer`.
    pub(crate) fn join(
        &mut self,
        scope: Scope,
        slot: u16,
        peer: PeerKey,
        config: &cc::SenderConfig,
        now: Time,
    ) -> Context {
        let key = match scope {
            Scope::PerFlow => return Context::Own(Governor::new(config, now)),
            Scope::PerPair => peer.0,
            Scope::PerDestination => self.host_of(peer),
            // An endpoint is all there is of its host, as far as it can see.
            Scope::PerHost => 0,
        };
        let at = self.by_key.get(&key).copied().unwrap_or_else(|| {
            let group = Group {
                governor: Governor::new(config, now),
                in_flight: 0,
                delivered: 0,
                round: 0,
                active: 0,
                members: Vec::new(),
                waiting: VecDeque::new(),
            };
            // There are fewer groups than slots, of which there are at most 65535.
            let at = self.free.pop().unwrap_or(self.list.len() as u16);
            match self.list.get_mut(usize::from(at)) {
                Some(place) => *place = group,
                None => self.list.push(group),
            }
            self.by_key.insert(key, at);
            at
        });
        self.list[usize::from(at)].members.push(slot);
        Context::Shared(at)
    }

    /// The flow in `slot` leaves; another flow that stays, which from now on must watch the context's
    /// timer.
    pub(crate) fn leave(&mut self, context: &Context, slot: u16) -> Option<u16> {
        let at = context.index()?;
        let group = &mut self.list[usize::from(at)];
        group.members.retain(|member| *member != slot);
        group.waiting.retain(|waiting| *waiting != slot);
        if group.members.is_empty() {
            self.by_key.retain(|_, index| *index != at);
            self.free.push(at);
        }
        group.members.first().copied()
    }

    /// The flows that wait for room in shared context `at`, to be put back by [`Groups::put_waiting`].
    pub(crate) fn take_waiting(&mut self, at: u16) -> VecDeque<u16> {
        core::mem::take(&mut self.list[usize::from(at)].waiting)
    }

    pub(crate) fn put_waiting(&mut self, at: u16, waiting: VecDeque<u16>) {
        self.list[usize::from(at)].waiting = waiting;
    }

    /// Nominal bytes that may leave at `now` in shared context `at`.
    pub(crate) fn room(&self, at: u16, now: Time) -> u64 {
        let group = &self.list[usize::from(at)];
        group.governor.cc.budget(now).room(group.in_flight)
    }
}
