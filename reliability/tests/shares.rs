//! Shares of the peer's line in acknowledgements (Dart, section III-B).

use squall_reliability::base::{Psn, Rate, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{Ack, AckCcx, AckExt, AckRequest, DartState, NextHeader, Request};
use squall_reliability::{
    Arrival, Config, ControlPacket, NewPacket, PdcId, Pdcs, PeerKey, RxVerdict, cc,
};

const NOW: Time = Time(1_000_000);
const PEER: PeerKey = PeerKey(0);

fn dart() -> Config {
    let network = cc::NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, false);
    let cc = cc::SenderConfig::by_name("dart", &network).unwrap();
    let paths = cc::PathsConfig::oblivious(16).unwrap();
    Config::new(4096, cc, paths, 1).reciprocal(&network)
}

/// Sends a packet of a context to `peer`.
fn send(pdcs: &mut Pdcs<u32>, now: Time, id: PdcId) -> Request {
    let packet = NewPacket { desc: 0, bytes: 4096, last: false, prompt: false, backlog: 0 };
    pdcs.next_packet(now, id, &packet).unwrap().pds
}

fn ack(id: PdcId, cack_psn: Psn, state: [u8; 16]) -> Ack {
    Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 0,
        cack_psn,
        spdcid: 9,
        dpdcid: u16::try_from(id.index()).unwrap() + 1,
        ext: AckExt::Ccx(AckCcx {
            cc_type: DartState::CC_TYPE,
            mpr: 16,
            sack_psn_offset: 1,
            sack_bitmap: 0,
            state,
        }),
    }
}

#[test]
fn a_valid_share_is_applied_and_an_impossible_one_counted_and_ignored() {
    let mut pdcs: Pdcs<u32> = Pdcs::new(dart());
    let id = pdcs.open(NOW, PEER).unwrap();
    let (mut bad, mut now) = (0, NOW);
    for (senders, share, gbps) in [
        (4, 8192, 25),
        (0, 8192, 25),
        (4, 0, 25),
        (4, 32_769, 25),
        (4, u16::MAX, 25),
        (1, 32_768, 100),
    ] {
        let pds = send(&mut pdcs, now, id);
        // Another packet follows, or the share would end with the flow.
        now += Span::micros(10);
        send(&mut pdcs, now, id);
        now += Span::micros(10);
        let state = DartState { service_time: 1, senders, share, ..DartState::default() };
        assert!(pdcs.rx_ack(now, PEER, &ack(id, pds.psn, state.pack()), None, Hops::NONE));
        let rate = pdcs.info(id).unwrap().rate.unwrap();
        assert_eq!((rate.0 + 500_000_000) / 1_000_000_000, gbps, "{senders} {share}");
        bad += u64::from(cc::LineShare::new(senders, share).is_none());
        assert_eq!(pdcs.counters().rx_bad_share, bad);
    }
    assert_eq!(bad, 4);
}

/// Three endpoints send to a fourth. Its acknowledgements carry their number, and no longer once
/// messages end.
#[test]
fn acknowledgements_carry_the_number_of_senders() {
    let mut target: Pdcs<u32> = Pdcs::new(dart());
    let mut said = Vec::new();
    let mut sources: Vec<(Pdcs<u32>, PdcId)> = (0..3)
        .map(|seed| {
            let mut source = Pdcs::new(Config { seed, ..dart() });
            let id = source.open(NOW, PEER).unwrap();
            (source, id)
        })
        .collect();
    for (step, (peer, ends)) in (1..).zip([(0, false), (1, false), (2, false), (1, true)]) {
        let now = NOW + Span::micros(10) * step;
        let (source, id) = &mut sources[peer as usize];
        let pds = send(source, now, *id);
        let meta = Arrival { bytes: 4096, begins: !ends, ends, ..Arrival::default() };
        let RxVerdict::Deliver(delivery) = target.rx_request(now, PeerKey(peer), &pds, &meta)
        else {
            panic!("refused");
        };
        target.accept(now, delivery, None);
        while let Some(out) = target.poll_control(now) {
            if let ControlPacket::Ack { pds, .. } = out.packet
                && let AckExt::Ccx(ext) = pds.ext
            {
                let state = DartState::read(&ext.state).unwrap();
                said.push((out.peer, state.senders, state.share));
            }
        }
    }
    let of = |peer, senders, share| (PeerKey(peer), senders, share);
    assert_eq!(said, [of(0, 1, 32_768), of(1, 2, 16_384), of(2, 3, 10_922), of(1, 2, 16_384)]);
}
