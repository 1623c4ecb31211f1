//! `docs/wire.md` has the version, the private numbers and the lengths that this crate has.

use squall_wire::{
    Control, DartState, Fragment, Handshake, PdsType, RateEntry, RatePacket, Reason, Stage,
    Telemetry, TelemetryRecord, WIRE_VERSION,
};

const PAGE: &str = include_str!("../../docs/wire.md");

/// Returns the cells of every row of the page's tables.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let table = PAGE.lines().filter_map(|line| line.strip_prefix("| "));
    table.map(|line| line.split('|').map(str::trim).collect())
}

#[test]
fn the_page_describes_this_version() {
    assert!(PAGE.contains(&format!("This is wire version {WIRE_VERSION} ")));
}

#[test]
fn private_numbers_are_registered() {
    let registered = |number: u8, space: &str| {
        let number = number.to_string();
        rows().any(|row| row[0] == number && row.get(1) == Some(&space))
    };
    for number in [Fragment::TYPE, PdsType::Rates.to_u8(), Telemetry::TYPE] {
        assert!(registered(number, "PDS type"), "{number}");
    }
    assert!(registered(DartState::CC_TYPE, "cc_type of ACK_CCX"));
}

#[test]
fn stages_and_reasons_have_their_names() {
    for reason in Reason::ALL.iter().filter(|&&reason| reason != Reason::None) {
        let (number, name) = (reason.to_u8().to_string(), reason.name());
        assert!(rows().any(|row| row[0] == number && row[1] == name), "{name}");
    }
    let stages: Vec<String> = Stage::ALL
        .iter()
        .map(|stage| format!("{} {}", stage.to_u8(), stage.name().to_lowercase()))
        .collect();
    assert!(PAGE.contains(&format!("stage: {}", stages.join(", "))), "{stages:?}");
}

#[test]
fn lengths_are_those_of_the_code() {
    let has = |text: &str| assert!(PAGE.contains(text), "{text}");
    let words = (Handshake::LEN - Control::LEN) / 4;
    has(&format!("length of the value in words of four bytes: {words}, in a refusal 10 if"));
    has(&format!("| 4 | {} each | records", TelemetryRecord::LEN));
    has(&format!("number of records, at most {}", Telemetry::MOST));
    let head = RatePacket::MAX_LEN - RatePacket::MOST * RateEntry::LEN;
    has(&format!("| {head} | {} each | entries", RateEntry::LEN));
    has(&format!("number of entries, at most {}", RatePacket::MOST));
    has(&format!("| {} | | the packet |", Fragment::LEN));
}
