//! Requests to copy between the memory of a device and that of the host.

use core::fmt;

/// A driver's message about a copy that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyError(pub(super) String);

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyDirection {
    /// Into memory of the host.
    ToHost,
    /// Into the device's.
    ToDevice,
}

/// A copy: from or to `device`, an address of the device's, and `host`, one of the host's.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRequest {
    pub(super) direction: CopyDirection,
    pub(super) device: u64,
    pub(super) host: *mut u8,
    pub(super) len: usize,
}
