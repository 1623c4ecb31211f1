//! Any packet that obeys the tables is read back as it was written, and no byte string panics.

use crate::{checks, samples, strategy};
use proptest::prelude::*;
use squall_wire::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(owned in strategy::packet()) {
        let packet = owned.packet();
        let mut bytes = vec![0xEE; packet.len()];
        prop_assert_eq!(packet.emit(&mut bytes), bytes.len());
        let most = match packet {
            Packet::Rates(_) => RatePacket::MAX_LEN,
            _ => MAX_HEADER + owned.payload.len(),
        };
        prop_assert!(bytes.len() <= most);
        prop_assert_eq!(parse(&bytes), Ok(packet));
        checks::check(&bytes);
    }

    #[test]
    fn no_byte_string_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        checks::check(&bytes);
    }

    #[test]
    fn no_broken_packet_panics(
        which in any::<prop::sample::Index>(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let samples = samples::all();
        let mut bytes = which.get(&samples).1.clone();
        for (at, value) in hits {
            *at.get_mut(&mut bytes) = value;
        }
        checks::check(&bytes);
        checks::check(&bytes[..len.index(bytes.len())]);
        bytes.extend(tail);
        checks::check(&bytes);
    }

    #[test]
    fn numbers_and_codes_are_each_others_inverse(number in any::<u8>()) {
        macro_rules! inverse {
            ($($name:ident),*) => {$(
                if let Some(code) = $name::from_u8(number) {
                    prop_assert_eq!(code.to_u8(), number);
                    prop_assert!(!code.name().is_empty());
                }
            )*};
        }
        inverse!(PdsType, NextHeader, ControlKind, NackCode, Opcode, ResponseOpcode, ReturnCode);
        inverse!(List, AmoOp, AmoType);
    }
}
