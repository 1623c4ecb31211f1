//! Estimator of the round-trip time (RFC 6298), from samples without the peer's service time.

use crate::base::Span;

/// Mean and variation of the round-trip time. A round trip of more than 4 s counts as 4 s.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    /// Smoothed round-trip time in nanoseconds; zero before the first sample.
    srtt_ns: u32,
    rttvar_ns: u32,
}

impl RttEstimator {
    /// Returns the smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub(crate) const fn srtt(&self) -> Option<Span> {
        if self.srtt_ns == 0 { None } else { Some(self.mean()) }
    }

    /// Returns the smoothed round-trip time, zero before the first sample.
    #[inline]
    pub(super) const fn mean(&self) -> Span {
        Span(self.srtt_ns as u64)
    }

    /// Returns whether a round-trip time was measured yet.
    #[inline]
    pub(super) const fn is_measured(&self) -> bool {
        self.srtt_ns != 0
    }

    /// Returns how long a round trip may take: its mean and four times its variation (RFC 6298).
    #[inline]
    pub(super) const fn longest(&self) -> Span {
        // The sum of 32-bit numbers fits.
        Span(self.srtt_ns as u64 + self.rttvar_ns as u64 * 4)
    }

    /// Returns the round-trip time without queues, where congestion control assumes `base`; before
    /// the first sample, the configured one.
    #[inline]
    pub(super) fn unloaded_rtt(&self, base: Option<Span>) -> Span {
        let known = base.unwrap_or(self.mean());
        if self.is_measured() { known.min(self.mean()) } else { known }
    }

    /// Returns whether a packet that was sent more than twice can have been acknowledged after
    /// `trip`, where congestion control assumes `base`. A duplicate NACK of an earlier transmission
    /// would make the last one look faster than the network, and a smallest round-trip time is
    /// never forgotten.
    #[inline]
    pub(super) fn is_plausible(&self, trip: Span, base: Option<Span>) -> bool {
        trip >= self.unloaded_rtt(base)
    }

    /// Updates mean and variation with the measured round-trip time `rtt` (RFC 6298, section 2).
    #[inline]
    pub(super) fn sample(&mut self, rtt: Span) {
        let rtt = u32::try_from(rtt.0).unwrap_or(u32::MAX);
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.rttvar_ns = rtt / 2;
            return;
        }
        let (srtt, rttvar, rtt) =
            (u64::from(self.srtt_ns), u64::from(self.rttvar_ns), u64::from(rtt));
        // Means of 32-bit numbers have 32 bits.
        self.rttvar_ns = ((rttvar * 3 + srtt.abs_diff(rtt)) / 4) as u32;
        self.srtt_ns = (((srtt * 7 + rtt) / 8) as u32).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 section 2: SRTT <- R, RTTVAR <- R/2; then RTTVAR <- 3/4 RTTVAR + 1/4 |SRTT - R'| and
    /// SRTT <- 7/8 SRTT + 1/8 R', the variation first.
    #[test]
    fn means_and_variations_are_those_of_the_rfc() {
        let mut rtt = RttEstimator::default();
        assert_eq!((rtt.srtt(), rtt.is_measured()), (None, false));
        assert_eq!(rtt.unloaded_rtt(Some(Span(500))), Span(500));
        rtt.sample(Span(800));
        assert_eq!((rtt.srtt(), rtt.longest()), (Some(Span(800)), Span(800 + 4 * 400)));
        rtt.sample(Span(1600));
        assert_eq!((rtt.srtt(), rtt.longest()), (Some(Span(900)), Span(900 + 4 * 500)));
        assert_eq!(rtt.unloaded_rtt(Some(Span(950))), Span(900));
        assert_eq!(rtt.unloaded_rtt(Some(Span(700))), Span(700));
        assert_eq!(rtt.unloaded_rtt(None), Span(900));
    }

    #[test]
    fn round_trip_samples_are_clamped_to_their_range() {
        let mut rtt = RttEstimator::default();
        rtt.sample(Span(1));
        for _ in 0..10 {
            rtt.sample(Span(0));
        }
        assert_eq!(rtt.srtt(), Some(Span(1)));
        rtt = RttEstimator::default();
        rtt.sample(Span(u64::MAX));
        assert_eq!(rtt.mean(), Span(u64::from(u32::MAX)));
    }
}
