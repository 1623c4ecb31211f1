//! SES opcodes of requests (table 3-17) and responses (table 3-18), and the lists of receives
//! (table 3-20).

use super::code_points;

code_points! {
    /// Operation of a request (table 3-17). 0x10 and 0x11 (the SYNC operations of the reference
    /// provider) are in no published table, so the parser refuses them.
    Opcode Vendor 0x30..=0x3E {
        /// No data. This project uses it to ask whether the target still knows an operation.
        NoOp = 0x00, "NO_OP";
        /// Write to the target's memory.
        Write = 0x01, "WRITE";
        /// Read from the target's memory; the target returns the data as RESPONSE_DATA.
        Read = 0x02, "READ";
        /// Atomic operation that returns no value.
        Atomic = 0x03, "ATOMIC";
        /// Atomic operation that returns the old value.
        FetchingAtomic = 0x04, "FETCHING_ATOMIC";
        /// Untagged message.
        Send = 0x05, "SEND";
        /// Untagged message; the receiver reads the rest of it.
        RendezvousSend = 0x06, "RENDEZVOUS_SEND";
        /// Untagged message of one packet, unreliable (only on UUD).
        DatagramSend = 0x07, "DATAGRAM_SEND";
        /// Untagged message that the target may defer.
        DeferrableSend = 0x08, "DEFERRABLE_SEND";
        /// Tagged message.
        TaggedSend = 0x09, "TAGGED_SEND";
        /// Tagged message; the receiver reads the rest of it.
        RendezvousTsend = 0x0A, "RENDEZVOUS_TSEND";
        /// Tagged message that the target may defer.
        DeferrableTsend = 0x0B, "DEFERRABLE_TSEND";
        /// The target of a deferred message is ready to receive it.
        DeferrableRtr = 0x0C, "DEFERRABLE_RTR";
        /// Atomic operation on a buffer that a tag selects.
        TsendAtomic = 0x0D, "TSEND_ATOMIC";
        /// Fetching atomic operation on a buffer that a tag selects.
        TsendFetchAtomic = 0x0E, "TSEND_FETCH_ATOMIC";
        /// The initiator aborts a message that it has begun.
        MsgError = 0x0F, "MSG_ERROR";
        /// An opcode in a further header, which no table describes.
        Extended = 0x3F, "EXTENDED";
    }
}

impl Opcode {
    /// Returns whether an [`Atomic`](crate::Atomic) extension header follows the request header.
    #[inline]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(
            self,
            Self::Atomic | Self::FetchingAtomic | Self::TsendAtomic | Self::TsendFetchAtomic
        )
    }

    /// Returns whether a [`Rendezvous`](crate::Rendezvous) extension header follows the request header.
    #[inline]
    #[must_use]
    pub const fn is_rendezvous(self) -> bool {
        matches!(self, Self::RendezvousSend | Self::RendezvousTsend)
    }

    /// Returns whether a tag selects the buffer at the target.
    #[inline]
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        matches!(
            self,
            Self::TaggedSend
                | Self::RendezvousTsend
                | Self::DeferrableTsend
                | Self::TsendAtomic
                | Self::TsendFetchAtomic
        )
    }

    /// Returns whether the request has a length but no payload: `request_length` counts the returned bytes.
    #[inline]
    #[must_use]
    pub const fn is_without_payload(self) -> bool {
        matches!(self, Self::Read | Self::DeferrableRtr)
    }
}

code_points! {
    /// Kind of a SES response (table 3-18).
    ResponseOpcode {
        /// The target's packet layer has the packet; its message layer has not answered yet.
        Default = 0, "DEFAULT";
        /// Answer of the target's message layer, without data.
        Response = 1, "RESPONSE";
        /// Answer of the target's message layer, with data.
        ResponseWithData = 2, "RESPONSE_W_DATA";
        /// The target's message layer will not answer this packet.
        NoResponse = 3, "NO_RESPONSE";
    }
}

code_points! {
    /// The list at the target in which a message found its buffer (table 3-20).
    List {
        /// The list of receives that the application has posted.
        Expected = 0, "EXPECTED";
        /// The list for messages that no posted receive matched (unexpected messages).
        Overflow = 1, "OVERFLOW";
        /// First list that a vendor may define.
        Vendor2 = 2, "VENDOR2";
        /// Second list that a vendor may define.
        Vendor3 = 3, "VENDOR3";
    }
}
