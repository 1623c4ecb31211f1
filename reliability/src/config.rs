//! What an endpoint's packet delivery contexts are told once, when it opens.

use core::fmt;

use crate::base::Span;
use crate::cc;
use crate::detection::LossDetection;
use crate::types::Contact;

/// Bytes of IP and UDP headers in a packet's nominal size: the UDP payload plus these (8 of UDP, 40
/// of IPv6; UE 1.0 section 3.6.12.2, `nominal_pktsize` = UDP length + 40).
pub const NOMINAL_OVERHEAD: u32 = 48;

/// Largest PSN window: `psn_offset` of a SYN packet has 12 bits (UE 1.0 table 3-33).
pub const MAX_WINDOW: u16 = 4095;

/// Granularity of the MPR field of an ACK, in PSNs.
pub const MPR_UNIT: u16 = 128;

/// Bytes by which the header of a request that says how much credit is wanted (RUD_CC_REQ) is longer.
pub const CREDIT_HEADER: u32 = 4;

/// No acknowledgement is put off ([`Config::ack_linger`]) that stands for this many times [`Config::ack_trigger`].
pub const LINGER_BYTES: u32 = 4;

/// Parameters of all contexts of one endpoint. [`Config::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest UDP payload of a data packet, bytes. Scales the loss and window thresholds.
    pub mtu: u32,
    /// Packets that may be sent ahead of the oldest unacknowledged one; at most [`MAX_WINDOW`].
    pub max_window_packets: u16,
    /// Packets a receiver accepts ahead of the oldest missing one; advertised as MPR, so rounded
    /// down to a multiple of [`MPR_UNIT`], at least one and at most 31 of them.
    pub recv_window_packets: u16,
    /// A receiver acknowledges after this many bytes (UE 1.0 table 3-28, `ACK_Gen_Trigger`).
    pub ack_trigger: u32,
    /// Each packet counts at least this many of those bytes (`ACK_Gen_Min_Pkt_Add`).
    pub ack_min_pkt: u32,
    /// How long an acknowledgement that only those bytes have caused may be put off, so that it leaves, and is read,
    /// while both ends wait for something else; zero: it leaves at once, as it does anyway after [`LINGER_BYTES`]
    /// times as many.
    pub ack_linger: Span,
    /// Longest time a receiver sits on an acknowledgement that nothing else caused.
    pub ack_delay: Span,
    /// Retransmission timeout before a round-trip time was measured (`RTO_INIT_TIME`).
    pub rto_init: Span,
    /// Smallest retransmission timeout. Probes find losses much earlier, so that this one can allow for
    /// a peer whose process is not running at the moment.
    pub rto_min: Span,
    /// Largest retransmission timeout after back-off (UE 1.0 section 3.5.12: 8 s at most).
    pub rto_max: Span,
    /// A peer never heard of is unreachable after this long.
    pub contact_deadline: Span,
    /// A context fails when its oldest outstanding packet has been that for this long, whatever else the
    /// peer answers: minutes, as TCP's, for a peer may be stopped, and a network repaired. While the peer says
    /// of that packet that it is not ready for it, the time does not pass, nor while this process is not
    /// running ([`crate::Pdcs::absent`]).
    pub progress_deadline: Span,
    /// First pause after a "receiver not ready" NACK; it doubles with each further one.
    pub rnr_min: Span,
    /// Longest such pause.
    pub rnr_max: Span,
    /// An initiator closes a context that was idle for this long. A target asks for it after four
    /// times as long, and forgets the context if nobody answers.
    pub idle_close: Span,
    /// Signs of loss that are acted upon.
    pub loss: LossDetection,
    /// Out-of-order packets that mean a loss: what [`cc::SenderConfig::loss_threshold`] says.
    pub threshold: cc::LossThreshold,
    /// Shortest silence with packets outstanding before a probe is sent. The interval is at least
    /// `3 * base_rtt + ack_delay`.
    pub probe_min: Span,
    /// Probes in a row that may go unanswered before only the timer is left.
    pub probe_max: u8,
    /// The network trims instead of dropping: then a packet that a probe finds lost was not lost to
    /// congestion, and the path selector is told that the path may be broken.
    pub trim_enabled: bool,
    /// Most packets in a row that share one path (one GSO train).
    pub train_packets: u16,
    /// Most UDP payload bytes in a row that share one path.
    pub train_bytes: u32,
    /// Most contexts, initiated and accepted together; at most 65535.
    pub max_contexts: u16,
    /// The most contexts that one peer may open here. Where peers must pass a handshake, they can do so only while
    /// there is room: a quarter of all contexts is reserved for those that this endpoint opens, and half of that
    /// reserve is also open to the first context of each peer of the job. Peers outside the job
    /// ([`crate::Admissions::set_outside`]) may open a quarter of all contexts together, and each a quarter of this
    /// limit. An initiator has one context at a time, and those that it is closing; a simulated one opens a context for
    /// each flow.
    pub max_accepted: u16,
    /// Congestion control of each context's sending half.
    pub cc: cc::SenderConfig,
    /// Which flows share one context of it.
    pub scope: cc::Scope,
    /// What this endpoint does for its peers' congestion control: what [`cc::SenderConfig::receiver`]
    /// says.
    pub receiver: cc::ReceiverConfig,
    /// How it acknowledges: what [`cc::SenderConfig::acks`] says.
    pub acks: cc::AckStyle,
    /// Path selection of each context's sending half.
    pub paths: cc::PathsConfig,
    /// Who may open contexts here.
    pub contact: Contact,
    /// Seed of every random choice that others may guess.
    pub seed: u64,
}

impl Config {
    /// Defaults for data packets of at most `mtu` bytes of UDP payload.
    #[must_use]
    pub const fn new(mtu: u32, cc: cc::SenderConfig, paths: cc::PathsConfig, seed: u64) -> Self {
        Self {
            mtu,
            max_window_packets: 2048,
            recv_window_packets: 2048,
            ack_trigger: 16_384,
            ack_min_pkt: 1024,
            ack_linger: Span::ZERO,
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
            threshold: cc::LossThreshold { windows: 1.5, packets: 5 },
            probe_min: Span::micros(200),
            probe_max: 3,
            trim_enabled: true,
            train_packets: 64,
            train_bytes: 65_000,
            max_contexts: u16::MAX,
            max_accepted: 64,
            cc,
            scope: cc::Scope::PerFlow,
            receiver: cc::ReceiverConfig::Plain,
            acks: cc::AckStyle { each_packet: false, lowest_segment: false, telemetry: false },
            paths,
            contact: Contact::Open,
            seed,
        }
    }

    /// Whether trimming tells of packets lost to congestion: the network does it, and the sender looks.
    pub(crate) const fn trims(&self) -> bool {
        self.trim_enabled && self.loss.trim
    }

    /// Takes over what the congestion control wants of its peers, which is what it does for them, and what it takes
    /// for a loss.
    #[must_use]
    pub fn reciprocal(mut self, network: &cc::NetworkProfile) -> Self {
        self.receiver = self.cc.receiver(network);
        self.acks = self.cc.acks();
        self.threshold = self.cc.loss_threshold();
        self
    }

    /// Whether congestion control lives on credits of the peer. Then requests say how much is wanted.
    #[must_use]
    pub const fn credits(&self) -> bool {
        matches!(self.receiver, cc::ReceiverConfig::Credits(_))
    }

    /// Whether switches compute the rates of flows that ask for one.
    #[must_use]
    pub const fn rates(&self) -> bool {
        matches!(self.receiver, cc::ReceiverConfig::Rates)
    }

    /// Whether congestion control hears what waits to be sent, and looks at each packet that leaves. Requests may say something
    /// for it, in four bytes of header more ([`CREDIT_HEADER`]).
    #[must_use]
    pub const fn tells_backlog(&self) -> bool {
        matches!(self.receiver, cc::ReceiverConfig::Credits(_) | cc::ReceiverConfig::Rates)
    }

    /// Bytes received after which an acknowledgement is due soon.
    pub(crate) const fn ack_soon(&self) -> u32 {
        if self.acks.each_packet { 1 } else { self.ack_trigger }
    }

    /// Bytes received after which an acknowledgement is due at once.
    pub(crate) const fn ack_now(&self) -> u32 {
        let puts_off = self.ack_linger.0 > 0 && !self.acks.each_packet;
        if puts_off { self.ack_trigger.saturating_mul(LINGER_BYTES) } else { self.ack_soon() }
    }

    /// Longest time a peer configured alike sits on an acknowledgement.
    pub(crate) const fn longest_hold(&self) -> Span {
        if self.acks.each_packet { Span::ZERO } else { self.ack_delay }
    }

    /// Whether everything that was chosen goes together.
    ///
    /// # Errors
    /// What does not, and what would.
    pub fn check(&self) -> Result<(), Conflict> {
        if self.paths.freezes() && !self.loss.finds_losses() {
            return Err(Conflict::Freezing { paths: self.paths.name(), loss: self.loss });
        }
        if self.credits() && self.scope != cc::Scope::PerFlow {
            return Err(Conflict::SharedCredit { cc: self.cc.name(), scope: self.scope });
        }
        if self.rates() && self.scope != cc::Scope::PerFlow {
            return Err(Conflict::SharedRate { cc: self.cc.name(), scope: self.scope });
        }
        Ok(())
    }
}

/// Choices that are possible each, but not together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// A path selector that freezes on broken paths, and no loss detector that can tell one.
    Freezing {
        /// The selector.
        paths: &'static str,
        /// The detectors.
        loss: LossDetection,
    },
    /// Credit is granted to one flow and cannot be spent by another.
    SharedCredit {
        /// The congestion control.
        cc: &'static str,
        /// The scope.
        scope: cc::Scope,
    },
    /// A rate holds for one flow's path.
    SharedRate {
        /// The congestion control.
        cc: &'static str,
        /// The scope.
        scope: cc::Scope,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freezing { paths, loss } => write!(
                f,
                "path selection {paths} freezes when a path breaks, which loss detection {loss} cannot \
                 tell; allowed: a set with ooo, probe or rto in it, or {paths}:freeze=0"
            ),
            Self::SharedCredit { cc, scope } => write!(
                f,
                "congestion control {cc} lives on credit, which a receiver grants to one flow, not to \
                 all of a {scope}; allowed: scope flow"
            ),
            Self::SharedRate { cc, scope } => write!(
                f,
                "congestion control {cc} has the rate that switches compute for one flow's path, not for \
                 all of a {scope}; allowed: scope flow"
            ),
        }
    }
}

impl core::error::Error for Conflict {}
