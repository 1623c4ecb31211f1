//! What the engine holds, counted.

use super::Engine;
use crate::holdings::Holdings;

impl Engine {
    /// Counts what the engine holds. It looks at every table, so it is not for the data path.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings {
            completions: self.report.completions(),
            partial_writes: self.target.partial_writes(),
            ..Holdings::default()
        };
        self.outbound.count_holdings(&mut holdings);
        self.inbox.count_holdings(&mut holdings);
        for channel in self.contexts.iter() {
            holdings.channels += 1;
            holdings.slots += channel.slots.taken();
            holdings.queued += channel.open_operations();
        }
        holdings
    }
}
