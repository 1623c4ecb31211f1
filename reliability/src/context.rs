//! Which flows share a congestion-control context: a table of scopes, independent of the algorithm.
//!
//! A flow with a context of its own carries it inside, so that the ordinary case costs a branch. Shared
//! contexts live in [`Groups`]; in them the bytes in flight are the sum over the flows, and a flow that
//! found no room is woken when another one made some. In one that is not split, each flow has the whole window and rate, and
//! its own bytes in flight and its own pacer.
//!
//! A shared context outlives its flows: who closes a connection and opens another must not begin anew at the rate of the line.

use std::collections::{BTreeMap, VecDeque};

use crate::base::Time;
use crate::cc::{self, Scope, SenderCc};
use crate::types::{Label, PeerKey};

/// Contexts without a flow that are kept; of more, the one that has been without for longest makes room.
const KEPT: usize = 1024;

/// Most timers of a rest that a context makes up for: 55 ms of DCQCN's raises.
const MISSED_TIMERS: u32 = 1000;

/// A congestion-control context, and the pacer that its rate drives.
#[derive(Debug)]
pub(crate) struct Governor {
    cc: cc::Sender,
    /// When what has left so far would have left at the rate.
    pace_at: Time,
}

impl Governor {
    fn new(config: &cc::SenderConfig, now: Time) -> Self {
        Self { cc: cc::Sender::new(config, now), pace_at: Time::ZERO }
    }

    /// Its timers ran while it had no flow that watched them.
    fn wake(&mut self, now: Time) {
        for _ in 0..MISSED_TIMERS {
            let Some(at) = self.cc.next_timer().filter(|at| *at <= now) else { return };
            self.cc.on_timer(at);
        }
    }
}

/// Where a flow's congestion-control context is.
#[derive(Debug)]
pub(crate) enum Context {
    /// In the flow.
    Own(Governor),
    /// In [`Groups`], at this index.
    Shared(u16),
    /// There, too, but what is limited is this flow alone.
    Unsplit {
        /// The index.
        at: u16,
        /// As [`Governor::pace_at`], of this flow.
        pace_at: Time,
    },
}

impl Context {
    #[inline]
    pub(crate) fn cc<'a>(&'a self, groups: &'a Groups) -> &'a cc::Sender {
        match self {
            Self::Own(own) => &own.cc,
            Self::Shared(at) | Self::Unsplit { at, .. } => &groups.at(*at).governor.cc,
        }
    }

    #[inline]
    pub(crate) fn cc_mut<'a>(&'a mut self, groups: &'a mut Groups) -> &'a mut cc::Sender {
        match self {
            Self::Own(own) => &mut own.cc,
            Self::Shared(at) | Self::Unsplit { at, .. } => &mut groups.at_mut(*at).governor.cc,
        }
    }

    /// When what has left so far would have left at the rate.
    #[inline]
    pub(crate) fn pace_at(&self, groups: &Groups) -> Time {
        match self {
            Self::Own(own) => own.pace_at,
            Self::Shared(at) => groups.at(*at).governor.pace_at,
            Self::Unsplit { pace_at, .. } => *pace_at,
        }
    }

    #[inline]
    pub(crate) fn pace_at_mut<'a>(&'a mut self, groups: &'a mut Groups) -> &'a mut Time {
        match self {
            Self::Own(own) => &mut own.pace_at,
            Self::Shared(at) => &mut groups.at_mut(*at).governor.pace_at,
            Self::Unsplit { pace_at, .. } => pace_at,
        }
    }

    /// The context whose window this flow has a part of, if it has but a part.
    #[inline]
    pub(crate) fn group<'a>(&self, groups: &'a mut Groups) -> Option<&'a mut Group> {
        match self {
            Self::Own(_) | Self::Unsplit { .. } => None,
            Self::Shared(at) => Some(groups.at_mut(*at)),
        }
    }

    /// The context that others have, too, if it is one.
    #[inline]
    pub(crate) fn joint<'a>(&self, groups: &'a mut Groups) -> Option<&'a mut Group> {
        self.index().map(|at| groups.at_mut(at))
    }

    #[inline]
    pub(crate) const fn index(&self) -> Option<u16> {
        match self {
            Self::Own(_) => None,
            Self::Shared(at) | Self::Unsplit { at, .. } => Some(*at),
        }
    }

    /// Nominal bytes in flight in the context, `own` of them the flow's.
    #[inline]
    pub(crate) fn in_flight(&self, own: u32, groups: &Groups) -> u64 {
        match self {
            Self::Own(_) | Self::Unsplit { .. } => u64::from(own),
            Self::Shared(at) => groups.at(*at).in_flight,
        }
    }

    /// Nominal bytes delivered in the context, `own` of them the flow's; wraps.
    #[inline]
    pub(crate) fn delivered(&self, own: u32, groups: &Groups) -> u32 {
        match self {
            Self::Own(_) | Self::Unsplit { .. } => own,
            Self::Shared(at) => groups.at(*at).delivered,
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
    /// Those without a flow, the longest without first.
    vacant: VecDeque<u16>,
    /// The host of each peer, as far as known.
    hosts: Vec<u32>,
}

impl Groups {
    #[inline]
    fn at(&self, at: u16) -> &Group {
        &self.list[usize::from(at)]
    }

    #[inline]
    fn at_mut(&mut self, at: u16) -> &mut Group {
        &mut self.list[usize::from(at)]
    }

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
        (peer, label): (PeerKey, Label),
        config: &cc::SenderConfig,
        now: Time,
    ) -> Context {
        let key = match scope {
            Scope::PerFlow => return Context::Own(Governor::new(config, now)),
            Scope::PerServiceLevel => u32::from(label.level),
            Scope::PerPair => peer.0,
            Scope::PerDestination | Scope::PerDestinationUnsplit => self.host_of(peer),
            // An endpoint is all there is of its host, as far as it can see.
            Scope::PerHost => 0,
            Scope::PerGroup => u32::from(label.group),
        };
        let at = match self.by_key.get(&key) {
            Some(&at) => at,
            None => self.add(key, config, now),
        };
        if self.at(at).members.is_empty() {
            self.vacant.retain(|vacant| *vacant != at);
            self.at_mut(at).governor.wake(now);
        }
        self.at_mut(at).members.push(slot);
        match scope {
            Scope::PerDestinationUnsplit => Context::Unsplit { at, pace_at: Time::ZERO },
            _ => Context::Shared(at),
        }
    }

    /// A fresh context for `key`; its place.
    fn add(&mut self, key: u32, config: &cc::SenderConfig, now: Time) -> u16 {
        let group = Group {
            governor: Governor::new(config, now),
            in_flight: 0,
            delivered: 0,
            round: 0,
            active: 0,
            members: Vec::new(),
            waiting: VecDeque::new(),
        };
        // Never more with flows than there are slots, 65535.
        let full = self.vacant.len() >= KEPT || self.list.len() > usize::from(u16::MAX);
        let at = match self.vacant.front() {
            Some(&oldest) if full => {
                self.by_key.retain(|_, at| *at != oldest);
                self.list[usize::from(oldest)] = group;
                oldest
            }
            _ => {
                self.list.push(group);
                (self.list.len() - 1) as u16
            }
        };
        self.by_key.insert(key, at);
        at
    }

    /// The flow in `slot` leaves; another flow that stays, which from now on must watch the context's
    /// timer.
    pub(crate) fn leave(&mut self, context: &Context, slot: u16) -> Option<u16> {
        let at = context.index()?;
        let group = self.at_mut(at);
        group.members.retain(|member| *member != slot);
        group.waiting.retain(|waiting| *waiting != slot);
        let successor = group.members.first().copied();
        if successor.is_none() {
            self.vacant.push_back(at);
        }
        successor
    }

    /// Another peer may have the key of `peer`, which has no flow any more.
    pub(crate) fn forget(&mut self, scope: Scope, peer: PeerKey) {
        if scope == Scope::PerPair
            && let Some(at) = self.by_key.remove(&peer.0)
        {
            debug_assert!(self.at(at).members.is_empty());
        }
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
