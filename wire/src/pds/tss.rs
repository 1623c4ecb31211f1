//! Transport security: the header of an encrypted packet. The encrypted part is opaque here.

use super::Uud;
use crate::error::ParseError;
use crate::view::{be24, be32, be64, view};

view! {
    /// The 12 bytes that every TSS header starts with. The meaning of bytes 4 to 11 depends on
    /// [`Self::has_ssi`]; [`Tss::read`] interprets them.
    TssView [12] if |b| b[0] >> 3 == 1;
    /// SP: a source identifier (SSI) follows.
    has_ssi: bool = |b| b[0] & 0x04 != 0;
    /// Reserved bit.
    reserved: bool = |b| b[0] & 0x02 != 0;
    /// AN: selects one of two keys of the association.
    key: bool = |b| b[0] & 0x01 != 0;
    /// Secure domain identifier (SDI), 24 bits.
    sdi: u32 = |b| be24(b, 1);
}

/// The header of an encrypted packet, 12 bytes or 16 with a source id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tss {
    /// AN: selects one of two keys of the association.
    pub key: bool,
    /// Secure domain identifier (SDI), 24 bits.
    pub sdi: u32,
    /// Secure source identifier (SSI) of the sender, when the header has one.
    pub ssi: Option<u32>,
    /// Epoch (upper 16 bits) and counter (lower 48 bits) of the packet.
    pub tsc: u64,
}

impl Tss {
    /// Length of the header without a source identifier in bytes.
    pub const LEN: usize = 12;
    /// Length of the header with a source identifier in bytes.
    pub const LEN_SSI: usize = 16;
    /// Length of the integrity check value, with which every encrypted packet ends, in bytes.
    pub const ICV_LEN: usize = 16;
    /// Fewest bytes behind the header: the shortest delivery header and the integrity check value.
    pub const MIN_SEALED: usize = Uud::LEN + Self::ICV_LEN;

    /// Returns the length of this header in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a header is never empty
    pub const fn len(&self) -> usize {
        if self.ssi.is_some() { Self::LEN_SSI } else { Self::LEN }
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let bits = u32::from(self.ssi.is_some()) << 26 | u32::from(self.key) << 24;
        out[..4].copy_from_slice(&(1 << 27 | bits | self.sdi & 0x00FF_FFFF).to_be_bytes());
        if let Some(ssi) = self.ssi {
            out[4..8].copy_from_slice(&ssi.to_be_bytes());
        }
        let len = self.len();
        out[len - 8..len].copy_from_slice(&self.tsc.to_be_bytes());
        len
    }

    /// Reads the header at the start of `bytes` and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let view = TssView::new(bytes)?;
        if view.reserved() {
            return Err(ParseError::Reserved);
        }
        let (ssi, tsc) = if view.has_ssi() {
            let Some(long) = bytes.first_chunk::<{ Self::LEN_SSI }>() else {
                return Err(ParseError::Truncated);
            };
            (Some(be32(long, 4)), be64(long, 8))
        } else {
            (None, be64(view.bytes(), 4))
        };
        Ok(Self { key: view.key(), sdi: view.sdi(), ssi, tsc })
    }
}
