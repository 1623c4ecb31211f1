//! Parameters of all packet delivery contexts of an endpoint. They are fixed when the endpoint
//! opens.

use core::fmt;

use crate::base::Span;
use crate::cc;
use crate::detection::LossDetection;
use crate::dialect::Dialect;
use crate::types::Contact;

/// Bytes of IP and UDP headers that a packet's nominal size adds to its UDP payload: 8 of UDP and
/// 40 of IPv6 (UE 1.0 section 3.6.12.2, `nominal_pktsize` = UDP length + 40).
pub const NOMINAL_OVERHEAD: u32 = 48;

/// Returns the bytes that congestion control counts for a packet of `bytes` of UDP payload.
pub(crate) const fn nominal(bytes: u32) -> u32 {
    bytes.saturating_add(NOMINAL_OVERHEAD)
}

/// The largest PSN window in packets: the field `psn_offset` of a SYN packet has 12 bits (UE 1.0
/// table 3-33).
pub const MAX_WINDOW: u16 = 4095;

/// Granularity of an ACK's MPR field (maximum PSN range), in PSNs.
pub const MPR_UNIT: u16 = 128;

/// Bytes that a request's header grows by when it carries congestion-control state (RUD_CC_REQ),
/// such as the credit that the sender wants.
pub const CREDIT_HEADER: u32 = 4;

/// Factor, not a number of bytes: once the unacknowledged bytes reach [`Config::ack_trigger`] times
/// this factor, a receiver acknowledges at once and no longer waits for [`Config::ack_linger`].
pub const LINGER_BYTES: u32 = 4;

/// Parameters of all packet delivery contexts of one endpoint. [`Config::new`] returns the
/// defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest UDP payload of a data packet in bytes. The thresholds for losses and windows scale
    /// with it.
    pub mtu: u32,
    /// Most packets that a sender may send ahead of the oldest unacknowledged one; at most
    /// [`MAX_WINDOW`].
    pub max_window_packets: u16,
    /// Most packets that a receiver accepts ahead of the oldest missing one. ACKs advertise it as
    /// MPR, so it is rounded down to a multiple of [`MPR_UNIT`], of which it has at least one and
    /// at most 31.
    pub recv_window_packets: u16,
    /// Received bytes after which a receiver sends an ACK (UE 1.0 table 3-28, `ACK_Gen_Trigger`).
    pub ack_trigger: u32,
    /// Least number of bytes that a packet counts toward [`Config::ack_trigger`]
    /// (`ACK_Gen_Min_Pkt_Add`).
    pub ack_min_pkt: u32,
    /// Longest delay of an acknowledgement whose only cause is [`Config::ack_trigger`]. The delay
    /// lets the ACK be sent and read while both ends wait for something else. With zero, the ACK is
    /// sent at once. After [`LINGER_BYTES`] times the trigger it is sent at once in any case.
    pub ack_linger: Span,
    /// Longest delay of an acknowledgement when fewer bytes than [`Config::ack_trigger`] arrived
    /// and nothing else makes one due.
    pub ack_delay: Span,
    /// Retransmission timeout before the first round-trip time is measured (`RTO_INIT_TIME`).
    pub rto_init: Span,
    /// Smallest retransmission timeout. Probes find losses much earlier, so the timeout can be long
    /// enough for a peer whose process is not scheduled at the moment.
    pub rto_min: Span,
    /// Largest retransmission timeout after backoff (UE 1.0 section 3.5.12: at most 8 s).
    pub rto_max: Span,
    /// Time after which a context fails as unreachable if its peer has never answered.
    pub contact_deadline: Span,
    /// Time after which a context fails if its oldest outstanding packet is not acknowledged,
    /// whatever else the peer answers. It is minutes, like TCP's, because a peer's process may be
    /// stopped for a while and a network may be repaired. The time does not count while the peer
    /// refuses that packet as "receiver not ready", nor while this process does not run
    /// ([`crate::Pdcs::exclude_absence`]).
    pub progress_deadline: Span,
    /// First pause of a sender after a "receiver not ready" NACK. The pause doubles with each
    /// further one, up to [`Config::rnr_max`].
    pub rnr_min: Span,
    /// Longest pause of a sender after "receiver not ready" NACKs.
    pub rnr_max: Span,
    /// Idle time after which an initiator closes a context. A target requests the close after four
    /// times as long. It gives the context up if the initiator does not answer the request for
    /// [`Config::progress_deadline`].
    pub idle_close: Span,
    /// The loss detectors that this endpoint's senders use.
    pub loss: LossDetection,
    /// The number of out-of-order packets that indicates a loss; normally
    /// [`cc::SenderConfig::loss_threshold`].
    pub threshold: cc::LossThreshold,
    /// How much longer packets may queue on one path than on another, beyond an unloaded round trip. Zero for paths that
    /// begin at one network card, where packets wait for the link together. Probes find losses later by this time.
    pub path_skew: Span,
    /// Shortest time without an answer, with packets outstanding, after which the sender probes.
    /// The interval is at least the larger of this time and two or three unloaded round trips.
    pub probe_min: Span,
    /// Unanswered probes in a row after which the sender stops probing and relies on the
    /// retransmission timer. Without the detector `rto` it goes on probing.
    pub probe_max: u8,
    /// True when switches trim packets instead of dropping them. A packet that a probe finds lost
    /// was then not lost to congestion, so the path selector learns that its path may be broken.
    pub trim_enabled: bool,
    /// Most consecutive packets that share one path (one GSO train).
    pub train_packets: u16,
    /// Most UDP payload bytes of consecutive packets that share one path. The default is the longest
    /// UDP payload over IPv6, which is that of a GSO train.
    pub train_bytes: u32,
    /// Most contexts that the endpoint may have, opened by either end; at most 65535.
    pub max_contexts: u16,
    /// The most contexts that one peer may open here. Where peers must pass a handshake, they can
    /// do so only while there is room: a quarter of all contexts is reserved for those that this
    /// endpoint opens, and half of that reserve is also open to the first context of each peer of
    /// the job. Peers outside the job ([`crate::Admissions::set_outside`]) may open a quarter of
    /// all contexts together, and each a quarter of this limit. An initiator has one open context
    /// and those that it is closing; in the simulator, an initiator opens a context for each flow.
    pub max_accepted: u16,
    /// Congestion control that the sending half of each packet delivery context runs.
    pub cc: cc::SenderConfig,
    /// The scope of congestion control: which flows share one context.
    pub scope: cc::Scope,
    /// The receiver's part of congestion control at this endpoint; normally
    /// [`cc::SenderConfig::receiver`].
    pub receiver: cc::ReceiverConfig,
    /// How this endpoint acknowledges (how often, and which signals); normally
    /// [`cc::SenderConfig::acks`].
    pub acks: cc::AckStyle,
    /// Path selector that the sending half of each packet delivery context runs.
    pub paths: cc::PathsConfig,
    /// The peers that may open contexts at this endpoint, and whether they must pass a handshake.
    pub contact: Contact,
    /// The optional forms of acknowledgements and control packets that this endpoint sends.
    pub dialect: Dialect,
    /// Seed of the random choices that do not have to be secret.
    pub seed: u64,
}

impl Config {
    /// Returns the defaults for data packets of at most `mtu` bytes of UDP payload.
    #[must_use]
    pub const fn new(mtu: u32, cc: cc::SenderConfig, paths: cc::PathsConfig, seed: u64) -> Self {
        Self {
            mtu,
            max_window_packets: 2048,
            // As many as a sender may have outstanding, so that no receiver limits a sender.
            recv_window_packets: 2048,
            ack_trigger: 16_384,
            ack_min_pkt: 1024,
            ack_linger: Span::ZERO,
            // Less than `probe_min`, so that a delayed acknowledgement causes no probe.
            ack_delay: Span::micros(150),
            rto_init: Span::millis(5),
            rto_min: Span::millis(5),
            rto_max: Span::secs(1),
            contact_deadline: Span::secs(60),
            progress_deadline: Span::secs(120),
            rnr_min: Span::micros(20),
            rnr_max: Span::millis(10),
            idle_close: Span::secs(30),
            loss: LossDetection::ALL,
            threshold: cc::LossThreshold::SLEEK,
            path_skew: Span::ZERO,
            probe_min: Span::micros(200),
            probe_max: 3,
            trim_enabled: true,
            train_packets: 64,
            train_bytes: 65_487,
            max_contexts: u16::MAX,
            max_accepted: 64,
            cc,
            scope: cc::Scope::PerFlow,
            receiver: cc::ReceiverConfig::Plain,
            acks: cc::AckStyle { each_packet: false, lowest_segment: false, telemetry: false },
            paths,
            contact: Contact::Open,
            dialect: Dialect::NATIVE,
            seed,
        }
    }

    /// Returns whether trimmed packets show losses to congestion: the network trims, and the sender
    /// has the detector `trim`.
    pub(crate) const fn uses_trimming(&self) -> bool {
        self.trim_enabled && self.loss.trim
    }

    /// Configures the receiver, the acknowledgement style and the loss threshold as the endpoint's
    /// own congestion control asks them of its peers.
    #[must_use]
    pub fn reciprocal(mut self, network: &cc::NetworkProfile) -> Self {
        self.receiver = self.cc.receiver(network);
        self.acks = self.cc.acks();
        self.threshold = self.cc.loss_threshold();
        self
    }

    /// Returns whether congestion control sends by credits that the peer grants. Requests then
    /// carry the sender's demand.
    #[must_use]
    pub const fn uses_credits(&self) -> bool {
        matches!(self.receiver, cc::ReceiverConfig::Credits(_))
    }

    /// Returns whether switches compute rates for the flows, which congestion control asks for.
    #[must_use]
    pub const fn uses_rates(&self) -> bool {
        matches!(self.receiver, cc::ReceiverConfig::Rates)
    }

    /// Returns whether congestion control is informed of the backlog and of each packet that
    /// leaves. Requests may then carry congestion-control state in [`CREDIT_HEADER`] more bytes of
    /// header.
    #[must_use]
    pub const fn needs_backlog(&self) -> bool {
        matches!(self.receiver, cc::ReceiverConfig::Credits(_) | cc::ReceiverConfig::Rates)
    }

    /// Returns the received bytes after which an acknowledgement is due within
    /// [`Config::ack_linger`].
    pub(crate) const fn ack_soon(&self) -> u32 {
        if self.acks.each_packet { 1 } else { self.ack_trigger }
    }

    /// Returns the received bytes after which an acknowledgement is due at once.
    pub(crate) const fn ack_now(&self) -> u32 {
        let puts_off = self.ack_linger.0 > 0 && !self.acks.each_packet;
        if puts_off { self.ack_trigger.saturating_mul(LINGER_BYTES) } else { self.ack_soon() }
    }

    /// Returns the longest time that a peer with the same configuration delays an acknowledgement.
    pub(crate) const fn max_ack_delay(&self) -> Span {
        if self.acks.each_packet { Span::ZERO } else { self.ack_delay }
    }

    /// Checks that the chosen parameters can be used together.
    ///
    /// # Errors
    /// Returns the first [`Conflict`]. Its text names the allowed values.
    pub fn check(&self) -> Result<(), Conflict> {
        if self.paths.freezes() && !self.loss.can_detect_path_loss() {
            return Err(Conflict::Freezing { paths: self.paths.name(), loss: self.loss });
        }
        if self.uses_credits() && self.scope != cc::Scope::PerFlow {
            return Err(Conflict::SharedCredit { cc: self.cc.name(), scope: self.scope });
        }
        if self.uses_rates() && self.scope != cc::Scope::PerFlow {
            return Err(Conflict::SharedRate { cc: self.cc.name(), scope: self.scope });
        }
        Ok(())
    }
}

/// Parameters that are valid by themselves but not together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// The path selector freezes on broken paths, but no enabled loss detector can recognise a
    /// broken path.
    Freezing {
        /// Name of the path selector that freezes.
        paths: &'static str,
        /// Loss detectors that are enabled, none of which suits the selector.
        loss: LossDetection,
    },
    /// Congestion control by credit needs the scope of one flow, because one flow cannot spend the
    /// credit of another.
    SharedCredit {
        /// Name of the congestion control that works by credit.
        cc: &'static str,
        /// Scope that was chosen: which flows share a congestion-control context.
        scope: cc::Scope,
    },
    /// Congestion control by rates of switches needs the scope of one flow, because a rate is valid
    /// for one flow's path.
    SharedRate {
        /// Name of the congestion control that works by rates of switches.
        cc: &'static str,
        /// Scope that was chosen: which flows share a congestion-control context.
        scope: cc::Scope,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freezing { paths, loss } => write!(
                f,
                "path selection {paths} freezes when a path breaks, but loss detection {loss} cannot \
                 recognise that; add ooo, probe or rto to the loss detection, or use {paths}:freeze=0"
            ),
            Self::SharedCredit { cc, scope } => write!(
                f,
                "congestion control {cc} cannot have scope {scope}: a receiver grants credit to one flow, \
                 not to several; allowed: scope flow"
            ),
            Self::SharedRate { cc, scope } => write!(
                f,
                "congestion control {cc} cannot have scope {scope}: switches compute a rate for the path \
                 of one flow, not for several; allowed: scope flow"
            ),
        }
    }
}

impl core::error::Error for Conflict {}
