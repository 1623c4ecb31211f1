//! What statistics need to know of flows, also after their contexts closed.

use std::collections::BTreeMap;

use crate::base::Span;
use crate::cc;
use crate::types::PeerKey;

/// All contexts of one direction with one peer, living and past, taken together. Bytes are UDP payload
/// bytes of data packets.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct FlowRecord {
    /// The peer.
    pub peer: PeerKey,
    /// Of contexts opened here; otherwise of those that the peer opened.
    pub initiator: bool,
    /// Contexts there were.
    pub contexts: u64,
    /// Data packets sent, first transmissions and retransmissions.
    pub packets: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Of the packets, those that were sent again.
    pub retransmissions: u64,
    /// Data packets acknowledged, each once.
    pub acked_packets: u64,
    /// Bytes of those.
    pub acked_bytes: u64,
    /// Congestion window in nominal bytes, the last one known; `None` without one.
    pub cwnd: Option<u64>,
    /// Smallest and largest window at the end of a round trip and of a context.
    pub cwnd_range: Option<(u64, u64)>,
    /// Smoothed round-trip time, the last one known.
    pub srtt: Option<Span>,
    /// Smallest round-trip time the congestion control believes in, the last one known.
    pub base_rtt: Option<Span>,
    /// Average delay above it, if the congestion control keeps one, the last one known.
    pub avg_delay: Option<Span>,
    /// Paths that were used, a bit each; of more than 64, bit `n` stands for all paths `n` modulo 64.
    pub path_bits: u64,
    /// Paths that the selector keeps off because they swallowed packets, as [`cc::PathMetrics::avoided`], when last known.
    pub avoided: u32,
    /// The selector keeps to paths that are known to work, because one failed, when last known.
    pub frozen: bool,
    /// By path, of more than [`FlowRecord::PATHS`] for all paths of one remainder; without the packets counted below.
    /// None before there is more to tell of them: most peers of a large job are hardly spoken to.
    by_path: Option<Box<[PathRecord; Self::PATHS]>>,
    /// The path of the newest packet, and how many packets had been sent when it changed.
    along: u16,
    counted: u64,
}

/// What went by a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PathRecord {
    /// Data packets sent, first transmissions and retransmissions.
    pub packets: u64,
    /// Acknowledgements of packets that took it which told of a mark.
    pub marks: u32,
    /// Packets that took it, and were sent again.
    pub lost: u32,
}

/// No packet was sent yet.
const NO_PATH: u16 = u16::MAX;

impl FlowRecord {
    /// Paths that are told apart by number: what an endpoint has unless told otherwise. A power of two.
    pub const PATHS: usize = 8;

    /// Of contexts in one direction, before the first of them.
    #[must_use]
    pub const fn new(peer: PeerKey, initiator: bool) -> Self {
        Self {
            peer,
            initiator,
            contexts: 0,
            packets: 0,
            bytes: 0,
            retransmissions: 0,
            acked_packets: 0,
            acked_bytes: 0,
            cwnd: None,
            cwnd_range: None,
            srtt: None,
            base_rtt: None,
            avg_delay: None,
            path_bits: 0,
            avoided: 0,
            frozen: false,
            by_path: None,
            along: NO_PATH,
            counted: 0,
        }
    }

    /// Paths that were used, as far as 64 can be told apart.
    #[must_use]
    pub const fn paths(&self) -> u32 {
        self.path_bits.count_ones()
    }

    /// What went by each path, in their order; of more than [`FlowRecord::PATHS`], by all paths of one remainder.
    #[must_use]
    pub fn by_path(&self) -> [PathRecord; Self::PATHS] {
        let mut all = self.by_path.as_deref().copied().unwrap_or_default();
        all[Self::place(self.along)].packets += self.packets - self.counted;
        all
    }

    const fn place(path: u16) -> usize {
        path as usize % Self::PATHS
    }

    /// The congestion window is `cwnd`.
    #[inline]
    pub(crate) fn sample_window(&mut self, cwnd: Option<u64>) {
        let Some(cwnd) = cwnd else { return };
        self.cwnd = Some(cwnd);
        let (low, high) = self.cwnd_range.unwrap_or((cwnd, cwnd));
        self.cwnd_range = Some((low.min(cwnd), high.max(cwnd)));
    }

    /// What the congestion control and the round-trip estimator know at last. Where nothing was ever sent
    /// they know nothing.
    pub(crate) fn sample(
        &mut self,
        metrics: &cc::SenderMetrics,
        srtt: Option<Span>,
        paths: cc::PathMetrics,
    ) {
        if self.packets == 0 {
            return;
        }
        (self.avoided, self.frozen) = (paths.avoided, paths.frozen);
        self.sample_window(metrics.cwnd);
        self.srtt = srtt.or(self.srtt);
        self.base_rtt = metrics.base_rtt.or(self.base_rtt);
        self.avg_delay = metrics.avg_delay.or(self.avg_delay);
    }

    /// A data packet of `bytes` left on `path`.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u32, path: u16) {
        // Trains share a path: packets are counted to it when the next one begins.
        if path != self.along {
            self.turn(path);
        }
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// The next packet leaves on another path than the one before.
    fn turn(&mut self, path: u16) {
        let on_last = self.packets - self.counted;
        if on_last > 0 {
            self.on_path(self.along).packets += on_last;
        }
        (self.along, self.counted) = (path, self.packets);
        self.path_bits |= 1 << (path & 63);
    }

    fn on_path(&mut self, path: u16) -> &mut PathRecord {
        &mut self.by_path.get_or_insert_default()[Self::place(path)]
    }

    /// The packet that left last was one that had taken `path` before.
    pub(crate) fn on_sent_again(&mut self, path: u16) {
        self.retransmissions += 1;
        self.on_path(path).lost += 1;
    }

    /// A packet that took `path` was marked.
    pub(crate) fn on_marked(&mut self, path: u16) {
        self.on_path(path).marks += 1;
    }

    /// Whether nobody's contexts are recorded here.
    pub(crate) const fn is_vacant(&self) -> bool {
        self.contexts == 0
    }

    /// Packets of `bytes` were acknowledged.
    #[inline]
    pub(crate) fn on_acked(&mut self, packets: u16, bytes: u32) {
        self.acked_packets += u64::from(packets);
        self.acked_bytes += u64::from(bytes);
    }
}

/// The records of an endpoint: at most two a peer, in the order of first contact.
#[derive(Debug, Default)]
pub(crate) struct FlowRecords {
    list: Vec<FlowRecord>,
    by_key: BTreeMap<(PeerKey, bool), u32>,
    /// Places of records that were forgotten.
    free: Vec<u32>,
}

impl FlowRecords {
    /// A context opens; the place of its record.
    pub(crate) fn open(&mut self, peer: PeerKey, initiator: bool) -> u32 {
        let place = *self.by_key.entry((peer, initiator)).or_insert_with(|| {
            let record = FlowRecord::new(peer, initiator);
            if let Some(place) = self.free.pop() {
                self.list[place as usize] = record;
                return place;
            }
            self.list.push(record);
            // Two for each of 2^31 peers would not fit any memory.
            self.list.len() as u32 - 1
        });
        self.list[place as usize].contexts += 1;
        place
    }

    /// The record in a place that [`FlowRecords::open`] gave.
    #[inline]
    pub(crate) fn at(&mut self, place: u32) -> &mut FlowRecord {
        &mut self.list[place as usize]
    }

    /// Forgets a peer that has no context.
    pub(crate) fn forget(&mut self, peer: PeerKey) {
        for initiator in [true, false] {
            if let Some(place) = self.by_key.remove(&(peer, initiator)) {
                self.list[place as usize] = FlowRecord::new(peer, initiator);
                self.free.push(place);
            }
        }
    }

    pub(crate) fn list_mut(&mut self) -> &mut [FlowRecord] {
        &mut self.list
    }

    pub(crate) fn list(&self) -> &[FlowRecord] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_record_for_each_direction_however_many_contexts() {
        let mut records = FlowRecords::default();
        for _ in 0..1000 {
            let (ours, theirs) = (records.open(PeerKey(7), true), records.open(PeerKey(7), false));
            records.at(ours).on_sent(100, 3);
            records.at(theirs).on_sent(50, 68);
            records.at(theirs).on_sent_again(2);
            records.at(ours).on_acked(1, 100);
        }
        assert_eq!(records.open(PeerKey(1), true), 2);
        let [ours, theirs, _] = records.list() else { panic!("{records:?}") };
        assert_eq!((ours.contexts, ours.packets, ours.bytes), (1000, 1000, 100_000));
        assert_eq!((ours.acked_packets, ours.acked_bytes), (1000, 100_000));
        assert_eq!((ours.retransmissions, theirs.retransmissions), (0, 1000));
        assert_eq!((ours.path_bits, theirs.path_bits, theirs.paths()), (1 << 3, 1 << 4, 1));
    }

    #[test]
    fn the_place_of_a_forgotten_peer_is_used_again() {
        let mut records = FlowRecords::default();
        let (a, b) = (records.open(PeerKey(7), true), records.open(PeerKey(8), true));
        records.at(a).on_sent(100, 3);
        records.forget(PeerKey(7));
        assert!(records.list()[a as usize].is_vacant() && !records.list()[b as usize].is_vacant());
        assert_eq!(records.open(PeerKey(9), false), a);
        let record = &records.list()[a as usize];
        assert_eq!((record.peer, record.initiator, record.bytes), (PeerKey(9), false, 0));
    }

    #[test]
    fn what_went_by_a_path_is_known_while_its_train_is_filled() {
        let mut record = FlowRecord::new(PeerKey(0), true);
        let packets = |record: &FlowRecord| record.by_path().map(|path| path.packets);
        assert_eq!(packets(&record), [0; 8]);
        for (path, count) in [(3, 5), (0, 2), (3, 1), (7, 4), (10, 6)] {
            for _ in 0..count {
                record.on_sent(100, path);
            }
            assert_eq!(packets(&record).iter().sum::<u64>(), record.packets);
        }
        // 10 is 2 modulo 8.
        assert_eq!(packets(&record), [2, 0, 6, 6, 0, 0, 0, 4]);
        assert_eq!(record.path_bits, 1 << 3 | 1 | 1 << 7 | 1 << 10);
        record.on_marked(7);
        record.on_sent(100, 3);
        record.on_sent_again(10);
        let [.., seventh] = record.by_path();
        assert_eq!(seventh, PathRecord { packets: 4, marks: 1, lost: 0 });
        assert_eq!((record.by_path()[2].lost, record.retransmissions), (1, 1));
        let paths = cc::PathMetrics { avoided: 0b100, frozen: true, ..cc::PathMetrics::default() };
        record.sample(&cc::SenderMetrics::default(), None, paths);
        assert_eq!((record.avoided, record.frozen), (0b100, true));
    }

    #[test]
    fn the_last_window_and_the_extremes_are_kept() {
        let mut record = FlowRecord::new(PeerKey(0), true);
        record.sample_window(None);
        assert_eq!((record.cwnd, record.cwnd_range), (None, None));
        for cwnd in [500, 100, 900, 300] {
            record.sample_window(Some(cwnd));
        }
        assert_eq!((record.cwnd, record.cwnd_range), (Some(300), Some((100, 900))));
        record.on_sent(1, 0);
        let metrics = cc::SenderMetrics { base_rtt: Some(Span(9)), ..cc::SenderMetrics::default() };
        record.sample(&metrics, Some(Span(20)), cc::PathMetrics::default());
        record.sample(&cc::SenderMetrics::default(), None, cc::PathMetrics::default());
        assert_eq!(
            (record.srtt, record.base_rtt, record.cwnd),
            (Some(Span(20)), Some(Span(9)), Some(300))
        );
    }
}
