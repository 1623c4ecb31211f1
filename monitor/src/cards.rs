//! The counters of each network card, on the page of an endpoint that uses several.

use crate::description::Counter;

/// Names and meanings of the counters of a card, in the order of [`CardValues`].
pub const CARD: [(&str, &str, &str); 4] = [
    ("tx_packets", "packets", "Packets sent through the card."),
    ("tx_bytes", "bytes", "UDP payload bytes of these."),
    ("rx_packets", "packets", "Packets received through the card."),
    ("rx_bytes", "bytes", "UDP payload bytes of these."),
];

/// Key of the choice that lists the names of the cards, separated by spaces.
pub const CARDS: &str = "rails";

/// The values of a card, in the order of [`CARD`].
pub type CardValues = [u64; CARD.len()];

/// Returns the name of a counter of card number `card`: `card1_tx_bytes`.
#[must_use]
pub fn card_counter(card: usize, name: &str) -> String {
    format!("card{card}_{name}")
}

/// Returns the descriptions of the counters of this many cards.
pub fn card_counters(cards: usize) -> impl Iterator<Item = Counter> {
    (0..cards).flat_map(|card| {
        CARD.map(|(name, unit, help)| Counter {
            name: card_counter(card, name),
            unit: unit.to_owned(),
            merge: "sum".to_owned(),
            help: format!("Card {card}: {help}"),
        })
    })
}
