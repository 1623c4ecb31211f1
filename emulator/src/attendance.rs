//! Records which endpoints attached to an emulator, and which ranks of the job never did.

use std::collections::BTreeSet;

use squall_net::emulator::frame::Hello;

/// Number of refusals whose reasons are kept, so that a job with many refused ranks uses little
/// memory.
const KEPT: usize = 8;

/// The endpoints that attached, and their ranks where the launcher gave them one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attendance {
    endpoints: u64,
    ranks: BTreeSet<u32>,
    /// Largest number of ranks that any endpoint reported for its job.
    expected: u32,
    refused: Vec<String>,
}

impl Attendance {
    /// Counts an endpoint that attached, and notes its rank and the size of its job.
    pub fn attached(&mut self, hello: &Hello) {
        self.endpoints += 1;
        self.ranks.extend(hello.job_rank.rank);
        self.expected = self.expected.max(hello.job_rank.ranks.unwrap_or(0));
    }

    /// Records why an endpoint was refused; only the first `KEPT` different reasons are kept.
    pub fn refused(&mut self, why: &str) {
        if self.refused.len() < KEPT && !self.refused.iter().any(|kept| kept == why) {
            self.refused.push(why.to_owned());
        }
    }

    /// Returns how many endpoints have attached to the emulator.
    #[must_use]
    pub const fn endpoints(&self) -> u64 {
        self.endpoints
    }

    /// Returns how many ranks attached and how many the job has; the latter is zero if no launcher
    /// reported it.
    #[must_use]
    pub fn ranks(&self) -> (usize, u32) {
        (self.ranks.len(), self.expected)
    }

    /// Returns the ranks of the job that never attached, in ascending order.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        (0..self.expected).filter(|rank| !self.ranks.contains(rank)).collect()
    }

    /// Returns why endpoints were refused: the first reasons, in order.
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
            let job_rank = JobRank { rank: Some(rank), ranks: Some(4) };
            attendance.attached(&Hello { addr, host: None, process: 1, job_rank });
        }
        assert_eq!(
            (attendance.endpoints(), attendance.ranks(), attendance.missing()),
            (3, (2, 4), vec![1, 3])
        );
        attendance.refused("host 9");
        attendance.refused("host 9");
        assert_eq!(attendance.refusals(), ["host 9"], "a reason is listed once");
    }
}
