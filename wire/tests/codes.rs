//! The numbers of the tables, written down once more as the tables give them.

use squall_wire::*;

/// Checks that `ALL` has the numbers `table`, in order, and that every other number below `bound`
/// is refused unless it is a vendor's.
macro_rules! numbers {
    ($name:ident, $bound:expr, $vendor:expr, $table:expr) => {
        let table: Vec<u8> = $table.collect();
        let numbers: Vec<u8> = $name::ALL.iter().map(|code| code.to_u8()).collect();
        assert_eq!(numbers, table, stringify!($name));
        let vendor: Vec<u8> = $vendor.collect();
        for number in 0..=$bound {
            let known = $name::from_u8(number);
            assert_eq!(known.map($name::to_u8), known.map(|_| number));
            let expected = table.contains(&number) || vendor.contains(&number);
            assert_eq!(known.is_some(), expected, "{} {number:#x}", stringify!($name));
        }
    };
}

#[test]
fn every_code_has_its_number() {
    let none = || 0..0_u8;
    // The last type is private.
    numbers!(PdsType, 31, none(), (1..=14).chain([30]));
    numbers!(NextHeader, 15, none(), 0..=6);
    numbers!(ControlKind, 15, none(), 0..=9);
    let nacks = (1..=2).chain(4..=0x0B).chain(0x0D..=0x1A).chain(0xFD..=0xFF);
    numbers!(NackCode, 255, none(), nacks);
    numbers!(Opcode, 63, 0x30..=0x3E, (0..=0x0F).chain([0x3F]));
    numbers!(ResponseOpcode, 63, none(), 0..=3);
    numbers!(List, 3, none(), 0..=3);
    numbers!(ReturnCode, 63, 0x30..=0x37, (0..=0x24).chain([0x3E]));
    numbers!(AmoOp, 255, 0xE0..=0xFE, 0..=0x14);
    numbers!(AmoType, 255, none(), 0..=0x11);
}

#[test]
fn the_action_of_a_nack_is_the_reference_providers() {
    let with = |action| {
        NackCode::ALL
            .iter()
            .filter(move |code| code.action() == action)
            .map(|code| code.to_u8())
            .collect::<Vec<_>>()
    };
    let closing = [0x0E, 0x0F, 0x10, 0x11, 0x13, 0x15, 0x16, 0x19, 0xFF];
    assert_eq!(with(NackAction::Close), closing);
    assert_eq!(with(NackAction::Restart), [0x17]);
    assert_eq!(with(NackAction::Ignore), [0x18]);
    assert_eq!(
        with(NackAction::Retransmit),
        [1, 2, 4, 5, 6, 7, 8, 9, 0x0A, 0x0B, 0x0D, 0x12, 0x14, 0x1A, 0xFD, 0xFE]
    );
}

#[test]
fn only_a_target_with_a_context_can_say_some_nacks() {
    let strangers: Vec<u8> = NackCode::ALL
        .iter()
        .filter(|code| !code.needs_context())
        .map(|code| code.to_u8())
        .collect();
    let expected =
        [1, 2, 4, 5, 6, 7, 8, 9, 0x0A, 0x0E, 0x0F, 0x15, 0x16, 0x17, 0x19, 0xFD, 0xFE, 0xFF];
    assert_eq!(strangers, expected);
}

#[test]
fn the_size_of_an_operand() {
    let sizes: Vec<usize> = AmoType::ALL.iter().map(|kind| kind.size().unwrap_or(0)).collect();
    assert_eq!(sizes, [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 4, 8, 8, 16, 0, 0, 2, 2]);
}

#[test]
fn an_opcode_knows_its_extension() {
    let with = |test: fn(Opcode) -> bool| {
        Opcode::ALL.iter().filter(|op| test(**op)).map(|op| op.to_u8()).collect::<Vec<_>>()
    };
    assert_eq!(with(Opcode::is_atomic), [3, 4, 0x0D, 0x0E]);
    assert_eq!(with(Opcode::is_rendezvous), [6, 0x0A]);
    assert_eq!(with(Opcode::is_tagged), [9, 0x0A, 0x0B, 0x0D, 0x0E]);
    assert_eq!(with(Opcode::is_without_payload), [2, 0x0C]);
    let swaps: Vec<u8> =
        AmoOp::ALL.iter().filter(|op| op.is_compare_swap()).map(|op| op.to_u8()).collect();
    assert_eq!(swaps, [0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12]);
    for op in (0..=255).filter_map(AmoOp::from_u8) {
        let there = op.with_payload();
        assert_eq!(there.is_some(), op.is_compare_swap());
        assert_eq!(there.and_then(AmoOp::without_payload), there.map(|_| op));
        let back = op.without_payload();
        assert_eq!(back.and_then(AmoOp::with_payload), back.map(|_| op));
    }
}

#[test]
fn a_name_is_what_it_displays_and_none_is_given_twice() {
    let mut names: Vec<&str> = NackCode::ALL.iter().map(|code| code.name()).collect();
    assert!(NackCode::ALL.iter().all(|code| code.to_string() == code.name()));
    assert!(ParseError::ALL.iter().all(|error| error.to_string() == error.text()));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), NackCode::ALL.len());
    assert_eq!(Opcode::from_u8(0x31).map(|op| op.to_string()), Some("VENDOR".to_owned()));
}
