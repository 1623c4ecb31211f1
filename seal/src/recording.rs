//! Decryption of recorded packets with the secrets of a key log.

use std::collections::HashMap;

use crate::base::PairSecret;
use crate::key_ring::OpenError;
use crate::outer::OuterHeader;
use crate::pair::{DirectionKeys, SourceId};
use crate::wire::Tss;

/// A secret, for the packets of one of the two endpoints that share it.
#[derive(Debug)]
struct SenderKeys {
    domain: u32,
    secret: PairSecret,
    keys: DirectionKeys,
}

/// The secrets of a recording. They open packets of either direction, in any order and any number
/// of times. An endpoint uses a [`KeyRing`](crate::KeyRing), which refuses replayed packets.
#[derive(Debug, Default)]
pub struct RecordingKeys {
    /// Keys by sender. Different senders rarely have the same identifier, so the addresses are not
    /// needed to find the keys; the tag covers them.
    by_source: HashMap<SourceId, Vec<SenderKeys>>,
}

impl RecordingKeys {
    /// Creates a set of keys that holds no secrets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the secret that the two endpoints `ends` share in a secure domain.
    pub fn add(&mut self, domain: u32, secret: &PairSecret, ends: [SourceId; 2]) {
        for end in ends {
            let known = self.by_source.entry(end).or_default();
            if !known.iter().any(|known| known.secret == *secret && known.domain == domain) {
                let keys = DirectionKeys::new(end);
                known.push(SenderKeys { domain, secret: secret.clone(), keys });
            }
        }
    }

    /// Returns whether the set holds no secret.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_source.is_empty()
    }

    /// Decrypts a UDP payload. `packet` becomes the delivery packet in it, or empty.
    ///
    /// # Errors
    /// The payload is not encrypted, its secret is not known, or its tag is wrong.
    pub fn open(
        &mut self,
        outer: &OuterHeader,
        datagram: &[u8],
        packet: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        packet.clear();
        let header = Tss::read(datagram).map_err(|_| OpenError::Clear)?;
        let sender = SourceId::from_header(header.ssi.ok_or(OpenError::UnknownSender)?);
        let known = self.by_source.get_mut(&sender).map_or(&mut [][..], Vec::as_mut_slice);
        let mut error = OpenError::UnknownSender;
        for SenderKeys { secret, keys, .. } in
            known.iter_mut().filter(|known| known.domain == header.sdi)
        {
            // A failed attempt destroys the bytes, so each has a copy.
            packet.clear();
            packet.extend_from_slice(datagram);
            if let Some(range) = keys.open_packet(secret, outer, &header, packet) {
                packet.truncate(range.end);
                packet.drain(..range.start);
                return Ok(());
            }
            error = OpenError::BadTag;
        }
        packet.clear();
        Err(error)
    }
}
