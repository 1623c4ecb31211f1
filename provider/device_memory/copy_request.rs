//! Requests to copy between the memory of a device and that of the host.

use core::fmt;

/// The message of a device driver about a copy that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyError(pub(super) String);

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Direction of a copy between device memory and host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyDirection {
    /// The copy goes from device memory to host memory.
    ToHost,
    /// The copy goes from host memory to device memory.
    ToDevice,
}

/// A request to copy between `device`, an address in device memory, and `host`, an address in host memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRequest {
    pub(super) direction: CopyDirection,
    pub(super) device: u64,
    pub(super) host: *mut u8,
    pub(super) len: usize,
}
