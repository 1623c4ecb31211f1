//! Random packets that obey the tables: fields free within their bits, lengths and opcodes made to
//! agree.

use proptest::prelude::*;
use proptest::sample::select;
use squall_wire::base::Psn;
use squall_wire::*;

/// A packet whose payload it owns.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pds: Pds,
    ses: Ses,
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Pds {
    Request(Request),
    Ack(Ack),
    Nack(Nack),
    Control(Control),
    RudiRequest(RudiRequest),
    RudiResponse(RudiResponse),
    Uud,
    Tss(Tss),
    Rates(RateHead, [[u8; RateEntry::LEN]; RatePacket::MOST], usize),
}

impl Owned {
    /// The packet, with the next_hdr that its SES header demands.
    pub(crate) fn packet(&self) -> Packet<'_> {
        let (ses, payload, next) = (self.ses, &self.payload[..], self.ses.next_header());
        match self.pds {
            Pds::Rates(head, ref entries, count) => {
                Packet::Rates(RatePacket::new(head, &entries[..count]))
            }
            Pds::Request(pds) => Packet::Request { pds: Request { next, ..pds }, ses, payload },
            Pds::Ack(pds) => Packet::Ack { pds: Ack { next, ..pds }, ses, payload },
            Pds::Nack(pds) => Packet::Nack(pds),
            Pds::Control(pds) if pds.kind == ControlKind::Negotiation => {
                Packet::Negotiation { pds, values: payload }
            }
            Pds::Control(pds) => Packet::Control(pds),
            Pds::RudiRequest(pds) => {
                Packet::RudiRequest { pds: RudiRequest { next, ..pds }, ses, payload }
            }
            Pds::RudiResponse(pds) => {
                Packet::RudiResponse { pds: RudiResponse { next, ..pds }, ses, payload }
            }
            Pds::Uud => Packet::Uud { pds: Uud { next }, ses, payload },
            Pds::Tss(header) => Packet::Tss { header, sealed: payload },
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 256) as u8).collect()
}

pub(crate) fn packet() -> impl Strategy<Value = Owned> {
    let build = |pds| move |(ses, len): (Ses, usize)| Owned { pds, ses, payload: bytes(len) };
    prop_oneof![
        6 => (request(), prop_oneof![3 => semantic_request(), 1 => data()])
            .prop_map(move |(pds, upper)| build(Pds::Request(pds))(upper)),
        3 => (ack(), prop_oneof![Just((Ses::None, 0)), response(), data()])
            .prop_map(move |(pds, upper)| build(Pds::Ack(pds))(upper)),
        1 => nack().prop_map(move |pds| build(Pds::Nack(pds))((Ses::None, 0))),
        1 => (control(), 0..40_usize).prop_map(move |(pds, len)| {
            let len = if pds.kind == ControlKind::Negotiation { len } else { 0 };
            build(Pds::Control(pds))((Ses::None, len))
        }),
        1 => (any::<(bool, u32)>(), semantic_request()).prop_map(move |((retx, packet_id), upper)| {
            let pds = RudiRequest { next: NextHeader::None, retx, packet_id };
            build(Pds::RudiRequest(pds))(upper)
        }),
        1 => (any::<(bool, bool, u32)>(), prop_oneof![response(), data()])
            .prop_map(move |((ce, retx, packet_id), upper)| {
                let pds = RudiResponse { next: NextHeader::None, ce, retx, packet_id };
                build(Pds::RudiResponse(pds))(upper)
            }),
        1 => (std_request(), 0..300_u16).prop_map(move |(fields, len)| {
            let ses = StdRequest {
                opcode: Opcode::DatagramSend, message_id: 0, request_length: len.into(), ..fields
            };
            build(Pds::Uud)((Ses::Std(ses), len.into()))
        }),
        1 => (any::<(bool, Option<u32>, u64)>(), 0..1_u32 << 24, Tss::MIN_SEALED..80)
            .prop_map(move |((key, ssi, tsc), sdi, len)| {
                build(Pds::Tss(Tss { key, sdi, ssi, tsc }))((Ses::None, len))
            }),
        1 => (rate_head(), prop::array::uniform8(rate_entry()), 0..=RatePacket::MOST)
            .prop_map(move |(head, entries, count)| {
                let entries = entries.map(|entry| entry.to_bytes());
                build(Pds::Rates(head, entries, count))((Ses::None, 0))
            }),
    ]
}

fn link_rate() -> impl Strategy<Value = LinkRate> {
    (0_f32..=f32::MAX).prop_map(LinkRate::new)
}

fn rate_head() -> impl Strategy<Value = RateHead> {
    let stage = select(&[RateStage::Asks, RateStage::Back, RateStage::Leaves][..]);
    let demand = prop_oneof![Just(LinkRate::UNLIMITED), link_rate()];
    let weights = (1..=u16::MAX, 1..=u16::MAX);
    (stage, demand, weights, any::<(u32, u32, u16, u16, u32, u16)>()).prop_map(
        |(stage, demand, (weight, epoch_weight), rest)| {
            let (initiator, flow, path, serial, epoch, let_through) = rest;
            RateHead {
                stage,
                weight,
                initiator,
                flow,
                path,
                serial,
                demand,
                epoch,
                epoch_weight,
                let_through,
            }
        },
    )
}

fn rate_entry() -> impl Strategy<Value = RateEntry> {
    let state = select(&[RateState::New, RateState::Elsewhere, RateState::Here][..]);
    (state, link_rate(), link_rate(), any::<(u32, u16, u16, bool, bool)>()).prop_map(
        |(state, bottleneck, allocated, (link, weight, sweep, ignore, fresh))| RateEntry {
            link,
            bottleneck,
            allocated,
            weight,
            sweep,
            state,
            ignore,
            fresh,
        },
    )
}

fn dest() -> impl Strategy<Value = Dest> {
    prop_oneof![
        (1..=u16::MAX).prop_map(Dest::Pdc),
        (any::<bool>(), 0..=Dest::MAX_PSN_OFFSET)
            .prop_map(|(use_rsv_pdc, psn_offset)| Dest::Syn { use_rsv_pdc, psn_offset }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let ccc = (any::<u8>(), 0..1_u32 << 24)
        .prop_map(|(ccc_id, credit_target)| Ccc { ccc_id, credit_target });
    let fields = (any::<(bool, bool, bool, u32)>(), i16::MIN..=0, 1..=u16::MAX);
    (fields, dest(), prop::option::of(ccc)).prop_map(
        |(((rod, retx, ack_request, psn), clear_psn_offset, spdcid), dest, ccc)| Request {
            mode: if rod { Mode::Rod } else { Mode::Rud },
            next: NextHeader::None,
            retx,
            ack_request,
            clear_psn_offset,
            psn: Psn(psn),
            spdcid,
            dest,
            ccc,
        },
    )
}

fn ack() -> impl Strategy<Value = Ack> {
    let nscc = (any::<(u16, bool, u16)>(), 0..128_u8, 0..1_u32 << 24).prop_map(
        |((service_time, restore_cwnd, ooo_count), rcv_cwnd_pend, rcvd_bytes)| {
            CcState::Nscc(NsccState {
                service_time,
                restore_cwnd,
                rcv_cwnd_pend,
                rcvd_bytes,
                ooo_count,
            })
        },
    );
    let credit = (0..1_u32 << 24, any::<u16>())
        .prop_map(|(credit, ooo_count)| CcState::Credit { credit, ooo_count });
    let cc = (any::<(u8, i16, u64)>(), prop_oneof![nscc, credit]).prop_map(
        |((mpr, sack_psn_offset, sack_bitmap), state)| {
            AckExt::Cc(AckCc { mpr, sack_psn_offset, sack_bitmap, state })
        },
    );
    let dart = (any::<[u16; 4]>(), 0..=2_u8).prop_map(
        |([service_time, senders, share, ooo_count], congestion)| DartState {
            service_time,
            congestion,
            senders,
            share,
            ooo_count,
        },
    );
    let others = (any::<[u8; 16]>(), select(vec![0, 1, 15]));
    let state = prop_oneof![others, dart.prop_map(|dart| (dart.pack(), DartState::CC_TYPE))];
    let ccx = (any::<(u8, i16, u64)>(), state).prop_map(
        |((mpr, sack_psn_offset, sack_bitmap), (state, cc_type))| {
            AckExt::Ccx(AckCcx { cc_type, mpr, sack_psn_offset, sack_bitmap, state })
        },
    );
    let epsn = any::<u32>().prop_map(|psn| AckExt::ExpectedPsn(Psn(psn)));
    let ack_request = select(vec![AckRequest::None, AckRequest::Clear, AckRequest::Close]);
    let ids = (1..=u16::MAX, 1..=u16::MAX);
    (
        any::<(bool, bool, bool, i16, u32)>(),
        ack_request,
        ids,
        prop_oneof![Just(AckExt::None), epsn, cc, ccx],
    )
        .prop_map(|(fields, request, (spdcid, dpdcid), ext)| {
            let (ce, retx, probe, ack_psn_offset, cack) = fields;
            let next = NextHeader::None;
            let cack_psn = Psn(cack);
            Ack { next, ce, retx, probe, request, ack_psn_offset, cack_psn, spdcid, dpdcid, ext }
        })
}

fn nack() -> impl Strategy<Value = Nack> {
    let fields = any::<(bool, bool, bool, u8, u32, u32)>();
    let code = select(NackCode::ALL);
    let ccx = prop::option::of(any::<[u8; 16]>().prop_map(NackCcx));
    (fields, code, any::<u16>(), 1..=u16::MAX, ccx).prop_map(
        |((ce, retx, rudi, vendor_code, psn, payload), code, spdcid, dpdcid, ccx)| {
            let spdcid = if code.needs_context() { spdcid.max(1) } else { spdcid };
            let (spdcid, dpdcid) = if rudi { (0, 0) } else { (spdcid, dpdcid) };
            let psn = Psn(psn);
            Nack { ce, retx, rudi, code, vendor_code, psn, spdcid, dpdcid, payload, ccx }
        },
    )
}

fn control() -> impl Strategy<Value = Control> {
    let fields = any::<(bool, bool, bool, u16, u32, u32)>();
    (select(ControlKind::ALL), fields, 1..=u16::MAX, dest()).prop_map(
        |(kind, (isrod, retx, ack_request, probe_opaque, psn, payload), spdcid, dest)| {
            use ControlKind as K;
            let empty = matches!(kind, K::Noop | K::CloseCommand | K::CloseRequest);
            Control {
                kind,
                isrod,
                retx,
                ack_request,
                probe_opaque: if kind == K::Probe { probe_opaque } else { 0 },
                psn: Psn(psn),
                spdcid,
                dest,
                payload: if empty { 0 } else { payload },
            }
        },
    )
}

/// The fields of a standard request that no length depends on: one packet, no extension.
fn std_request() -> impl Strategy<Value = StdRequest> {
    let flags = any::<(bool, bool, bool, bool)>();
    let ids = (any::<u16>(), any::<u8>(), 0..1_u32 << 24, 0..1_u16 << 12, 0..1_u16 << 12);
    (flags, ids, any::<(u64, u32, u64, u64)>()).prop_map(|(flags, ids, words)| StdRequest {
        opcode: Opcode::NoOp,
        delivery_complete: flags.0,
        initiator_error: flags.1,
        relative: flags.2,
        header_data_present: flags.3,
        eom: true,
        som: true,
        message_id: ids.0,
        ri_generation: ids.1,
        job_id: ids.2,
        pid_on_fep: ids.3,
        resource_index: ids.4,
        buffer_offset: words.0,
        initiator: words.1,
        match_bits: words.2,
        body: StdBody::First { header_data: words.3 },
        request_length: 0,
        extension: Extension::None,
    })
}

fn opcode() -> impl Strategy<Value = Opcode> {
    let all: Vec<Opcode> =
        (0..=0x3F).filter_map(Opcode::from_u8).filter(|op| *op != Opcode::DatagramSend).collect();
    select(all)
}

fn extension(opcode: Opcode) -> BoxedStrategy<Extension> {
    if opcode.is_rendezvous() {
        let fields = (0..600_u32, any::<(u8, u64, u64)>(), 0..1_u16 << 12, 0..1_u16 << 12);
        return fields
            .prop_map(|(eager_length, words, pid_on_fep, resource_index)| {
                Extension::Rendezvous(Rendezvous {
                    eager_length,
                    ri_generation: words.0,
                    pid_on_fep,
                    resource_index,
                    read_offset: words.1,
                    memory_key: words.2,
                })
            })
            .boxed();
    }
    if !opcode.is_atomic() {
        return Just(Extension::None).boxed();
    }
    let ops: Vec<AmoOp> = (0..=u8::MAX).filter_map(AmoOp::from_u8).collect();
    let fields = (select(ops), select(AmoType::ALL), any::<(bool, bool, u128, u128)>());
    fields
        .prop_map(|(op, data_type, (cacheable, cpu_coherent, compare, swap))| {
            let atomic = Atomic { op, data_type, cacheable, cpu_coherent };
            if op.is_compare_swap() {
                Extension::CompareSwap(CompareSwap { atomic, compare, swap })
            } else {
                Extension::Atomic(atomic)
            }
        })
        .boxed()
}

/// A request in any of the three headers with the length of its payload, alone or part of a longer
/// message.
fn semantic_request() -> BoxedStrategy<(Ses, usize)> {
    let opcode = opcode().prop_flat_map(|opcode| (Just(opcode), extension(opcode)));
    (opcode, std_request(), 0..600_u16, 0..5, any::<[u32; 2]>())
        .prop_map(|((opcode, extension), fields, len, shape, [offset, more])| {
            let single = StdRequest { opcode, extension, ..fields };
            match shape {
                0 => small(&single, len),
                1 => medium(&single, len),
                2 => several(&single, len, offset % (1 << 31), 1 + more % 1000),
                _ => one(&single, len),
            }
        })
        .boxed()
}

/// The payload of a message in one packet, `len` bytes if it may have that many.
fn single_packet_len(opcode: Opcode, extension: &Extension, len: u16) -> u16 {
    match extension {
        Extension::CompareSwap(_) => 0,
        Extension::Rendezvous(r) => u16::try_from(r.eager_length).unwrap(),
        _ if opcode.is_without_payload() => 0,
        _ => len,
    }
}

fn one(fields: &StdRequest, len: u16) -> (Ses, usize) {
    let (mut len, mut length) =
        (single_packet_len(fields.opcode, &fields.extension, len), u32::from(len));
    match (fields.opcode, &fields.extension) {
        // What is moved is not in the packet.
        (Opcode::Read | Opcode::DeferrableRtr | Opcode::MsgError, _)
        | (_, Extension::Rendezvous(_) | Extension::CompareSwap(_)) => length += 1 << 20,
        (_, Extension::Atomic(a)) if a.op == AmoOp::Read && length.is_multiple_of(2) => len = 0,
        _ => {}
    }
    let ses = StdRequest { request_length: length, ..*fields };
    (Ses::Std(ses), len.into())
}

/// The first packet of a longer message, or a later one.
fn several(fields: &StdRequest, len: u16, offset: u32, more: u32) -> (Ses, usize) {
    let extension = fields.extension;
    // The lengths of these depend on more than the place in the message.
    let plain = matches!(extension, Extension::None)
        && !fields.opcode.is_without_payload()
        && !matches!(fields.opcode, Opcode::NoOp | Opcode::MsgError);
    if !plain {
        return one(fields, len);
    }
    let len = len.max(1);
    let first = offset.is_multiple_of(3);
    let end = if first { u32::from(len) } else { offset + u32::from(len) };
    let eom = !first && more.is_multiple_of(2);
    let body = if first {
        fields.body
    } else {
        StdBody::Next { payload_length: len, message_offset: offset }
    };
    let request_length = if eom { end } else { end + more };
    let ses = StdRequest { som: first, eom, body, request_length, ..*fields };
    (Ses::Std(ses), len.into())
}

fn small(fields: &StdRequest, len: u16) -> (Ses, usize) {
    let here = single_packet_len(fields.opcode, &fields.extension, len);
    let ses = SmallRequest {
        opcode: fields.opcode,
        delivery_complete: fields.delivery_complete,
        initiator_error: fields.initiator_error,
        relative: fields.relative,
        request_length: len.max(here),
        ri_generation: fields.ri_generation,
        job_id: fields.job_id,
        pid_on_fep: fields.pid_on_fep,
        resource_index: fields.resource_index,
        buffer_offset: fields.buffer_offset,
        extension: fields.extension,
    };
    (Ses::Small(ses), here.into())
}

fn medium(fields: &StdRequest, len: u16) -> (Ses, usize) {
    let here = single_packet_len(fields.opcode, &fields.extension, len);
    let ses = MediumRequest {
        opcode: fields.opcode,
        delivery_complete: fields.delivery_complete,
        initiator_error: fields.initiator_error,
        relative: fields.relative,
        header_data_present: fields.header_data_present,
        request_length: len.max(here),
        ri_generation: fields.ri_generation,
        job_id: fields.job_id,
        pid_on_fep: fields.pid_on_fep,
        resource_index: fields.resource_index,
        header_data_or_offset: fields.buffer_offset,
        initiator: fields.initiator,
        match_bits: fields.match_bits,
        extension: fields.extension,
    };
    (Ses::Medium(ses), here.into())
}

fn return_code() -> impl Strategy<Value = ReturnCode> {
    let all: Vec<ReturnCode> = (0..=0x3F).filter_map(ReturnCode::from_u8).collect();
    select(all)
}

fn response() -> BoxedStrategy<(Ses, usize)> {
    let opcodes =
        vec![ResponseOpcode::Default, ResponseOpcode::Response, ResponseOpcode::NoResponse];
    let fields = (any::<(u16, u8, u32)>(), 0..1_u32 << 24);
    (select(List::ALL), select(opcodes), return_code(), fields)
        .prop_map(|(list, opcode, return_code, ((message_id, generation, length), job_id))| {
            let response = Response {
                list,
                opcode,
                return_code,
                message_id,
                ri_generation: generation,
                job_id,
                modified_length: length,
            };
            (Ses::Response(response), 0)
        })
        .boxed()
}

/// A response with data, in either header.
fn data() -> BoxedStrategy<(Ses, usize)> {
    let fields = (any::<(bool, u16, u16, u32, u32)>(), 0..1_u32 << 24, 0..600_u16);
    (select(List::ALL), return_code(), fields)
        .prop_map(|(list, return_code, (words, job_id, payload_length))| {
            let (small, id, read_id, modified_length, word) = words;
            let ses = if small {
                Ses::ResponseDataSmall(ResponseDataSmall {
                    list,
                    return_code,
                    payload_length,
                    job_id,
                    original_request_psn: word,
                })
            } else {
                Ses::ResponseData(ResponseData {
                    list,
                    return_code,
                    response_message_id: id,
                    job_id,
                    read_request_message_id: read_id,
                    payload_length,
                    modified_length,
                    message_offset: word,
                })
            };
            (ses, payload_length.into())
        })
        .boxed()
}
