//! Captures that the port of an endpoint writes, and their decryption.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use squall_base::{Batch, Datagram, Instance, JobKey, PairSecret, Purpose, Time, TrafficClass};
use squall_net::{Burst, PcapPort, PortConfig, SealPort, UdpPort};
use squall_net::{PcapSpec, Port as _};
use squall_seal::{KeyLogEntry, Pair, SourceId};
use squall_wire::{Handshake, Reason, Stage, WIRE_VERSION};

use super::command::{DecryptArgs, read_secrets, run};

const JOB_KEY: &[u8] = b"0123456789abcdef";
const JOB: u32 = 7;
const NONCE: u64 = 3;
const COOKIE: u64 = 4;

/// An endpoint's port, as the provider stacks it.
struct Endpoint {
    port: SealPort<PcapPort<UdpPort>>,
    instance: Instance,
    asked: bool,
    received: Vec<Vec<u8>>,
}

impl Endpoint {
    fn open(bind: &str, capture: &Path, asked: bool) -> Self {
        let config = PortConfig { bind: bind.parse().unwrap(), paths: 4, ..PortConfig::default() };
        let (udp, _) = UdpPort::open(&config).unwrap();
        let spec: PcapSpec = capture.to_str().unwrap().parse().unwrap();
        let capture = PcapPort::create(udp, &spec, usize::from(asked), &config).unwrap();
        let instance = Instance::new(0x1000 + u32::from(asked)).unwrap();
        Self { port: SealPort::new(capture, None), instance, asked, received: Vec::new() }
    }

    fn id(&self) -> SourceId {
        SourceId::new(self.instance, self.asked)
    }

    /// Returns what this endpoint and `peer` share after a handshake.
    fn pair(&self, peer: &Self, secret: &PairSecret) -> Pair {
        Pair {
            peer: peer.port.local_addr(),
            secret: secret.clone(),
            domain: JOB,
            own: self.id(),
            theirs: peer.id(),
            confirmed: true,
        }
    }

    /// Sends packets, each on a path of its own, and lets `peer` receive them.
    fn send(&mut self, peer: &mut Self, packets: &[Vec<u8>]) {
        let dst = peer.port.local_addr();
        for (path, packet) in (0..).zip(packets) {
            let len = packet.len() as u32;
            let datagram = Datagram {
                dst,
                path: path % 4,
                class: TrafficClass::Data,
                len,
                header: 0..len,
                payload: 0..0,
                trailer: len..len,
                tag: 0,
                fragment: false,
                followers: 0,
            };
            let batch =
                Batch { packets: vec![datagram], bytes: packet.clone(), slices: Vec::new() };
            assert_eq!(self.port.send(Time::ZERO, Burst::from_copies(&batch)).sent, 1);
        }
        let wanted = peer.received.len() + packets.len();
        for _ in 0..1000 {
            let Self { port, received, .. } = peer;
            port.recv_each(Time::ZERO, 64, &mut |_, bytes| received.push(bytes.to_vec()));
            if peer.received.len() == wanted {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{} of {wanted} packets", peer.received.len());
    }
}

/// The files of a test, which are captures of both ends and a key log, and the packets that were
/// sent.
struct Recording {
    folder: PathBuf,
    captures: [PathBuf; 2],
    key_log: PathBuf,
    job_key: PathBuf,
    /// Delivery packets in the order in which they were sent.
    packets: Vec<Vec<u8>>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Returns the values that the proofs of a handshake cover (docs/wire.md).
fn transcript(asker: &Endpoint, answerer: &Endpoint) -> Vec<u64> {
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let addrs = [asker, answerer].map(|end| end.port.local_addr());
    let ips = addrs.map(|addr| match addr.ip() {
        std::net::IpAddr::V4(ip) => u128::from(ip.to_ipv6_mapped()),
        std::net::IpAddr::V6(ip) => u128::from(ip),
    });
    let mut words = vec![
        pair(asker.instance.get(), answerer.instance.get()),
        NONCE,
        COOKIE,
        pair(WIRE_VERSION.into(), Handshake::ENCRYPTS),
    ];
    words.extend(ips.iter().flat_map(|ip| [(ip >> 64) as u64, *ip as u64]));
    words.push(pair(addrs[0].port().into(), addrs[1].port().into()));
    words
}

/// Records a handshake and packets in both directions.
fn record(name: &str, bind: &str, ending: &str) -> Recording {
    let folder = std::env::temp_dir().join(format!("squall-decrypt-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let captures = ["asker", "answerer"].map(|end| folder.join(format!("{end}-%e.{ending}")));
    let mut asker = Endpoint::open(bind, &captures[0], true);
    let mut answerer = Endpoint::open(bind, &captures[1], false);
    let transcript = transcript(&asker, &answerer);
    let secret = JobKey::new(JOB_KEY).derive_secret(&transcript);
    let handshake = |stage, from: &Endpoint, to: &Endpoint, purpose| {
        let packet = Handshake {
            stage,
            version: WIRE_VERSION,
            port: from.port.local_addr().port(),
            reason: Reason::None,
            nonce: NONCE,
            instance: from.instance.get(),
            expected: to.instance.get(),
            cookie: COOKIE,
            job_id: JOB,
            capabilities: Handshake::ENCRYPTS,
            proof: JobKey::new(JOB_KEY).prove(purpose, &transcript),
        };
        let mut bytes = vec![0; Handshake::LEN];
        packet.emit(&mut bytes);
        bytes
    };
    let hello = handshake(Stage::Hello, &asker, &answerer, Purpose::Confirm);
    let challenge = handshake(Stage::Challenge, &answerer, &asker, Purpose::Answer);
    let confirm = handshake(Stage::Confirm, &asker, &answerer, Purpose::Confirm);
    asker.send(&mut answerer, std::slice::from_ref(&hello));
    answerer.send(&mut asker, std::slice::from_ref(&challenge));
    let pairs = [asker.pair(&answerer, &secret), answerer.pair(&asker, &secret)];
    for (end, pair) in [&mut asker, &mut answerer].into_iter().zip(&pairs) {
        assert!(end.port.keys().unwrap().install(pair));
    }
    let key_log = folder.join("keys");
    let line = KeyLogEntry::new(asker.port.local_addr(), &pairs[0]).to_line();
    fs::write(&key_log, format!("# a comment\n{}", *line)).unwrap();
    let job_key = folder.join("job.key");
    fs::write(&job_key, [JOB_KEY, b"\n"].concat()).unwrap();
    // Requests of several lengths; Wireshark need not understand them.
    let data = |first: u8, count: usize| -> Vec<Vec<u8>> {
        (0..count).map(|n| [&[0x10, first][..], &vec![n as u8; n * 300]].concat()).collect()
    };
    let there = [vec![confirm.clone()], data(1, 5)].concat();
    asker.send(&mut answerer, &there);
    let back = data(2, 5);
    answerer.send(&mut asker, &back);
    assert_eq!(answerer.received[1..], there);
    assert_eq!(asker.received[1..], back);
    let packets = [vec![hello, challenge], there, back].concat();
    let captures = ["asker-1", "answerer-0"].map(|end| folder.join(format!("{end}.{ending}")));
    Recording { folder, captures, key_log, job_key, packets }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: DecryptArgs,
}

/// Runs the command with these arguments.
fn squall_decrypt(args: &[&Path]) -> Result<bool, String> {
    let words = [Path::new("decrypt")].into_iter().chain(args.iter().copied());
    let matches = Line::command().try_get_matches_from(words).map_err(|e| e.to_string())?;
    run(&Line::from_arg_matches(&matches).unwrap().args, &mut std::io::sink())
}

/// Returns the UDP payloads of a capture, sorted.
fn payloads(capture: &Path) -> Vec<Vec<u8>> {
    use super::capture::CaptureReader;
    use super::frame::UdpDatagram;
    let bytes = fs::read(capture).unwrap();
    let mut reader = CaptureReader::new(&bytes[..]).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if let Some((link, frame)) = record.frame() {
            let datagram = UdpDatagram::find(link, frame).unwrap();
            found.push(datagram.payload(frame).to_vec());
        }
    }
    assert!(!reader.cut);
    found.sort();
    found
}

#[test]
fn a_capture_of_the_port_is_decrypted_to_the_packets_that_were_sent() {
    for (name, bind, ending) in
        [("v4", "127.0.0.1:0", "pcap"), ("ng", "127.0.0.1:0", "pcapng"), ("v6", "[::1]:0", "pcap")]
    {
        let recording = record(name, bind, ending);
        let mut expected = recording.packets.clone();
        expected.sort();
        for capture in &recording.captures {
            assert_ne!(payloads(capture), expected);
            let out = capture.with_extension(format!("clear.{ending}"));
            let secrets = [("--keys", &recording.key_log), ("--job-key", &recording.job_key)];
            for (option, file) in secrets {
                let done = squall_decrypt(&[capture, Path::new(option), file]);
                assert_eq!(done, Ok(true));
                assert_eq!(payloads(&out), expected, "{name} {option}");
                fs::remove_file(&out).unwrap();
            }
        }
    }
}

#[test]
fn packets_that_cannot_be_decrypted_are_counted_and_stay() {
    use super::command::{PacketCounts, decrypt};
    let recording = record("kept", "127.0.0.1:0", "pcap");
    let [capture, other] = &recording.captures;
    let out = recording.folder.join("out.pcap");
    let mut none = squall_seal::RecordingKeys::new();
    let counts = decrypt(capture, &out, &mut none).unwrap();
    assert_eq!(counts, PacketCounts { clear: 3, without_secret: 10, ..Default::default() });
    assert_eq!(fs::read(&out).unwrap(), fs::read(capture).unwrap());
    let text = "0 packets decrypted, 3 in the clear, 10 without a secret, 0 with a wrong tag";
    assert_eq!(counts.to_string(), text);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&out), 0o600);
    // Neither a file that others may read nor one that a link names gets the content.
    let (open, linked) = (recording.folder.join("open"), recording.folder.join("linked"));
    fs::write(&open, "old").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
    fs::write(&linked, "kept").unwrap();
    let link = recording.folder.join("link");
    std::os::unix::fs::symlink(&linked, &link).unwrap();
    for out in [&open, &link] {
        decrypt(capture, out, &mut none).unwrap();
        assert_eq!(mode(out), 0o600, "{out:?}");
        assert_eq!(fs::read(out).unwrap(), fs::read(capture).unwrap());
    }
    assert_eq!(fs::read(&linked).unwrap(), b"kept");
    // The last byte of the file belongs to the tag of the last packet.
    let mut bytes = fs::read(capture).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(other, &bytes).unwrap();
    let line = fs::read_to_string(&recording.key_log).unwrap();
    let mut keys = squall_seal::RecordingKeys::new();
    for entry in line.lines().filter_map(|line| KeyLogEntry::from_line(line).unwrap()) {
        keys.add(entry.domain, &entry.secret, [entry.local.1, entry.peer.1]);
    }
    let counts = decrypt(other, &out, &mut keys).unwrap();
    let expected = PacketCounts { decrypted: 9, clear: 3, wrong_tag: 1, ..Default::default() };
    assert_eq!(counts, expected);
    assert_eq!(payloads(&out).len(), 13);
}

/// The bytes that were read are overwritten when they are dropped, so there must be no other copy.
#[test]
fn secrets_are_read_into_memory_that_does_not_move() {
    let file = std::env::temp_dir().join(format!("squall-secrets-{}", std::process::id()));
    for len in [0, 16, 300, 100_000] {
        fs::write(&file, vec![b'x'; len]).unwrap();
        let secrets: zeroize::Zeroizing<Vec<u8>> = read_secrets(&file).unwrap();
        assert_eq!((secrets.len(), secrets.capacity()), (len, len + 1));
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn secrets_that_do_not_fit_and_files_that_cannot_be_used_are_reported() {
    let recording = record("errors", "127.0.0.1:0", "pcap");
    let capture = recording.captures[0].as_path();
    let file = recording.folder.join("file");
    let wrong = |content: &str, option: &str| {
        fs::write(&file, content).unwrap();
        squall_decrypt(&[capture, Path::new(option), &file])
    };
    assert_eq!(wrong("another key of the job", "--job-key"), Ok(false));
    assert_eq!(wrong("# nothing yet\n", "--keys"), Ok(false));
    let error = wrong("short", "--job-key").unwrap_err();
    assert!(error.contains("it has 5 bytes, and a key has 16 to 256"), "{error}");
    let error = wrong("\nSQUALL_PAIR_SECRET 1\n", "--keys").unwrap_err();
    assert!(error.contains("no address with a port in line 2"), "{error}");
    let (keys, key_log) = (Path::new("--keys"), recording.key_log.as_path());
    let error = squall_decrypt(&[&file, keys, key_log]).unwrap_err();
    assert!(error.contains("neither pcap nor pcapng"), "{error}");
    let error = squall_decrypt(&[capture, keys, key_log, Path::new("-o"), capture]).unwrap_err();
    assert!(error.contains("this is the capture itself"), "{error}");
    let error = squall_decrypt(&[capture]).unwrap_err();
    assert!(error.contains("--keys"), "{error}");
    assert_eq!(payloads(capture).len(), recording.packets.len());
}

/// Wireshark finds no fault with lengths and checksums of a decrypted capture, if it is installed.
#[test]
fn wireshark_reads_the_decrypted_capture() {
    for (name, bind) in [("shark4", "127.0.0.1:0"), ("shark6", "[::1]:0")] {
        let recording = record(name, bind, "pcap");
        let [capture, _] = &recording.captures;
        let out = recording.folder.join("out.pcap");
        let args =
            [capture, Path::new("--keys"), &recording.key_log, Path::new("-o"), out.as_path()];
        assert_eq!(squall_decrypt(&args), Ok(true));
        let shark = Command::new("tshark")
            .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields"])
            .args(["-d", "udp.port==1-65535,data"])
            .args(["-e", "udp.checksum.status", "-e", "ip.checksum.status"])
            .args(["-e", "_ws.expert.message", "-e", "udp.payload", "-r"])
            .arg(&out)
            .output();
        let Ok(output) = shark else { return };
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Status 1 is good, 3 is not present.
        let start = if bind.starts_with('[') { "1\t\t\t" } else { "3\t1\t\t" };
        let hex = |packet: &Vec<u8>| packet.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let mut expected: Vec<String> =
            recording.packets.iter().map(|packet| format!("{start}{}", hex(packet))).collect();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }
}
