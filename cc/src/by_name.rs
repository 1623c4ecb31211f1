//! Choice of algorithms by name, as a user writes it: `name[:key=value[,key=value..]]`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::error::ConfigError;
use crate::tuning::Setting;

/// Name by which a user chooses an algorithm or a scope, and a one-line description.
pub type NameAndSummary = (&'static str, &'static str);

/// Reason why a user's choice of an algorithm or a scope by name was refused.
#[derive(Clone, PartialEq, Debug)]
pub enum ChoiceError {
    /// Nothing of this kind has the requested name.
    Name {
        /// Kind of algorithm that was asked for, such as "congestion control".
        kind: &'static str,
        /// Name that the user asked for.
        requested: String,
        /// Names of this kind that exist.
        allowed: &'static [NameAndSummary],
    },
    /// The algorithm exists, but a cargo feature that includes it is off in this build.
    NotBuilt {
        /// Name of the algorithm.
        name: &'static str,
        /// Cargo feature that includes it.
        feature: &'static str,
    },
    /// The algorithm has no such parameter.
    Parameter {
        /// Name of the algorithm.
        algorithm: &'static str,
        /// Name of the requested parameter, or the text that was given in its place.
        requested: String,
        /// Names of the parameters that the algorithm has.
        allowed: Vec<&'static str>,
    },
    /// The text given as value of a parameter is not a number.
    Number {
        /// Name of the algorithm.
        algorithm: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
        /// Text that was given as value.
        value: String,
        /// Values that the parameter allows, in words.
        allowed: &'static str,
    },
    /// A parameter, or a property of the network, is out of range.
    Range(ConfigError),
}

impl From<ConfigError> for ChoiceError {
    fn from(error: ConfigError) -> Self {
        Self::Range(error)
    }
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { kind, requested, allowed } => {
                write!(f, "no {kind} is called \"{requested}\", allowed: ")?;
                list(f, allowed.iter().map(|named| named.0))
            }
            Self::NotBuilt { name, feature } => write!(
                f,
                "\"{name}\" is not in this build: built without {feature}; build with \"--features {feature}\""
            ),
            Self::Parameter { algorithm, requested, allowed } => {
                write!(f, "{algorithm} has no parameter \"{requested}\", allowed as key=value: ")?;
                list(f, allowed.iter().copied())
            }
            Self::Number { algorithm, parameter, value, allowed } => write!(
                f,
                "{algorithm}: {parameter} is \"{value}\", which is no number, allowed: {allowed}"
            ),
            Self::Range(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ChoiceError {}

fn list<'a>(
    f: &mut fmt::Formatter<'_>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), fmt::Error> {
    for (i, name) in names.enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        f.write_str(name)?;
    }
    Ok(())
}

/// A configuration whose parameters can be set by name.
pub(crate) trait ByName {
    /// Returns the algorithm's name.
    fn name(&self) -> &'static str;
    /// Returns every parameter with its current value.
    fn settings(&self) -> Vec<Setting>;
    /// Sets the parameter `name`; returns `None` if there is none of this name.
    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>>;
}

/// Returns the algorithm's name in `name[:parameters]`.
pub(crate) fn name_of(text: &str) -> &str {
    text.split_once(':').map_or(text, |(name, _)| name).trim()
}

/// Returns the error for a name that is not among `allowed`, or that a missing cargo feature leaves
/// out.
pub(crate) fn unknown(
    kind: &'static str,
    text: &str,
    allowed: &'static [NameAndSummary],
    not_built: &'static [NameAndSummary],
) -> ChoiceError {
    let requested = name_of(text);
    match not_built.iter().find(|(name, _)| *name == requested) {
        Some((name, feature)) => ChoiceError::NotBuilt { name, feature },
        None => ChoiceError::Name { kind, requested: requested.to_string(), allowed },
    }
}

/// Sets the parameters that follow the name in `name[:parameters]`, in order.
pub(crate) fn tune<C: ByName>(mut config: C, text: &str) -> Result<C, ChoiceError> {
    let parameters = text.split_once(':').map_or("", |(_, parameters)| parameters);
    for pair in parameters.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (name.trim(), value.trim());
        let algorithm = config.name();
        let settings = config.settings();
        let Some(setting) = settings.iter().find(|setting| setting.name == name) else {
            let allowed = settings.iter().map(|setting| setting.name).collect();
            return Err(ChoiceError::Parameter { algorithm, requested: name.to_string(), allowed });
        };
        let Setting { name: parameter, allowed, .. } = *setting;
        let Ok(number) = value.parse() else {
            let value = value.to_string();
            return Err(ChoiceError::Number { algorithm, parameter, value, allowed });
        };
        // The parameter was found in the list above, so `set` finds it, too.
        config.set(name, number).unwrap_or(Ok(()))?;
    }
    Ok(config)
}
