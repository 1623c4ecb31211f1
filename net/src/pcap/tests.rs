use std::fs;
use std::process::Command;

use super::*;
use crate::burst::tests::{Sample, send};
use crate::mock::Mock;

const SENT: Remark = Remark::Sent { path: 0, control: false };

fn spec(name: &str) -> PcapSpec {
    of_format(name, "pcap")
}

fn of_format(name: &str, extension: &str) -> PcapSpec {
    let file = std::env::temp_dir().join(format!("squall-net-test-{name}-%p-%e.{extension}"));
    file.to_str().unwrap().parse().unwrap()
}

/// Sends one data and one control packet there and back. Returns the bytes of the capture file.
fn capture(addr: &str, spec: &PcapSpec, tweak: impl Fn(&mut Mock)) -> (PathBuf, Vec<u8>) {
    let config = PortConfig { dscp_data: 10, ..PortConfig::default() };
    let mut mock = Mock::new(addr);
    tweak(&mut mock);
    let mut port = PcapPort::create(mock, spec, 7, &config).unwrap();
    let path = port.path().to_owned();
    let payload = [&b"pay"[..], &b"load"[..]];
    let data = Sample {
        dst: SocketAddr::new(port.local_addr().ip(), 5000),
        path: 2,
        class: TrafficClass::Data,
        header: b"header",
        payload: &payload,
        trailer: b"crc!",
    };
    let control = Sample { class: TrafficClass::Control, path: 0, ..data };
    send(&mut port, Time(1_000), &[data, control]);
    let mut got = 0;
    port.recv_each(Time(3_000), 9, &mut |_, _| got += 1);
    // The port is idle for long enough that everything is in the file.
    port.recv_each(Time(3_000) + FLUSH, 9, &mut |_, _| ());
    let bytes = fs::read(&path).unwrap();
    drop(port);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    (path, bytes)
}

/// Returns the time in nanoseconds and the packet of each record.
fn records(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), word(20)), (0xa1b2_3c4d, 0x0004_0002, 101));
    let mut at = 24;
    let mut found = Vec::new();
    while at < file.len() {
        let len = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, len);
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        found.push((time, file[at + 16..][..len].to_vec()));
        at += 16 + len;
    }
    found
}

#[test]
fn the_file_holds_ip_packets_v4() {
    let (path, bytes) = capture("10.0.0.1:4793", &spec("v4"), |_| ());
    let all = records(&bytes);
    assert_eq!(all.len(), 4);
    let (at, data) = &all[0];
    assert!(at.abs_diff(wall_clock()) < 60_000_000_000);
    assert_eq!(all[2].0 - at, 2_000);
    assert_eq!(data[..2], [0x45, (10 << 2) | 2]);
    assert_eq!(u16::from_be_bytes([data[2], data[3]]) as usize, data.len());
    let mut sum = Checksum::default();
    sum.add(&data[..20]);
    assert_eq!(sum.finish(), 0, "header with its checksum sums to zero");
    assert_eq!(data[12..20], [10, 0, 0, 1, 10, 0, 0, 1]);
    // Path 2 of the mock has source port 4795.
    assert_eq!(data[20..26], [0x12, 0xbb, 0x13, 0x88, 0, 25]);
    assert_eq!(&data[28..], b"headerpayloadcrc!");
    assert_eq!(all[1].1[1], 46 << 2);
    // The mock reports DSCP 0, ECT(0) and the sender.
    assert_eq!(all[2].1[1], 2);
    assert_eq!(all[2].1[20..24], [0x12, 0xb9, 0x12, 0xb9]);
    fs::remove_file(path).unwrap();
}

#[test]
fn the_file_holds_ip_packets_v6() {
    let (path, bytes) = capture("[2001:db8::1]:4793", &spec("v6"), |_| ());
    let all = records(&bytes);
    let packet = &all[0].1;
    assert_eq!(packet[0] >> 4, 6);
    assert_eq!((packet[0] << 4) | (packet[1] >> 4), (10 << 2) | 2);
    assert_eq!(packet.len(), 40 + 25);
    let mut sum = Checksum::default();
    sum.add(&[0, 25, 0, 17]);
    sum.add(&packet[8..]);
    assert_eq!(sum.finish(), 0, "pseudo header and datagram with its checksum sum to zero");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_capture_has_one_direction_on_request_and_only_accepted_packets() {
    let mut only = spec("tx");
    only.direction = Direction::Tx;
    let (path, bytes) = capture("10.0.0.1:1", &only, |_| ());
    assert_eq!(records(&bytes).len(), 2);
    fs::remove_file(path).unwrap();
    only.pattern = spec("full").pattern;
    let (path, bytes) = capture("10.0.0.1:1", &only, |mock| mock.room = 1);
    assert_eq!(records(&bytes).len(), 1);
    fs::remove_file(path).unwrap();
    let mut only = spec("rx");
    only.direction = Direction::Rx;
    let (path, bytes) = capture("10.0.0.1:1", &only, |_| ());
    assert_eq!(records(&bytes).len(), 2);
    fs::remove_file(path).unwrap();
}

/// Wireshark parses the file, if it is installed.
#[test]
fn wireshark_agrees() {
    for (name, addr) in [("shark4", "10.0.0.1:4793"), ("shark6", "[2001:db8::1]:4793")] {
        let (path, _) = capture(addr, &spec(name), |_| ());
        let shark = Command::new("tshark")
            .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields"])
            .args(["-d", "udp.port==1-65535,data"])
            .args(["-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.checksum.status"])
            .args(["-e", "ip.checksum.status", "-e", "_ws.expert.message"])
            .args(["-e", "udp.payload", "-r"])
            .arg(&path)
            .output();
        if let Ok(output) = shark {
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let payload = "6865616465727061796c6f616463726321";
            // Status 1 is good, 3 is not present.
            let (udp, ip) = if addr.starts_with('[') { (1, "") } else { (3, "1") };
            let line = |from, to| format!("{from}\t{to}\t{udp}\t{ip}\t\t{payload}");
            let want = [line(4795, 5000), line(4793, 5000), line(4793, 4793), line(4793, 4793)];
            assert_eq!(text.lines().collect::<Vec<_>>(), want);
        }
        fs::remove_file(path).unwrap();
    }
}

/// Returns the type and the body of each block of a pcapng file.
fn blocks(file: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let mut at = 0;
    let mut found = Vec::new();
    while at < file.len() {
        let len = word(at + 4) as usize;
        assert_eq!((len % 4, word(at + len - 4) as usize), (0, len), "block at {at}");
        found.push((word(at), &file[at + 8..at + len - 4]));
        at += len;
    }
    found
}

#[test]
fn pcapng_names_the_endpoint_and_comments_on_packets() {
    let (path, bytes) = capture("10.0.0.1:4793", &of_format("ng", "pcapng"), |_| ());
    let blocks = blocks(&bytes);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6]);
    let whose = String::from_utf8_lossy(blocks[0].1);
    let expected = format!("endpoint 7, 10.0.0.1:4793, of process {}: ", std::process::id());
    assert!(whose.contains(&expected) && whose.contains("squall "), "{whose}");
    let packets: Vec<(u64, String)> = blocks[2..]
        .iter()
        .map(|(_, body)| {
            let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
            let len = word(12) as usize;
            assert_eq!((word(0), word(16) as usize, body[20]), (0, len, 0x45));
            let options = body[20 + len.next_multiple_of(4)..].to_vec();
            (
                u64::from(word(4)) << 32 | u64::from(word(8)),
                String::from_utf8_lossy(&options).into_owned(),
            )
        })
        .collect();
    assert!(packets[0].0.abs_diff(wall_clock()) < 60_000_000_000);
    assert_eq!(packets[2].0 - packets[0].0, 2_000);
    assert!(packets[0].1.contains("path 2\0\0"), "{packets:?}");
    assert!(packets[1].1.contains("path 0, control\0"), "{packets:?}");
    assert!(!packets[2].1.contains("congestion"), "{packets:?}");
    fs::remove_file(path).unwrap();
}

#[test]
fn marks_and_trims_are_comments() {
    let spec = of_format("switch", "pcapng");
    let mut writer = CaptureWriter::create(spec.file(0), "a test").unwrap();
    let addr: SocketAddr = "10.0.0.1:4793".parse().unwrap();
    for (marked, trimmed) in [(true, false), (false, true), (true, true)] {
        let remark = Remark::Received { marked, trimmed };
        writer.write_packet(Time(5), (addr, addr, 0), b"x", remark);
    }
    let path = writer.path.clone();
    drop(writer);
    let bytes = fs::read(&path).unwrap();
    let said: Vec<String> = blocks(&bytes)[2..]
        .iter()
        .map(|(_, body)| String::from_utf8_lossy(body).into_owned())
        .collect();
    assert!(
        said[0].contains("congestion experienced\0") && said[1].contains("trimmed by a switch\0")
    );
    assert!(said[2].contains("congestion experienced, trimmed by a switch\0"), "{said:?}");
    fs::remove_file(path).unwrap();
}

/// Wireshark shows the comments, if it is installed.
#[test]
fn wireshark_shows_the_comments() {
    let (path, _) = capture("10.0.0.1:4793", &of_format("shark-ng", "pcapng"), |_| ());
    let shark = Command::new("tshark")
        .args(["-T", "fields", "-e", "frame.comment", "-e", "frame.packet_flags_direction", "-r"])
        .arg(&path)
        .output();
    if let Ok(output) = shark {
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.split_once('\t')).collect();
        let comments: Vec<&str> = lines.iter().map(|(comment, _)| *comment).collect();
        assert_eq!(comments, ["path 2", "path 0, control", "", ""]);
        let way =
            |(_, flags): &(&str, &str)| flags.trim_start_matches("0x").parse::<u32>().unwrap();
        let ways: Vec<u32> = lines.iter().map(way).collect();
        assert_eq!(ways, [2, 2, 1, 1], "out, out, in, in");
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn the_checksum_does_not_depend_on_the_pieces() {
    let bytes: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(37)).collect();
    let mut whole = Checksum::default();
    whole.add(&bytes);
    let whole = whole.finish();
    for cut in 0..bytes.len() {
        let mut parts = Checksum::default();
        parts.add(&bytes[..cut]);
        parts.add(&[]);
        parts.add(&bytes[cut..]);
        assert_eq!(parts.finish(), whole);
    }
    // This is the example of RFC 1071, section 3.
    let mut sum = Checksum::default();
    sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.finish(), !0xddf2);
}

#[test]
fn names_are_filled_in() {
    let pid = std::process::id();
    let file = |text: &str| {
        let spec: PcapSpec = text.parse().unwrap();
        spec.file(3).to_str().unwrap().to_owned()
    };
    assert_eq!(file("a/b.c/trace.pcap"), format!("a/b.c/trace-{pid}-3.pcap"));
    assert_eq!(file("a/b.c/trace"), format!("a/b.c/trace-{pid}-3"));
    assert_eq!(file(".trace"), format!(".trace-{pid}-3"));
    assert_eq!(file("%e.pcap"), "3.pcap");
    assert_eq!(file("100%%-%p%q%"), format!("100%-{pid}%q%"));
    assert!(!file("%h-%e").contains('%'));
    assert_eq!("x,rx".parse::<PcapSpec>().unwrap().direction, Direction::Rx);
    assert_eq!("x,tx".parse::<PcapSpec>().unwrap().direction, Direction::Tx);
    assert!(",tx".parse::<PcapSpec>().is_err() && "dir/".parse::<PcapSpec>().is_err());
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let spec: PcapSpec = "/nonexistent/%p.pcap".parse().unwrap();
    let mock = Mock::new("10.0.0.1:1");
    assert!(PcapPort::create(mock, &spec, 0, &PortConfig::default()).is_err());
}

/// A logger that keeps the messages of this thread.
struct Logged;

thread_local! {
    static LINES: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }
    fn flush(&self) {}
}

/// The last packets are in memory when the port closes. If they do not fit on the disk, the writer
/// logs that, too.
#[test]
fn a_full_disk_at_the_end_of_a_capture_is_logged() {
    log::set_logger(&Logged).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let mut writer = CaptureWriter::create("/dev/full".into(), "a test").unwrap();
    let addr = "10.0.0.1:1".parse().unwrap();
    writer.write_packet(Time(1), (addr, addr, 0), b"payload", SENT);
    LINES.with_borrow(|lines| assert!(lines.is_empty(), "{lines:?}"));
    drop(writer);
    LINES.with_borrow(|lines| {
        let [line] = &lines[..] else { unreachable!("one line, not {lines:?}") };
        assert!(line.contains("/dev/full") && line.contains("No space left"), "{line}");
    });
}
