use super::*;
use crate::base::TrafficClass;
use crate::burst::tests::{Sample, send};
use crate::mock::Mock;

const N: usize = 20_000;

type Packets = Vec<(RxMeta, Vec<u8>)>;

/// Sends numbered packets of 100 bytes through a faulty port. Returns what comes out at once, what
/// comes out later, and the counters.
fn run(spec: &str) -> (Packets, Packets, Counters) {
    let mut port =
        FaultPort::new(Mock::new("127.0.0.1:4793"), spec.parse().unwrap(), &PortConfig::default());
    for i in 0..N as u32 {
        let mut bytes = [0xaa; 100];
        bytes[..4].copy_from_slice(&i.to_be_bytes());
        let packet = data(&bytes, 0);
        assert_eq!(send(&mut port, Time::ZERO, &[packet]).sent, 1);
    }
    let mut now = Vec::new();
    let report = port.recv_each(Time::ZERO, N, &mut |m, b| now.push((*m, b.to_vec())));
    assert_eq!(report.packets, now.len());
    let mut later = Vec::new();
    while let Some(due) = port.next_deadline() {
        assert!(due > Time::ZERO && due <= Time::ZERO + Span::secs(1));
        let before = later.len();
        port.recv_each(due, N, &mut |m, b| later.push((*m, b.to_vec())));
        assert!(later.len() > before, "a deadline that brings nothing");
    }
    (now, later, port.counters())
}

fn data(bytes: &[u8], path: u16) -> Sample<'_> {
    Sample {
        dst: "127.0.0.1:1".parse().unwrap(),
        path,
        class: TrafficClass::Data,
        header: bytes,
        payload: &[],
        trailer: &[],
    }
}

fn number(packet: &(RxMeta, Vec<u8>)) -> u32 {
    u32::from_be_bytes(packet.1[..4].try_into().unwrap())
}

/// Returns whether a count is within five standard deviations of a binomial distribution.
fn about(count: u64, p: f64) -> bool {
    let n = N as f64;
    (count as f64 - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt()
}

#[test]
fn an_empty_specification_breaks_nothing() {
    let (now, later, counters) = run("");
    assert_eq!((now.len(), later.len()), (N, 0));
    assert!(now.iter().enumerate().all(|(i, p)| number(p) == i as u32));
    assert_eq!(counters, Counters::default());
}

#[test]
fn loss_and_duplication_have_their_rates() {
    let (now, _, c) = run("loss=1%,dup=0.5%");
    assert!(about(c.fault_dropped, 0.01), "{c:?}");
    assert!(about(c.fault_duplicated, 0.005 * 0.99), "{c:?}");
    assert_eq!(now.len() as u64, N as u64 - c.fault_dropped + c.fault_duplicated);
    let twice = now.windows(2).filter(|w| w[0] == w[1]).count();
    assert_eq!(twice as u64, c.fault_duplicated);
    assert_eq!(run("loss=100%").0.len(), 0);
}

#[test]
fn the_seed_decides() {
    let all = "loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%,trim=1%";
    let (a, b, c) = (run(all), run(all), run(&format!("{all},seed=2")));
    assert_eq!(a, b);
    assert_ne!(a.0, c.0);
    // Another fault beside it does not change which packets are lost.
    let lost = |spec| {
        let (now, later, _) = run(spec);
        let mut seen = vec![false; N];
        now.iter().chain(&later).for_each(|p| seen[number(p) as usize] = true);
        seen
    };
    assert_eq!(lost("loss=3%"), lost("loss=3%,dup=10%,reorder=10%"));
}

#[test]
fn reordered_packets_are_late_but_not_lost() {
    let (now, later, c) = run("reorder=2%");
    assert!(about(c.fault_reordered, 0.02), "{c:?}");
    let mut all: Vec<_> = now.iter().chain(&later).map(number).collect();
    let late = all.windows(2).filter(|w| w[0] > w[1]).count();
    assert!(late as u64 > c.fault_reordered / 2);
    // No packet is overtaken by more packets than the limit and the number of other reordered ones.
    for (i, n) in all.iter().enumerate() {
        assert!(i.abs_diff(*n as usize) <= 16, "packet {n} at {i}");
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..N as u32));
}

#[test]
fn a_lone_reordered_packet_is_delivered_after_a_millisecond() {
    let spec = "reorder=100%".parse().unwrap();
    let mut port = FaultPort::new(Mock::new("[::1]:4793"), spec, &PortConfig::default());
    send(&mut port, Time::ZERO, &[data(b"alone", 0)]);
    let mut got = 0;
    port.recv_each(Time(5), 9, &mut |_, _| got += 1);
    assert_eq!((got, port.next_deadline()), (0, Some(Time(1_000_005))));
    port.recv_each(Time(1_000_004), 9, &mut |_, _| got += 1);
    assert_eq!(got, 0);
    port.recv_each(Time(1_000_005), 9, &mut |_, _| got += 1);
    assert_eq!((got, port.next_deadline()), (1, None));
}

#[test]
fn corruption_flips_a_few_bits() {
    let (now, _, c) = run("corrupt=10%");
    assert!(about(c.fault_corrupted, 0.1), "{c:?}");
    assert_eq!(now.len(), N);
    let mut damaged = 0;
    let mut in_header = 0;
    for (i, packet) in now.iter().enumerate() {
        let mut good = [0xaa; 100];
        good[..4].copy_from_slice(&(i as u32).to_be_bytes());
        let bits: u32 = packet.1.iter().zip(good).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert!(bits <= 4 && packet.1.len() == 100);
        damaged += u64::from(bits > 0);
        in_header += u32::from(packet.1[..4] != good[..4]);
    }
    assert_eq!(damaged, c.fault_corrupted);
    assert!(in_header > 0 && u64::from(in_header) < damaged / 4);
}

#[test]
fn corrupting_the_shortest_packets_is_harmless() {
    let spec = "corrupt=100%".parse().unwrap();
    let mut port = FaultPort::new(Mock::new("127.0.0.1:1"), spec, &PortConfig::default());
    send(&mut port, Time::ZERO, &[data(b"", 0), data(b"a", 0)]);
    let mut got = Vec::new();
    port.recv_each(Time::ZERO, 9, &mut |_, b| got.push(b.to_vec()));
    assert_eq!(got[0], b"");
    assert_eq!(got[1].len(), 1);
    assert_ne!(got[1], b"a");
}

#[test]
fn delay_holds_each_packet_its_time() {
    let (now, later, c) = run("delay=50us..200us");
    assert!(now.is_empty());
    assert_eq!((later.len(), c.fault_delayed), (N, N as u64));
    let spec = "delay=50us".parse().unwrap();
    let mut port = FaultPort::new(Mock::new("127.0.0.1:1"), spec, &PortConfig::default());
    send(&mut port, Time::ZERO, &[data(b"1", 0), data(b"2", 0)]);
    let mut got = Vec::new();
    port.recv_each(Time(7), 9, &mut |_, b| got.push(b[0]));
    assert_eq!(port.next_deadline(), Some(Time(50_007)));
    port.recv_each(Time(50_006), 9, &mut |_, b| got.push(b[0]));
    assert!(got.is_empty());
    // A constant delay keeps the order.
    port.recv_each(Time(50_007), 9, &mut |_, b| got.push(b[0]));
    assert_eq!(got, b"12");
}

#[test]
fn trimming_cuts_data_and_marks_it() {
    let (now, _, c) = run("trim=5%,trimsize=60");
    assert!(about(c.fault_trimmed, 0.05), "{c:?}");
    for (meta, bytes) in &now {
        assert_eq!((meta.dscp == 5, bytes.len() == 60), (bytes.len() != 100, meta.dscp != 0));
    }
    let spec = "trim=100%".parse().unwrap();
    let mut port = FaultPort::new(Mock::new("127.0.0.1:1"), spec, &PortConfig::default());
    let long = [0; 100];
    let control = Sample { class: TrafficClass::Control, ..data(&long, 0) };
    send(&mut port, Time::ZERO, &[control, data(&long[..64], 0)]);
    let mut got = Vec::new();
    port.recv_each(Time::ZERO, 9, &mut |m, b| got.push((m.dscp, b.len())));
    assert_eq!(got, [(46, 100), (0, 64)], "control packets and short ones are never trimmed");
}

#[test]
fn a_black_hole_swallows_its_path() {
    let spec = "blackhole=3,blackhole=17".parse().unwrap();
    let config = PortConfig { paths: 16, ..PortConfig::default() };
    let mut port = FaultPort::new(Mock::new("127.0.0.1:1"), spec, &config);
    let paths = [0, 3, 3, 1, 2, 19, 4, 17];
    let names: Vec<u8> = (0..8).collect();
    let packets: Vec<_> = (0..8).map(|i| data(&names[i..=i], paths[i])).collect();
    let report = send(&mut port, Time::ZERO, &packets);
    // 19 is 3 and 17 is 1 modulo 16.
    assert_eq!((report.sent, report.bytes), (8, 3));
    assert_eq!(port.counters().fault_blackholed, 5);
    let mut got = Vec::new();
    port.recv_each(Time::ZERO, 9, &mut |_, b| got.push(b[0]));
    assert_eq!(got, [0, 4, 6]);
    // A full socket stops the burst at the same packet as without a black hole.
    port.inner.room = 1;
    assert_eq!(send(&mut port, Time::ZERO, &packets).sent, 4);
}

#[test]
fn specifications_are_read_or_explained() {
    let spec: FaultSpec = "loss=1%, reorder=2%,dup=0.5%,corrupt=0.1%,delay=50us..200us,trim=1%,\
                           trimsize=72,blackhole=3,blackhole=5,seed=7"
        .parse()
        .unwrap();
    assert_eq!(
        (spec.loss, spec.reorder, spec.dup, spec.corrupt, spec.trim),
        (0.01, 0.02, 0.005, 0.001, 0.01)
    );
    assert_eq!(spec.delay, Some((Span::micros(50), Span::micros(200))));
    assert_eq!((spec.trimsize, spec.blackhole, spec.seed), (72, vec![3, 5], 7));
    assert_eq!(
        "drop=0.25,delay=1.5ms".parse::<FaultSpec>().unwrap(),
        FaultSpec {
            loss: 0.25,
            delay: Some((Span::nanos(1_500_000), Span::nanos(1_500_000))),
            ..FaultSpec::default()
        }
    );
    for (text, expected) in [
        ("lose=1%", "\"lose=1%\" is not one of loss, reorder"),
        ("loss", "one of loss"),
        ("loss=101%", "a probability"),
        ("loss=-1", "a probability"),
        ("loss=nan", "a probability"),
        ("delay=5", "a time or a range"),
        ("delay=5ms..1ms", "a time or a range"),
        ("delay=1..2ms", "a time or a range"),
        ("blackhole=x", "number of a path"),
        ("seed=1.5", "64 bits"),
        ("trimsize=8", "at least 16"),
    ] {
        let error = text.parse::<FaultSpec>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
