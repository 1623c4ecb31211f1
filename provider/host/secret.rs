//! Random bits from the system: for instance numbers, which distinguish endpoints of one address, and for secrets,
//! which nobody outside the job may guess.

use squall_base::{Instance, SecretRng};

use crate::abi::errno::{Errno, Result};

/// Returns random bytes of the system for `purpose`. There is no other source to fall back to: values of clocks and
/// process numbers can be guessed, and repeat on other hosts.
///
/// # Errors
/// The system's error, with a warning.
fn bytes<const N: usize>(purpose: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        log::warn!(
            "no random bits for {purpose}: {error}; the system must allow getrandom(2) (is a sandbox in the way?)"
        );
        error.raw_os_error().map_or(Errno::OTHER, Errno)
    })?;
    Ok(bytes)
}

/// Draws a random instance number for an endpoint.
///
/// # Errors
/// The system's error, if it gives no random bits.
pub(crate) fn instance() -> Result<Instance> {
    loop {
        let drawn = bytes("an endpoint's instance").map(u32::from_ne_bytes)?;
        if let Some(instance) = Instance::new(drawn) {
            return Ok(instance);
        }
    }
}

/// Returns a random seed for uses that need not be secret.
///
/// # Errors
/// The system's error, if it gives no random bits.
pub(crate) fn seed() -> Result<u64> {
    bytes("an endpoint's timers and paths").map(u64::from_ne_bytes)
}

/// Returns a generator of secrets for `purpose`, seeded by the system.
///
/// # Errors
/// The system's error, if it gives no random bits.
pub(crate) fn generator(purpose: &str) -> Result<SecretRng> {
    bytes(purpose).map(SecretRng::from_seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        assert_ne!(instance(), instance());
        assert_ne!(seed(), seed());
        let first = || generator("a test").map(|mut rng| rng.next_u64());
        assert_ne!(first(), first());
    }
}
