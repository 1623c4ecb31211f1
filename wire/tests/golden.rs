//! Golden vectors, bytes that this crate did not write.
//!
//! Single headers come from an independent builder (xdp2's), and were decoded by hand against the
//! tables. The builder fills fields with arbitrary numbers, reserved ones included, so each vector
//! is read through its view as it stands, written from its plain value, and parsed as far as the
//! rules go.
//!
//! Whole packets are those that foreign endpoints and their peers send
//! (`data/foreign_packets.txt`), and the headers of encrypted ones (`data/tss_headers.txt`).

use std::net::SocketAddr;

use squall_wire::base::Psn;
use squall_wire::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

const REQUEST: Request = Request {
    mode: Mode::Rud,
    next: NextHeader::RequestStd,
    retx: true,
    ack_request: false,
    clear_psn_offset: 0x1234,
    psn: Psn(0x9876_5432),
    spdcid: 0x3456,
    dest: Dest::Pdc(0x9ABC),
    ccc: None,
};

const ACK: Ack = Ack {
    next: NextHeader::Response,
    ce: true,
    retx: true,
    probe: false,
    request: AckRequest::Clear,
    ack_psn_offset: -0x79BE,
    cack_psn: Psn(0x2468_ACE0),
    spdcid: 0x3456,
    dpdcid: 0x789A,
    ext: AckExt::None,
};

const STD: StdRequest = StdRequest {
    opcode: Opcode::Read,
    delivery_complete: true,
    initiator_error: false,
    relative: true,
    header_data_present: false,
    eom: true,
    som: true,
    message_id: 0x1234,
    ri_generation: 0x77,
    job_id: 0x00AB_CDEF,
    pid_on_fep: 0x678,
    resource_index: 0x9AB,
    buffer_offset: 0xFEDC_BA98_7654_3210,
    initiator: 0xFEDC_BA98,
    match_bits: 0x1122_3344_5566_7788,
    body: StdBody::First { header_data: 0xAABB_DDDD_EEFF_0011 },
    request_length: 0x9988_7766,
    extension: Extension::None,
};

/// Returns the bytes that `emit` writes into a buffer of `len` bytes.
fn emitted(len: usize, emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut out = vec![0xEE; len];
    assert_eq!(emit(&mut out), len);
    out
}

#[test]
fn what_a_speculative_request_says() {
    let speculation = Speculation { epoch: 0x77, number: 0x2225, weight: 0x366 };
    assert_eq!(speculation.pack(), Ccc { ccc_id: 0xf7, credit_target: 0x0088_9766 });
    assert_eq!(Speculation::of(speculation.pack()), Some(speculation));
    assert_eq!(Speculation::of(Ccc { ccc_id: 0, ..speculation.pack() }), None);
}

#[test]
fn requests() {
    let syn = Dest::Syn { use_rsv_pdc: true, psn_offset: 0x876 };
    let ccc = Some(Ccc { ccc_id: 0x77, credit_target: 0x0088_7766 });
    let cases = [
        ("1190 1234 98765432 3456 9abc", REQUEST),
        ("1194 1234 98765432 3456 8876", Request { dest: syn, ..REQUEST }),
        ("6990 1234 98765432 3456 9abc 77 887766", Request { ccc, ..REQUEST }),
        ("1990 1234 98765432 3456 9abc", Request { mode: Mode::Rod, ..REQUEST }),
    ];
    for (hex, request) in cases {
        let mut vector = bytes(hex);
        assert_eq!(emitted(request.len(), |out| request.emit(out)), vector, "{hex}");
        let view = RequestView::new(&vector).unwrap();
        assert_eq!(view.clear_psn_offset(), 0x1234);
        assert_eq!((view.psn(), view.spdcid()), (0x9876_5432, 0x3456));
        // The builder's CLEAR_PSN lies after the PSN, which no sender may do.
        assert_eq!(Request::read(&vector), Err(ParseError::ClearPsnOffset));
        vector[2..4].copy_from_slice(&(-0x0DCC_i16).to_be_bytes());
        let allowed = Request { clear_psn_offset: -0x0DCC, ..request };
        assert_eq!(Request::read(&vector), Ok(allowed));
        assert_eq!(allowed.clear_psn(), Psn(0x9876_5432 - 0x0DCC));
    }
    assert_eq!(Request { dest: syn, ..REQUEST }.start_psn(), Some(Psn(0x9876_4BBC)));
}

#[test]
fn ack() {
    let vector = bytes("3a32 8642 2468ace0 3456 789a");
    assert_eq!(Ack::read(&vector), Ok(ACK));
    assert_eq!(emitted(12, |out| ACK.emit(out)), vector);
    assert_eq!(ACK.ack_psn(), Some(Psn(0x2468_3322)));
}

#[test]
fn ack_cc() {
    let nscc = CcState::Nscc(NsccState {
        service_time: 0x99AA,
        restore_cwnd: true,
        rcv_cwnd_pend: 0x7F,
        rcvd_bytes: 0x0088_7766,
        ooo_count: 0x8765,
    });
    let credit = CcState::Credit { credit: 0x0012_3456, ooo_count: 0x8765 };
    let cases = [
        (
            "4232 2121 2468ace0 3456 789a 0f 87 6789 123456789abcdef0 99aa ff 887766 8765",
            (0x2121, 0x6789, nscc),
        ),
        (
            "4232 9876 2468ace0 3456 789a 1f 87 9988 123456789abcdef0 123456 000000 8765",
            (-0x678A, -0x6678, credit),
        ),
    ];
    for (hex, (ack_psn_offset, sack_psn_offset, state)) in cases {
        let mut vector = bytes(hex);
        let view = AckCcView::new(&vector).unwrap();
        assert_eq!((view.cc_flags(), view.mpr()), (0xF, 0x87));
        // The builder sets the reserved cc_flags.
        assert_eq!(Ack::read(&vector), Err(ParseError::Reserved));
        vector[12] &= 0xF0;
        let cc = AckCc { mpr: 0x87, sack_psn_offset, sack_bitmap: 0x1234_5678_9ABC_DEF0, state };
        let ack = Ack { ack_psn_offset, ext: AckExt::Cc(cc), ..ACK };
        assert_eq!(Ack::read(&vector), Ok(ack));
        assert_eq!(emitted(32, |out| ack.emit(out)), vector);
        let base = 0x2468_ACE0_u32.wrapping_add_signed(sack_psn_offset.into());
        assert_eq!(ack.sack(), Some((Psn(base), 0x1234_5678_9ABC_DEF0)));
    }
}

#[test]
fn nack() {
    let mut vector = bytes("5238 16 87 99887766 3456 789a 56789abc");
    let view = NackView::new(&vector).unwrap();
    assert_eq!((view.code(), view.vendor_code(), view.psn()), (0x16, 0x87, 0x9988_7766));
    assert_eq!((view.spdcid(), view.dpdcid(), view.payload()), (0x3456, 0x789A, 0x5678_9ABC));
    // The builder announces a response and gives a RUDI NACK context ids.
    assert_eq!(Nack::read(&vector), Err(ParseError::NextHeaderContext));
    vector[0..2].copy_from_slice(&[0x50, 0x38]);
    assert_eq!(Nack::read(&vector), Err(ParseError::Spdcid));
    vector[8..12].fill(0);
    let nack = Nack {
        ce: true,
        retx: true,
        rudi: true,
        code: NackCode::PdcModeMismatch,
        vendor_code: 0x87,
        psn: Psn(0x9988_7766),
        spdcid: 0,
        dpdcid: 0,
        payload: 0x5678_9ABC,
        ccx: None,
    };
    assert_eq!(Nack::read(&vector), Ok(nack));
    assert_eq!(emitted(16, |out| nack.emit(out)), vector);
}

#[test]
fn standard_read() {
    let vector = bytes(
        "02 2b 1234 77 abcdef 0678 09ab fedcba9876543210 fedcba98 1122334455667788
         aabbddddeeff0011 99887766",
    );
    assert_eq!(StdRequest::read(&vector), Ok(STD));
    assert_eq!(emitted(44, |out| STD.emit(out)), vector);
}

#[test]
fn standard_write_continuation() {
    let vector = bytes(
        "01 2a 1234 77 abcdef 0678 09ab fedcba9876543210 fedcba98 1122334455667788
         00000345 77665544 99887766",
    );
    let body = StdBody::Next { payload_length: 0x345, message_offset: 0x7766_5544 };
    let write = StdRequest { opcode: Opcode::Write, som: false, body, ..STD };
    assert_eq!(StdRequest::read(&vector), Ok(write));
    assert_eq!(emitted(44, |out| write.emit(out)), vector);
    assert_eq!(write.message_offset(), 0x7766_5544);
}

#[test]
fn response() {
    let vector = bytes("c1 09 1234 99 654321 09abcdef");
    let response = Response {
        list: List::Vendor3,
        opcode: ResponseOpcode::Response,
        return_code: ReturnCode::AtPerm,
        message_id: 0x1234,
        ri_generation: 0x99,
        job_id: 0x0065_4321,
        modified_length: 0x09AB_CDEF,
    };
    assert_eq!(Response::read(&vector), Ok(response));
    assert_eq!(emitted(12, |out| response.emit(out)), vector);
}

#[test]
fn datagrams() {
    let mut vector = bytes("21a0 0000 99887766");
    assert_eq!(RudiView::new(&vector).unwrap().packet_id(), 0x9988_7766);
    // The builder sets M on a request.
    assert_eq!(RudiRequest::read(&vector), Err(ParseError::Reserved));
    vector[1] &= !0x20;
    let rudi = RudiRequest { next: NextHeader::RequestStd, retx: false, packet_id: 0x9988_7766 };
    assert_eq!(RudiRequest::read(&vector), Ok(rudi));
    assert_eq!(emitted(8, |out| rudi.emit(out)), vector);

    let vector = bytes("3180 0000");
    let uud = Uud { next: NextHeader::RequestStd };
    assert_eq!(Uud::read(&vector), Ok(uud));
    assert_eq!(emitted(4, |out| uud.emit(out)), vector);
}

/// Returns the lines of a data file, in words, without its comments.
fn rows(data: &str) -> Vec<Vec<&str>> {
    let lines = data.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').collect()).collect()
}

/// Returns name and words of every packet of a foreign endpoint.
fn foreign_packets() -> Vec<Vec<&'static str>> {
    let rows = rows(include_str!("data/foreign_packets.txt"));
    assert_eq!(rows.len(), 49);
    rows
}

/// Panics unless the parser accepts the packet and `emit` returns its bytes.
fn assert_reads_and_writes_back(name: &str, vector: &[u8]) {
    let packet = parse(vector).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(emitted(packet.len(), |out| packet.emit(out)), vector, "{name}: {packet:?}");
}

#[test]
fn packets_of_foreign_endpoints_are_read_and_written_back() {
    for row in foreign_packets() {
        assert_reads_and_writes_back(row[0], &bytes(row[1]));
    }
}

#[test]
fn packets_that_only_foreign_endpoints_send_have_their_meaning() {
    let named = |name: &str| {
        let row = foreign_packets().into_iter().find(|row| row[0] == name);
        bytes(row.unwrap_or_else(|| panic!("no packet {name}"))[1])
    };
    let close = named("suet_close");
    let Ok(Packet::Control(close)) = parse(&close) else { panic!("{close:02x?}") };
    assert_eq!(
        (close.kind, close.isrod, close.ack_request),
        (ControlKind::CloseCommand, true, false)
    );
    for (name, code) in [
        ("ref_nack_mode_mismatch", NackCode::PdcModeMismatch),
        ("ref_nack_hdr_mismatch", NackCode::PdcHdrMismatch),
    ] {
        let nack = named(name);
        let Ok(Packet::Nack(nack)) = parse(&nack) else { panic!("{nack:02x?}") };
        assert_eq!((nack.code, nack.spdcid), (code, 0));
    }
    let epsn = named("ref_ack_epsn");
    let Ok(Packet::Ack { pds, .. }) = parse(&epsn) else { panic!("{epsn:02x?}") };
    let floor = u32::from_be_bytes(*epsn.last_chunk().unwrap());
    assert_eq!(pds.ext, AckExt::ExpectedPsn(Psn(floor)));
    // A Negotiation of UE 1.0.3 is not a handshake of this project.
    let negotiation = named("negotiation_on_off");
    let Ok(Packet::Negotiation { values, .. }) = parse(&negotiation) else {
        panic!("{negotiation:02x?}")
    };
    assert_eq!(values, [1, 2, 0, 0, 0, 0, 0, 1]);
    assert_eq!(Handshake::read(values), Ok(None));
}

#[test]
fn headers_of_encrypted_packets() {
    let rows = rows(include_str!("data/tss_headers.txt"));
    assert_eq!(rows.len(), 11);
    for row in rows {
        let [name, key, sdi, ssi, epoch, counter, header, plain] = row[..] else {
            panic!("{row:?}")
        };
        let number = |word: &str| word.parse::<u64>().unwrap();
        let tss = Tss {
            key: key == "1",
            sdi: sdi.parse().unwrap(),
            ssi: ssi.parse().ok(),
            tsc: number(epoch) << 48 | number(counter),
        };
        let mut vector = bytes(header);
        assert_eq!(emitted(tss.len(), |out| tss.emit(out)), vector, "{name}");
        vector.extend([0; Tss::MIN_SEALED]);
        let sealed = &[0; Tss::MIN_SEALED][..];
        assert_eq!(parse(&vector), Ok(Packet::Tss { header: tss, sealed }), "{name}");
        if plain != "-" {
            assert_reads_and_writes_back(name, &bytes(plain));
        }
    }
}

#[test]
fn the_crc_of_the_reference_provider_covers_the_outer_headers() {
    let mut with_crc = 0;
    for row in foreign_packets() {
        let [name, payload, covered, trailer] = row[..] else { continue };
        with_crc += 1;
        let (covered, payload) = (bytes(covered), bytes(payload));
        let end = |address: usize, port: usize| {
            let ip: [u8; 4] = covered[address..address + 4].try_into().unwrap();
            SocketAddr::from((ip, u16::from_be_bytes([covered[port], covered[port + 1]])))
        };
        let path = HeaderCrc::new(end(0, 8), end(4, 10)).expect("a path");
        let split = payload.split_at(payload.len() / 3);
        assert_eq!(
            path.trailer(&[split.0, split.1]).map(Vec::from),
            Some(bytes(trailer)),
            "{name}"
        );
        let packet = [&payload[..], &bytes(trailer)].concat();
        assert_eq!(path.check_and_strip(&packet), Some(&payload[..]), "{name}");
        // The sum of this project's form is another one.
        assert_eq!(check_and_strip_crc(&packet), None, "{name}");
    }
    assert_eq!(with_crc, 22);
}
