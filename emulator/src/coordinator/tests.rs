//! Tests of single rules of the coordinator.

use std::net::SocketAddr;

use squall_base::{Rate, Span, Time};
use squall_net::emulator::frame::{PacketFrame, Resume, Wait, WaitReason};
use squall_netsim::Picos;
use squall_netsim::model::NetworkConfig;
use squall_netsim::topology::Topology;

use super::super::card::CardModel;
use super::super::emulation::{Emulation, Route};
use super::super::inner_path::InnerPath;
use super::{Activity, BrokenPromise, Coordinator, Pace};

const ORIGIN: Time = Time(1_000);

/// Time that a packet takes through the network, as a process sees it.
const CROSSING: u64 = 1_109;
/// Latency of a link, from the departure of a packet at the switch to its arrival.
const LAST_LATENCY: u64 = 500;
/// Smallest time until a packet of a host affects another host.
const HOST_LATENCY: u64 = 600 + LAST_LATENCY;

/// Returns a time of the job.
fn at(ns: u64) -> Time {
    ORIGIN + Span(ns)
}

/// Builds a star of 100 Gb/s with a lookahead of 600 ns. A packet of 4 bytes, with headers of 48, crosses
/// it in 1108.32 ns: [`CROSSING`].
fn star() -> Emulation {
    star_of(Picos::nanos(LAST_LATENCY), Picos::nanos(100))
}

/// Builds a star of 100 Gb/s with these latencies of links and of the switch.
fn star_of(latency: Picos, switch: Picos) -> Emulation {
    let topology = Topology::star(3, Rate::gbps(100), latency, switch);
    let mut emulation =
        Emulation::new(topology, NetworkConfig::new(100_000, false, 1), 48).expect("it is small");
    emulation.use_cards(CardModel::default());
    emulation
}

/// Returns a coordinator of processes that wait for the job to begin.
fn coordinator(emulation: &Emulation, processes: u32) -> Coordinator {
    let mut coordinator = Coordinator::new(ORIGIN, emulation);
    for number in 0..processes {
        assert_eq!(coordinator.add(), number);
        coordinator.note_wait(number, wait(ORIGIN, ORIGIN, WaitReason::Idle));
    }
    coordinator
}

fn wait(now: Time, until: Time, reason: WaitReason) -> Wait {
    Wait { now, until, reason, computed: Span(3), overhead: Span(4) }
}

/// Lets process `from` send a packet without payload to process `to`, each on the host of its number.
fn send(
    coordinator: &Coordinator,
    emulation: &mut Emulation,
    sent: Time,
    (from, to): (u32, u32),
) -> Result<(), BrokenPromise> {
    let entered = coordinator.check_sent(from, sent)?;
    let route = Route { from, to, flow: from << 8 | to, sender: from };
    emulation.send(entered, route, frame(sent), &[0; 4], to.into());
    Ok(())
}

fn frame(sent: Time) -> PacketFrame {
    PacketFrame {
        addr: SocketAddr::from(([10, 0, 0, 1], 1)),
        entropy: 0,
        ecn: 0,
        dscp: 0,
        control: false,
        trimmed: false,
        sent,
        overflow: 0,
        endpoint: 0,
    }
}

/// Arrivals of packets at processes, and processes that go on.
type Progress = (Vec<(Time, u32)>, Vec<(u32, Resume)>);

/// Lets network and processes go on. Returns the arrivals and the processes that go on.
fn go_on(
    coordinator: &mut Coordinator,
    emulation: &mut Emulation,
    limit: Option<Time>,
) -> Progress {
    let mut arrivals = Vec::new();
    coordinator.run(emulation, limit, &mut |at, delivery| {
        arrivals.push((at, delivery.tag as u32));
        Some(delivery.tag as u32)
    });
    let (woken, held) = coordinator.wake(limit, None, usize::MAX);
    assert_eq!(held, None);
    (arrivals, woken)
}

#[test]
fn processes_go_on_at_arrivals_or_at_their_own_times_and_keep_promises() {
    let mut emulation = star();
    let mut coordinator = coordinator(&emulation, 2);
    assert_eq!(go_on(&mut coordinator, &mut emulation, None), (Vec::new(), Vec::new()));
    coordinator.start();
    let (_, woken) = go_on(&mut coordinator, &mut emulation, None);
    let resume = Resume { now: ORIGIN, horizon: at(HOST_LATENCY) };
    assert_eq!(woken, [(0, resume), (1, resume)], "all begin at one time");
    let early = send(&coordinator, &mut emulation, Time(ORIGIN.0 - 1), (0, 1));
    let sent = Time(ORIGIN.0 - 1);
    assert_eq!(early, Err(BrokenPromise { process: 0, sent, promised: ORIGIN }));
    assert_eq!(send(&coordinator, &mut emulation, at(10), (0, 1)), Ok(()));
    coordinator.note_wait(0, wait(at(20), at(5_000), WaitReason::Busy));
    let waits = send(&coordinator, &mut emulation, at(6_000), (0, 1));
    assert_eq!(waits.map_err(|broken| broken.promised), Err(Time::NEVER));
    // Process 1 still runs, at the beginning.
    let nothing = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(nothing, (Vec::new(), Vec::new()));
    coordinator.raise_bound(1, at(800), false);
    let arrivals = go_on(&mut coordinator, &mut emulation, None).0;
    assert_eq!(arrivals, [(at(10 + CROSSING), 1)]);
    // The clock of process 1 has passed the arrival.
    coordinator.note_wait(1, wait(at(2_000), at(9_000), WaitReason::Idle));
    let (_, woken) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(woken, [(1, Resume { now: at(2_000), horizon: at(2_000 + HOST_LATENCY) })]);
    coordinator.note_wait(1, wait(at(2_000), at(9_000), WaitReason::Idle));
    let (_, woken) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(
        woken,
        [(0, Resume { now: at(5_000), horizon: at(5_000 + HOST_LATENCY) })],
        "it was received once"
    );
    let one = &coordinator.processes[1];
    assert_eq!((one.computed, one.overhead, coordinator.hand_overs), (Span(9), Span(12), 4));
}

#[test]
fn the_lookahead_grows_by_the_latency_of_cards() {
    let dma = Picos::nanos(250);
    // A payload of 4 bytes takes 4 ns to the card and 4 ns from it.
    for (pcie, payloads) in [(None, 0), (Some(Rate::gbps(8)), 8)] {
        let mut emulation = star();
        emulation.use_cards(CardModel { dma, pcie, ..CardModel::default() });
        let mut coordinator = coordinator(&emulation, 2);
        coordinator.start();
        let (_, woken) = go_on(&mut coordinator, &mut emulation, None);
        let horizon = HOST_LATENCY + 2 * 250;
        assert_eq!(woken[1], (1, Resume { now: ORIGIN, horizon: at(horizon) }));
        assert_eq!(send(&coordinator, &mut emulation, at(10), (0, 1)), Ok(()));
        coordinator.note_wait(1, wait(ORIGIN, at(5_000), WaitReason::Idle));
        // Process 0 may still send something earlier.
        assert_eq!(go_on(&mut coordinator, &mut emulation, None), (Vec::new(), Vec::new()));
        coordinator.note_wait(0, wait(at(20), at(5_000), WaitReason::Idle));
        let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, None);
        let arrival = at(10 + CROSSING + 2 * 250 + payloads);
        assert_eq!(arrivals, [(arrival, 1)]);
        let horizon = arrival + Span(horizon);
        assert_eq!(woken, [(1, Resume { now: arrival, horizon })]);
    }
}

#[test]
fn a_card_writes_the_packets_of_several_senders_one_after_the_other() {
    let mut emulation = star();
    // A payload of 4 bytes takes 32 ns to the card and 32 ns from it.
    let pcie = Some(Rate::gbps(1));
    emulation.use_cards(CardModel { pcie, ..CardModel::default() });
    let mut coordinator = coordinator(&emulation, 3);
    coordinator.start();
    go_on(&mut coordinator, &mut emulation, None);
    for from in [0, 2] {
        assert_eq!(send(&coordinator, &mut emulation, at(10), (from, 1)), Ok(()));
    }
    let mut arrivals = Vec::new();
    for number in [0, 2, 1] {
        coordinator.note_wait(number, wait(at(20), at(5_000), WaitReason::Idle));
    }
    for _ in 0..2 {
        let (more, woken) = go_on(&mut coordinator, &mut emulation, None);
        arrivals.extend(more);
        for (number, resume) in woken {
            coordinator.note_wait(number, wait(resume.now, at(5_000), WaitReason::Idle));
        }
    }
    // The first arrives at 10 + 1108.32 + 32 and is written in 32 ns, the second one 4.16 ns later; it is written behind the first.
    assert_eq!(arrivals, [(at(1_183), 1), (at(1_215), 1)]);
}

#[test]
fn the_earliest_processes_resume_first_if_few_may_run() {
    let mut emulation = star();
    let mut coordinator = coordinator(&emulation, 4);
    coordinator.start();
    go_on(&mut coordinator, &mut emulation, None);
    for (number, until) in (0..).zip([30, 20, 40, 10]) {
        coordinator.note_wait(number, wait(at(5), at(until), WaitReason::Busy));
    }
    let resumed = |coordinator: &mut Coordinator, most| -> Vec<(u32, Time)> {
        let (woken, _) = coordinator.wake(None, None, most);
        woken.into_iter().map(|(number, resume)| (number, resume.now)).collect()
    };
    assert_eq!(resumed(&mut coordinator, 2), [(3, at(10)), (1, at(20))]);
    assert_eq!(resumed(&mut coordinator, 2), [], "two run");
    coordinator.note_wait(3, wait(at(10), at(35), WaitReason::Busy));
    assert_eq!(resumed(&mut coordinator, 2), [(0, at(30))]);
    assert_eq!(resumed(&mut coordinator, usize::MAX), [(2, at(40)), (3, at(35))]);
}

/// Sends packets of (time, flow, sending host, receiving host, bytes of payload) in a star whose cards have a rate. Returns
/// the arrivals in the order in which they are delivered, with their hosts.
fn deliveries(packets: &[(Picos, u32, u32, u32, usize)]) -> Vec<(Picos, u32)> {
    let mut emulation = star();
    emulation.use_cards(CardModel { pcie: Some(Rate::gbps(10)), ..CardModel::default() });
    for &(at, flow, from, to, bytes) in packets {
        let route = Route { from, to, flow, sender: from };
        emulation.send(at, route, frame(ORIGIN), &vec![0; bytes], 0);
    }
    let mut all = Vec::new();
    let lookahead = emulation.lookahead();
    while emulation.step(Picos::NEVER, lookahead, Picos::NEVER, &mut |delivery| {
        all.push((delivery.at, delivery.host));
    }) {}
    all
}

#[test]
fn packets_that_arrive_at_one_time_are_delivered_in_the_order_of_their_flows() {
    let (sent, long) = (Picos::micros(1), 1_000);
    // The long packet leaves the last switch earlier, and its card needs longer.
    let [(late, _)] = deliveries(&[(sent, 7, 0, 1, long)])[..] else { panic!("one packet") };
    let [(early, _)] = deliveries(&[(sent, 3, 1, 0, 0)])[..] else { panic!("one packet") };
    let together = [(sent, 7, 0, 1, long), (sent + (late - early), 3, 1, 0, 0)];
    assert_eq!(deliveries(&together), [(late, 0), (late, 1)]);
    let other = [(sent, 3, 0, 1, long), (sent + (late - early), 7, 1, 0, 0)];
    assert_eq!(deliveries(&other), [(late, 1), (late, 0)]);
}

#[test]
fn the_pace_holds_back_those_that_only_poll_unless_it_is_for_all() {
    for (reason, polls) in
        [(WaitReason::Idle, true), (WaitReason::Timer, false), (WaitReason::Busy, false)]
    {
        for for_all in [false, true] {
            let mut emulation = star();
            let mut coordinator = coordinator(&emulation, 2);
            coordinator.start();
            go_on(&mut coordinator, &mut emulation, None);
            let pace = |ns| Some(Pace { latest: at(ns), for_all });
            coordinator.note_wait(0, wait(at(10), at(1_000), reason));
            coordinator.note_wait(1, wait(at(10), at(50_000), reason));
            let (woken, held) = coordinator.wake(None, pace(999), usize::MAX);
            let holds = polls || for_all;
            assert_eq!(held, holds.then_some(at(1_000)), "{reason:?} {for_all}");
            assert_eq!(woken.is_empty(), holds);
            if holds {
                let (woken, held) = coordinator.wake(None, pace(1_000), usize::MAX);
                assert_eq!((woken.len(), held), (1, None), "the time of the pace has come");
            }
            // An arrival holds nobody back.
            assert_eq!(send(&coordinator, &mut emulation, at(1_000), (0, 1)), Ok(()));
            coordinator.set_absent(0, Activity::Ended);
            coordinator.run(&mut emulation, None, &mut |_, _| Some(1));
            let (woken, held) = coordinator.wake(None, pace(1_000), usize::MAX);
            let resume =
                Resume { now: at(1_000 + CROSSING), horizon: at(1_000 + CROSSING + HOST_LATENCY) };
            assert_eq!((woken, held), (vec![(1, resume)], None));
        }
    }
}

#[test]
fn nothing_passes_a_limit() {
    let mut emulation = star();
    let mut coordinator = coordinator(&emulation, 2);
    coordinator.start();
    go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(send(&coordinator, &mut emulation, at(400), (0, 1)), Ok(()));
    assert_eq!(send(&coordinator, &mut emulation, at(500), (0, 1)), Ok(()));
    coordinator.note_wait(0, wait(at(600), at(5_000), WaitReason::Busy));
    coordinator.note_wait(1, wait(at(600), at(5_000), WaitReason::Busy));
    // The network changes 600 ns after the limit, before the second packet leaves the switch.
    let limit = at(499 + CROSSING - HOST_LATENCY);
    let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, Some(limit));
    assert_eq!(arrivals, [(at(400 + CROSSING), 1)]);
    assert_eq!(woken, [(1, Resume { now: at(400 + CROSSING), horizon: at(499 + CROSSING) })]);
    assert!(coordinator.bound() > limit);
    coordinator.note_wait(1, wait(at(400 + CROSSING), at(5_000), WaitReason::Busy));
    assert_eq!(go_on(&mut coordinator, &mut emulation, Some(limit)), (Vec::new(), Vec::new()));
    let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!((arrivals, woken.len()), (vec![(at(500 + CROSSING), 1)], 1));
}

#[test]
fn the_lookahead_is_whole_nanoseconds() {
    for (latency, whole) in [(1_000, 1), (1_999, 1), (2_000, 2)] {
        let coordinator = Coordinator::new(ORIGIN, &star_of(Picos(latency), Picos::ZERO));
        assert_eq!(coordinator.process_latency(), Span(2 * whole));
        assert_eq!(coordinator.limit_before(at(50)), at(50 - whole));
    }
}

/// Builds a star as [`star`], with an inner path of 32 Gb/s and 40 ns.
fn star_with_inner_paths() -> Emulation {
    let mut emulation = star();
    let (rate, latency) = (Rate(32_000_000_000), Picos::nanos(40));
    emulation.use_inner_paths(InnerPath { rate, latency });
    emulation
}

/// Process 1 is on the host of process 0. A packet of 4 bytes takes 1 ns to copy and 40 ns more.
#[test]
fn packets_within_a_host_pass_no_card_and_arrive_in_order_with_others() {
    let mut emulation = star_with_inner_paths();
    let mut coordinator = coordinator(&emulation, 3);
    coordinator.start();
    let (_, woken) = go_on(&mut coordinator, &mut emulation, None);
    let resume = Resume { now: ORIGIN, horizon: at(40) };
    assert_eq!(woken, [(0, resume), (1, resume), (2, resume)], "the inner path is the shortest");
    let inner = |coordinator: &Coordinator, emulation: &mut Emulation, sent, to: u32| {
        let entered = coordinator.check_sent(0, sent).expect("not early");
        let route = Route { from: 0, to: 0, flow: to, sender: 0 };
        emulation.send(entered, route, frame(sent), &[0; 4], to.into());
    };
    // Process 2 sends to process 1, which is on host 0: over the network, where it arrives at 1109.
    let entered = coordinator.check_sent(2, at(0)).expect("not early");
    let route = Route { from: 2, to: 0, flow: 9, sender: 2 };
    emulation.send(entered, route, frame(at(0)), &[0; 4], 1);
    coordinator.note_wait(2, wait(at(0), at(9_000), WaitReason::Busy));
    // Process 0 copies the second packet after the first one.
    inner(&coordinator, &mut emulation, at(5), 1);
    inner(&coordinator, &mut emulation, at(5), 1);
    coordinator.note_wait(0, wait(at(1_060), at(1_060), WaitReason::Busy));
    coordinator.note_wait(1, wait(at(10), at(10), WaitReason::Busy));
    let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!((arrivals, woken.len()), (vec![(at(46), 1), (at(47), 1)], 1));
    coordinator.note_wait(1, wait(at(50), at(8_000), WaitReason::Busy));
    // Process 0 may still send something that arrives at 1101, before the packet of process 2.
    let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!((arrivals, woken.len()), (vec![], 1));
    inner(&coordinator, &mut emulation, at(1_064), 1);
    coordinator.note_wait(0, wait(at(1_070), at(9_000), WaitReason::Busy));
    let (arrivals, _) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(arrivals, [(at(1_105), 1), (at(CROSSING), 1)]);
}

#[test]
fn a_limit_stops_the_network_where_the_inner_path_is_shorter_than_a_link() {
    let mut emulation = star_with_inner_paths();
    let mut coordinator = coordinator(&emulation, 2);
    coordinator.start();
    go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(send(&coordinator, &mut emulation, at(400), (0, 1)), Ok(()));
    assert_eq!(send(&coordinator, &mut emulation, at(500), (0, 1)), Ok(()));
    coordinator.note_wait(0, wait(at(600), at(5_000), WaitReason::Busy));
    coordinator.note_wait(1, wait(at(600), at(5_000), WaitReason::Busy));
    // The network changes before the second packet leaves the switch.
    let limit = coordinator.limit_before(at(499 + CROSSING - LAST_LATENCY));
    let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, Some(limit));
    assert_eq!(arrivals, [(at(400 + CROSSING), 1)]);
    assert_eq!(woken, [(1, Resume { now: at(400 + CROSSING), horizon: at(440 + CROSSING) })]);
    assert!(!coordinator.has_reached(limit, &emulation));
    coordinator.note_wait(1, wait(at(400 + CROSSING), at(5_000), WaitReason::Busy));
    assert_eq!(go_on(&mut coordinator, &mut emulation, Some(limit)), (Vec::new(), Vec::new()));
    assert!(coordinator.has_reached(limit, &emulation));
}

#[test]
fn a_process_comes_back_when_the_network_has_gone_on_without_any() {
    let mut emulation = star();
    let mut coordinator = coordinator(&emulation, 2);
    coordinator.start();
    go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(send(&coordinator, &mut emulation, at(10), (0, 1)), Ok(()));
    coordinator.set_absent(0, Activity::Outside);
    coordinator.set_absent(1, Activity::Outside);
    let arrivals = go_on(&mut coordinator, &mut emulation, None).0;
    assert_eq!(arrivals, [(at(10 + CROSSING), 1)]);
    // The clock of process 0 stands at 20 ns.
    assert_eq!(send(&coordinator, &mut emulation, at(20), (0, 1)), Ok(()));
    coordinator.note_wait(0, wait(at(20), at(30), WaitReason::Idle));
    let (arrivals, woken) = go_on(&mut coordinator, &mut emulation, None);
    let left = 10 + CROSSING - LAST_LATENCY;
    assert_eq!(woken, [(0, Resume { now: at(left), horizon: at(left + HOST_LATENCY) })]);
    assert_eq!(arrivals, []);
    coordinator.set_absent(0, Activity::Ended);
    let arrivals = go_on(&mut coordinator, &mut emulation, None).0;
    assert_eq!(arrivals, [(at(left + CROSSING), 1)]);
}

#[test]
fn a_job_whose_processes_are_all_outside_goes_on_with_the_first_that_comes_back() {
    let mut emulation = star();
    let mut coordinator = coordinator(&emulation, 2);
    coordinator.set_absent(0, Activity::Outside);
    coordinator.set_absent(1, Activity::Outside);
    coordinator.start();
    coordinator.note_wait(1, wait(ORIGIN, ORIGIN + Span(5), WaitReason::Idle));
    let (_, woken) = go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(woken, [(1, Resume { now: at(5), horizon: at(5 + HOST_LATENCY) })]);
}

#[test]
fn the_network_changes_after_the_job_as_long_as_it_has_packets() {
    let mut emulation = star();
    let mut coordinator = coordinator(&emulation, 2);
    coordinator.start();
    go_on(&mut coordinator, &mut emulation, None);
    assert_eq!(send(&coordinator, &mut emulation, at(10), (0, 1)), Ok(()));
    let limit = at(10);
    coordinator.set_absent(0, Activity::Outside);
    coordinator.set_absent(1, Activity::Outside);
    go_on(&mut coordinator, &mut emulation, Some(limit));
    assert!(!coordinator.has_reached(limit, &emulation), "a process may come back");
    coordinator.set_absent(0, Activity::Ended);
    coordinator.set_absent(1, Activity::Ended);
    assert!(coordinator.has_reached(limit, &emulation));
    assert_eq!(go_on(&mut coordinator, &mut emulation, None).0.len(), 1);
    assert!(!coordinator.has_reached(limit, &emulation), "nothing is in the network");
}

#[test]
fn the_network_waits_for_the_answer_of_a_process_that_computes() {
    for passes_arrivals in [false, true] {
        let mut emulation = star();
        let mut coordinator = coordinator(&emulation, 2);
        coordinator.start();
        go_on(&mut coordinator, &mut emulation, None);
        assert_eq!(send(&coordinator, &mut emulation, at(10), (0, 1)), Ok(()));
        coordinator.note_wait(0, wait(at(20), at(90_000), WaitReason::Idle));
        // Process 1 has computed for 50 us, and a packet has arrived meanwhile.
        coordinator.raise_bound(1, at(50_000), passes_arrivals);
        let arrivals = go_on(&mut coordinator, &mut emulation, None).0;
        assert_eq!(arrivals, [(at(10 + CROSSING), 1)]);
        let bound = at(if passes_arrivals { 50_000 } else { 10 + CROSSING });
        assert_eq!(coordinator.bound(), bound);
        // Its answer and a packet of an earlier timer leave at the bound at least.
        assert_eq!(coordinator.check_sent(1, at(5)), Ok(Picos::from_span(bound.since(ORIGIN))));
        let early = Time(ORIGIN.0 - 1);
        assert_eq!(coordinator.check_sent(1, early).map_err(|broken| broken.promised), Err(ORIGIN));
    }
}

#[test]
fn a_process_that_attaches_late_starts_at_the_time_of_the_others_and_may_send_there() {
    let emulation = star();
    let mut coordinator = coordinator(&emulation, 2);
    coordinator.start();
    for number in 0..2 {
        coordinator.note_wait(number, wait(at(0), at(5_000), WaitReason::Busy));
    }
    let start = coordinator.start_of_next();
    assert_eq!(start, at(5_000));
    let late = coordinator.add();
    assert!(coordinator.check_sent(late, start).is_ok());
    assert_eq!(
        coordinator.check_sent(late, ORIGIN),
        Err(BrokenPromise { process: late, sent: ORIGIN, promised: start })
    );
}
