//! Checked views: a header's bytes, of the right length and kind, with an accessor per field.
//!
//! A view is a reference to a fixed-size array, so after the one length check in `new` no accessor
//! can fail and none checks a bound. It returns the fields unchecked, reserved values included; the
//! plain values ([`Request`](crate::Request) and the others) are read through the views and also
//! obey the rules.

#[inline]
pub(crate) const fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline]
pub(crate) const fn be24<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([0, b[at], b[at + 1], b[at + 2]])
}

#[inline]
pub(crate) const fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline]
pub(crate) const fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    (be32(b, at) as u64) << 32 | be32(b, at + 4) as u64
}

#[inline]
pub(crate) const fn be128<const N: usize>(b: &[u8; N], at: usize) -> u128 {
    (be64(b, at) as u128) << 64 | be64(b, at + 8) as u128
}

/// Reads a signed 16-bit offset, as in ACKs and clears.
#[inline]
#[allow(clippy::cast_possible_wrap)] // two's complement is the encoding
pub(crate) const fn be16_signed<const N: usize>(b: &[u8; N], at: usize) -> i16 {
    be16(b, at) as i16
}

/// Declares a view: its length, the bytes it accepts, and its fields.
macro_rules! view {
    ($(#[$meta:meta])* $name:ident [$len:literal] if |$c:ident| $check:expr;
     $($(#[$fmeta:meta])* $field:ident: $ty:ty = |$b:ident| $read:expr;)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name<'a>(&'a [u8; $len]);

        impl<'a> $name<'a> {
            /// Length of the header in bytes, without what may follow it.
            pub const LEN: usize = $len;

            /// Returns a view of the header at the start of `bytes`.
            ///
            /// # Errors
            /// Returns [`ParseError::Truncated`](crate::ParseError::Truncated) when `bytes` is
            /// shorter than [`Self::LEN`], [`ParseError::Kind`](crate::ParseError::Kind) when they
            /// hold another kind of header.
            #[inline]
            pub fn new(bytes: &'a [u8]) -> Result<Self, crate::ParseError> {
                let Some($c) = bytes.first_chunk::<$len>() else {
                    return Err(crate::ParseError::Truncated);
                };
                if $check { Ok(Self($c)) } else { Err(crate::ParseError::Kind) }
            }

            /// Returns the header's bytes.
            #[inline]
            #[must_use]
            pub const fn bytes(self) -> &'a [u8; $len] {
                self.0
            }

            $(
                $(#[$fmeta])*
                #[inline]
                #[must_use]
                pub const fn $field(self) -> $ty {
                    let $b = self.0;
                    $read
                }
            )*
        }
    };
}
pub(crate) use view;

/// Declares a view of a PDS header; these share the prologue.
macro_rules! pds_view {
    ($(#[$meta:meta])* $name:ident [$len:literal] types ($($types:tt)+); $($fields:tt)*) => {
        crate::view::view! {
            $(#[$meta])* $name [$len] if |b| matches!(b[0] >> 3, $($types)+);
            /// PDS type, 5 bits (table 3-32).
            pds_type: u8 = |b| b[0] >> 3;
            /// next_hdr (table 3-16), 4 bits; in a control packet its kind (table 3-38).
            next: u8 = |b| (b[0] & 0x07) << 1 | b[1] >> 7;
            /// The 7 flag bits of the PDS prologue.
            flags: u8 = |b| b[1] & 0x7F;
            $($fields)*
        }
    };
}
pub(crate) use pds_view;

/// Declares a view of a request's header; these share the fields that name the operation, the job and the resource.
macro_rules! request_view {
    ($(#[$meta:meta])* $name:ident [$len:literal]; $($fields:tt)*) => {
        crate::view::view! {
            $(#[$meta])* $name [$len] if |_b| true;
            /// Two reserved bits.
            reserved: u8 = |b| b[0] >> 6;
            /// Number of the request's opcode, 6 bits (table 3-17).
            opcode: u8 = |b| b[0] & 0x3F;
            /// Version of the SES header, 2 bits.
            version: u8 = |b| b[1] >> 6;
            /// Flags DC, IE, REL, HD, EOM and SOM: 6 bits.
            flags: u8 = |b| b[1] & 0x3F;
            /// Generation of the resource that the index names.
            ri_generation: u8 = |b| b[4];
            /// JobID of the initiator's job, 24 bits.
            job_id: u32 = |b| crate::view::be24(b, 5);
            /// Four reserved bits, and the process number PIDonFEP.
            pid_on_fep: u16 = |b| crate::view::be16(b, 8);
            /// Four reserved bits, and the index of the resource.
            resource_index: u16 = |b| crate::view::be16(b, 10);
            $($fields)*
        }
    };
}
pub(crate) use request_view;

/// Declares a view of a response's header; these share the fields that name the result and the job.
macro_rules! response_view {
    ($(#[$meta:meta])* $name:ident [$len:literal]; $($fields:tt)*) => {
        crate::view::view! {
            $(#[$meta])* $name [$len] if |_b| true;
            /// List in which the message found its buffer, 2 bits (table 3-20).
            list: u8 = |b| b[0] >> 6;
            /// Kind of the response, 6 bits (table 3-18).
            opcode: u8 = |b| b[0] & 0x3F;
            /// Version of the SES header, 2 bits.
            version: u8 = |b| b[1] >> 6;
            /// Return code of the request, 6 bits (table 3-19).
            return_code: u8 = |b| b[1] & 0x3F;
            /// JobID of the request, 24 bits.
            job_id: u32 = |b| crate::view::be24(b, 5);
            $($fields)*
        }
    };
}
pub(crate) use response_view;
