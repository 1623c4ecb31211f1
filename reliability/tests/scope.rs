//! Flows that share a congestion-control context share its window, whatever the algorithm.

use squall_reliability::base::{Psn, Rate, Span, Time};
use squall_reliability::wire::{Ack, AckCc, AckExt, AckRequest, CcState, NextHeader, NsccState};
use squall_reliability::{Config, Event, Label, NewPacket, PdcId, Pdcs, PeerKey, SendError, cc};

const NOMINAL: u64 = 4096 + 48;

/// In Gb/s, to the next: rates are in single precision.
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
    /// With a window of `packets` for each context.
    fn new(scope: cc::Scope, packets: u64) -> Self {
        let cc = cc::SenderConfig::fixed(packets * NOMINAL);
        Self::with(scope, cc, [Label::default(); 4])
    }

    /// With DCQCN at 100 Gb/s.
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
            // Later each time, or a shared pacer would hold it back.
            let now = all.now;
            let id = all.pdcs.open(now, (peer, label)).unwrap();
            let packet = NewPacket { desc: 0, bytes: 4096, last: false, prompt: false, backlog: 0 };
            let grant = all.pdcs.next_packet(now, id, &packet).unwrap();
            all.flows.push((id, peer, grant.psn));
            all.ack(flow, 0);
        }
        all
    }

    /// Sends on a flow until it must wait; how many packets.
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

    /// Everything up to the packet with number `upto` arrived on `flow`.
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
        assert!(self.pdcs.rx_ack(self.now, peer, &ack, None));
    }

    /// Flows told that they may send.
    fn ready(&mut self) -> Vec<usize> {
        let mut ready = Vec::new();
        while let Some(event) = self.pdcs.poll_event() {
            if let Event::Ready { id } = event {
                ready.push(self.flows.iter().position(|flow| flow.0 == id).unwrap());
            }
        }
        ready
    }

    /// The peer says that packets of `flow` were marked.
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
        assert!(self.pdcs.rx_ack(self.now, peer, &notice, None));
    }

    /// Rates of the flows in Gb/s.
    fn rates(&self) -> Vec<u64> {
        let rate = |flow: &(PdcId, PeerKey, Psn)| self.pdcs.info(flow.0).unwrap().rate;
        self.flows.iter().map(|flow| gbps(rate(flow).unwrap())).collect()
    }

    fn in_flight(&self, flow: usize) -> u64 {
        self.pdcs.info(self.flows[flow].0).unwrap().in_flight
    }
}

#[test]
fn a_window_is_shared_by_those_whom_the_scope_names() {
    // Sent by each flow in turn until it must wait, with ten packets a window.
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
fn room_made_by_one_flow_goes_to_those_that_wait_longest() {
    let mut flows = Flows::new(cc::Scope::PerHost, 10);
    assert_eq!((flows.fill(0), flows.fill(1), flows.fill(2)), (10, 0, 0));
    assert!(flows.ready().is_empty());
    // Two packets leave room for two. Flow 0 hears of it because it is its own ACK that came, flow 0
    // again because it is first in line, and flow 1 next.
    flows.ack(0, 2);
    let ready = flows.ready();
    assert!(ready.contains(&1), "{ready:?}");
    assert!(!ready.contains(&2), "{ready:?}");
    assert_eq!((flows.fill(1), flows.fill(2)), (2, 0));
    assert_eq!((flows.in_flight(0), flows.in_flight(1)), (8 * NOMINAL, 2 * NOMINAL));
    // All of flow 0's come in: there is room for everybody.
    flows.ack(0, 10);
    let ready = flows.ready();
    assert!(ready.contains(&1) && ready.contains(&2), "{ready:?}");
    assert_eq!((flows.fill(2), flows.fill(1)), (8, 0));
}

#[test]
fn what_a_flow_had_in_flight_is_free_when_it_ends() {
    let mut flows = Flows::new(cc::Scope::PerHost, 10);
    assert_eq!((flows.fill(0), flows.fill(3)), (10, 0));
    flows.pdcs.abort(flows.flows[0].0);
    // The one that waits looks at the room at once.
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
fn levels_and_groups_are_what_the_opener_says() {
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

/// ConnectX-5 as the thesis has it (section 3.6.1): two queue pairs at 30 Gb/s each are 60, where one would be 30.
#[test]
fn unsplit_means_one_rate_at_which_each_flow_sends() {
    for (scope, others) in [(cc::Scope::PerDestinationUnsplit, 1), (cc::Scope::PerDestination, 0)] {
        let mut flows = Flows::rated(scope);
        flows.notify(0);
        // alpha is 1 at the first notification: the rate is halved, of whoever lives on host 7.
        assert_eq!(flows.rates(), [50, 50, 50, 100], "{scope}");
        let first = flows.fill(0);
        assert!(first > 0);
        assert_eq!((flows.fill(1), flows.fill(2)), (first * others, first * others), "{scope}");
        // An acknowledgement is its own flow's: what others have in flight is none of its concern.
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
fn who_gets_the_key_of_a_forgotten_peer_begins_anew() {
    let mut flows = Flows::rated(cc::Scope::PerPair);
    flows.notify(3);
    flows.pdcs.abort(flows.flows[3].0);
    flows.pdcs.forget_peer(PeerKey(2));
    let id = flows.pdcs.open(flows.now, PeerKey(2)).unwrap();
    assert_eq!(flows.pdcs.info(id).unwrap().rate, Some(Rate::gbps(100)));
}

#[test]
fn the_longest_forsaken_contexts_make_room() {
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
