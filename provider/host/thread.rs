//! The function that starts the provider's threads.

use std::thread::JoinHandle;

/// Starts a named thread that gets none of the application's signals.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    // SAFETY: a `sigset_t` is an array of integers, for which zero is a value; the calls write one set
    // each, into local variables, and `SIG_SETMASK` with a full set is allowed in any thread (the signals
    // that cannot be blocked are left out). The mask that was in effect is put back below.
    let before = unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    // SAFETY: `before` is the mask that pthread_sigmask wrote above, read during the call; NULL asks for
    // no old one.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
    thread
}
