//! State for waking the engine: whether the context wants to send, was reported ready, or waits for
//! room.

/// The state of a context's readiness: whether the engine waits to send, and whether it was
/// notified that it may.
#[derive(Debug, Default)]
pub(crate) struct ReadyState {
    /// Nominal bytes of the packet that the engine wants to send and could not; zero for none.
    wanted: u32,
    /// True when the engine was notified that it may send, or will be by an event that it has not
    /// polled yet.
    reported: bool,
    /// True while the flow waits for room in a congestion window that it shares.
    waiting_for_room: bool,
}

impl ReadyState {
    /// Returns the nominal bytes of the packet that the engine wants to send and could not; zero
    /// for none.
    #[inline]
    pub(super) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Allows another notification, because the engine asks to send by itself.
    #[inline]
    pub(crate) fn on_engine_request(&mut self) {
        self.reported = false;
    }

    /// Sets the nominal bytes of a new packet that may not be sent; zero when it may.
    #[inline]
    pub(super) fn set_wanted(&mut self, nominal: u32) {
        self.wanted = nominal;
    }

    /// Returns whether the engine was notified that it may send.
    #[inline]
    pub(super) const fn is_reported(&self) -> bool {
        self.reported
    }

    /// Records that the engine is notified that it may send.
    #[inline]
    pub(super) fn report(&mut self) {
        self.reported = true;
    }

    /// Allows another notification, because the engine polled the last one.
    #[inline]
    pub(crate) fn on_polled(&mut self) {
        self.reported = false;
    }

    /// Returns whether the flow waits for room in a shared congestion window.
    #[inline]
    pub(super) const fn is_waiting_for_room(&self) -> bool {
        self.waiting_for_room
    }

    #[inline]
    pub(super) fn start_waiting_for_room(&mut self) {
        self.waiting_for_room = true;
    }

    /// Records that the flow no longer waits for room in a shared window.
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
