//! Code points: the numbers of `next_hdr`, NACK codes, SES opcodes, return codes and atomics.

mod amo;
mod nack;
mod opcode;
mod return_code;

pub use amo::{AmoOp, AmoType};
pub use nack::{NackAction, NackCode};
pub use opcode::{List, Opcode, ResponseOpcode};
pub use return_code::ReturnCode;

/// Declares an enum of code points with their numbers on the wire and their names in the tables of
/// the UE specification. With `Vendor first..=last` after the name, the enum has a further variant
/// for the vendors' numbers in that range.
macro_rules! code_points {
    ($(#[$meta:meta])* $name:ident $($vendor:ident $first:literal ..= $last:literal)? {
        $($(#[$vmeta:meta])* $variant:ident = $value:literal, $text:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vmeta])* $variant = $value,)*
            $(
                #[doc = concat!("A vendor's number, ", stringify!($first), " to ", stringify!($last),
                    ": build it with `from_u8`, which checks the range.")]
                $vendor(u8),
            )?
        }

        impl $name {
            /// Every value that is not a vendor's, in the order of the numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the value with this number, if there is one.
            #[inline]
            #[must_use]
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    $($first..=$last => Some(Self::$vendor(number)),)?
                    _ => None,
                }
            }

            /// Returns the code point's number on the wire.
            #[inline]
            #[must_use]
            pub const fn to_u8(self) -> u8 {
                match self {
                    $(Self::$variant => $value,)*
                    $(Self::$vendor(number) => number,)?
                }
            }

            /// Returns the code point's name in the tables of the UE specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    $(Self::$vendor(_) => "VENDOR",)?
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use code_points;

code_points! {
    /// Kind of header behind the PDS header: the values of `next_hdr` (table 3-16).
    NextHeader {
        /// No header follows the PDS header.
        None = 0, "NONE";
        /// [`SmallRequest`](crate::SmallRequest), 20 bytes.
        RequestSmall = 1, "REQUEST_SMALL";
        /// [`MediumRequest`](crate::MediumRequest), 32 bytes.
        RequestMedium = 2, "REQUEST_MEDIUM";
        /// [`StdRequest`](crate::StdRequest), 44 bytes.
        RequestStd = 3, "REQUEST_STD";
        /// [`Response`](crate::Response), 12 bytes.
        Response = 4, "RESPONSE";
        /// [`ResponseData`](crate::ResponseData), 20 bytes and a payload.
        ResponseData = 5, "RESPONSE_DATA";
        /// [`ResponseDataSmall`](crate::ResponseDataSmall), 12 bytes and a payload.
        ResponseDataSmall = 6, "RESPONSE_DATA_SMALL";
    }
}

code_points! {
    /// The type of a PDS packet (table 3-32).
    PdsType {
        /// Encrypted packet: [`Tss`](crate::Tss).
        Tss = 1, "TSS";
        /// Reliable, unordered delivery: [`Request`](crate::Request).
        RudReq = 2, "RUD_REQ";
        /// Request of reliable, ordered delivery.
        RodReq = 3, "ROD_REQ";
        /// Request of reliable delivery without a context, for idempotent operations.
        RudiReq = 4, "RUDI_REQ";
        /// The target's answer to a RUDI request.
        RudiResp = 5, "RUDI_RESP";
        /// Request of unreliable delivery.
        UudReq = 6, "UUD_REQ";
        /// Acknowledgement without congestion-control state.
        Ack = 7, "ACK";
        /// Acknowledgement with SACK and congestion-control state.
        AckCc = 8, "ACK_CC";
        /// Acknowledgement with SACK and a vendor's congestion-control state.
        AckCcx = 9, "ACK_CCX";
        /// Negative acknowledgement.
        Nack = 10, "NACK";
        /// Control packet, without data.
        Control = 11, "CP";
        /// Negative acknowledgement with a vendor's congestion-control state.
        NackCcx = 12, "NACK_CCX";
        /// [`PdsType::RudReq`] with congestion-control state.
        RudCcReq = 13, "RUD_CC_REQ";
        /// [`PdsType::RodReq`] with congestion-control state.
        RodCcReq = 14, "ROD_CC_REQ";
        /// Rate packet: [`RatePacket`](crate::RatePacket). The number is private to this project.
        Rates = 30, "RATES";
    }
}

code_points! {
    /// The type of a control packet (table 3-38).
    ControlKind {
        /// No operation; may open a context.
        Noop = 0, "NOOP";
        /// Asks for the acknowledgement of a PSN. Payload: message id or 0.
        AckRequest = 1, "ACK_REQUEST";
        /// The target may forget the responses up to the payload's PSN.
        ClearCommand = 2, "CLEAR_COMMAND";
        /// The target asks for a clear up to the payload's PSN.
        ClearRequest = 3, "CLEAR_REQUEST";
        /// The initiator closes the context. Payload 0.
        CloseCommand = 4, "CLOSE_COMMAND";
        /// The target asks the initiator to close the context. Payload 0.
        CloseRequest = 5, "CLOSE_REQUEST";
        /// Asks for an ACK that echoes `probe_opaque`. Payload: the SACK base to report.
        Probe = 6, "PROBE";
        /// Grants credit to the initiator of the context.
        Credit = 7, "CREDIT";
        /// Asks the target for credit. Payload: the total credit wanted.
        CreditRequest = 8, "CREDIT_REQUEST";
        /// Negotiates features (UE 1.0.3); type-length-values may follow the header.
        Negotiation = 9, "NEGOTIATION";
    }
}
