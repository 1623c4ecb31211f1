//! Shutdown of an endpoint: before it ends, what was sent must be acknowledged, and peers must learn that the endpoint
//! closes.

use squall_base::{Span, Time};

use super::bindings::Bindings;
use super::endpoint_core::Core;
use super::{Endpoint, Inner};
use crate::clock::{self, hooks};
use crate::reports::process_report;
use crate::waiting::background;
use crate::waiting::open_endpoints::{self, OpenEndpoint as _};

/// The time for which a closing endpoint waits for acknowledgements, after it last heard one of the peers that owe
/// them. Afterwards it waits as long again for peers that may not know yet that what they sent has arrived.
const CLOSE_PATIENCE: Span = Span::secs(2);
/// The longest time for which a closing endpoint waits, even if it hears its peers.
const CLOSE_DEADLINE: Span = Span::secs(60);
/// The time for which sends of a closing endpoint may wait for receives of their peers. A peer that has posted the
/// receive asks for the message within moments.
const UNTAKEN_PATIENCE: Span = Span::millis(100);
/// The time without packets after which the endpoint ends although contexts are open that no peer needs.
const TIME_WAIT: Span = Span::millis(20);

/// The progress of an endpoint's orderly shutdown.
pub(super) struct Shutdown {
    start: Time,
    /// The time when everything was acknowledged, or given up, and the contexts began to close.
    closing_since: Option<Time>,
}

impl Shutdown {
    /// Begins the shutdown of an endpoint at the current time.
    pub(super) fn begin() -> Self {
        Self { start: clock::now(), closing_since: None }
    }

    /// Takes a step of the endpoint's shutdown. Returns whether there is nothing more to wait for.
    pub(super) fn step(&mut self, core: &mut Core) -> bool {
        let now = clock::now();
        let Some(since) = self.closing_since else {
            if now.since(self.start) >= UNTAKEN_PATIENCE {
                core.engine.shutdown(now).drop_unmatched_sends();
            }
            let idle = core.engine.is_idle() && !core.optional.is_copying();
            if idle || is_hopeless(core, now, self.start) {
                log_unacknowledged(core);
                core.engine.shutdown(now).step();
                core.flush(now);
                self.closing_since = Some(now);
            }
            return false;
        };
        // Contexts of peers count as well: a peer that opened one may still wait for our answer.
        let asked = core.engine.shutdown(now).step();
        let needed = asked && now.since(since) < CLOSE_PATIENCE;
        if asked && !needed {
            log::info!(
                "the endpoint ended although peers did not close their contexts within {CLOSE_PATIENCE}: what \
                 they sent last may look lost to them [local {}]",
                core.name().addr
            );
        }
        core.flush(now);
        let quiet = core.engine.contexts().next().is_none()
            || now.since(since.max(core.last_arrival())) >= TIME_WAIT
            || is_hopeless(core, now, self.start.max(since) + TIME_WAIT);
        quiet && !needed
    }

    /// Returns whether all messages that were reported complete when their bytes were copied have arrived, or will not
    /// arrive any more.
    fn is_drained(&self, core: &mut Core) -> bool {
        let over = core.engine.copied_bytes() == 0 && !core.optional.is_copying()
            || is_hopeless(core, clock::now(), self.start);
        if over {
            log_unacknowledged(core);
        }
        over
    }
}

/// Returns whether the acknowledgements for which the endpoint has waited since `start` will not come any more.
fn is_hopeless(core: &mut Core, now: Time, start: Time) -> bool {
    let heard = start.max(core.engine.shutdown(now).last_rx());
    now.since(heard) >= CLOSE_PATIENCE || now.since(start) >= CLOSE_DEADLINE
}

/// Logs how many bytes of completed operations were not acknowledged.
fn log_unacknowledged(core: &Core) {
    let bytes = core.engine.copied_bytes();
    if bytes > 0 {
        log::warn!(
            "{bytes} bytes that were complete when copied were not acknowledged before the endpoint ended: the \
             peers were silent for {CLOSE_PATIENCE}, or took longer than {CLOSE_DEADLINE} [local {}]",
            core.name().addr
        );
    }
}

/// Waits, when the process ends with the endpoint open, until the data of operations that completed when they were
/// copied has arrived. It gives up if another thread holds the lock, because that thread may be stuck for good.
pub(super) fn drain(endpoint: &Endpoint) {
    let shutdown = Shutdown::begin();
    while endpoint.process.is_current() {
        let Some(mut inner) = endpoint.inner.try_lock() else { return };
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core.as_mut() else { return };
        core.run_turn(bindings);
        if shutdown.is_drained(core) {
            return;
        }
        drop(inner);
        hooks::wait_or_yield();
    }
}

impl Endpoint {
    /// Closes the endpoint: waits until what was sent has arrived, then leaves the queues and closes the sockets.
    pub(super) fn close(&self) {
        open_endpoints::remove(self);
        background::detach(self);
        let sockets = self.sockets();
        if let Some(progress) = self.domain.progress() {
            progress.detach(self, &sockets);
        }
        self.linger();
        self.close_reports();
        if open_endpoints::is_empty() {
            process_report::write_when_idle();
        }
        let mut inner = self.inner.lock();
        let Inner { bindings, core } = &mut *inner;
        // Before they are closed: another thread may open others under their numbers.
        bindings.detach(self, &sockets);
        *bindings = Bindings::default();
        *core = None;
        drop(inner);
        // An operation that ended while the endpoint lingered may trigger deferred work of another one.
        self.begin_work();
        // Not before: until here the endpoint answered its peers from regions and wrote into them, so closing a region
        // had to find it in the list.
        self.domain.remove_endpoint(self, &sockets);
        self.domain.release();
    }

    /// Waits until the sent data is acknowledged and peers know that the endpoint closes.
    fn linger(&self) {
        let mut shutdown = Shutdown::begin();
        loop {
            let mut inner = self.inner.lock();
            let Inner { bindings, core } = &mut *inner;
            let Some(core) = core.as_mut() else { return };
            core.run_turn(bindings);
            if shutdown.step(core) {
                return;
            }
            drop(inner);
            hooks::wait_or_yield();
        }
    }
}
