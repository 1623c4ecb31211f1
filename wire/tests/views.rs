//! A view takes its own kind of header, whole, and shows the fields as they stand.

use squall_wire::*;

#[test]
fn a_view_takes_its_kind_and_no_less_than_its_length() {
    macro_rules! takes {
        ($($view:ident: $kind:pat,)*) => {$(
            for kind in 0..32_u8 {
                let mut bytes = [0xFF; 64];
                bytes[0] = kind << 3;
                let matches = matches!(kind, $kind);
                assert_eq!($view::new(&bytes).is_ok(), matches, "{} {kind}", stringify!($view));
                let exact = &bytes[..$view::LEN];
                assert_eq!($view::new(exact).is_ok(), matches);
                if !matches {
                    assert_eq!($view::new(exact), Err(ParseError::Kind));
                }
                assert_eq!($view::new(&exact[1..]).err(), Some(ParseError::Truncated));
            }
        )*};
    }
    takes! {
        RequestView: 2 | 3 | 13 | 14,
        AckView: 7..=9,
        AckEpsnView: 7,
        AckCcView: 8,
        AckCcxView: 9,
        NackView: 10 | 12,
        ControlView: 11,
        RudiView: 4 | 5,
        UudView: 6,
        TssView: 1,
    }
    for op in 0..=u8::MAX {
        let mut bytes = [0; CompareSwapView::LEN];
        bytes[0] = op;
        assert_eq!(CompareSwapView::new(&bytes).is_ok(), (0x0D..=0x12).contains(&op), "{op:#x}");
    }
}

/// Bytes 0, 1, 2, ... so that a field's value is its place.
fn places<const N: usize>(first: u8) -> [u8; N] {
    let mut bytes = [0; N];
    for (byte, place) in bytes.iter_mut().zip(0_u8..) {
        *byte = place;
    }
    bytes[0] = first;
    bytes
}

#[test]
fn every_field_is_in_its_place() {
    let b = places::<12>(2 << 3 | 1);
    let view = RequestView::new(&b).expect("a request");
    assert_eq!((view.pds_type(), view.next(), view.flags()), (2, 2, 1));
    assert_eq!((view.clear_psn_offset(), view.psn()), (0x0203, 0x0405_0607));
    assert_eq!((view.spdcid(), view.dpdcid()), (0x0809, 0x0A0B));
    assert_eq!(view.bytes(), &b);

    let b = places::<16>(7 << 3);
    assert_eq!(AckEpsnView::new(&b).expect("an ACK").expected_psn(), 0x0C0D_0E0F);

    let b = places::<40>(9 << 3);
    let (start, view) = (AckView::new(&b).expect("an ACK"), AckCcxView::new(&b).expect("a CCX"));
    assert_eq!((start.ack_psn_offset(), start.cack_psn()), (0x0203, 0x0405_0607));
    assert_eq!((start.spdcid(), start.dpdcid()), (0x0809, 0x0A0B));
    assert_eq!((view.cc_type(), view.cc_flags(), view.mpr()), (0, 0x0C, 0x0D));
    assert_eq!((view.sack_psn_offset(), view.sack_bitmap()), (0x0E0F, 0x1011_1213_1415_1617));
    assert_eq!(view.state()[..], b[24..]);

    let b = places::<32>(8 << 3);
    let view = AckCcView::new(&b).expect("an ACK_CC");
    assert_eq!((view.cc_type(), view.cc_flags(), view.mpr()), (0, 0x0C, 0x0D));
    assert_eq!((view.sack_psn_offset(), view.sack_bitmap()), (0x0E0F, 0x1011_1213_1415_1617));
    assert_eq!((view.service_time(), view.restore_cwnd()), (0x1819, false));
    assert_eq!((view.rcv_cwnd_pend(), view.rcvd_bytes()), (0x1A, 0x1B_1C1D));
    assert_eq!((view.credit(), view.ooo_count()), (0x18_191A, 0x1E1F));

    let b = places::<16>(11 << 3);
    let view = ControlView::new(&b).expect("a control packet");
    assert_eq!((view.probe_opaque(), view.psn()), (0x0203, 0x0405_0607));
    assert_eq!((view.spdcid(), view.dpdcid(), view.payload()), (0x0809, 0x0A0B, 0x0C0D_0E0F));

    let b = places::<16>(10 << 3);
    let view = NackView::new(&b).expect("a NACK");
    assert_eq!((view.code(), view.vendor_code(), view.psn()), (2, 3, 0x0405_0607));
    assert_eq!((view.spdcid(), view.dpdcid(), view.payload()), (0x0809, 0x0A0B, 0x0C0D_0E0F));

    let b = places::<44>(0xC5);
    let view = StdView::new(&b).expect("a standard request");
    assert_eq!((view.reserved(), view.opcode(), view.version(), view.flags()), (3, 5, 0, 1));
    assert_eq!((view.message_id(), view.ri_generation()), (0x0203, 4));
    assert_eq!((view.job_id(), view.pid_on_fep()), (0x05_0607, 0x0809));
    assert_eq!((view.resource_index(), view.buffer_offset()), (0x0A0B, 0x0C0D_0E0F_1011_1213));
    assert_eq!((view.initiator(), view.match_bits()), (0x1415_1617, 0x1819_1A1B_1C1D_1E1F));
    assert_eq!(view.header_data(), 0x2021_2223_2425_2627);
    assert_eq!((view.payload_length(), view.message_offset()), (0x2021_2223, 0x2425_2627));
    assert_eq!(view.request_length(), 0x2829_2A2B);

    let b = places::<32>(0xC5);
    let (view, more) = (SmallView::new(&b).expect("small"), MediumView::new(&b).expect("medium"));
    assert_eq!((view.reserved(), view.opcode(), view.version(), view.flags()), (3, 5, 0, 1));
    assert_eq!((view.request_length(), view.ri_generation()), (0x0203, 4));
    assert_eq!((view.job_id(), view.pid_on_fep()), (0x05_0607, 0x0809));
    assert_eq!((view.resource_index(), view.buffer_offset()), (0x0A0B, 0x0C0D_0E0F_1011_1213));
    assert_eq!((more.initiator(), more.match_bits()), (0x1415_1617, 0x1819_1A1B_1C1D_1E1F));

    let b = places::<20>(0xC5);
    let view = ResponseDataView::new(&b).expect("a response with data");
    assert_eq!((view.list(), view.opcode(), view.version(), view.return_code()), (3, 5, 0, 1));
    assert_eq!((view.response_message_id(), view.reserved()), (0x0203, 4));
    assert_eq!((view.job_id(), view.read_request_message_id()), (0x05_0607, 0x0809));
    assert_eq!((view.payload_length(), view.modified_length()), (0x0A0B, 0x0C0D_0E0F));
    assert_eq!(view.message_offset(), 0x1011_1213);
    let view = ResponseDataSmallView::new(&b).expect("a response with small data");
    assert_eq!((view.list(), view.opcode(), view.version(), view.return_code()), (3, 5, 0, 1));
    assert_eq!((view.payload_length(), view.reserved()), (0x0203, 4));
    assert_eq!((view.job_id(), view.original_request_psn()), (0x05_0607, 0x0809_0A0B));
    let view = ResponseView::new(&b).expect("a response");
    assert_eq!((view.list(), view.opcode(), view.version(), view.return_code()), (3, 5, 0, 1));
    assert_eq!((view.message_id(), view.ri_generation()), (0x0203, 4));
    assert_eq!((view.job_id(), view.modified_length()), (0x05_0607, 0x0809_0A0B));

    let b = places::<36>(0x0D);
    let (start, view) = (AtomicView::new(&b).expect("4"), CompareSwapView::new(&b).expect("36"));
    assert_eq!((start.op(), start.data_type()), (0x0D, 1));
    assert_eq!((start.semantic_control(), start.reserved()), (2, 3));
    assert_eq!(view.compare(), 0x0405_0607_0809_0A0B_0C0D_0E0F_1011_1213);
    assert_eq!(view.swap(), 0x1415_1617_1819_1A1B_1C1D_1E1F_2021_2223);
    let view = RendezvousView::new(&b).expect("24");
    assert_eq!((view.eager_length(), view.ri_generation()), (0x0D01_0203, 4));
    assert_eq!((view.pid_on_fep(), view.resource_index()), (0x050, 0x607));
    assert_eq!(view.read_offset(), 0x0809_0A0B_0C0D_0E0F);
    assert_eq!(view.memory_key(), 0x1011_1213_1415_1617);

    let b = places::<12>(1 << 3 | 5);
    let view = TssView::new(&b).expect("a TSS header");
    assert_eq!(
        (view.has_ssi(), view.reserved(), view.key(), view.sdi()),
        (true, false, true, 0x01_0203)
    );
    let b = places::<8>(4 << 3);
    let view = RudiView::new(&b).expect("a RUDI header");
    assert_eq!((view.reserved(), view.packet_id()), (0x0203, 0x0405_0607));
    let b = places::<4>(6 << 3);
    assert_eq!(UudView::new(&b).expect("a UUD header").reserved(), 0x0203);
}
