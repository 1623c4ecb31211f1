//! Tests with statistics pages as endpoints write them, read as a user would.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use squall_base::{CounterRow, Merge};
use squall_monitor::{
    ADDRESS, CARDS, Counter, Description, JobPlace, PageLayout, StatisticsPage, address_words,
    card_counters, file_name, path_words, start_ticks,
};

use super::json::document;
use super::metrics::{Exposition, exposition};
use super::pages::PageDirectory;
use super::rates::{History, Row, jobs};
use super::screen::View;
use super::serve::{Listen, serve};
use super::text::{cells, page, scaled};
use super::why::why;

const SECOND: u64 = 1_000_000_000;
const NAMES: [&str; 9] = [
    "tx_payload_bytes",
    "data_packets",
    "retransmissions",
    "retx_trimmed",
    "rx_acks",
    "rx_ce_echoes",
    "rx_overflow",
    "timeouts",
    "rx_penalties",
];

/// An endpoint of this process that writes pages in files, without a mapping.
struct Endpoint {
    page: StatisticsPage,
    words: Vec<AtomicU64>,
    path: PathBuf,
}

impl Endpoint {
    fn new(directory: &Path, rank: u32, pid: u32, started: u64) -> Self {
        let counter = |name, merge| {
            Counter::new(&CounterRow { name, unit: "packets", merge, help: "Counts." })
        };
        let mut counters: Vec<Counter> =
            NAMES.iter().map(|name| counter(name, Merge::Sum)).collect();
        counters.push(counter("cwnd_min", Merge::Min));
        counters.push(counter("detours", Merge::Sum));
        counters.push(counter("tx_sealed", Merge::Sum));
        counters.extend(card_counters(2));
        let flow = [
            "peer",
            "initiator",
            "bytes",
            "packets",
            "retransmissions",
            "cwnd",
            "paths",
            "avoided",
            "frozen",
        ];
        let flow = flow.map(str::to_owned).into_iter().chain(path_words(2));
        let description = Description {
            pid,
            started,
            endpoint: rank,
            local: format!("10.0.0.{rank}:4793"),
            interface: "eth0".to_owned(),
            host: "n1".to_owned(),
            program: "a \"quoted\" program".to_owned(),
            version: "0.1.0".to_owned(),
            made: SECOND,
            choices: [("cc", "nscc"), (CARDS, "eth0 eth1")]
                .map(|(name, chosen)| (name.to_owned(), chosen.to_owned()))
                .to_vec(),
            place: JobPlace { job: "job-1".to_owned(), rank: Some(rank), ranks: Some(2) },
            counters,
            flow: flow.chain(ADDRESS.map(str::to_owned)).collect(),
        };
        let layout = PageLayout::new(&description, 4);
        let words: Vec<AtomicU64> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        let page = StatisticsPage::create(layout, &words).expect("room");
        Self { page, words, path: directory.join(file_name(&description)) }
    }

    /// Creates an endpoint of this process, which runs.
    fn own(directory: &Path, rank: u32) -> Self {
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
        Self::new(directory, rank, std::process::id(), start_ticks(&stat).expect("a start"))
    }

    /// Writes counters in the order of their names. Counters beyond those given are zero.
    fn write<const N: usize>(&self, at: u64, given: [u64; N], flow_bytes: u64) {
        let mut counters = [0; NAMES.len() + 3 + 8];
        counters[..N].copy_from_slice(&given);
        // What the second card sent.
        counters[NAMES.len() + 3 + 5] = flow_bytes;
        let peer = address_words("10.0.0.9:4793".parse().expect("literal"));
        let flow = [3, 1, flow_bytes, 100, 1, 65536, 2, 1, 1, 75, 9, 0, 25, 0, 1];
        let flow = flow.into_iter().chain(peer);
        self.page.write(&self.words, at, counters, (1, [flow]));
        let bytes = self.words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes());
        fs::write(&self.path, bytes.collect::<Vec<u8>>()).expect("room");
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o600)).expect("ours");
    }
}

/// Creates a directory as endpoints do.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("squall-top-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("ours");
    path
}

fn pages(directory: &Path) -> PageDirectory {
    PageDirectory::of(rustix::process::geteuid().as_raw(), Some(directory.to_owned()))
}

fn look(pages: &PageDirectory, history: &mut History, now: u64) -> Vec<Row> {
    history.advance(pages.look(now).expect("readable").seen)
}

#[test]
fn what_happened_between_two_looks_is_shown() {
    let directory = directory("rates");
    let (one, two) = (Endpoint::own(&directory, 0), Endpoint::own(&directory, 1));
    let (pages, mut history) = (pages(&directory), History::default());
    one.write(2 * SECOND, [1000, 100, 0, 0, 50, 0, 0, 0, 0, 70], 1000);
    two.write(2 * SECOND, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
    let rows = look(&pages, &mut history, 2 * SECOND);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].lately.of("tx_payload_bytes"), 1000, "since it was enabled");
    one.write(4 * SECOND, [5000, 1100, 20, 20, 150, 0, 0, 0, 0, 60, 0, 9], 7000);
    let rows = look(&pages, &mut history, 4 * SECOND);
    let lately = &rows[0].lately;
    assert_eq!((lately.span.0, lately.of("tx_payload_bytes")), (2 * SECOND, 4000));
    assert_eq!(lately.per_second(lately.of("tx_payload_bytes")).round(), 2000.0);
    assert_eq!((rows[0].flow_bytes[0], lately.of("cwnd_min")), (6000, 60));
    assert!(
        why(&rows[0])
            .starts_with("2.0 % of the packets are sent again, most because the network trims")
    );
    assert_eq!(rows[1].lately.span.0, 0, "it wrote nothing since");
    assert!(why(&rows[1]).starts_with("not served for 2"), "{}", why(&rows[1]));
    let jobs = jobs(&rows);
    let shown = page(&rows, &jobs);
    let parts =
        [" time-outs, encrypted\n", " at 10.0.0.0:4793, encrypted: ", " at 10.0.0.1:4793: "];
    assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    let of_job =
        |name: &str| job.counters.iter().find(|(row, _)| row.name == name).map(|(_, v)| *v);
    assert_eq!((job.name.as_str(), job.processes, job.ranks), ("job-1", 1, Some(2)));
    assert_eq!((of_job("tx_payload_bytes"), of_job("cwnd_min")), (Some(5000), Some(60)));
    let text = page(&rows, &jobs);
    assert!(text.contains("job-1: 1 of 2 processes") && text.contains("2.00k"), "{text}");
    assert!(text.contains("; cards send eth0 0, eth1 3.00k B/s\n"), "{text}");
    fs::remove_dir_all(&directory).expect("ours");
}

#[test]
fn each_cause_has_its_sentence() {
    let directory = directory("why");
    let endpoint = Endpoint::own(&directory, 0);
    let said = |counters: [u64; 10]| {
        endpoint.write(3 * SECOND, counters, 0);
        why(&look(&pages(&directory), &mut History::default(), 3 * SECOND)[0])
    };
    assert_eq!(said([1000, 100, 0, 0, 50, 0, 0, 0, 0, 0]), "nothing limits it");
    assert!(said([0, 100, 0, 0, 50, 0, 3, 0, 0, 0]).contains("net.core.rmem_max"));
    assert!(
        said([0, 100, 10, 0, 0, 0, 0, 4, 0, 0]).starts_with("peers do not answer: 4 time-outs")
    );
    assert!(
        said([0, 1000, 0, 0, 100, 0, 0, 0, 20, 0])
            .contains("20.0 % of the acknowledgements ask for less")
    );
    assert!(said([0, 1000, 0, 0, 100, 30, 0, 0, 0, 0]).contains("30.0 % of the acknowledgements"));
    let detoured = [1000, 100, 5, 0, 50, 0, 0, 5, 0, 0, 2];
    endpoint.write(3 * SECOND, detoured, 0);
    let row = &look(&pages(&directory), &mut History::default(), 3 * SECOND)[0];
    assert!(why(row).contains("left them for other source ports, 2 in all"), "{}", why(row));
    fs::remove_dir_all(&directory).expect("ours");
}

#[test]
fn the_dead_are_shown_and_strangers_are_not() {
    let directory = directory("trust");
    // No process can have this number: the largest is 2^22.
    let dead = Endpoint::new(&directory, 7, 1 << 30, 1);
    dead.write(2 * SECOND, [9, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
    fs::write(directory.join("1-2-3"), b"not a board").expect("room");
    fs::set_permissions(directory.join("1-2-3"), fs::Permissions::from_mode(0o600)).expect("ours");
    fs::write(directory.join("notes"), b"ignored").expect("room");
    let open = Endpoint::new(&directory, 8, (1 << 30) + 1, 1);
    open.write(2 * SECOND, [0; 10], 0);
    fs::set_permissions(&open.path, fs::Permissions::from_mode(0o666)).expect("ours");
    std::os::unix::fs::symlink(&dead.path, directory.join("4-5-6")).expect("room");
    let look = pages(&directory).look(3 * SECOND).expect("readable");
    let [seen] = &look.seen[..] else { panic!("{:?}", look.seen) };
    assert!(!seen.alive && seen.snapshot.description.endpoint == 7);
    let mut refused: Vec<String> =
        look.refused.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect();
    refused.sort();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused.iter().any(|text| text.contains("another user, or others may write it")));
    let rows = History::default().advance(look.seen);
    assert!(why(&rows[0]).contains("its process is gone"));
    assert_eq!(cells(&rows[0])[1], format!("{} gone", 1 << 30));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("ours");
    let refused = pages(&directory).look(0).expect_err("others may write there");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    fs::remove_dir_all(&directory).expect("ours");
    assert!(pages(&directory).look(0).expect("no directory is no endpoint").seen.is_empty());
}

#[test]
fn scripts_get_one_document() {
    let directory = directory("json");
    let endpoint = Endpoint::own(&directory, 1);
    endpoint.write(2 * SECOND, [1000, 100, 0, 0, 50, 0, 0, 0, 0, 70], 1000);
    let rows = look(&pages(&directory), &mut History::default(), 2 * SECOND);
    let shown = document(&rows, &jobs(&rows));
    let first = &shown["endpoints"][0];
    assert_eq!((first["rank"].as_u64(), first["alive"].as_bool()), (Some(1), Some(true)));
    assert_eq!(first["counters"]["tx_payload_bytes"], 1000);
    assert_eq!(first["flows"][0]["address"], "10.0.0.9:4793");
    let paths = serde_json::json!([
        {"path": 0, "packets": 75, "marks": 9, "lost": 0},
        {"path": 1, "packets": 25, "marks": 0, "lost": 1},
    ]);
    assert_eq!(first["flows"][0]["by_path"], paths);
    assert!(first["flows"][0].get("path0_marks").is_none());
    assert_eq!(
        (&first["flows"][0]["cwnd"], first["choices"]["cc"].as_str()),
        (&65536.into(), Some("nscc"))
    );
    assert!(first["flows"][0].get("ip_low").is_none());
    assert_eq!(shown["jobs"][0]["counters"]["cwnd_min"], 70);
    fs::remove_dir_all(&directory).expect("ours");
}

#[test]
fn the_screen_has_jobs_endpoints_reasons_and_flows() {
    let directory = directory("screen");
    let endpoint = Endpoint::own(&directory, 1);
    endpoint.write(2 * SECOND, [1000, 100, 0, 0, 50, 0, 0, 0, 0, 70], 1000);
    let mut view = View::default();
    let mut terminal = Terminal::new(TestBackend::new(140, 24)).expect("a terminal");
    for (rows, expected) in [
        (look(&pages(&directory), &mut History::default(), 2 * SECOND), "10.0.0.9:4793"),
        (
            look(&pages(&directory), &mut History::default(), 2 * SECOND),
            "2, 1 avoided, frozen  75 25!",
        ),
        (Vec::new(), "no endpoint of this user is open"),
    ] {
        view.take((rows, Vec::new()));
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        let text: String =
            terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        assert!(text.contains(expected), "{text}");
    }
    fs::remove_dir_all(&directory).expect("ours");
}

fn ask(address: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET /metrics HTTP/1.0\r\nAccept: {accept}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn collectors_get_either_format() {
    let directory = directory("metrics");
    let endpoint = Endpoint::own(&directory, 1);
    endpoint.write(2 * SECOND, [1000, 100, 0, 0, 50, 0, 0, 0, 0, 70], 1000);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound").to_string();
    drop(free);
    let stop = Arc::new(AtomicBool::new(false));
    let server = std::thread::spawn({
        let (stop, pages, address) = (Arc::clone(&stop), pages(&directory), address.clone());
        move || {
            let listen: Listen = address.parse().expect("loopback");
            let look = || Ok(History::default().advance(pages.look(2 * SECOND)?.seen));
            serve(&listen, &stop, look)
        }
    });
    let ready = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        TcpStream::connect(&address).is_ok()
    });
    assert!(ready, "it listens soon");
    let plain = ask(&address, "*/*");
    assert!(plain.contains("text/plain; version=0.0.4"), "{plain}");
    assert!(plain.contains("# HELP squall_tx_payload_bytes_total Counts.\n# TYPE squall_tx_payload_bytes_total counter\nsquall_tx_payload_bytes_total{job_name=\"job-1\",rank=\"1\","));
    assert!(plain.contains("program=\"a \\\"quoted\\\" program\""), "{plain}");
    let marks = plain.split_once("# TYPE squall_path_marks_total counter\n").expect("a family").1;
    let marks: Vec<&str> = marks.lines().take_while(|line| !line.starts_with('#')).collect();
    let ends = ["peer=\"10.0.0.9:4793\",initiator=\"1\",path=\"0\"} 9", "path=\"1\"} 0"];
    assert!(
        marks.len() == 2 && marks.iter().zip(ends).all(|(m, end)| m.ends_with(end)),
        "{marks:?}"
    );
    assert!(marks[0].starts_with("squall_path_marks_total{job_name=\"job-1\",rank=\"1\","));
    let open = ask(&address, "application/openmetrics-text; version=1.0.0");
    assert!(open.contains("# TYPE squall_path_lost counter\nsquall_path_lost_total{"), "{open}");
    assert!(
        open.contains("# TYPE squall_tx_payload_bytes counter\n") && open.ends_with("# EOF\n"),
        "{open}"
    );
    stop.store(true, Ordering::Relaxed);
    server.join().expect("no panic").expect("it served");
    fs::remove_dir_all(&directory).expect("ours");
    assert!("0.0.0.0:9000".parse::<Listen>().expect_err("not loopback").contains("127.0.0.1:PORT"));
    assert!("nonsense".parse::<Listen>().is_err());
    assert_eq!("unix:/run/x".parse(), Ok(Listen::Unix("/run/x".into())));
    let rows = Vec::new();
    assert_eq!(exposition(&rows, Exposition::OpenMetrics), "# EOF\n");
}

#[test]
fn numbers_have_three_digits() {
    let shown: Vec<String> =
        [0.0, 7.0, 7.25, 12.34, 999.4, 999.6, 1234.0, 5.0e9].into_iter().map(scaled).collect();
    assert_eq!(shown, ["0", "7", "7.25", "12.3", "999", "1.00k", "1.23k", "5.00G"]);
}
