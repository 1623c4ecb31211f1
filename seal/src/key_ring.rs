//! The secrets that an endpoint shares with its peers, by which it seals and opens packets.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use crate::OVERHEAD;
use crate::cipher::ICV_LEN;
use crate::outer::OuterHeader;
use crate::pair::{Pair, PairRefusal, PairState, SourceId};
use crate::wire::Tss;

/// Number of secrets that the ring keeps for each peer: up to two of handshakes that both ends began
/// at the same time, and the one before, under which packets may still arrive. The one that packets
/// are sealed with is always among them.
const SECRETS: usize = 3;

/// The reason why a packet cannot be encrypted, and must not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    /// No secret is shared with the destination, or the destination is not known to have it yet.
    NoSecret,
    /// The counter has reached its end, after 2^48 packets. Another handshake does not help, because
    /// new secrets start above all counters that were used; the endpoint must be opened anew.
    CounterEnd,
}

/// The reason why a packet that arrived was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The packet is not encrypted.
    Clear,
    /// This endpoint shares no secret with the sender of the packet.
    UnknownSender,
    /// The packet's tag is wrong: the packet was changed, or sealed with another key.
    BadTag,
    /// The packet has arrived before, or is too old to tell (replay protection).
    Replayed,
}

/// The secrets that are shared with one peer, the latest first.
#[derive(Debug)]
struct PeerSecrets {
    addr: SocketAddr,
    pairs: Vec<PairState>,
}

/// Index of a peer's secrets in [`KeyRing::peers`].
type PeerIndex = usize;

/// The secrets that an endpoint shares with its peers, by which it seals and opens packets.
#[derive(Debug, Default)]
pub struct KeyRing {
    peers: Vec<PeerSecrets>,
    by_address: HashMap<SocketAddr, PeerIndex>,
    /// The peers that use an IP address and a source identifier. Two peers at one address have the
    /// same identifier with a probability of 2^-31, so there is nearly always one peer.
    by_source: HashMap<(IpAddr, SourceId), Vec<PeerIndex>>,
    /// Indices in `peers` that belong to no peer and may be reused.
    free: Vec<PeerIndex>,
    /// Destination of the last sealed packet, and its peer. This saves a look-up, because most packets
    /// have the destination of the packet before.
    last: Option<(SocketAddr, PeerIndex)>,
    /// Larger than every counter that a removed secret has used. Every new secret starts here, so a
    /// secret that is removed and installed again never repeats a counter.
    fresh: u64,
}

impl KeyRing {
    /// Creates a key ring that holds no secrets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the secret of a pair. Packets are sealed with the latest secret that the peer is known
    /// to have. A secret that is known already keeps its counters. Returns whether it was not known.
    pub fn install(&mut self, pair: &Pair) -> bool {
        let index = match self.by_address.get(&pair.peer) {
            Some(index) => *index,
            None => self.add_peer(pair.peer),
        };
        let pairs = &mut self.peers[index].pairs;
        // An endpoint that is its own peer is initiator and responder under one secret.
        let is_same =
            |known: &PairState| known.secret == pair.secret && known.theirs == pair.theirs;
        if let Some(known) = pairs.iter_mut().find(|known| is_same(known)) {
            known.confirmed |= pair.confirmed;
            return false;
        }
        pairs.insert(0, PairState::new(pair, self.fresh));
        if pairs.len() > SECRETS {
            // Handshakes that end without a welcome leave secrets that the peer may not have. They
            // must not displace the one in use.
            let in_use = pairs.iter().position(|pair| pair.confirmed);
            let last = pairs.len() - 1;
            self.remove_secret(index, if in_use == Some(last) { last - 1 } else { last });
        }
        let found = self.by_source.entry((pair.peer.ip(), pair.theirs)).or_default();
        if !found.contains(&index) {
            found.push(index);
        }
        true
    }

    /// Records that a peer has the latest secret that was installed for it.
    pub fn confirm(&mut self, peer: SocketAddr) {
        let index = self.by_address.get(&peer);
        if let Some(latest) = index.and_then(|index| self.peers[*index].pairs.first_mut()) {
            latest.confirmed = true;
        }
    }

    fn add_peer(&mut self, addr: SocketAddr) -> PeerIndex {
        let secrets = PeerSecrets { addr, pairs: Vec::with_capacity(1) };
        let index = match self.free.pop() {
            Some(index) => {
                self.peers[index] = secrets;
                index
            }
            None => {
                self.peers.push(secrets);
                self.peers.len() - 1
            }
        };
        self.by_address.insert(addr, index);
        index
    }

    /// Removes one secret of a peer; number 0 is the latest.
    fn remove_secret(&mut self, index: PeerIndex, secret: usize) {
        let peer = &mut self.peers[index];
        let removed = peer.pairs.remove(secret);
        self.fresh = self.fresh.max(removed.next_counter());
        if peer.pairs.iter().any(|pair| pair.theirs == removed.theirs) {
            return;
        }
        let source = (peer.addr.ip(), removed.theirs);
        if let Some(found) = self.by_source.get_mut(&source) {
            found.retain(|other| *other != index);
            if found.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }

    /// Removes all secrets that are shared with the peer at an address.
    pub fn remove(&mut self, peer: SocketAddr) {
        let Some(index) = self.by_address.remove(&peer) else { return };
        for secret in (0..self.peers[index].pairs.len()).rev() {
            self.remove_secret(index, secret);
        }
        self.last = None;
        self.free.push(index);
    }

    /// Returns the number of peers with which a secret is shared.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.by_address.len()
    }

    /// Seals a packet in place. `datagram` consists of [`Tss::LEN_SSI`] bytes for the header, the
    /// packet, and [`ICV_LEN`] bytes for the tag.
    ///
    /// # Errors
    /// The packet must not be sent, because it cannot be sealed.
    ///
    /// # Panics
    /// Panics if `datagram` is shorter than [`OVERHEAD`].
    pub fn seal(&mut self, outer: &OuterHeader, datagram: &mut [u8]) -> Result<(), SealError> {
        let pair = self.sending_pair(outer.destination).ok_or(SealError::NoSecret);
        let sealed = pair.map(|pair| pair.seal(outer, datagram));
        sealed.and_then(|done| if done { Ok(()) } else { Err(SealError::CounterEnd) })
    }

    /// Returns the secret with which packets to a peer are sealed, if there is one.
    fn sending_pair(&mut self, peer: SocketAddr) -> Option<&mut PairState> {
        let index = match self.last {
            Some((addr, index)) if addr == peer => index,
            _ => {
                let index = *self.by_address.get(&peer)?;
                self.last = Some((peer, index));
                index
            }
        };
        self.peers[index].pairs.iter_mut().find(|pair| pair.confirmed)
    }

    /// Opens a packet in place and returns the delivery packet in it.
    ///
    /// # Errors
    /// The packet must be dropped. Its bytes are undefined after [`OpenError::BadTag`].
    pub fn open<'a>(
        &mut self,
        outer: &OuterHeader,
        datagram: &'a mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<&'a [u8], OpenError> {
        let start = self.try_open(outer, datagram, scratch)?;
        let end = datagram.len() - ICV_LEN;
        Ok(&datagram[start..end])
    }

    /// Opens a packet and returns where the delivery packet in it begins.
    fn try_open(
        &mut self,
        outer: &OuterHeader,
        datagram: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<usize, OpenError> {
        let header = Tss::read(datagram).map_err(|_| OpenError::Clear)?;
        let sender = SourceId::from_header(header.ssi.ok_or(OpenError::UnknownSender)?);
        if datagram.len() < OVERHEAD {
            return Err(OpenError::BadTag);
        }
        let found = self.by_source.get(&(outer.source.ip(), sender));
        let found = found.ok_or(OpenError::UnknownSender)?;
        let matching = |index: &PeerIndex| {
            self.peers[*index].pairs.iter().filter(|pair| pair.theirs == sender).count()
        };
        // A failed attempt overwrites the bytes, so they are copied if there is more than one secret
        // to try.
        let mut candidates: usize = found.iter().map(matching).sum();
        let mut error = OpenError::BadTag;
        if candidates > 1 {
            scratch.clear();
            scratch.extend_from_slice(datagram);
        }
        for index in found {
            let pairs = &mut self.peers[*index].pairs;
            for pair in pairs.iter_mut().filter(|pair| pair.theirs == sender) {
                match pair.open(outer, &header, datagram) {
                    Ok(()) => return Ok(header.len()),
                    Err(PairRefusal::Replay) => error = OpenError::Replayed,
                    Err(PairRefusal::Tag) if candidates > 1 => datagram.copy_from_slice(scratch),
                    Err(PairRefusal::Tag) => {}
                }
                candidates -= 1;
            }
        }
        Err(error)
    }

    /// Returns the secret with which packets to a peer are sealed.
    #[cfg(test)]
    pub(crate) fn sending_secret(&mut self, peer: SocketAddr) -> Option<[u8; 32]> {
        self.sending_pair(peer).map(|pair| *pair.secret.expose())
    }
}
