//! Rate packets (s-PERC) and the rewinding of 1RC on a context.

use squall_reliability::base::{Rate, Span, Time};
use squall_reliability::cc::{self, RatePacket, SpercLink, SpercLinkParameters};
use squall_reliability::{
    Config, Event, NewPacket, PdcId, Pdcs, PeerKey, RatePacketOut, SendError, TxGrant,
    speculation_of,
};

const NOW: Time = Time(1_000_000);
const PEER: PeerKey = PeerKey(0);

fn endpoint(cc: &str) -> Pdcs<u32> {
    let network = cc::NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, false);
    let cc = cc::SenderConfig::by_name(cc, &network).unwrap();
    let paths = cc::PathsConfig::oblivious(16).unwrap();
    Pdcs::new(Config::new(4096, cc, paths, 1).reciprocal(&network))
}

/// Asks to send packet `desc` of a context with a long backlog.
fn send(pdcs: &mut Pdcs<u32>, now: Time, id: PdcId, desc: u32) -> Result<TxGrant, SendError> {
    let packet = NewPacket { desc, bytes: 4048, last: false, prompt: false, backlog: 1 << 20 };
    pdcs.next_packet(now, id, &packet)
}

fn ask(pdcs: &mut Pdcs<u32>, now: Time) -> RatePacketOut {
    let out = pdcs.poll_rate_packet(now).expect("a rate packet");
    assert!(!pdcs.has_rate_packets());
    out
}

/// Returns the rate packet as it comes back from the peer, after a link of `gbps` Gb/s.
fn answered(out: &RatePacketOut, gbps: f64, let_through: u16) -> RatePacket {
    let mut packet = RatePacket { let_through, ..out.packet };
    let parameters = SpercLinkParameters { round: Span::micros(24), forget: Span::ZERO };
    SpercLink::new(gbps * 1e9, parameters).visit(NOW, 4, &mut packet);
    let mut peer = endpoint("sperc");
    assert!(peer.rx_rate_packet(NOW, PeerKey(9), &packet));
    let back = peer.poll_rate_packet(NOW).expect("it comes back");
    assert_eq!((back.peer, back.id, back.packet.back), (PeerKey(9), None, true));
    back.packet
}

#[test]
fn the_rate_packet_goes_first_and_the_data_by_its_rate() {
    let mut pdcs = endpoint("sperc");
    let id = pdcs.open(NOW, PEER).unwrap();
    assert_eq!(send(&mut pdcs, NOW, id, 0).err(), Some(SendError::Wait));
    let out = ask(&mut pdcs, NOW);
    assert_eq!((out.peer, out.id), (PEER, Some(id)));
    assert_eq!(send(&mut pdcs, NOW, id, 0).err(), Some(SendError::Wait));
    let now = NOW + Span::micros(12);
    let answer = answered(&out, 20.0, 1);
    // A rate packet of another peer or for an unknown context is only counted.
    assert!(!pdcs.rx_rate_packet(now, PeerKey(5), &answer));
    assert!(!pdcs.rx_rate_packet(now, PEER, &RatePacket { flow: 77, ..answer }));
    assert_eq!(pdcs.counters().rx_unknown_context, 2);
    assert_eq!(pdcs.info(id).unwrap().rate, Some(Rate::gbps(100)));
    assert!(pdcs.rx_rate_packet(now, PEER, &answer));
    assert_eq!(pdcs.poll_event(), Some(Event::Ready { id }));
    assert_eq!(pdcs.info(id).unwrap().rate, Some(Rate::gbps(20)));
    let first = send(&mut pdcs, now, id, 0).expect("it has a rate");
    assert_eq!((first.pds.ccc, first.path), (None, out.packet.path));
    // One packet every 1.6 us, and one more at once.
    assert!(send(&mut pdcs, now, id, 1).is_ok());
    assert_eq!(send(&mut pdcs, now, id, 2).err(), Some(SendError::Wait));
    assert!(send(&mut pdcs, now + Span::nanos(1_700), id, 2).is_ok());
    // An endpoint with another congestion control takes no rates.
    let mut other = endpoint("nscc");
    assert!(!other.rx_rate_packet(now, PEER, &answer));
    assert_eq!(other.counters().rx_mismatch, 1);
}

#[test]
fn speculative_packets_are_numbered_and_dropped_ones_are_retransmitted() {
    let mut pdcs = endpoint("sperc:one_rtt=1,weights=1");
    let id = pdcs.open(NOW, PEER).unwrap();
    // No data leave before the rate packet.
    assert_eq!(send(&mut pdcs, NOW, id, 0).err(), Some(SendError::Wait));
    let out = ask(&mut pdcs, NOW);
    assert_eq!(pdcs.poll_event(), Some(Event::Ready { id }));
    let mut now = NOW;
    for desc in 0..10 {
        let sent = send(&mut pdcs, now, id, desc).expect("a bandwidth-delay product is 36");
        let said = speculation_of(&sent.pds).expect("it has no rate");
        assert_eq!((u32::from(said.number), said.weight), (desc, 1));
        now += Span::nanos(400);
    }
    assert_eq!(pdcs.poll_retransmit(now, id), None);
    assert!(pdcs.rx_rate_packet(now, PEER, &answered(&out, 20.0, 7)));
    for desc in 7..10 {
        now += Span::micros(2);
        let (again, of) = pdcs.poll_retransmit(now, id).expect("it was dropped");
        assert_eq!((of, again.pds.retx, again.pds.ccc), (desc, true, None));
    }
    assert_eq!(pdcs.poll_retransmit(now + Span::micros(9), id), None);
    assert_eq!(pdcs.counters().retx_speculative, 3);
}

/// Weights count the connections of one endpoint, whatever other endpoints share its parameters.
#[test]
fn connections_are_counted_by_endpoint() {
    let config = std::sync::Arc::new(endpoint("sperc:weights=1").config().clone());
    let mut weights = Vec::new();
    for seed in 0..2 {
        let mut pdcs: Pdcs<u32> = Pdcs::with(std::sync::Arc::clone(&config), seed);
        for _ in 0..2 {
            let id = pdcs.open(NOW, PEER).unwrap();
            assert!(send(&mut pdcs, NOW, id, 0).is_err());
            weights.push(ask(&mut pdcs, NOW).packet.weight);
        }
    }
    assert_eq!(weights, [1, 2, 1, 2]);
}
