//! Ultra Ethernet packets (UE 1.0.x, target 1.0.3): the packet delivery sublayer (PDS) and the
//! semantic sublayer (SES) as checked views and plain values.
//!
//! [`parse`] reads a UDP payload and checks every rule once; the value that it returns obeys the
//! tables. Each header is a plain value with `read`, `len` and `emit` ([`Request`], [`Ack`],
//! [`StdRequest`], ...), so a sender can write headers beside a payload that stays where it is. The
//! views ([`RequestView`], [`StdView`], ...) show single fields without the rest.
//!
//! ```
//! use squall_wire::base::Psn;
//! use squall_wire::{Dest, Mode, NextHeader, Packet, Request, Ses, parse};
//! # use squall_wire::{Extension, Opcode, StdBody, StdRequest};
//! # let ses = StdRequest {
//! #     opcode: Opcode::TaggedSend, delivery_complete: false, initiator_error: false,
//! #     relative: false, header_data_present: false, eom: true, som: true, message_id: 1,
//! #     ri_generation: 0, job_id: 7, pid_on_fep: 0, resource_index: 0, buffer_offset: 0,
//! #     initiator: 0x1234_12b9, match_bits: 42, body: StdBody::First { header_data: 0 },
//! #     request_length: 5, extension: Extension::None,
//! # };
//! let pds = Request {
//!    mode: Mode::Rud,
//!    next: NextHeader::RequestStd,
//!    retx: false,
//!    ack_request: true,
//!    clear_psn_offset: 0,
//!    psn: Psn(1000),
//!    spdcid: 1,
//!    dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 },
//!    ccc: None,
//! };
//! let mut out = [0; 128];
//! let n = pds.emit(&mut out);
//! let n = n + ses.emit(&mut out[n..]);
//! out[n..n + 5].copy_from_slice(b"hello");
//!
//! let Ok(Packet::Request { pds: read, ses: Ses::Std(request), payload }) = parse(&out[..n + 5])
//! else {
//!    panic!("a request");
//! };
//! assert_eq!((read, request.match_bits, payload), (pds, 42, &b"hello"[..]));
//! ```
//!
//! `emit` writes each field into its bits and drops the bits that do not fit. The caller must make
//! the values consistent (SPDCID not 0, lengths, opcode and header): the documentation of each
//! field gives its allowed values, and [`parse`] refuses all others. No two byte strings that
//! [`parse`] accepts have the same value, so `emit` returns the bytes that were read.
//!
//! # Choices
//!
//! The table lists the choices of this crate, and of the crates above it, where the sources
//! disagree or leave a rule open. REF is the reference provider (ultraethernet/uet-ref-prov), WS
//! Wireshark's `packet-uet.c`, X2 xdp2-dev/xdp2, SU SUET, NS3 the ns-3 models, HT uet-htsim.
//!
//! The page `docs/wire.md` describes all that the specification does not have, with a registry of the
//! private numbers: the handshake, the use of `initiator`, message ids and NO_OP, fragments, telemetry, rate
//! packets. A change there and in this crate go together.
//!
//! | Question | Sources | Choice |
//! |---|---|---|
//! | UDP destination port | WS, X2: 4793; X2's text: 4739; REF 49150 and the Linux RFC 5432 are placeholders | 4793 ([`UDP_PORT`]); a process that cannot bind it takes another, which is part of its address |
//! | First byte of the UDP payload | native IP has an entropy header before the prologue | the PDS or TSS prologue; the UDP source port is the entropy |
//! | Mode | RUD, ROD, RUDI, UUD | RUD is sent; all are parsed |
//! | SES request headers | small, medium, standard; REF sends standard only | standard is sent; all are parsed |
//! | Bytes 2-3 of small and medium requests | X2: message_id; REF, WS: request_length, 14 bits | request_length |
//! | HD flag clear | header_data present on every SOM packet | kept as it stands, meaningful with HD only |
//! | payload_length of RESPONSE_DATA | X2: 12 bits; REF, WS: 14 | 14 |
//! | Rendezvous word | REF: 8 + 12 + 12 bits; WS: 2 + 14 and 4 + 12 (draft) | REF |
//! | Rendezvous packets' payload | `eager_length` named, use not tabulated | the packets carry `eager_length` bytes, the receiver reads the rest up to `request_length` |
//! | Extension header of a continuation | silent | absent when payload_length fills the packet, else read; a sender leaves it out |
//! | Atomic semantic control | REF, WS: CACHEABLE 0x01, CPU_COHERENT 0x02; X2: 0x80, 0x40, vendor 2:0 | REF, WS; other bits reserved |
//! | Compare-swap operands | high half first; alignment of short types not tabulated | 128-bit numbers, a short value in the low bits |
//! | MSWAP | not among the operations with a compare-swap header (0D-12) | 4-byte header; the payload is the values, then the masks |
//! | Payload of atomics | byte order not tabulated | as it lies in the memory of the initiator: both ends must have the same order, and the same `long double` |
//! | Length of atomics | `request_length` not tabulated | the payload's; where there is none, that of the values. One packet: values that do not fit are refused with AMO_UNSUPPORTED_SIZE |
//! | Request opcodes 10, 11 (SYNC) | REF only; the Linux RFC has another 10 | refused, with the 4-byte sync header |
//! | NACK next_hdr | REF, NS3: NONE; X2 fills it | NONE |
//! | NACK payload | WS: highest PSN received + 1; REF: new start PSN for 17 | both, by code |
//! | NACK from a target without a context | silent | SPDCID 0, allowed for codes that such a target sends ([`NackCode::needs_context`]); REF sends it with 0F and 16 too, for a SYN that it refuses |
//! | ACK type | ACK, ACK_CC, ACK_CCX | ACK_CC with the state of NSCC, or of credit, is sent; next_hdr NONE, or RESPONSE when the response is not the default one |
//! | ACK_CCX, NACK_CCX | X2: 32 and 24 bytes; REF, WS: 40 and 32 | 40 and 32, state opaque; cc_type 2-13 refused; cc_type 14 is [`DartState`] |
//! | cc_flags | X2 sets them | reserved, 0 |
//! | rcvd_bytes | units of 256 bytes, rounded up, 24 bits that wrap | the same; a packet counts its UDP length + 40 (nominal_pktsize), that is the UDP payload + 48 |
//! | Sign of clear, ACK and SACK offsets | WS shows SACK unsigned; SU, REF signed | signed; a positive clear_psn_offset is refused |
//! | psn_offset | 12 bits | every value accepted |
//! | Control packet, ISROD | NOOP and Negotiation; SU sets it in CLOSE_COMMAND | accepted in every kind, ignored outside NOOP and Negotiation |
//! | Control packet, probe_opaque | Probe; reserved else | enforced |
//! | Congestion-control state of requests (CCC) | REF: one 32-bit word; WS, X2: 8 + 24 | 8 + 24 |
//! | First packet of a longer message without payload | silent | refused: it carries nothing, and a trimmed packet is recognised by its DSCP |
//! | Trimmed packet | at least a 16-byte delivery header | [`parse_trimmed`] needs the 12 (16) bytes of the request header and reads what else is there |
//! | CRC-32C trailer | REF, and its UDP branch: over IP addresses, UDP header with checksum 0 and final length, and UDP payload; most significant byte first | per endpoint, both ends configured alike; over the UDP payload only, most significant byte first. [`HeaderCrc`] computes REF's form, which no endpoint sends yet |
//! | credit, credit_target | 24 bits (a control packet's payload: 32), units not tabulated; HT `UEC_PULL_QUANTUM` | units of 256 bytes, cumulative since the context opened, 24 bits that wrap, rounded up |
//! | When a request is RUD_CC_REQ | silent | when congestion control uses credit; ccc_id 0. Also for speculative packets ([`Speculation`]) |
//! | PSN of Credit and Credit Request | silent | the newest PSN sent; ignored |
//! | TSS | REF: the header, then the encrypted packet, then an integrity check value of 16 bytes | opaque behind the header, at least 20 bytes ([`Tss::MIN_SEALED`]); the crate `seal/` encrypts |
//! | DSCP | operator's; REF: data 0, control 46 | parameters: data 0, control 46, trimmed 5 |
//! | ECN | requests ECT; CE echoed as M | data ECT(0), CE as M |
//! | Vendor and extended opcodes, return codes, lists | ranges tabulated | parsed, payload lengths unchecked; the layers above refuse them |
//!
//! # Changes of UE 1.0.1 to 1.0.3
//!
//! This crate cites the tables by their numbers in UE 1.0.1. The table below lists each change up
//! to 1.0.3 that concerns packets over UDP, as far as public sources describe it, and rules of
//! 1.0.1 whose form over UDP became known later. *Unverified* marks a value or a layout that no
//! public rendering of the specification gives. NSCC, SACK and the retransmission timeout are the
//! same in 1.0.2 and 1.0.3; NSCC's tables 3-76 and 3-77 of 1.0.1 are 3-82 and 3-83 now.
//!
//! | Requirement | Section | State |
//! |---|---|---|
//! | NACK 03 (TRIMMED_ACK) is reserved; a trimmed ACK raises no NACK | tables 3-58, 3-61 | done: no code sends it, [`parse`] refuses it as unknown, and [`parse_trimmed`] reads requests alone |
//! | DATAGRAM_SEND is one packet with message_id 0, and only on UUD | 3.4.1.14, table 3-17 | done in [`parse`]; it leaves other opcodes on UUD to the message layer, which drops every UUD packet |
//! | MSG_ERROR is not used on UUD | 3.4.5.3.2, 3.4.5.4.1 | done in [`parse`] |
//! | Negotiation control packet: values of type (8 bits), length in words (8), contents | not public | read; only the value [`Handshake`] is answered, others are skipped. Their form is NS3's, unverified |
//! | Negotiation of SYN_RETX_TRANSFER: value `01 02 0000`, then a mask of 32 bits | not public | not done: skipped. Number and mask are NS3's, unverified |
//! | Syn_Retx_Safety_Time: a late retransmitted SYN must not open a context that was closed and opened again | 3.5.5, 3.5.8, 3.5.16 | no timer: a target remembers the last contexts that a peer closed, and after a handshake an old start PSN opens nothing. Default if a timer is added: 4 s, twice REF's segment lifetime, unverified |
//! | MP_Range below 128, and Override_MPR_Zero_Value | not public | not done, encoding unknown: MPR counts 128 PSNs, and 0 leaves the peer's window as it is. Default window towards a peer that never sends MPR, when it is added: 128 packets as in REF, unverified |
//! | The UDP checksum may be 0, over IPv6 too | 3.5.10.1 | done for reception (`UDP_NO_CHECK6_RX`, and the AF_XDP port); packets leave with a checksum, which GSO needs |
//! | CRC-32C over IP addresses, UDP header and payload where TSS is off | not public, REF | [`HeaderCrc`] computes and checks it; no port uses it yet. Over UDP from REF's UDP branch alone, unverified |
//! | Payload of 1024, 2048, 4096 or 8192 bytes, the same at all endpoints | 3.4.1.11 | not done: a message is cut by what its path carries |
//! | ACK of a CLOSE_COMMAND with EPSN flag (0x40) and four more bytes, in a secure domain | not public, REF | [`AckExt::ExpectedPsn`] is read and written, but no endpoint sends it. The flag is a reserved bit of ACK_CC and ACK_CCX. Layout unverified |
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub use squall_base as base;

pub mod codes;
pub mod crc;
mod error;
mod fragment;
mod handshake;
mod message_headers;
mod message_template;
mod packet;
mod packet_run;
mod pds;
mod rails;
mod rates;
mod ses;
mod telemetry;
mod view;

pub use codes::{
    AmoOp, AmoType, ControlKind, List, NackAction, NackCode, NextHeader, Opcode, PdsType,
    ResponseOpcode, ReturnCode,
};
pub use crc::{CRC_LEN, HeaderCrc, check_and_strip_crc};
pub use error::ParseError;
pub use fragment::Fragment;
pub use handshake::{Handshake, Reason, Stage, WIRE_VERSION};
pub use message_headers::{MessageHeaders, MessageNumbers};
pub use message_template::MessageTemplate;
pub use packet::{MAX_HEADER, Packet, TrimmedPacket, parse, parse_semantic, parse_trimmed};
pub use packet_run::PacketRun;
pub use pds::{
    Ack, AckCc, AckCcView, AckCcx, AckCcxView, AckEpsnView, AckExt, AckRequest, AckView, CcState,
    Ccc, Control, ControlView, DartState, Dest, Mode, Nack, NackCcx, NackView, NsccState, Request,
    RequestView, RudiRequest, RudiResponse, RudiView, Speculation, Tss, TssView, Uud, UudView,
};
pub use rails::{MAX_RAILS, RailList, RailPacket, RailStage};
pub use rates::{LinkRate, RateEntry, RateHead, RatePacket, RateStage, RateState};
pub use ses::{
    Atomic, AtomicView, CompareSwap, CompareSwapView, Extension, MediumRequest, MediumView,
    Rendezvous, RendezvousView, Response, ResponseData, ResponseDataSmall, ResponseDataSmallView,
    ResponseDataView, ResponseView, Ses, SmallRequest, SmallView, StdBody, StdRequest, StdView,
};
pub use telemetry::{Telemetry, TelemetryKind, TelemetryRecord};

/// UDP destination port of Ultra Ethernet (UET) packets, as in Wireshark and xdp2.
pub const UDP_PORT: u16 = 4793;
