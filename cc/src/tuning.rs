//! Parameters by name: the values of an algorithm that a user may change, as one table beside its
//! configuration.

use alloc::vec::Vec;

use squall_base::Span;

use crate::error::ConfigError;

/// One parameter of a configuration `C`. Numbers are in the user's units: times in microseconds,
/// sizes in bytes, switches 0 or 1, and `inf` for "never" or "no limit" where that is allowed.
#[derive(Debug)]
pub struct Parameter<C> {
    /// Name of the parameter: lower case, words joined by `_`, with `_us` at the end of a time.
    pub name: &'static str,
    /// Effect of the parameter with its default and source, in half a line.
    pub what: &'static str,
    /// Values that the parameter allows, in words.
    pub allowed: &'static str,
    /// Returns the parameter's value in the user's unit.
    pub get: fn(&C) -> f64,
    /// Writes the value. The field may saturate or round a value that it cannot hold:
    /// [`Tunable::set`] reads it back and refuses a value that changed.
    pub set: fn(&mut C, f64),
}

/// A parameter and its value, for printed lists.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setting {
    /// Name of the parameter, see [`Parameter::name`].
    pub name: &'static str,
    /// Effect of the parameter, see [`Parameter::what`].
    pub what: &'static str,
    /// Values that the parameter allows, see [`Parameter::allowed`].
    pub allowed: &'static str,
    /// Current value of the parameter, in the user's unit.
    pub value: f64,
}

/// A configuration whose parameters can be read and set by name.
pub trait Tunable: Sized + 'static {
    /// Table of the parameters. Each of them is also a public field.
    const PARAMETERS: &'static [Parameter<Self>];

    /// Checks that the algorithm can run on these values.
    ///
    /// # Errors
    /// Returns the first parameter that is out of its range.
    fn check(&self) -> Result<(), ConfigError>;

    /// Sets one parameter by name and checks the whole configuration; returns `None` if there is no
    /// such parameter. After an error the configuration must not be used.
    ///
    /// # Errors
    /// Returns the parameter whose value is not allowed.
    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
        let parameter = Self::PARAMETERS.iter().find(|parameter| parameter.name == name)?;
        (parameter.set)(self, value);
        let is = (parameter.get)(self);
        // Most fields are single precision, so the value read back may differ by their rounding.
        let close = value.is_finite() && (is - value).abs() <= 1e-6 * value.abs();
        let arrived = is == value || close;
        let refused = ConfigError { parameter: parameter.name, value, allowed: parameter.allowed };
        Some(if arrived { self.check() } else { Err(refused) })
    }

    /// Returns every parameter with its current value.
    fn settings(&self) -> Vec<Setting> {
        let setting = |parameter: &Parameter<Self>| Setting {
            name: parameter.name,
            what: parameter.what,
            allowed: parameter.allowed,
            value: (parameter.get)(self),
        };
        Self::PARAMETERS.iter().map(setting).collect()
    }
}

/// Returns a time in microseconds; infinite for [`Span::MAX`].
pub(crate) const fn to_micros(span: Span) -> f64 {
    if span.0 == u64::MAX { f64::INFINITY } else { span.as_f64() / 1e3 }
}

/// Converts microseconds to a span, to the nanosecond; infinity becomes [`Span::MAX`]. A value that
/// is not a time (negative, NaN) becomes zero, which [`Tunable::set`] then refuses.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; `set` reads it back
pub(crate) const fn from_micros(micros: f64) -> Span {
    // Rounds half up, because core has no `round`.
    Span((micros * 1e3 + 0.5) as u64)
}

/// Defines a parameter that is a `bool` field: `switch!("name", field, "what: default")`.
macro_rules! switch {
    ($name:literal, $field:ident, $what:literal) => {
        $crate::tuning::Parameter {
            name: $name,
            what: $what,
            allowed: "0 or 1",
            get: |c| if c.$field { 1.0 } else { 0.0 },
            set: |c, v| c.$field = v != 0.0,
        }
    };
}

/// Defines a parameter that is a numeric field: `number!(field: f32, "what: default", "allowed")`.
macro_rules! number {
    ($field:ident: $type:ty, $what:literal, $allowed:expr) => {
        $crate::tuning::Parameter {
            name: stringify!($field),
            what: $what,
            allowed: $allowed,
            get: |c| c.$field as f64,
            set: |c, v| c.$field = v as $type,
        }
    };
}

/// Defines a parameter that is a [`Span`] field: `time!("name_us", field, "what: default",
/// "allowed")`.
macro_rules! time {
    ($name:literal, $field:ident, $what:literal, $allowed:expr) => {
        $crate::tuning::Parameter {
            name: $name,
            what: $what,
            allowed: $allowed,
            get: |c| $crate::tuning::to_micros(c.$field),
            set: |c, v| c.$field = $crate::tuning::from_micros(v),
        }
    };
}

pub(crate) use {number, switch, time};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::within;

    #[derive(Default)]
    struct Two {
        time: Span,
        switch: bool,
        small: u8,
    }

    impl Tunable for Two {
        const PARAMETERS: &'static [Parameter<Self>] = &[
            time!("time_us", time, "a time", "up to 1000, or inf"),
            switch!("switch", switch, "a switch"),
            number!(small: u8, "a byte", "0 to 100, whole"),
        ];

        fn check(&self) -> Result<(), ConfigError> {
            within("small", f64::from(self.small), 0.0, 100.0, "0 to 100, whole")
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let allowed = |name: &str, value| Two::default().set(name, value).map(|r| r.is_ok());
        for (name, value, ok) in [
            ("time_us", 12.5, true),
            ("time_us", f64::INFINITY, true),
            ("time_us", 0.001, true),
            ("time_us", 0.000_1, false),
            ("time_us", -1.0, false),
            ("time_us", f64::NAN, false),
            ("switch", 0.0, true),
            ("switch", 1.0, true),
            ("switch", 0.5, false),
            ("switch", f64::NAN, false),
            ("small", 100.0, true),
            ("small", 101.0, false),
            ("small", 256.0, false),
            ("small", -1.0, false),
            ("small", 2.5, false),
        ] {
            assert_eq!(allowed(name, value), Some(ok), "{name}={value}");
        }
        assert_eq!(allowed("large", 1.0), None);
        let mut two = Two::default();
        assert_eq!(two.set("time_us", 12.5), Some(Ok(())));
        assert_eq!((two.time, two.settings()[0].value), (Span(12_500), 12.5));
        assert_eq!((from_micros(f64::INFINITY), to_micros(Span::MAX)), (Span::MAX, f64::INFINITY));
    }
}
