//! Types of the arguments and results of the calls of [`crate::Pdcs`].

use core::fmt;

use crate::base::{Psn, Rate, Seed, Span, Time};
use crate::wire;

/// Identifies one context of one endpoint. A number is reused only after 65536 contexts of the same
/// slot, so a stale number is recognised and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PdcId(u32);

impl PdcId {
    pub(crate) const fn new(slot: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | slot as u32)
    }

    pub(crate) const fn to_u32(self) -> u32 {
        self.0
    }

    /// Returns the context that this number names, for tests of tables that are kept by context.
    #[must_use]
    pub const fn from_u32(raw: u32) -> Self {
        Self(raw)
    }

    pub(crate) const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    pub(crate) const fn slot_number(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    pub(crate) const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns an index that no two living contexts share, for tables indexed by context. It is
    /// below [`crate::Config::max_contexts`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.slot()
    }
}

/// A peer endpoint, identified by an index of the engine. The engine maps it to an address and an
/// instance; two instances of one address are two peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerKey(pub u32);

/// An open context that a packet without SYN names by its number, see
/// [`crate::Pdcs::find_context`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedContext {
    /// The packet delivery context that the packet names.
    pub id: PdcId,
    /// The peer at the context's other end. The caller compares this peer's address with the
    /// packet's source.
    pub peer: PeerKey,
}

/// The sender of a packet that is handed in, named directly or by its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A peer. A packet that names the context of another peer is refused.
    Peer(PeerKey),
    /// The peer at the other end of the context that the packet names.
    Context(NamedContext),
}

impl Origin {
    /// Returns the peer that sent the packet.
    #[must_use]
    #[inline]
    pub const fn peer(self) -> PeerKey {
        match self {
            Self::Peer(peer) | Self::Context(NamedContext { peer, .. }) => peer,
        }
    }
}

impl From<PeerKey> for Origin {
    #[inline]
    fn from(peer: PeerKey) -> Self {
        Self::Peer(peer)
    }
}

impl From<NamedContext> for Origin {
    #[inline]
    fn from(context: NamedContext) -> Self {
        Self::Context(context)
    }
}

/// A label that the initiator gives to a context. Some scopes of congestion control share contexts
/// by label.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Label {
    /// Service level of the context, for [`crate::cc::Scope::PerServiceLevel`].
    pub level: u8,
    /// Number of the group (job) of the context, for [`crate::cc::Scope::PerGroup`].
    pub group: u16,
}

/// The peer to which a context is opened, and the label of the context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The peer to which the context is opened.
    pub peer: PeerKey,
    /// The label of the context; the default one if the caller has none.
    pub label: Label,
}

impl From<PeerKey> for Target {
    fn from(peer: PeerKey) -> Self {
        Self { peer, label: Label::default() }
    }
}

impl From<(PeerKey, Label)> for Target {
    fn from((peer, label): (PeerKey, Label)) -> Self {
        Self { peer, label }
    }
}

/// A secret that two endpoints share after their handshake. Only attackers on the path between them
/// can know it. It has 128 bits, of which each end chose half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Association(pub(crate) [u64; 2]);

impl Association {
    /// Creates the secret from the two random numbers of a handshake.
    #[must_use]
    pub const fn new(cookie: u64, nonce: u64) -> Self {
        Self([cookie, nonce])
    }
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Association(..)")
    }
}

/// The peers that may open contexts at an endpoint, and whether they must pass a handshake.
#[derive(Clone, Debug, Default)]
pub enum Contact {
    /// All peers, without a handshake: for networks where no packets are forged, such as simulated
    /// ones.
    #[default]
    Open,
    /// All peers, without a handshake, on a network where packets may be forged. The numbers and the
    /// start PSNs of contexts follow from this secret seed, so that an attacker off the path cannot
    /// guess them. Peers outside the job can have only a limited number of the contexts.
    Unverified(Seed),
    /// Only verified peers: those that [`crate::Admissions`] knows. The numbers of contexts are
    /// secret as well; the seed determines them.
    Introduced(Seed),
}

/// A new packet, which is sent for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewPacket<D> {
    /// The engine's descriptor, by which it can build the packet again. Events about the packet
    /// return it.
    pub desc: D,
    /// Length of the packet's UDP payload in bytes.
    pub bytes: u32,
    /// No packet waits to be sent behind this one on its context.
    pub last: bool,
    /// The engine waits for the acknowledgement. Together with `last`, the packet asks for a prompt
    /// one (AR).
    pub prompt: bool,
    /// UDP payload bytes that wait behind the packet on its context, as far as known. Only used
    /// where [`crate::Config::needs_backlog`].
    pub backlog: u64,
}

/// A packet that waits to be retransmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuedPacket<D> {
    /// The PSN of the packet.
    pub psn: Psn,
    /// Length of the packet's UDP payload in bytes.
    pub bytes: u32,
    /// The descriptor that the engine gave with the packet when it was first sent.
    pub desc: D,
}

/// Permission to send one packet now. The packet counts as sent from here on, so the holder of the
/// grant must send it once; the grant cannot be copied.
#[must_use = "the packet counts as sent"]
#[derive(PartialEq, Eq, Debug)]
pub struct TxGrant {
    /// The PSN of the packet, which is also in `pds`.
    pub psn: Psn,
    /// The path of the packet, as an entropy index, from which its UDP source port follows.
    pub path: u16,
    /// The packet's PDS header, complete except for `next`, which the engine sets.
    pub pds: wire::Request,
}

/// The arrival of a packet run ([`wire::PacketRun`]) of new data packets, or of its end alone: at
/// least one packet in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunArrival {
    /// The PSN of the run's first packet.
    pub first: Psn,
    /// The number of packets in the run, without the end.
    pub count: u16,
    /// The packet that ends the run, if it arrived with it.
    pub end: Option<EndArrival>,
}

impl RunArrival {
    /// Returns the number of packets in the run, its end included.
    #[must_use]
    #[inline]
    pub const fn packets(&self) -> u16 {
        self.count.saturating_add(self.end.is_some() as u16)
    }
}

/// The arrival of the data packet that is the end of a packet run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndArrival {
    /// Length of the packet's UDP payload in bytes.
    pub bytes: u32,
    /// The packet asks for an acknowledgement (flag AR).
    pub ask: bool,
}

/// Permission to send consecutive packets now. It is as binding as a [`TxGrant`].
#[must_use = "the packets count as sent"]
#[derive(PartialEq, Eq, Debug)]
pub struct RunGrant {
    /// The number of packets that may be sent, at least one. Their PSNs follow that of the packet
    /// before them.
    pub count: u16,
    /// The path of all packets of the run but the last.
    pub path: u16,
    /// The grant of the last packet, which may take another path and ask for an acknowledgement.
    pub last: TxGrant,
}

/// The reason why a context may not send a new packet now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// The PSN window, the congestion window, pacing or a receiver that is not ready does not allow
    /// it. An [`Event::Ready`] follows.
    Wait,
    /// Another packet must be retransmitted first: call [`crate::Pdcs::poll_retransmit`].
    Retransmit,
    /// The context is closing, so it takes no new packets. An initiator should open another context
    /// at once.
    Closing,
    /// The context no longer exists.
    Gone,
}

/// How a data packet arrived: marks, trimming and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// The packet's IP header has the Congestion Experienced mark.
    pub ce: bool,
    /// A switch cut off the packet's payload.
    pub trimmed: bool,
    /// The switch port that leads to this host trimmed the packet.
    pub last_hop: bool,
    /// Length of the packet's UDP payload in bytes; of a trimmed packet, the length that arrived.
    pub bytes: u32,
    /// The packet is the first of its message to arrive. Receivers that count senders use it;
    /// callers that do not know set it to false.
    pub begins: bool,
    /// The packet is the last one of its message to arrive.
    pub ends: bool,
}

/// A token for a new data packet, which the engine must process. The engine spends the token once,
/// by [`crate::Pdcs::accept`], [`crate::Pdcs::refuse`] or [`crate::Pdcs::drop_malformed`], before
/// it hands in another packet. The token cannot be copied or made, so it can be spent neither twice
/// nor on another packet:
///
/// ```compile_fail,E0382
/// # use squall_reliability::{Delivery, Pdcs, base::Time, wire::NackCode};
/// fn twice(pdcs: &mut Pdcs<u32>, now: Time, delivery: Delivery) {
///     pdcs.accept(now, delivery, None);
///     pdcs.refuse(now, delivery, NackCode::NoResource);
/// }
/// ```
#[must_use = "the packet is to be accepted, refused or dropped"]
#[derive(PartialEq, Eq, Debug)]
pub struct Delivery {
    id: PdcId,
    psn: Psn,
    forward: bool,
}

impl Delivery {
    #[inline]
    pub(crate) const fn new(id: PdcId, psn: Psn, forward: bool) -> Self {
        Self { id, psn, forward }
    }

    /// Spends the token. Returns the context and the packet's PSN.
    #[inline]
    pub(crate) const fn into_parts(self) -> (PdcId, Psn) {
        (self.id, self.psn)
    }

    /// Returns the context of the packet, on which the engine also answers.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> PdcId {
        self.id
    }

    /// Returns the PSN of the packet.
    #[must_use]
    #[inline]
    pub const fn psn(&self) -> Psn {
        self.psn
    }

    /// Returns whether the packet is a request from the context's initiator; otherwise it is
    /// response data from its target.
    #[must_use]
    #[inline]
    pub const fn is_forward(&self) -> bool {
        self.forward
    }
}

/// The result of handing in a data packet: what the engine must do with it.
#[must_use = "a packet to deliver is to be processed and answered for"]
#[derive(PartialEq, Eq, Debug)]
pub enum RxVerdict {
    /// The packet is new. The engine processes it and then spends the token.
    Deliver(Delivery),
    /// The packet arrived before, and is acknowledged again. The engine drops it.
    Duplicate,
    /// The packet was trimmed, and its sender is asked to retransmit it. The engine drops it.
    Trimmed,
    /// The packet was refused. The reason was counted and, where that helps, reported to the
    /// sender. The engine drops the packet.
    Refused(Refusal),
}

/// The reason why a data packet that arrived was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The named context does not exist here. If the sender's address is known, the engine sends it
    /// [`crate::Pdcs::reject`].
    UnknownContext,
    /// The context that the packet names belongs to another peer, or the context numbers do not
    /// match.
    Mismatch,
    /// The packet's PSN lies outside of the receive window.
    OutOfWindow,
    /// The packet is a SYN of a context that was closed here before.
    Replayed,
    /// The SYN is of an unverified peer. If the sender's address is known, the engine sends it
    /// [`crate::Pdcs::reject`].
    Unverified,
    /// The packet is a SYN, and there is no room for another context.
    NoContext,
}

/// A packet without data to send: where to, on which path, and its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlOut {
    /// The peer to which the packet goes.
    pub peer: PeerKey,
    /// The path of the packet, as an entropy index, from which its UDP source port follows.
    pub path: u16,
    /// The content of the packet.
    pub packet: ControlPacket,
}

/// The content of a packet without data, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlPacket {
    /// An acknowledgement. The field `next` of its header is already set.
    Ack {
        /// The PDS header of the acknowledgement.
        pds: wire::Ack,
        /// The SES response that the acknowledgement carries, if any.
        response: Option<wire::Response>,
    },
    /// A negative acknowledgement, which refuses a packet.
    Nack(wire::Nack),
    /// A control packet, such as a close, clear or probe.
    Control(wire::Control),
}

/// An event that tells the engine what became of packets and contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<D> {
    /// The peer's engine accepted one or several packets with the default response.
    Acked {
        /// The context on which the packets were sent.
        id: PdcId,
        /// Descriptor of the packet, or of the first of several.
        desc: D,
        /// The number of packets accepted. The others were sent behind the first by
        /// [`crate::Pdcs::send_run`].
        count: u16,
    },
    /// The peer's engine accepted the packet with a response of its own.
    Responded {
        /// The context on which the packet was sent.
        id: PdcId,
        /// Descriptor of the packet.
        desc: D,
        /// The PSN of the packet.
        psn: Psn,
        /// The SES response of the peer.
        response: wire::Response,
    },
    /// The packet may or may not have arrived, and will not be retransmitted. There is one event
    /// for each outstanding packet, before the [`Event::Failed`] with the reason.
    Lost {
        /// The context on which the packet was sent.
        id: PdcId,
        /// Descriptor of the packet.
        desc: D,
    },
    /// The context failed, and exists no longer.
    Failed {
        /// The context that failed.
        id: PdcId,
        /// The peer at the other end of the context.
        peer: PeerKey,
        /// The reason why the context failed.
        why: PdcFailure,
        /// The peer had asked to close the context before it failed, as described at
        /// [`Event::Closed`].
        parting: bool,
    },
    /// The context closed in an orderly way: everything sent on it was acknowledged before.
    Closed {
        /// The context that closed.
        id: PdcId,
        /// The peer at the other end of the context.
        peer: PeerKey,
        /// The peer asked for the close although the context had recently been in use. An endpoint
        /// that closes does so.
        parting: bool,
    },
    /// The peer's receiver works in another mode than the congestion control here needs (its ACKs
    /// show it), or no switch writes the telemetry that it needs. A plain window or the measured
    /// delay replaces the missing feedback. Reported once per context.
    OtherMode {
        /// The context on which this was noticed.
        id: PdcId,
    },
    /// The peer does not know this endpoint, or not any more. Its contexts wait until another
    /// handshake is complete.
    Unknown {
        /// The peer that does not know this endpoint.
        peer: PeerKey,
        /// The time at which the packet left that the peer refused for this reason.
        sent_at: Time,
    },
    /// The oldest outstanding packet has had no answer for more than a second, however often it was
    /// sent. Reported with each timeout from then on.
    Waits {
        /// The context whose packet has no answer.
        id: PdcId,
        /// The time for which the peer has owed an answer, without absences of this process
        /// ([`crate::Pdcs::exclude_absence`]).
        waited: Span,
    },
    /// A packet has not arrived for a while although it was sent several times, and no packet of at
    /// least its length arrived that was sent later. Reported each time that the packet leaves
    /// again.
    Stuck {
        /// The context on which the packet was sent.
        id: PdcId,
        /// Length of the packet's UDP payload in bytes.
        bytes: u32,
        /// The time at which the packet was sent before, not now.
        sent_at: Time,
        /// The number of transmissions of the packet of which no sign of arrival came.
        times: u8,
        /// The peer has answered at least once on this context.
        connected: bool,
    },
    /// The context may send a retransmission or, after [`SendError::Wait`], a new packet.
    Ready {
        /// The context that may send.
        id: PdcId,
    },
}

/// The reason why a packet delivery context failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PdcFailure {
    /// The peer did not answer at all for [`crate::Config::contact_deadline`].
    Unreachable,
    /// The peer did not answer a packet for [`crate::Config::progress_deadline`].
    Silent,
    /// The peer's endpoint restarted: it never knew the context, or came back as another instance.
    PeerRestarted,
    /// The peer gave up the context without notice and uses its number for another one.
    Forgotten,
    /// The peer ended the context with this NACK.
    Nacked(wire::NackCode),
    /// The peer sent a packet that contradicts itself or what came before.
    Malformed,
    /// The engine aborted the context ([`crate::Pdcs::abort`]).
    Aborted,
}

/// The state of one packet delivery context, for statistics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PdcInfo {
    /// The peer at the other end of the context.
    pub peer: PeerKey,
    /// This endpoint opened the context.
    pub initiator: bool,
    /// Number of packets that were sent and are not yet acknowledged.
    pub outstanding: usize,
    /// Nominal bytes of the packets in flight.
    pub in_flight: u64,
    /// Congestion window in nominal bytes, if congestion control has one.
    pub cwnd: Option<u64>,
    /// Sending rate that congestion control allows, if it limits the rate.
    pub rate: Option<Rate>,
    /// Average delay above the smallest round-trip time, if the congestion control keeps one.
    pub avg_delay: Option<Span>,
    /// The peer's receiver works in another congestion-control mode, and a plain window replaces
    /// the missing feedback.
    pub other_mode: bool,
    /// Smoothed round-trip time to the peer; `None` before it is measured.
    pub srtt: Option<Span>,
    /// Smallest round-trip time to the peer, without queues, that congestion control assumes.
    pub base_rtt: Option<Span>,
}
