//! The checks of processes that run: those that sleep no longer hold the others back, and those that compute get a later
//! bound.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use squall_base::{Span, Time};
use squall_net::emulator::frame::{Deviation, DeviationKind};

use super::super::clock::clock;
use super::super::coordinator::Activity;
use super::VirtualProcesses;

/// Interval in real time at which the relay checks the processes that run.
pub(super) const CHECK_INTERVAL: Span = Span::millis(10);
/// Inverse of the largest share of its time that the relay spends on these checks.
const CHECK_SHARE: u64 = 10;
/// CPU time without a call after which the others no longer wait for a process, if computation
/// takes no virtual time, or no longer stop at its arrivals. The process may be polling memory that
/// another rank has to write.
const LONG_COMPUTATION: Span = Span::secs(2);
/// CPU time like [`LONG_COMPUTATION`], for a process in MPI_Finalize, which may be polling memory
/// that it shares with other ranks.
const LONG_ENDING: Span = Span::millis(20);
/// CPU time since a process resumed that counts as the provider's and not as computation.
const UNCERTAIN_CPU: Span = Span::millis(5);

/// CPU time and state of the threads of a process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadActivity {
    /// CPU time that each thread of the process has used, by its number.
    pub(super) cpu: BTreeMap<u32, Span>,
    /// All threads sleep: none runs, or waits for a disk.
    pub(super) asleep: bool,
}

/// Reads CPU time and state of the threads of a process. Returns `None` if it has ended.
pub(super) fn read_thread_activity(pid: u32) -> Option<ThreadActivity> {
    let (mut cpu, mut asleep) = (BTreeMap::new(), true);
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let path = thread.path();
        // A thread may end meanwhile.
        let Ok(schedule) = fs::read_to_string(path.join("schedstat")) else { continue };
        let used = schedule.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        let number = thread.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or(0);
        cpu.insert(number, Span(used));
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        asleep &= !matches!(state, Some('R' | 'D'));
    }
    Some(ThreadActivity { cpu, asleep })
}

/// Returns the longest CPU time that a thread has used since `before`: threads compute side by side.
pub(super) fn longest_computation(before: &BTreeMap<u32, Span>, now: &BTreeMap<u32, Span>) -> Span {
    let since = |(number, cpu): (&u32, &Span)| {
        cpu.saturating_sub(before.get(number).copied().unwrap_or(Span::ZERO))
    };
    now.iter().map(since).max().unwrap_or(Span::ZERO)
}

impl VirtualProcesses {
    /// Checks the processes that run, every 10 ms of real time. A process that sleeps in the kernel becomes outside, and the
    /// others no longer wait for it. A process that computes gets a later bound, so that the network can advance meanwhile.
    /// `read` returns the activity of the threads of a process by its number, or `None` if it has ended.
    pub(super) fn check_running_processes(
        &mut self,
        now: Time,
        read: &dyn Fn(u32) -> Option<ThreadActivity>,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        // While many processes start, a check takes longer than the interval.
        if now.since(self.checked_at) < CHECK_INTERVAL.max(Span(self.check_time.0 * CHECK_SHARE)) {
            return;
        }
        for number in 0..u32::try_from(self.processes.len()).unwrap_or(u32::MAX) {
            let activity = self.coordinator.processes[number as usize].activity;
            if !matches!(activity, Activity::Running(_)) {
                continue;
            }
            if !std::mem::replace(&mut self.processes[number as usize].ran_before, true) {
                continue;
            }
            let name = self.name(number);
            let started = self.coordinator.is_started();
            let info = &mut self.processes[number as usize];
            let Some(check) = read(info.pid) else { continue };
            let first_cpu = info.first_cpu.get_or_insert_with(|| check.cpu.clone());
            let cpu = longest_computation(first_cpu, &check.cpu);
            let still = check.asleep && info.last_check.as_ref() == Some(&check);
            info.last_check = Some(check);
            let long = Deviation { kind: DeviationKind::LongComputation, time: cpu };
            if still {
                self.set_outside(number, now);
            } else if self.rules.cpu_scale > 0 {
                // The relay cannot tell the provider's CPU time from the application's, so it
                // subtracts an allowance.
                let used = cpu.saturating_sub(UNCERTAIN_CPU).0 as u128;
                let virtual_ns = used * u128::from(self.rules.cpu_scale) / 1_000_000;
                let at = info.resumed + Span(u64::try_from(virtual_ns).unwrap_or(u64::MAX));
                // The program may be polling memory that another rank has to write.
                self.coordinator.raise_bound(number, at, cpu >= LONG_COMPUTATION);
                if cpu >= LONG_COMPUTATION && self.is_repeatable(number) {
                    self.processes[number as usize].note_deviation(long);
                }
            } else if cpu >= LONG_COMPUTATION && started || info.ending && cpu >= LONG_ENDING {
                if !info.ending && !std::mem::replace(&mut self.warned, true) {
                    report(format_args!(
                        "{name} has computed for {LONG_COMPUTATION} without a call, while computation takes no \
                         virtual time; the others no longer wait for it, so the run is not repeatable"
                    ));
                }
                if self.is_repeatable(number) {
                    self.processes[number as usize].note_deviation(long);
                }
                self.coordinator.set_absent(number, Activity::Outside);
            }
        }
        (self.checked_at, self.check_time) = (clock(), clock().since(now));
    }
}
