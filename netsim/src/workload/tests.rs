use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::allreduce::parent;
use super::*;
use crate::Bytes;

fn generate(spec: &Spec, hosts: u32) -> Workload {
    let workload = spec.generate(&Layout::flat(hosts), 1).expect("a workload");
    workload.check().expect("a workload that can run");
    workload
}

fn permutation(bytes: u64) -> Pattern {
    permutation_between(Apart::Hosts, bytes)
}

fn permutation_between(apart: Apart, bytes: u64) -> Pattern {
    Pattern::Permutation { bytes: Bytes(bytes), parallel: 1, larger: None, apart }
}

#[test]
fn a_permutation_sends_and_receives_once_and_never_at_home() {
    let layout = Layout { hosts: 128, rack: 4, pod: 16, line_bps: 1 };
    for (apart, group) in [(Apart::Hosts, 1), (Apart::Racks, 4), (Apart::Pods, 16)] {
        for seed in 0..50 {
            let spec = Spec::new(permutation_between(apart, 7));
            let workload = spec.generate(&layout, seed).expect("a workload");
            workload.check().expect("sound");
            let sources: HashSet<u32> = workload.flows.iter().map(|flow| flow.src).collect();
            let sinks: HashSet<u32> = workload.flows.iter().map(|flow| flow.dst).collect();
            assert_eq!((sources.len(), sinks.len(), workload.flows.len()), (128, 128, 128));
            for flow in &workload.flows {
                assert_ne!(flow.src / group, flow.dst / group, "{apart:?} {flow:?}");
            }
        }
    }
    // Of two racks, one holds more than half of the hosts: the permutation is impossible, and the
    // error says so.
    let layout = Layout { hosts: 6, rack: 4, pod: 6, line_bps: 1 };
    let spec = Spec::new(permutation_between(Apart::Racks, 7));
    let error = spec.generate(&layout, 1).expect_err("four of six in one rack");
    assert!(error.to_string().contains("more than half"), "{error}");
}

#[test]
fn seeds_decide() {
    let options = JobOptions { random: true, jitter_ns: 500, ..JobOptions::default() };
    let spec = Spec { options, ..Spec::new(permutation(9)) };
    let at = |seed| spec.generate(&Layout::flat(64), seed).expect("a workload");
    assert_eq!(at(3), at(3));
    assert_ne!(at(3), at(4));
}

#[test]
fn larger_and_parallel_flows() {
    let pattern = Pattern::Permutation {
        bytes: Bytes(10),
        parallel: 3,
        larger: Some(Bytes(20)),
        apart: Apart::Hosts,
    };
    let workload = generate(&Spec::new(pattern), 16);
    assert_eq!(workload.flows.len(), 48);
    assert_eq!(workload.bytes(), 490);
    assert_eq!(workload.flows.iter().filter(|flow| flow.bytes == 20).count(), 1);
}

#[test]
fn incast_and_outcast_incast_meet_where_they_should() {
    let spec = Spec::new(Pattern::Incast { senders: 8, bytes: Bytes(5), larger: None });
    let workload = generate(&spec, 32);
    let sinks: HashSet<u32> = workload.flows.iter().map(|flow| flow.dst).collect();
    assert_eq!((workload.flows.len(), sinks.len()), (8, 1));

    let spec = Spec::new(Pattern::OutcastIncast { outcast: 4, incast: 7, bytes: Bytes(5) });
    let workload = generate(&spec, 32);
    let count = |key: fn(&Flow) -> u32| {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for flow in &workload.flows {
            *counts.entry(key(flow)).or_default() += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(count(|flow| flow.src), [1, 1, 1, 1, 1, 1, 4]);
    assert_eq!(count(|flow| flow.dst), [1, 1, 1, 7]);
}

#[test]
fn flows_start_in_turn() {
    let pattern = Pattern::Incast { senders: 5, bytes: Bytes(5), larger: None };
    let options = JobOptions {
        stagger_us: Some(20),
        together: Some(2),
        start_us: 1,
        ..JobOptions::default()
    };
    let spec = Spec { pattern, options };
    let starts: Vec<Start> = generate(&spec, 8).flows.iter().map(|flow| flow.start).collect();
    assert_eq!(starts, [1, 1, 21, 21, 41].map(|us| Start::At(us * PS_PER_US)));
}

#[test]
fn all_to_all_keeps_its_window() {
    for (ranks, window) in [(8, 1), (8, 3), (8, 7), (5, 2)] {
        let workload = generate(&Spec::new(Pattern::AllToAll { bytes: Bytes(1), window }), ranks);
        assert_eq!(workload.flows.len() as u32, ranks * (ranks - 1));
        let pairs: HashSet<_> = workload.flows.iter().map(|flow| (flow.src, flow.dst)).collect();
        assert_eq!(pairs.len(), workload.flows.len());
        for src in 0..ranks {
            let at_once = workload
                .flows
                .iter()
                .filter(|flow| flow.src == src && flow.start == Start::At(0))
                .count();
            assert_eq!(at_once as u32, window);
        }
    }
}

/// Returns the bytes that each host receives.
fn bytes_received(workload: &Workload) -> HashMap<u32, u64> {
    let mut received = HashMap::new();
    for flow in &workload.flows {
        *received.entry(flow.dst).or_default() += flow.bytes;
    }
    received
}

fn all_reduce(algorithm: Algorithm, bytes: u64, chunk: u64) -> Pattern {
    Pattern::AllReduce { algorithm, bytes: Bytes(bytes), chunk: Bytes(chunk) }
}

#[test]
fn all_reduces_move_what_they_must() {
    // Ring and halving-doubling are bandwidth optimal: each rank receives 2 (n-1)/n of the data.
    for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling] {
        let workload = generate(&Spec::new(all_reduce(algorithm, 8 << 20, 128 << 10)), 8);
        let received = bytes_received(&workload);
        assert_eq!(received.len(), 8);
        for bytes in received.values() {
            assert_eq!(*bytes, 2 * 7 * (1 << 20), "{algorithm:?}");
        }
    }
    // In trees, both halves go up and down every edge, of which each tree has n - 1.
    for ranks in [2, 3, 8, 13, 16] {
        let pattern = all_reduce(Algorithm::DoubleBinaryTree, 1 << 20, 128 << 10);
        let workload = generate(&Spec::new(pattern), ranks);
        assert_eq!(workload.bytes(), 2 * u64::from(ranks - 1) * (1 << 20), "{ranks}");
    }
}

#[test]
fn a_ring_passes_every_segment_on() {
    // With three ranks and one message per segment there are four hops of three messages; those of
    // segment 0 are from 0 to 1, 1 to 2 (sum complete), 2 to 0, 0 to 1.
    let workload = generate(&Spec::new(all_reduce(Algorithm::Ring, 300, 100)), 3);
    let hosts: Vec<_> = workload.flows.iter().map(|flow| (flow.src, flow.dst)).collect();
    assert_eq!(hosts.len(), 12);
    for (hop, expected) in [(0, (0, 1)), (1, (1, 2)), (2, (2, 0)), (3, (0, 1))] {
        assert_eq!(hosts[hop * 3], expected);
    }
    for hop in 1..4 {
        let trigger = workload.flows[(hop - 1) * 3].on_received.expect("someone waits");
        assert_eq!(workload.flows[hop * 3].start, Start::Trigger(trigger));
    }
}

#[test]
fn halving_doubling_needs_a_power_of_two() {
    let spec = Spec::new(all_reduce(Algorithm::HalvingDoubling, 1 << 20, 1 << 17));
    let error = spec.generate(&Layout::flat(6), 1).expect_err("six");
    assert!(error.to_string().contains("power of two"), "{error}");
}

#[test]
fn double_trees_span_and_share_the_work() {
    for ranks in 2..70 {
        let mut inner = vec![0; ranks as usize];
        for second in [false, true] {
            let parents: Vec<_> = (0..ranks).map(|rank| parent(rank, ranks, second)).collect();
            assert_eq!(parents.iter().filter(|parent| parent.is_none()).count(), 1, "one root");
            let mut children = vec![0; ranks as usize];
            for rank in 0..ranks {
                // Every rank reaches the root.
                let (mut at, mut steps) = (rank, 0);
                while let Some(above) = parents[at as usize] {
                    (at, steps) = (above, steps + 1);
                    assert!(steps <= ranks.ilog2() + 2, "{ranks} ranks: too deep");
                }
                if let Some(above) = parents[rank as usize] {
                    children[above as usize] += 1;
                }
            }
            assert!(children.iter().all(|&children| children <= 2));
            for (inner, children) in inner.iter_mut().zip(children) {
                *inner += i32::from(children > 0);
            }
        }
        // No rank is an inner rank in both trees (an odd number of ranks leaves one that is).
        let twice = inner.iter().filter(|&&count| count > 1).count();
        assert!(twice <= (ranks % 2) as usize, "{ranks} ranks: {twice} are inner ranks twice");
    }
}

#[test]
fn jobs_do_not_share_hosts() {
    let pattern = all_reduce(Algorithm::Ring, 1 << 20, 1 << 17);
    let options = JobOptions { ranks: Some(8), jobs: 4, random: true, ..JobOptions::default() };
    let spec = Spec { pattern, options };
    let workload = generate(&spec, 40);
    assert_eq!(workload.jobs(), 4);
    let mut owner: HashMap<u32, u16> = HashMap::new();
    for flow in &workload.flows {
        for host in [flow.src, flow.dst] {
            assert_eq!(*owner.entry(host).or_insert(flow.job), flow.job);
        }
    }
    assert_eq!(owner.len(), 32);
}

#[test]
fn distributions_have_the_published_means() {
    // Web search, from the points: 0.15 x 5 000 + 0.05 x 15 000 + 0.1 x 25 000 + 0.1 x 40 000 +
    // 0.13 x 65 000 + 0.07 x 140 000 + 0.1 x 600 000 + 0.1 x 1.5e6 + 0.1 x 3.5e6 + 0.07 x 7.5e6 +
    // 0.03 x 20e6 = 1 711 250, published as 1.71 MB.
    let web = Distribution::by_name("websearch").expect("there");
    assert!((web.mean() - 1_711_250.0).abs() < 1.0, "{}", web.mean());
    // Hadoop: 7.5 + 100 + 225 + 105 + 800 + 8 250 + 15 200 + 16 250 + 22 500 + 60 000 = 123 437.5.
    let hadoop = Distribution::by_name("hadoop").expect("there");
    assert!((hadoop.mean() - 123_437.5).abs() < 1.0, "{}", hadoop.mean());
    // Storage: 458 + 2 778 + 1 368 + 5 160 + 6 400 + 28 200 = 44 364.
    let storage = Distribution::by_name("alistorage").expect("there");
    assert!((storage.mean() - 44_364.0).abs() < 1.0, "{}", storage.mean());
    // The 0.45 quantile of web search: 50 000 + 0.05 / 0.13 x 30 000 = 61 538.
    assert_eq!(web.quantile(0.45), 61_538);
    assert_eq!((web.quantile(0.0), web.quantile(0.999_999_999)), (1, 29_999_999));
    assert!(Distribution::by_name("uniform").expect_err("no").to_string().contains("websearch"));
    assert!(Distribution::through(vec![(10.0, 0.5), (5.0, 1.0)]).is_err());
    assert!(Distribution::through(vec![(10.0, 0.5)]).is_err());
}

/// Returns a load of half of the line, with long flows divided as `split` says: length, bytes and
/// interval of connections.
fn poisson(sizes: Distribution, duration_us: u64, split: Option<(u64, u64, f64)>) -> Pattern {
    Pattern::Poisson {
        sizes,
        load: 0.5,
        duration_us,
        split: split.map(|(longer_than, ..)| Bytes(longer_than)),
        bdp: split.map(|(_, bdp, _)| Bytes(bdp)),
        rtt_us: split.map(|(.., rtt_us)| rtt_us),
    }
}

#[test]
fn poisson_offers_the_load_asked_for() {
    let sizes = Distribution::by_name("hadoop").expect("there");
    let workload = generate(&Spec::new(poisson(sizes, 20_000, None)), 64);
    // 64 hosts x 12.5 GB/s x 0.5 x 20 ms = 8 GB.
    let offered = workload.bytes() as f64 / 8e9;
    assert!((0.9..1.1).contains(&offered), "{offered}");
    let starts: Vec<_> = workload.flows.iter().map(|flow| flow.start).collect();
    assert!(starts.iter().all(|&start| matches!(start, Start::At(at) if at < 20_000_000_000)));
}

#[test]
fn traces_are_read_with_what_they_wait_for() {
    let text = "id,src,dst,bytes,start_us,after\n# a comment\n1,0,1,100,0.5,\n2,0,2,100,,\n\
                3,1,2,50,,1 2\n4,2,0,50,,1 2\n5,2,1,9,,4\n";
    let workload = trace::parse(text.as_bytes(), Path::new("t.csv"), 3).expect("a trace");
    assert_eq!(workload.flows.len(), 5);
    assert_eq!(workload.flows[0].start, Start::At(500_000));
    assert_eq!(workload.flows[2].start, workload.flows[3].start);
    let kinds: Vec<_> = workload.triggers.iter().map(|trigger| trigger.kind).collect();
    assert_eq!(kinds, [TriggerKind::Barrier(2), TriggerKind::OneShot]);

    for (line, expected) in [
        ("1,0,1,x,0,", "t.csv:2: bytes = `x`, expected a whole number from 1 to"),
        ("1,0,1,-5,0,", "t.csv:2: bytes = `-5`, expected"),
        ("1,0,1,99999999999999999999,0,", "expected a whole number from 1 to 18446744073709551615"),
        ("1,0,1,0,0,", "t.csv:2: bytes = `0`, expected"),
        ("0,0,1,5,0,", "t.csv:2: id = `0`, expected"),
        ("1,1,1,5,0,", "t.csv:2: src and dst are both 1"),
        ("1,0,1,5,0,\n1,0,1,5,0,", "t.csv:3: id 1 is that of line 2"),
        ("1,0", "t.csv:2: dst = ``, expected"),
        ("1,0,1,5,0,,9", "t.csv:2: the line has 7 fields, expected one per column"),
        ("", "t.csv:1: no message, expected"),
        ("1,0,1,5,nan,", "t.csv:2: start_us = `nan`"),
        ("1,0,1,5,-3,", "t.csv:2: start_us = `-3`"),
        ("1,0,1,5,,9", "t.csv:2: after = `9`"),
        ("1,0,7,5,,", "t.csv:2: dst = `7`, expected a whole number from 0 to 2"),
        ("1,0,1,5,0,\n2,0,1,5,,2", "t.csv:3: 1 flows can never start"),
    ] {
        let text = format!("id,src,dst,bytes,start_us,after\n{line}\n");
        let error = trace::parse(text.as_bytes(), Path::new("t.csv"), 3).expect_err(line);
        assert!(error.to_string().contains(expected), "{line}: {error}");
    }
    for (text, expected) in [
        ("", "t.csv:1: no column `id`"),
        ("hello\n", "t.csv:1: column `hello`, expected the columns id, src"),
        ("id,src,dst,start_us\n", "t.csv:1: no column `bytes`"),
        ("id,id,src,dst,bytes\n", "t.csv:1: column `id` twice"),
    ] {
        let error = trace::parse(text.as_bytes(), Path::new("t.csv"), 3).expect_err(text);
        assert!(error.to_string().starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn what_cannot_run_is_named() {
    let good = generate(&Spec::new(Pattern::AllToAll { bytes: Bytes(1), window: 1 }), 4);
    let broken = |change: fn(&mut Workload)| {
        let mut workload = good.clone();
        change(&mut workload);
        workload.check().expect_err("broken").to_string()
    };
    assert!(broken(|w| w.flows[3].dst = 4).contains("hosts are 0 to 3"));
    assert!(broken(|w| w.flows[3].dst = w.flows[3].src).contains("one host"));
    assert!(broken(|w| w.flows[3].bytes = 0).contains("no bytes"));
    assert!(broken(|w| w.flows[3].id = 1).contains("flow number 1"));
    assert!(broken(|w| w.flows[3].on_sent = Some(9)).contains("there are 4"));
    assert!(broken(|w| w.flows[0].on_sent = None).contains("2 flows can never start"));
    for (pattern, parameter) in [
        (Pattern::Incast { senders: 4, bytes: Bytes(1), larger: None }, "senders = 4"),
        (Pattern::AllToAll { bytes: Bytes(1), window: 4 }, "window = 4"),
        (
            Pattern::OutcastIncast { outcast: 3, incast: 2, bytes: Bytes(1) },
            "outcast + incast = 3 + 2",
        ),
        (permutation(0), "bytes = 0"),
        (
            Pattern::Permutation {
                bytes: Bytes(1),
                parallel: u32::MAX,
                larger: None,
                apart: Apart::Hosts,
            },
            "flows = 17179869180 does not fit: 16777216 at most",
        ),
        (all_reduce(Algorithm::Ring, 1 << 40, 1), "flows = 8796093022240 does not fit"),
    ] {
        let error = Spec::new(pattern).generate(&Layout::flat(4), 1).expect_err(parameter);
        assert!(error.to_string().starts_with(parameter), "{error}");
    }
    let options = JobOptions { ranks: Some(3), jobs: 2, ..JobOptions::default() };
    let spec = Spec { options, ..Spec::new(permutation(1)) };
    let error = spec.generate(&Layout::flat(4), 1).expect_err("too many");
    assert!(error.to_string().contains("2 to 2"), "{error}");
}

/// Returns job, source, destination, bytes and start in nanoseconds of each flow.
fn plain(workload: &Workload) -> Vec<(u16, u32, u32, u64, u64)> {
    let start = |flow: &Flow| match flow.start {
        Start::At(at) => at / 1000,
        Start::Trigger(_) => u64::MAX,
    };
    let flows = workload.flows.iter();
    flows.map(|flow| (flow.job, flow.src, flow.dst, flow.bytes, start(flow))).collect()
}

fn parallel(qps: u32, bytes: u64, (victims, victim_bytes): (u32, u64), receivers: u32) -> Pattern {
    let victim_bytes = Some(Bytes(victim_bytes));
    Pattern::Parallel { qps, bytes: Bytes(bytes), victims, victim_bytes, receivers }
}

fn staggered(
    (bdp, rtt_us): (u64, f64),
    bytes: u64,
    (victims, victim_bytes): (u32, u64),
    receivers: u32,
) -> Pattern {
    let (bdp, victim_bytes) = (Bytes(bdp), Some(Bytes(victim_bytes)));
    Pattern::Staggered { bytes: Bytes(bytes), bdp, rtt_us, victims, victim_bytes, receivers }
}

#[test]
fn attackers_divide_their_bytes_and_victims_do_not() {
    // The ranks are attacker 0, victims 1 and 2, and receivers 3 and 4 in turn.
    let victims = [(1, 1, 4, 7, 0), (1, 2, 3, 7, 0)];
    let parallel = generate(&Spec::new(parallel(3, 100, (2, 7), 2)), 5);
    let attacker = [(0, 0, 3, 34, 0), (0, 0, 3, 33, 0), (0, 0, 3, 33, 0)];
    assert_eq!(plain(&parallel), [&attacker[..], &victims].concat());
    // 100 bytes are two connections of 40 bytes and the rest, one every 4.16 us.
    let staggered = generate(&Spec::new(staggered((40, 4.16), 100, (2, 7), 2)), 5);
    let attacker = [(0, 0, 3, 40, 0), (0, 0, 3, 40, 4160), (0, 0, 3, 20, 8320)];
    assert_eq!(plain(&staggered), [&attacker[..], &victims].concat());
}

#[test]
fn overlays_are_rings_that_all_meet() {
    // With nine ranks, steps 1, 2, 4, 5, 7 and 8 have no common divisor with nine.
    let pattern = Pattern::ShuffledOverlay { bytes: Bytes(60), bdp: None, rtt_us: None };
    let flows = plain(&generate(&Spec::new(pattern), 9));
    assert_eq!(flows.len(), 9 * 6);
    let steps: Vec<u32> = flows[..6].iter().map(|flow| flow.2).collect();
    assert_eq!(steps, [1, 2, 4, 5, 7, 8]);
    assert!(flows.iter().all(|flow| flow.3 == 10 && flow.4 == 0));
    // With `bdp`, the connections use one ring after the other, and then begin again.
    let (bdp, rtt_us) = (Some(Bytes(40)), Some(4.16));
    let pattern = Pattern::ShuffledOverlay { bytes: Bytes(300), bdp, rtt_us };
    let flows = plain(&generate(&Spec::new(pattern), 9));
    let first: Vec<(u32, u64)> = flows[..8].iter().map(|flow| (flow.2, flow.4)).collect();
    let expected = [1, 2, 4, 5, 7, 8, 1, 2].into_iter().zip((0..8).map(|n| n * 4160));
    assert_eq!(first, expected.collect::<Vec<_>>());
    assert_eq!(flows.iter().map(|flow| flow.3).sum::<u64>(), 9 * 300);
}

#[test]
fn long_flows_of_a_load_may_attack() {
    let sizes = || Distribution::by_name("hadoop").expect("there");
    let of = |split| generate(&Spec::new(poisson(sizes(), 2000, split)), 64);
    let (whole, divided) = (of(None), of(Some((1_000_000, 150_000, 13.0))));
    assert_eq!(whole.bytes(), divided.bytes());
    let long = whole.flows.iter().filter(|flow| flow.bytes > 1_000_000);
    let parts: u64 = long.clone().map(|flow| flow.bytes.div_ceil(150_000)).sum();
    let (short, attacking) = (whole.flows.len() - long.count(), parts as usize);
    let jobs = |job| divided.flows.iter().filter(move |flow| flow.job == job);
    assert_eq!((jobs(0).count(), jobs(1).count()), (short, attacking));
    assert!(attacking > 100 && jobs(1).all(|flow| flow.bytes <= 150_000));
}

#[test]
fn the_mix_of_dart_has_its_shares() {
    let (short_share, bytes) = (0.4, Bytes(1_000_000));
    let mix = Mix { load: 0.5, short_share, degree: 16, bytes, duration_us: 20_000 };
    let flows = plain(&generate(&Spec::new(Pattern::IncastMix(mix)), 64));
    // 64 hosts x 12.5 GB/s x 0.5 x 20 ms = 8 GB, of which 3.2 are short.
    let bytes =
        |job: u16| flows.iter().filter(|flow| flow.0 == job).map(|flow| flow.3).sum::<u64>();
    let (short, long) = (bytes(0) as f64 / 3.2e9, bytes(1) as f64 / 4.8e9);
    assert!((0.97..1.03).contains(&short) && (0.95..1.05).contains(&long), "{short} {long}");
    let mut incasts: HashMap<(u64, u32), HashSet<u32>> = HashMap::new();
    for &(job, src, dst, bytes, at) in &flows {
        if job == 0 {
            assert!([2048, 4096, 8192].contains(&bytes), "{bytes}");
            incasts.entry((at, dst)).or_default().insert(src);
        }
    }
    assert!(incasts.values().all(|senders| senders.len() == 16));
}

#[test]
fn levels_are_taken_in_turn() {
    let options = JobOptions { levels: 3, ..JobOptions::default() };
    let spec = Spec { options, ..Spec::new(permutation(1)) };
    let levels: Vec<u8> = generate(&spec, 7).flows.iter().map(|flow| flow.level).collect();
    assert_eq!(levels, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn attacks_that_make_no_sense_are_refused() {
    let error = |spec: Spec| spec.generate(&Layout::flat(5), 1).expect_err("refused").to_string();
    let many = |qps| parallel(qps, 10, (1, 1), 1);
    let in_turn = |bdp, rtt_us| staggered((bdp, rtt_us), 10, (1, 1), 1);
    let overlay = |bdp: Option<u64>, rtt_us| Pattern::ShuffledOverlay {
        bytes: Bytes(9),
        bdp: bdp.map(Bytes),
        rtt_us,
    };
    for (pattern, expected) in [
        (many(0), "qps = 0 does not fit: 1 to 10"),
        (many(11), "qps = 11 does not fit: 1 to 10"),
        (in_turn(0, 1.0), "bdp = 0 does not fit: one byte"),
        (in_turn(1, -1.0), "rtt_us = -1 does not fit: 0 to 1000000"),
        (in_turn(1, f64::NAN), "rtt_us = NaN does not fit"),
        (overlay(Some(1), None), "rtt_us = none does not fit: one with `bdp`"),
        (overlay(None, Some(1.0)), "bdp = none does not fit: one with `rtt_us`"),
    ] {
        let error = error(Spec::new(pattern));
        assert!(error.starts_with(expected), "{error}");
    }
    let many = |victims, receivers| Spec::new(parallel(1, 1, (victims, 1), receivers));
    for (victims, receivers) in [(0, 1), (1, 0), (3, 2), (1, u32::MAX)] {
        let error = error(many(victims, receivers));
        assert!(error.contains("together at most 4"), "{error}");
    }
    let options = JobOptions { jobs: 2, ..JobOptions::default() };
    let jobs = error(Spec { options, ..many(1, 1) });
    assert!(jobs.starts_with("jobs = 2 does not fit: one"), "{jobs}");
    let options = |options| error(Spec { options, ..Spec::new(permutation(1)) });
    let levels = options(JobOptions { levels: 0, ..JobOptions::default() });
    assert!(levels.starts_with("levels = 0"), "{levels}");
    let together = options(JobOptions { together: Some(2), ..JobOptions::default() });
    assert!(together.starts_with("together = 2 does not fit: none without"), "{together}");
    let mix = Mix { load: 0.5, short_share: 0.4, degree: 4, bytes: Bytes(1), duration_us: 1 };
    for (mix, expected) in [
        (Mix { load: 0.0, ..mix }, "load = 0"),
        (Mix { load: f64::NAN, ..mix }, "load = NaN"),
        (Mix { short_share: 1.5, ..mix }, "short_share = 1.5"),
        (Mix { degree: 5, ..mix }, "degree = 5 does not fit: 1 to 4"),
        (Mix { degree: 0, ..mix }, "degree = 0"),
        (Mix { bytes: Bytes(0), ..mix }, "bytes = 0"),
        (Mix { duration_us: 0, ..mix }, "duration_us = 0"),
        (Mix { duration_us: u64::MAX, ..mix }, "flows = "),
    ] {
        let error = error(Spec::new(Pattern::IncastMix(mix)));
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
}

#[test]
fn flows_have_numbers_of_their_own() {
    let mut workload = generate(&Spec::new(permutation(7)), 4);
    let mut check = |ids: [u32; 4]| {
        workload.flows.iter_mut().zip(ids).for_each(|(flow, id)| flow.id = id);
        workload.check()
    };
    assert_eq!(check([1, 2, 7, 9]), Ok(()));
    assert_eq!(check([9, 2, 7, 1]), Ok(()));
    assert_eq!(check([9, 2, 7, 2]), Err(WorkloadError::BadId(2)));
    assert_eq!(check([1, 2, 2, 3]), Err(WorkloadError::BadId(2)));
    assert_eq!(check([0, 1, 2, 3]), Err(WorkloadError::BadId(0)));
}
