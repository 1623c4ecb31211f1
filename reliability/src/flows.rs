//! Statistics of the flows to and from each peer. They outlive the contexts of the flows.

use std::collections::BTreeMap;

use crate::base::Span;
use crate::cc;
use crate::types::PeerKey;

/// The sum over all contexts of one direction with one peer, living and past. Bytes are UDP payload
/// bytes of data packets.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct FlowRecord {
    /// The peer whose flows are counted.
    pub peer: PeerKey,
    /// True for contexts opened by this endpoint, false for those that the peer opened.
    pub initiator: bool,
    /// The number of contexts with the peer in this direction, living and past.
    pub contexts: u64,
    /// Data packets sent to the peer, first transmissions and retransmissions.
    pub packets: u64,
    /// UDP payload bytes of the data packets sent, retransmissions included.
    pub bytes: u64,
    /// Retransmissions among the data packets sent.
    pub retransmissions: u64,
    /// Data packets that the peer acknowledged; each counts once.
    pub acked_packets: u64,
    /// UDP payload bytes of the data packets that the peer acknowledged.
    pub acked_bytes: u64,
    /// Last known congestion window in nominal bytes; `None` where congestion control has none.
    pub cwnd: Option<u64>,
    /// Smallest and largest congestion window in nominal bytes, sampled at the end of each round
    /// trip and of each context.
    pub cwnd_range: Option<(u64, u64)>,
    /// Last known smoothed round-trip time to the peer.
    pub srtt: Option<Span>,
    /// Last known smallest round-trip time to the peer, without queues, that congestion control
    /// assumes.
    pub base_rtt: Option<Span>,
    /// Last known average delay above `base_rtt`, if congestion control keeps one.
    pub avg_delay: Option<Span>,
    /// Paths that were used, one bit each. With more than 64 paths, bit `n` stands for all paths
    /// that are `n` modulo 64.
    pub path_bits: u64,
    /// Last known number of paths that the selector avoids because packets were lost on them, as
    /// [`cc::PathMetrics::avoided`].
    pub avoided: u32,
    /// True when the selector only used paths known to work, because another one failed, when last
    /// known.
    pub frozen: bool,
    /// Counts by path. With more than [`FlowRecord::PATHS`] paths, those of one remainder share an
    /// entry. The packets after `counted` are not yet included. It is `None` while there is nothing
    /// to count, because a job has many peers to which it hardly sends.
    by_path: Option<Box<[PathRecord; Self::PATHS]>>,
    /// The path of the newest packet. `counted` is the number of packets that had been sent when
    /// the path last changed.
    along: u16,
    counted: u64,
}

/// Counts of the data packets that were sent to a peer on one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PathRecord {
    /// Data packets sent on the path, first transmissions and retransmissions.
    pub packets: u64,
    /// Acknowledgements that echoed a congestion mark for packets on this path.
    pub marks: u32,
    /// Data packets sent on the path that had to be retransmitted later.
    pub lost: u32,
}

/// Value of [`FlowRecord::along`] that stands for no path, before the first packet.
const NO_PATH: u16 = u16::MAX;

impl FlowRecord {
    /// Number of paths that have an entry of their own: an endpoint's default number of paths. It
    /// is a power of two.
    pub const PATHS: usize = 8;

    /// Returns the record of one direction with a peer, with all counts zero.
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

    /// Returns the number of paths that were used. Paths that are equal modulo 64 count as one.
    #[must_use]
    pub const fn paths(&self) -> u32 {
        self.path_bits.count_ones()
    }

    /// Returns the counts by path, in order of the paths. With more than [`FlowRecord::PATHS`]
    /// paths, those of one remainder share an entry.
    #[must_use]
    pub fn by_path(&self) -> [PathRecord; Self::PATHS] {
        let mut all = self.by_path.as_deref().copied().unwrap_or_default();
        all[Self::place(self.along)].packets += self.packets - self.counted;
        all
    }

    const fn place(path: u16) -> usize {
        path as usize % Self::PATHS
    }

    /// Records the current congestion window, in nominal bytes, and widens the range seen so far.
    #[inline]
    pub(crate) fn sample_window(&mut self, cwnd: Option<u64>) {
        let Some(cwnd) = cwnd else { return };
        self.cwnd = Some(cwnd);
        let (low, high) = self.cwnd_range.unwrap_or((cwnd, cwnd));
        self.cwnd_range = Some((low.min(cwnd), high.max(cwnd)));
    }

    /// Records the current state of congestion control, round-trip estimator and path selector,
    /// unless no packet was ever sent.
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

    /// Counts a data packet of `bytes` that leaves on `path`.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u32, path: u16) {
        // Trains share a path: packets are counted to it when the next one begins.
        if path != self.along {
            self.change_path(path);
        }
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// Handles that the next packet leaves on another path than the one before.
    fn change_path(&mut self, path: u16) {
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

    /// Counts the packet that left last as a retransmission of one that had taken `path`.
    pub(crate) fn on_sent_again(&mut self, path: u16) {
        self.retransmissions += 1;
        self.on_path(path).lost += 1;
    }

    /// Counts an acknowledgement that echoed a congestion mark for `path`.
    pub(crate) fn on_marked(&mut self, path: u16) {
        self.on_path(path).marks += 1;
    }

    /// Returns whether the record belongs to no peer and may be reused.
    pub(crate) const fn is_vacant(&self) -> bool {
        self.contexts == 0
    }

    /// Counts `packets` acknowledged data packets with `bytes` of UDP payload in all.
    #[inline]
    pub(crate) fn on_acked(&mut self, packets: u16, bytes: u32) {
        self.acked_packets += u64::from(packets);
        self.acked_bytes += u64::from(bytes);
    }
}

/// The flow records of an endpoint: at most two for each peer, in the order of first contact.
#[derive(Debug, Default)]
pub(crate) struct FlowRecords {
    list: Vec<FlowRecord>,
    by_key: BTreeMap<(PeerKey, bool), u32>,
    /// Indexes of the records that are unused, because their peers were forgotten.
    free: Vec<u32>,
}

impl FlowRecords {
    /// Counts a context that is opened with `peer`, and returns the index of the record for its
    /// flow.
    pub(crate) fn open(&mut self, peer: PeerKey, initiator: bool) -> u32 {
        let place = *self.by_key.entry((peer, initiator)).or_insert_with(|| {
            let record = FlowRecord::new(peer, initiator);
            if let Some(place) = self.free.pop() {
                self.list[place as usize] = record;
                return place;
            }
            self.list.push(record);
            // The index fits: 2^32 records would not fit any memory.
            self.list.len() as u32 - 1
        });
        self.list[place as usize].contexts += 1;
        place
    }

    /// Returns the record at index `place`, which [`FlowRecords::open`] returned.
    #[inline]
    pub(crate) fn at(&mut self, place: u32) -> &mut FlowRecord {
        &mut self.list[place as usize]
    }

    /// Forgets the records of a peer that has no context.
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
    fn packets_of_an_unfinished_train_count_for_its_path() {
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
