//! Names for user memory. The transport passes them from the application's call to the system call
//! and never touches the memory itself.

/// The number of a registered memory region. No two open regions of a domain have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegionId(pub u32);

impl RegionId {
    /// No region: the application lends the memory to one operation, until that operation
    /// completes.
    pub const LENT: Self = Self(0);
}

/// The kind of memory that an address belongs to: host memory, or the memory of a device, which the
/// CPU must not touch. The code that manages the device memory assigns the number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Space(pub u32);

impl Space {
    /// Host memory, which the CPU and the kernel may read and write.
    pub const HOST: Self = Self(0);

    /// Returns whether the CPU may touch the memory.
    #[must_use]
    #[inline]
    pub const fn is_host(self) -> bool {
        self.0 == 0
    }
}

/// A contiguous piece of user memory. In the provider the address is a virtual address of the
/// process; in the simulator it is an offset.
///
/// A `UserSlice` is a name and not a reference. The application may write to the memory at any
/// time, so only the kernel and raw copies may access it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserSlice {
    /// Address of the first byte: virtual in the provider, an offset in the simulator.
    pub base: u64,
    /// Length of the piece of memory in bytes.
    pub len: u64,
    /// Registered region that contains the memory, or [`RegionId::LENT`].
    pub region: RegionId,
    /// Kind of memory that the address belongs to: the host's or a device's.
    pub space: Space,
}

impl UserSlice {
    /// Names `len` bytes of host memory at `base` that the application lends to one operation.
    #[must_use]
    pub const fn lent(base: u64, len: u64) -> Self {
        Self { base, len, region: RegionId::LENT, space: Space::HOST }
    }

    /// Returns the `len` bytes of this piece from `offset` on. The caller has checked that they are
    /// inside.
    #[must_use]
    pub const fn part(&self, offset: u64, len: u64) -> Self {
        Self { base: self.base.wrapping_add(offset), len, region: self.region, space: self.space }
    }
}
