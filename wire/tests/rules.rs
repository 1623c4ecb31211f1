//! Every rule: a sample broken in one place is refused for that reason, and no rule is left without
//! a packet that breaks it.

use crate::samples;
use squall_wire::*;

fn sample(name: &str) -> Vec<u8> {
    let found = samples::all().into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no sample {name}")).1
}

/// A sample with some bytes replaced.
fn broken(name: &str, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = sample(name);
    for &(at, value) in changes {
        assert_ne!(bytes[at], value, "{name} has {value:#x} at {at} already");
        bytes[at] = value;
    }
    bytes
}

fn cut(name: &str, len: usize) -> Vec<u8> {
    let mut bytes = sample(name);
    assert!(bytes.len() > len);
    bytes.truncate(len);
    bytes
}

fn longer(name: &str, by: usize) -> Vec<u8> {
    let mut bytes = sample(name);
    bytes.extend(vec![0; by]);
    bytes
}

/// Where the SES header of a request starts.
const SES: usize = Request::LEN;
/// Where the SES extension header of a standard request starts.
const EXT: usize = SES + StdRequest::LEN;

fn cases() -> Vec<(ParseError, Vec<u8>)> {
    use ParseError as E;
    vec![
        (E::Truncated, Vec::new()),
        (E::Truncated, cut("rud", 1)),
        (E::Truncated, cut("rud", 11)),
        (E::Truncated, cut("rud-cc", 15)),
        (E::Truncated, cut("rud", SES + 43)),
        (E::Truncated, cut("small", SES + 19)),
        (E::Truncated, cut("medium", SES + 31)),
        (E::Truncated, cut("amo-sum", EXT + 3)),
        (E::Truncated, cut("amo-cswap", EXT + 35)),
        (E::Truncated, cut("rendezvous_send-0", EXT + 23)),
        (E::Truncated, cut("ack", 11)),
        (E::Truncated, broken("ack", &[(1, 0x40)])),
        (E::Truncated, cut("ack-epsn", 15)),
        (E::Truncated, cut("ack-cc", 31)),
        (E::Truncated, cut("ack-ccx-14", 39)),
        (E::Truncated, cut("rsp-ok", 32 + 11)),
        (E::Truncated, cut("rsp-data", SES + 19)),
        (E::Truncated, cut("rsp-small", SES + 11)),
        (E::Truncated, cut("nack-trimmed", 15)),
        (E::Truncated, cut("nack-ccx", 31)),
        (E::Truncated, cut("cp-probe", 15)),
        (E::Truncated, cut("rudi-req", 7)),
        (E::Truncated, cut("uud", 3)),
        (E::Truncated, cut("tss", 11)),
        (E::Truncated, cut("tss", 12 + 19)),
        (E::Truncated, cut("tss-ssi", 16 + 19)),
        (E::Truncated, cut("tss-ssi", 15)),
        (E::Trailing, longer("ack", 1)),
        (E::Trailing, longer("ack-epsn", 1)),
        (E::Trailing, longer("ack-cc", 1)),
        (E::Trailing, longer("rsp-ok", 1)),
        (E::Trailing, longer("nack-trimmed", 1)),
        (E::Trailing, longer("cp-probe", 1)),
        (E::Type, broken("rud", &[(0, 0x01)])),
        (E::Type, broken("rud", &[(0, 15 << 3 | 1)])),
        (E::Type, broken("rud", &[(0, 0xF9)])),
        (E::NextHeader, broken("rud", &[(0, 0x13)])),
        (E::NextHeader, broken("ack", &[(0, 7 << 3 | 7)])),
        (E::NextHeaderContext, broken("rud", &[(0, 0x10), (1, 0)])),
        (E::NextHeaderContext, broken("rud", &[(0, 0x12), (1, 0)])),
        (E::NextHeaderContext, broken("ack", &[(1, 0x80)])),
        (E::NextHeaderContext, broken("nack-trimmed", &[(1, 0xA0)])),
        (E::NextHeaderContext, broken("rudi-req", &[(0, 4 << 3 | 2), (1, 0)])),
        (E::NextHeaderContext, broken("rudi-rsp", &[(0, 5 << 3), (1, 0)])),
        (E::NextHeaderContext, broken("uud", &[(0, 6 << 3), (1, 0)])),
        (E::Reserved, broken("rud", &[(1, 0xC0)])),
        (E::Reserved, broken("rud", &[(1, 0xA0)])),
        (E::Reserved, broken("rud", &[(1, 0x81)])),
        (E::Reserved, broken("rud-syn", &[(10, 0x10)])),
        (E::Reserved, broken("ack-cc", &[(1, 0x40)])),
        (E::Reserved, broken("ack-ccx-14", &[(1, 0x40)])),
        (E::Reserved, broken("ack-cc", &[(12, 0x01)])),
        (E::Reserved, broken("ack-ccx-14", &[(12, 0xE1)])),
        (E::Reserved, broken("ack-cc-credit", &[(29, 1)])),
        (E::Reserved, broken("nack-trimmed", &[(1, 0x21)])),
        (E::Reserved, broken("cp-noop", &[(3, 1)])),
        (E::Reserved, broken("rudi-req", &[(3, 1)])),
        (E::Reserved, broken("rudi-req", &[(1, 0xA0)])),
        (E::Reserved, broken("rudi-rsp", &[(2, 1)])),
        (E::Reserved, broken("uud", &[(1, 0x90)])),
        (E::Reserved, broken("uud", &[(2, 1)])),
        (E::Reserved, broken("tss", &[(0, 0x0A)])),
        (E::Reserved, broken("rud", &[(SES, 0x49)])),
        (E::Reserved, broken("rud", &[(SES + 8, 0x81)])),
        (E::Reserved, broken("rud", &[(SES + 10, 0x1F)])),
        (E::Reserved, broken("middle", &[(SES + 32, 1)])),
        (E::Reserved, broken("middle", &[(SES + 34, 0x43)])),
        (E::Reserved, broken("small", &[(SES, 0x41)])),
        (E::Reserved, broken("small", &[(SES + 1, 0x27)])),
        (E::Reserved, broken("small", &[(SES + 2, 0x40)])),
        (E::Reserved, broken("amo-sum", &[(EXT + 2, 4)])),
        (E::Reserved, broken("amo-sum", &[(EXT + 3, 1)])),
        (E::Reserved, broken("rsp-data", &[(SES + 4, 1)])),
        (E::Reserved, broken("rsp-data", &[(SES + 10, 0x43)])),
        (E::Reserved, broken("rsp-small", &[(SES + 4, 1)])),
        (E::Reserved, broken("rsp-small", &[(SES + 2, 0x80)])),
        (E::Spdcid, broken("rud", &[(8, 0), (9, 0)])),
        (E::Spdcid, broken("ack", &[(8, 0), (9, 0)])),
        (E::Spdcid, broken("cp-probe", &[(8, 0), (9, 0)])),
        (E::Spdcid, broken("nack-closing", &[(8, 0), (9, 0)])),
        (E::Spdcid, broken("nack-rudi", &[(9, 1)])),
        (E::Dpdcid, broken("rud", &[(10, 0), (11, 0)])),
        (E::Dpdcid, broken("ack", &[(10, 0), (11, 0)])),
        (E::Dpdcid, broken("cp-probe", &[(10, 0), (11, 0)])),
        (E::Dpdcid, broken("nack-trimmed", &[(10, 0), (11, 0)])),
        (E::Dpdcid, broken("nack-rudi", &[(11, 1)])),
        (E::ClearPsnOffset, broken("rud", &[(2, 0), (3, 1)])),
        (E::AckRequest, broken("ack", &[(1, 6)])),
        (E::CcType, broken("ack-cc", &[(12, 0x20)])),
        (E::CcType, broken("ack-ccx-14", &[(12, 0xD0)])),
        // Of Dart: no such congestion, and what is reserved.
        (E::Reserved, broken("ack-ccx-14", &[(26, 3)])),
        (E::Reserved, broken("ack-ccx-14", &[(27, 1)])),
        (E::Reserved, broken("ack-ccx-14", &[(39, 1)])),
        (E::NackCode, broken("nack-trimmed", &[(2, 0)])),
        (E::NackCode, broken("nack-trimmed", &[(2, 3)])),
        (E::NackCode, broken("nack-trimmed", &[(2, 0x0C)])),
        (E::NackCode, broken("nack-trimmed", &[(2, 0x1B)])),
        (E::ControlKind, broken("cp-probe", &[(0, 11 << 3 | 5)])),
        (E::ControlPayload, broken("cp-noop", &[(15, 1)])),
        (E::ControlPayload, broken("cp-close_command", &[(12, 1)])),
        (E::ControlPayload, broken("cp-close_request", &[(13, 1)])),
        (E::Version, broken("rud", &[(SES + 1, 0x4B)])),
        (E::Version, broken("rud", &[(SES + 1, 0x8B)])),
        (E::Version, broken("small", &[(SES + 1, 0x63)])),
        (E::Version, broken("small", &[(SES + 1, 0xA3)])),
        (E::Version, broken("rsp-ok", &[(33, 0x81)])),
        (E::Version, broken("rsp-ok", &[(33, 0x41)])),
        (E::Opcode, broken("rud", &[(SES, 0x10)])),
        (E::Opcode, broken("small", &[(SES, 0x11)])),
        (E::Opcode, broken("rsp-ok", &[(32, 0x44)])),
        (E::OpcodeContext, broken("rud", &[(SES, 0x07)])),
        (E::OpcodeContext, broken("small", &[(SES, 0x07)])),
        (E::OpcodeContext, broken("uud", &[(4, 0x0F)])),
        (E::OpcodeContext, broken("rsp-ok", &[(32, 0x42)])),
        (E::OpcodeContext, broken("rsp-data", &[(SES, 0x01)])),
        (E::OpcodeContext, broken("rsp-small", &[(SES, 0x01)])),
        (E::ReturnCode, broken("rsp-ok", &[(33, 0x25)])),
        (E::ReturnCode, broken("rsp-data", &[(SES + 1, 0x3F)])),
        (E::SomEom, broken("small", &[(SES + 1, 0x22)])),
        (E::SomEom, broken("medium", &[(SES + 1, 0x09)])),
        (E::SomEom, broken("uud", &[(5, 0x09)])),
        (E::MessageId, broken("uud", &[(7, 1)])),
        (E::Amo, broken("amo-sum", &[(EXT, 0x15)])),
        (E::Amo, broken("amo-sum", &[(EXT + 1, 0x12)])),
        // One packet: less, more, none of what request_length says.
        (E::Length, cut("rud", EXT + 299)),
        (E::Length, longer("rud", 1)),
        (E::Length, cut("rud", EXT)),
        (E::Length, longer("std-read", 1)),
        (E::Length, longer("std-rtr", 1)),
        (E::Length, longer("std-no_op-empty", 1)),
        (E::Length, longer("small", 1)),
        (E::Length, cut("medium", SES + 32 + 63)),
        (E::Length, longer("rsp-data", 1)),
        (E::Length, cut("rsp-small", SES + 12 + 7)),
        (E::Length, longer("amo-sum", 1)),
        (E::Length, longer("amo-cswap", 1)),
        (E::Length, longer("amo-read", 3)),
        // The first packet holds nothing, or all.
        (E::Length, cut("first", EXT)),
        (E::Length, longer("first", 1500)),
        // A later packet: not what it says, past the end, EOM too early or too late.
        (E::Length, longer("middle", 1)),
        (E::Length, cut("last", EXT + 499)),
        (E::Length, broken("last", &[(SES + 1, 0x08)])),
        (E::Length, broken("middle", &[(SES + 1, 0x0A)])),
        (E::Length, broken("middle", &[(SES + 36, 1)])),
        (E::Length, broken("middle", &[(SES + 36, 0xFF), (SES + 37, 0xFF)])),
        // A rendezvous: the eager part counts, and it is part of the message.
        (E::Length, longer("rendezvous_send-0", 1)),
        (E::Length, cut("rendezvous_send-900", EXT + 24 + 899)),
        (E::Length, broken("rendezvous_send-0", &[(EXT, 0x10)])),
        (E::Length, broken("rendezvous_send-first", &[(EXT + 1, 0xFF), (EXT, 0xFF)])),
        (E::Length, broken("rendezvous_send-last", &[(SES + 39, 0x85)])),
        (E::Length, broken("rendezvous_send-last-bare", &[(SES + 36, 0xFF)])),
        (E::Rate, broken("rates-asks", &[(17, 0x81)])),
        (E::Rate, broken("rates-back", &[(32 + 4, 0xD1)])),
        (E::Reserved, broken("rates-back", &[(0, 0xF3)])),
        (E::Truncated, cut("rates-back", 91)),
        (E::Trailing, longer("rates-leaves", 20)),
    ]
}

#[test]
fn a_broken_packet_is_refused_for_its_reason() {
    for (reason, bytes) in cases() {
        assert_eq!(parse(&bytes).err(), Some(reason), "{bytes:02x?}");
    }
}

#[test]
fn the_shortest_sealed_part_is_a_uud_header_and_the_integrity_check_value() {
    for (name, header) in [("tss", Tss::LEN), ("tss-ssi", Tss::LEN_SSI)] {
        let packet = cut(name, header + Tss::MIN_SEALED);
        let Ok(Packet::Tss { sealed, .. }) = parse(&packet) else { panic!("{name}") };
        assert_eq!(sealed.len(), Uud::LEN + Tss::ICV_LEN, "{name}");
    }
}

#[test]
fn every_rule_has_a_packet_that_breaks_it() {
    let cases = cases();
    for &rule in ParseError::ALL {
        // Views alone report this one; `parse` chooses the header by its type.
        let by_view = RequestView::new(&sample("ack")).err() == Some(rule);
        let by_packet = cases.iter().any(|&(reason, _)| reason == rule);
        assert!(by_view || by_packet, "{rule:?}");
    }
    assert!(ParseError::ALL.iter().enumerate().all(|(i, &rule)| rule as usize == i));
}

#[test]
fn no_prefix_of_a_packet_is_the_packet() {
    // What has no length of its own: the first of several packets (the datagram's length is its
    // length), a negotiation's values, what TSS hides.
    let open = ["first", "rendezvous_send-first", "rendezvous_tsend-first", "cp-negotiation"];
    // And a continuation with an extension header, cut by that header's length, is one without.
    let open =
        |name: &str| open.contains(&name) || name.starts_with("tss") || name.ends_with("end-last");
    for (name, bytes) in samples::all().into_iter().filter(|(name, _)| !open(name)) {
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "{name} cut to {len}");
        }
    }
}

#[test]
fn a_trimmed_packet_keeps_what_the_switch_left() {
    for (name, bytes) in samples::all() {
        let Ok(Packet::Request { pds, ses, .. }) = parse(&bytes) else {
            assert!(parse_trimmed(&bytes).is_err(), "{name} is no request");
            continue;
        };
        for len in 0..=bytes.len() {
            let trimmed = parse_trimmed(&bytes[..len]);
            if len < pds.len() {
                assert_eq!(trimmed, Err(ParseError::Truncated), "{name} cut to {len}");
                continue;
            }
            let trimmed = trimmed.unwrap_or_else(|e| panic!("{name} cut to {len}: {e}"));
            assert_eq!(trimmed.pds, pds, "{name}");
            let expected = match ses {
                // The extension header of a continuation cannot be told from a payload.
                Ses::Std(std) if !std.som => {
                    Ses::Std(StdRequest { extension: Extension::None, ..std })
                }
                _ => ses,
            };
            let whole = len >= pds.len() + expected.len();
            assert_eq!(trimmed.ses, whole.then_some(expected), "{name} cut to {len}");
        }
    }
}
