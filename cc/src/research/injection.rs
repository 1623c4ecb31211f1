//! Limiters for the operations of a host in a network that replicates and reduces
//! ([`crate::ThreeCpo`]): 3CPO and the alternatives that it is compared with (Snyder's thesis,
//! section 6.1.4).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::by_name::{ByName, ChoiceError, NameAndSummary, name_of, tune, unknown};
use crate::error::ConfigError;
use crate::research::{FlitClass, OperationFlits, ThreeCpo, ThreeCpoConfig};
use crate::tuning::{Setting, Tunable};

/// A limiter of a host's operations, with its parameters.
#[derive(Clone, PartialEq, Debug)]
pub enum InjectionConfig {
    /// Nothing limits the operations.
    None,
    /// At most a fixed number of writes, and of reads, is under way.
    Window(OperationWindow),
    /// An operation spends tokens, which arrive at a rate that a probe of the network adapts.
    Aimd(Arc<ThreeCpoConfig>),
    /// An operation spends tokens, which arrive at a rate that a probe of the network adapts;
    /// operations of other hosts also spend them.
    ThreeCpo(Arc<ThreeCpoConfig>),
}

/// Fixed limit of a host's operations under way (SMMC of section 6.1.4 of Snyder's thesis).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationWindow {
    /// Number of writes under way at a time, and of reads; 0 selects the hand-tuned value for the
    /// number of sending hosts (table 6.1).
    pub ops: u32,
}

/// Table 6.1 of Snyder's thesis: number of sending hosts, and the window of operations that suits
/// them.
const TUNED: [(u32, u32); 7] = [(1, 128), (2, 128), (4, 48), (8, 24), (16, 12), (32, 5), (64, 3)];

tunable! {
    OperationWindow, special: [], also: |_: &Self| Ok(());
    number ops "ops" (0.0, 1e6, "1 to 1000000, or 0 for table 6.1")
        "writes under way at a time, and reads: 0, which selects by the number of senders";
}

impl InjectionConfig {
    /// Every limiter of operations: its name and a one-line description.
    pub const NAMES: &'static [NameAndSummary] = &[
        ("none", "nothing throttles"),
        ("window", "so many operations of each kind at a time"),
        ("aimd", "tokens at a rate that a probe in the network moves"),
        ("3cpo", "tokens that the operations of others take, too"),
    ];

    /// Returns the limiter that `text` names, `name[:key=value[,key=value..]]`.
    ///
    /// # Errors
    /// Returns what is wrong and what is allowed.
    pub fn by_name(text: &str) -> Result<Self, ChoiceError> {
        let config = match name_of(text) {
            "none" => Self::None,
            "window" => Self::Window(OperationWindow { ops: 0 }),
            "aimd" => Self::Aimd(Arc::new(ThreeCpoConfig::aimd())),
            "3cpo" => Self::ThreeCpo(Arc::new(ThreeCpoConfig::new())),
            _ => return Err(unknown("injection control", text, Self::NAMES, &[])),
        };
        tune(config, text)
    }

    /// Returns the limiter for `senders` sending hosts. A window of 0 becomes that of table 6.1;
    /// for a number of hosts between two columns, the column of the larger number applies.
    #[must_use]
    pub fn tuned_for(&self, senders: u32) -> Self {
        let column = TUNED.into_iter().find(|(most, _)| senders <= *most);
        match (self, column) {
            (Self::Window(OperationWindow { ops: 0 }), Some((_, ops))) => {
                Self::Window(OperationWindow { ops })
            }
            (Self::Window(OperationWindow { ops: 0 }), None) => {
                Self::Window(OperationWindow { ops: TUNED[TUNED.len() - 1].1 })
            }
            (config, _) => config.clone(),
        }
    }

    /// Returns every parameter of the limiter with its value.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        match self {
            Self::None => Vec::new(),
            Self::Window(window) => window.settings(),
            Self::Aimd(config) | Self::ThreeCpo(config) => config.settings(),
        }
    }
}

impl ByName for InjectionConfig {
    fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Window(_) => "window",
            Self::Aimd(_) => "aimd",
            Self::ThreeCpo(_) => "3cpo",
        }
    }

    fn settings(&self) -> Vec<Setting> {
        self.settings()
    }

    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
        match self {
            Self::None => None,
            Self::Window(window) => window.set(name, value),
            Self::Aimd(config) | Self::ThreeCpo(config) => Arc::make_mut(config).set(name, value),
        }
    }
}

/// State of the limiter of operations at one host.
#[derive(Clone, Debug)]
pub enum Injection {
    /// State of [`InjectionConfig::None`]: nothing limits.
    None,
    /// See [`InjectionConfig::Window`]: the limit of operations under way, and their number for each
    /// traffic class. An operation counts for the class of most of its flits.
    Window(u32, [u32; 2]),
    /// State of [`InjectionConfig::Aimd`] and [`InjectionConfig::ThreeCpo`]: tokens and watermarks.
    Tokens(Box<ThreeCpo>),
}

impl Injection {
    /// Creates the limiter of member `me` of a multicast group of `members`. A window must have
    /// been [tuned](InjectionConfig::tuned_for): a window of zero lets nothing through.
    #[must_use]
    pub fn new(config: &InjectionConfig, members: u16, me: u16) -> Self {
        match config {
            InjectionConfig::None => Self::None,
            InjectionConfig::Window(window) => Self::Window(window.ops, [0; 2]),
            InjectionConfig::Aimd(config) | InjectionConfig::ThreeCpo(config) => {
                Self::Tokens(Box::new(ThreeCpo::new(Arc::clone(config), members, me)))
            }
        }
    }

    /// Returns the first cycle in which an operation with most of its flits in `class` may leave if
    /// nothing happens until then; `u64::MAX` if it must wait for an event.
    #[must_use]
    pub fn ready_at(&self, class: FlitClass) -> u64 {
        match self {
            Self::None => 0,
            Self::Window(most, under_way) if under_way[class as usize] < *most => 0,
            Self::Window(..) => u64::MAX,
            Self::Tokens(tokens) => tokens.ready_at(),
        }
    }

    /// Records that an operation leaves in cycle `now`, see [`ThreeCpo::on_send`].
    pub fn on_send(&mut self, now: u64, flits: OperationFlits, multicast: bool) {
        match self {
            Self::None => {}
            Self::Window(_, under_way) => under_way[flits.main_class() as usize] += 1,
            Self::Tokens(tokens) => tokens.on_send(now, flits, multicast),
        }
    }

    /// Records that an operation of member `from` arrived, see [`ThreeCpo::on_remote`].
    pub fn on_remote(&mut self, now: u64, from: u16, flits: OperationFlits) {
        if let Self::Tokens(tokens) = self {
            tokens.on_remote(now, from, flits);
        }
    }

    /// Records that an operation was answered, see [`ThreeCpo::on_done`].
    pub fn on_done(&mut self, now: u64, sent: u64, flits: OperationFlits, multicast: bool) {
        match self {
            Self::None => {}
            Self::Window(_, under_way) => {
                let count = &mut under_way[flits.main_class() as usize];
                *count = count.saturating_sub(1);
            }
            Self::Tokens(tokens) => tokens.on_done(now, sent, flits, multicast),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const READ: OperationFlits = OperationFlits { request: 1, response: 9 };
    const WRITE: OperationFlits = OperationFlits { request: 9, response: 1 };

    #[test]
    fn names_and_parameters_are_read() {
        for (name, _) in InjectionConfig::NAMES {
            let config = InjectionConfig::by_name(name).expect(name);
            assert_eq!(ByName::name(&config), *name);
            // What it says it has can be set.
            for setting in config.settings() {
                let text = alloc::format!("{name}:{}={}", setting.name, setting.value);
                assert_eq!(InjectionConfig::by_name(&text), Ok(config.clone()), "{text}");
            }
        }
        let window = InjectionConfig::by_name("window:ops=12");
        assert_eq!(window, Ok(InjectionConfig::Window(OperationWindow { ops: 12 })));
        for (text, expected) in [
            ("4cpo", "no injection control is called \"4cpo\", allowed: none, window, aimd, 3cpo"),
            ("none:ops=1", "none has no parameter \"ops\""),
            ("window:ops=-1", "ops is -1, allowed: 1 to 1000000"),
            ("window:ops=1.5", "ops is 1.5"),
            ("3cpo:wm_min=1e5", "wm_min is"),
        ] {
            let error = InjectionConfig::by_name(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn hand_tuned_windows_are_those_of_table_6_1() {
        let window = InjectionConfig::by_name("window").expect("there is one");
        let ops = |senders| match window.tuned_for(senders) {
            InjectionConfig::Window(window) => window.ops,
            other => panic!("{other:?}"),
        };
        assert_eq!([64, 32, 16, 8, 4, 2, 1].map(ops), [3, 5, 12, 24, 48, 128, 128]);
        assert_eq!([128, 33, 3].map(ops), [3, 3, 48]);
        for text in ["window:ops=7", "3cpo", "none"] {
            let config = InjectionConfig::by_name(text).expect(text);
            assert_eq!(config.tuned_for(64), config);
        }
    }

    #[test]
    fn a_window_counts_reads_and_writes_apart() {
        let config = InjectionConfig::by_name("window:ops=2").expect("there is one");
        let mut window = Injection::new(&config, 4, 0);
        let ready = |window: &Injection| {
            [READ, WRITE].map(|flits| window.ready_at(flits.main_class()) == 0)
        };
        window.on_send(0, READ, true);
        window.on_send(1, READ, true);
        window.on_send(2, WRITE, true);
        assert_eq!(ready(&window), [false, true]);
        window.on_done(900, 2, WRITE, true);
        assert_eq!(ready(&window), [false, true]);
        window.on_done(901, 0, READ, true);
        assert_eq!(ready(&window), [true, true]);
    }
}
