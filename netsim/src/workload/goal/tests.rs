use super::*;
use crate::Picos;
use crate::sim::{SimConfig, Simulation};
use crate::topology::Topology;
use squall_base::Rate;

/// Runs a schedule over a network with links of 100 Gb/s and a microsecond, and switches without
/// latency. Returns the results, and when each flow starts.
fn run(text: &str) -> (crate::sim::Results, Vec<f64>) {
    let schedule = parse("x.goal", text).expect("a schedule");
    let workload = schedule.workload(4).expect("it fits");
    workload.check().expect("it can be run");
    let star = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
    let results = Simulation::new(&SimConfig::new(star), &workload).expect("fits").run(&mut ());
    let starts = results.flows.iter().map(|flow| flow.start.expect("started").as_micros());
    let starts = starts.collect();
    (results, starts)
}

fn fault(text: &str) -> String {
    parse("x.goal", text).expect_err(text).to_string()
}

#[test]
fn a_schedule_is_read_whatever_its_lines_and_comments() {
    let text = "num_ranks 2 // two of them\n\
                rank 1 { recv 8b from 0 }\n/* and\nthe other */\n\
                rank 0 {\n  l1: calc 100 cpu 3\n\n l_2: send 8 b to 1 tag 0 cpu 0 nic 1\n l_2 requires l1 }";
    let schedule = parse("x.goal", text).expect("a schedule");
    let kinds: Vec<_> = schedule.operations.iter().map(|of| (of.rank, of.line, of.kind)).collect();
    assert_eq!(
        kinds,
        [
            (1, 2, Kind::Receive { from: Some(0), tag: Some(0) }),
            (0, 6, Kind::Calc { ns: 100, cpu: 3 }),
            (0, 8, Kind::Send { to: 1, bytes: 8, tag: 0 }),
        ]
    );
    assert_eq!(schedule.operations[2].requires, [1]);
    assert_eq!((schedule.ranks, schedule.lasts()), (2, 100));
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
        assert_eq!(parse("x", &text).expect("fits").lasts(), if cpu == 0 { 5000 } else { 3000 });
        run(&text).1[0]
    };
    assert_eq!((of(0), of(1)), (5.0, 3.0));
}

#[test]
fn receives_take_messages_by_source_and_tag_in_order() {
    let matched = |text: &str| {
        let schedule = parse("x.goal", text).expect("a schedule");
        let sends = (0..).zip(&schedule.operations);
        let sends = sends.filter(|(_, of)| matches!(of.kind, Kind::Send { .. }));
        sends
            .map(|(place, of)| {
                let receive = schedule.matched.receive_of(place);
                (of.line, schedule.operations[receive as usize].line)
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

#[test]
fn mistakes_are_named_by_line() {
    let two = |body: &str| format!("num_ranks 2\nrank 0 {{\n{body}\n}}\n");
    for (text, expected) in [
        (String::new(), "x.goal:1: the end of the file, expected `num_ranks N`"),
        ("\u{1}goal".to_owned(), "expected `num_ranks N`: a schedule in GOAL"),
        ("num_ranks x".to_owned(), "x.goal:1: `x`, expected a number of ranks"),
        ("num_ranks 2\nrank 2 {}".to_owned(), "x.goal:2: rank 2 of a schedule, expected 0 to 1"),
        (
            "num_ranks 2\nrank 0 {}\nrank 0 {}".to_owned(),
            "x.goal:3: rank 0 appears twice, first in line 2",
        ),
        (
            "num_ranks 2\nrank 0 {\n".to_owned(),
            "x.goal:3: the end of the file, expected an operation",
        ),
        ("num_ranks 2 /* ..\n".to_owned(), "x.goal:1: comment `/*` without `*/`"),
        (two("send 8b to 2"), "x.goal:3: rank 2 to send to, expected 0 to 1: there are 2"),
        (two("recv 8b from 7"), "x.goal:3: rank 7 to receive from, expected 0 to 1"),
        (two("send 8b to -1"), "x.goal:3: `-1`, expected a rank"),
        (two("send 8b from 1"), "x.goal:3: `from`, expected `to`"),
        (two("send 8 to 1"), "x.goal:3: `to`, expected `b`"),
        (two("calc fast"), "x.goal:3: `fast`, expected nanoseconds"),
        (two("l1: wait 5"), "x.goal:3: `wait`, expected `send`, `recv` or `calc`"),
        (two("l1 needs l2"), "x.goal:3: `needs`, expected `:`, `requires` or `irequires`"),
        (two("l1: calc 1\nl1: calc 1"), "x.goal:4: label l1 appears twice, first in line 3"),
        (two("l1: calc 1\nl1 requires l2"), "x.goal:4: `l2`, expected a label of rank 0"),
        (
            two("l1: calc 1\nl1 requires l1"),
            "x.goal:3: operations that wait for each other: those of lines 3",
        ),
        (
            two("a: calc 1\nb: calc 1\nc: calc 1\na requires b\nb irequires c\nc requires b"),
            "x.goal:4: operations that wait for each other: those of lines 4, 5",
        ),
        (two("recv 8b from 1 tag 3"), "x.goal:3: no message that fits is left for this receive"),
        (two("send 8b to 1 tag 3"), "x.goal:3: no matching receive is left for this message"),
        (
            format!(
                "{}rank 1 {{ r: recv 8b from 0\ns: send 8b to 0\ns requires r }}",
                two("r: recv 8b from 1\ns: send 8b to 1\ns requires r")
            ),
            "x.goal:3: its message is never sent: what line 8 waits for does not end before this receive does",
        ),
    ] {
        let message = fault(&text);
        assert!(message.contains(expected), "{text}\n{message}\nexpected {expected}");
    }
    let few = parse("x.goal", "num_ranks 9\nrank 0 { send 8b to 1 }\nrank 1 { recv 8b from 0 }");
    let message = few.expect("fits").workload(4).expect_err("too few").to_string();
    assert_eq!(message, "x.goal:1: 9 ranks, expected as many hosts or more; the network has 4");
    // Ranks that do nothing need no memory.
    let many = parse("x.goal", "num_ranks 4294967295\nrank 4294967294 { calc 1 }").expect("fits");
    assert!(many.workload(4).expect_err("too few").to_string().contains("4294967295 ranks"));
    let none = parse("x.goal", "num_ranks 2\nrank 0 { calc 1 }").expect("fits");
    assert!(none.workload(4).expect_err("nothing").to_string().contains("no message between"));
}
