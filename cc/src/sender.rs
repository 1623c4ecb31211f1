//! The sender's side: the trait, and the enum over every algorithm.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use squall_base::{Span, Time};

use crate::acks::{AckStyle, LossThreshold};
use crate::bbr::{Bbr, BbrConfig};
use crate::budget::{Action, Budget, FlowEvent, Metrics, Scope, Sending, Stamp};
use crate::choose::{ByName, ChoiceError, Named, name_of, tune, unknown};
use crate::dart::{Dart, DartConfig};
use crate::dcqcn::{Dcqcn, DcqcnConfig};
use crate::dctcp::{Dctcp, DctcpConfig};
use crate::eqds::{Credited, CreditedConfig, Eqds, EqdsConfig};
use crate::error::ConfigError;
use crate::fair::{Fair, FairConfig};
use crate::feedback::Feedback;
use crate::fixed::{FixedWindow, FixedWindowConfig};
use crate::hpcc::{Hpcc, HpccConfig};
use crate::mprdma::{Mprdma, MprdmaConfig};
use crate::network::Network;
use crate::nscc::{Nscc, NsccConfig};
use crate::pace::{Paced, PacedConfig};
use crate::receiver::ReceiverConfig;
use crate::smartt::{Smartt, SmarttConfig};
use crate::sperc::{RatePacket, Sperc, SpercConfig};
use crate::strack::{Strack, StrackConfig};
use crate::swift::{Swift, SwiftConfig};
use crate::threecpo::{Throttle, ThrottleConfig};
use crate::timely::{Timely, TimelyConfig};
use crate::tuning::{Setting, Tunable};

/// One congestion-control context at a sender; which flows share it is [`crate::Scope`]'s business.
///
/// Call order: [`on_event`](Self::on_event) when a flow joins; then, per packet that leaves,
/// [`budget`](Self::budget) and [`on_send`](Self::on_send); per thing learnt,
/// [`on_feedback`](Self::on_feedback). When [`next_timer`](Self::next_timer) is due, call
/// [`on_timer`](Self::on_timer). After each of the three `on_` calls, [`poll`](Self::poll) until
/// `None`. Time never runs backwards from call to call; if it does, it counts as standing still.
///
/// Nothing here allocates after construction. Configuration, and any state that the contexts of one
/// host share (1RC's epochs), hangs off one `Arc` per endpoint.
pub trait SenderCc {
    /// What may be sent now.
    fn budget(&self, now: Time) -> Budget;

    /// A packet leaves.
    fn on_send(&mut self, now: Time, sending: &Sending) -> Stamp {
        let (_, _) = (now, sending);
        Stamp::default()
    }

    /// Packets leave back to back, each as `sending` says: up to `count` of them, at least one, until one wants
    /// something of its own. How many left, and what rides on the last; nothing rides on the others.
    #[inline]
    fn on_send_run(&mut self, now: Time, sending: &Sending, count: u16) -> (u16, Stamp) {
        for n in 1..count {
            let stamp = self.on_send(now, sending);
            if stamp != Stamp::default() {
                return (n, stamp);
            }
        }
        (count, self.on_send(now, sending))
    }

    /// Something was learnt.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// Traffic started, paused or ended.
    fn on_event(&mut self, now: Time, event: FlowEvent) {
        let (_, _) = (now, event);
    }

    /// The time of [`next_timer`](Self::next_timer) has come.
    fn on_timer(&mut self, now: Time) {
        let _ = now;
    }

    /// When [`on_timer`](Self::on_timer) wants to be called; `None` for never.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// The next thing to do, if any.
    fn poll(&mut self, now: Time) -> Option<Action> {
        let _ = now;
        None
    }

    /// What [`Action::SendRatePacket`] asks to send, now; only of algorithms that ask.
    fn rate_packet(&mut self, now: Time) -> Option<RatePacket> {
        let _ = now;
        None
    }

    /// What the context looks like.
    fn metrics(&self) -> Metrics;

    /// [`Metrics::base_rtt`] alone, which every packet that leaves asks for.
    fn base_rtt(&self) -> Option<Span> {
        self.metrics().base_rtt
    }

    /// Bytes of state of this context, in boxes too; without what it shares with others.
    fn state_bytes(&self) -> usize {
        size_of_val(self)
    }
}

/// Parameters of a sender's algorithm. Besides the methods here it has `new(&Network) -> Self`, its
/// defaults on a network, and the algorithm `new(Arc<Self>, Time)`.
pub trait SenderParameters: Tunable {
    /// What the receiver of an endpoint that runs this algorithm must do.
    fn receiver(&self, network: &Network) -> ReceiverConfig {
        let _ = network;
        ReceiverConfig::Plain
    }

    /// How it wants to be acknowledged.
    fn acks(&self) -> AckStyle {
        AckStyle::default()
    }

    /// When packets out of order are a loss.
    fn loss_threshold(&self) -> LossThreshold {
        LossThreshold::default()
    }

    /// Which flows share a context where nobody says it ([`Scope::AUTO`]).
    fn scope(&self) -> Scope {
        Scope::PerFlow
    }

    /// Lets the window fall to `bytes`, possibly less than a packet, because a pacer watches over it
    /// (parameter `pace`). False when the algorithm has no such window; then it is not offered.
    fn set_floor(&mut self, bytes: u32) -> bool {
        let _ = bytes;
        false
    }
}

/// The list of algorithms: variant (state, parameters) = name, one line about it. A line here, and
/// the algorithm can be chosen, tuned, listed and is held to the properties that all have. One that lends its law to VAI and SF
/// ([`FairCc`](crate::FairCc), [`FairParameters`](crate::FairParameters)) names the variant in which they are round it, too.
macro_rules! senders {
    ($($(#[$doc:meta])* $variant:ident $(or $fair:ident)? ($state:ty, $config:ty) = $name:literal, $what:literal;)+) => {
        /// The algorithm of an endpoint with its parameters: checked once, shared by all its contexts.
        #[derive(Clone, Debug)]
        pub enum SenderConfig {
            $(
                $(#[$doc])*
                $variant(Arc<$config>),
                $(
                    /// The same with VAI or SF.
                    $fair(Arc<$config>, Arc<FairConfig>),
                )?
            )+
            /// Any of the others that has a window, which may be less than a packet.
            Paced(Arc<PacedConfig>),
        }

        impl SenderConfig {
            /// Every algorithm: its name and one line about it.
            pub const NAMES: &'static [Named] = &[$(($name, $what)),+];

            /// The defaults of the algorithm called `name` on `network`.
            fn default_of(name: &str, network: &Network) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant(Arc::new(<$config>::new(network)))),)+
                    _ => None,
                }
            }

            /// The name by which a user asks for it.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) $(| Self::$fair(_, _))? => $name,)+
                    Self::Paced(paced) => paced.inner.name(),
                }
            }

            /// The parameters of the algorithm proper.
            fn own_settings(&self) -> Vec<Setting> {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => config.settings(),)+
                    Self::Paced(paced) => paced.inner.own_settings(),
                }
            }

            /// Whether the algorithm can run on its values.
            ///
            /// # Errors
            /// The first parameter out of its range.
            pub fn check(&self) -> Result<(), ConfigError> {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => config.check(),)+
                    Self::Paced(paced) => paced.inner.check(),
                }
            }

            /// How the algorithm wants to be acknowledged.
            #[must_use]
            pub fn acks(&self) -> AckStyle {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => config.acks(),)+
                    Self::Paced(paced) => paced.inner.acks(),
                }
            }

            /// When packets out of order are a loss for it.
            #[must_use]
            pub fn loss_threshold(&self) -> LossThreshold {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => config.loss_threshold(),)+
                    Self::Paced(paced) => paced.inner.loss_threshold(),
                }
            }

            /// Which flows share a context of the algorithm where nobody says it ([`Scope::AUTO`]).
            #[must_use]
            pub fn scope(&self) -> Scope {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => config.scope(),)+
                    Self::Paced(paced) => paced.inner.scope(),
                }
            }

            /// What the receiver of an endpoint that runs this algorithm must do.
            #[must_use]
            pub fn receiver(&self, network: &Network) -> ReceiverConfig {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => config.receiver(network),)+
                    Self::Paced(paced) => paced.inner.receiver(network),
                }
            }

            /// [`SenderParameters::set_floor`].
            pub(crate) fn set_floor(&mut self, bytes: u32) -> bool {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => Arc::make_mut(config).set_floor(bytes),)+
                    Self::Paced(paced) => Arc::make_mut(paced).inner.set_floor(bytes),
                }
            }

            /// What VAI and SF do to it, or would if they were asked; `None` where they are not offered.
            pub(crate) fn fair(&self) -> Option<FairConfig> {
                match self {
                    $($(
                        Self::$variant(_) => Some(FairConfig::PLAIN),
                        Self::$fair(_, fair) => Some((**fair).clone()),
                    )?)+
                    Self::Paced(paced) => paced.inner.fair(),
                    _ => None,
                }
            }

            /// Sets a parameter of VAI or SF; `None` when it is none, or they are not offered.
            fn set_fair(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
                let mut fair = self.fair()?;
                match self {
                    $($(Self::$variant(config) | Self::$fair(config, _) => {
                        let done = fair.set(name, value, &**config)?;
                        let config = Arc::clone(config);
                        *self = if fair.is_plain() {
                            Self::$variant(config)
                        } else {
                            Self::$fair(config, Arc::new(fair))
                        };
                        Some(done)
                    })?)+
                    Self::Paced(paced) => Arc::make_mut(paced).inner.set_fair(name, value),
                    _ => None,
                }
            }

            /// Sets a parameter of the algorithm proper.
            fn set_own(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
                match self {
                    $(Self::$variant(config) $(| Self::$fair(config, _))? => Arc::make_mut(config).set(name, value),)+
                    Self::Paced(paced) => Arc::make_mut(paced).inner.set_own(name, value),
                }
            }
        }

        $(
            impl TryFrom<$config> for SenderConfig {
                type Error = ConfigError;

                fn try_from(config: $config) -> Result<Self, ConfigError> {
                    config.check()?;
                    Ok(Self::$variant(Arc::new(config)))
                }
            }
        )+

        /// A context of any algorithm.
        #[derive(Clone, Debug)]
        pub enum Sender {
            $(
                $(#[$doc])*
                $variant($state),
                $(
                    /// The same with VAI or SF.
                    $fair(Box<Fair<$state>>),
                )?
            )+
            /// See [`Paced`].
            Paced(Box<Paced>),
        }

        impl Sender {
            /// A fresh context, opened at `now`.
            #[must_use]
            pub fn new(config: &SenderConfig, now: Time) -> Self {
                match config {
                    $(
                        SenderConfig::$variant(config) => {
                            Self::$variant(<$state>::new(Arc::clone(config), now))
                        }
                        $(SenderConfig::$fair(config, fair) => {
                            let inner = <$state>::new(Arc::clone(config), now);
                            Self::$fair(Fair::new(inner, Arc::clone(fair)))
                        })?
                    )+
                    SenderConfig::Paced(config) => Self::Paced(Paced::new(config, now)),
                }
            }
        }

        /// Hands a call to the algorithm inside.
        macro_rules! each {
            ($self:expr, $cc:ident => $call:expr) => {
                match $self {
                    $(
                        Sender::$variant($cc) => $call,
                        $(Sender::$fair($cc) => $call,)?
                    )+
                    Sender::Paced($cc) => $call,
                }
            };
        }
    };
}

senders! {
    /// Network Signal-based Congestion Control of UE 1.0.
    Nscc or FairNscc(Nscc, NsccConfig) = "nscc", "UE 1.0 network signal-based control (SMaRTT v2)";
    /// SMaRTT as first published.
    Smartt(Smartt, SmarttConfig) = "smartt", "SMaRTT as first published: a step a packet, QuickAdapt";
    /// STrack: a window that aims at a queueing delay.
    Strack or FairStrack(Strack, StrackConfig) = "strack", "STrack: aims at a queueing delay, decreases once a round trip";
    /// Swift: a window that aims at a delay.
    Swift or FairSwift(Swift, SwiftConfig) = "swift", "aims at a delay, paces below one packet";
    /// DCQCN: a rate cut by notifications.
    Dcqcn(Dcqcn, DcqcnConfig) = "dcqcn", "a rate cut by the receiver's notifications (RoCEv2)";
    /// TIMELY: a rate that follows the gradient of the delay.
    Timely(Timely, TimelyConfig) = "timely", "a rate that follows the gradient of the delay";
    /// DCTCP: a window cut in proportion to the marks.
    Dctcp or FairDctcp(Dctcp, DctcpConfig) = "dctcp", "TCP's window, cut in proportion to the marks";
    /// BBR, the first version: a model of bandwidth and propagation time.
    Bbr(Bbr, BbrConfig) = "bbr", "rate and window from a model of the path, first version";
    /// The window of MP-RDMA.
    Mprdma(Mprdma, MprdmaConfig) = "mprdma", "MP-RDMA: a step for every marked and unmarked packet";
    /// Credits of the receiver.
    Eqds(Eqds, EqdsConfig) = "eqds", "credits of the receiver (EQDS, UE 1.0 RCCC)";
    /// Credits of the receiver and NSCC's window.
    EqdsNscc(Credited<Nscc>, CreditedConfig<Nscc>) = "eqds+nscc", "credits and NSCC's window together";
    /// Credits of the receiver and SMaRTT's window.
    EqdsSmartt(Credited<Smartt>, CreditedConfig<Smartt>) = "eqds+smartt", "credits and SMaRTT's window together";
    /// Credits of the receiver and MP-RDMA's window.
    EqdsMprdma(Credited<Mprdma>, CreditedConfig<Mprdma>) = "eqds+mprdma", "credits and MP-RDMA's window together";
    /// HPCC: a rate from what switches say of their queues.
    Hpcc or FairHpcc(Hpcc, HpccConfig) = "hpcc", "a rate from what switches write into packets (in-band telemetry)";
    /// Dart: the receiver's share, and DCQCN.
    Dart(Dart, DartConfig) = "dart", "the share that the receiver counts out, and DCQCN (US 11,190,454 B2)";
    /// s-PERC: the rate that the links of a path compute, and 1RC.
    Sperc(Sperc, SpercConfig) = "sperc", "the rate that switches compute (s-PERC), and 1RC";
    /// The unicast half of 3CPO: a watermark a host.
    ThreeCpo(Throttle, ThrottleConfig) = "3cpo", "a host's rate, which the round trip moves (3CPO without multicast)";
    /// A window that never changes.
    Fixed(FixedWindow, FixedWindowConfig) = "none", "a window that never changes";
}

impl SenderConfig {
    /// The algorithm of those who name none: the one that Ultra Ethernet 1.0 specifies for senders.
    pub const DEFAULT: &'static str = "nscc";

    /// The algorithm that `text` names, `name[:key=value[,key=value..]]`, with its defaults on
    /// `network` except for what `text` sets.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn by_name(text: &str, network: &Network) -> Result<Self, ChoiceError> {
        network.check()?;
        let config = Self::default_of(name_of(text), network)
            .ok_or_else(|| unknown("congestion control", text, Self::NAMES))?;
        config.check()?;
        tune(OnNetwork { config, network }, text).map(|chosen| chosen.config)
    }

    /// Its parameters and their values.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = self.own_settings();
        settings.extend(self.fair().iter().flat_map(FairConfig::settings));
        let paced = matches!(self, Self::Paced(_));
        if paced || self.clone().set_floor(u32::MAX) {
            settings.push(Setting { value: f64::from(u8::from(paced)), ..PACE });
        }
        settings
    }

    /// The same for another host, where contexts of one host share more than parameters.
    #[must_use]
    pub fn of_another_host(&self) -> Option<Self> {
        match self {
            Self::Sperc(config) => Some(Self::Sperc(Arc::new(config.of_another_host()))),
            _ => None,
        }
    }

    /// Whether flows send speculative packets, which switches must drop (1RC).
    #[must_use]
    pub fn speculates(&self) -> bool {
        matches!(self, Self::Sperc(config) if config.one_rtt)
    }

    /// NSCC with checked parameters.
    ///
    /// # Errors
    /// The parameter that is out of range.
    pub fn nscc(config: NsccConfig) -> Result<Self, ConfigError> {
        Self::try_from(config)
    }

    /// A fixed window of `window` bytes; `u64::MAX` for no limit.
    #[must_use]
    pub fn fixed(window: u64) -> Self {
        Self::Fixed(Arc::new(FixedWindowConfig { window }))
    }
}

/// Out of line for each algorithm: inlined into one function, they would share one prologue that saves
/// the registers of the hungriest.
trait Hand {
    fn hand(&mut self, feedback: &Feedback<'_>);
}

impl<C: SenderCc> Hand for C {
    #[inline(never)]
    fn hand(&mut self, feedback: &Feedback<'_>) {
        self.on_feedback(feedback);
    }
}

/// The parameter that every algorithm with a window has.
const PACE: Setting = Setting {
    name: "pace",
    what: "whether the window may be less than a packet and packets are then spaced: 0",
    allowed: "0 or 1",
    value: 0.0,
};

/// A choice being made.
struct OnNetwork<'a> {
    config: SenderConfig,
    network: &'a Network,
}

impl ByName for OnNetwork<'_> {
    fn name(&self) -> &'static str {
        self.config.name()
    }

    fn settings(&self) -> Vec<Setting> {
        self.config.settings()
    }

    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
        if name != PACE.name {
            let fair = self.config.set_fair(name, value);
            return fair.or_else(|| self.config.set_own(name, value));
        }
        let (on, off) = (value == 1.0, value == 0.0);
        match &self.config {
            _ if !on && !off => {
                let Setting { name: parameter, allowed, .. } = PACE;
                return Some(Err(ConfigError { parameter, value, allowed }));
            }
            SenderConfig::Paced(paced) if off => self.config = paced.unpaced(),
            SenderConfig::Paced(_) => {}
            config if on => {
                let paced = PacedConfig::new(config.clone(), self.network)?;
                self.config = SenderConfig::Paced(Arc::new(paced));
            }
            _ => {}
        }
        Some(self.config.check())
    }
}

impl SenderCc for Sender {
    fn budget(&self, now: Time) -> Budget {
        each!(self, cc => cc.budget(now))
    }

    fn on_send(&mut self, now: Time, sending: &Sending) -> Stamp {
        each!(self, cc => cc.on_send(now, sending))
    }

    fn on_send_run(&mut self, now: Time, sending: &Sending, count: u16) -> (u16, Stamp) {
        each!(self, cc => cc.on_send_run(now, sending, count))
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        each!(self, cc => cc.hand(feedback));
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        each!(self, cc => cc.on_event(now, event));
    }

    fn on_timer(&mut self, now: Time) {
        each!(self, cc => cc.on_timer(now));
    }

    fn next_timer(&self) -> Option<Time> {
        each!(self, cc => cc.next_timer())
    }

    fn poll(&mut self, now: Time) -> Option<Action> {
        each!(self, cc => cc.poll(now))
    }

    fn rate_packet(&mut self, now: Time) -> Option<RatePacket> {
        each!(self, cc => cc.rate_packet(now))
    }

    fn metrics(&self) -> Metrics {
        each!(self, cc => cc.metrics())
    }

    #[inline]
    fn base_rtt(&self) -> Option<Span> {
        each!(self, cc => cc.base_rtt())
    }

    fn state_bytes(&self) -> usize {
        each!(self, cc => cc.state_bytes())
    }
}
