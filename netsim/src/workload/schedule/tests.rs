use super::*;
use crate::sim::{FlowResult, SimConfig, Simulation};
use crate::topology::Topology;
use crate::workload::goal::parse;

/// Runs a schedule over a network with links of 100 Gb/s and a microsecond, and switches without
/// latency. Returns the results, and when each flow starts. Checks that a replay with the times of
/// the messages ends when the simulation does.
fn run_on(text: &str, placement: Placement) -> (crate::sim::Results, Vec<f64>, JobTimes) {
    let schedule = parse("x.goal", text).expect("a schedule");
    let (job, workload) = schedule.place(placement, 4).expect("it fits");
    workload.check().expect("it can be run");
    let star = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
    let results = Simulation::new(&SimConfig::new(star), &workload).expect("fits").run(&mut ());
    let starts = results.flows.iter().map(|flow| flow.start.expect("started").as_micros());
    let starts = starts.collect();
    let times = job.times(&message_times(&results.flows).expect("all ended"));
    let makespan = results.makespan.expect("whole").as_micros();
    assert!((times.lasted_us - makespan).abs() < 1e-6, "{} {makespan}", times.lasted_us);
    for rank in &times.ranks {
        let sum = rank.computing_us + rank.exposed_us + rank.waiting_us;
        assert!((sum - makespan).abs() < 1e-6, "{rank:?} {makespan}");
    }
    (results, starts, times)
}

fn message_times(flows: &[FlowResult]) -> Option<Vec<MessageTimes>> {
    let times = |flow: &FlowResult| {
        let started = flow.start?;
        Some(MessageTimes { started, sent: started + flow.fct?, arrived: started + flow.received? })
    };
    flows.iter().map(times).collect()
}

fn run(text: &str) -> (crate::sim::Results, Vec<f64>) {
    let (results, starts, _) = run_on(text, Placement::default());
    (results, starts)
}

/// Checks a pair of ranks that compute and answer each other; a wire takes 2 us one way.
#[test]
fn what_is_computed_goes_before_and_after_messages() {
    let (results, starts) = run("num_ranks 2
         rank 0 {
         c1: calc 3000
         c2: calc 4000
         c2 requires c1
         s: send 1000b to 1
         s requires c2
         r: recv 1000b from 1
         r requires s
         c3: calc 100000
         c3 requires r
         }
         rank 1 {
         r: recv 1000b from 0
         c: calc 5000
         c requires r
         s: send 1000b to 0
         s requires c
         }");
    assert_eq!(starts[0], 7.0, "3 and 4 us");
    let received = results.flows[0].received.expect("arrived").as_micros();
    assert!((2.0..3.0).contains(&received), "{received}");
    assert!((starts[1] - (7.0 + received + 5.0)).abs() < 1e-6, "{starts:?}");
    let back = results.flows[1].received.expect("arrived").as_micros();
    let makespan = results.makespan.expect("whole").as_micros();
    // The send ends when it is acknowledged, which is when the answer may be received, too.
    assert!((makespan - (starts[1] + back + 100.0)).abs() < 1e-6, "{makespan}");
}

#[test]
fn a_receive_that_is_posted_late_ends_late() {
    let (results, starts) = run("num_ranks 3
         rank 0 { send 1000b to 1 }
         rank 1 {
         c: calc 50000
         r: recv 1000b from 0
         r requires c
         s: send 1000b to 2
         s requires r
         early: send 1000b to 2 tag 1
         early irequires c
         }
         rank 2 { recv 1000b from 1
                  recv 1000b from 1 tag 1 }");
    assert_eq!(starts, [0.0, 50.0, 0.0]);
    assert!(results.makespan.is_some_and(|end| end > Picos::micros(50)));
}

#[test]
fn a_processor_computes_one_thing_at_a_time() {
    let of = |cpu: u32| {
        let text = format!(
            "num_ranks 2
             rank 0 {{
             a: calc 2000
             b: calc 3000 cpu {cpu}
             s: send 8b to 1
             s requires a
             s requires b
             }}
             rank 1 {{ recv 8b from 0 }}"
        );
        let placed = parse("x", &text).expect("fits").place(Placement::default(), 2);
        let lasts = Picos::nanos(if cpu == 0 { 5000 } else { 3000 });
        assert_eq!(placed.expect("ends").0.lasts(), lasts);
        run(&text).1[0]
    };
    assert_eq!((of(0), of(1)), (5.0, 3.0));
}

#[test]
fn receives_take_messages_by_source_and_tag_in_order() {
    let matched = |text: &str| {
        let schedule = parse("x.goal", text).expect("a schedule");
        let job = schedule.place(Placement::default(), 3).expect("it ends").0;
        let ScheduledJob { schedule, matched, .. } = job;
        let sends = (0..).zip(&schedule.operations);
        let sends = sends.filter(|(_, of)| matches!(of.kind, Kind::Send { .. }));
        sends
            .map(|(place, of)| {
                let receive = matched.receive_of(place);
                (of.place, schedule.operations[receive as usize].place)
            })
            .collect::<Vec<_>>()
    };
    let to = "num_ranks 3
        rank 0 {
        a: send 8b to 2 tag 1
        b: send 9b to 2 tag 1
        c: send 8b to 2 tag 2
        }
        rank 1 { send 8b to 2 tag 1 }\n";
    let exact = "rank 2 { recv 8b from 0 tag 2
        recv 8b from 1 tag 1
        recv 8b from 0 tag 1
        recv 8b from 0 tag 1 }";
    assert_eq!(matched(&format!("{to}{exact}")), [(3, 10), (4, 11), (5, 8), (7, 9)]);
    // A receive from any rank matches the first message that was sent; other matching messages are
    // left for the others.
    let any = "rank 2 { recv 8b from -1 tag 2
        recv 8b from -1 tag -1
        recv 8b from 0 tag -1
        recv 8b from -1 tag 1 }";
    assert_eq!(matched(&format!("{to}{any}")), [(3, 9), (4, 10), (5, 8), (7, 11)]);
}

#[test]
fn what_a_rank_says_to_itself_crosses_no_network() {
    let (results, starts) = run("num_ranks 2
         rank 0 {
         a: send 8b to 0
         r: recv 8b from 0
         c: calc 1000
         c requires r
         s: send 0b to 1
         s requires c
         }
         rank 1 { recv 0b from 0 }");
    assert_eq!((results.flows.len(), results.flows[0].bytes, starts[0]), (1, 1, 1.0));
}

/// Checks messages between ranks of one host: they take the time of a copy, one after the other for
/// each sender, and share no card.
#[test]
fn ranks_of_a_host_exchange_messages_within_it() {
    let inner_latency = Picos::micros(3);
    let placement = Placement { ranks_per_host: 2, inner_rate: Rate::gbps(8), inner_latency };
    let text = "num_ranks 4
        rank 0 {
        a: send 1000b to 1
        b: send 2000b to 1 tag 1
        }
        rank 1 {
        a: recv 1000b from 0
        b: recv 2000b from 0 tag 1
        s: send 1000b to 3
        s requires b
        }
        rank 3 {
        c: calc 1000
        r: recv 1000b from 1
        r requires c
        }";
    let (results, starts, times) = run_on(text, placement);
    // A byte takes a nanosecond.
    assert_eq!((results.flows.len(), starts[0]), (1, 6.0));
    assert_eq!((results.flows[0].src, results.flows[0].dst), (0, 1));
    let [first, second, idle, last] = &times.ranks[..] else { panic!("four ranks") };
    assert_eq!((first.exposed_us, first.computing_us), (3.0, 0.0));
    assert!((second.exposed_us - times.lasted_us).abs() < 1e-9, "{second:?}");
    assert_eq!(idle.waiting_us, times.lasted_us);
    assert_eq!(last.computing_us, 1.0);
    let [computes, waits, receives, ends] = last.timeline[..] else { panic!("{last:?}") };
    assert_eq!((computes, waits, receives), ((0.0, 2), (1.0, 0), (6.0, 1)));
    assert!(ends.1 == 0 && ends.0 <= times.lasted_us, "{last:?}");
    assert!(last.waiting_us > 4.9, "{last:?}");
    assert!((times.without_network_us - 6.0).abs() < 1e-9, "{times:?}");
    let few =
        parse("x.goal", text).expect("fits").place(Placement { ranks_per_host: 2, ..placement }, 1);
    let message = few.expect_err("too few").to_string();
    assert_eq!(
        message,
        "x.goal: 4 ranks with 2 on a host need 2 hosts, and the network has 1; give a larger network or more ranks \
         per host"
    );
}

/// An operation begins with the only one for which it waits, whether that is a begin or an end.
#[test]
fn sends_begin_with_the_begin_or_the_end_of_another_operation() {
    let (_, starts) = run("num_ranks 2
        rank 0 {
        c: calc 5000
        d: calc 2000
        d requires c
        s: send 8b to 1
        s irequires d
        t: send 8b to 1 tag 1
        t requires d
        u: send 8b to 1 tag 2
        u requires c
        u requires d
        u irequires s
        }
        rank 1 { recv 8b from 0 tag 1
        recv 8b from 0 tag 2
        recv 8b from 0 }");
    assert_eq!(starts, [5.0, 7.0, 7.0]);
}
