//! The error for a parameter whose value is out of range.

use core::fmt;

/// A parameter value with which no algorithm can run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConfigError {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Value that was requested.
    pub value: f64,
    /// Values that the parameter allows, in words.
    pub allowed: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, allowed: {}", self.parameter, self.value, self.allowed)
    }
}

impl core::error::Error for ConfigError {}

/// Returns `Ok` if `value` lies in `low..=high`; NaN never does.
pub(crate) fn within(
    parameter: &'static str,
    value: f64,
    low: f64,
    high: f64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(ConfigError { parameter, value, allowed })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_error_names_parameter_value_and_what_is_allowed() {
        let error = within("gamma", 1.5, 0.0, 1.0, "0 to 1").expect_err("out of range");
        assert_eq!(error.to_string(), "gamma is 1.5, allowed: 0 to 1");
        assert_eq!(within("gamma", 1.0, 0.0, 1.0, "0 to 1"), Ok(()));
        assert!(within("gamma", f64::NAN, 0.0, 1.0, "0 to 1").is_err());
    }
}
