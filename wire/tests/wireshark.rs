//! The dissector for Wireshark calls every number what this crate calls it.

use std::collections::BTreeMap;

use squall_wire::{
    ControlKind, List, NackCode, NextHeader, Opcode, PdsType, ResponseOpcode, ReturnCode,
};

const SCRIPT: &str = include_str!("../wireshark/squall.lua");

/// A table of the script: `local NAME = {`, rows `[1] = "WORD",`, `}`.
fn table(name: &str) -> BTreeMap<u8, &'static str> {
    let begin = format!("local {name} = {{\n");
    let (_, rest) = SCRIPT.split_once(begin.as_str()).expect(name);
    let (rows, _) = rest.split_once("\n}").expect("an end");
    let row = |row: &'static str| {
        let (number, word) = row.trim().strip_prefix('[')?.split_once("] = ")?;
        Some((number.parse().ok()?, word.trim_matches([',', '"'])))
    };
    rows.lines().map(|line| row(line).unwrap_or_else(|| panic!("{name}: {line}"))).collect()
}

macro_rules! same {
    ($table:literal, $kind:ty) => {
        let ours: BTreeMap<u8, &str> =
            <$kind>::ALL.iter().map(|code| (code.to_u8(), code.name())).collect();
        assert_eq!(table($table), ours, "{}", $table);
    };
}

#[test]
fn numbers_have_the_same_names() {
    same!("TYPES", PdsType);
    same!("NEXT", NextHeader);
    same!("CONTROLS", ControlKind);
    same!("NACKS", NackCode);
    same!("OPCODES", Opcode);
    same!("RESPONSES", ResponseOpcode);
    same!("LISTS", List);
    same!("RETURNS", ReturnCode);
    same!("STAGES", squall_wire::Stage);
    same!("REASONS", squall_wire::Reason);
}
