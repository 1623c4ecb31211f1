//! State for waking the engine: whether the context wants to send, was reported ready, or waits for
//! room.

/// Whether the engine waits to send on a context, and whether it was notified.
#[derive(Debug, Default)]
pub(crate) struct ReadyState {
    /// Nominal bytes of the packet that the engine could not send; zero for none.
    wanted: u32,
    /// Whether the engine was notified that it may send, or will be by an event that it has not
    /// polled yet.
    reported: bool,
    /// Whether the flow is in its group's queue for room.
    in_line: bool,
}

impl ReadyState {
    /// Returns the nominal bytes of the packet that the engine could not send; zero for none.
    #[inline]
    pub(super) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Ends the notification, because the engine asks by itself.
    #[inline]
    pub(crate) fn on_ask(&mut self) {
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
    pub(super) const fn is_in_line(&self) -> bool {
        self.in_line
    }

    #[inline]
    pub(super) fn join_line(&mut self) {
        self.in_line = true;
    }

    /// Records that the flow no longer waits for room.
    #[inline]
    pub(crate) fn leave_line(&mut self) {
        self.in_line = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_told_once_until_it_asks_or_polls() {
        let mut ready = ReadyState::default();
        ready.set_wanted(100);
        assert!(!ready.is_reported());
        ready.report();
        assert!(ready.is_reported() && ready.wanted() == 100);
        ready.on_polled();
        assert!(!ready.is_reported());
        ready.report();
        ready.on_ask();
        assert!(!ready.is_reported());
    }
}
