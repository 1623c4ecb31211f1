//! The whole engine on the whole network model, in virtual time: random operations between four hosts of
//! a leaf-spine whose links slow down, break, swallow and damage packets, while processes crash and come
//! back. Whatever happens, every operation of a living process ends exactly once; what arrived is what
//! was sent, byte for byte and once; and between processes that never crashed everything succeeds.
//!
//! A history is a function of its seed. To see one again:
//!
//! ```text
//! SQUALL_SEED=123 cargo test --release -p squall-emulator --test tests whole_engine -- --nocapture
//! ```
//!
//! and to see more of them, `SQUALL_SEEDS=100000`, from `SQUALL_SEED` on or from the first.

mod history;
mod hole;
mod switch_signals;
mod world;

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Histories per run. `ci/nightly` plays more.
const SEEDS: u64 = 400;

/// What the environment asks for.
#[allow(clippy::disallowed_methods)] // which history to see is not a parameter of the provider
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[test]
fn every_operation_ends_once_and_every_byte_is_right() {
    let first = number("SQUALL_SEED");
    let seeds = number("SQUALL_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(0);
    let last = first.saturating_add(seeds);
    let next = AtomicU64::new(first);
    let broken = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    let totals = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut total = history::Totals::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= last {
                            return total;
                        }
                        match catch_unwind(|| history::run(seed, last - first == 1)) {
                            Ok(history) => total.add(&history),
                            Err(_) => broken.lock().expect("whole").push(seed),
                        }
                    }
                })
            })
            .collect();
        let mut total = history::Totals::default();
        for worker in workers {
            total.add(&worker.join().expect("a thread that catches panics"));
        }
        total
    });
    eprintln!("{} histories: {totals:?}", last - first);
    let broken = broken.into_inner().expect("whole");
    assert!(broken.is_empty(), "of {} histories these failed: {broken:?}", last - first);
    if last - first > 50 {
        // The histories are worth something.
        assert!(totals.crashes > 0 && totals.restarts > 0 && totals.failures > 0);
        assert!(totals.succeeded > 5 * totals.failed && totals.failed > 0);
        assert!(totals.retransmitted > 0 && totals.trimmed > 0 && totals.lost > 0);
    }
}
