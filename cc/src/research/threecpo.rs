//! 3CPO, the Collective Congestion Control Protocol: J. Snyder, "Improving Congestion Control
//! Convergence in RDMA Networks" (thesis, Duke 2022), chapter 6. Sections, figures and names below
//! are the thesis'.
//!
//! 3CPO is for networks in which accelerators write to and read from multicast groups: switches
//! replicate writes, and reduce the answers to a read to one. A member that sends while it receives
//! operations of other members knows that they meet on every link of the group. Each flit of others
//! that matches one of its own therefore costs it a token: a round trip after `N` members began,
//! each sends one operation in the time of `N`. A watermark, the rate at which tokens arrive,
//! handles all other congestion; a probe in the network lowers and raises it.
//!
//! This is the state of one host for all that it sends. It throttles operations, which have
//! requests and responses, and knows neither packets nor queues. Time is in cycles, of which a link
//! carries one flit.

mod bucket;
mod config;
mod matching;
#[cfg(test)]
mod tests;
mod throttle;
mod watermark;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use bucket::Bucket;
pub use config::ThreeCpoConfig;
use matching::Matching;
pub use throttle::{Throttle, ThrottleConfig};
use watermark::Watermark;

/// Flits that an operation puts on a link of each member, by direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationFlits {
    /// Flits towards the memory that is accessed: most of a write.
    pub request: u16,
    /// Flits back from the memory to the requester: most of a read.
    pub response: u16,
}

/// The two classes of traffic, each with tokens and a watermark of its own (section 6.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlitClass {
    /// Flits towards the memories that operations access.
    Request,
    /// Flits back from the memories to the requesters.
    Response,
}

impl OperationFlits {
    /// Returns the operation's flits of `class`.
    #[must_use]
    pub const fn of(self, class: FlitClass) -> u16 {
        match class {
            FlitClass::Request => self.request,
            FlitClass::Response => self.response,
        }
    }

    /// Returns the class to which most flits of the operation belong.
    #[must_use]
    pub const fn main_class(self) -> FlitClass {
        if self.request >= self.response { FlitClass::Request } else { FlitClass::Response }
    }
}

/// Number of operations of others that are remembered; the oldest are forgotten first. The thesis
/// sets no bound, but states that there must be one (section 7.2.4).
const REMEMBERED: usize = 4096;

/// The tokens of one host, and its state in its multicast group.
#[derive(Clone, Debug)]
pub struct ThreeCpo {
    config: Arc<ThreeCpoConfig>,
    me: usize,
    classes: [ClassState; 2],
    /// Operations of other members that arrived here, oldest first (`Remote Op Queue`).
    remote: VecDeque<RemoteOperation>,
    /// Cycles from the departure to the answer of the operation answered last.
    latency: u64,
    /// Cycle in which the last multicast operation left, and the cycles since the one before.
    last: Option<u64>,
    gap: u64,
    /// Cycle in which the operation that serves as probe left, if one is under way.
    probe: Option<u64>,
    /// First cycle in which tokens allow an operation if nothing happens until then.
    ready: u64,
}

/// Tokens and watermark of one class of flits.
#[derive(Clone, Debug)]
struct ClassState {
    class: FlitClass,
    bucket: Bucket,
    matching: Matching,
    watermark: Watermark,
}

/// An operation of another member that arrived here.
#[derive(Clone, Copy, Debug)]
struct RemoteOperation {
    from: u16,
    flits: OperationFlits,
    arrival: u64,
}

impl ThreeCpo {
    /// Creates the state of member `me` of a group of `members`. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<ThreeCpoConfig>, members: u16, me: u16) -> Self {
        let class = |class| ClassState {
            class,
            bucket: Bucket::new(),
            matching: Matching::new(members.into(), config.forget),
            watermark: Watermark::new(&config),
        };
        Self {
            classes: [class(FlitClass::Request), class(FlitClass::Response)],
            me: me.into(),
            remote: VecDeque::with_capacity(REMEMBERED),
            // Until the first measurement, the latency of an idle network by section 6.2.2.
            latency: config.low_latency as u64,
            last: None,
            gap: 0,
            probe: None,
            ready: 0,
            config,
        }
    }

    /// Returns the first cycle in which an operation may leave if nothing happens until then.
    #[must_use]
    pub const fn ready_at(&self) -> u64 {
        self.ready
    }

    /// Recomputes the first cycle in which tokens allow an operation.
    fn update_ready(&mut self) {
        let wm_max = self.config.wm_max;
        let ready = |class: &ClassState| class.bucket.ready_at(class.watermark.value(), wm_max);
        let [request, response] = &self.classes;
        self.ready = ready(request).max(ready(response));
    }

    /// Records that an operation leaves, at most one per cycle; to all members if `multicast` is
    /// true.
    pub fn on_send(&mut self, now: u64, flits: OperationFlits, multicast: bool) {
        self.advance(now);
        self.probe.get_or_insert(now);
        let cost = self.config.cost(self.latency as f64);
        let matches = multicast && self.config.multicast;
        for class in &mut self.classes {
            let own = flits.of(class.class);
            class.bucket.debit(own.into());
            if matches {
                class.charge(|matching, me| matching.send(me, own.into()), self.me, cost);
            }
        }
        if multicast {
            self.classes[flits.main_class() as usize].watermark.sent += 1;
            self.gap = self.last.map_or(0, |last| now.saturating_sub(last));
            self.last = Some(now);
        }
        self.update_ready();
    }

    /// Records the arrival of a multicast operation of member `from`.
    pub fn on_remote(&mut self, now: u64, from: u16, flits: OperationFlits) {
        if !self.config.multicast || usize::from(from) == self.me {
            return;
        }
        self.advance(now);
        let cost = self.config.cost(self.latency as f64);
        for class in &mut self.classes {
            let theirs = flits.of(class.class);
            class.charge(
                |matching, _| matching.on_remote(from.into(), theirs.into()),
                self.me,
                cost,
            );
        }
        if self.remote.len() == REMEMBERED {
            self.expire_first();
        }
        self.remote.push_back(RemoteOperation { from, flits, arrival: now });
        self.update_ready();
    }

    /// Records, in cycle `now`, the answer to an operation that left in cycle `sent`.
    pub fn on_done(&mut self, now: u64, sent: u64, flits: OperationFlits, multicast: bool) {
        self.advance(now);
        self.latency = now.saturating_sub(sent);
        if multicast && self.config.multicast {
            for class in &mut self.classes {
                class.matching.on_answer(flits.of(class.class).into());
            }
        }
        if self.probe == Some(sent) {
            self.probe = None;
            let all = self.classes.iter().map(|class| class.watermark.sent).sum();
            for class in &mut self.classes {
                class.watermark.on_probe(&self.config, self.latency as f64, all);
            }
        }
        self.update_ready();
    }

    /// Returns the watermark of a class of flits, for observers: the rate at which its tokens
    /// arrive.
    #[must_use]
    pub const fn watermark(&self, class: FlitClass) -> f64 {
        self.classes[class as usize].watermark.value()
    }

    /// Advances the time: tokens arrive, and old operations of others are forgotten.
    fn advance(&mut self, now: u64) {
        for class in &mut self.classes {
            class.bucket.advance(now, class.watermark.value(), &self.config);
        }
        // Operations of others stay for about a round trip plus the wait of an operation for its
        // turn.
        let stay = self.latency + self.gap;
        while self.remote.front().is_some_and(|first| now >= first.arrival + stay) {
            self.expire_first();
        }
    }

    fn expire_first(&mut self) {
        let Some(RemoteOperation { from, flits, .. }) = self.remote.pop_front() else { return };
        for class in &mut self.classes {
            class.matching.expire(from.into(), flits.of(class.class).into());
        }
    }
}

impl ClassState {
    /// Takes `cost` tokens for each flit that `matched` reports as matched.
    fn charge(&mut self, matched: impl FnOnce(&mut Matching, usize) -> i32, me: usize, cost: f64) {
        let tokens = f64::from(matched(&mut self.matching, me)) * cost;
        self.bucket.debit(tokens);
        self.watermark.consumed += tokens;
    }
}
