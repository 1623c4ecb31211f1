//! Helpers of the golden tests, which compare an algorithm with numbers worked by hand.

use alloc::sync::Arc;

use squall_base::{Rate, Span};

use crate::fair::Fairness;
use crate::network::NetworkProfile;
use crate::registry::SenderConfig;

/// Checks that two numbers are equal up to single precision.
#[track_caller]
pub(crate) fn close(is: f32, should: f32) {
    assert!((is - should).abs() <= should.abs() * 1e-5, "is {is}, should be {should}");
}

/// Returns the state of VAI and SF for the algorithm that `text` names, on the reference network of
/// 100 Gb/s, 12 us and packets of 4096 bytes.
pub(crate) fn fairness<R: Default>(text: &str) -> Fairness<R> {
    let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true);
    let config = SenderConfig::by_name(text, &network).expect("allowed");
    Fairness::new(Arc::new(config.fair().expect("it supports VAI and SF")))
}
