//! State for waking the engine: whether the context wants to send, was reported ready, or waits for
//! room.

/// The state of a context's readiness: whether the engine waits to send, and whether it was
/// notified that it may.
#[derive(Debug, Default)]
pub(crate) struct ReadyState {
    /// Nominal bytes of the packet that the engine could not send; zero for none.
    wanted: u32,
    /// True when the engine was notified that it may send, or will be by an event that it has not
    /// polled yet.
    reported: bool,
    /// True while the flow is in its group's queue for room.
    waiting_for_room: bool,
}

impl ReadyState {
    /// Returns the nominal bytes of the packet that the engine could not send; zero for none.
    #[inline]
    pub(super) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Ends the notification, because the engine asks by itself.
    #[inline]
    pub(crate) fn on_engine_request(&mut self) {
        self.reported = false;
    }

    /// Sets the nominal bytes of a new packet that may not be sent; zero when it may.
    #[inline]
    pub(super) fn set_wanted(&mut self, nominal: u32) {
        self.wanted = nominal;
    }

    /// Returns whether the engine was notified.
    #[inline]
    pub(super) const fn is_reported(&self) -> bool {
        self.reported
    }

    /// Records that the engine is notified that it may send.
    #[inline]
    pub(super) fn report(&mut self) {
        self.reported = true;
    }

    /// Ends the notification, because the engine polled the event.
    #[inline]
    pub(crate) fn on_polled(&mut self) {
        self.reported = false;
    }

    /// Returns whether the flow waits for room in a shared context.
    #[inline]
    pub(super) const fn is_waiting_for_room(&self) -> bool {
        self.waiting_for_room
    }

    #[inline]
    pub(super) fn start_waiting_for_room(&mut self) {
        self.waiting_for_room = true;
    }

    /// Records that the flow no longer waits for room.
    #[inline]
    pub(crate) fn stop_waiting_for_room(&mut self) {
        self.waiting_for_room = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_notified_once_until_it_asks_or_polls() {
        let mut ready = ReadyState::default();
        ready.set_wanted(100);
        assert!(!ready.is_reported());
        ready.report();
        assert!(ready.is_reported() && ready.wanted() == 100);
        ready.on_polled();
        assert!(!ready.is_reported());
        ready.report();
        ready.on_engine_request();
        assert!(!ready.is_reported());
    }
}
