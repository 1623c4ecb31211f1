//! What goes in and out of [`crate::Pdcs`].

use core::fmt;

use crate::base::{Psn, Rate, Seed, Span, Time};
use crate::wire;

/// Names one context of one endpoint. A number is used again only after 65536 contexts of the same
/// slot, so a stale one is recognised and ignored.
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

    /// An index that no two living contexts share, for tables on the side; below
    /// [`crate::Config::max_contexts`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.slot()
    }
}

/// A peer endpoint, by the engine's index. The engine maps it to an address and an instance; two instances
/// of one address are two peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerKey(pub u32);

/// What its opener says of a context, for scopes of congestion control that go by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Label {
    /// Service level; [`crate::cc::Scope::PerServiceLevel`].
    pub level: u8,
    /// Group; [`crate::cc::Scope::PerGroup`].
    pub group: u16,
}

/// Whom a context is opened to, and what it is known by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The peer.
    pub peer: PeerKey,
    /// The default where nothing is said.
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

/// What two endpoints know of each other since they were introduced, and nobody else who is not on the
/// path between them: 128 bits, half of them from either end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Association(pub(crate) [u64; 2]);

impl Association {
    /// What follows from one exchange of introductions.
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

/// Who may open contexts here.
#[derive(Clone, Debug, Default)]
pub enum Contact {
    /// Everybody, and at once: a network where nobody forges packets, such as a simulated one.
    #[default]
    Open,
    /// Peers that [`crate::Admissions`] knows. Numbers of contexts are secret, too.
    Introduced(Seed),
}

/// A packet that wants to be sent for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewPacket<D> {
    /// What the engine needs to build the packet again; it comes back with the outcome.
    pub desc: D,
    /// UDP payload length, bytes.
    pub bytes: u32,
    /// Nothing waits behind it on this context.
    pub last: bool,
    /// Somebody waits for the acknowledgement: with `last`, ask for a prompt one (AR).
    pub prompt: bool,
    /// UDP payload bytes that wait behind it on this context, as far as known. Only looked at where
    /// [`crate::Config::credits`].
    pub backlog: u64,
}

/// Permission to send one packet, now. The packet counts as sent from here on, so whoever holds the grant
/// must send it, once: it cannot be copied.
#[must_use = "the packet counts as sent"]
#[derive(PartialEq, Eq, Debug)]
pub struct TxGrant {
    /// Its number; also in `pds`.
    pub psn: Psn,
    /// The path (entropy index) to send it on.
    pub path: u16,
    /// Its PDS header, complete but for `next`, which is the engine's to set.
    pub pds: wire::Request,
}

/// New data packets that follow each other without a gap: at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunArrival {
    /// The number of the first.
    pub first: Psn,
    /// Those that ask for nothing and are alike.
    pub count: u16,
    /// One more behind them.
    pub end: Option<EndArrival>,
}

/// A data packet that ends a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndArrival {
    /// UDP payload length.
    pub bytes: u32,
    /// It asks for an acknowledgement.
    pub ask: bool,
}

/// Permission to send packets that follow each other, now; as binding as a [`TxGrant`].
#[must_use = "the packets count as sent"]
#[derive(PartialEq, Eq, Debug)]
pub struct RunGrant {
    /// How many, at least one. Their numbers follow that of the packet before them.
    pub count: u16,
    /// The path of all but the last.
    pub path: u16,
    /// The last: it may go another way, and ask for an acknowledgement.
    pub last: TxGrant,
}

/// The reason why no packet may be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// The PSN window, the congestion window, pacing or a refusing receiver says wait. An
    /// [`Event::Ready`] follows.
    Wait,
    /// Something must be retransmitted first: call [`crate::Pdcs::poll_retransmit`].
    Retransmit,
    /// The context is closing. An initiator opens another one now; it need not wait.
    Closing,
    /// There is no such context any more.
    Gone,
}

/// What the network said about a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Marked Congestion Experienced.
    pub ce: bool,
    /// A switch cut its payload off.
    pub trimmed: bool,
    /// ... at the port that leads to this host.
    pub last_hop: bool,
    /// UDP payload length, bytes; of what arrived, when trimmed.
    pub bytes: u32,
    /// A message begins with it: none of its packets arrived before. For receivers that count senders; who does not know says no.
    pub begins: bool,
    /// A message is complete with it.
    pub ends: bool,
}

/// A new data packet that the engine has to process, and then to answer for, once: by
/// [`crate::Pdcs::accept`], [`crate::Pdcs::refuse`] or [`crate::Pdcs::drop_malformed`], before any other
/// packet is handed in. It cannot be copied or made, so it can be spent neither twice nor on another
/// packet:
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

    /// Spends it: the context and the packet's number.
    #[inline]
    pub(crate) const fn spend(self) -> (PdcId, Psn) {
        (self.id, self.psn)
    }

    /// The context, also the one to answer on.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> PdcId {
        self.id
    }

    /// The packet's number.
    #[must_use]
    #[inline]
    pub const fn psn(&self) -> Psn {
        self.psn
    }

    /// It came from the context's initiator (a request); otherwise from its target (response data).
    #[must_use]
    #[inline]
    pub const fn is_forward(&self) -> bool {
        self.forward
    }
}

/// What to do with a data packet.
#[must_use = "a packet to deliver is to be processed and answered for"]
#[derive(PartialEq, Eq, Debug)]
pub enum RxVerdict {
    /// It is new. Process it, then spend the token.
    Deliver(Delivery),
    /// It came before, and is acknowledged again. Drop it.
    Duplicate,
    /// Its payload is gone; the sender is asked for it again. Drop it.
    Trimmed,
    /// Drop it; why was counted and, where that helps, the sender told.
    Refused(Refusal),
}

/// Why a data packet was not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// No such context here. Where the sender's address is known, send it [`crate::Pdcs::reject`].
    UnknownContext,
    /// The context exists but is not this peer's, or the context numbers do not fit.
    Mismatch,
    /// Outside the receive window.
    OutOfWindow,
    /// A SYN of a context that was closed.
    Replayed,
    /// A SYN of somebody who was not introduced. Where the sender's address is known, send it
    /// [`crate::Pdcs::reject`].
    Stranger,
    /// No room for another context.
    NoContext,
}

/// A packet to send that carries no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlOut {
    /// To whom.
    pub peer: PeerKey,
    /// On which path (entropy index).
    pub path: u16,
    /// What.
    pub packet: ControlPacket,
}

/// The kinds of packet without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlPacket {
    /// An acknowledgement, `next` already set, with the SES response when it carries one.
    Ack {
        /// Its PDS header.
        pds: wire::Ack,
        /// Its SES header.
        response: Option<wire::Response>,
    },
    /// A negative acknowledgement.
    Nack(wire::Nack),
    /// Close, clear, probe and the like.
    Control(wire::Control),
}

/// What became of packets and contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<D> {
    /// The peer's engine took packets; its response to each is the default one.
    Acked {
        /// On which context.
        id: PdcId,
        /// Which packet, or the first of those.
        desc: D,
        /// How many: the others were sent behind it by [`crate::Runs::send`].
        count: u16,
    },
    /// The peer's engine took the packet and answered.
    Responded {
        /// On which context.
        id: PdcId,
        /// Which packet.
        desc: D,
        /// The answer.
        response: wire::Response,
    },
    /// Nobody knows whether the packet arrived, and it will not be sent again. One for each
    /// outstanding packet, before the [`Event::Failed`] that says why.
    Lost {
        /// On which context.
        id: PdcId,
        /// Which packet.
        desc: D,
    },
    /// The context is gone, and not in an orderly way.
    Failed {
        /// The context.
        id: PdcId,
        /// Its peer.
        peer: PeerKey,
        /// Why.
        why: PdcFailure,
        /// The peer had asked for a close before the context failed, as described at [`Event::Closed`].
        parting: bool,
    },
    /// The context is gone in an orderly way: everything sent on it was acknowledged before.
    Closed {
        /// The context.
        id: PdcId,
        /// Its peer.
        peer: PeerKey,
        /// The peer asked for the close although the context had been in use lately, as an endpoint does that closes.
        parting: bool,
    },
    /// The peer's receiver works in another mode than the congestion control here lives on (its ACKs
    /// say so), or no switch writes what it lives on; a plain window, or the delay, replaces what is missing. Once a
    /// context.
    OtherMode {
        /// The context.
        id: PdcId,
    },
    /// The peer does not know us, or not any more: its contexts wait until it is introduced again.
    Unknown {
        /// The peer.
        peer: PeerKey,
        /// When the packet was sent to which it said so.
        sent_at: Time,
    },
    /// The oldest outstanding packet has had no answer for more than a second, however often it was sent: said
    /// with each timeout from then on.
    Waits {
        /// On which context.
        id: PdcId,
        /// For how long, not counting what was no fault of the peer ([`crate::Pdcs::absent`]).
        waited: Span,
    },
    /// A packet does not arrive however often it is sent, for a while already, and none of its length that was sent
    /// later does either. Told each time that it leaves again.
    Stuck {
        /// On which context.
        id: PdcId,
        /// UDP payload length of the packet, bytes.
        bytes: u32,
        /// When it was sent the time before.
        sent_at: Time,
        /// Times it was sent without a trace.
        times: u8,
        /// The peer has answered on this context.
        connected: bool,
    },
    /// Something may be sent: a retransmission, or, after [`SendError::Wait`], a new packet.
    Ready {
        /// On which context.
        id: PdcId,
    },
}

/// Why a context failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PdcFailure {
    /// The peer was never heard of, for [`crate::Config::contact_deadline`].
    Unreachable,
    /// The peer did not answer a packet for [`crate::Config::progress_deadline`].
    Silent,
    /// The peer never knew the context, or came back as another instance.
    PeerRestarted,
    /// The peer has given up on the context without a word and uses its number for another one.
    Forgotten,
    /// The peer ended it with this NACK.
    Nacked(wire::NackCode),
    /// The peer sent a packet that contradicts itself or what came before.
    Malformed,
    /// [`crate::Pdcs::abort`] was called.
    Aborted,
}

/// A context as seen from outside, for statistics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PdcInfo {
    /// Its peer.
    pub peer: PeerKey,
    /// Opened here.
    pub initiator: bool,
    /// Packets not yet acknowledged.
    pub outstanding: usize,
    /// Nominal bytes in flight.
    pub in_flight: u64,
    /// Congestion window in nominal bytes, if there is one.
    pub cwnd: Option<u64>,
    /// Rate limit, if there is one.
    pub rate: Option<Rate>,
    /// Average delay above the smallest round-trip time, if the congestion control keeps one.
    pub avg_delay: Option<Span>,
    /// The peer's receiver works in another mode, and a plain window replaces what is missing.
    pub other_mode: bool,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Span>,
    /// Smallest round-trip time the congestion control believes in.
    pub base_rtt: Option<Span>,
}
