//! 3CPO, the Collective Congestion Control Protocol: J. Snyder, "Improving Congestion Control Convergence in RDMA Networks"
//! (thesis, Duke 2022), chapter 6. Sections, figures and names below are the thesis'.
//!
//! For networks in which accelerators write to and read from multicast groups: switches replicate what is written, and reduce what
//! is read to one answer. A member that sends while it hears operations of others knows that they meet on every link of the
//! group. So these cost it tokens, as many as of its own they match: with `N` that send, each sends every `N` times the
//! flits of an operation, a round trip after it began. Against everything else there is a watermark, the rate at which tokens
//! come, which a probe in the network lowers and raises.
//!
//! This is the state of one host, of all it sends; what it throttles are operations, which have requests and responses. It
//! knows neither packets nor queues. Time is in cycles, of which a link carries one flit.

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

/// What an operation puts on a link of each member, in flits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationFlits {
    /// On the way to the memory: most of a write.
    pub request: u16,
    /// On the way back: most of a read.
    pub response: u16,
}

/// The two classes of traffic, each with tokens and a watermark of its own (section 6.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlitClass {
    /// What goes to memories.
    Request,
    /// What comes back.
    Response,
}

impl OperationFlits {
    /// Those of a class.
    #[must_use]
    pub const fn of(self, class: FlitClass) -> u16 {
        match class {
            FlitClass::Request => self.request,
            FlitClass::Response => self.response,
        }
    }

    /// The class that has most of them.
    #[must_use]
    pub const fn mostly(self) -> FlitClass {
        if self.request >= self.response { FlitClass::Request } else { FlitClass::Response }
    }
}

/// Operations of others that are remembered; of more the oldest are forgotten first. The thesis has no bound, and says that there
/// must be one (section 7.2.4).
const REMEMBERED: usize = 4096;

/// One host: its tokens, and the multicast group that it is a member of.
#[derive(Clone, Debug)]
pub struct ThreeCpo {
    config: Arc<ThreeCpoConfig>,
    me: usize,
    classes: [ClassState; 2],
    /// Operations of others, oldest first (`RemoteOperation Op Queue`).
    remote: VecDeque<RemoteOperation>,
    /// How long the last operation took.
    latency: u64,
    /// When the last multicast left, and how long after the one before.
    last: Option<u64>,
    gap: u64,
    /// When the probe left, if one is under way.
    probe: Option<u64>,
    /// The first cycle in which there are tokens, as things are.
    ready: u64,
}

/// What there is of each class.
#[derive(Clone, Debug)]
struct ClassState {
    class: FlitClass,
    bucket: Bucket,
    matching: Matching,
    watermark: Watermark,
}

/// An operation of somebody else.
#[derive(Clone, Copy, Debug)]
struct RemoteOperation {
    from: u16,
    flits: OperationFlits,
    arrival: u64,
}

impl ThreeCpo {
    /// Member `me` of a group of `members`. `config` must have passed [`crate::Tunable::check`].
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
            // Until something was measured, what section 6.2.2 takes for an idle network.
            latency: config.low_latency as u64,
            last: None,
            gap: 0,
            probe: None,
            ready: 0,
            config,
        }
    }

    /// The first cycle in which an operation may leave, if nothing happens until then.
    #[must_use]
    pub const fn ready_at(&self) -> u64 {
        self.ready
    }

    /// Sees when there will be tokens, after something happened to them.
    fn update_ready(&mut self) {
        let wm_max = self.config.wm_max;
        let ready = |class: &ClassState| class.bucket.ready_at(class.watermark.value(), wm_max);
        let [request, response] = &self.classes;
        self.ready = ready(request).max(ready(response));
    }

    /// An operation leaves, at most one a cycle. It is sent to all members where `multicast` says so.
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
            self.classes[flits.mostly() as usize].watermark.sent += 1;
            self.gap = self.last.map_or(0, |last| now.saturating_sub(last));
            self.last = Some(now);
        }
        self.update_ready();
    }

    /// A multicast operation of member `from` arrives.
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

    /// An operation that left at `sent` is answered.
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

    /// The watermark of a class, for those who look on.
    #[must_use]
    pub const fn watermark(&self, class: FlitClass) -> f64 {
        self.classes[class as usize].watermark.value()
    }

    /// Lets time pass: tokens come, and old operations of others are forgotten.
    fn advance(&mut self, now: u64) {
        for class in &mut self.classes {
            class.bucket.advance(now, class.watermark.value(), &self.config);
        }
        // About a round trip, and as long as an operation waits for its turn.
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
    /// Pays for what was matched, at `cost` a flit.
    fn charge(&mut self, matched: impl FnOnce(&mut Matching, usize) -> i32, me: usize, cost: f64) {
        let tokens = f64::from(matched(&mut self.matching, me)) * cost;
        self.bucket.debit(tokens);
        self.watermark.taken += tokens;
    }
}
