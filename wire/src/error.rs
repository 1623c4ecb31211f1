//! Why a packet was refused.

use core::fmt;

macro_rules! errors {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// The rule that a packet broke. Fieldless, so that a counter per rule is an array of
        /// [`ParseError::COUNT`] numbers indexed by `error as usize`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum ParseError { $($(#[$meta])* $name,)* }

        impl ParseError {
            /// Every rule, in the order of its number.
            pub const ALL: &[Self] = &[$(Self::$name),*];
            /// How many rules there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The rule in words, for a log line or a counter's name.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

errors! {
    /// Fewer bytes than the header announced by the bytes before it.
    Truncated = "header is truncated",
    /// Bytes after a packet that has no payload.
    Trailing = "bytes after the end of the packet",
    /// A PDS type that table 3-32 does not have, nor this crate's documentation.
    Type = "unknown PDS type",
    /// A next_hdr value that table 3-16 does not have.
    NextHeader = "unknown next_hdr",
    /// A next_hdr that this PDS type cannot carry, such as a request behind an ACK.
    NextHeaderContext = "next_hdr not allowed for this PDS type",
    /// A reserved bit or field is not zero.
    Reserved = "reserved bit or field is not zero",
    /// SPDCID 0, or not 0 in a NACK of a RUDI packet.
    Spdcid = "wrong SPDCID",
    /// DPDCID 0 without SYN, or not 0 in a NACK of a RUDI packet.
    Dpdcid = "wrong DPDCID",
    /// CLEAR_PSN lies after the PSN.
    ClearPsnOffset = "clear_psn_offset is positive",
    /// The value 3 of an ACK's REQ field.
    AckRequest = "ACK REQ 3 is reserved",
    /// A congestion-control type that this ACK cannot carry.
    CcType = "unknown CC type",
    /// A NACK code that table 3-58 does not have.
    NackCode = "unknown NACK code",
    /// A control packet type that table 3-38 does not have.
    ControlKind = "unknown control packet type",
    /// A control packet whose payload must be zero.
    ControlPayload = "control payload must be zero",
    /// A SES version other than 0.
    Version = "unknown SES version",
    /// A SES opcode that tables 3-17 and 3-18 do not have.
    Opcode = "unknown SES opcode",
    /// A SES opcode that this PDS type or SES header cannot carry.
    OpcodeContext = "SES opcode not allowed here",
    /// A return code that table 3-19 does not have.
    ReturnCode = "unknown SES return code",
    /// SOM and EOM must both be set: small, medium and datagram requests are one packet.
    SomEom = "SOM and EOM must both be set",
    /// A datagram's message id is not 0.
    MessageId = "message_id must be zero",
    /// An atomic operation or data type that does not exist.
    Amo = "unknown atomic operation or data type",
    /// The payload disagrees with the lengths in the SES header.
    Length = "payload length disagrees with the header",
    /// A rate that is negative, infinite where it must not be, or no number.
    Rate = "a rate that is none",
    /// The packet is not of the kind that this view reads.
    Kind = "the bytes hold another kind of header",
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for ParseError {}
