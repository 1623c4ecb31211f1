//! Waking the engine: who wants to send, who was notified that it may, and who waits for room.

/// Whether the engine waits for a context, and whether it was notified.
#[derive(Debug, Default)]
pub(crate) struct ReadyState {
    /// Nominal bytes of the packet the engine could not send; zero for none.
    wanted: u32,
    /// The engine was notified, or will be by an event not yet polled, that it may send.
    reported: bool,
    /// The flow is in its group's list of those that wait for room.
    in_line: bool,
}

impl ReadyState {
    /// Nominal bytes of the packet the engine could not send; zero for none.
    #[inline]
    pub(super) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// The engine asks by itself: whatever it was notified of is used up.
    #[inline]
    pub(crate) fn on_ask(&mut self) {
        self.reported = false;
    }

    /// A new packet of `nominal` bytes may not be sent; zero when it may.
    #[inline]
    pub(super) fn set_wanted(&mut self, nominal: u32) {
        self.wanted = nominal;
    }

    /// Whether the engine knows already.
    #[inline]
    pub(super) const fn is_reported(&self) -> bool {
        self.reported
    }

    /// The engine will learn that it may send.
    #[inline]
    pub(super) fn report(&mut self) {
        self.reported = true;
    }

    /// The engine polled the event.
    #[inline]
    pub(crate) fn on_polled(&mut self) {
        self.reported = false;
    }

    /// Whether the flow waits for room in a shared context.
    #[inline]
    pub(super) const fn is_in_line(&self) -> bool {
        self.in_line
    }

    #[inline]
    pub(super) fn join_line(&mut self) {
        self.in_line = true;
    }

    /// It no longer waits.
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
