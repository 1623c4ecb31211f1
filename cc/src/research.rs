//! The host side of algorithms that single papers describe and that need support in switches or at receivers: s-PERC and
//! 1RC, Dart, 3CPO.

mod dart;
mod injection;
mod sperc;
mod threecpo;

pub use dart::{Dart, DartConfig, DartParameters, DartReceiver};
pub use injection::{Injection, InjectionConfig, OperationWindow};
pub use sperc::{
    LinkVisit, Sperc, SpercConfig, SpercLink, SpercLinkParameters, WindowTable,
    WindowTableParameters,
};
pub use threecpo::{FlitClass, OperationFlits, ThreeCpo, ThreeCpoConfig, Throttle, ThrottleConfig};
