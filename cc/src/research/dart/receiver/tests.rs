//! Section III of the paper: shares, the three states and what becomes of marks, on a line of 100 Gb/s looked at for 4 us
//! (50 000 bytes), packets of 1000 bytes.

use squall_base::Rate;

use super::*;
use alloc::vec::Vec;

const LOOK: Span = Span::micros(4);

fn receiver() -> DartReceiver {
    DartReceiver::new(ShareConfig {
        line: Rate::gbps(100),
        theta: 0.95,
        window: LOOK,
        idle: Span::micros(200),
        cnp_interval: Span::micros(50),
        sources: 100,
    })
}

/// A receiver, time, and one flow a source.
struct World {
    receiver: DartReceiver,
    now: Time,
    flows: Vec<RxFlow>,
    notifications: u32,
}

impl World {
    fn new() -> Self {
        let flows = (0..8).map(RxFlow::new).collect();
        Self { receiver: receiver(), now: Time(1_000_000), flows, notifications: 0 }
    }

    fn arrive(&mut self, source: u32, packet: &ReceivedPacket) {
        let flow = &mut self.flows[source as usize];
        let packet = ReceivedPacket { bytes: 1000, source, ..*packet };
        self.receiver.on_rx(self.now, flow, &packet);
        while let Some(action) = self.receiver.poll(self.now) {
            assert!(matches!(action, ReceiverAction::Notify { .. }));
            self.notifications += 1;
        }
    }

    /// For `micros` a packet every `gap` nanoseconds from each of `sources` in turn; 80 is the line's rate.
    fn run(&mut self, micros: u64, gap: u64, sources: u32, ecn: bool) {
        let end = self.now + Span::micros(micros);
        let mut turn = 0;
        while self.now < end {
            self.arrive(turn % sources, &ReceivedPacket { ecn, ..ReceivedPacket::default() });
            turn += 1;
            self.now += Span(gap);
        }
    }

    fn begin(&mut self, source: u32) {
        let begin = ReceivedPacket { message_start: true, ..ReceivedPacket::default() };
        self.arrive(source, &begin);
    }

    fn ack(&mut self, source: u32) -> AckSignals {
        let mut signals = AckSignals::default();
        self.receiver.fill_ack(self.now, &mut self.flows[source as usize], &mut signals);
        signals
    }

    fn share(&mut self) -> (u16, u16) {
        let share = self.ack(0).share.expect("a share");
        (share.senders(), share.share())
    }
}

#[test]
fn every_acknowledgement_says_how_many_share_the_line() {
    let mut world = World::new();
    assert_eq!(world.share(), (1, 32_768), "nobody yet");
    for (source, expected) in [(0, 32_768), (1, 16_384), (2, 10_922), (2, 10_922)] {
        world.begin(source);
        assert_eq!(world.share().1, expected);
    }
    let end = ReceivedPacket { message_end: true, ..ReceivedPacket::default() };
    world.arrive(0, &end);
    assert_eq!(world.share(), (2, 16_384));
    // The same packet again, or what is left of one, ends nothing.
    world.arrive(1, &ReceivedPacket { duplicate: true, ..end });
    world.arrive(1, &ReceivedPacket { trimmed: true, ..end });
    assert_eq!(world.share(), (2, 16_384));
}

#[test]
fn the_dead_leave_after_the_idle_time() {
    let mut world = World::new();
    world.begin(0);
    world.begin(1);
    world.now += Span::micros(150);
    world.arrive(0, &ReceivedPacket::default());
    assert_eq!(world.receiver.next_timer(), Some(Time(1_200_000)));
    world.now += Span::micros(50);
    assert_eq!(world.share(), (1, 32_768));
}

/// Receiver congestion: the receiver echoes no mark, neither by notification nor by acknowledgement.
#[test]
fn a_receiver_that_is_the_bottleneck_hides_marks() {
    let mut world = World::new();
    for source in 0..4 {
        world.begin(source);
    }
    world.run(40, 80, 4, true);
    assert_eq!((world.receiver.congestion(), world.notifications), (Congestion::Receiver, 0));
    let ack = world.ack(0);
    assert_eq!((ack.hide_marks, ack.state, world.share().0), (true, Congestion::Receiver, 4));
}

/// Two flows that meet in the core have receivers of their own: each receives at half its line rate, counts one sender, and
/// echoes marks.
#[test]
fn congestion_elsewhere_is_for_dcqcn() {
    let mut world = World::new();
    world.begin(0);
    world.run(40, 160, 1, true);
    assert_eq!((world.receiver.congestion(), world.share().0), (Congestion::Elsewhere, 1));
    // The first at once, and then none for 50 us.
    assert_eq!(world.notifications, 1);
    assert!(!world.ack(0).hide_marks);
    // However many send to it, theirs is not the line's share then.
    world.begin(1);
    assert_eq!(world.share(), (1, 32_768));
}

#[test]
fn the_state_follows_what_arrives_but_not_each_window() {
    let mut world = World::new();
    world.begin(0);
    world.begin(1);
    world.run(40, 80, 2, true);
    assert_eq!(world.receiver.congestion(), Congestion::Receiver);
    // One window in which senders paused changes nothing, a second does.
    world.run(4, 160, 2, true);
    world.run(4, 80, 2, true);
    assert_eq!(world.receiver.congestion(), Congestion::Receiver);
    world.run(12, 160, 2, true);
    assert_eq!(world.receiver.congestion(), Congestion::Elsewhere);
    world.run(12, 160, 2, false);
    assert_eq!((world.receiver.congestion(), world.share().0), (Congestion::None, 2));
    // A pause is no window.
    world.now += Span::millis(1);
    world.run(12, 80, 2, true);
    assert_eq!(world.receiver.congestion(), Congestion::Receiver);
}

#[test]
fn a_sender_list_counts_before_packets_arrive_unless_it_names_unknown_senders() {
    let mut world = World::new();
    let mut announce = |(group, round), sources: &[u32]| {
        let valid = world.receiver.on_sender_list(world.now, &SenderList { group, round, sources });
        world.arrive(0, &ReceivedPacket { message_start: true, ..ReceivedPacket::default() });
        (world.share().0, valid)
    };
    assert_eq!(announce((1, 7), &[0, 1, 2, 3, 4]), (5, true));
    assert_eq!(announce((1, 7), &[0, 1, 2, 3, 4]), (5, true), "a copy");
    assert_eq!(announce((1, 6), &[5, 6]), (5, false), "a round that is over");
    assert_eq!(announce((2, 1), &[5, 100, 6, u32::MAX]), (5, false), "two unknown senders");
    assert_eq!(announce((3, 1), &[]), (5, false));
    assert_eq!(announce((3, 1), &[5]), (5, false), "who sends alone announces nobody");
    assert_eq!(announce((4, 1), &[7; MAX_LISTED_SENDERS + 3]), (5, false), "longer than any list");
    assert_eq!(announce((5, 1), &[7; MAX_LISTED_SENDERS]), (6, true));
    assert_eq!(announce((1, 8), &[8, 9]), (8, true));
}

#[test]
fn what_cannot_be_a_share_is_none() {
    assert_eq!(LineShare::new(0, 5), None, "no sender at all");
    assert_eq!(LineShare::new(3, 0), None, "nothing");
    assert_eq!(LineShare::new(3, WHOLE_SHARE + 1), None, "more than all");
    assert_eq!(LineShare::new(1, WHOLE_SHARE).map(|share| share.share()), Some(WHOLE_SHARE));
}
