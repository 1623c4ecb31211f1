//! Counts of what the engine keeps for operations, messages and channels that have not ended.

use super::Engine;
use crate::holdings::Holdings;

impl Engine {
    /// Returns the number of entries in every table of the engine. The call walks all tables, so do not use it on the
    /// data path.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings {
            completions: self.report.completions(),
            partial_writes: self.target.partial_writes(),
            access_groups: self.report.open_access_groups(),
            ..Holdings::default()
        };
        self.outbound.count_holdings(&mut holdings);
        self.inbox.count_holdings(&mut holdings);
        for channel in self.contexts.iter() {
            holdings.channels += 1;
            holdings.slots += channel.slots.used();
            holdings.queued += channel.open_operations();
        }
        holdings
    }
}
