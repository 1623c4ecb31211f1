//! Every congestion control and every path selector on real contexts: data arrives whatever is
//! lost, credits and notifications travel, rates are kept, and peers of another mode keep working.

use crate::link::{Faults, SlotState, Wire, World, named};
use squall_reliability::base::{Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{AckExt, CcState, ControlKind};
use squall_reliability::{
    Config, Conflict, ControlPacket, LossDetection, NewPacket, Pdcs, PeerKey, SendError, cc,
};

/// Sends `packets` from one end to the other, which answers every tenth. Everything must arrive.
fn transfer(name: &str, left: Config, right: Config, packets: u32, faults: Faults) -> World {
    let mut world = World::new(left, right, faults, 3);
    world.trace = Some(Vec::new());
    world.hosts[1].respond_each = Some(10);
    world.send(0, 0..packets, 4096);
    let done = world.settle(Span::secs(60));
    let counters = world.hosts[0].pdcs.counters();
    assert!(
        done,
        "{name}: {:?} {counters:?}",
        world.hosts[0].id.and_then(|id| world.hosts[0].pdcs.info(id))
    );
    assert!(world.hosts[0].fates.values().all(|fate| *fate != SlotState::Lost), "{name}");
    assert_eq!(world.hosts[1].got.len(), packets as usize, "{name}");
    assert!(world.hosts[1].got.values().all(|times| *times == 1), "{name}");
    assert_eq!(world.total_in_flight(0), 0, "{name}");
    world
}

/// Returns a bad link: 1 % of everything is lost, of the data 1 % is trimmed and 5 % marked, 1 % is
/// duplicated, and the order is random.
fn bad() -> Faults {
    Faults {
        loss: 0.01,
        trim: 0.01,
        mark: 0.05,
        duplicate: 0.01,
        jitter: Span::micros(10),
        ..Faults::default()
    }
}

#[test]
fn every_sender_delivers_with_every_detector_alone_and_with_all() {
    for (sender, _) in cc::SenderConfig::NAMES {
        for loss in ["trim", "ooo", "probe", "rto", "all", "none"] {
            let detectors: LossDetection = loss.parse().unwrap();
            let ends =
                [1, 2].map(|seed| Config { loss: detectors, ..named(sender, "oblivious", seed) });
            let [left, right] = ends;
            transfer(&format!("{sender} {loss}"), left, right, 1000, bad());
        }
    }
}

#[test]
fn every_selector_delivers_with_every_set_it_allows_and_round_a_broken_path() {
    let mut refused = 0;
    for (paths, _) in cc::PathsConfig::NAMES {
        for loss in ["trim", "ooo", "probe", "rto", "all", "none"] {
            let detectors: LossDetection = loss.parse().unwrap();
            let ends = [1, 2].map(|seed| Config { loss: detectors, ..named("nscc", paths, seed) });
            if let Err(conflict) = ends[0].check() {
                assert!(
                    matches!(conflict, Conflict::Freezing { .. }),
                    "{paths} {loss}: {conflict}"
                );
                refused += 1;
                continue;
            }
            let [left, right] = ends;
            let name = format!("{paths} {loss}");
            transfer(&name, left, right, 1000, bad());
        }
        let faults = Faults { black_hole: Some(3), ..Faults::default() };
        transfer(paths, named("nscc", paths, 1), named("nscc", paths, 2), 500, faults);
    }
    assert!(refused >= 2, "{refused}");
}

#[test]
fn every_sender_is_shared_by_scope_unless_it_lives_on_credit_or_rates() {
    for (sender, _) in cc::SenderConfig::NAMES {
        for scope in cc::Scope::all().filter(|scope| *scope != cc::Scope::PerFlow) {
            let ends = [1, 2].map(|seed| Config { scope, ..named(sender, "reps-avoid", seed) });
            match ends[0].check() {
                Err(conflict) => {
                    assert!(ends[0].uses_credits() || ends[0].uses_rates(), "{sender}");
                    assert!(conflict.to_string().contains("scope flow"), "{conflict}");
                }
                Ok(()) => {
                    let [left, right] = ends;
                    transfer(&format!("{sender} a {scope}"), left, right, 500, bad());
                }
            }
        }
    }
}

#[test]
fn credit_is_asked_for_in_requests_and_granted_in_acknowledgements_and_alone() {
    let ends = [1, 2].map(|seed| named("eqds", "oblivious", seed));
    let [left, right] = ends;
    let world = transfer("eqds", left, right, 2000, Faults::default());
    let (mut asked, mut in_acks, mut alone) = (0, 0, 0);
    for (from, wire) in world.trace.as_ref().unwrap() {
        match wire {
            Wire::Data { pds, .. } => asked += u32::from(pds.ccc.is_some()),
            Wire::Control(ControlPacket::Ack { pds, .. }) => {
                assert_eq!(*from, 1);
                in_acks += u32::from(matches!(
                    pds.ext,
                    AckExt::Cc(cc) if matches!(cc.state, CcState::Credit { .. })
                ));
            }
            Wire::Control(ControlPacket::Control(control)) => {
                alone += u32::from(control.kind == ControlKind::Credit);
            }
            Wire::Control(ControlPacket::Nack(_)) => {}
        }
    }
    assert_eq!(asked, 2000);
    assert!(in_acks > 100 && alone > 100, "{in_acks} {alone}");
    let counters = [0, 1].map(|host| world.hosts[host].pdcs.counters());
    assert_eq!(counters[1].tx_credits, u64::from(alone));
    // The last acknowledgements may still be in flight.
    assert!(counters[0].rx_credits + 8 > u64::from(alone), "{}", counters[0].rx_credits);
    assert_eq!(counters[0].other_mode, 0);
    // The receiver grants 99 % of its 10 Gb/s: 2000 packets of 4144 nominal bytes take 6.63 ms at
    // line rate and 6.70 ms at the granted one. The first window is speculative, and the last grant
    // travels 10 us.
    let took = world.now.since(Time::ZERO + Span::millis(1)).0 / 1000;
    assert!((6_500..7_500).contains(&took), "{took} us");
}

#[test]
fn credits_beside_a_window_leave_acknowledgements_unchanged() {
    let ends = [1, 2].map(|seed| named("eqds+nscc", "oblivious", seed));
    let [left, right] = ends;
    let world = transfer("eqds+nscc", left, right, 2000, Faults::default());
    let counters = world.hosts[0].pdcs.counters();
    assert!(counters.rx_credits > 100 && counters.rtt_samples > 100, "{counters:?}");
}

#[test]
fn a_peer_of_another_mode_is_reported_once_and_keeps_working() {
    // This end needs credit, and the peer grants none.
    for sender in ["eqds", "eqds+nscc", "eqds+mprdma"] {
        let left = named(sender, "oblivious", 1);
        let right = named("nscc", "oblivious", 2);
        let world = transfer(sender, left, right, 2000, Faults::default());
        assert_eq!(world.hosts[0].pdcs.counters().other_mode, 1, "{sender}");
    }
    // The opposite case: a receiver that grants credit ignores a peer that never asks.
    for sender in ["nscc", "swift", "none"] {
        let left = named(sender, "oblivious", 1);
        let right = named("eqds", "oblivious", 2);
        let world = transfer(sender, left, right, 2000, Faults::default());
        assert_eq!(world.hosts[0].pdcs.counters().other_mode, 0, "{sender}");
    }
}

#[test]
fn a_marked_packet_brings_a_notification_to_those_who_want_one() {
    for (sender, notifies) in [("dcqcn", true), ("nscc", false)] {
        let ends = [1, 2].map(|seed| named(sender, "oblivious", seed));
        let [left, right] = ends;
        let faults = Faults { mark: 0.05, ..Faults::default() };
        let world = transfer(sender, left, right, 2000, faults);
        let bare = world.trace.as_ref().unwrap().iter().filter(|(_, wire)| {
            matches!(wire, Wire::Control(ControlPacket::Ack { pds, .. })
                if pds.ext == AckExt::None && pds.ce)
        });
        let bare = bare.count() as u64;
        assert_eq!(bare > 10, notifies, "{sender} {bare}");
        assert_eq!(world.hosts[1].pdcs.counters().tx_notifications, bare);
        assert_eq!(world.hosts[0].pdcs.counters().rx_notifications, bare);
        assert_eq!(world.hosts[0].pdcs.counters().other_mode, 0);
    }
}

/// Sends packets as time passes, on one context whose peer is silent. Returns when each packet
/// left.
fn departures(config: Config, packets: u32) -> Vec<Time> {
    let mut pdcs: Pdcs<u32> = Pdcs::new(config);
    let mut now = Time(1_000_000);
    let id = pdcs.open(now, PeerKey(0)).unwrap();
    let mut left = Vec::new();
    while left.len() < packets as usize {
        let desc = left.len() as u32;
        let packet = NewPacket { desc, bytes: 4096, last: false, prompt: false, backlog: 0 };
        match pdcs.next_packet(now, id, &packet) {
            Ok(_) => left.push(now),
            Err(SendError::Wait) => {
                let next = pdcs.poll_timeout().expect("something is to happen");
                assert!(next > now, "{next:?} {now:?}");
                now = next;
                pdcs.handle_timeout(now);
                while pdcs.poll_event().is_some() {}
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    left
}

#[test]
fn a_rate_is_kept_with_the_bursts_it_allows() {
    // DCQCN starts at the line rate, 10 Gb/s, and lets one packet of 4144 nominal bytes leave back
    // to back: one packet every 3315.2 ns, the first of them one burst early.
    let left = departures(named("dcqcn", "oblivious", 1), 100);
    let gap = 4144 * 8 / 10;
    for (n, at) in left.iter().enumerate() {
        let since = at.since(left[0]).0;
        let (early, late) = ((n as u64).saturating_sub(1) * gap, n as u64 * (gap + 1));
        assert!((early..=late).contains(&since), "{n}: {since} not in {early}..={late}");
    }
    // Four packets back to back: trains of about four, no faster on the whole.
    let burst = named("dcqcn:burst=16576", "oblivious", 1);
    let left = departures(burst, 100);
    assert_eq!(left[0], left[3]);
    assert!(left[5] > left[0]);
    let whole = left[99].since(left[0]).0;
    assert!((94 * gap..=99 * (gap + 1)).contains(&whole), "{whole}");
}

#[test]
fn a_window_below_a_packet_spaces_packets() {
    // A window below a packet, which every window algorithm supports, here with DCTCP when every
    // packet is marked: its window falls to its floor, far below a packet.
    let paced = named("dctcp:pace=1", "oblivious", 1);
    let mut pdcs: Pdcs<u32> = Pdcs::new(paced.clone());
    let mut peer: Pdcs<u32> = Pdcs::new(paced);
    let mut now = Time(1_000_000);
    let id = pdcs.open(now, PeerKey(0)).unwrap();
    let mut left = Vec::new();
    while left.len() < 400 {
        let desc = left.len() as u32;
        let packet = NewPacket { desc, bytes: 4096, last: false, prompt: false, backlog: 0 };
        if let Ok(grant) = pdcs.next_packet(now, id, &packet) {
            left.push(now);
            // The packet arrives and is acknowledged at once.
            let meta = squall_reliability::Arrival { bytes: 4096, ce: true, ..Default::default() };
            if let squall_reliability::RxVerdict::Deliver(delivery) =
                peer.rx_request(now, PeerKey(0), &grant.pds, &meta)
            {
                peer.accept(now, delivery, None);
            }
            while let Some(out) = peer.poll_control(now) {
                if let ControlPacket::Ack { pds, response } = out.packet {
                    pdcs.rx_ack(
                        now + Span::micros(1),
                        PeerKey(0),
                        &pds,
                        response.as_ref(),
                        Hops::NONE,
                    );
                }
            }
        }
        now += Span::micros(1);
        pdcs.handle_timeout(now);
        peer.handle_timeout(now);
        while pdcs.poll_event().is_some() {}
    }
    let gaps: Vec<u64> = left.windows(2).map(|pair| pair[1].since(pair[0]).0 / 1000).collect();
    // A window of a packet would let one go each microsecond here, and one of half a packet each 40 us
    // of a base RTT of 20 us.
    assert!(gaps[300..].iter().all(|gap| *gap >= 40), "{gaps:?}");
}

#[test]
fn the_probe_that_congestion_control_asks_for_is_sent_and_answered() {
    // UE 1.0 section 3.6.13.7: one probe after the first answer of a new context, whatever the loss
    // detectors; its answer is a round-trip sample and no report of losses.
    let ends =
        [1, 2].map(|seed| Config { loss: LossDetection::NONE, ..named("nscc", "single", seed) });
    let [left, right] = ends;
    // Some packets must stay unacknowledged, or there is nothing to probe for.
    let faults = Faults { jitter: Span::micros(8), ..Faults::default() };
    let world = transfer("nscc", left, right, 300, faults);
    let probes = world.trace.as_ref().unwrap().iter().filter(|(from, wire)| {
        *from == 0
            && matches!(wire, Wire::Control(ControlPacket::Control(control))
                if control.kind == ControlKind::Probe)
    });
    assert_eq!(probes.count(), 1);
    let counters = world.hosts[0].pdcs.counters();
    assert_eq!((counters.tx_probes, counters.rx_probe_answers), (1, 1));
    assert_eq!(counters.retransmissions(), 0);
}
