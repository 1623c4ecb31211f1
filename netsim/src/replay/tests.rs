//! Tests of replays, with traces as endpoints write them.

use std::collections::BTreeMap;

use squall_monitor::trace::{EventKind, OperationKind, TraceEvent, TraceHeader, TraceLine};

use super::logs::{Log, parse};
use super::{Beside, Recording};
use crate::Picos;
use crate::output::{FlowResult, Run};
use crate::sim::{SimConfig, Simulation};
use crate::topology::Topology;
use crate::workload::{Start, TriggerKind};
use squall_base::Rate;

/// Returns the text of a trace: the events of `rank` with others, in us.
fn text(rank: u32, ranks: u32, events: &[(u64, EventKind, u32, u64, u64)]) -> String {
    let address = |rank: u32| format!("10.0.0.{}:4793", rank + 1).parse().expect("literal");
    let header = TraceHeader {
        job: "job".to_owned(),
        rank: Some(rank),
        ranks: Some(ranks),
        host: "here".to_owned(),
        pid: 100 + rank,
        endpoint: 0,
        address: address(rank),
        began: 5_000_000,
        // Each rank began at another time.
        opened: u64::from(rank) * 1_000,
        parameters: [("FI_SQUALL_CC", "nscc".to_owned()), ("FI_SQUALL_PORT", rank.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    };
    let mut lines = vec![header.to_string()];
    for peer in 0..ranks {
        lines.push(TraceLine::Peer { number: peer, address: address(peer) }.to_string());
    }
    for &(at, moment, peer, bytes, tag) in events {
        let at = at * 1_000 - header.opened;
        let class = OperationKind::Tagged;
        lines
            .push(TraceLine::Event(TraceEvent { at, moment, class, peer, bytes, tag }).to_string());
    }
    lines.push(TraceLine::Closed { at: 1_000_000_000 }.to_string());
    lines.join("\n") + "\n"
}

fn recording(texts: &[String]) -> Recording {
    let logs: Vec<Log> =
        texts.iter().map(|text| parse("t", text).expect("a sound trace")).collect();
    Recording::new("job".as_ref(), &logs).expect("one job")
}

/// Returns the recording of a job in which rank 0 sends two messages to rank 1, which answers both
/// after computing for 50 us. Then rank 0 sends a last one 20 us after the second answer and the
/// end of its long send.
fn conversation() -> Recording {
    use EventKind::{Begin, End, Receive};
    let one = text(
        0,
        2,
        &[
            (10, Begin, 1, 1000, 1),
            (12, Begin, 1, 500_000, 2),
            (90, Receive, 1, 8, 3),
            (190, Receive, 1, 8, 4),
            (200, End, 1, 500_000, 2),
            (220, Begin, 1, 64, 5),
        ],
    );
    let other = text(
        1,
        2,
        &[
            (30, Receive, 0, 1000, 1),
            (80, Begin, 0, 8, 3),
            (130, Receive, 0, 500_000, 2),
            (180, Begin, 0, 8, 4),
            (240, Receive, 0, 64, 5),
        ],
    );
    recording(&[one, other])
}

#[test]
fn a_message_waits_for_what_its_rank_had_seen() {
    let job = conversation();
    assert!(job.doubts().is_empty(), "{:?}", job.doubts());
    let took: Vec<_> = job.messages().iter().map(|m| (m.rank, m.began, m.took)).collect();
    let us = |n: u64| n * 1_000;
    assert_eq!(
        took,
        [
            (0, 0, Some(us(20))),
            (0, us(2), Some(us(118))),
            (1, us(70), Some(us(10))),
            (1, us(170), Some(us(10))),
            (0, us(210), Some(us(20)))
        ]
    );
    assert_eq!(job.lasted(), us(230));
    let alike: Vec<_> = job.parameters().iter().collect();
    assert_eq!(alike, [(&"FI_SQUALL_CC".to_owned(), &"nscc".to_owned())]);
    let workload = job.workload(2).expect("two hosts");
    workload.check().expect("it can be run");
    let [first, second, answer, last_answer, last] = *workload.flows.as_slice() else {
        panic!("{} flows", workload.flows.len())
    };
    assert_eq!(first.start, Start::At(0));
    let waits = |start: Start| match start {
        Start::Trigger(index) => workload.triggers[index as usize],
        Start::At(at) => panic!("at {at}"),
    };
    // The second message waits only for the beginning of the first, 2 us before.
    assert_eq!(
        (waits(second.start).kind, waits(second.start).delay),
        (TriggerKind::OneShot, 2_000_000)
    );
    assert_eq!(Start::Trigger(first.on_started.expect("somebody waits")), second.start);
    // The answer waits only for the message that had arrived.
    assert_eq!(waits(answer.start).delay, 50_000_000);
    assert_eq!(first.on_received.map(Start::Trigger), Some(answer.start));
    // The last answer waits for the long message, and for the beginning of the answer before.
    assert_eq!(waits(last_answer.start).kind, TriggerKind::Barrier(2));
    assert_eq!(second.on_received.map(Start::Trigger), Some(last_answer.start));
    // The last message waits for two answers, the end of the long send and its beginning; then the
    // rank computed for 20 us.
    assert_eq!(
        (waits(last.start).kind, waits(last.start).delay),
        (TriggerKind::Barrier(4), 20_000_000)
    );
    assert_eq!(second.on_sent.map(Start::Trigger), Some(last.start));
}

#[test]
fn a_replay_keeps_dependencies_and_the_time_between() {
    let job = conversation();
    let run = |gbps: u64| {
        let topology = Topology::star(2, Rate::gbps(gbps), Picos::micros(1), Picos::ZERO);
        let workload = job.workload(2).expect("two hosts");
        let config = SimConfig::new(topology);
        Simulation::new(&config, &workload).expect("sound").run(&mut ()).flows
    };
    for gbps in [1, 100] {
        let flows = run(gbps);
        let start = |flow: usize| flows[flow].start.expect("it started");
        let arrived = |flow: usize| start(flow) + flows[flow].received.expect("it arrived");
        let done = |flow: usize| start(flow) + flows[flow].fct.expect("it was done");
        assert_eq!(start(1), start(0) + Picos::micros(2));
        assert_eq!(start(2), arrived(0) + Picos::micros(50));
        assert_eq!(start(3), arrived(1).max(start(2)) + Picos::micros(50));
        let last = arrived(2).max(arrived(3)).max(done(1));
        assert_eq!(start(4), last + Picos::micros(20));
    }
}

#[test]
fn times_stand_beside_each_other() {
    let job = conversation();
    let flow = |(id, message): (u32, &super::Message)| FlowResult {
        id,
        bytes: message.bytes,
        start_us: Some(message.began as f64 / 1e3),
        received_us: Some(7.0),
        ..FlowResult::default()
    };
    let flows = (1..).zip(job.messages()).map(flow).collect();
    let run = Run { flows, parameters: BTreeMap::new(), ..Run::default() };
    let beside = Beside { recording: &job, run: &run };
    assert_eq!(beside.lasted_us(), (230.0, 217.0));
    let text = beside.text();
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()[name.split(' ').count()..]
            .to_vec()
    };
    assert_eq!(row("up to 1 KiB"), ["4", "15", "7", "20", "7"], "{text}");
    assert_eq!(row("longer"), ["1", "118", "7", "118", "7"], "{text}");
    assert_eq!(row("the whole"), ["5", "230", "217", "-", "-"], "{text}");
}

#[test]
fn a_trace_that_was_cut_is_read_to_the_cut_and_a_damaged_one_is_refused() {
    use EventKind::{Begin, Receive};
    let whole = text(0, 2, &[(1, Begin, 1, 10, 1), (2, Begin, 1, 20, 2), (3, Begin, 1, 30, 3)]);
    let other =
        text(1, 2, &[(4, Receive, 0, 10, 1), (5, Receive, 0, 20, 2), (6, Receive, 0, 30, 3)]);
    for length in 1..whole.len() {
        let cut = &whole[..length];
        match parse("t", cut) {
            Ok(log) => {
                assert!(log.cut.is_some(), "{length}");
                let events = cut.lines().filter(|line| line.contains(" begin ")).count();
                let rest = usize::from(
                    !cut.ends_with('\n')
                        && cut.lines().last().is_some_and(|l| l.contains(" begin ")),
                );
                assert_eq!(log.events.len(), events - rest, "{length}");
            }
            // The header of the trace is cut.
            Err(error) => assert!(!cut.contains('\n') && error.line == 1, "{length}: {error}"),
        }
    }
    let half = whole[..whole.rfind(" begin").expect("there") + 3].to_owned();
    let job = recording(&[half, other]);
    assert_eq!(job.messages().len(), 2);
    assert!(job.doubts()[0].contains("was cut: it is read up to line 5"), "{:?}", job.doubts());
    for (from, to, line, says) in [
        (" begin ", " began ", 4, "expected one of: begin"),
        ("closed\n", "closed\n1 closed\n", 8, "nothing behind"),
        ("peer 1 ", "peer 7 ", 4, "peer 1, expected one that a line above names"),
        ("squall-trace", "squall", 1, "does not begin with `squall-trace 1"),
    ] {
        let damaged = whole.replacen(from, to, 1);
        let error = parse("t", &damaged).expect_err(from);
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let begin = [(1, EventKind::Begin, 1, 10, 1)];
    let log = |text: &str| parse("t", text).expect("sound");
    let (one, other) = (text(0, 2, &begin), text(0, 2, &begin).replace("\"pid\":100", "\"pid\":7"));
    let error = Recording::new("j".as_ref(), &[log(&one), log(&other)]).expect_err("two");
    assert!(error.contains("both of rank 0"), "{error}");
    let error = Recording::new("j".as_ref(), &[log(&one)]).expect_err("one rank of two");
    assert!(error.contains("no message between ranks"), "{error}");
    let job = conversation();
    let error = job.workload(1).expect_err("one host").to_string();
    assert!(error.contains("2 ranks, expected as many hosts"), "{error}");
}

#[test]
fn messages_that_are_alike_are_received_in_their_order_whatever_ends_first() {
    use EventKind::{Begin, Receive};
    let one = text(0, 3, &[(10, Begin, 1, 10, 1), (20, Begin, 1, 99, 1), (30, Begin, 1, 10, 1)]);
    let other =
        text(1, 3, &[(40, Receive, 0, 10, 1), (50, Receive, 0, 10, 1), (60, Receive, 0, 99, 1)]);
    let job = recording(&[one, other]);
    let took: Vec<_> = job.messages().iter().map(|message| message.took).collect();
    assert_eq!(took, [Some(30_000), Some(40_000), Some(20_000)]);
    assert!(job.doubts()[0].contains("traces of 2 ranks are there, of 3"), "{:?}", job.doubts());
}
