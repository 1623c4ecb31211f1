//! User memory, named but never touched: what crosses from the application to the system call.

/// A registered memory region of an endpoint's domain, by a number that no two living regions share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegionId(pub u32);

impl RegionId {
    /// No region: memory that an operation of the application lends until it completes.
    pub const LENT: Self = Self(0);
}

/// Which memory an address is in: the host's, or one that the CPU must not touch, by a number that whoever owns the
/// memory gave out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Space(pub u32);

impl Space {
    /// Memory of the host, which the CPU and the kernel may read and write.
    pub const HOST: Self = Self(0);

    /// Whether the CPU may touch it.
    #[must_use]
    #[inline]
    pub const fn is_host(self) -> bool {
        self.0 == 0
    }
}

/// A contiguous piece of user memory: an address in the space of whoever owns it (for the provider a
/// real one, for the simulator an offset), a length in bytes, and what keeps it valid.
///
/// It is a name, not a reference: the application may write to the memory at any time, so nothing but a
/// raw copy, or the kernel, may ever read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserSlice {
    /// First byte.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// The region it is part of, or [`RegionId::LENT`].
    pub region: RegionId,
    /// The memory that the address is of.
    pub space: Space,
}

impl UserSlice {
    /// Memory that an operation lends.
    #[must_use]
    pub const fn lent(base: u64, len: u64) -> Self {
        Self { base, len, region: RegionId::LENT, space: Space::HOST }
    }

    /// `len` bytes from `offset` on. The caller has checked that they are inside.
    #[must_use]
    pub const fn part(&self, offset: u64, len: u64) -> Self {
        Self { base: self.base.wrapping_add(offset), len, region: self.region, space: self.space }
    }
}
