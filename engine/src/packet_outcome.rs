//! The outcome of handling a packet in the message layer.

use crate::reliability::wire::{List, NackCode, Response, ResponseOpcode, ReturnCode, StdRequest};

/// The outcome of a packet in the message layer, from which the transport chooses its answer.
#[derive(Clone, Copy)]
pub(crate) enum PacketOutcome {
    /// The packet was processed. A response is present only if it is not the default one.
    Yes(Option<Response>),
    /// The packet is refused for now, because the receiver has no room. The sender retransmits it.
    Later(NackCode),
    /// The packet is invalid: it contradicts itself or earlier packets.
    No,
}

impl PacketOutcome {
    /// Returns the outcome of a request that is refused with a return code.
    pub(crate) const fn refused(job_id: u32, code: ReturnCode, request: &StdRequest) -> Self {
        Self::answered(job_id, code, request.message_id)
    }

    /// Returns the outcome of a message for which there is no room: the sender keeps the payload
    /// and offers it later.
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
