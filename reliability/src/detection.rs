//! Loss detectors: the signs by which a sender concludes that a packet was lost.

use core::fmt;
use core::str::FromStr;

/// A set of loss detectors. The sender retransmits a packet when one of them reports it lost. A
/// detector that is not in the set reports nothing, so that each can be studied alone.
///
/// The text form is a list of names with commas between, such as `trim,ooo,path,probe,rto`, or
/// `all`, or `none`. Without `rto` the retransmission timer stays as the last resort at ten times
/// its setting, so that no transfer hangs.
///
/// Refusals that are not losses (a receiver that is not ready, a packet outside of its window)
/// always make the sender retransmit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LossDetection {
    /// `trim`: the peer reports by a NACK that a switch trimmed a packet's payload. Without this
    /// detector such a NACK only shows that the peer is alive.
    pub trim: bool,
    /// `ooo`: the receiver's count of packets out of order is too large (STrack section 3.3.2;
    /// SLEEK, uet-htsim `runSleek`).
    pub out_of_order: bool,
    /// `path`: several packets arrived that left later on the same path. It does not suit networks
    /// that send packets of one entropy over several paths (adaptive routing in switches).
    pub overtaken: bool,
    /// `probe`: the sender asks the peer after a silence, and packets that the answer does not show
    /// are lost (STrack algorithm 1, lines 12 to 15).
    pub probe: bool,
    /// `rto`: a packet was in flight for longer than the retransmission timeout (UE 1.0 section
    /// 3.5.12).
    pub rto: bool,
}

impl LossDetection {
    /// The set of all loss detectors.
    pub const ALL: Self =
        Self { trim: true, out_of_order: true, overtaken: true, probe: true, rto: true };
    /// The empty set: only the last resort of the retransmission timer remains.
    pub const NONE: Self =
        Self { trim: false, out_of_order: false, overtaken: false, probe: false, rto: false };
    /// The name of each detector and the sign of loss that it uses.
    pub const NAMES: &'static [(&'static str, &'static str)] = &[
        ("trim", "NACKs of packets that a switch trimmed"),
        ("ooo", "the receiver's out-of-order count"),
        ("path", "the arrival of later packets on the same path"),
        ("probe", "the answer to a probe sent after three silent round trips"),
        ("rto", "the retransmission timer"),
    ];

    /// Returns whether a detector can recognise that a path lost a packet, as opposed to a switch
    /// that dropped it for lack of buffer. A path selector that avoids broken paths needs such a
    /// detector. The detector `path` is none, because nothing overtakes on a broken path.
    #[must_use]
    pub const fn can_detect_path_loss(self) -> bool {
        self.out_of_order || self.probe || self.rto
    }

    fn named_flags(&self) -> [(&'static str, bool); 5] {
        [
            (Self::NAMES[0].0, self.trim),
            (Self::NAMES[1].0, self.out_of_order),
            (Self::NAMES[2].0, self.overtaken),
            (Self::NAMES[3].0, self.probe),
            (Self::NAMES[4].0, self.rto),
        ]
    }
}

impl Default for LossDetection {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for LossDetection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, _) in self.named_flags().into_iter().filter(|(_, on)| *on) {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// Error: a name in a list of loss detectors is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDetector {
    /// The name that was given and is no loss detector.
    pub given: String,
}

impl fmt::Display for UnknownDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no loss detector {:?}; allowed: any of ", self.given)?;
        for (name, _) in LossDetection::NAMES {
            write!(f, "{name}, ")?;
        }
        f.write_str("with commas between, or all, or none")
    }
}

impl core::error::Error for UnknownDetector {}

impl FromStr for LossDetection {
    type Err = UnknownDetector;

    fn from_str(text: &str) -> Result<Self, UnknownDetector> {
        match text.trim() {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        let mut set = Self::NONE;
        for name in text.split(',').map(str::trim) {
            match name {
                "trim" => set.trim = true,
                "ooo" => set.out_of_order = true,
                "path" => set.overtaken = true,
                "probe" => set.probe = true,
                "rto" => set.rto = true,
                _ => return Err(UnknownDetector { given: name.to_owned() }),
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_written_as_it_is_read() {
        for bits in 0..32u8 {
            let on = |bit: u8| bits & (1 << bit) != 0;
            let (probe, rto) = (on(2), on(3));
            let set =
                LossDetection { trim: on(0), out_of_order: on(1), overtaken: on(4), probe, rto };
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert_eq!(" rto , trim ".parse::<LossDetection>().unwrap().to_string(), "trim,rto");
        assert_eq!("all".parse(), Ok(LossDetection::ALL));
        assert_eq!("none".parse(), Ok(LossDetection::NONE));
    }

    #[test]
    fn unknown_detectors_are_refused_with_the_allowed_names() {
        for text in ["", "trim,", "order", "ooo,all", "Trim"] {
            let error = text.parse::<LossDetection>().unwrap_err();
            let said = error.to_string();
            for (name, _) in LossDetection::NAMES {
                assert!(said.contains(name), "{said}");
            }
        }
    }
}
