//! Deadlines of contexts, and events that must not count for or against them: other packets'
//! answers, and this process's own pauses.

use crate::link::{DEADLINE, Faults, PEER, SlotState, Wire, World, fixed};
use squall_reliability::base::Span;
use squall_reliability::cc::Hops;
use squall_reliability::wire::{self, Ack, AckExt, AckRequest, NextHeader};
use squall_reliability::{Config, PdcFailure};

fn world() -> World {
    World::new(fixed(1 << 20, 1), fixed(1 << 20, 2), Faults::default(), 3)
}

/// A network that drops every packet above a size, and a peer that answers all others.
#[test]
fn a_packet_that_never_arrives_ends_its_context_however_many_others_do() {
    let mut world = world();
    world.send(0, 0..3, 100);
    assert!(world.settle(Span::millis(5)));
    world.faults.drop = Some(|wire| matches!(wire, Wire::Data { meta, .. } if meta.bytes > 1000));
    let begin = world.now;
    world.send(0, 3..4, 3000);
    let mut number = 4;
    while world.hosts[0].failures.is_empty() && world.now < begin + Span::secs(60) {
        // Each of these arrives and is acknowledged.
        world.send(0, number..number + 1, 100);
        world.run(world.now + Span::millis(300));
        number += 1;
    }
    assert_eq!(world.hosts[0].failures, [PdcFailure::Silent]);
    let took = world.now.since(begin);
    assert!(took >= DEADLINE && took < DEADLINE + Span::millis(300), "{took:?}");
    assert_eq!(world.hosts[0].fates[&3], SlotState::Lost);
    assert!(number > 30 && (4..number - 2).all(|n| world.hosts[1].got.contains_key(&n)));
    // The wait was reported before, with growing times.
    let reported_waits = &world.hosts[0].reported_waits;
    assert!(reported_waits.len() > 4 && reported_waits.is_sorted(), "{reported_waits:?}");
    assert!(reported_waits[0] >= Span::secs(1) && *reported_waits.last().unwrap() > Span::secs(8));
}

/// Both processes stop, and the deadline of the one that waits falls into the pause.
#[test]
fn an_absence_of_this_process_does_not_count_against_peers() {
    for pause in [13, 60, 4000] {
        for stopped_after in [Span::micros(3), Span::millis(2), Span::secs(7)] {
            let mut world = world();
            world.send(0, 0..3, 100);
            assert!(world.settle(Span::millis(5)));
            world.faults.cut = true;
            world.send(0, 3..200, 1000);
            world.run(world.now + stopped_after);
            world.faults.cut = false;
            world.now += Span::secs(pause);
            assert!(world.settle(Span::secs(2)), "{pause} s after {stopped_after:?}");
            let host = &world.hosts[0];
            assert_eq!(host.failures, [], "{pause} s after {stopped_after:?}");
            assert!((0..200).all(|n| host.fates[&n] == SlotState::Acked));
            // A packet that waited for the end of the pause yields no round trip.
            if let Some(info) = host.id.and_then(|id| host.pdcs.info(id)) {
                assert!(info.srtt.unwrap() < Span::millis(1), "{:?}", info.srtt);
            }
        }
    }
}

#[test]
fn consecutive_absences_postpone_the_deadline_but_not_without_end() {
    let mut world = world();
    world.send(0, 0..3, 100);
    assert!(world.settle(Span::millis(5)));
    world.faults.cut = true;
    world.send(0, 3..4, 1000);
    let mut pauses = 0;
    while world.hosts[0].failures.is_empty() {
        world.now += Span::secs(5);
        world.run(world.now + Span::millis(100));
        pauses += 1;
        assert!(pauses < 200, "it ends");
    }
    // The process ran for at least a timeout each time.
    assert!(pauses > 8, "{pauses}");
}

/// The initiator concludes that a packet arrived which did not. It therefore closes, and its target
/// refuses.
#[test]
fn ends_that_disagree_about_the_next_psn_stop_requesting_the_close() {
    let mut world = world();
    world.strict = false;
    world.hosts[1].echo = Some(100);
    world.send(0, 0..3, 100);
    assert!(world.settle(Span::millis(5)));
    world.trace = Some(Vec::new());
    world.faults.cut = true;
    world.send(0, 3..4, 100);
    let sent = world.trace.take().unwrap();
    let Some((0, Wire::Data { pds, .. })) = sent.last().copied() else { panic!("{sent:?}") };
    let wire::Dest::Pdc(target) = pds.dest else { panic!("{pds:?}") };
    let forged = Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 0,
        cack_psn: pds.psn,
        spdcid: target,
        dpdcid: pds.spdcid,
        ext: AckExt::None,
    };
    assert!(world.hosts[0].pdcs.rx_ack(world.now, PEER, &forged, None, Hops::NONE));
    world.pump(0);
    world.faults.cut = false;
    world.drop_flying();
    let at_target = world.hosts[1].last_from.unwrap();
    world.hosts[1].pdcs.close(world.now, at_target);
    world.pump(1);
    world.run(world.now + DEADLINE * 2 + Span::secs(1));
    assert!(world.hosts.iter().all(|host| host.pdcs.count() == 0), "both are gone");
}

#[test]
fn the_default_deadlines_are_one_and_two_minutes() {
    let paths = squall_reliability::cc::PathsConfig::single(1).unwrap();
    let cc = squall_reliability::cc::SenderConfig::fixed(1 << 20);
    let config = Config::new(4096, cc, paths, 1);
    let deadlines = (config.contact_deadline, config.progress_deadline);
    assert_eq!(deadlines, (Span::secs(60), Span::secs(120)));
}
