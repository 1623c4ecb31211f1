//! Flows that share a congestion-control context share its window, whatever the algorithm.

use squall_reliability::base::{Psn, Span, Time};
use squall_reliability::wire::{Ack, AckCc, AckExt, AckRequest, CcState, NextHeader, NsccState};
use squall_reliability::{Blocked, Config, Event, NewPacket, PdcId, Pdcs, PeerKey, cc};

const NOMINAL: u64 = 4096 + 48;

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
        let paths = cc::PathsConfig::oblivious(16).unwrap();
        let mut pdcs = Pdcs::new(Config { scope, ..Config::new(4096, cc, paths, 1) });
        for (peer, host) in [(0, 7), (1, 7), (2, 8)] {
            pdcs.set_host(PeerKey(peer), host);
        }
        let now = Time(1_000_000);
        let mut all = Self { pdcs, now, flows: Vec::new() };
        for (flow, peer) in [0, 0, 1, 2].into_iter().enumerate() {
            let peer = PeerKey(peer);
            let id = all.pdcs.open(now, peer).unwrap();
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
                Err(Blocked::Wait) => return sent,
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
        (cc::Scope::PerHost, [10, 0, 0, 0]),
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
