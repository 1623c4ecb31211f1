//! Plays histories one after another, each of which may panic.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use super::{Amount, Finding};

thread_local! {
    /// The message of a panic of the current history; `None` without one.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Plays a history. A panic is a finding.
///
/// # Errors
/// Returns what is wrong with the history.
pub fn play(history: impl FnOnce() -> Result<Amount, Finding>) -> Result<Amount, Finding> {
    listen();
    SAID.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(history));
    let said = SAID.take().unwrap_or_default();
    result.unwrap_or_else(|_| {
        let kind = said.lines().next().unwrap_or("panic").to_owned();
        Err(Finding { kind, text: said })
    })
}

/// Records the messages of panics of histories; panics of other code are reported as before.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let kept = SAID.with_borrow_mut(|said| said.as_mut().map(|said| *said = text(info)));
            if kept.is_none() {
                before(info);
            }
        }));
    });
}

/// Returns the place of a panic in the first line, and its message.
fn text(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
    let payload = info.payload();
    let what = match payload.downcast_ref::<String>() {
        Some(what) => what.as_str(),
        None => payload.downcast_ref::<&str>().copied().unwrap_or_default(),
    };
    format!("panic at {}\n{what}", place.unwrap_or_default())
}
