//! A packet of every kind that this crate can build, as bytes with a name. The example
//! `sample_pcap` writes them for an external dissector; the tests read them back.

use squall_wire::base::Psn;
use squall_wire::*;

/// Returns every sample: a name that can be a file's name, and the UDP payload.
#[allow(dead_code)] // not every user of the samples needs all of them
pub(crate) fn all() -> Samples {
    let mut samples = standard();
    newer(&mut samples);
    rates(&mut samples);
    samples
}

/// Returns the samples whose types are in the tables of UE, so that other dissectors know them.
pub(crate) fn standard() -> Samples {
    let mut samples = Vec::new();
    requests(&mut samples);
    request_headers(&mut samples);
    atomics(&mut samples);
    acks(&mut samples);
    responses(&mut samples);
    nacks(&mut samples);
    controls(&mut samples);
    others(&mut samples);
    samples
}

pub(crate) type Samples = Vec<(String, Vec<u8>)>;

fn add(samples: &mut Samples, name: impl Into<String>, packet: &Packet<'_>) {
    let mut bytes = vec![0xAA; packet.len()];
    assert_eq!(packet.emit(&mut bytes), bytes.len(), "emit and len agree");
    samples.push((name.into().to_lowercase(), bytes));
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

pub(crate) fn request(next: NextHeader) -> Request {
    Request {
        mode: Mode::Rud,
        next,
        retx: false,
        ack_request: false,
        clear_psn_offset: -3,
        psn: Psn(0xFFFF_FFFE),
        spdcid: 0x0102,
        dest: Dest::Pdc(0x0304),
        ccc: None,
    }
}

pub(crate) fn std_request(opcode: Opcode, length: u32) -> StdRequest {
    StdRequest {
        opcode,
        delivery_complete: false,
        initiator_error: false,
        relative: true,
        header_data_present: false,
        eom: true,
        som: true,
        message_id: 0xBEEF,
        ri_generation: 9,
        job_id: 0x0A_BCDE,
        pid_on_fep: 0x123,
        resource_index: 0xFED,
        buffer_offset: 0x1122_3344_5566_7788,
        initiator: 0x5EED_12B9,
        match_bits: 0x8000_0000_0000_0001,
        body: StdBody::First { header_data: 0 },
        request_length: length,
        extension: Extension::None,
    }
}

fn with_std(samples: &mut Samples, name: &str, pds: Request, ses: StdRequest, len: usize) {
    let pds = Request { next: NextHeader::RequestStd, ..pds };
    let payload = pattern(len);
    add(samples, name, &Packet::Request { pds, ses: Ses::Std(ses), payload: &payload });
}

fn requests(samples: &mut Samples) {
    let pds = request(NextHeader::RequestStd);
    let send = std_request(Opcode::TaggedSend, 300);
    let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
    with_std(samples, "rud", pds, send, 300);
    with_std(samples, "rud-syn", Request { dest: syn, ack_request: true, ..pds }, send, 300);
    let last = Dest::Syn { use_rsv_pdc: true, psn_offset: Dest::MAX_PSN_OFFSET };
    with_std(samples, "rud-syn-rsv-retx", Request { dest: last, retx: true, ..pds }, send, 300);
    with_std(samples, "rod", Request { mode: Mode::Rod, ..pds }, send, 300);
    let ccc = Some(Ccc { ccc_id: 0x77, credit_target: 0x00AB_CDEF });
    with_std(samples, "rud-cc", Request { ccc, ..pds }, send, 300);
    with_std(samples, "rod-cc", Request { ccc, mode: Mode::Rod, ..pds }, send, 300);
}

fn request_headers(samples: &mut Samples) {
    let pds = request(NextHeader::RequestStd);
    let std = std_request;
    for opcode in [Opcode::NoOp, Opcode::Write, Opcode::Send, Opcode::TaggedSend] {
        let name = format!("std-{}", opcode.name());
        with_std(samples, &name, pds, std(opcode, 64), 64);
        with_std(samples, &format!("{name}-empty"), pds, std(opcode, 0), 0);
    }
    let deferrable = [Opcode::DeferrableSend, Opcode::DeferrableTsend];
    for opcode in deferrable {
        with_std(samples, opcode.name(), pds, std(opcode, 64), 64);
    }
    with_std(samples, "std-rtr", pds, std(Opcode::DeferrableRtr, 1 << 20), 0);
    with_std(samples, "std-read", pds, std(Opcode::Read, 1 << 20), 0);
    with_std(samples, "std-msg-error", pds, std(Opcode::MsgError, 1 << 20), 0);
    let everything = StdRequest {
        delivery_complete: true,
        initiator_error: true,
        header_data_present: true,
        body: StdBody::First { header_data: u64::MAX },
        ..std(Opcode::Write, 64)
    };
    with_std(samples, "std-every-flag", pds, everything, 64);

    // A message of three packets.
    let message = std(Opcode::Send, 2500);
    with_std(samples, "first", pds, StdRequest { eom: false, ..message }, 1000);
    let next = |at, len, eom| StdRequest {
        eom,
        som: false,
        body: StdBody::Next { payload_length: len, message_offset: at },
        ..message
    };
    with_std(samples, "middle", pds, next(1000, 1000, false), 1000);
    with_std(samples, "last", pds, next(2000, 500, true), 500);

    // Rendezvous with nothing eager, with everything in one packet, and with the eager part in two
    // packets.
    for opcode in [Opcode::RendezvousSend, Opcode::RendezvousTsend] {
        let plan = |eager_length| StdRequest {
            extension: Extension::Rendezvous(Rendezvous {
                eager_length,
                ri_generation: 5,
                pid_on_fep: 0xABC,
                resource_index: 0x321,
                read_offset: 0x0102_0304_0506_0708,
                memory_key: 0xF0E0_D0C0_B0A0_9080,
            }),
            ..std(opcode, 1 << 24)
        };
        let name = opcode.name();
        with_std(samples, &format!("{name}-0"), pds, plan(0), 0);
        with_std(samples, &format!("{name}-900"), pds, plan(900), 900);
        let first = StdRequest { eom: false, ..plan(1800) };
        with_std(samples, &format!("{name}-first"), pds, first, 900);
        let body = StdBody::Next { payload_length: 900, message_offset: 900 };
        let last = StdRequest { som: false, body, ..plan(1800) };
        with_std(samples, &format!("{name}-last"), pds, last, 900);
        let bare = StdRequest { extension: Extension::None, ..last };
        with_std(samples, &format!("{name}-last-bare"), pds, bare, 900);
    }

    for (name, length) in [("small", 64), ("small-empty", 0)] {
        let payload = pattern(usize::from(length));
        let pds = request(NextHeader::RequestSmall);
        let ses = Ses::Small(small(Opcode::Write, length));
        add(samples, name, &Packet::Request { pds, ses, payload: &payload });
    }
    for (name, hd) in [("medium", false), ("medium-hd", true)] {
        let pds = request(NextHeader::RequestMedium);
        let ses = Ses::Medium(MediumRequest { header_data_present: hd, ..medium(64) });
        add(samples, name, &Packet::Request { pds, ses, payload: &pattern(64) });
    }
}

pub(crate) fn small(opcode: Opcode, length: u16) -> SmallRequest {
    SmallRequest {
        opcode,
        delivery_complete: true,
        initiator_error: false,
        relative: false,
        request_length: length,
        ri_generation: 1,
        job_id: 0x00FE_DCBA,
        pid_on_fep: 0xFFF,
        resource_index: 0x801,
        buffer_offset: u64::MAX - 1,
        extension: Extension::None,
    }
}

pub(crate) fn medium(length: u16) -> MediumRequest {
    MediumRequest {
        opcode: Opcode::TaggedSend,
        delivery_complete: false,
        initiator_error: false,
        relative: true,
        header_data_present: false,
        request_length: length,
        ri_generation: 1,
        job_id: 0x00FE_DCBA,
        pid_on_fep: 0xFFF,
        resource_index: 0x801,
        header_data_or_offset: 0x0101_0202_0303_0404,
        initiator: 0xCAFE_12B9,
        match_bits: 0x1111_2222_3333_4444,
        extension: Extension::None,
    }
}

fn atomics(samples: &mut Samples) {
    let pds = request(NextHeader::RequestStd);
    let kinds =
        [Opcode::Atomic, Opcode::FetchingAtomic, Opcode::TsendAtomic, Opcode::TsendFetchAtomic];
    for (i, &op) in AmoOp::ALL.iter().enumerate() {
        let opcode = kinds[i % kinds.len()];
        let data_type = AmoType::ALL[i % 8];
        let size = data_type.size().unwrap_or_default();
        let atomic = Atomic { op, data_type, cacheable: i % 2 == 1, cpu_coherent: i % 3 == 1 };
        let no_operand = matches!(op, AmoOp::Read | AmoOp::Inval);
        let (extension, len) = if op.is_compare_swap() {
            let (compare, swap) = (u128::MAX >> i, 0x0102_0304_0506_0708 << i);
            (Extension::CompareSwap(CompareSwap { atomic, compare, swap }), 0)
        } else {
            (Extension::Atomic(atomic), if no_operand { 0 } else { size })
        };
        let length = u32::try_from(size).unwrap_or_default();
        let ses = StdRequest { extension, ..std_request(opcode, length) };
        with_std(samples, &format!("amo-{}", op.name()), pds, ses, len);
    }
    for &data_type in AmoType::ALL {
        let size = u16::try_from(data_type.size().unwrap_or(16)).unwrap_or_default();
        let atomic = Atomic { op: AmoOp::Sum, data_type, cacheable: false, cpu_coherent: true };
        let ses = Ses::Small(SmallRequest {
            extension: Extension::Atomic(atomic),
            ..small(Opcode::Atomic, size * 4)
        });
        let pds = request(NextHeader::RequestSmall);
        let name = format!("amo-type-{}", data_type.name());
        let payload = pattern(usize::from(size * 4));
        add(samples, name, &Packet::Request { pds, ses, payload: &payload });
    }
}

pub(crate) fn ack() -> Ack {
    Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 2,
        cack_psn: Psn(0xFFFF_FFFF),
        spdcid: 0x0304,
        dpdcid: 0x0102,
        ext: AckExt::Cc(AckCc {
            mpr: 8,
            sack_psn_offset: 1,
            sack_bitmap: 0x8000_0000_0000_0002,
            state: CcState::Nscc(NsccState {
                service_time: 17,
                restore_cwnd: false,
                rcv_cwnd_pend: 64,
                rcvd_bytes: 0x00FF_FFFF,
                ooo_count: 3,
            }),
        }),
    }
}

fn acks(samples: &mut Samples) {
    let plain = |pds| Packet::Ack { pds, ses: Ses::None, payload: &[] };
    add(samples, "ack-cc", &plain(ack()));
    add(samples, "ack-cc-ce-retx", &plain(Ack { ce: true, retx: true, ..ack() }));
    let probe = Ack { probe: true, ack_psn_offset: -2, ..ack() };
    add(samples, "ack-cc-probe", &plain(probe));
    for (name, request) in [("clear", AckRequest::Clear), ("close", AckRequest::Close)] {
        add(samples, format!("ack-cc-{name}"), &plain(Ack { request, ..ack() }));
    }
    let state = CcState::Nscc(NsccState { restore_cwnd: true, ..NsccState::default() });
    let nscc = AckExt::Cc(AckCc { mpr: 0, sack_psn_offset: -64, sack_bitmap: 0, state });
    add(samples, "ack-cc-restore", &plain(Ack { ext: nscc, ..ack() }));
    let state = CcState::Credit { credit: 0x0012_3456, ooo_count: 0xFFFF };
    let credit = AckExt::Cc(AckCc { mpr: 255, sack_psn_offset: 0, sack_bitmap: 1, state });
    add(samples, "ack-cc-credit", &plain(Ack { ext: credit, ..ack() }));
    add(samples, "ack", &plain(Ack { ext: AckExt::None, ..ack() }));
    let dart = DartState {
        service_time: 0x1234,
        congestion: 2,
        senders: 17,
        share: 0x8000,
        ooo_count: 0xFFFF,
    };
    for (cc_type, state) in [(DartState::CC_TYPE, dart.pack()), (15, *b"sixteen bytes :)")] {
        let ext = AckExt::Ccx(AckCcx {
            cc_type,
            mpr: 1,
            sack_psn_offset: i16::MIN,
            sack_bitmap: u64::MAX,
            state,
        });
        add(samples, format!("ack-ccx-{cc_type}"), &plain(Ack { ext, ..ack() }));
    }
}

fn responses(samples: &mut Samples) {
    let response = Response {
        list: List::Overflow,
        opcode: ResponseOpcode::Response,
        return_code: ReturnCode::Ok,
        message_id: 0x1234,
        ri_generation: 0x99,
        job_id: 0x0065_4321,
        modified_length: 0x09AB_CDEF,
    };
    let acked =
        |ses: Ses| Packet::Ack { pds: Ack { next: ses.next_header(), ..ack() }, ses, payload: &[] };
    add(samples, "rsp-default", &acked(Ses::Response(Response::default_for(77))));
    let none = Response { opcode: ResponseOpcode::NoResponse, ..response };
    add(samples, "rsp-none", &acked(Ses::Response(none)));
    for &return_code in ReturnCode::ALL {
        let name = format!("rsp-{}", return_code.name());
        add(samples, name, &acked(Ses::Response(Response { return_code, ..response })));
    }

    let data = ResponseData {
        list: List::Expected,
        return_code: ReturnCode::Ok,
        response_message_id: 5,
        job_id: 0x0065_4321,
        read_request_message_id: 6,
        payload_length: 800,
        modified_length: 4000,
        message_offset: 1600,
    };
    let payload = pattern(800);
    let ses = Ses::ResponseData(data);
    let pds = request(NextHeader::ResponseData);
    add(samples, "rsp-data", &Packet::Request { pds, ses, payload: &payload });
    let pds = Ack { next: NextHeader::ResponseData, ..ack() };
    add(samples, "rsp-data-ack", &Packet::Ack { pds, ses, payload: &payload });
    let small = ResponseDataSmall {
        list: List::Expected,
        return_code: ReturnCode::Ok,
        payload_length: 8,
        job_id: 0x0065_4321,
        original_request_psn: 0xFFFF_FFF0,
    };
    let (ses, payload) = (Ses::ResponseDataSmall(small), pattern(8));
    let pds = request(NextHeader::ResponseDataSmall);
    add(samples, "rsp-small", &Packet::Request { pds, ses, payload: &payload });
    let pds = Ack { next: NextHeader::ResponseDataSmall, ..ack() };
    add(samples, "rsp-small-ack", &Packet::Ack { pds, ses, payload: &payload });
}

pub(crate) fn nack(code: NackCode) -> Nack {
    Nack {
        ce: true,
        retx: false,
        rudi: false,
        code,
        vendor_code: 0,
        psn: Psn(0x9988_7766),
        spdcid: 0x0304,
        dpdcid: 0x0102,
        payload: 0x9988_7770,
        ccx: None,
    }
}

fn nacks(samples: &mut Samples) {
    for &code in NackCode::ALL {
        let name = code.name();
        add(samples, format!("nack-{name}"), &Packet::Nack(nack(code)));
        let mismatch = matches!(code, NackCode::PdcHdrMismatch | NackCode::PdcModeMismatch);
        if !code.needs_context() && !mismatch {
            let stranger = Nack { spdcid: 0, retx: true, ..nack(code) };
            add(samples, format!("nack-{name}-no-pdc"), &Packet::Nack(stranger));
        }
    }
    let rudi = Nack { rudi: true, spdcid: 0, dpdcid: 0, ..nack(NackCode::NoPktBuffer) };
    add(samples, "nack-rudi", &Packet::Nack(rudi));
    let ccx = Some(NackCcx(*b"\xE1fteen bytes ..."));
    let vendor = Nack { ccx, vendor_code: 0x87, ..nack(NackCode::ExpErr) };
    add(samples, "nack-ccx", &Packet::Nack(vendor));
}

pub(crate) fn control(kind: ControlKind) -> Control {
    let empty =
        matches!(kind, ControlKind::Noop | ControlKind::CloseCommand | ControlKind::CloseRequest);
    Control {
        kind,
        isrod: false,
        retx: false,
        ack_request: kind == ControlKind::CloseCommand,
        probe_opaque: if kind == ControlKind::Probe { 0xABCD } else { 0 },
        psn: Psn(0x0000_1000),
        spdcid: 0x0102,
        dest: Dest::Pdc(0x0304),
        payload: if empty { 0 } else { 0x1234 },
    }
}

fn controls(samples: &mut Samples) {
    for &kind in ControlKind::ALL {
        let name = kind.name();
        let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 4 };
        let opening = Control { dest: syn, retx: true, ..control(kind) };
        if kind == ControlKind::Negotiation {
            let values = [1, 2, 0, 0, 0, 0, 0, 1];
            let pds = Control { isrod: true, ..control(kind) };
            add(samples, format!("cp-{name}"), &Packet::Negotiation { pds, values: &values });
            add(samples, format!("cp-{name}-bare"), &Packet::Negotiation { pds, values: &[] });
            continue;
        }
        add(samples, format!("cp-{name}"), &Packet::Control(control(kind)));
        add(samples, format!("cp-{name}-syn"), &Packet::Control(opening));
    }
    let rod = Control { isrod: true, ..control(ControlKind::Noop) };
    add(samples, "cp-noop-rod", &Packet::Control(rod));
}

fn others(samples: &mut Samples) {
    let payload = pattern(64);
    let send = Ses::Std(std_request(Opcode::Write, 64));
    for (name, retx) in [("rudi-req", false), ("rudi-req-retx", true)] {
        let pds = RudiRequest { next: NextHeader::RequestStd, retx, packet_id: 0x9988_7766 };
        add(samples, name, &Packet::RudiRequest { pds, ses: send, payload: &payload });
    }
    let ses = Ses::Response(Response::default_for(3));
    let pds = RudiResponse { next: ses.next_header(), ce: true, retx: true, packet_id: 1 };
    add(samples, "rudi-rsp", &Packet::RudiResponse { pds, ses, payload: &[] });
    let datagram = StdRequest { message_id: 0, ..std_request(Opcode::DatagramSend, 64) };
    let pds = Uud { next: NextHeader::RequestStd };
    add(samples, "uud", &Packet::Uud { pds, ses: Ses::Std(datagram), payload: &payload });
    let pds = Uud { next: NextHeader::RequestSmall };
    let ses = Ses::Small(small(Opcode::DatagramSend, 64));
    add(samples, "uud-small", &Packet::Uud { pds, ses, payload: &payload });
    for (name, ssi) in [("tss", None), ("tss-ssi", Some(0x0A00_0001))] {
        let header = Tss { key: ssi.is_some(), sdi: 0x00AB_CDEF, ssi, tsc: 0x0001_0000_0000_0002 };
        add(samples, name, &Packet::Tss { header, sealed: &payload });
    }
}

/// Adds packets that endpoints of other makers send although UE 1.0.1, which the samples of
/// [`standard`] obey, does not have them.
fn newer(samples: &mut Samples) {
    let rod = Control { isrod: true, ..control(ControlKind::CloseCommand) };
    add(samples, "cp-close_command-rod", &Packet::Control(rod));
    let ext = AckExt::ExpectedPsn(Psn(0x0102_0304));
    let pds = Ack { ext, ack_psn_offset: 0, ..ack() };
    add(samples, "ack-epsn", &Packet::Ack { pds, ses: Ses::None, payload: &[] });
    for code in [NackCode::PdcHdrMismatch, NackCode::PdcModeMismatch] {
        let refusal = Nack { spdcid: 0, ..nack(code) };
        add(samples, format!("nack-{}-no-pdc", code.name()), &Packet::Nack(refusal));
    }
}

fn rates(samples: &mut Samples) {
    let entry = |link, state| RateEntry {
        link,
        bottleneck: LinkRate::new(9.6e10),
        allocated: LinkRate::new(4.8e10),
        weight: 2,
        sweep: 0x0708,
        state,
        ignore: state == RateState::Elsewhere,
        fresh: true,
    };
    let entries = [(7, RateState::New), (8, RateState::Elsewhere), (9, RateState::Here)]
        .map(|(link, state)| entry(link, state).to_bytes());
    for (name, stage, count, demand) in [
        ("rates-asks", RateStage::Asks, 0, LinkRate::UNLIMITED),
        ("rates-back", RateStage::Back, 3, LinkRate::new(1e10)),
        ("rates-leaves", RateStage::Leaves, 2, LinkRate::default()),
    ] {
        let head = RateHead {
            stage,
            weight: 2,
            initiator: 0x5EED_12B9,
            flow: 0x0001_0002,
            path: 5,
            serial: 0xFFFF,
            demand,
            epoch: 0x0123_4567,
            epoch_weight: 1,
            let_through: 36,
        };
        add(samples, name, &Packet::Rates(RatePacket::new(head, &entries[..count])));
    }
}
