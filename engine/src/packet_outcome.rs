//! What the message layer makes of a packet.

use crate::reliability::wire::{List, NackCode, Response, ResponseOpcode, ReturnCode, StdRequest};

/// The outcome of a packet in the message layer.
#[derive(Clone, Copy)]
pub(crate) enum PacketOutcome {
    /// It is in place; the response, if any, is not the default one.
    Yes(Option<Response>),
    /// Not now: there is no room.
    Later(NackCode),
    /// Never: it contradicts itself or what came before.
    No,
}

impl PacketOutcome {
    /// It is refused, and its sender told why.
    pub(crate) const fn refused(job_id: u32, code: ReturnCode, request: &StdRequest) -> Self {
        Self::answered(job_id, code, request.message_id)
    }

    /// There is no room for its message: the sender keeps the bytes, and offers them.
    pub(crate) const fn deferred(job_id: u32, message_id: u16) -> Self {
        Self::answered(job_id, ReturnCode::NoMatch, message_id)
    }

    const fn answered(job_id: u32, code: ReturnCode, message_id: u16) -> Self {
        Self::Yes(Some(Response {
            list: List::Expected,
            opcode: ResponseOpcode::Response,
            return_code: code,
            message_id,
            ri_generation: 0,
            job_id,
            modified_length: 0,
        }))
    }
}
