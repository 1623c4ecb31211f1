use super::*;
use crate::base::Rng;
use crate::memory::Buf;
use crate::operation::Visibility;
use crate::slab::Slab;

fn recv(source: Option<u32>, tag: u64, ignore: u64, context: u64) -> PostedRecv {
    PostedRecv {
        wanted: MatchRequest { space: MatchSpace::Tagged, source: source.map(PeerId), tag, ignore },
        buf: Buf::Empty,
        context,
        visibility: Visibility::Entry,
        multi: None,
    }
}

fn envelope(source: u32, tag: u64) -> Envelope {
    Envelope { space: MatchSpace::Tagged, source: PeerId(source), tag }
}

const MASKS: [u64; 9] = [0, !0, 0xc0_0000_0000_0000, 0xf, 0xff, 0xf0, 0x3, 0x1, 0x7];

/// Compares posted receives with a plain list that is searched in order.
#[test]
fn posted_receives_match_like_a_list_searched_in_order() {
    let mut rng = Rng::new(1);
    let mut posted = Posted::new(99);
    let mut model: Vec<(MatchRequest, u64)> = vec![];
    for step in 0..20_000u64 {
        if rng.chance(0.55) {
            let source = rng.chance(0.6).then(|| rng.below(3));
            let mask = MASKS[rng.below(MASKS.len() as u32) as usize];
            let r = recv(source, u64::from(rng.below(32)), mask, step);
            model.push((r.wanted, step));
            posted.post(r);
        } else if rng.chance(0.1) && !model.is_empty() {
            let victim = rng.below(model.len() as u32) as usize;
            let CancelOutcome::Now(taken) = posted.cancel(model[victim].1) else {
                panic!("the receive is posted")
            };
            assert_eq!(taken.context, model.remove(victim).1);
        } else {
            let e = envelope(rng.below(3), u64::from(rng.below(32)));
            let expected = model.iter().position(|(w, _)| w.matches(&e));
            let found = posted.find(&e);
            assert_eq!(found.is_some(), expected.is_some());
            if let (Some(ix), Some(at)) = (found, expected) {
                assert_eq!(
                    posted.claim(ix, 0).unwrap().context,
                    model.remove(at).1,
                    "the oldest receive matches"
                );
            }
        }
        assert_eq!(posted.len(), model.len());
    }
}

/// Compares unexpected messages with a plain list that is searched in order.
#[test]
fn unexpected_messages_match_like_a_list_searched_in_order() {
    let mut rng = Rng::new(2);
    let mut unexpected = Unexpected::new(5);
    let mut keys = Slab::default();
    let mut model: Vec<UnexpectedMessage> = vec![];
    for step in 0..20_000u32 {
        if rng.chance(0.52) {
            let w = UnexpectedMessage {
                envelope: envelope(rng.below(3), u64::from(rng.below(32))),
                message: keys.add(step),
            };
            model.push(w);
            unexpected.push(w);
        } else {
            let source = rng.chance(0.6).then(|| PeerId(rng.below(3)));
            let ignore = MASKS[rng.below(MASKS.len() as u32) as usize];
            let wanted = MatchRequest {
                space: MatchSpace::Tagged,
                source,
                tag: u64::from(rng.below(32)),
                ignore,
            };
            let expected = model.iter().position(|w| wanted.matches(&w.envelope));
            let found = unexpected.find(&wanted);
            assert_eq!(found.is_some(), expected.is_some());
            if let (Some(number), Some(at)) = (found, expected) {
                assert_eq!(
                    unexpected.take(number),
                    Some(model.remove(at)),
                    "the earliest message matches"
                );
            }
        }
        assert_eq!(unexpected.len(), model.len());
    }
}

#[test]
fn number_of_stale_references_is_bounded() {
    let mut unexpected = Unexpected::new(5);
    let message = Slab::default().add(());
    let any = MatchRequest { space: MatchSpace::Tagged, source: None, tag: 0, ignore: !0 };
    let exact =
        |tag| MatchRequest { space: MatchSpace::Tagged, source: Some(PeerId(0)), tag, ignore: 0 };
    for tag in 0..64 {
        unexpected.push(UnexpectedMessage { envelope: envelope(0, tag), message });
    }
    assert!(unexpected.find(&any).is_some() && unexpected.find(&exact(1)).is_some());
    for tag in 64..100_000 {
        unexpected.push(UnexpectedMessage { envelope: envelope(0, tag), message });
        let number = unexpected.find(&exact(tag - 64)).expect("it waits");
        unexpected.take(number);
    }
    let references: usize = unexpected.references();
    assert!(references < 20_000, "{references} references for 64 messages");
}

/// A message that no receive matches does not keep the table entries of later, consumed messages allocated.
#[test]
fn unmatched_message_keeps_no_consumed_entries() {
    let mut slab = Slab::default();
    let mut unexpected = Unexpected::new(3);
    let wanted = |tag| MatchRequest { space: MatchSpace::Tagged, source: None, tag, ignore: 0 };
    let mut push = |unexpected: &mut Unexpected, tag| {
        unexpected.push(UnexpectedMessage { envelope: envelope(0, tag), message: slab.add(()) });
    };
    push(&mut unexpected, 1);
    for n in 0..50_000u64 {
        // The index exists only in some rounds, and in some rounds another message waits for long
        // as well.
        push(&mut unexpected, 2);
        push(&mut unexpected, 3 + n);
        let number = unexpected.find(&wanted(2)).expect("it waits");
        assert_eq!(unexpected.take(number).expect("it waits").envelope.tag, 2);
        if n >= 20 {
            let number = unexpected.find(&wanted(3 + n - 20)).expect("it waits");
            assert_eq!(unexpected.take(number).expect("it waits").envelope.tag, 3 + n - 20);
        }
        assert!(unexpected.places() <= 1024 + 8 * 23, "{n}: {}", unexpected.places());
    }
    let number = unexpected.find(&wanted(1)).expect("the message still waits");
    assert_eq!(unexpected.take(number).expect("it waits").envelope.tag, 1);
}
