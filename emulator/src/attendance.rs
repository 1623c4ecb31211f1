//! Who attached to an emulator while it ran.

use std::collections::BTreeSet;

use squall_net::emulator::frame::Hello;

/// Refusals that are remembered with their reasons.
const KEPT: usize = 8;

/// The endpoints that came, by rank as far as launchers gave them one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attendance {
    endpoints: u64,
    ranks: BTreeSet<u32>,
    /// The most ranks that anybody said there are.
    expected: u32,
    refused: Vec<String>,
}

impl Attendance {
    /// An endpoint attached.
    pub fn attached(&mut self, hello: &Hello) {
        self.endpoints += 1;
        self.ranks.extend(hello.member.rank);
        self.expected = self.expected.max(hello.member.ranks.unwrap_or(0));
    }

    /// One was refused.
    pub fn refused(&mut self, why: &str) {
        if self.refused.len() < KEPT {
            self.refused.push(why.to_owned());
        }
    }

    /// How many endpoints attached.
    #[must_use]
    pub const fn endpoints(&self) -> u64 {
        self.endpoints
    }

    /// How many ranks attached, and how many there were to be; zero where no launcher said so.
    #[must_use]
    pub fn ranks(&self) -> (usize, u32) {
        (self.ranks.len(), self.expected)
    }

    /// Ranks that there were to be and that never attached.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        (0..self.expected).filter(|rank| !self.ranks.contains(rank)).collect()
    }

    /// Why endpoints were refused, the first of them.
    #[must_use]
    pub fn refusals(&self) -> &[String] {
        &self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_net::emulator::frame::JobRank;

    #[test]
    fn who_did_not_come_is_missing() {
        let mut attendance = Attendance::default();
        assert!(attendance.missing().is_empty(), "nobody said how many there are");
        let addr = "127.0.0.1:1".parse().expect("literal");
        for rank in [2, 0, 2] {
            let member = JobRank { rank: Some(rank), ranks: Some(4) };
            attendance.attached(&Hello { addr, host: None, process: 1, member });
        }
        assert_eq!(
            (attendance.endpoints(), attendance.ranks(), attendance.missing()),
            (3, (2, 4), vec![1, 3])
        );
        attendance.refused("host 9");
        assert_eq!(attendance.refusals(), ["host 9"]);
    }
}
