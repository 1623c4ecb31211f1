//! Tests of messages about processes in virtual time, and of its origin.

use std::collections::BTreeMap;

use squall_base::{Rate, Span, Time};
use squall_net::emulator::frame::{Deviation, DeviationKind, Wait, WaitReason};
use squall_netsim::Picos;
use squall_netsim::model::NetworkConfig;
use squall_netsim::topology::Topology;

use super::super::coordinator::{Activity, BrokenPromise};
use super::super::emulation::Emulation;
use super::running_processes::{CHECK_INTERVAL, ThreadActivity, longest_computation};
use super::{
    MOST_LINES, ProcessInfo, VirtualProcesses, VirtualTimeConfig, first_origin, port_of,
    shown_origin,
};

const ORIGIN: Time = Time(5_000_000_000);

/// Returns processes whose ranks are their numbers.
fn processes(count: u32) -> VirtualProcesses {
    let config = VirtualTimeConfig::default();
    let topology = Topology::star(2, Rate::gbps(100), Picos::nanos(500), Picos::nanos(100));
    let network = NetworkConfig::new(100_000, false, 1);
    let emulation = Emulation::new(topology, network, 48).expect("it is small");
    let mut all = VirtualProcesses::new(&config, ORIGIN, &emulation, 1).expect("memory");
    for number in 0..count {
        assert_eq!(all.coordinator.add(), number);
        all.processes.push(ProcessInfo {
            slot: number as usize,
            pid: 1_000 + number,
            rank: Some(number),
            last_check: None,
            ran_before: false,
            first_cpu: None,
            resumed: ORIGIN,
            ending: false,
            outside_since: None,
            deviations: BTreeMap::new(),
            place: number,
        });
    }
    all
}

/// Checks the running processes, of which rank 0 has used this CPU time and rank 1 none.
fn check(all: &mut VirtualProcesses, cpu: Span, asleep: bool) {
    let now = all.checked_at + CHECK_INTERVAL;
    let read = |pid| {
        let used = if pid == 1_000 { cpu } else { Span::ZERO };
        Some(ThreadActivity { cpu: BTreeMap::from([(1, used)]), asleep })
    };
    all.check_running_processes(now, &read, &mut |_| ());
}

#[test]
fn a_computation_for_which_the_others_no_longer_wait_is_a_deviation() {
    for (cpu_scale, longest) in [(0, 2_000), (1_000_000, 2_500)] {
        let mut all = processes(2);
        all.rules.cpu_scale = cpu_scale;
        all.coordinator.start();
        // A process is looked at when a second check finds it running.
        for ms in [0, 0, 1_999] {
            check(&mut all, Span::millis(ms), false);
        }
        assert_eq!(all.deviations(Time::ZERO), []);
        check(&mut all, Span::millis(2_000), false);
        // If computation takes no time, the process is no longer among those that run.
        check(&mut all, Span::millis(2_500), false);
        let time = Span::millis(longest);
        let expected = Deviation { kind: DeviationKind::LongComputation, time };
        let only_long = |(rank, deviation): &(u32, Deviation)| {
            *rank == 0 && deviation.kind == DeviationKind::LongComputation
        };
        let all_deviations = all.deviations(Time::ZERO);
        let long: Vec<_> = all_deviations.into_iter().filter(only_long).collect();
        assert_eq!(long, [(0, expected)], "at a scale of {cpu_scale}");
        // How a program ends may differ between runs.
        let mut ending = processes(2);
        ending.rules.cpu_scale = cpu_scale;
        ending.coordinator.start();
        ending.processes[0].ending = true;
        for ms in [0, 0, 3_000] {
            check(&mut ending, Span::millis(ms), false);
        }
        assert_eq!(ending.deviations(Time::ZERO), []);
    }
}

#[test]
fn a_process_that_sleeps_in_the_kernel_is_outside() {
    let mut all = processes(2);
    all.coordinator.start();
    for _ in 0..2 {
        check(&mut all, Span::ZERO, true);
    }
    assert!(matches!(all.coordinator.processes[0].activity, Activity::Running(_)));
    check(&mut all, Span::ZERO, true);
    assert_eq!(all.coordinator.processes[0].activity, Activity::Outside);
    let since = all.processes[0].outside_since.expect("it is outside");
    let first = all.deviations(since + Span::millis(30))[0];
    let expected = Deviation { kind: DeviationKind::Outside, time: Span::millis(30) };
    assert_eq!(first, (0, expected));
}

#[test]
fn a_deadlock_is_explained_with_the_state_of_each_rank() {
    let mut all = processes(2);
    all.coordinator.processes[0].now = ORIGIN + Span(10_000_123_000);
    all.coordinator.set_absent(1, Activity::Ended);
    let expected = "deadlock, because no rank computed and no packet entered the network for 10.0s of virtual time; look for a \
                    receive without a send among the ranks that wait:\n  rank 0 waits; its clock shows 10.000123 s\n  \
                    rank 1 has ended; its clock shows 0.000000 s";
    assert_eq!(all.explain_deadlock(), expected);
    let most = MOST_LINES as u32;
    assert!(!processes(most).explain_deadlock().contains("more ranks"));
    let text = processes(most + 3).explain_deadlock();
    assert!(
        text.ends_with("rank 31 waits; its clock shows 0.000000 s\n  and 3 more ranks"),
        "{text}"
    );
}

#[test]
fn a_broken_promise_is_explained_in_seconds_since_the_origin() {
    let all = processes(3);
    let sent = ORIGIN + Span(1_000_000_001);
    let explain =
        |promised| all.explain_broken_promise(BrokenPromise { process: 2, sent, promised });
    let text = explain(ORIGIN + Span(1_500_000_000));
    assert!(
        text.starts_with(
            "rank 2 sent a packet at 1.000000001 s of virtual time, but had promised to send none \
             before 1.500000000 s: "
        ),
        "{text}"
    );
    let text = explain(Time::NEVER);
    assert!(text.contains("of virtual time, while it waited for the emulator: "), "{text}");
    assert!(text.ends_with("this is a defect of squall, please report it"), "{text}");
}

#[test]
fn ports_suffice_for_the_ranks_that_the_message_names() {
    assert_eq!(port_of(0, 0), Ok(1_024));
    assert_eq!(port_of(8_063, 7), Ok(u16::MAX));
    for (rank, endpoint) in [(8_064, 0), (0, 8)] {
        let error = port_of(rank, endpoint).expect_err("there is no such port");
        assert!(error.contains("can open 8 endpoints"), "{error}");
        assert!(error.ends_with("a job can have 8064 ranks"), "{error}");
    }
}

#[test]
fn virtual_time_begins_at_a_whole_second_after_jobs_have_started() {
    let second = Span::secs(1).0;
    assert_eq!(shown_origin(Time(7 * second)), Time(9 * second));
    assert_eq!(shown_origin(Time(7 * second + 1)), Time(10 * second));
    // Clocks that began within three months have the same origin.
    let months = 90 * 86_400 * second;
    assert_eq!(first_origin(Time(7 * second)), first_origin(Time(months)));
    assert!(first_origin(Time(months)) > Time(months));
}

#[test]
fn threads_that_compute_side_by_side_count_once() {
    let at =
        |times: &[(u32, u64)]| times.iter().map(|&(tid, ms)| (tid, Span::millis(ms))).collect();
    let before = at(&[(1, 10), (2, 30)]);
    let now = at(&[(1, 15), (2, 40), (3, 7)]);
    assert_eq!(longest_computation(&before, &now), Span::millis(10));
    assert_eq!(longest_computation(&before, &before), Span::ZERO);
}

#[test]
fn a_spawned_process_has_ports_that_no_living_one_has() {
    let mut all = processes(2);
    assert_eq!(all.free_place(0), 2, "rank 0 is there");
    assert_eq!(all.free_place(5), 5);
    all.coordinator.set_absent(0, Activity::Ended);
    assert_eq!(all.free_place(0), 0, "a later launch has the ports of the one before");
}

#[test]
fn the_pace_begins_at_the_time_of_the_slowest_rank_before_its_wait() {
    let mut all = processes(1);
    all.coordinator.start();
    let now = ORIGIN + Span::millis(5);
    let poll = Wait {
        now,
        until: now + Span::millis(1),
        reason: WaitReason::Idle,
        computed: Span::ZERO,
        overhead: Span::ZERO,
    };
    all.coordinator.note_wait(0, poll);
    assert_eq!(all.coordinator.slowest(), Some(now), "the time before the wait, not its end");
}

#[test]
fn deviations_are_kept_by_rank_and_kind() {
    let deviation = |kind, ms| Deviation { kind, time: Span::millis(ms) };
    let at = |ms| Time(Span::millis(ms).0);
    let mut all = processes(3);
    all.set_outside(2, at(1));
    assert_eq!(all.deviations(at(9)), [], "before the job begins, all wait for their launcher");
    all.coordinator.start();
    all.set_outside(1, at(10));
    all.processes[1].return_from_outside(at(30));
    all.set_outside(1, at(40));
    for time in [250, 100] {
        all.processes[2].note_deviation(deviation(DeviationKind::SocketTimeout, time));
        all.processes[0].note_deviation(deviation(DeviationKind::HelperSleep, time));
    }
    all.processes[0].note_deviation(deviation(DeviationKind::Threads, 0));
    let expected = [
        (0, deviation(DeviationKind::Threads, 0)),
        (0, deviation(DeviationKind::HelperSleep, 350)),
        (1, deviation(DeviationKind::Outside, 25)),
        (2, deviation(DeviationKind::SocketTimeout, 250)),
    ];
    assert_eq!(all.deviations(at(45)), expected);
    all.processes[0].ending = true;
    all.set_outside(0, at(50));
    assert_eq!(all.deviations(at(60)).len(), 4, "programs may leave in different ways");
}
