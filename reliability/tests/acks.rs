//! The acknowledgements of a receiver: their content and their time.

use crate::link::{PEER, fixed, response};
use squall_reliability::base::{Psn, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{
    Ack, AckRequest, CcState, Control, ControlKind, Dest, Mode, NackAction, NackCode, NextHeader,
    NsccState, Request, Response,
};
use squall_reliability::{
    Arrival, Config, ControlPacket, EndArrival, Event, LINGER_BYTES, PdcFailure, PdcId, Pdcs,
    RunArrival, RxVerdict,
};

const START: u32 = 5000;

/// A receiver whose context was opened by packet 0, which it has acknowledged.
struct Receiver {
    pdcs: Pdcs<u32>,
    now: Time,
}

fn request(n: u32) -> Request {
    Request {
        mode: Mode::Rud,
        next: NextHeader::RequestStd,
        retx: false,
        ack_request: false,
        // The request clears nothing.
        clear_psn_offset: -1 - i16::try_from(n).unwrap(),
        psn: Psn(START + n),
        spdcid: 40,
        dest: Dest::Pdc(1),
        ccc: None,
    }
}

fn nscc(ack: &Ack) -> NsccState {
    match ack.ext {
        squall_reliability::wire::AckExt::Cc(cc) => match cc.state {
            CcState::Nscc(state) => state,
            CcState::Credit { .. } => panic!("credit"),
        },
        _ => panic!("not ACK_CC"),
    }
}

/// Returns the PSNs, counted from START, that an ACK shows as received beyond the cumulative ones.
fn shown(ack: &Ack) -> Vec<u32> {
    let (base, map) = ack.sack().unwrap();
    (0..64).filter(|bit| map >> bit & 1 == 1).map(|bit| base.plus(bit).0 - START).collect()
}

fn cack(ack: &Ack) -> i32 {
    ack.cack_psn.distance(Psn(START))
}

impl Receiver {
    fn new() -> Self {
        Self::with(fixed(1 << 20, 1))
    }

    fn with(config: Config) -> Self {
        let mut receiver = Self { pdcs: Pdcs::new(config), now: Time(1_000_000) };
        let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
        receiver.take(&Request { dest: syn, ..request(0) }, 100, false).unwrap();
        // A SYN is acknowledged at once, because the initiator waits for this end's number.
        assert_eq!(receiver.acks().len(), 1);
        receiver
    }

    /// Accepts a packet and returns its context, or returns why it was not delivered.
    fn take(&mut self, pds: &Request, bytes: u32, ce: bool) -> Result<PdcId, RxVerdict> {
        let meta = Arrival { bytes, ce, ..Arrival::default() };
        match self.pdcs.rx_request(self.now, PEER, pds, &meta) {
            RxVerdict::Deliver(delivery) => {
                let id = delivery.id();
                self.pdcs.accept(self.now, delivery, None);
                Ok(id)
            }
            other => Err(other),
        }
    }

    fn take_all(&mut self, numbers: impl IntoIterator<Item = u32>, bytes: u32) {
        for n in numbers {
            assert!(self.take(&request(n), bytes, false).is_ok());
        }
    }

    fn answer(&mut self, n: u32, response: Response) {
        let meta = Arrival { bytes: 100, ..Arrival::default() };
        match self.pdcs.rx_request(self.now, PEER, &request(n), &meta) {
            RxVerdict::Deliver(delivery) => self.pdcs.accept(self.now, delivery, Some(response)),
            other => panic!("{other:?}"),
        }
    }

    fn control(&mut self, kind: ControlKind, psn: u32, opaque: u16, payload: u32) -> bool {
        let control = Control {
            kind,
            isrod: false,
            retx: false,
            ack_request: true,
            probe_opaque: opaque,
            psn: Psn(psn),
            spdcid: 40,
            dest: Dest::Pdc(1),
            payload,
        };
        self.pdcs.rx_control(self.now, PEER, &control)
    }

    fn all(&mut self) -> Vec<ControlPacket> {
        core::iter::from_fn(|| self.pdcs.poll_control(self.now)).map(|out| out.packet).collect()
    }

    fn acks(&mut self) -> Vec<Ack> {
        self.all()
            .into_iter()
            .map(|packet| match packet {
                ControlPacket::Ack { pds, response: None } => pds,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn wait(&mut self, span: Span) {
        self.now += span;
        self.pdcs.handle_timeout(self.now);
    }
}

#[test]
fn small_packets_are_acknowledged_by_sixteens() {
    let mut receiver = Receiver::new();
    receiver.take_all(1..16, 100);
    assert_eq!(receiver.acks(), []);
    receiver.take_all(16..17, 100);
    let acks = receiver.acks();
    assert_eq!(acks.len(), 1);
    assert_eq!(cack(&acks[0]), 16);
    assert_eq!(acks[0].ack_psn(), Some(Psn(START + 16)));
    assert_eq!(shown(&acks[0]), []);
    // 17 packets of 100 + 48 bytes are 2516, in units of 256 rounded up.
    assert_eq!(nscc(&acks[0]).rcvd_bytes, 10);
    assert_eq!(nscc(&acks[0]).ooo_count, 0);
    assert!(!acks[0].ce && !acks[0].retx && !acks[0].probe);
}

#[test]
fn large_packets_are_acknowledged_by_bytes() {
    let mut receiver = Receiver::new();
    receiver.take_all(1..4, 4096);
    assert_eq!(receiver.acks(), []);
    receiver.take_all(4..5, 4096); // 16 KiB
    assert_eq!(receiver.acks().len(), 1);
    receiver.take_all(5..8, 4096);
    assert_eq!(receiver.acks(), []);
}

#[test]
fn a_batch_is_acknowledged_once() {
    let mut receiver = Receiver::new();
    receiver.take_all(1..65, 16_384);
    let acks = receiver.acks();
    assert_eq!(acks.len(), 1);
    assert_eq!(cack(&acks[0]), 64);
}

#[test]
fn acknowledgements_without_a_request_may_be_delayed() {
    let ack_linger = Span::micros(5);
    let mut receiver = Receiver::with(Config { ack_linger, ..fixed(1 << 20, 1) });
    // Enough for an acknowledgement, but not at once.
    receiver.take_all(1..5, 4096);
    receiver.wait(Span::micros(4));
    assert_eq!(receiver.acks(), []);
    receiver.wait(Span::micros(1));
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0])), (1, 4));
    // The delay does not count as time on the way: 5 us are 39.1 units of 128 ns.
    assert_eq!(nscc(&acks[0]).service_time, 39);
    receiver.wait(Span::millis(100));
    assert_eq!(receiver.acks(), []);
    // Too few bytes: the ACK takes the usual delay.
    receiver.take_all(5..8, 4096);
    receiver.wait(Span::micros(149));
    assert_eq!(receiver.acks(), []);
    receiver.wait(Span::micros(1));
    assert_eq!(receiver.acks().len(), 1);
    // So many bytes that the sender may stop without the ACK.
    let last = 8 + 4 * LINGER_BYTES;
    receiver.take_all(8..last - 1, 4096);
    assert_eq!(receiver.acks(), []);
    receiver.take_all(last - 1..last, 4096);
    assert_eq!(receiver.acks().len(), 1);
    // The sender asks for an acknowledgement.
    receiver.take(&Request { ack_request: true, ..request(last) }, 4096, false).unwrap();
    assert_eq!(receiver.acks().len(), 1);
}

#[test]
fn the_ack_timer_acknowledges_a_lone_packet() {
    let mut receiver = Receiver::new();
    receiver.take_all(1..2, 100);
    receiver.wait(Span::micros(149));
    assert_eq!(receiver.acks(), []);
    receiver.wait(Span::micros(1));
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0])), (1, 1));
    // 150 us are 1171.9 units of 128 ns.
    assert_eq!(nscc(&acks[0]).service_time, 1171);
    receiver.wait(Span::millis(100));
    assert_eq!(receiver.acks(), []);
}

#[test]
fn an_acknowledgement_request_is_answered_at_once() {
    let mut receiver = Receiver::new();
    receiver.take(&Request { ack_request: true, ..request(1) }, 100, false).unwrap();
    assert_eq!(receiver.acks().len(), 1);
    // Behind a hole: at once, and again when the hole closes.
    receiver.take_all([3], 100);
    receiver.acks();
    receiver.take(&Request { ack_request: true, ..request(4) }, 100, false).unwrap();
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0]), shown(&acks[0])), (1, 1, vec![3, 4]));
    receiver.take_all([2], 100);
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0])), (1, 4));
}

#[test]
fn congestion_is_echoed_at_once_for_the_packet_that_met_it() {
    let mut receiver = Receiver::new();
    receiver.take_all([1], 100);
    receiver.take(&request(2), 100, true).unwrap();
    receiver.take_all([3], 100);
    let acks = receiver.acks();
    assert_eq!(acks.len(), 1);
    assert!(acks[0].ce);
    assert_eq!(acks[0].ack_psn(), Some(Psn(START + 2)));
    assert_eq!(cack(&acks[0]), 3);
    // The next packet is not marked.
    receiver.take_all(4..20, 1024);
    assert!(!receiver.acks()[0].ce);
}

#[test]
fn a_hole_is_shown_when_it_opens() {
    let mut receiver = Receiver::new();
    receiver.take_all([2], 100);
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0]), shown(&acks[0])), (1, 0, vec![2]));
    assert_eq!(nscc(&acks[0]).ooo_count, 1);
    receiver.take_all([3], 100);
    assert_eq!(receiver.acks(), []);
}

#[test]
fn duplicates_are_acknowledged_again_and_not_delivered() {
    let mut receiver = Receiver::new();
    receiver.take_all([1, 3], 100);
    receiver.acks();
    let retx = |n| Request { retx: true, ..request(n) };
    for n in [0, 1, 3] {
        assert_eq!(receiver.take(&retx(n), 100, false), Err(RxVerdict::Duplicate));
        let acks = receiver.acks();
        assert_eq!((acks.len(), cack(&acks[0]), shown(&acks[0])), (1, 1, vec![3]), "{n}");
        assert_eq!(acks[0].ack_psn(), Some(Psn(START + n)));
        assert!(acks[0].retx);
    }
    assert_eq!(receiver.pdcs.counters().rx_duplicates, 3);
    // Duplicates do not count as received bytes: three of 148.
    receiver.wait(Span::millis(1));
    receiver.take(&Request { ack_request: true, ..request(2) }, 100, false).unwrap();
    assert_eq!(nscc(&receiver.acks()[0]).rcvd_bytes, (4u32 * 148).div_ceil(256));
}

#[test]
fn a_wide_window_takes_several_acks() {
    let mut receiver = Receiver::new();
    // Every other packet of 300: holes at 1, 3, ..
    receiver.take_all((1..150).map(|n| 2 * n), 4096);
    let acks = receiver.acks();
    let mut all: Vec<u32> = acks.iter().flat_map(shown).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..150).map(|n| 2 * n).collect::<Vec<_>>());
    assert_eq!(acks.len(), 5);
    assert!(acks.iter().all(|ack| cack(ack) == 0 && nscc(ack).ooo_count == 149));
    // Only the first is about a packet whose round trip may be measured.
    assert!(acks[1..].iter().all(|ack| nscc(ack).service_time == 0));
    // The next one describes what is new, and as much of the old as fits.
    receiver.take_all([301, 303, 305, 307], 4096);
    let acks = receiver.acks();
    assert_eq!(acks.len(), 1);
    let expect: Vec<u32> = (244..=298).filter(|n| n % 2 == 0).chain([301, 303, 305, 307]).collect();
    assert_eq!(shown(&acks[0]), expect);
}

#[test]
fn a_probe_is_answered_with_everything_known() {
    let mut receiver = Receiver::new();
    receiver.take_all([1, 2, 5, 100, 150], 100);
    receiver.acks();
    assert!(receiver.control(ControlKind::Probe, START + 160, 777, START + 3));
    let acks = receiver.acks();
    assert!(acks.iter().all(|ack| ack.probe_opaque() == Some(777)));
    assert!(nscc(&acks[0]).service_time > 0);
    let mut all: Vec<u32> = acks.iter().flat_map(shown).collect();
    all.dedup();
    assert_eq!(all, [5, 100, 150]);
    // Also by a receiver that otherwise shows one segment at a time.
    let style = squall_reliability::cc::AckStyle { lowest_segment: true, ..Default::default() };
    let config = squall_reliability::Config { acks: style, ..fixed(1 << 20, 1) };
    let mut receiver = Receiver { pdcs: Pdcs::new(config), now: Time(1_000_000) };
    let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
    receiver.take(&Request { dest: syn, ..request(0) }, 100, false).unwrap();
    receiver.take_all([1, 2, 5, 100, 150], 100);
    receiver.acks();
    assert!(receiver.control(ControlKind::Probe, START + 160, 779, START + 3));
    let mut all: Vec<u32> = receiver.acks().iter().flat_map(shown).collect();
    all.dedup();
    assert_eq!(all, [5, 100, 150]);
    // Without holes, one ACK.
    let mut receiver = Receiver::new();
    assert!(receiver.control(ControlKind::Probe, START, 778, START));
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0]), shown(&acks[0])), (1, 0, vec![]));
    assert_eq!(acks[0].probe_opaque(), Some(778));
}

#[test]
fn a_trimmed_packet_is_reported_by_a_nack() {
    let mut receiver = Receiver::new();
    for (last_hop, code) in [(false, NackCode::Trimmed), (true, NackCode::TrimmedLastHop)] {
        let meta = Arrival { ce: true, trimmed: true, last_hop, bytes: 56, ..Arrival::default() };
        let verdict = receiver.pdcs.rx_request(receiver.now, PEER, &request(1), &meta);
        assert_eq!(verdict, RxVerdict::Trimmed);
        match receiver.all()[..] {
            [ControlPacket::Nack(nack)] => {
                assert_eq!((nack.code, nack.psn, nack.ce), (code, Psn(START + 1), true));
                assert_eq!((nack.spdcid, nack.dpdcid, nack.payload), (1, 40, START + 1));
            }
            ref other => panic!("{other:?}"),
        }
    }
    receiver.take_all([1], 100);
    receiver.acks();
    // A packet that was received already is acknowledged instead.
    let meta = Arrival { trimmed: true, bytes: 56, ..Arrival::default() };
    let verdict = receiver.pdcs.rx_request(receiver.now, PEER, &request(1), &meta);
    assert_eq!(verdict, RxVerdict::Trimmed);
    assert_eq!(receiver.acks().len(), 1);
    assert_eq!(receiver.pdcs.counters().rx_trimmed, 3);
    assert_eq!(receiver.pdcs.counters().tx_nacks[1..=2], [1, 1]);
}

#[test]
fn the_window_is_enforced() {
    let mut receiver = Receiver::new();
    receiver.take_all([2048], 100);
    let verdict = receiver.take(&request(2049), 100, false);
    assert_eq!(
        verdict,
        Err(RxVerdict::Refused(squall_reliability::Refusal::OutOfWindow)),
        "2048 packets after the cumulative one"
    );
    let packets = receiver.all();
    let nacks = packets.iter().filter(
        |packet| matches!(packet, ControlPacket::Nack(nack) if nack.code == NackCode::PsnOorWindow),
    );
    assert_eq!(nacks.count(), 1);
    for nonsense in [100_000, u32::MAX / 2, 0u32.wrapping_sub(20_000)] {
        let pds = Request { psn: Psn(START.wrapping_add(nonsense)), ..request(0) };
        assert!(matches!(receiver.take(&pds, 100, false), Err(RxVerdict::Refused(_))));
        assert_eq!(receiver.all(), []);
    }
    assert_eq!(receiver.pdcs.counters().rx_out_of_window, 4);
}

#[test]
fn a_refused_packet_may_come_again() {
    let mut receiver = Receiver::new();
    let meta = Arrival { bytes: 100, ..Arrival::default() };
    let RxVerdict::Deliver(delivery) =
        receiver.pdcs.rx_request(receiver.now, PEER, &request(1), &meta)
    else {
        panic!("not delivered")
    };
    let psn = delivery.psn();
    receiver.pdcs.refuse(receiver.now, delivery, NackCode::NoSesMsgAvail);
    assert!(matches!(
        receiver.all()[..],
        [ControlPacket::Nack(nack)] if nack.code == NackCode::NoSesMsgAvail && nack.psn == psn
    ));
    receiver.take_all([1], 100);
}

#[test]
fn a_malformed_packet_ends_the_context_at_both_ends() {
    let mut receiver = Receiver::new();
    let meta = Arrival { bytes: 100, ..Arrival::default() };
    let RxVerdict::Deliver(delivery) =
        receiver.pdcs.rx_request(receiver.now, PEER, &request(1), &meta)
    else {
        panic!("not delivered")
    };
    let id = delivery.id();
    let accepted = receiver.pdcs.counters().rx_accepted;
    receiver.pdcs.drop_malformed(delivery);
    let told = receiver.pdcs.poll_control(receiver.now).map(|out| out.packet);
    let Some(ControlPacket::Nack(nack)) = told else { panic!("{told:?}") };
    assert_eq!((nack.code, nack.psn), (NackCode::UnexpEvent, request(1).psn));
    assert_eq!(nack.code.action(), NackAction::Close);
    let why = PdcFailure::Malformed;
    assert_eq!(
        receiver.pdcs.poll_event(),
        Some(Event::Failed { id, peer: PEER, why, parting: false })
    );
    let counters = receiver.pdcs.counters();
    assert_eq!((counters.rx_malformed, counters.rx_accepted), (1, accepted));
    assert!(receiver.pdcs.count() == 0);
    // The NACK was lost: a retransmission gets an equivalent answer.
    let again = receiver.pdcs.reject(Some(PEER), &Request { dest: Dest::Pdc(1), ..request(1) });
    assert_eq!(again.map(|nack| nack.code), Some(NackCode::ClosingInErr));
}

#[test]
fn a_token_means_nothing_to_another_endpoint() {
    let mut receivers = [Receiver::new(), Receiver::new()];
    let [one, other] = &mut receivers;
    let meta = Arrival { bytes: 100, ..Arrival::default() };
    for receiver in [&mut *one, &mut *other] {
        receiver.take_all([1], 100);
        let _ = receiver.all();
    }
    let deliver = |receiver: &mut Receiver, n| match receiver.pdcs.rx_request(
        receiver.now,
        PEER,
        &request(n),
        &meta,
    ) {
        RxVerdict::Deliver(delivery) => delivery,
        verdict => panic!("{verdict:?}"),
    };
    let (foreign, own) = (deliver(one, 2), deliver(other, 3));
    let accepted = other.pdcs.counters().rx_accepted;
    other.pdcs.accept(other.now, foreign, None);
    assert_eq!((other.all(), other.pdcs.counters().rx_accepted), (vec![], accepted));
    other.pdcs.accept(other.now, own, None);
    assert_eq!(other.pdcs.counters().rx_accepted, accepted + 1);
}

#[test]
fn a_response_is_repeated_until_it_is_cleared() {
    let mut receiver = Receiver::new();
    receiver.answer(1, response(1));
    let carried = |packets: Vec<ControlPacket>| -> Vec<(u32, i32, u16, AckRequest)> {
        packets
            .into_iter()
            .filter_map(|packet| match packet {
                ControlPacket::Ack { pds, response: Some(response) } => {
                    assert_eq!(pds.next, NextHeader::Response);
                    let about = pds.ack_psn().unwrap().0 - START;
                    Some((about, cack(&pds), response.message_id, pds.request))
                }
                _ => None,
            })
            .collect()
    };
    assert_eq!(carried(receiver.all()), [(1, 0, 1, AckRequest::None)]);
    // The acknowledgement stays before it, and does not show it, but asks for a clear.
    receiver.take_all([2], 100);
    receiver.take(&Request { ack_request: true, ..request(3) }, 100, false).unwrap();
    let acks = receiver.acks();
    assert_eq!((cack(&acks[0]), acks[0].request), (0, AckRequest::Clear));
    assert!(!shown(&acks[0]).contains(&1));
    // A duplicate gets the response again.
    assert_eq!(receiver.take(&request(1), 100, false), Err(RxVerdict::Duplicate));
    assert_eq!(carried(receiver.all()), [(1, 0, 1, AckRequest::None)]);
    // A request clears it ...
    receiver
        .take(&Request { ack_request: true, clear_psn_offset: -3, ..request(4) }, 100, false)
        .unwrap();
    let acks = receiver.acks();
    assert_eq!((cack(&acks[0]), acks[0].request), (4, AckRequest::None));
    // ... or a Clear Command does, but not one that clears a packet that never arrived.
    receiver.answer(5, response(5));
    receiver.all();
    assert!(!receiver.control(ControlKind::ClearCommand, 0, 0, START + 6));
    assert!(receiver.control(ControlKind::ClearCommand, 0, 0, START + 5));
    let acks = receiver.acks();
    assert_eq!((acks.len(), cack(&acks[0]), acks[0].request), (1, 5, AckRequest::None));
}

#[test]
fn a_target_with_unacknowledged_data_does_not_close() {
    let mut receiver = Receiver::new();
    let id = receiver.take(&request(1), 100, false).unwrap();
    let packet =
        squall_reliability::NewPacket { desc: 1, bytes: 100, last: true, prompt: true, backlog: 0 };
    let grant = receiver.pdcs.next_packet(receiver.now, id, &packet).unwrap();
    assert_eq!((grant.psn, grant.pds.dest), (Psn(START), Dest::Pdc(40)));
    assert!(!receiver.control(ControlKind::CloseCommand, START + 2, 0, 0));
    let ack = Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 0,
        cack_psn: Psn(START),
        spdcid: 40,
        dpdcid: 1,
        ext: squall_reliability::wire::AckExt::None,
    };
    assert!(receiver.pdcs.rx_ack(receiver.now, PEER, &ack, None, Hops::NONE));
    receiver.all();
    assert!(receiver.control(ControlKind::CloseCommand, START + 2, 0, 0));
    assert_eq!(cack(&receiver.acks()[0]), 2);
    assert!(receiver.pdcs.count() == 0);
}

#[test]
fn a_close_command_of_suet_is_acknowledged() {
    // SUET sets ISROD in it, and no AR.
    let mut receiver = Receiver::new();
    let close = Control {
        kind: ControlKind::CloseCommand,
        isrod: true,
        retx: false,
        ack_request: false,
        probe_opaque: 0,
        psn: Psn(START + 1),
        spdcid: 40,
        dest: Dest::Pdc(1),
        payload: 0,
    };
    assert!(receiver.pdcs.rx_control(receiver.now, PEER, &close));
    assert_eq!(cack(&receiver.acks()[0]), 1);
    assert_eq!(receiver.pdcs.count(), 0);
}

#[test]
fn an_ack_request_names_what_is_missing() {
    let mut receiver = Receiver::new();
    receiver.take_all([1], 100);
    assert!(receiver.control(ControlKind::AckRequest, START + 1, 0, 0));
    assert_eq!(cack(&receiver.acks()[0]), 1);
    assert!(receiver.control(ControlKind::AckRequest, START + 2, 0, 0));
    assert!(matches!(
        receiver.all()[..],
        [ControlPacket::Nack(nack)] if nack.code == NackCode::PktNotRcvd
    ));
    assert!(!receiver.control(ControlKind::AckRequest, START + 50_000, 0, 0));
}

#[test]
fn a_sack_shows_the_segment_of_the_lowest_packet_since_the_last_one() {
    // STrack section 3.3.1: segments of 64 from the expected PSN, here 1. Packet 1 is missing.
    let style = squall_reliability::cc::AckStyle { lowest_segment: true, ..Default::default() };
    let config = squall_reliability::Config { acks: style, ..fixed(1 << 20, 1) };
    let mut receiver = Receiver { pdcs: Pdcs::new(config), now: Time(1_000_000) };
    let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
    receiver.take(&Request { dest: syn, ..request(0) }, 100, false).unwrap();
    receiver.all();
    // 140 lies in 129..193, 70 and 100 in 65..129, 2 in 1..65: the lowest decides, and says which base.
    for (arrivals, asks, base, bits) in [
        (&[140u32, 70][..], 100u32, 65u32, &[70u32, 100][..]),
        (&[], 141, 129, &[140, 141]),
        (&[150, 2], 130, 1, &[2]),
        // Nothing of what came since lies above the hole's end: the expected PSN's own segment.
        (&[], 151, 129, &[130, 140, 141, 150, 151]),
    ] {
        receiver.take_all(arrivals.iter().copied(), 10);
        // An acknowledgement for another reason would reset the range, so there may be none.
        receiver.take(&Request { ack_request: true, ..request(asks) }, 10, false).unwrap();
        let acks = receiver.acks();
        let ack = acks.last().unwrap();
        assert_eq!(ack.sack().unwrap().0, Psn(START + base), "{asks}");
        assert_eq!(shown(ack), bits, "{asks}");
    }
    // Packet 1 closes the first hole; the base moves to 3, the expected PSN.
    receiver.take(&Request { ack_request: true, ..request(1) }, 10, false).unwrap();
    let ack = receiver.acks()[0];
    assert_eq!((cack(&ack), ack.sack().unwrap().0), (2, Psn(START + 3)));
}

fn counted(receiver: &Receiver) -> String {
    format!("{:?}", receiver.pdcs.counters())
}

/// Returns a run of `count` packets and a last one of other length or with AR if `end` has one.
fn run(first: u32, count: u16, end: Option<EndArrival>) -> RunArrival {
    let count = count - u16::from(end.is_some());
    RunArrival { first: Psn(START + first), count, end }
}

#[test]
fn a_run_is_accepted_like_single_packets() {
    // Mark, bytes, and the bytes and AR of an end.
    let cases = [
        (false, 100, None),
        (true, 100, None),
        (false, 3000, None),
        (false, 100, Some((60, false))),
        (false, 100, Some((60, true))),
        (true, 3000, Some((3000, true))),
        (false, 3000, Some((2999, false))),
    ];
    for (ce, bytes, end) in cases {
        let (mut one, mut other) = (Receiver::new(), Receiver::new());
        let id = one.take(&request(1), bytes, false).unwrap();
        assert_eq!(other.take(&request(1), bytes, false).unwrap(), id);
        let end = end.map(|(bytes, ask)| EndArrival { bytes, ask });
        for n in 2..11 {
            one.take(&request(n), bytes, ce).unwrap();
        }
        let last = end.unwrap_or(EndArrival { bytes, ask: false });
        one.take(&Request { ack_request: last.ask, ..request(11) }, last.bytes, ce).unwrap();
        let arrival = Arrival { bytes, ce, ..Arrival::default() };
        assert!(other.pdcs.accept_run(id, other.now, run(2, 10, end), &arrival));
        assert_eq!(counted(&one), counted(&other));
        assert_eq!(one.pdcs.poll_timeout(), other.pdcs.poll_timeout());
        assert_eq!(one.acks(), other.acks());
        one.wait(Span::millis(1));
        other.wait(Span::millis(1));
        assert_eq!(one.acks(), other.acks());
    }
}

#[test]
fn a_run_behind_a_hole_is_accepted_like_single_packets() {
    // Number of packets, mark, and whether the last one asks; also more packets than a SACK shows.
    let end = |ask| Some(EndArrival { bytes: 60, ask });
    let cases = [
        (1, false, end(true)),
        (5, false, end(false)),
        (5, true, end(true)),
        (150, false, end(true)),
        (5, false, None),
        (150, true, None),
    ];
    for (count, ce, end) in cases {
        let (mut one, mut other) = (Receiver::new(), Receiver::new());
        for receiver in [&mut one, &mut other] {
            receiver.take_all([1, 5], 100);
            receiver.acks();
        }
        let id = other.take(&request(6), 100, ce).unwrap();
        one.take(&request(6), 100, ce).unwrap();
        for n in 7..7 + count {
            let last = end.filter(|_| n == 6 + count);
            let EndArrival { bytes, ask } = last.unwrap_or(EndArrival { bytes: 100, ask: false });
            one.take(&Request { ack_request: ask, ..request(n) }, bytes, ce).unwrap();
        }
        let arrival = Arrival { bytes: 100, ce, ..Arrival::default() };
        assert!(other.pdcs.accept_run(id, other.now, run(7, count as u16, end), &arrival));
        let same = |one: &mut Receiver, other: &mut Receiver, what: &str| {
            assert_eq!(counted(one), counted(other), "{count} {what}");
            assert_eq!(one.pdcs.poll_timeout(), other.pdcs.poll_timeout(), "{count} {what}");
            assert_eq!(one.acks(), other.acks(), "{count} {what}");
        };
        same(&mut one, &mut other, "taken");
        for receiver in [&mut one, &mut other] {
            receiver.wait(Span::millis(1));
        }
        same(&mut one, &mut other, "waited");
        // The last hole before a packet that asked closes.
        for n in [2, 4, 3] {
            one.take(&request(n), 100, false).unwrap();
            other.take(&request(n), 100, false).unwrap();
            same(&mut one, &mut other, "filled");
        }
    }
}

#[test]
fn a_run_behind_a_hole_stays_inside_of_the_window() {
    let arrival = Arrival { bytes: 100, ..Arrival::default() };
    let mut receiver = Receiver::new();
    let window = u32::from(receiver.pdcs.config().recv_window_packets);
    let id = receiver.take(&request(1), 100, false).unwrap();
    // Packet 2 is missing, so packets up to 1 + window may arrive.
    receiver.take(&request(window - 3), 100, false).unwrap();
    let before = counted(&receiver);
    let beyond = run(window - 2, 5, None);
    assert!(!receiver.pdcs.accept_run(id, receiver.now, beyond, &arrival));
    assert_eq!(counted(&receiver), before);
    assert!(receiver.pdcs.accept_run(id, receiver.now, run(window - 2, 4, None), &arrival));
    assert!(receiver.take(&request(window + 2), 100, false).is_err());
}

#[test]
fn a_run_that_is_not_expected_next_changes_nothing() {
    let arrival = Arrival { bytes: 100, ..Arrival::default() };
    let mut receiver = Receiver::new();
    let id = receiver.take(&request(1), 100, false).unwrap();
    receiver.take(&request(5), 100, false).unwrap();
    let before = counted(&receiver);
    // Three cases: behind another hole, before a packet that arrived early, and received already.
    for first in [7, 2, 1] {
        assert!(!receiver.pdcs.accept_run(id, receiver.now, run(first, 2, None), &arrival));
    }
    assert_eq!(counted(&receiver), before);
    receiver.take_all([2, 3, 4], 100);
    assert!(receiver.pdcs.accept_run(id, receiver.now, run(6, 2, None), &arrival));
    // A run is not accepted while a response waits to be cleared.
    receiver.answer(8, response(8));
    assert!(!receiver.pdcs.accept_run(id, receiver.now, run(9, 1, None), &arrival));
}
