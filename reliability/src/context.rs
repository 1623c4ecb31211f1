//! Congestion-control contexts and the flows that share them: a table of scopes that is independent
//! of the algorithm.
//!
//! A flow with a context of its own carries it inside, so that the ordinary case costs only a
//! branch. [`Groups`] holds the shared contexts. In a shared context the bytes in flight are the
//! sum over its flows, and a flow that found no room is woken when another one makes some. In an
//! unsplit context each flow has the whole window and rate, with its own bytes in flight and its
//! own pacer.
//!
//! A shared context outlives its flows: closing a connection and opening another must not restart
//! congestion control at line rate.

use std::collections::{BTreeMap, VecDeque};

use crate::base::Time;
use crate::cc::{self, Scope, SenderCc};
use crate::types::{Label, PeerKey};

/// Most contexts without flows that are kept. When there are more, the one that has had no flow for
/// the longest time is replaced.
const MAX_VACANT: usize = 1024;

/// Most expired timers that a context without flows makes up for when a flow joins it. They cover
/// 55 ms of DCQCN's rate increases.
const MISSED_TIMERS: u32 = 1000;

/// A congestion-control context, and the time by which its pacer spaces packets.
#[derive(Debug)]
pub(crate) struct Governor {
    cc: cc::Sender,
    /// The time at which the bytes sent so far would have left at the paced rate.
    pace_at: Time,
}

impl Governor {
    fn new(config: &cc::SenderConfig, now: Time) -> Self {
        Self { cc: cc::Sender::new(config, now), pace_at: Time::ZERO }
    }

    /// Runs the congestion-control timers that expired while no flow used the context.
    fn wake(&mut self, now: Time) {
        for _ in 0..MISSED_TIMERS {
            let Some(at) = self.cc.next_timer().filter(|at| *at <= now) else { return };
            self.cc.on_timer(at);
        }
    }
}

/// Where the congestion-control context of a flow is kept: in the flow, or in [`Groups`].
#[derive(Debug)]
pub(crate) enum Context {
    /// The congestion-control context belongs to this flow alone.
    Own(Governor),
    /// The congestion-control context is shared: the entry of [`Groups`] at this index. Its window
    /// is split among its flows.
    Shared(u16),
    /// The congestion-control context is shared, but window and rate limit each flow on its own,
    /// unsplit.
    Unsplit {
        /// The index of the shared context in [`Groups`].
        at: u16,
        /// The time at which the bytes that this flow sent would have left at the paced rate.
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

    /// Returns the time at which the bytes sent so far would have left at the paced rate.
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

    /// Returns the shared context whose window this flow has only a part of, if it has one.
    #[inline]
    pub(crate) fn group<'a>(&self, groups: &'a mut Groups) -> Option<&'a mut Group> {
        match self {
            Self::Own(_) | Self::Unsplit { .. } => None,
            Self::Shared(at) => Some(groups.at_mut(*at)),
        }
    }

    /// Returns the shared congestion-control context of this flow, split or not, if it has one.
    #[inline]
    pub(crate) fn shared_group<'a>(&self, groups: &'a mut Groups) -> Option<&'a mut Group> {
        self.index().map(|at| groups.at_mut(at))
    }

    #[inline]
    pub(crate) const fn index(&self) -> Option<u16> {
        match self {
            Self::Own(_) => None,
            Self::Shared(at) | Self::Unsplit { at, .. } => Some(*at),
        }
    }

    /// Returns the nominal bytes in flight that count in the context; `own` are those of this flow.
    #[inline]
    pub(crate) fn in_flight(&self, own: u32, groups: &Groups) -> u64 {
        match self {
            Self::Own(_) | Self::Unsplit { .. } => u64::from(own),
            Self::Shared(at) => groups.at(*at).in_flight,
        }
    }

    /// Returns the nominal bytes delivered that count in the context, which wrap; `own` are those
    /// of this flow.
    #[inline]
    pub(crate) fn delivered(&self, own: u32, groups: &Groups) -> u32 {
        match self {
            Self::Own(_) | Self::Unsplit { .. } => own,
            Self::Shared(at) => groups.at(*at).delivered,
        }
    }
}

/// A congestion-control context that several flows share, and sums over these flows.
#[derive(Debug)]
pub(crate) struct Group {
    governor: Governor,
    /// Nominal bytes in flight, summed over the flows; `delivered` is the same sum of delivered
    /// bytes, which wraps.
    pub(crate) in_flight: u64,
    pub(crate) delivered: u32,
    /// End of the current round trip, as a value of `delivered`: it ends when a packet is
    /// acknowledged that was sent when at least this much was delivered.
    pub(crate) round: u32,
    /// The number of flows in the group that have packets outstanding.
    pub(crate) active: u32,
    /// Slots of the flows that share the context. It is empty while the context has no flow.
    members: Vec<u16>,
    /// Slots of the flows that wait for room in the shared window, the longest waiting first.
    pub(crate) waiting: VecDeque<u16>,
}

/// The congestion-control contexts of an endpoint that several flows share.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    list: Vec<Group>,
    by_key: BTreeMap<u32, u16>,
    /// The shared contexts that no flow uses; the longest unused one is first.
    vacant: VecDeque<u16>,
    /// The number of the host on which each peer lives, indexed by peer.
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

    /// Returns the number of the host on which `peer` lives; by default each peer counts as a host.
    #[inline]
    pub(crate) fn host_of(&self, peer: PeerKey) -> u32 {
        self.hosts.get(peer.0 as usize).copied().unwrap_or(peer.0)
    }

    /// Sets the host on which `peer` lives. Until then each peer counts as a host of its own.
    pub(crate) fn set_host(&mut self, peer: PeerKey, host: u32) {
        let at = peer.0 as usize;
        for unknown in self.hosts.len()..=at {
            // It fits 32 bits, because it is not above `peer`.
            self.hosts.push(unknown as u32);
        }
        self.hosts[at] = host;
    }

    /// Returns the context of a new flow in `slot` to endpoint `peer`. Makes the context if the
    /// scope has none yet.
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
            // An endpoint cannot see other endpoints of its host, so it stands for the whole host.
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

    /// Adds a new shared context for `key` and returns its index.
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
        // At most 65535 contexts have flows, one for each slot.
        let full = self.vacant.len() >= MAX_VACANT || self.list.len() > usize::from(u16::MAX);
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

    /// Removes the flow in `slot` from its context. Returns the slot of a flow that stays, which
    /// must watch the context's timer from now on.
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

    /// Removes the context of `peer`, which has no flows any more, because another peer may get its
    /// key.
    pub(crate) fn forget(&mut self, scope: Scope, peer: PeerKey) {
        if scope == Scope::PerPair
            && let Some(at) = self.by_key.remove(&peer.0)
        {
            debug_assert!(self.at(at).members.is_empty());
        }
    }

    /// Takes out the list of the flows that wait for room in shared context `at`.
    /// [`Groups::put_waiting`] puts it back.
    pub(crate) fn take_waiting(&mut self, at: u16) -> VecDeque<u16> {
        core::mem::take(&mut self.list[usize::from(at)].waiting)
    }

    pub(crate) fn put_waiting(&mut self, at: u16, waiting: VecDeque<u16>) {
        self.list[usize::from(at)].waiting = waiting;
    }

    /// Returns the nominal bytes that may leave at `now` in shared context `at`.
    pub(crate) fn room(&self, at: u16, now: Time) -> u64 {
        let group = &self.list[usize::from(at)];
        group.governor.cc.budget(now).room(group.in_flight)
    }
}
