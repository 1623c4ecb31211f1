//! The list of all algorithms: the enums over them, and how a user chooses one by name.

mod receivers;
mod scopes;
mod selectors;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use squall_base::{Span, Time};

use crate::baselines::{
    Bbr, BbrConfig, Dcqcn, DcqcnConfig, Dctcp, DctcpConfig, FixedWindow, FixedWindowConfig, Hpcc,
    HpccConfig, Mprdma, MprdmaConfig, Swift, SwiftConfig,
};
use crate::baselines::{Timely, TimelyConfig};
use crate::by_name::{ByName, ChoiceError, NameAndSummary, name_of, tune, unknown};
use crate::controller::{
    AckStyle, Budget, Feedback, FlowEvent, LossThreshold, RatePacket, ReceiverConfig, Scope,
    SenderAction, SenderCc, SenderMetrics, SenderParameters, SentPacket, Stamp,
};
use crate::eqds::{CreditedConfig, CreditedSender, Eqds, EqdsConfig};
use crate::error::ConfigError;
use crate::fair::{FairConfig, FairSender};
use crate::network::NetworkProfile;
use crate::nscc::{Nscc, NsccConfig};
use crate::pace::{PacedConfig, PacedSender};
#[cfg(feature = "research")]
use crate::research::{Dart, DartConfig, Sperc, SpercConfig, Throttle, ThrottleConfig};
use crate::smartt::{Smartt, SmarttConfig};
use crate::strack::{Strack, StrackConfig};
use crate::tuning::{Setting, Tunable};
pub use receivers::Receiver;
pub use selectors::{Paths, PathsConfig};

/// The list of congestion controls: variant (state, parameters) = name, one-line description. A
/// line here is all that an algorithm needs to be chosen, tuned, listed and tested for the
/// properties that all share.
///
/// An algorithm that supports VAI and SF ([`FairCc`](crate::FairCc),
/// [`FairParameters`](crate::FairParameters)) also names the variant that combines it with them.
macro_rules! senders {
    ($($(#[$doc:meta])* $variant:ident $(or $fair:ident)? ($state:ty, $config:ty) = $name:literal, $what:literal $(if $feature:literal)?;)+) => {
        /// The congestion control of an endpoint with its parameters: checked once, shared by all
        /// its contexts.
        #[derive(Clone, Debug)]
        pub enum SenderConfig {
            $(
                $(#[$doc])*
                $(#[cfg(feature = $feature)])?
                $variant(Arc<$config>),
                $(
                    /// Variant of the algorithm with Variable Additive Increase (VAI) or Sampling Frequency (SF).
                    $fair(Arc<$config>, Arc<FairConfig>),
                )?
            )+
            /// Any other algorithm with a window, which may fall below one packet (parameter
            /// `pace`).
            Paced(Arc<PacedConfig>),
        }

        impl SenderConfig {
            /// Every congestion control in this build: its name and a one-line description.
            pub const NAMES: &'static [NameAndSummary] = &[$($(#[cfg(feature = $feature)])? ($name, $what)),+];

            /// Names of the algorithms that this build leaves out, each with the cargo feature that
            /// includes it.
            const NOT_BUILT: &'static [NameAndSummary] = &[$($(#[cfg(not(feature = $feature))] ($name, $feature),)?)+];

            /// Returns the default configuration of the algorithm `name` on `network`.
            fn default_of(name: &str, network: &NetworkProfile) -> Option<Self> {
                match name {
                    $($(#[cfg(feature = $feature)])? $name => Some(Self::$variant(Arc::new(<$config>::new(network)))),)+
                    _ => None,
                }
            }

            /// Returns the name by which a user asks for the algorithm.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(_) $(| Self::$fair(_, _))? => $name,)+
                    Self::Paced(paced) => paced.inner.name(),
                }
            }

            /// Returns the algorithm's own parameters, without those of pacing, VAI and SF.
            fn own_settings(&self) -> Vec<Setting> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => config.settings(),)+
                    Self::Paced(paced) => paced.inner.own_settings(),
                }
            }

            /// Checks that the algorithm can run on its values.
            ///
            /// # Errors
            /// Returns the first parameter that is out of its range.
            pub fn check(&self) -> Result<(), ConfigError> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => config.check(),)+
                    Self::Paced(paced) => paced.inner.check(),
                }
            }

            /// Returns how the peer should acknowledge packets for this algorithm.
            #[must_use]
            pub fn acks(&self) -> AckStyle {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => config.acks(),)+
                    Self::Paced(paced) => paced.inner.acks(),
                }
            }

            /// Returns from how many packets out of order on the sender concludes that packets are
            /// lost.
            #[must_use]
            pub fn loss_threshold(&self) -> LossThreshold {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => config.loss_threshold(),)+
                    Self::Paced(paced) => paced.inner.loss_threshold(),
                }
            }

            /// Returns which flows share a context when the user does not choose ([`Scope::AUTO`]).
            #[must_use]
            pub fn scope(&self) -> Scope {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => config.scope(),)+
                    Self::Paced(paced) => paced.inner.scope(),
                }
            }

            /// Returns what the receiver of an endpoint that runs this algorithm must do.
            #[must_use]
            pub fn receiver(&self, network: &NetworkProfile) -> ReceiverConfig {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => config.receiver(network),)+
                    Self::Paced(paced) => paced.inner.receiver(network),
                }
            }

            /// Returns the configuration for another host if the contexts of one host share more
            /// than parameters, `None` otherwise.
            #[must_use]
            pub fn of_another_host(&self) -> Option<Self> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) => {
                        config.of_another_host().map(|config| Self::$variant(Arc::new(config)))
                    })+
                    _ => None,
                }
            }

            /// Sets the smallest window in bytes; see [`SenderParameters::set_floor`].
            pub(crate) fn set_floor(&mut self, bytes: u32) -> bool {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => Arc::make_mut(config).set_floor(bytes),)+
                    Self::Paced(paced) => Arc::make_mut(paced).inner.set_floor(bytes),
                }
            }

            /// Returns the settings of VAI and SF, all off if the user did not ask for them; `None`
            /// if the algorithm does not support them.
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

            /// Sets a parameter of VAI or SF; returns `None` if there is none of this name or the
            /// algorithm does not support them.
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

            /// Sets one of the algorithm's own parameters; returns `None` if it has none of this
            /// name.
            fn set_own(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$variant(config) $(| Self::$fair(config, _))? => Arc::make_mut(config).set(name, value),)+
                    Self::Paced(paced) => Arc::make_mut(paced).inner.set_own(name, value),
                }
            }
        }

        $(
            $(#[cfg(feature = $feature)])?
            impl TryFrom<$config> for SenderConfig {
                type Error = ConfigError;

                fn try_from(config: $config) -> Result<Self, ConfigError> {
                    config.check()?;
                    Ok(Self::$variant(Arc::new(config)))
                }
            }
        )+

        /// A congestion-control context of a sender, of any algorithm.
        #[derive(Clone, Debug)]
        pub enum Sender {
            $(
                $(#[$doc])*
                $(#[cfg(feature = $feature)])?
                $variant($state),
                $(
                    /// Variant of the algorithm with Variable Additive Increase (VAI) or Sampling Frequency (SF).
                    $fair(Box<FairSender<$state>>),
                )?
            )+
            /// Any other algorithm with a window that may fall below one packet; see
            /// [`PacedSender`].
            Paced(Box<PacedSender>),
        }

        impl Sender {
            /// Creates a congestion-control context of the algorithm of `config`, opened at `now`.
            #[must_use]
            pub fn new(config: &SenderConfig, now: Time) -> Self {
                match config {
                    $(
                        $(#[cfg(feature = $feature)])?
                        SenderConfig::$variant(config) => {
                            Self::$variant(<$state>::new(Arc::clone(config), now))
                        }
                        $(SenderConfig::$fair(config, fair) => {
                            let inner = <$state>::new(Arc::clone(config), now);
                            Self::$fair(FairSender::new(inner, Arc::clone(fair)))
                        })?
                    )+
                    SenderConfig::Paced(config) => Self::Paced(PacedSender::new(config, now)),
                }
            }
        }

        /// Calls a method of the algorithm that a [`Sender`] holds.
        macro_rules! each {
            ($self:expr, $cc:ident => $call:expr) => {
                match $self {
                    $(
                        $(#[cfg(feature = $feature)])?
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
    /// SMaRTT as first published: a window that each packet's mark and delay moves.
    Smartt(Smartt, SmarttConfig) = "smartt", "SMaRTT as first published: a step a packet, QuickAdapt";
    /// STrack: a window that keeps the queueing delay near a target.
    Strack or FairStrack(Strack, StrackConfig) = "strack", "STrack: aims at a queueing delay, decreases once a round trip";
    /// Swift: a window that keeps the round-trip delay near a target.
    Swift or FairSwift(Swift, SwiftConfig) = "swift", "aims at a delay, paces below one packet";
    /// DCQCN: a rate that the receiver's congestion notifications cut.
    Dcqcn(Dcqcn, DcqcnConfig) = "dcqcn", "a rate cut by the receiver's notifications (RoCEv2)";
    /// TIMELY: a rate that falls while the delay rises, and rises while it falls.
    Timely(Timely, TimelyConfig) = "timely", "a rate that follows the gradient of the delay";
    /// DCTCP: a window cut in proportion to the share of marked packets.
    Dctcp or FairDctcp(Dctcp, DctcpConfig) = "dctcp", "TCP's window, cut in proportion to the marks";
    /// BBR, the first version: a model of bandwidth and propagation time.
    Bbr(Bbr, BbrConfig) = "bbr", "rate and window from a model of the path, first version";
    /// MP-RDMA's window: every acknowledged packet moves it, up without and down with a mark.
    Mprdma(Mprdma, MprdmaConfig) = "mprdma", "MP-RDMA: a step for every marked and unmarked packet";
    /// Credits that the receiver grants (EQDS, RCCC of UE 1.0).
    Eqds(Eqds, EqdsConfig) = "eqds", "credits of the receiver (EQDS, UE 1.0 RCCC)";
    /// Credits that the receiver grants, combined with NSCC's window.
    EqdsNscc(CreditedSender<Nscc>, CreditedConfig<Nscc>) = "eqds+nscc", "credits and NSCC's window together";
    /// Credits that the receiver grants, combined with SMaRTT's window.
    EqdsSmartt(CreditedSender<Smartt>, CreditedConfig<Smartt>) = "eqds+smartt", "credits and SMaRTT's window together";
    /// Credits that the receiver grants, combined with MP-RDMA's window.
    EqdsMprdma(CreditedSender<Mprdma>, CreditedConfig<Mprdma>) = "eqds+mprdma", "credits and MP-RDMA's window together";
    /// HPCC: a rate from the queue lengths that switches write into packets.
    Hpcc or FairHpcc(Hpcc, HpccConfig) = "hpcc", "a rate from what switches write into packets (in-band telemetry)";
    /// Dart: the smaller of the rate that the receiver assigns and DCQCN's rate.
    Dart(Dart, DartConfig) = "dart", "the share that the receiver counts out, and DCQCN (US 11,190,454 B2)" if "research";
    /// s-PERC: the rate that the switches on a flow's path compute; optionally with 1RC.
    Sperc(Sperc, SpercConfig) = "sperc", "the rate that switches compute (s-PERC), and 1RC" if "research";
    /// 3CPO without multicast: a host's rate, which the round-trip time raises and lowers.
    ThreeCpo(Throttle, ThrottleConfig) = "3cpo", "a host's rate, which the round trip moves (3CPO without multicast)" if "research";
    /// A congestion window that never changes.
    Fixed(FixedWindow, FixedWindowConfig) = "none", "a window that never changes";
}

impl SenderConfig {
    /// The algorithm when the user chooses none: the one that Ultra Ethernet 1.0 specifies for
    /// senders.
    pub const DEFAULT: &'static str = "nscc";

    /// Returns the algorithm that `text` names, `name[:key=value[,key=value..]]`, with its defaults
    /// on `network` except for what `text` sets.
    ///
    /// # Errors
    /// Returns what is wrong and what is allowed.
    pub fn by_name(text: &str, network: &NetworkProfile) -> Result<Self, ChoiceError> {
        network.check()?;
        let config = Self::default_of(name_of(text), network)
            .ok_or_else(|| unknown("congestion control", text, Self::NAMES, Self::NOT_BUILT))?;
        config.check()?;
        tune(OnNetwork { config, network }, text).map(|chosen| chosen.config)
    }

    /// Returns every parameter of the algorithm with its value.
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

    /// Returns NSCC with these parameters.
    ///
    /// # Errors
    /// Returns the parameter that is out of range.
    pub fn nscc(config: NsccConfig) -> Result<Self, ConfigError> {
        Self::try_from(config)
    }

    /// Returns a congestion window that stays at `window` bytes; `u64::MAX` for no limit.
    #[must_use]
    pub fn fixed(window: u64) -> Self {
        Self::Fixed(Arc::new(FixedWindowConfig { window }))
    }
}

/// Calls [`SenderCc::on_feedback`] out of line. If all algorithms were inlined into one function,
/// they would share a prologue that saves as many registers as the one that needs most.
trait OutOfLine {
    fn on_feedback_out_of_line(&mut self, feedback: &Feedback<'_>);
}

impl<C: SenderCc> OutOfLine for C {
    #[inline(never)]
    fn on_feedback_out_of_line(&mut self, feedback: &Feedback<'_>) {
        self.on_feedback(feedback);
    }
}

/// The parameter `pace`, which every algorithm with a window has.
const PACE: Setting = Setting {
    name: "pace",
    what: "the window may fall below a packet, and packets are then spaced: 0",
    allowed: "0 or 1",
    value: 0.0,
};

/// A configuration under construction, with the network that its defaults follow from.
struct OnNetwork<'a> {
    config: SenderConfig,
    network: &'a NetworkProfile,
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

    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        each!(self, cc => cc.on_send(now, sending))
    }

    fn on_send_run(&mut self, now: Time, sending: &SentPacket, count: u16) -> (u16, Stamp) {
        each!(self, cc => cc.on_send_run(now, sending, count))
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        each!(self, cc => cc.on_feedback_out_of_line(feedback));
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

    fn poll(&mut self, now: Time) -> Option<SenderAction> {
        each!(self, cc => cc.poll(now))
    }

    fn rate_packet(&mut self, now: Time) -> Option<RatePacket> {
        each!(self, cc => cc.rate_packet(now))
    }

    fn metrics(&self) -> SenderMetrics {
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
