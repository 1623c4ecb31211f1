//! Algorithms by name: `name[:key=value[,key=value..]]`, as a user writes it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::error::ConfigError;
use crate::tuning::Setting;

/// A name and one line about it.
pub type NameAndSummary = (&'static str, &'static str);

/// Why a choice in words cannot be followed.
#[derive(Clone, PartialEq, Debug)]
pub enum ChoiceError {
    /// No algorithm has this name.
    Name {
        /// What kind of algorithm was asked for.
        kind: &'static str,
        /// The name.
        asked: String,
        /// The names there are.
        allowed: &'static [NameAndSummary],
    },
    /// This build leaves the algorithm out.
    NotBuilt {
        /// The algorithm.
        name: &'static str,
        /// The cargo feature that brings it.
        feature: &'static str,
    },
    /// The algorithm has no such parameter.
    Parameter {
        /// The algorithm.
        algorithm: &'static str,
        /// The parameter's name, or what stands where one should.
        asked: String,
        /// The parameters it has.
        allowed: Vec<&'static str>,
    },
    /// A parameter's value is no number.
    Number {
        /// The algorithm.
        algorithm: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A parameter, or what is known of the network, is out of range.
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
            Self::Name { kind, asked, allowed } => {
                write!(f, "no {kind} is called \"{asked}\", allowed: ")?;
                list(f, allowed.iter().map(|named| named.0))
            }
            Self::NotBuilt { name, feature } => write!(
                f,
                "\"{name}\" is not in this build: built without {feature}; build with \"--features {feature}\""
            ),
            Self::Parameter { algorithm, asked, allowed } => {
                write!(f, "{algorithm} has no parameter \"{asked}\", allowed as key=value: ")?;
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

/// What can be set by name.
pub(crate) trait ByName {
    /// The algorithm's name.
    fn name(&self) -> &'static str;
    /// Its parameters.
    fn settings(&self) -> Vec<Setting>;
    /// Sets one.
    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>>;
}

/// The name of `name[:parameters]`.
pub(crate) fn name_of(text: &str) -> &str {
    text.split_once(':').map_or(text, |(name, _)| name).trim()
}

/// The refusal of a name that is none of `allowed`, or of those that the build left out with a feature.
pub(crate) fn unknown(
    kind: &'static str,
    text: &str,
    allowed: &'static [NameAndSummary],
    not_built: &'static [NameAndSummary],
) -> ChoiceError {
    let asked = name_of(text);
    match not_built.iter().find(|(name, _)| *name == asked) {
        Some((name, feature)) => ChoiceError::NotBuilt { name, feature },
        None => ChoiceError::Name { kind, asked: asked.to_string(), allowed },
    }
}

/// Applies the parameters of `name[:parameters]`, in order.
pub(crate) fn tune<C: ByName>(mut config: C, text: &str) -> Result<C, ChoiceError> {
    let parameters = text.split_once(':').map_or("", |(_, parameters)| parameters);
    for pair in parameters.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (name.trim(), value.trim());
        let algorithm = config.name();
        let settings = config.settings();
        let Some(setting) = settings.iter().find(|setting| setting.name == name) else {
            let allowed = settings.iter().map(|setting| setting.name).collect();
            return Err(ChoiceError::Parameter { algorithm, asked: name.to_string(), allowed });
        };
        let Setting { name: parameter, allowed, .. } = *setting;
        let Ok(number) = value.parse() else {
            let value = value.to_string();
            return Err(ChoiceError::Number { algorithm, parameter, value, allowed });
        };
        // Listed, so there is one to set.
        config.set(name, number).unwrap_or(Ok(()))?;
    }
    Ok(config)
}
