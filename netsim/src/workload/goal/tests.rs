use super::*;
use crate::Picos;
use crate::workload::schedule::{Kind, Operation, Placement, Wait};
use crate::workload::{ScheduledJob, Workload};

fn place(text: &str) -> Result<(ScheduledJob, Workload), FormatError> {
    parse("x.goal", text)?.place(Placement::default(), 4)
}

fn fault(text: &str) -> String {
    place(text).expect_err(text).to_string()
}

#[test]
fn a_schedule_is_read_whatever_its_lines_and_comments() {
    let text = "num_ranks 2 // two of them\n\
                rank 1 { recv 8b from 0 }\n/* and\nthe other */\n\
                rank 0 {\n  l1: calc 100 cpu 3\n\n l_2: send 8 b to 1 tag 0 cpu 0 nic 1\n l_2 requires l1 }";
    let schedule = parse("x.goal", text).expect("a schedule");
    let kinds: Vec<_> = schedule.operations.iter().map(|of| (of.rank, of.place, of.kind)).collect();
    assert_eq!(
        kinds,
        [
            (1, 2, Kind::Receive { from: Some(0), tag: Some(0) }),
            (0, 6, Kind::Calc { ns: 100, cpu: 3 }),
            (0, 8, Kind::Send { to: 1, bytes: 8, tag: 0 }),
        ]
    );
    assert_eq!(schedule.waits, [Wait { of: 2, before: 1, started: false }]);
    assert_eq!(schedule.ranks, 2);
    assert_eq!(place(text).expect("it ends").0.lasts(), Picos::nanos(100));
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
            "x.goal:3: operations that wait for each other: rank 0 (line 3)",
        ),
        (
            two("a: calc 1\nb: calc 1\nc: calc 1\na requires b\nb irequires c\nc requires b"),
            "x.goal:4: operations that wait for each other: rank 0 (line 4), rank 0 (line 5)",
        ),
        (
            two("recv 8b from 1 tag 3"),
            "x.goal:3: the job cannot finish: rank 0 (line 3) waits for a message from rank 1 with tag 3: no message that fits \
             is left",
        ),
        (
            two("send 8b to 1 tag 3"),
            "x.goal:3: rank 0 (line 3) sends to rank 1 with tag 3, and no matching receive is left; add the receive",
        ),
        (
            format!(
                "{}rank 1 {{ r: recv 8b from 0\ns: send 8b to 0\ns requires r }}",
                two("r: recv 8b from 1\ns: send 8b to 1\ns requires r")
            ),
            "x.goal:3: the job cannot finish: rank 0 (line 3) waits for a message from rank 1 with tag 0: rank 1 (line 8), which \
             would send it, waits itself; rank 1 (line 7) waits for a message from rank 0 with tag 0: rank 0 (line 4), which",
        ),
    ] {
        let message = fault(&text);
        assert!(message.contains(expected), "{text}\n{message}\nexpected {expected}");
    }
    let message = fault("num_ranks 9\nrank 0 { send 8b to 1 }\nrank 1 { recv 8b from 0 }");
    assert!(
        message.contains("9 ranks with 1 on a host need 9 hosts, and the network has 4"),
        "{message}"
    );
    // Ranks that do nothing need no memory.
    let many = fault("num_ranks 4294967295\nrank 4294967294 { calc 1 }");
    assert!(many.contains("4294967295 ranks"), "{many}");
    let none = fault("num_ranks 2\nrank 0 { calc 1 }");
    assert!(none.contains("no message between hosts"), "{none}");
}

/// Rank 2 sends its first message to rank 1 behind one of rank 3, and its second behind a long chain
/// of rank 0, which no dependency puts behind the first. Over every network whose messages take about
/// as long, the first receive of rank 1 has the first message (recursive doubling of LogGOPSim's
/// `schedgen` has such chains).
#[test]
fn messages_match_in_the_order_in_which_a_network_brings_them() {
    let text = "num_ranks 4
rank 0 { a: send 8b to 2 tag 1 b: recv 8b from 2 tag 1 c: send 8b to 2 tag 2 c requires b }
rank 1 { x: recv 70b from 2 y: recv 80b from 2 }
rank 2 {
a: recv 8b from 0 tag 1
b: send 8b to 0 tag 1
b requires a
c: recv 8b from 0 tag 2
second: send 80b to 1
second requires c
d: recv 8b from 3
first: send 70b to 1
first requires d
}
rank 3 { a: send 8b to 2 }";
    let (_, workload) = place(text).expect("it ends");
    let receives: Vec<_> = workload.flows.iter().filter(|flow| flow.dst == 1).collect();
    let order: Vec<_> = receives.iter().map(|flow| (flow.bytes, flow.on_received)).collect();
    assert!(order[0].0 == 80 && order[0].1 > order[1].1, "{order:?}");
}

/// Writes a schedule as `txt2bin` does: see [`binary`].
fn binary_of(text: &str) -> Vec<u8> {
    let Schedule { ranks, operations, waits, .. } = parse("x.goal", text).expect("a schedule");
    let mut body = ranks.to_le_bytes().to_vec();
    body.extend([0, 0]);
    body.resize(6 + 16 * ranks as usize, 0);
    for rank in 0..ranks {
        let begin = body.len() as u64;
        let own: Vec<u32> =
            (0..).zip(&operations).filter(|(_, of)| of.rank == rank).map(|(at, _)| at).collect();
        let place = |of: u32| own.iter().position(|at| *at == of).expect("of this rank") as u32;
        let waits_of = |of: u32| waits.iter().filter(|wait| wait.of == of).count() as u32;
        let roots: Vec<u32> = own.iter().copied().filter(|&of| waits_of(of) == 0).collect();
        body.extend((own.len() as u32).to_le_bytes());
        body.extend((roots.len() as u32).to_le_bytes());
        roots.iter().for_each(|&of| body.extend(place(of).to_le_bytes()));
        let mut appendix: Vec<u32> = Vec::new();
        for &at in &own {
            let (kind, peer, size, tag, cpu) = match operations[at as usize].kind {
                Kind::Send { to, bytes, tag } => (1, to, bytes, tag as u32, 0),
                Kind::Receive { from, tag } => {
                    (2, from.unwrap_or(u32::MAX), 8, tag.map_or(u32::MAX, |tag| tag as u32), 0)
                }
                Kind::Calc { ns, cpu } => (3, 0, ns, 0, cpu as u8),
                Kind::Delay { .. } => unreachable!("GOAL has none"),
            };
            body.extend(waits_of(at).to_le_bytes());
            body.push(kind);
            body.extend(peer.to_le_bytes());
            body.extend(size.to_le_bytes());
            body.extend(tag.to_le_bytes());
            body.extend([cpu, 0]);
            for started in [false, true] {
                let waiting: Vec<u32> = waits
                    .iter()
                    .filter(|wait| wait.before == at && wait.started == started)
                    .map(|wait| place(wait.of))
                    .collect();
                body.extend((waiting.len() as u32).to_le_bytes());
                body.extend((appendix.len() as u32).to_le_bytes());
                appendix.extend(waiting);
            }
        }
        appendix.iter().for_each(|of| body.extend(of.to_le_bytes()));
        let entry = 6 + 16 * rank as usize;
        let end = body.len() as u64;
        body[entry..entry + 8].copy_from_slice(&begin.to_le_bytes());
        body[entry + 8..entry + 16].copy_from_slice(&end.to_le_bytes());
    }
    [4223u64.to_le_bytes().to_vec(), body].concat()
}

const BOTH_FORMS: &str = "num_ranks 2
    rank 0 {
    a: calc 100 cpu 3
    b: send 80b to 1 tag 4
    b requires a
    c: recv 8b from -1 tag -1
    c irequires b
    }
    rank 1 {
    a: recv 80b from 0 tag 4
    b: send 9b to 0
    b requires a
    }";

#[test]
fn the_binary_form_says_what_the_text_says() {
    let schedule = binary::parse("x.bin", &binary_of(BOTH_FORMS)).expect("a schedule");
    let text = parse("x.goal", BOTH_FORMS).expect("a schedule");
    let shape = |schedule: &Schedule| {
        let operations = &schedule.operations;
        let operations: Vec<_> =
            operations.iter().map(|of: &Operation| (of.rank, of.kind)).collect();
        let mut waits: Vec<_> =
            schedule.waits.iter().map(|of| (of.of, of.before, of.started)).collect();
        waits.sort_unstable();
        (schedule.ranks, operations, waits)
    };
    assert_eq!(shape(&schedule), shape(&text));
    let (job, _) = schedule.place(Placement::default(), 2).expect("it ends");
    assert_eq!(job.lasts(), Picos::nanos(100));
}

#[test]
fn mistakes_of_the_binary_form_are_named() {
    let whole = binary_of(BOTH_FORMS);
    for length in 8..whole.len() {
        let message = binary::parse("x.bin", &whole[..length]).expect_err("cut off").to_string();
        assert!(message.contains("txt2bin"), "{length}: {message}");
    }
    // The first record of rank 0 begins behind the mark, the table, two counts and one root.
    let record = 8 + 6 + 32 + 12;
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        binary::parse("x.bin", &bytes).expect_err("changed").to_string()
    };
    assert!(changed(record + 4, 7).contains("rank 0: operation 0 is of kind 7, expected 1"));
    assert!(changed(record + 39 + 5, 9).contains("operation 1 names rank 9, expected 0 to 1"));
    let appendix = record + 3 * 39;
    assert!(changed(appendix, 3).contains("operation 3 waits for operation 0, expected 0 to 2"));
    let mut used = whole.clone();
    used[..8].copy_from_slice(&2342u64.to_le_bytes());
    assert!(binary::is_binary(&used));
    let message = binary::parse("x.bin", &used).expect_err("used up").to_string();
    assert!(message.contains("--save-mem has used this schedule up"), "{message}");
    // A short file in which all ranks have the same operations would need any amount of memory.
    let mut shared = whole;
    shared.copy_within(14..30, 30);
    let message = binary::parse("x.bin", &shared).expect_err("shared").to_string();
    assert!(
        message.contains("the operations of ranks 0 to 1 add up to more bytes than the file has"),
        "{message}"
    );
}

proptest::proptest! {
    /// No bytes and no text make a reader or the matching panic.
    #[test]
    fn changed_schedules_are_read_or_refused(
        changes in proptest::collection::vec((proptest::prelude::any::<usize>(), proptest::prelude::any::<u8>()), 1..8),
        length in proptest::prelude::any::<usize>(),
    ) {
        let text = BOTH_FORMS.as_bytes().to_vec();
        for (mut bytes, is_binary) in [(text, false), (binary_of(BOTH_FORMS), true)] {
            for &(at, byte) in &changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if length % 3 == 0 {
                bytes.truncate(length / 3 % bytes.len());
            }
            let schedule = match is_binary {
                true => binary::parse("x", &bytes),
                false => parse("x", &String::from_utf8_lossy(&bytes)),
            };
            if let Ok(schedule) = schedule {
                let _ = schedule.place(Placement::default(), 4);
            }
        }
    }
}
