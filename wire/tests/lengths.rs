//! Payload lengths that a request may have, at and beside each bound.

use crate::samples;
use crate::samples::{request, std_request};
use squall_wire::*;

/// Returns whether a packet with this header and `len` bytes of payload is accepted as it was
/// built.
fn accepted(ses: Ses, len: usize) -> bool {
    let pds = request(ses.next_header());
    let payload = vec![0x55; len];
    let packet = Packet::Request { pds, ses, payload: &payload };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    match parse(&bytes) {
        // The extension header of a continuation may be read as payload, which is another packet.
        Ok(read) => read == packet,
        Err(error) => {
            assert!(matches!(error, ParseError::Length | ParseError::Truncated), "{error:?}");
            false
        }
    }
}

/// Returns the lengths up to `most` that are accepted.
fn lengths(ses: StdRequest, most: usize) -> Vec<usize> {
    (0..=most).filter(|&len| accepted(Ses::Std(ses), len)).collect()
}

fn first(request: StdRequest) -> StdRequest {
    StdRequest { eom: false, ..request }
}

fn next(request: StdRequest, at: u32, here: u16, eom: bool) -> StdRequest {
    let body = StdBody::Next { payload_length: here, message_offset: at };
    StdRequest { som: false, eom, body, ..request }
}

fn range(from: usize, to: usize) -> Vec<usize> {
    (from..=to).collect()
}

const NOTHING: Vec<usize> = Vec::new();

#[test]
fn a_message() {
    for opcode in [Opcode::Write, Opcode::Send, Opcode::TaggedSend, Opcode::DeferrableSend] {
        let message = std_request(opcode, 100);
        assert_eq!(lengths(message, 120), [100]);
        assert_eq!(lengths(first(message), 120), range(1, 99));
        assert_eq!(lengths(next(message, 40, 30, false), 120), [30]);
        assert_eq!(lengths(next(message, 40, 59, false), 120), [59]);
        assert_eq!(lengths(next(message, 40, 60, true), 120), [60]);
        for (at, here, eom) in [(40, 60, false), (40, 61, false), (40, 59, true), (40, 61, true)] {
            assert_eq!(lengths(next(message, at, here, eom), 120), NOTHING, "{at} {here} {eom}");
        }
        // Offset plus length exceeds 32 bits.
        assert_eq!(lengths(next(message, u32::MAX, 101, true), 120), NOTHING);
    }
}

#[test]
fn a_request_without_payload() {
    for opcode in [Opcode::Read, Opcode::DeferrableRtr] {
        for length in [0, 100] {
            let request = std_request(opcode, length);
            assert_eq!(lengths(request, 120), [0]);
            assert_eq!(lengths(first(request), 120), [0]);
            assert_eq!(lengths(next(request, 40, 30, false), 120), [0]);
        }
    }
}

#[test]
fn no_operation_carries_all_of_its_length() {
    let request = std_request(Opcode::NoOp, 7);
    for request in [request, first(request), next(request, 0, 7, false), next(request, 9, 3, true)]
    {
        assert_eq!(lengths(request, 12), [7]);
    }
}

#[test]
fn a_message_error_carries_at_most_the_message() {
    let error = std_request(Opcode::MsgError, 50);
    assert_eq!(lengths(error, 60), range(0, 50));
    assert_eq!(lengths(first(error), 60), range(0, 50));
    assert_eq!(lengths(next(error, 0, 20, true), 60), [0, 20]);
    assert_eq!(lengths(next(error, 0, 50, true), 60), [0, 50]);
    assert_eq!(lengths(next(error, 0, 51, true), 60), [0]);
}

#[test]
fn a_rendezvous_carries_its_eager_part() {
    for opcode in [Opcode::RendezvousSend, Opcode::RendezvousTsend] {
        let plan = |eager_length| StdRequest {
            extension: Extension::Rendezvous(Rendezvous {
                eager_length,
                ri_generation: 0,
                pid_on_fep: 0,
                resource_index: 0,
                read_offset: 0,
                memory_key: 0,
            }),
            ..std_request(opcode, 100)
        };
        for eager in [0, 40, 100] {
            assert_eq!(lengths(plan(eager), 120), [eager as usize]);
        }
        assert_eq!(lengths(plan(101), 120), NOTHING);
        assert_eq!(lengths(first(plan(40)), 120), range(1, 39));
        assert_eq!(lengths(first(plan(101)), 120), NOTHING);
        assert_eq!(lengths(next(plan(40), 10, 29, false), 120), [29]);
        assert_eq!(lengths(next(plan(40), 10, 30, true), 120), [30]);
        assert_eq!(lengths(next(plan(40), 10, 30, false), 120), NOTHING);
        assert_eq!(lengths(next(plan(40), 10, 29, true), 120), NOTHING);
        // Without the extension header the end of the eager part is unknown, that of the message is
        // known.
        let bare = StdRequest { extension: Extension::None, ..plan(0) };
        for eom in [false, true] {
            assert_eq!(lengths(next(bare, 70, 30, eom), 40), [30]);
            assert_eq!(lengths(next(bare, 71, 30, eom), 40), NOTHING);
        }
    }
}

#[test]
fn an_atomic() {
    let atomic = |op| StdRequest {
        extension: Extension::Atomic(Atomic {
            op,
            data_type: AmoType::Uint64,
            cacheable: false,
            cpu_coherent: false,
        }),
        ..std_request(Opcode::FetchingAtomic, 16)
    };
    assert_eq!(lengths(atomic(AmoOp::Sum), 30), [16]);
    assert_eq!(lengths(first(atomic(AmoOp::Sum)), 30), range(1, 15));
    for op in [AmoOp::Read, AmoOp::Inval] {
        assert_eq!(lengths(atomic(op), 30), [0, 16]);
        assert_eq!(lengths(first(atomic(op)), 30), range(0, 15));
        assert_eq!(lengths(next(atomic(op), 0, 16, true), 30), [0, 16]);
    }
    let vendor = AmoOp::from_u8(0xE0).expect("a vendor's");
    assert_eq!(lengths(atomic(vendor), 30), range(0, 30));

    let Extension::Atomic(swap) = atomic(AmoOp::CswapGe).extension else {
        panic!("an atomic");
    };
    let extension = Extension::CompareSwap(CompareSwap { atomic: swap, compare: 1, swap: 2 });
    let swap = StdRequest { extension, ..atomic(AmoOp::CswapGe) };
    assert_eq!(lengths(swap, 30), [0]);
    assert_eq!(lengths(first(swap), 30), [0]);
}

#[test]
fn a_vendors_request_carries_anything() {
    for number in [0x30, 0x3E, 0x3F] {
        let request = std_request(Opcode::from_u8(number).expect("a vendor's"), 10);
        for request in [request, first(request), next(request, 9, 9, true)] {
            assert_eq!(lengths(request, 20), range(0, 20));
        }
    }
}

#[test]
fn the_compact_headers() {
    let small = samples::small(Opcode::Write, 9);
    let medium = samples::medium(9);
    let longest = SmallRequest { request_length: SmallRequest::MAX_LENGTH, ..small };
    assert!(accepted(Ses::Small(longest), SmallRequest::MAX_LENGTH.into()));
    for len in 0..20 {
        assert_eq!(accepted(Ses::Small(small), len), len == 9);
        assert_eq!(accepted(Ses::Medium(medium), len), len == 9);
        let read = SmallRequest { opcode: Opcode::Read, ..small };
        assert_eq!(accepted(Ses::Small(read), len), len == 0);
    }
}
