//! Measures how far the emulator's deliveries are behind real time.

use squall_base::Span;

/// Buckets of a histogram whose bounds double: below 1 us, 2 us .. 2^23 us = 8.4 s and above.
const BUCKETS: usize = 25;

/// Histogram of the delays that the relay adds to packets: from the time at which the network would
/// have delivered a packet to the time at which the socket has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmulationDelay {
    packets: u64,
    sum: u64,
    max: u64,
    buckets: [u64; BUCKETS],
}

/// Summary of the delays of an [`EmulationDelay`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct EmulationDelayReport {
    /// Number of packets delivered.
    pub packets: u64,
    /// Mean delay of the packets, ns.
    pub mean_ns: u64,
    /// Delay that 99 % of the packets do not exceed, ns (rounded up to a power of two of
    /// microseconds).
    pub p99_ns: u64,
    /// Longest delay of a packet, ns.
    pub max_ns: u64,
}

impl EmulationDelay {
    /// Counts a packet that was delivered `late` after it was due.
    pub fn add(&mut self, late: Span) {
        self.packets += 1;
        self.sum = self.sum.saturating_add(late.0);
        self.max = self.max.max(late.0);
        let micros = late.0 / 1_000;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
    }

    /// Adds the packets of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
    }

    /// Returns the summary of all packets counted so far.
    #[must_use]
    pub fn report(&self) -> EmulationDelayReport {
        let wanted = self.packets - self.packets / 100;
        let mut counted = 0;
        let bucket = self.buckets.iter().position(|n| {
            counted += n;
            counted >= wanted
        });
        let bound = bucket.filter(|b| *b < BUCKETS - 1).map_or(self.max, |b| 1_000 << b);
        EmulationDelayReport {
            packets: self.packets,
            mean_ns: self.sum.checked_div(self.packets).unwrap_or(0),
            p99_ns: bound.min(self.max),
            max_ns: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_hundred_packets() {
        let mut delay = EmulationDelay::default();
        assert_eq!(delay.report(), EmulationDelayReport::default());
        // 98 of 3 us fall into the bucket below 4 us; with the one of 100 us (below 128 us), 99 %
        // are inside; the last is the maximum.
        (0..98).for_each(|_| delay.add(Span::micros(3)));
        delay.add(Span::micros(100));
        let mut last = EmulationDelay::default();
        last.add(Span::secs(20));
        delay.merge(&last);
        let report = delay.report();
        assert_eq!((report.packets, report.p99_ns, report.max_ns), (100, 128_000, 20_000_000_000));
        assert_eq!(report.mean_ns, (98 * 3_000 + 100_000 + 20_000_000_000) / 100);
    }
}
