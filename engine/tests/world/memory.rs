//! A host's memory. The tests of `emulator` include this file.

use std::collections::{BTreeMap, HashMap};

use squall_base::{RegionId, UserSlice};
use squall_engine::{Access, KeyError, Memory};

/// Bytes between two buffers, so that an access beyond one does not hit the next.
const GAP: usize = 64;

/// A host's memory: buffers, allocated from the front, and registrations. Every access is checked
/// to lie in one buffer that is lent.
#[derive(Default)]
pub struct VecMemory {
    pub bytes: Vec<u8>,
    pub regions: HashMap<u64, (UserSlice, bool, bool)>,
    /// Buffers by start address.
    buffers: BTreeMap<u64, Buffer>,
    /// Number of registrations so far, from which regions are numbered.
    registrations: u32,
    /// The payload that the current record of a shared-memory channel refers to.
    pub source: Option<Vec<u8>>,
    /// The number of fetches that are still to fail although the bytes are lent, because this process cannot read them.
    pub delays: u32,
    /// Whether the last fetch failed for that reason.
    delayed: bool,
}

struct Buffer {
    len: u64,
    /// The buffer belongs to the user again: any access fails the test.
    revoked: bool,
}

impl VecMemory {
    /// Allocates `len` zero bytes.
    pub fn alloc(&mut self, len: usize) -> u64 {
        let base = self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + len + GAP, 0);
        self.buffers.insert(base, Buffer { len: len as u64, revoked: false });
        base
    }

    /// Allocates a copy of `data`.
    pub fn put(&mut self, data: &[u8]) -> u64 {
        let base = self.alloc(data.len());
        self.bytes[base as usize..][..data.len()].copy_from_slice(data);
        base
    }

    /// Returns a buffer to the user.
    pub fn revoke(&mut self, base: u64) {
        self.buffers.get_mut(&base).expect("the buffer was allocated").revoked = true;
    }

    /// Fails the test if the engine accesses memory that is not lent to it.
    pub fn check(&self, piece: UserSlice, len: usize) {
        assert_eq!(piece.len, len as u64, "the piece is as long as the copied data");
        let Some((base, buffer)) = self.buffers.range(..=piece.base).next_back() else {
            panic!("{piece:?} is in no buffer");
        };
        assert!(piece.base + piece.len <= base + buffer.len, "{piece:?} is in no buffer");
        assert!(!buffer.revoked, "{piece:?} belongs to the user again");
    }

    /// Registers `len` bytes at `base` and returns the region's number.
    pub fn register(&mut self, key: u64, base: u64, len: u64, read: bool, write: bool) -> RegionId {
        self.registrations += 1;
        let region = RegionId(self.registrations);
        self.regions.insert(key, (UserSlice { region, ..UserSlice::lent(base, len) }, read, write));
        region
    }

    pub fn get(&self, base: u64, len: u64) -> &[u8] {
        &self.bytes[base as usize..(base + len) as usize]
    }
}

impl Memory for VecMemory {
    fn write(&mut self, to: UserSlice, data: &[u8]) {
        self.check(to, data.len());
        self.bytes[to.base as usize..][..data.len()].copy_from_slice(data);
    }

    fn read(&self, from: UserSlice, out: &mut [u8]) {
        self.check(from, out.len());
        out.copy_from_slice(&self.bytes[from.base as usize..][..out.len()]);
    }

    fn is_delayed(&self) -> bool {
        self.delayed
    }

    fn fetch(&mut self, to: UserSlice, at: u64) -> bool {
        self.delayed = self.delays > 0;
        if self.delayed {
            self.delays -= 1;
            return false;
        }
        let Some(source) = self.source.clone() else { return false };
        let Some(rest) = source.get(at as usize..) else { return false };
        let Some(bytes) = rest.get(..to.len as usize) else { return false };
        self.write(to, bytes);
        true
    }

    fn fetch_out(&mut self, out: &mut [u8], at: u64) -> bool {
        let Some(source) = self.source.clone() else { return false };
        let Some(bytes) = source.get(at as usize..at as usize + out.len()) else { return false };
        out.copy_from_slice(bytes);
        true
    }

    fn update(
        &mut self,
        at: UserSlice,
        old: &mut [u8],
        next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> bool {
        self.read(at, old);
        let mut new = old.to_vec();
        if next(old, &mut new) {
            self.write(at, &new);
        }
        true
    }

    fn resolve(
        &self,
        key: u64,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<UserSlice, KeyError> {
        let (region, readable, writable) = self.regions.get(&key).ok_or(KeyError::BadKey)?;
        let allowed = match access {
            Access::RemoteRead => *readable,
            Access::RemoteWrite => *writable,
            Access::RemoteReadWrite => *readable && *writable,
        };
        if !allowed {
            return Err(KeyError::Permission);
        }
        if address.checked_add(len).is_none_or(|end| end > region.len) {
            return Err(KeyError::OutOfRange);
        }
        Ok(region.part(address, len))
    }
}
