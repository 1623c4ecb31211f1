//! Each step with numbers worked by hand: packets of 4096 bytes, a product of 150 000.

use super::*;
use crate::network::NetworkProfile;
use crate::tuning::Tunable;
use squall_base::{Rate, Span};

const MTU: u32 = 4096;

fn fresh() -> @TYPE@ {
    let config = @TYPE@Config::new(&NetworkProfile::new(Rate::gbps(100), Span::micros(12), MTU, true));
    config.check().expect("in range");
    @TYPE@::new(Arc::new(config), Time::ZERO)
}

/// The window in packets after one more ACK, marked or not, which ends a round.
fn round(cc: &mut @TYPE@, ecn: bool) -> f32 {
    let packet = Feedback { bytes: MTU, packets: 1, ecn, round_end: true, ..Feedback::default() };
    cc.on_feedback(&packet);
    cc.cwnd / MTU as f32
}

#[test]
fn a_clean_round_adds_a_packet_and_a_marked_one_takes_half() {
    let mut cc = fresh();
    assert_eq!(cc.budget(Time::ZERO).window, Some(150_000));
    let first = 150_000.0 / MTU as f32;
    assert!((round(&mut cc, false) - first - 1.0).abs() < 1e-3);
    assert!((round(&mut cc, true) - (first + 1.0) / 2.0).abs() < 1e-3);
}

#[test]
fn the_window_stays_within_its_bounds() {
    let mut cc = fresh();
    (0..100).for_each(|_| {
        round(&mut cc, false);
    });
    assert!((cc.cwnd - 1.25 * 150_000.0).abs() < 1.0, "{}", cc.cwnd);
    (0..100).for_each(|_| {
        round(&mut cc, true);
    });
    assert!((cc.cwnd - MTU as f32).abs() < 1e-3, "{}", cc.cwnd);
}
