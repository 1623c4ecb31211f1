//! Section III-B: the rate is the line's share, at once; III-C: or DCQCN's, where that is less. On 100 Gb/s and 4.16 us, a
//! bandwidth-delay product of 52 000 bytes.

use super::*;
use crate::controller::{FeedbackKind, LineShare, ReceiverConfig, SenderParameters};
use crate::network::NetworkProfile;
use crate::registry::{Sender, SenderConfig};
use squall_base::Span;

fn network() -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), Span::nanos(4160), 1064, false)
}

fn named(text: &str) -> Sender {
    let config = SenderConfig::by_name(text, &network()).expect("allowed");
    Sender::new(&config, Time::ZERO)
}

/// An acknowledgement that says one of so many.
fn share(sender: &mut Sender, senders: u16) -> u64 {
    let share = LineShare::new(senders, WHOLE_SHARE / senders);
    let extension = share.map_or(FeedbackExtension::None, FeedbackExtension::Share);
    sender.on_feedback(&Feedback { extension, bytes: 1064, packets: 1, ..Feedback::default() });
    rate(sender)
}

/// In Mb/s.
fn rate(sender: &Sender) -> u64 {
    (sender.budget(Time::ZERO).rate.expect("a rate").0 + 500_000) / 1_000_000
}

#[test]
fn a_flow_starts_at_line_rate_and_takes_its_share_at_once() {
    let mut sender = named("dart");
    assert_eq!(rate(&sender), 100_000);
    assert_eq!(share(&mut sender, 2), 50_000);
    assert_eq!(share(&mut sender, 16), 6_250);
    // 10922 of 32768.
    assert_eq!(share(&mut sender, 3), 33_331);
    assert_eq!(share(&mut sender, 1), 100_000);
}

#[test]
fn no_more_than_a_bandwidth_delay_product_is_in_flight() {
    assert_eq!(named("dart").budget(Time::ZERO).window, Some(52_000));
    assert_eq!(named("dart:cap=0").budget(Time::ZERO).window, None);
    assert_eq!(named("dart:cap=0.001").budget(Time::ZERO).window, Some(1064), "a packet");
}

#[test]
fn eta_leaves_room_once_there_is_somebody_to_share_with() {
    let mut sender = named("dart:eta=0.95");
    assert_eq!(rate(&sender), 100_000);
    assert_eq!(share(&mut sender, 2), 47_500);
}

#[test]
fn the_lower_of_share_and_dcqcn_applies() {
    let mut sender = named("dart");
    let notice = Feedback { kind: FeedbackKind::Notified, ..Feedback::default() };
    sender.on_feedback(&notice);
    // alpha is 1: half the line, until the share is less.
    assert_eq!(rate(&sender), 50_000);
    assert_eq!(share(&mut sender, 1), 50_000);
    assert_eq!(share(&mut sender, 4), 25_000);
    assert!(sender.next_timer().is_some(), "it recovers as DCQCN does");
}

#[test]
fn a_share_ends_with_the_flow() {
    let mut sender = named("dart");
    assert_eq!(share(&mut sender, 4), 25_000);
    sender.on_event(Time::ZERO, FlowEvent::Idle);
    assert_eq!(rate(&sender), 100_000);
}

#[test]
fn parameters_are_those_of_both() {
    let config = SenderConfig::by_name("dart:theta=0.9,idle_us=100,vendor=1", &network());
    let config = config.expect("allowed");
    let ReceiverConfig::Shares(receiver) = config.receiver(&network()) else {
        panic!("{config:?}")
    };
    assert_eq!((receiver.theta, receiver.idle), (0.9, Span::micros(100)));
    assert_eq!((receiver.window, receiver.line), (Span::nanos(4160), Rate::gbps(100)));
    // The network cards' notifications.
    assert_eq!(receiver.cnp_interval, Span::micros(4));
    let defaults = DartConfig::new(&network());
    let ReceiverConfig::Shares(receiver) = defaults.receiver(&network()) else { panic!() };
    assert_eq!((receiver.theta, receiver.idle), (0.95, Span::micros(208)));
    assert_eq!(receiver.cnp_interval, Span::micros(50));
}

#[test]
fn dart_is_no_default() {
    assert_ne!(SenderConfig::DEFAULT, "dart");
}

#[test]
fn state_is_small() {
    assert!(size_of::<Dart>() + Dart::boxed_bytes() <= 96, "{}", Dart::boxed_bytes());
}
