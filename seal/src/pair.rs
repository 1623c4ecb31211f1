//! The secret that two endpoints share after a handshake, and the keys that follow from it.

use core::net::SocketAddr;
use core::ops::Range;

use crate::base::{Instance, PairSecret};
use crate::cipher::{Cipher, ICV_LEN};
use crate::kdf::{KeyLabel, KeySource, derive_key};
use crate::outer::OuterHeader;
use crate::window::ReplayWindow;
use crate::wire::Tss;

/// Binary logarithm of the number of packets that a key encrypts. 2^24 packets of 8.9 KB are s =
/// 2^33.1 blocks, for which an attacker's advantage against AES-GCM is at most s^2 / 2^127 = 2^-60.8
/// (RFC 9001 appendix B.1, which accepts 2^-57).
const INTERVAL_BITS: u32 = 24;
/// The end of the counters, which have 48 bits. Before them the TSS header has 16 bits of epoch, which
/// is 0 between two of these endpoints.
pub(crate) const COUNTER_END: u64 = 1 << 48;

/// The secure source identifier (SSI) of a sender in a pair. The highest bit is set for the endpoint
/// that answered the handshake, so the two directions never share a key, even between equal
/// instance numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId(u32);

impl SourceId {
    /// Creates the identifier of an endpoint that began (`asked`) or answered a handshake.
    #[must_use]
    pub const fn new(instance: Instance, asked: bool) -> Self {
        Self(instance.get() & 0x7FFF_FFFF | if asked { 0 } else { 1 << 31 })
    }

    /// Returns the identifier as the number in the TSS header.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Creates the identifier from the number in a TSS header.
    pub(crate) const fn from_header(ssi: u32) -> Self {
        Self(ssi)
    }
}

/// The outcome of a handshake with a job key: two endpoints that share a secret.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Address of the other endpoint of the pair.
    pub peer: SocketAddr,
    /// Secret that the two endpoints share.
    pub secret: PairSecret,
    /// Secure domain (SDI) of the packets: the JobID, 24 bits that all endpoints of a job have.
    pub domain: u32,
    /// Source identifier by which this endpoint seals packets.
    pub own: SourceId,
    /// Source identifier by which the peer seals packets.
    pub theirs: SourceId,
    /// The peer has proven that it has the secret. Otherwise this endpoint does not seal with the
    /// secret until it receives a packet that the peer has sealed with it.
    pub confirmed: bool,
}

impl Pair {
    /// Creates the pair of the endpoint `own` and a peer. This endpoint began (`asked`) or answered
    /// the handshake that yielded `secret`. Only the answerer knows at once that the other end has
    /// the secret, because the confirmation of the handshake proves it.
    #[must_use]
    pub const fn from_handshake(
        domain: u32,
        own: Instance,
        (peer, theirs): (SocketAddr, Instance),
        secret: PairSecret,
        asked: bool,
    ) -> Self {
        Self {
            peer,
            secret,
            domain,
            own: SourceId::new(own, asked),
            theirs: SourceId::new(theirs, !asked),
            confirmed: !asked,
        }
    }
}

/// The keys of one direction: the latest, and the one before, for packets that arrive late.
#[derive(Debug)]
pub(crate) struct DirectionKeys {
    source: SourceId,
    latest: Option<(u32, Cipher)>,
    former: Option<(u32, Cipher)>,
}

impl DirectionKeys {
    pub(crate) const fn new(source: SourceId) -> Self {
        Self { source, latest: None, former: None }
    }

    fn derive(&self, secret: &PairSecret, interval: u32) -> Cipher {
        let source = KeySource::Id(self.source.get());
        Cipher::new(&derive_key(secret.expose(), KeyLabel::Cluster, 0, interval, source))
    }

    /// Returns the key for the counter of a packet to send. The counters of calls must rise, because
    /// former keys for sending are not kept.
    fn for_sending(&mut self, secret: &PairSecret, counter: u64) -> &Cipher {
        let interval = interval(counter);
        if self.latest.as_ref().is_none_or(|(latest, _)| *latest != interval) {
            self.latest = Some((interval, self.derive(secret, interval)));
        }
        match &self.latest {
            Some((_, key)) => key,
            None => unreachable!("the key was derived above"),
        }
    }

    /// Opens a received packet. A new key is kept only if the packet proves that its sender uses it.
    fn open(
        &mut self,
        secret: &PairSecret,
        counter: u64,
        authenticated: &[u8],
        packet: &mut [u8],
        icv: [u8; ICV_LEN],
    ) -> bool {
        let interval = interval(counter);
        let nonce = (self.source.get(), counter);
        let kept = [&self.latest, &self.former].into_iter().flatten();
        if let Some((_, key)) = kept.into_iter().find(|(kept, _)| *kept == interval) {
            return key.open(nonce, authenticated, packet, icv);
        }
        let key = self.derive(secret, interval);
        if !key.open(nonce, authenticated, packet, icv) {
            return false;
        }
        // The replay window is smaller than an interval, so an endpoint needs the keys of the present
        // interval and the one before. A reader of a recording derives older ones again.
        if self.latest.as_ref().is_none_or(|(latest, _)| *latest < interval) {
            self.former = self.latest.replace((interval, key));
        } else {
            self.former = Some((interval, key));
        }
        true
    }

    /// Decrypts a packet of the sender in place. `header` is its TSS header, parsed. Returns where the
    /// delivery packet in it lies, or `None` if the tag is wrong.
    pub(crate) fn open_packet(
        &mut self,
        secret: &PairSecret,
        outer: &OuterHeader,
        header: &Tss,
        datagram: &mut [u8],
    ) -> Option<Range<usize>> {
        // Keys are those of epoch 0, so the tag of a packet with another epoch cannot be valid.
        if header.key || header.tsc >= COUNTER_END {
            return None;
        }
        let len = datagram.len();
        let (head, rest) = datagram.split_at_mut(header.len());
        let (packet, icv) = rest.split_last_chunk_mut::<ICV_LEN>()?;
        let authenticated = outer.authenticated(head, len);
        let intact = self.open(secret, header.tsc, authenticated.bytes(), packet, *icv);
        intact.then_some(header.len()..len - ICV_LEN)
    }
}

/// Number of the key interval of a counter. A counter has 48 bits, so the number has 24.
const fn interval(counter: u64) -> u32 {
    (counter >> INTERVAL_BITS) as u32
}

/// The state of one pair: its secret, the keys of both directions, the send counter, and the replay
/// window.
#[derive(Debug)]
pub(crate) struct PairState {
    pub(crate) secret: PairSecret,
    pub(crate) theirs: SourceId,
    pub(crate) confirmed: bool,
    domain: u32,
    sending: DirectionKeys,
    receiving: DirectionKeys,
    /// Counter that the next packet to send will get.
    next: u64,
    window: Option<ReplayWindow>,
}

/// The reason why a packet of a known sender cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PairRefusal {
    /// The packet's tag is wrong.
    Tag,
    /// The packet's counter arrived before, or is older than the window.
    Replay,
}

impl PairState {
    /// Creates the state of a pair whose first packet gets the counter `first`.
    pub(crate) fn new(pair: &Pair, first: u64) -> Self {
        Self {
            secret: pair.secret.clone(),
            theirs: pair.theirs,
            confirmed: pair.confirmed,
            domain: pair.domain & 0x00FF_FFFF,
            sending: DirectionKeys::new(pair.own),
            receiving: DirectionKeys::new(pair.theirs),
            next: first,
            window: None,
        }
    }

    /// Returns the counter that the next packet to send will get.
    pub(crate) const fn next_counter(&self) -> u64 {
        self.next
    }

    /// Seals a packet: [`Tss::LEN_SSI`] bytes for the header, the packet, and [`ICV_LEN`] bytes for
    /// the tag. Returns false if the counter has reached its end.
    pub(crate) fn seal(&mut self, outer: &OuterHeader, datagram: &mut [u8]) -> bool {
        let counter = self.next;
        if counter >= COUNTER_END {
            return false;
        }
        self.next += 1;
        let ssi = self.sending.source.get();
        let header = Tss { key: false, sdi: self.domain, ssi: Some(ssi), tsc: counter };
        let len = datagram.len();
        let (head, rest) = datagram.split_at_mut(Tss::LEN_SSI);
        header.emit(head);
        let (packet, tag) = rest.split_at_mut(rest.len() - ICV_LEN);
        let authenticated = outer.authenticated(head, len);
        let key = self.sending.for_sending(&self.secret, counter);
        tag.copy_from_slice(&key.seal((ssi, counter), authenticated.bytes(), packet));
        true
    }

    /// Decrypts a packet of the peer in place. `header` is its TSS header, parsed.
    pub(crate) fn open(
        &mut self,
        outer: &OuterHeader,
        header: &Tss,
        datagram: &mut [u8],
    ) -> Result<(), PairRefusal> {
        if header.sdi != self.domain {
            return Err(PairRefusal::Tag);
        }
        if self.window.as_ref().is_some_and(|window| !window.is_new(header.tsc)) {
            return Err(PairRefusal::Replay);
        }
        let opened = self.receiving.open_packet(&self.secret, outer, header, datagram);
        opened.ok_or(PairRefusal::Tag)?;
        self.window.get_or_insert_default().insert(header.tsc);
        self.confirmed = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md says how much memory an encrypted peer takes.
    #[test]
    fn a_secret_takes_three_and_a_half_kib() {
        let window = size_of::<[u64; 128]>();
        let size = size_of::<PairState>() + window;
        assert!((3 << 10..7 << 9).contains(&size), "{size}");
    }
}
