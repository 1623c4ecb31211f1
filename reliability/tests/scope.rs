//! Flows that share a congestion-control context share its window, whatever the algorithm.

use squall_reliability::base::{Psn, Rate, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{Ack, AckCc, AckExt, AckRequest, CcState, NextHeader, NsccState};
use squall_reliability::{Config, Event, Label, NewPacket, PdcId, Pdcs, PeerKey, SendError, cc};

const NOMINAL: u64 = 4096 + 48;

/// Returns a rate rounded to Gb/s, because rates are in single precision.
fn gbps(rate: Rate) -> u64 {
    (rate.0 + 1_000_000) / 1_000_000_000
}

/// Four connected flows: two to peer 0 and one to peer 1, which live on one host, and one to peer 2.
struct Flows {
    pdcs: Pdcs<u32>,
    now: Time,
    flows: Vec<(PdcId, PeerKey, Psn)>,
}

impl Flows {
    /// Makes the flows with a window of `packets` for each context.
    fn new(scope: cc::Scope, packets: u64) -> Self {
        let cc = cc::SenderConfig::fixed(packets * NOMINAL);
        Self::with(scope, cc, [Label::default(); 4])
    }

    /// Makes the flows with DCQCN at 100 Gb/s.
    fn rated(scope: cc::Scope) -> Self {
        let network = cc::NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, false);
        let cc = cc::SenderConfig::by_name("dcqcn", &network).unwrap();
        Self::with(scope, cc, [Label::default(); 4])
    }

    fn with(scope: cc::Scope, cc: cc::SenderConfig, labels: [Label; 4]) -> Self {
        let paths = cc::PathsConfig::oblivious(16).unwrap();
        let mut pdcs = Pdcs::new(Config { scope, ..Config::new(4096, cc, paths, 1) });
        for (peer, host) in [(0, 7), (1, 7), (2, 8)] {
            pdcs.set_host(PeerKey(peer), host);
        }
        let now = Time(1_000_000);
        let mut all = Self { pdcs, now, flows: Vec::new() };
        for (flow, (peer, label)) in [0, 0, 1, 2].into_iter().zip(labels).enumerate() {
            let peer = PeerKey(peer);
            // Each flow starts later, or a shared pacer would hold it back.
            let now = all.now;
            let id = all.pdcs.open(now, (peer, label)).unwrap();
            let packet = NewPacket { desc: 0, bytes: 4096, last: false, prompt: false, backlog: 0 };
            let grant = all.pdcs.next_packet(now, id, &packet).unwrap();
            all.flows.push((id, peer, grant.psn));
            all.ack(flow, 0);
        }
        all
    }

    /// Sends on a flow until it must wait. Returns the number of packets.
    fn fill(&mut self, flow: usize) -> u32 {
        let (id, ..) = self.flows[flow];
        for sent in 0.. {
            let packet =
                NewPacket { desc: sent, bytes: 4096, last: false, prompt: false, backlog: 0 };
            match self.pdcs.next_packet(self.now, id, &packet) {
                Ok(_) => {}
                Err(SendError::Wait) => return sent,
                Err(other) => panic!("{other:?}"),
            }
        }
        unreachable!()
    }

    /// Acknowledges everything up to the packet with number `upto` on `flow`.
    fn ack(&mut self, flow: usize, upto: u32) {
        self.now += Span::micros(20);
        let (id, peer, start) = self.flows[flow];
        let ack = Ack {
            next: NextHeader::None,
            ce: false,
            retx: false,
            probe: false,
            request: AckRequest::None,
            ack_psn_offset: 0,
            cack_psn: start.plus(upto),
            spdcid: 9,
            dpdcid: u16::try_from(id.index()).unwrap() + 1,
            ext: AckExt::Cc(AckCc {
                mpr: 16,
                sack_psn_offset: 1,
                sack_bitmap: 0,
                state: CcState::Nscc(NsccState { service_time: 1, ..NsccState::default() }),
            }),
        };
        assert!(self.pdcs.rx_ack(self.now, peer, &ack, None, Hops::NONE));
    }

    /// Returns the flows that were reported ready.
    fn ready(&mut self) -> Vec<usize> {
        let mut ready = Vec::new();
        while let Some(event) = self.pdcs.poll_event() {
            if let Event::Ready { id } = event {
                ready.push(self.flows.iter().position(|flow| flow.0 == id).unwrap());
            }
        }
        ready
    }

    /// Sends a notification that packets of `flow` were marked.
    fn notify(&mut self, flow: usize) {
        let (id, peer, start) = self.flows[flow];
        let notice = Ack {
            next: NextHeader::None,
            ce: true,
            retx: false,
            probe: false,
            request: AckRequest::None,
            ack_psn_offset: 0,
            cack_psn: start,
            spdcid: 9,
            dpdcid: u16::try_from(id.index()).unwrap() + 1,
            ext: AckExt::None,
        };
        assert!(self.pdcs.rx_ack(self.now, peer, &notice, None, Hops::NONE));
    }

    /// Returns the rates of the flows in Gb/s.
    fn rates(&self) -> Vec<u64> {
        let rate = |flow: &(PdcId, PeerKey, Psn)| self.pdcs.info(flow.0).unwrap().rate;
        self.flows.iter().map(|flow| gbps(rate(flow).unwrap())).collect()
    }

    fn in_flight(&self, flow: usize) -> u64 {
        self.pdcs.info(self.flows[flow].0).unwrap().in_flight
    }
}

#[test]
fn flows_of_one_scope_share_a_window() {
    // Packets that each flow in turn sends until it must wait, with a window of ten packets.
    for (scope, expected) in [
        (cc::Scope::PerFlow, [10, 10, 10, 10]),
        (cc::Scope::PerPair, [10, 0, 10, 10]),
        (cc::Scope::PerDestination, [10, 0, 0, 10]),
        (cc::Scope::PerDestinationUnsplit, [10, 10, 10, 10]),
        (cc::Scope::PerHost, [10, 0, 0, 0]),
        (cc::Scope::PerServiceLevel, [10, 0, 0, 0]),
        (cc::Scope::PerGroup, [10, 0, 0, 0]),
    ] {
        let mut flows = Flows::new(scope, 10);
        let sent: Vec<u32> = (0..4).map(|flow| flows.fill(flow)).collect();
        assert_eq!(sent, expected, "{scope}");
    }
}

#[test]
fn freed_room_goes_to_the_longest_waiting_flows() {
    let mut flows = Flows::new(cc::Scope::PerHost, 10);
    assert_eq!((flows.fill(0), flows.fill(1), flows.fill(2)), (10, 0, 0));
    assert!(flows.ready().is_empty());
    // Two packets leave room for two. Flow 0 is notified because the ACK is its own, and again
    // because it is first in the queue; flow 1 is next.
    flows.ack(0, 2);
    let ready = flows.ready();
    assert!(ready.contains(&1), "{ready:?}");
    assert!(!ready.contains(&2), "{ready:?}");
    assert_eq!((flows.fill(1), flows.fill(2)), (2, 0));
    assert_eq!((flows.in_flight(0), flows.in_flight(1)), (8 * NOMINAL, 2 * NOMINAL));
    // All packets of flow 0 are acknowledged, so there is room for every flow.
    flows.ack(0, 10);
    let ready = flows.ready();
    assert!(ready.contains(&1) && ready.contains(&2), "{ready:?}");
    assert_eq!((flows.fill(2), flows.fill(1)), (8, 0));
}

#[test]
fn a_flow_that_ends_frees_its_bytes_in_flight() {
    let mut flows = Flows::new(cc::Scope::PerHost, 10);
    assert_eq!((flows.fill(0), flows.fill(3)), (10, 0));
    flows.pdcs.abort(flows.flows[0].0);
    // The waiting flow is notified of the room at once.
    assert!(flows.pdcs.poll_timeout().is_some_and(|when| when <= flows.now));
    flows.pdcs.handle_timeout(flows.now);
    while let Some(event) = flows.pdcs.poll_event() {
        if event == (Event::Ready { id: flows.flows[3].0 }) {
            assert_eq!(flows.fill(3), 10);
            return;
        }
    }
    panic!("nobody told it");
}

#[test]
fn scopes_by_level_and_group_follow_the_initiators_label() {
    let level = |level| Label { level, group: 0 };
    let group = |group| Label { level: 0, group };
    let of_levels = [level(0), level(1), level(0), level(1)];
    let of_groups = [group(7), group(7), group(9), group(7)];
    for (scope, labels, expected) in [
        (cc::Scope::PerServiceLevel, of_levels, [10, 10, 0, 0]),
        (cc::Scope::PerServiceLevel, of_groups, [10, 0, 0, 0]),
        (cc::Scope::PerGroup, of_groups, [10, 0, 10, 0]),
        (cc::Scope::PerGroup, of_levels, [10, 0, 0, 0]),
        (cc::Scope::PerPair, of_groups, [10, 0, 10, 10]),
    ] {
        let mut flows = Flows::with(scope, cc::SenderConfig::fixed(10 * NOMINAL), labels);
        let sent: Vec<u32> = (0..4).map(|flow| flows.fill(flow)).collect();
        assert_eq!(sent, expected, "{scope}");
    }
}

/// ConnectX-5 as described in the thesis (section 3.6.1): two queue pairs at 30 Gb/s each send 60
/// Gb/s, where one would send 30.
#[test]
fn each_flow_of_an_unsplit_context_sends_at_the_whole_rate() {
    for (scope, others) in [(cc::Scope::PerDestinationUnsplit, 1), (cc::Scope::PerDestination, 0)] {
        let mut flows = Flows::rated(scope);
        flows.notify(0);
        // alpha is 1 at the first notification: the rate of all flows to host 7 is halved.
        assert_eq!(flows.rates(), [50, 50, 50, 100], "{scope}");
        let first = flows.fill(0);
        assert!(first > 0);
        assert_eq!((flows.fill(1), flows.fill(2)), (first * others, first * others), "{scope}");
        // An acknowledgement only frees its own flow's window.
        let in_flight = flows.in_flight(2);
        flows.ack(0, first);
        assert_eq!((flows.in_flight(0), flows.in_flight(2)), (0, in_flight), "{scope}");
    }
}

#[test]
fn a_context_outlives_its_flows_and_its_timers_go_on() {
    for scope in [cc::Scope::PerPair, cc::Scope::PerDestinationUnsplit, cc::Scope::PerFlow] {
        let mut flows = Flows::rated(scope);
        flows.notify(3);
        flows.pdcs.abort(flows.flows[3].0);
        let reopened = |flows: &mut Flows| {
            let id = flows.pdcs.open(flows.now, PeerKey(2)).unwrap();
            let rate = flows.pdcs.info(id).unwrap().rate.unwrap();
            flows.pdcs.abort(id);
            gbps(rate)
        };
        let line = scope == cc::Scope::PerFlow;
        assert_eq!(reopened(&mut flows), if line { 100 } else { 50 }, "{scope}");
        // Fast recovery: half the way back every 55 us. 50, 75, 87.5.
        flows.now += Span::micros(111);
        assert_eq!(reopened(&mut flows), if line { 100 } else { 87 }, "{scope}");
    }
}

#[test]
fn a_peer_with_a_reused_key_inherits_nothing() {
    let mut flows = Flows::rated(cc::Scope::PerPair);
    flows.notify(3);
    flows.pdcs.abort(flows.flows[3].0);
    flows.pdcs.forget_peer(PeerKey(2));
    let id = flows.pdcs.open(flows.now, PeerKey(2)).unwrap();
    assert_eq!(flows.pdcs.info(id).unwrap().rate, Some(Rate::gbps(100)));
}

#[test]
fn the_longest_vacant_contexts_are_replaced() {
    let mut flows = Flows::rated(cc::Scope::PerPair);
    flows.notify(3);
    flows.pdcs.abort(flows.flows[3].0);
    for peer in 10..1500 {
        let id = flows.pdcs.open(flows.now, PeerKey(peer)).unwrap();
        flows.pdcs.abort(id);
    }
    let id = flows.pdcs.open(flows.now, PeerKey(2)).unwrap();
    assert_eq!(flows.pdcs.info(id).unwrap().rate, Some(Rate::gbps(100)));
}
