//! The specification of the faults that a [`FaultPort`](super::FaultPort) injects.

use std::fmt;
use std::str::FromStr;

use crate::base::Span;
use crate::base::quantity::{parse_probability, parse_span};

/// The faults to inject and their rates. Every port draws from its own generator, so a run can be
/// reproduced as far as its packets arrive in the same order.
///
/// The text form is a comma-separated list:
///
/// ```text
/// loss=1%,reorder=2%,dup=0.5%,corrupt=0.1%,delay=50us..200us,trim=1%,trimsize=64,blackhole=3,seed=7
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FaultSpec {
    /// Probability, from 0 to 1, that a received packet is dropped.
    pub loss: f64,
    /// Probability, from 0 to 1, that a received packet is delivered twice.
    pub dup: f64,
    /// Probability that a received packet is held back until 1 to 8 later ones have overtaken it,
    /// or for a millisecond.
    pub reorder: f64,
    /// Probability that 1 to 4 neighbouring bits of a received packet are flipped, anywhere in the
    /// datagram.
    pub corrupt: f64,
    /// Probability that a received packet is cut to [`FaultSpec::trimsize`] bytes and marked with
    /// the trimmed DSCP, as a congested switch does. Only data packets that are longer are trimmed.
    pub trim: f64,
    /// UDP payload bytes that trimming leaves, at least 16. That is the longest delivery header and
    /// the recommended minimum of UET.
    pub trimsize: usize,
    /// Delay of each packet, drawn uniformly between the two values. Because packets are delayed
    /// independently, a range also reorders them.
    pub delay: Option<(Span, Span)>,
    /// Paths whose packets vanish when sent. The numbers are those of
    /// [`Datagram::path`](crate::base::Datagram), modulo the number of paths.
    pub blackhole: Vec<u16>,
    /// Seed of the random numbers that choose the packets which faults hit.
    pub seed: u64,
}

impl Default for FaultSpec {
    /// Returns a specification that injects no faults.
    fn default() -> Self {
        Self {
            loss: 0.0,
            dup: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            trim: 0.0,
            trimsize: 64,
            delay: None,
            blackhole: Vec::new(),
            seed: 1,
        }
    }
}

/// An error in a fault specification. Its text lists what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSpecError {
    /// The term of the specification that is wrong.
    pub term: String,
    /// Description of the values that are allowed in place of the term.
    pub expected: &'static str,
}

const KEYS: &str = "one of loss, reorder, dup, corrupt, trim (a probability each), trimsize (bytes), \
                    delay (a time or a range of times), blackhole (a path number), seed (a number), as \
                    in \"loss=1%,delay=50us..200us,blackhole=3,seed=7\"";
const PROBABILITY: &str = "a probability: 0.5% or 0.005, at most 100%";
const TIME: &str = "a time or a range of times with units ns, us, ms or s: 50us or 50us..2ms";

impl fmt::Display for FaultSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault specification: \"{}\" is not {}", self.term, self.expected)
    }
}

impl std::error::Error for FaultSpecError {}

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<Self, FaultSpecError> {
        let mut spec = Self::default();
        for term in text.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let wrong = |expected| FaultSpecError { term: term.into(), expected };
            let (key, value) = term.split_once('=').ok_or_else(|| wrong(KEYS))?;
            let value = value.trim();
            let p = || parse_probability(value).ok_or_else(|| wrong(PROBABILITY));
            match key.trim() {
                "loss" | "drop" => spec.loss = p()?,
                "dup" | "duplicate" => spec.dup = p()?,
                "reorder" => spec.reorder = p()?,
                "corrupt" => spec.corrupt = p()?,
                "trim" => spec.trim = p()?,
                "trimsize" => {
                    spec.trimsize = value
                        .parse()
                        .ok()
                        .filter(|n| *n >= 16)
                        .ok_or_else(|| wrong("a length of at least 16 bytes"))?;
                }
                "delay" => spec.delay = Some(range(value).ok_or_else(|| wrong(TIME))?),
                "blackhole" => spec
                    .blackhole
                    .push(value.parse().map_err(|_| wrong("the number of a path, 0 to 65535"))?),
                "seed" => {
                    spec.seed = value.parse().map_err(|_| wrong("a number of 64 bits"))?;
                }
                _ => return Err(wrong(KEYS)),
            }
        }
        Ok(spec)
    }
}

fn range(text: &str) -> Option<(Span, Span)> {
    let (low, high) = match text.split_once("..") {
        Some((low, high)) => (time(low)?, time(high)?),
        None => (time(text)?, time(text)?),
    };
    (low <= high).then_some((low, high))
}

fn time(text: &str) -> Option<Span> {
    // One hour is longer than any timeout of the transport.
    parse_span(text).filter(|span| *span <= Span::secs(3600))
}
