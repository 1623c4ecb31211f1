//! The table of an algorithm's parameters: one line each, from which both setting by name and the
//! check of ranges follow.

/// Implements [`crate::Tunable`] for a configuration. A line is `kind field "name" (lowest,
/// highest, "allowed") "effect: default";`, with `lowest` and `highest` in the unit that a user
/// writes. Kinds are `number` (any numeric type), `time` (a `Span`, in microseconds), `rate` (a
/// `Rate`, in Mb/s) and `switch` (a `bool`). Before the lines come `special` parameters, which no
/// line can express, and `also`, a check of the whole configuration.
macro_rules! tunable {
    (
        $config:ty, special: [$($special:expr),*], also: $also:expr;
        $($kind:ident $field:ident $name:literal ($low:expr, $high:expr, $allowed:literal) $what:literal;)+
    ) => {
        impl $crate::tuning::Tunable for $config {
            const PARAMETERS: &'static [$crate::tuning::Parameter<Self>] = &[
                $($special,)*
                $($crate::tuning::Parameter {
                    name: $name,
                    what: $what,
                    allowed: $allowed,
                    get: |c| tunable!(@get $kind, c.$field),
                    set: |c, v| tunable!(@set $kind, c.$field, v),
                },)+
            ];

            fn check(&self) -> Result<(), $crate::ConfigError> {
                $(
                    let value: f64 = tunable!(@get $kind, self.$field);
                    // Widens the bounds by the rounding of single precision, so that a bound itself
                    // is allowed.
                    let (low, high) = ($low * (1.0 - 1e-6), $high * (1.0 + 1e-6));
                    $crate::error::within($name, value, low, high, $allowed)?;
                )+
                $also(self)
            }
        }
    };
    (@get number, $place:expr) => { f64::from($place) };
    (@get time, $place:expr) => { $crate::tuning::to_micros($place) };
    (@get rate, $place:expr) => { $place.0 as f64 / 1e6 };
    (@get switch, $place:expr) => { f64::from($place) };
    (@set number, $place:expr, $v:ident) => { $place = $v as _ };
    (@set time, $place:expr, $v:ident) => { $place = $crate::tuning::from_micros($v) };
    (@set rate, $place:expr, $v:ident) => { $place = squall_base::Rate(($v * 1e6 + 0.5) as u64) };
    (@set switch, $place:expr, $v:ident) => { $place = $v != 0.0 };
}
