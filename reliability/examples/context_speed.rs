//! How many packets a second the contexts of two endpoints handle on one core, both ends together,
//! without a network: `cargo run --release -p squall-reliability --example context_speed`.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // it measures, and prints what

use std::time::Instant;

use squall_reliability::base::{Rate, Span, Time};
use squall_reliability::{
    Arrival, Config, ControlPacket, Event, NewPacket, PdcId, Pdcs, PeerKey, RxVerdict, cc,
};

const PEER: PeerKey = PeerKey(0);

fn config(bytes: u32, seed: u64) -> Config {
    let cc = cc::NetworkProfile::new(Rate::gbps(100), Span::micros(20), bytes, true);
    let cc = cc::SenderConfig::by_name("nscc", &cc).expect("sound");
    Config::new(bytes, cc, cc::PathsConfig::reps(64).expect("sound"), seed)
}

/// Moves `count` packets of `bytes` in batches of `batch` from one end to the other.
fn run(count: u32, bytes: u32, batch: u32) -> f64 {
    let mut left: Pdcs<u32> = Pdcs::new(config(bytes, 1));
    let mut right: Pdcs<u32> = Pdcs::new(config(bytes, 2));
    let mut now = Time(1000);
    let id: PdcId = left.open(now, PEER).expect("room");
    let (mut next, mut acked) = (0, 0);
    let start = Instant::now();
    while acked < count {
        now += Span::micros(10);
        for at in 0..batch.min(count - next) {
            let packet =
                NewPacket { desc: next, bytes, last: at + 1 == batch, prompt: false, backlog: 0 };
            let Ok(grant) = left.next_packet(now, id, &packet) else { break };
            next += 1;
            let meta = Arrival { bytes, ..Arrival::default() };
            if let RxVerdict::Deliver(delivery) = right.rx_request(now, PEER, &grant.pds, &meta) {
                right.accept(now, delivery, None);
            }
        }
        if right.poll_timeout().is_some_and(|when| when <= now) {
            right.handle_timeout(now);
        }
        if left.poll_timeout().is_some_and(|when| when <= now) {
            left.handle_timeout(now);
        }
        while let Some(out) = right.poll_control(now) {
            if let ControlPacket::Ack { pds, response } = out.packet {
                left.rx_ack(now + Span::micros(10), PEER, &pds, response.as_ref());
            }
        }
        while let Some(out) = left.poll_control(now) {
            if let ControlPacket::Control(control) = out.packet {
                right.rx_control(now, PEER, &control);
            }
        }
        while let Some(event) = left.poll_event() {
            acked += u32::from(matches!(event, Event::Acked { .. }));
        }
    }
    f64::from(count) / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    for (bytes, batch) in [(128, 1), (128, 64), (8192, 8), (16_384, 4)] {
        let mut rates: Vec<f64> = (0..5).map(|_| run(2_000_000, bytes, batch)).collect();
        rates.sort_by(f64::total_cmp);
        println!("{bytes:>6} B, batches of {batch:>2}: {:.1} M packets/s", rates[2]);
    }
}
