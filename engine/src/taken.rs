//! What the message layer makes of a packet.

use crate::reliability::wire::{NackCode, Response};

/// What the message layer makes of a packet.
#[derive(Clone, Copy)]
pub(crate) enum Taken {
    /// It is in place; the response, if any, is not the default one.
    Yes(Option<Response>),
    /// Not now: there is no room.
    Later(NackCode),
    /// Never: it contradicts itself or what came before.
    No,
}
