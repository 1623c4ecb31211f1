//! Variables as a job started from here would have them.

/// A variable of the environment; none when it is empty.
#[allow(clippy::disallowed_methods)] // the environment is what is examined
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
