//! Program that `ci/run bench cc` runs under an instruction counter: it executes every case of one
//! algorithm a number of times, in a function with the case's name.
//!
//! `instructions sender NAME TIMES` or `instructions selector NAME TIMES`; prints `state BYTES`.
//! With a kind alone it prints the names.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::process::ExitCode;

use squall_cc::base::{Rate, Rng, Span, Time};
use squall_cc::{
    Feedback, FeedbackExtension, FeedbackKind, Hops, IntHop, NetworkProfile, PathSelector,
    PathSignal, Paths, PathsConfig, Sender, SenderCc, SenderConfig, SentPacket,
};

const MTU: u32 = 4096;
const BASE: Span = Span::micros(12);
/// Number of paths, and of packets in the window.
const PATHS: u16 = 64;

/// Defines one case of the senders: a number of reports, `apart` in time, each passed by a call
/// that cannot be inlined. The compiler would merge two cases with the same body, so each reads its
/// name.
macro_rules! reports {
    ($($case:ident: $apart:expr, $feedback:expr;)+) => {
        $(
            #[inline(never)]
            fn $case(sender: &mut Sender, feedback: &Feedback<'_>) {
                sender.on_feedback(feedback);
                black_box(stringify!($case));
            }
        )+

        fn all_reports(config: &SenderConfig, times: u32) {
            $({
                let mut feedback: Feedback<'_> = $feedback;
                let mut sender = Sender::new(config, Time::ZERO);
                warm(&mut sender);
                feedback.now = Time(1_000_000);
                for sent in 0..times {
                    feedback.now += $apart;
                    let hops = telemetry(feedback.now, sent);
                    let with_records = Feedback { extension: FeedbackExtension::Telemetry(&hops), ..feedback };
                    $case(black_box(&mut sender), black_box(&with_records));
                }
            })+
        }
    };
}

/// Returns the records of three switches in packet number `sent`.
fn telemetry(now: Time, sent: u32) -> Hops {
    let record = |hop| IntHop {
        hop,
        at: now,
        tx_bytes: u64::from(sent) * u64::from(MTU),
        queue: hop * 10_000,
        line: Rate::gbps(100),
    };
    [1, 2, 3].into_iter().map(record).collect()
}

/// Returns a context in operation, which has sent packets and received acknowledgements.
fn warm(sender: &mut Sender) {
    let mut now = Time(900_000);
    for _ in 0..100 {
        now += Span(330);
        let _ = sender
            .on_send(now, &SentPacket { bytes: MTU, backlog: 1 << 20, ..SentPacket::default() });
        let extension = FeedbackExtension::Credit(1 << 20);
        sender.on_feedback(&Feedback { now, in_flight: 50_000, extension, ..ack(false, 5) });
    }
}

/// Returns an acknowledgement of one packet after `delay` microseconds in queues.
fn ack(ecn: bool, delay: u64) -> Feedback<'static> {
    Feedback {
        bytes: MTU,
        packets: 1,
        ecn,
        marked: u16::from(ecn),
        rtt: Some(BASE + Span::micros(delay)),
        delivered: Some(40 * u64::from(MTU)),
        penalty: Some(0),
        ..Feedback::default()
    }
}

fn of(kind: FeedbackKind) -> Feedback<'static> {
    Feedback { kind, bytes: MTU, packets: 1, ..Feedback::default() }
}

/// Time between two packets at 100 Gb/s.
const SOON: Span = Span(330);
/// More than a base round-trip time, so that everything that happens once in that time is due.
const LATE: Span = Span::micros(13);

reports! {
    empty: SOON, ack(false, 0);
    empty_late: LATE, ack(false, 0);
    below: SOON, ack(false, 5);
    below_late: LATE, ack(false, 5);
    above: SOON, ack(false, 11);
    above_late: LATE, ack(false, 11);
    marked_below: SOON, ack(true, 5);
    marked_below_late: LATE, ack(true, 5);
    marked_above: SOON, ack(true, 11);
    marked_above_late: LATE, ack(true, 11);
    trimmed: SOON, of(FeedbackKind::Nacked { trimmed: true, last_hop: false });
    trimmed_late: LATE, of(FeedbackKind::Nacked { trimmed: true, last_hop: false });
    lost: SOON, of(FeedbackKind::Lost);
    timed_out: LATE, of(FeedbackKind::TimedOut);
    notified: LATE, of(FeedbackKind::Notified);
    round_end: LATE, Feedback { round_end: true, ..ack(true, 60) };
}

#[inline(never)]
fn ignore(sender: &mut Sender, feedback: &Feedback<'_>) {
    let _ = black_box((sender, feedback));
}

/// Measures the cost of a case besides the call to the algorithm.
#[inline(never)]
fn nothing(sender: &mut Sender, feedback: &Feedback<'_>) {
    ignore(sender, feedback);
    black_box("nothing");
}

#[inline(never)]
fn budget(sender: &Sender, now: Time) -> bool {
    sender.budget(now).allows(now, 50_000, MTU)
}

#[inline(never)]
fn on_send(sender: &mut Sender, now: Time, sending: &SentPacket) {
    let _ = black_box(sender.on_send(now, sending));
}

fn sender(config: &SenderConfig, times: u32) {
    all_reports(config, times);
    let mut sender = Sender::new(config, Time::ZERO);
    warm(&mut sender);
    let sending = SentPacket { bytes: MTU, backlog: 1 << 20, ..SentPacket::default() };
    let mut now = Time(1_000_000);
    for _ in 0..times {
        now += SOON;
        nothing(black_box(&mut sender), black_box(&of(FeedbackKind::Acked)));
        black_box(budget(black_box(&sender), black_box(now)));
        on_send(black_box(&mut sender), black_box(now), black_box(&sending));
    }
}

/// Defines one case of the selectors.
macro_rules! signals {
    ($($case:ident: $signal:ident;)+) => {
        $(
            #[inline(never)]
            fn $case(paths: &mut Paths, now: Time, path: u16) {
                paths.on_feedback(now, path, PathSignal::$signal);
                black_box(stringify!($case));
            }
        )+

        fn all_signals(config: &PathsConfig, times: u32) {
            $({
                let mut paths = Paths::new(config, Rng::new(1));
                let mut now = Time(1_000_000);
                for i in 0..times {
                    now += SOON;
                    let path = i as u16 % PATHS;
                    $case(black_box(&mut paths), black_box(now), black_box(path));
                }
            })+
        }
    };
}

signals! {
    good: Good;
    ecn: Ecn;
    nack: Nack;
    timeout: Timeout;
}

#[inline(never)]
fn pick(paths: &mut Paths, now: Time) -> u16 {
    paths.pick(now, u32::from(PATHS))
}

fn selector(config: &PathsConfig, times: u32) {
    all_signals(config, times);
    let mut paths = Paths::new(config, Rng::new(1));
    let mut now = Time(1_000_000);
    for _ in 0..times {
        now += SOON;
        // Reports every path as good, so that there are paths to recycle.
        let path = black_box(pick(black_box(&mut paths), black_box(now)));
        paths.on_feedback(now, path, PathSignal::Good);
    }
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let times = args.get(2).and_then(|times| times.parse().ok()).unwrap_or(1000);
    let network = NetworkProfile::new(Rate::gbps(100), BASE, MTU, true);
    match (args.first().map(String::as_str), args.get(1)) {
        (Some("sender"), None) => {
            SenderConfig::NAMES.iter().for_each(|(name, _)| println!("{name}"));
        }
        (Some("selector"), None) => {
            PathsConfig::NAMES.iter().for_each(|(name, _)| println!("{name}"));
        }
        (Some("sender"), Some(name)) => match SenderConfig::by_name(name, &network) {
            Ok(config) => {
                println!("state {}", Sender::new(&config, Time::ZERO).state_bytes());
                sender(&config, times);
            }
            Err(error) => return refuse(&error),
        },
        (Some("selector"), Some(name)) => match PathsConfig::by_name(name, PATHS) {
            Ok(config) => {
                println!("state {}", Paths::new(&config, Rng::new(1)).state_bytes());
                selector(&config, times);
            }
            Err(error) => return refuse(&error),
        },
        _ => return refuse(&"usage: instructions sender|selector [NAME [TIMES]]"),
    }
    ExitCode::SUCCESS
}

fn refuse(why: &dyn std::fmt::Display) -> ExitCode {
    println!("{why}");
    ExitCode::FAILURE
}
