//! Packet sizes of paths: the longest packet that reaches a host unfragmented, where that is less
//! than the endpoint's own limit.
//!
//! A path is narrow because this host's routes or a router (by ICMP: RFC 1191, RFC 8201) reported
//! it, or because long packets do not arrive while short ones do (RFC 8899). A report is valid for
//! ten minutes. An inferred size is valid for two seconds at first, and for longer each time it is
//! confirmed. Then the endpoint's size is tried again.

use core::net::IpAddr;
use std::collections::HashMap;

use crate::base::{Span, Time};

/// Time for which a reported path MTU is valid: PMTU_RAISE_TIMER of RFC 8899, section 5.1.1. Linux
/// trusts ICMP for as long.
const RAISE: Span = Span::secs(600);
/// Time after which an inferred packet size is first tested, by trying the full size again.
const DOUBT: Span = Span::secs(2);
/// IP packet sizes that are tried, in this order: Ethernet's, IPv6's minimum (RFC 8200 section 5),
/// RFC 8899's BASE_PLPMTU, and the size that every IPv4 host accepts (RFC 1122 section 3.3.2).
const STEPS: [u32; 4] = [1500, 1280, 1200, 576];
/// The smallest MTU of an IPv6 link, in bytes.
const SMALLEST_V6: u32 = 1280;
/// Bytes around a packet's UDP payload: IP and UDP header, and the CRC trailer, whether there is
/// one or not.
const AROUND_V4: u32 = 20 + 8 + 4;
const AROUND_V6: u32 = 40 + 8 + 4;

/// Returns the longest packet, counted like [`crate::Config::max_packet`], that fits into an IP
/// packet of `bytes` to a host.
fn room(to: IpAddr, bytes: u32) -> u32 {
    bytes.saturating_sub(if to.is_ipv6() { AROUND_V6 } else { AROUND_V4 })
}

/// Returns the smallest packet size, in bytes, that the engine accepts for the path to a host.
pub(crate) fn min_packet(to: IpAddr) -> u32 {
    room(to, if to.is_ipv6() { SMALLEST_V6 } else { STEPS[3] })
}

/// A path that does not carry packets of the endpoint's own packet size.
#[derive(Debug)]
struct ReducedPath {
    size: u32,
    /// Time at which the endpoint's own packet size is tried again on the path; `None` while it is
    /// tried.
    raise_at: Option<Time>,
    /// Time at which a larger packet size was last tried, and the size before that.
    raised: Option<(Time, u32)>,
    /// Time for which the next inferred packet size will be valid.
    doubt: Span,
}

/// The largest packet sizes of the paths to all hosts.
#[derive(Debug)]
pub(crate) struct PathSizes {
    /// The endpoint's own packet size in bytes, for paths without restrictions.
    most: u32,
    narrow: HashMap<IpAddr, ReducedPath>,
    /// The earliest time at which a larger size is tried on any path (`raise_at`).
    next: Option<Time>,
}

impl PathSizes {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, narrow: HashMap::new(), next: None }
    }

    /// Returns whether the path to any host carries less, or once carried less, than the endpoint would send.
    #[inline]
    pub(crate) fn has_narrow(&self) -> bool {
        !self.narrow.is_empty()
    }

    /// Forgets a host at which there is no peer any more.
    pub(crate) fn forget(&mut self, host: IpAddr) {
        self.narrow.remove(&host);
    }

    /// Returns the length in bytes of the longest packet that reaches a host unfragmented.
    pub(crate) fn get(&self, to: IpAddr) -> u32 {
        self.narrow.get(&to).map_or(self.most, |path| path.size)
    }

    /// Handles a report that packets to a host may have at most `bytes`, which may be forged.
    /// Returns the new size if it becomes smaller.
    pub(crate) fn lower_reported(&mut self, now: Time, to: IpAddr, bytes: u32) -> Option<u32> {
        let size = self.get(to);
        // An MTU that no real link has is forged, or belongs to a link that fragments by itself.
        if bytes >= size || bytes < min_packet(to) {
            return None;
        }
        self.lower(to, bytes, now + RAISE);
        Some(bytes)
    }

    /// Infers a smaller size, because a packet of `bytes` to a host does not arrive while shorter
    /// ones do. Returns the new size if there is a smaller one to try.
    pub(crate) fn lower_inferred(&mut self, now: Time, to: IpAddr, bytes: u32) -> Option<u32> {
        let size = self.get(to);
        if bytes > size {
            // Such a packet is fragmented already.
            return None;
        }
        let raised = self.narrow.get(&to).and_then(|path| path.raised);
        let lately = raised.filter(|(at, before)| now.since(*at) < RAISE && *before < bytes);
        let steps = STEPS.iter().map(|&step| room(to, step));
        let next = lately
            .map(|(_, before)| before)
            .or_else(|| steps.into_iter().find(|&step| step < bytes))?;
        if next >= size || next < min_packet(to) {
            return None;
        }
        let doubt = match (self.narrow.get(&to), lately) {
            (Some(path), Some(_)) => path.doubt,
            _ => DOUBT,
        };
        self.lower(to, next, now + doubt);
        Some(next)
    }

    fn lower(&mut self, to: IpAddr, size: u32, raise_at: Time) {
        let fresh = ReducedPath { size, raise_at: None, raised: None, doubt: DOUBT };
        let path = self.narrow.entry(to).or_insert(fresh);
        path.size = size;
        path.raise_at = Some(raise_at);
        self.next = Some(self.next.map_or(raise_at, |next| next.min(raise_at)));
    }

    /// Returns the next host to which the endpoint's own packet size is tried again, and that size.
    pub(crate) fn take_due_raise(&mut self, now: Time) -> Option<(IpAddr, u32)> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        let due =
            self.narrow.iter_mut().find(|(_, path)| path.raise_at.is_some_and(|at| at <= now));
        let Some((&to, path)) = due else {
            self.next = self.narrow.values().filter_map(|path| path.raise_at).min();
            return None;
        };
        path.raise_at = None;
        path.raised = Some((now, path.size));
        path.doubt = (path.doubt * 2).min(RAISE);
        path.size = self.most;
        Some((to, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));
    const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::secs(seconds)
    }

    #[test]
    fn reported_sizes_are_accepted_within_bounds_and_for_ten_minutes() {
        let mut paths = PathSizes::new(8968);
        for bytes in [8968, 9000, u32::MAX, 543, 0] {
            assert_eq!((paths.lower_reported(at(0), V4, bytes), paths.get(V4)), (None, 8968));
        }
        assert_eq!(paths.lower_reported(at(0), V4, 544), Some(544));
        assert_eq!(paths.lower_reported(at(0), V6, 1227), None, "less than any IPv6 link");
        assert_eq!(paths.lower_reported(at(1), V6, 1228), Some(1228));
        assert_eq!(
            paths.lower_reported(at(2), V6, 1300),
            None,
            "a report never increases the size"
        );
        assert_eq!(paths.take_due_raise(at(599)), None);
        assert_eq!(paths.take_due_raise(at(600)), Some((V4, 8968)));
        assert_eq!(paths.take_due_raise(at(600)), None);
        assert_eq!((paths.get(V4), paths.get(V6)), (8968, 1228));
        assert_eq!(
            (paths.take_due_raise(at(601)), paths.take_due_raise(at(601))),
            (Some((V6, 8968)), None)
        );
        assert_eq!(paths.next, None);
    }

    #[test]
    fn inferred_sizes_decrease_in_steps() {
        for (to, steps) in [(V4, &[1468, 1248, 1168, 544][..]), (V6, &[1448, 1228])] {
            let mut paths = PathSizes::new(8968);
            for &step in steps {
                let before = paths.get(to);
                // A packet that is fragmented already proves nothing.
                assert_eq!(paths.lower_inferred(at(0), to, before + 1), None);
                assert_eq!(paths.lower_inferred(at(0), to, before), Some(step));
            }
            let last = paths.get(to);
            assert_eq!(paths.lower_inferred(at(0), to, last), None, "there is no smaller one");
        }
        // The packet that does not arrive may be shorter than a step.
        let mut paths = PathSizes::new(1400);
        assert_eq!(paths.lower_inferred(at(0), V4, 1200), Some(1168));
    }

    #[test]
    fn confirmed_inferred_size_is_tested_less_and_less_often() {
        let mut paths = PathSizes::new(1468);
        assert_eq!(paths.lower_inferred(at(0), V4, 1468), Some(1248));
        assert_eq!(paths.lower_inferred(at(0), V4, 1248), Some(1168));
        let mut now = at(0);
        for seconds in [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
            let due = now + Span::secs(seconds);
            assert_eq!(paths.take_due_raise(Time(due.0 - 1)), None, "{seconds}");
            now = due;
            assert_eq!(paths.take_due_raise(now), Some((V4, 1468)), "{seconds}");
            // The size that passed before is inferred again.
            assert_eq!(paths.lower_inferred(now, V4, 1468), Some(1168));
        }
        // After a long time at full size, the next inference starts from the first step.
        assert!(paths.take_due_raise(now + RAISE).is_some());
        assert_eq!(paths.lower_inferred(now + RAISE * 2, V4, 1468), Some(1248));
        assert_eq!(paths.take_due_raise(now + RAISE * 2 + DOUBT), Some((V4, 1468)));
    }
}
