//! The rules of the packet format, and the error for a packet that breaks one.

use core::fmt;

macro_rules! errors {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// The rule that a packet broke. Fieldless, so that a counter per rule is an array of
        /// [`ParseError::COUNT`] numbers indexed by `error as usize`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum ParseError { $($(#[$meta])* $name,)* }

        impl ParseError {
            /// Every rule of the packet format, in the order of its number.
            pub const ALL: &[Self] = &[$(Self::$name),*];
            /// Number of rules of the packet format.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the rule in words, for a log line or a counter's name.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

errors! {
    /// The packet has fewer bytes than the header that its first bytes announce.
    Truncated = "header is truncated",
    /// Bytes follow a packet that has no payload.
    Trailing = "bytes after the end of the packet",
    /// The PDS type is neither in table 3-32 nor one of this crate's private types.
    Type = "unknown PDS type",
    /// The next_hdr value is not in table 3-16.
    NextHeader = "unknown next_hdr",
    /// This PDS type cannot carry this next_hdr, such as a request behind an ACK.
    NextHeaderContext = "next_hdr not allowed for this PDS type",
    /// A reserved bit or field is not zero.
    Reserved = "reserved bit or field is not zero",
    /// The SPDCID is 0, or it is not 0 in a NACK of a RUDI packet.
    Spdcid = "wrong SPDCID",
    /// The DPDCID is 0 without SYN, or it is not 0 in a NACK of a RUDI packet.
    Dpdcid = "wrong DPDCID",
    /// CLEAR_PSN lies after the PSN.
    ClearPsnOffset = "clear_psn_offset is positive",
    /// An ACK's REQ field has the value 3.
    AckRequest = "ACK REQ 3 is reserved",
    /// This ACK cannot carry this congestion-control type.
    CcType = "unknown CC type",
    /// The NACK code is not in table 3-58.
    NackCode = "unknown NACK code",
    /// The control packet type is not in table 3-38.
    ControlKind = "unknown control packet type",
    /// The payload of this control packet must be zero.
    ControlPayload = "control payload must be zero",
    /// The SES version is not 0.
    Version = "unknown SES version",
    /// The SES opcode is not in tables 3-17 and 3-18.
    Opcode = "unknown SES opcode",
    /// This PDS type or SES header cannot carry this SES opcode.
    OpcodeContext = "SES opcode not allowed here",
    /// The return code is not in table 3-19.
    ReturnCode = "unknown SES return code",
    /// SOM and EOM must both be set: small, medium and datagram requests are one packet.
    SomEom = "SOM and EOM must both be set",
    /// A datagram's message id is not 0.
    MessageId = "message_id must be zero",
    /// The atomic operation or data type does not exist.
    Amo = "unknown atomic operation or data type",
    /// The payload disagrees with the lengths in the SES header.
    Length = "payload length disagrees with the header",
    /// A rate is negative, NaN, or infinite where it must be finite.
    Rate = "rate is negative, NaN, or infinite where it must be finite",
    /// The packet is not of the kind that this view reads.
    Kind = "the bytes hold another kind of header",
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for ParseError {}
