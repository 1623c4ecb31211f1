//! Times that the ranks of a simulated job computed, communicated and waited.

use serde::{Deserialize, Serialize};

use super::matching::{Activity, replay};
use super::{Kind, ScheduledJob};
use crate::Picos;

/// Times of a message between hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageTimes {
    /// Time at which the message began to leave.
    pub started: Picos,
    /// Time at which its sender knew that everything arrived.
    pub sent: Picos,
    /// Time at which its last byte arrived.
    pub arrived: Picos,
}

/// Times of a job, in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct JobTimes {
    /// Time until the last operation of the job ended.
    pub lasted_us: f64,
    /// Time that the job would take over a network without delays.
    pub without_network_us: f64,
    /// Times of each rank, in the order of ranks.
    pub ranks: Vec<RankTimes>,
}

/// Times of a rank, in microseconds. Their sum is how long the job lasted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RankTimes {
    /// Time during which a processor of the rank computed.
    pub computing_us: f64,
    /// Time during which none did, and a message to or from the rank was on its way: exposed
    /// communication.
    pub exposed_us: f64,
    /// Remaining time.
    pub waiting_us: f64,
    /// Times at which the rank begins to wait (0), to communicate (1) or to compute (2), with that
    /// number. Recorded for at most 16 evenly spaced ranks, with at most 2048 changes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<(f64, u8)>,
}

/// Number of ranks that have a timeline, and its maximum length.
const TIMELINES: usize = 16;
const CHANGES: usize = 2048;

impl JobTimes {
    /// Returns the share of the job's time that it would not take over a network without delays.
    #[must_use]
    pub fn network_share(&self) -> f64 {
        if self.lasted_us > 0.0 { 1.0 - self.without_network_us / self.lasted_us } else { 0.0 }
    }
}

/// Joins intervals that overlap or touch, and sorts them.
fn join(intervals: &mut Vec<(Picos, Picos)>) {
    intervals.sort_unstable();
    intervals.dedup_by(|next, before| {
        let joins = next.0 <= before.1;
        if joins {
            before.1 = before.1.max(next.1);
        }
        joins
    });
}

/// Returns the length of intervals that do not overlap.
fn length(intervals: &[(Picos, Picos)]) -> Picos {
    intervals.iter().fold(Picos::ZERO, |sum, &(from, to)| sum + to.since(from))
}

/// Returns the changes between waiting, communicating and computing: see [`RankTimes::timeline`].
fn timeline(computing: &[(Picos, Picos)], busy: &[(Picos, Picos)]) -> Vec<(f64, u8)> {
    // What computes is busy, too, so that the sum of both is what the rank does.
    let steps = computing.iter().chain(busy);
    let mut steps: Vec<(Picos, i8)> = steps.flat_map(|&(from, to)| [(from, 1), (to, -1)]).collect();
    steps.sort_unstable();
    let mut changes = vec![(Picos::ZERO, 0i8)];
    for (at, step) in steps {
        let now = changes[changes.len() - 1];
        if now.0 == at {
            changes.pop();
        } else if changes.len() == CHANGES {
            break;
        }
        changes.push((at, now.1 + step));
    }
    changes.dedup_by_key(|change| change.1);
    changes.into_iter().map(|(at, what)| (at.as_micros(), what.unsigned_abs())).collect()
}

impl ScheduledJob {
    /// Returns the times of the job and its ranks, from the times of its messages in the order of
    /// the workload's flows.
    #[must_use]
    pub fn times(&self, messages: &[MessageTimes]) -> JobTimes {
        let ranks = self.schedule.ranks as usize;
        let mut computing: Vec<Vec<(Picos, Picos)>> = vec![Vec::new(); ranks];
        let mut busy = computing.clone();
        let lasted = replay(
            &self.schedule,
            &self.placement,
            &self.matched,
            messages,
            &mut |rank, activity, from, to| {
                if to > from {
                    busy[rank as usize].push((from, to));
                    if activity == Activity::Computes {
                        computing[rank as usize].push((from, to));
                    }
                }
            },
        );
        let times = (0..).zip(computing.iter_mut().zip(&mut busy));
        let times = times.map(|(rank, (computing, busy))| {
            join(computing);
            join(busy);
            let is_shown = rank % ranks.div_ceil(TIMELINES).max(1) == 0;
            let timeline = if is_shown { timeline(computing, busy) } else { Vec::new() };
            let (computing, busy) = (length(computing), length(busy));
            RankTimes {
                computing_us: computing.as_micros(),
                exposed_us: busy.since(computing).as_micros(),
                waiting_us: lasted.since(busy).as_micros(),
                timeline,
            }
        });
        JobTimes {
            lasted_us: lasted.as_micros(),
            without_network_us: self.lasts().as_micros(),
            ranks: times.collect(),
        }
    }

    /// Returns the rank that sends and the rank that receives the message of each flow.
    #[must_use]
    pub fn ranks_of_flows(&self) -> Vec<(u32, u32)> {
        let ends = |of: &super::Operation| match of.kind {
            Kind::Send { to, .. } if !self.placement.is_inner(of.rank, to) => Some((of.rank, to)),
            _ => None,
        };
        self.schedule.operations.iter().filter_map(ends).collect()
    }
}
