//! Acknowledgements that yield a round-trip sample, and those that do not.

use crate::link::{fixed, nscc};
use crate::sender::{PLAIN, Says, Sender};
use squall_reliability::base::Span;
use squall_reliability::wire::NackCode;

#[test]
fn round_trips_are_measured_without_the_peers_delay_and_by_karns_rule() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    let samples = |sender: &Sender| sender.pdcs.counters().rtt_samples;
    let sum = |sender: &Sender| sender.pdcs.counters().rtt_sum_ns;
    assert_eq!((samples(&sender), sum(&sender)), (1, 20_000 - 128));
    sender.send(6);
    sender.now += Span::micros(100);
    // The service time at the peer is 50 units of 128 ns.
    sender.ack(Says { cack: 1, about: 1, service: 50, ..PLAIN });
    assert_eq!((samples(&sender), sum(&sender)), (2, 19_872 + 93_600));
    // An invalid service time yields no sample.
    sender.ack(Says { cack: 2, about: 2, service: 0, ..PLAIN });
    sender.ack(Says { cack: 3, about: 3, service: u16::MAX, ..PLAIN });
    // A service time as long as the round trip yields none either.
    sender.send(1);
    sender.ack(Says { cack: 3, map: 0b1000, about: 7, service: 1000, ..PLAIN });
    // The echo of a retransmission that never happened yields none.
    sender.send(1);
    sender.now += Span::micros(5);
    sender.ack(Says { cack: 3, map: 0b10000, about: 8, retx: true, ..PLAIN });
    assert_eq!(samples(&sender), 2);
    // The packet was sent twice: only an ACK that echoes RETX shows which transmission it is about.
    for n in [4, 5] {
        assert!(sender.nack(n, NackCode::Trimmed, false));
        assert_eq!(sender.resent(), [n]);
    }
    sender.now += Span::micros(30);
    sender.ack(Says { cack: 4, about: 4, ..PLAIN });
    assert_eq!(samples(&sender), 2);
    sender.ack(Says { cack: 5, about: 5, retx: true, ..PLAIN });
    assert_eq!((samples(&sender), sum(&sender)), (3, 19_872 + 93_600 + 29_872));
}

/// Trims packet 1 `times` times, beginning with its first transmission. Returns the number of
/// samples when it is acknowledged 30 us after its last transmission.
fn trimmed(times: u32) -> u64 {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(1);
    for time in 0..times {
        sender.now += Span::micros(20);
        assert!(sender.nack(1, NackCode::Trimmed, time > 0));
        assert_eq!(sender.resent(), [1]);
    }
    sender.now += Span::micros(30);
    let before = sender.pdcs.counters();
    let (samples, sum) = (before.rtt_samples, before.rtt_sum_ns);
    sender.ack(Says { cack: 1, about: 1, retx: true, ..PLAIN });
    let after = sender.pdcs.counters();
    assert!(after.rtt_samples == samples || after.rtt_sum_ns - sum == 29_872);
    after.rtt_samples - samples
}

#[test]
fn a_packet_trimmed_in_every_earlier_transmission_yields_a_round_trip_sample() {
    assert_eq!([1, 2, 3, 10].map(trimmed), [1; 4]);
}

#[test]
fn a_packet_with_an_unreported_retransmission_yields_no_sample() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(1);
    assert!(sender.nack(1, NackCode::Trimmed, false));
    assert_eq!(sender.resent(), [1]);
    // The peer is silent, so the retransmission may still arrive.
    while sender.resent().is_empty() {
        sender.wait(Span::millis(1));
        while sender.pdcs.poll_control(sender.now).is_some() {}
        sender.events();
    }
    assert!(sender.nack(1, NackCode::Trimmed, true));
    assert_eq!(sender.resent(), [1]);
    sender.now += Span::micros(30);
    let before = sender.pdcs.counters().rtt_samples;
    sender.ack(Says { cack: 1, about: 1, retx: true, ..PLAIN });
    assert_eq!(sender.pdcs.counters().rtt_samples, before);
}

#[test]
fn a_duplicate_nack_yields_no_sample_below_the_unloaded_round_trip() {
    let mut sender = Sender::new(nscc(1));
    sender.send(1);
    let base = sender.pdcs.info(sender.id).unwrap().base_rtt.unwrap();
    for retx in [false, true] {
        sender.now += base;
        assert!(sender.nack(1, NackCode::Trimmed, retx));
        assert_eq!(sender.resent(), [1]);
    }
    // A copy of the second NACK counts for the third transmission, and the answer to that for the
    // fourth.
    sender.now += Span(1);
    assert!(sender.nack(1, NackCode::Trimmed, true));
    assert_eq!(sender.resent(), [1]);
    let before = sender.pdcs.counters().rtt_samples;
    sender.now += Span::micros(1);
    sender.ack(Says { cack: 1, about: 1, retx: true, ..PLAIN });
    assert_eq!(sender.pdcs.counters().rtt_samples, before);
    assert_eq!(sender.pdcs.info(sender.id).unwrap().base_rtt, Some(base));
}

/// A trimmed packet overtakes queues and is short, so its NACK returns sooner than any ACK can. A
/// round trip without queues measured by it would show a queue where there is none.
#[test]
fn a_nack_yields_no_round_trip_sample() {
    let mut sender = Sender::new(nscc(1));
    sender.send(1);
    let base = sender.pdcs.info(sender.id).unwrap().base_rtt.unwrap();
    sender.now += base / 2;
    assert!(sender.nack(1, NackCode::Trimmed, false));
    assert_eq!(sender.pdcs.info(sender.id).unwrap().base_rtt, Some(base));
}
