//! Memory regions: what peers may read and write by key.

mod atomic;

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use squall_base::{RegionId, SecretRng, Space, UserSlice};
use squall_engine::{Access, Buf, KeyError, Memory, OpKind};

use crate::abi::boundary::{self, Out};
use crate::abi::compat::{MrAttr, MrModify};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::device_memory::{self, CopyDirection};
use crate::domain::Domain;
use crate::host::job::AuthKey;
use crate::host::limits;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::queues::cntr::Cntr;
use crate::waiting::endpoint_lock::EndpointLock;

/// The memory and the access rights of a registered region.
#[derive(Clone, Debug)]
struct Region {
    pieces: Box<[UserSlice]>,
    access: u64,
    /// Peers name addresses in the region by virtual address (FI_MR_VIRT_ADDR), not by offset.
    virtual_address: bool,
}

impl Region {
    /// Returns the first contiguous piece of the range of `len` bytes at `address`, which must be inside the region.
    fn find(
        &self,
        address: u64,
        len: u64,
        access: Access,
    ) -> core::result::Result<UserSlice, KeyError> {
        let needed = match access {
            Access::RemoteRead => flags::REMOTE_READ,
            Access::RemoteWrite => flags::REMOTE_WRITE,
            Access::RemoteReadWrite => flags::REMOTE_READ | flags::REMOTE_WRITE,
        };
        if self.access & needed != needed {
            return Err(KeyError::Permission);
        }
        let found = if self.virtual_address {
            self.at_address(address, len)
        } else {
            self.at_offset(address, len)
        };
        found.ok_or(KeyError::OutOfRange)
    }

    /// Finds a range of the region by its virtual address. The range is memory as the application sees it: where it
    /// leaves its first piece, it must go on in another piece that begins or continues at that address, whatever the
    /// order of registration.
    fn at_address(&self, address: u64, len: u64) -> Option<UserSlice> {
        let end = address.checked_add(len)?;
        let first = self.piece_at(address, len)?;
        let mut covered = address + first.len;
        while covered < end {
            covered += self.piece_at(covered, end - covered)?.len;
        }
        Some(first)
    }

    /// Returns the longest part of one piece at a virtual address, of at most `len` bytes. The address behind the last
    /// byte of a piece belongs to that piece only for an access of no bytes.
    fn piece_at(&self, address: u64, len: u64) -> Option<UserSlice> {
        let part = |piece: &UserSlice| {
            let before = address.checked_sub(piece.base)?;
            let room = piece.len.checked_sub(before)?;
            (room > 0 || len == 0).then(|| piece.part(before, room.min(len)))
        };
        self.pieces.iter().filter_map(part).max_by_key(|part| part.len)
    }

    /// Finds a range by its offset from the region's beginning, counted over its pieces in order.
    fn at_offset(&self, mut offset: u64, len: u64) -> Option<UserSlice> {
        let total = self.pieces.iter().fold(0u64, |sum, p| sum.saturating_add(p.len));
        if offset.checked_add(len).is_none_or(|end| end > total) {
            return None;
        }
        for piece in &self.pieces {
            if offset < piece.len || (offset == piece.len && len == 0) {
                let here = len.min(piece.len - offset);
                // A piece's length may exceed the address space behind its first byte.
                piece.base.checked_add(offset + here)?;
                return Some(piece.part(offset, here));
            }
            offset -= piece.len;
        }
        None
    }
}

/// The registered memory regions of a domain, by key.
pub(crate) struct Regions {
    by_key: HashMap<u64, Region>,
    /// Generator of the keys that the provider chooses. They must not be guessable, because a peer with a key may
    /// access the region.
    keys: SecretRng,
    /// Numbers of closed regions that may be used again, because nothing refers to those regions any more.
    free: Vec<RegionId>,
    /// Counters of accesses to regions, and which they count (FI_REMOTE_READ, FI_REMOTE_WRITE).
    counters: HashMap<RegionId, Vec<(ObjectRef<Cntr>, u64)>>,
}

impl Regions {
    /// Creates an empty table. Keys that the provider chooses come from `keys`.
    pub(crate) fn new(keys: SecretRng) -> Self {
        Self { by_key: HashMap::new(), keys, free: Vec::new(), counters: HashMap::new() }
    }

    /// Draws a key that no region has. The key of a closed region is not used again: the same 64 random bits are not
    /// drawn twice.
    fn draw_key(&mut self) -> u64 {
        loop {
            let key = self.keys.next_u64();
            if key != flags::KEY_NOTAVAIL && !self.by_key.contains_key(&key) {
                return key;
            }
        }
    }

    /// Adds a region that peers may access. With `None` the provider chooses the key. Returns the key and the number of
    /// the region.
    ///
    /// # Errors
    /// `FI_ENOKEY` when the key is taken.
    fn add(&mut self, key: Option<u64>, mut region: Region) -> Result<(u64, RegionId)> {
        let key = key.unwrap_or_else(|| self.draw_key());
        // One more than there are is never in use.
        let fresh = RegionId(u32::try_from(self.by_key.len() + 1).map_err(|_| Errno::NOMEM)?);
        match self.by_key.entry(key) {
            Entry::Occupied(_) => Err(Errno::NOKEY),
            Entry::Vacant(vacant) => {
                let id = self.free.pop().unwrap_or(fresh);
                for piece in &mut region.pieces {
                    piece.region = id;
                }
                vacant.insert(region);
                Ok((key, id))
            }
        }
    }

    /// Removes a region from the table, so that no peer can access it any more.
    fn remove(&mut self, key: u64) {
        self.by_key.remove(&key);
    }

    /// Counts a peer's access to a region in the counters that are bound to the region.
    pub(crate) fn count(&self, kind: OpKind, id: RegionId) {
        let which = match kind {
            OpKind::RemoteRead | OpKind::RemoteFetch => flags::REMOTE_READ,
            _ => flags::REMOTE_WRITE,
        };
        let counters = self.counters.get(&id).into_iter().flatten();
        counters.filter(|(_, flags)| flags & which != 0).for_each(|(cntr, _)| cntr.count(true));
    }

    /// Makes the number of a region that nothing refers to any more free for reuse.
    fn free_id(&mut self, id: RegionId) {
        self.counters.remove(&id);
        self.free.push(id);
    }
}

/// The engine's view of this process's memory. The one place that follows user pointers.
pub(crate) struct UserMemory<'a>(pub(crate) &'a EndpointLock<Regions>);

impl Memory for UserMemory<'_> {
    fn write(&mut self, to: UserSlice, data: &[u8]) {
        debug_assert!(data.len() as u64 <= to.len);
        let to: *mut u8 = core::ptr::with_exposed_provenance_mut(pointer(to.base));
        // SAFETY: `to` has `data.len()` bytes or more, and the engine has it from one of two places. From an
        // operation, `receive` or a read, that has not completed: `endpoint/buffer.rs` exposed the address, and the
        // contract of `Endpoint::receive` and `transmit` lets us write there until the completion. Or
        // from `resolve` below, during the packet that is being handled: `register` exposed the address, and
        // who closes the region waits for the endpoint lock, which this thread holds, before the
        // application may unmap it (`Mr::drop`). No reference to user memory is made, for the application
        // and other threads may look at it meanwhile; `data` may lie in it as well (an application may send
        // from memory that overlaps what it receives into), hence `copy`.
        unsafe { core::ptr::copy(data.as_ptr(), to, data.len()) };
    }

    fn write_any(&mut self, to: UserSlice, data: &[u8]) -> bool {
        if to.space.is_host() {
            self.write(to, data);
            return true;
        }
        debug_assert!(data.len() as u64 <= to.len);
        let to = UserSlice { len: data.len() as u64, ..to };
        // SAFETY: `data` has `to.len` bytes, which are read; the device's memory is the driver's to check.
        let copied =
            unsafe { device_memory::copy(CopyDirection::ToDevice, to, data.as_ptr().cast_mut()) };
        copied.map_err(|error| log_failed_copy("what a peer writes", &error)).is_ok()
    }

    fn copy_device_memory(&self, from: &Buf) -> core::result::Result<Option<Vec<u8>>, KeyError> {
        if from.is_host() {
            return Ok(None);
        }
        let len = usize::try_from(from.len()).map_err(|_| KeyError::Uncopied)?;
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| KeyError::Uncopied)?;
        for piece in from.slices() {
            // SAFETY: behind the `bytes.len()` bytes that are there is room for those of the pieces that are not, the
            // first of which is `piece`; it is a region's, which `resolve` found during the packet that is being
            // handled.
            unsafe {
                let to = bytes.as_mut_ptr().add(bytes.len());
                if let Err(error) = device_memory::copy(CopyDirection::ToHost, *piece, to) {
                    log_failed_copy("what a peer reads", &error);
                    return Err(KeyError::Uncopied);
                }
                bytes.set_len(bytes.len() + usize::try_from(piece.len).unwrap_or(0));
            }
        }
        Ok(Some(bytes))
    }

    fn read(&self, from: UserSlice, out: &mut [u8]) {
        debug_assert!(out.len() as u64 <= from.len);
        let from: *const u8 = core::ptr::with_exposed_provenance(pointer(from.base));
        // SAFETY: `from` has `out.len()` bytes or more. The engine reads, by this function, what is to be
        // injected, during the call that injects it: `endpoint/buffer.rs` exposed the address, and the contract of
        // `Endpoint::transmit` keeps it mapped until the call returns. No reference to user memory is made;
        // `out` is the engine's own.
        unsafe { core::ptr::copy(from, out.as_mut_ptr(), out.len()) };
    }

    fn update(
        &mut self,
        at: UserSlice,
        old: &mut [u8],
        next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> bool {
        debug_assert!(old.len() as u64 == at.len);
        if !at.space.is_host() {
            return atomic::update_device(at, old, next)
                .map_err(|error| log_failed_copy("a value that a peer changes", &error))
                .is_ok();
        }
        let to: *mut u8 = core::ptr::with_exposed_provenance_mut(pointer(at.base));
        // SAFETY: all of `at` lies in a region that the engine got from `resolve` below, during the packet that is
        // being handled, for an access that changes it or, where `next` always says no, reads it: as for `write`, the
        // application may not unmap it before the endpoint lock is free again, and no reference to it is made.
        unsafe { atomic::update(to, old, next) };
        true
    }

    fn resolve(
        &self,
        key: u64,
        address: u64,
        len: u64,
        access: Access,
    ) -> core::result::Result<UserSlice, KeyError> {
        let regions = self.0.lock();
        regions.by_key.get(&key).ok_or(KeyError::BadKey)?.find(address, len, access)
    }
}

/// Logs why a driver could not copy for a peer. The peer only gets an error code.
#[cold]
fn log_failed_copy(what: &str, error: &device_memory::CopyError) {
    log::warn!("cannot copy {what} in device memory: {error}");
}

/// Converts an address that the engine keeps to the pointer width of this machine (Linux on 64 bits).
fn pointer(address: u64) -> usize {
    usize::try_from(address).unwrap_or(0)
}

/// A memory region: `struct fid_mr` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Mr {
    fid: Cell<ffi::fid_mr>,
    users: Users,
    domain: ObjectRef<Domain>,
    /// Key and number by which peers find the region; `None` for a region that only local calls use.
    remote: Option<(u64, RegionId)>,
    /// The pieces of the region; parts of them may be given to `fi_mr_refresh`.
    pieces: Box<[UserSlice]>,
}

// SAFETY: `Mr` is repr(C) and begins with the cell of a `fid_mr`, which begins with a `fid`; `register`
// alone puts `FI_OPS` into one.
unsafe impl Object for Mr {
    type Fid = ffi::fid_mr;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Mr {
    /// Binds a counter that counts the accesses of peers to the region.
    fn attach_access_counter(&self, cntr: &Arc<Cntr>, flags: u64) -> Result<()> {
        let known = flags::REMOTE_READ | flags::REMOTE_WRITE;
        if flags & !known != 0 || flags & known == 0 {
            return Err(Errno::BADFLAGS);
        }
        // One that no peer may access is not accessed.
        let Some((_, id)) = self.remote else { return Ok(()) };
        let mut regions = self.domain.regions().lock();
        let bound = regions.counters.entry(id).or_default();
        // Each access counts once, however often the counter is bound.
        match bound
            .iter_mut()
            .find(|(known, _)| core::ptr::eq(&raw const ***known, Arc::as_ptr(cntr)))
        {
            Some((_, kinds)) => *kinds |= flags,
            None => bound.push((ObjectRef::new(Arc::clone(cntr)), flags)),
        }
        drop(regions);
        self.domain.attach_access_counter(cntr)
    }

    /// Handles `fi_mr_refresh`: the pages behind parts of the region have changed. The provider
    /// keeps no record of pages; a copy from or to the region finds the pages that are there then.
    ///
    /// # Errors
    /// `FI_EINVAL` for a part that is not in one of the pieces.
    fn refresh(&self, parts: &[UserSlice]) -> Result<()> {
        let inside = |part: &UserSlice| {
            self.pieces.iter().any(|piece| {
                let before = part.base.checked_sub(piece.base);
                before.and_then(|n| n.checked_add(part.len)).is_some_and(|end| end <= piece.len)
            })
        };
        if parts.iter().all(inside) {
            return Ok(());
        }
        log::info!("fi_mr_refresh refused: a range is not inside of one piece of the region");
        Err(Errno::INVAL)
    }
}

impl Drop for Mr {
    /// Ends the region: when this returns, no peer finds it any more, and no earlier request of a peer reads or writes
    /// it, so that the application may unmap it.
    fn drop(&mut self) {
        if let Some((key, id)) = self.remote {
            self.domain.regions().lock().remove(key);
            self.domain.release_region(id);
            self.domain.regions().lock().free_id(id);
        }
        device_memory::remove_descriptor(core::ptr::from_ref(self).addr());
    }
}

static FI_OPS: Table<ffi::fi_ops> =
    Table(objects::fi_ops!(close: close, bind: bind, control: control));

/// The calls of a domain that register memory.
pub(crate) static OPS: Table<ffi::fi_ops_mr> = Table(ffi::fi_ops_mr {
    size: size_of::<ffi::fi_ops_mr>(),
    reg: Some(reg),
    regv: Some(regv),
    // The header's attribute has grown since 1.17; ours is its common part.
    // SAFETY: the two function types differ in what one pointer points to, so they are called alike. What
    // comes is a `fi_mr_attr` of 1.17 or later, which begins with all that `MrAttr` has (compat.rs tests the
    // offsets), so that it may be read as one.
    regattr: Some(unsafe {
        core::mem::transmute::<
            unsafe extern "C" fn(*mut ffi::fid, *const MrAttr, u64, *mut *mut ffi::fid_mr) -> c_int,
            unsafe extern "C" fn(
                *mut ffi::fid,
                *const ffi::fi_mr_attr,
                u64,
                *mut *mut ffi::fid_mr,
            ) -> c_int,
        >(regattr)
    }),
});

/// The arguments of a call that registers memory.
struct Request {
    pieces: Box<[UserSlice]>,
    access: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// Registration flags for memory that is not, or not only, host memory.
const OF_DEVICES: u64 = flags::HMEM_DEVICE_ONLY | flags::HMEM_HOST_ALLOC | flags::MR_DMABUF;

/// Returns the pieces of host memory that a registration names.
///
/// # Errors
/// `FI_EINVAL` for more than the limit we report.
fn pieces(all: &[ffi::iovec]) -> Result<Box<[UserSlice]>> {
    if all.len() > limits::MR_IOV_LIMIT {
        log::info!(
            "memory region refused: iov_count {} is out of range 1..={}",
            all.len(),
            limits::MR_IOV_LIMIT
        );
        return Err(Errno::INVAL);
    }
    let piece =
        |v: &ffi::iovec| UserSlice::lent(v.iov_base.expose_provenance() as u64, v.iov_len as u64);
    Ok(all.iter().map(piece).collect())
}

/// Returns the pieces of memory that a registration attribute describes, in host or device memory.
///
/// # Safety
/// `attr` is an attribute for these flags: its first field points to as many pieces as it says, or, with FI_MR_DMABUF, to
/// the description of one DMA-buf.
///
/// # Errors
/// As [`pieces`], and those of [`device_memory::space`] and [`device_memory::dmabuf()`]; `FI_EINVAL` for memory of a device in a domain
/// without FI_HMEM.
unsafe fn described_pieces(domain: &Domain, attr: &MrAttr, flags: u64) -> Result<Box<[UserSlice]>> {
    let of_device = attr.iface != ffi::FI_HMEM_SYSTEM || flags & OF_DEVICES != 0;
    if of_device && !domain.has_device_memory() {
        log::info!(
            "memory region in device memory (iface {}, flags {flags:#x}): the domain was opened without FI_HMEM",
            attr.iface
        );
        return Err(if attr.iface == ffi::FI_HMEM_SYSTEM { Errno::BADFLAGS } else { Errno::NOSYS });
    }
    if flags & flags::MR_DMABUF != 0 {
        let written = flags::REMOTE_WRITE | flags::RECV | flags::READ;
        // SAFETY: NULL, which is refused, or a description by this function's contract; it is copied.
        let buffer = unsafe { attr.mr_iov.cast::<device_memory::DmaBufAttr>().as_ref() };
        let buffer = buffer.ok_or(Errno::INVAL)?;
        return Ok(Box::new([device_memory::dmabuf(buffer, attr.access & written != 0)?]));
    }
    // SAFETY: as many pieces as the count says, by this function's contract.
    let iov = unsafe { boundary::slice(attr.mr_iov, attr.iov_count)? };
    let mut all = pieces(iov)?;
    // What the CPU has allocated by a driver's call is the host's.
    if flags & flags::HMEM_HOST_ALLOC == 0 {
        let space = device_memory::space(attr.iface, attr.device, iov)?;
        all.iter_mut().for_each(|piece| piece.space = space);
    }
    Ok(all)
}

/// Registers memory. The memory is not accessed here: later accesses for peers rely on fi_mr(3), by which it stays
/// mapped until the region is closed.
fn register(domain: Arc<Domain>, request: Request) -> Result<*mut ffi::fid_mr> {
    if request.flags & !(flags::EVENT | ffi::FI_RMA_PMEM | (1 << 56) | OF_DEVICES) != 0 {
        log::info!("memory region refused: some of the flags {:#x} are unknown", request.flags);
        return Err(Errno::BADFLAGS);
    }
    let space = request.pieces.first().map_or(Space::HOST, |piece| piece.space);
    let pieces = request.pieces.clone();
    let region = Region {
        pieces: request.pieces,
        access: request.access,
        virtual_address: domain.uses_virtual_addresses(),
    };
    // A region that no peer may access needs no place in the table, so its key may repeat: NCCL
    // plugins register everything under key 0.
    let remote = request.access & (flags::REMOTE_READ | flags::REMOTE_WRITE) != 0;
    let key = (!domain.chooses_keys()).then_some(request.key);
    let remote = if remote { Some(domain.regions().lock().add(key, region)?) } else { None };
    let mr = Arc::new(Mr {
        fid: Cell::new(ffi::fid_mr {
            fid: objects::fid(class::MR, request.context, &FI_OPS.0),
            mem_desc: core::ptr::null_mut(),
            key: remote.map_or(request.key, |(key, _)| key),
        }),
        users: Users::default(),
        domain: ObjectRef::new(domain),
        remote,
        pieces,
    });
    // SAFETY: the cell holds an initialised `fid_mr`, and `mr` is the only way to it: it is published below.
    unsafe { (*mr.fid.get()).mem_desc = Arc::as_ptr(&mr).cast_mut().cast() };
    device_memory::insert_descriptor(Arc::as_ptr(&mr).addr(), space);
    Ok(objects::publish(mr))
}

/// Checks the flags of a registration call that is for host memory only.
///
/// # Errors
/// `FI_EBADFLAGS` for what only fi_mr_regattr can mean.
fn check_host_only(flags: u64) -> Result<u64> {
    if flags & OF_DEVICES == 0 { Ok(flags) } else { Err(Errno::BADFLAGS) }
}

boundary::exports! {
    status reg(
        fid: *mut ffi::fid,
        buf: *const c_void,
        len: usize,
        access: u64,
        _offset: u64,
        key: u64,
        flags: u64,
        mr: *mut *mut ffi::fid_mr,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(mr)?;
        let pieces = pieces(&[ffi::iovec { iov_base: buf.cast_mut(), iov_len: len }])?;
        let flags = check_host_only(flags)?;
        place.write(register(objects::share(fid)?, Request { pieces, access, key, flags, context })?)
    };

    status regv(
        fid: *mut ffi::fid,
        iov: *const ffi::iovec,
        count: usize,
        access: u64,
        _offset: u64,
        key: u64,
        flags: u64,
        mr: *mut *mut ffi::fid_mr,
        context: *mut c_void,
    ) -> c_int => {
        let (place, pieces) = (Out::new(mr)?, pieces(boundary::slice(iov, count)?)?);
        let flags = check_host_only(flags)?;
        place.write(register(objects::share(fid)?, Request { pieces, access, key, flags, context })?)
    };

    status regattr(
        fid: *mut ffi::fid,
        attr: *const MrAttr,
        flags: u64,
        mr: *mut *mut ffi::fid_mr,
    ) -> c_int => {
        let (place, attr) = (Out::new(mr)?, attr.as_ref().ok_or(Errno::INVAL)?);
        let domain: Arc<Domain> = objects::share(fid)?;
        let key = AuthKey::read(attr.auth_key, attr.auth_key_size);
        if key.size() > 0 && key != *domain.auth_key() {
            log::info!("memory region refused: it has an auth_key of its own, and only that of its domain is supported");
            return Err(Errno::INVAL);
        }
        let request = Request {
            pieces: described_pieces(&domain, attr, flags)?,
            access: attr.access,
            key: attr.requested_key,
            flags,
            context: attr.context,
        };
        place.write(register(domain, request)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<Mr, _>(fid).map(drop);

    /// Binds an endpoint or a counter to a region: `fi_mr_bind`. Binding an endpoint changes nothing, because regions
    /// belong to the domain; a counter counts the accesses of peers (FI_RMA_EVENT).
    status bind(fid: *mut ffi::fid, other: *mut ffi::fid, flags: u64) -> c_int => {
        let mr = objects::get::<Mr, _>(fid)?;
        match other.as_ref().map(|other| other.fclass) {
            Some(class::EP) => Ok(()),
            Some(class::CNTR) => mr.attach_access_counter(&objects::share(other)?, flags),
            Some(_) => Err(Errno::NOSYS),
            None => Err(Errno::INVAL),
        }
    };

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        let mr = objects::get::<Mr, _>(fid)?;
        match u32::try_from(command) {
            Ok(ffi::FI_ENABLE) => Ok(()),
            Ok(ffi::FI_REFRESH) => {
                let parts = arg.cast::<MrModify>().as_ref().ok_or(Errno::INVAL)?;
                if parts.flags != 0 {
                    return Err(Errno::BADFLAGS);
                }
                mr.refresh(&pieces(boundary::slice(parts.attr.mr_iov, parts.attr.iov_count)?)?)
            }
            _ => Err(Errno::NOSYS),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(virtual_address: bool) -> Region {
        Region {
            pieces: Box::new([UserSlice::lent(1000, 10), UserSlice::lent(5000, 20)]),
            access: flags::REMOTE_WRITE,
            virtual_address,
        }
    }

    fn regions() -> Regions {
        Regions::new(SecretRng::from_seed([7; 32]))
    }

    #[test]
    fn keys_of_ours_are_drawn_and_drawn_again_when_they_are_taken() {
        // What the generator will give.
        let mut same = SecretRng::from_seed([7; 32]);
        let drawn: [u64; 3] = core::array::from_fn(|_| same.next_u64());
        let mut regions = regions();
        assert!(regions.add(Some(drawn[1]), region(false)).is_ok());
        let keys: Vec<u64> =
            (0..2).map(|_| regions.add(None, region(false)).expect("a free key").0).collect();
        assert_eq!(keys, [drawn[0], drawn[2]], "the second is taken");
        regions.remove(drawn[0]);
        let (next, _) = regions.add(None, region(false)).expect("a free key");
        assert!(!drawn.contains(&next), "the key of a closed region does not come back");
    }

    #[test]
    fn ranges_are_found_and_bounded() {
        let write = Access::RemoteWrite;
        let r = region(false);
        assert_eq!(r.find(4, 6, write), Ok(UserSlice::lent(1004, 6)));
        assert_eq!(r.find(4, 26, write), Ok(UserSlice::lent(1004, 6)));
        assert_eq!(r.find(10, 20, write), Ok(UserSlice::lent(5000, 20)));
        assert_eq!(r.find(4, 27, write), Err(KeyError::OutOfRange));
        assert_eq!(r.find(u64::MAX, 2, write), Err(KeyError::OutOfRange));
        for access in [Access::RemoteRead, Access::RemoteReadWrite] {
            assert_eq!(r.find(0, 1, access), Err(KeyError::Permission));
        }
        let v = region(true);
        assert_eq!(v.find(5003, 2, write), Ok(UserSlice::lent(5003, 2)));
        assert_eq!(v.find(999, 1, write), Err(KeyError::OutOfRange));
        assert_eq!(v.find(5003, 18, write), Err(KeyError::OutOfRange));
    }

    #[test]
    fn virtual_addresses_are_found_in_any_order_of_pieces() {
        let write = Access::RemoteWrite;
        let v = region(true);
        // This address is one past the first piece, and in no piece.
        assert_eq!(v.find(1010, 1, write), Err(KeyError::OutOfRange));
        assert_eq!(v.find(1009, 1, write), Ok(UserSlice::lent(1009, 1)));
        // A range that leaves its piece goes on in memory, not in the next piece of the list.
        assert_eq!(v.find(1005, 6, write), Err(KeyError::OutOfRange));
        assert_eq!(v.find(u64::MAX, 2, write), Err(KeyError::OutOfRange));
        assert_eq!(v.find(u64::MAX, 0, write), Err(KeyError::OutOfRange));
        for at in [1000, 1010, 5000, 5020] {
            assert_eq!(v.find(at, 0, write), Ok(UserSlice::lent(at, 0)));
        }
        for at in [999, 1011, 4999, 5021] {
            assert_eq!(v.find(at, 0, write), Err(KeyError::OutOfRange));
        }
        // The pieces are not in memory order: the third begins where the first ends, and the fourth overlaps it.
        let pieces = [(1000, 10), (2000, 10), (1010, 10), (1015, 10), (1500, 0)];
        let pieces = pieces.map(|(base, len)| UserSlice::lent(base, len));
        let scattered = Region { pieces: Box::new(pieces), ..region(true) };
        assert_eq!(scattered.find(1010, 10, write), Ok(UserSlice::lent(1010, 10)));
        assert_eq!(scattered.find(1005, 20, write), Ok(UserSlice::lent(1005, 5)));
        assert_eq!(scattered.find(1012, 13, write), Ok(UserSlice::lent(1012, 8)));
        assert_eq!(scattered.find(1016, 9, write), Ok(UserSlice::lent(1016, 9)));
        assert_eq!(scattered.find(1005, 21, write), Err(KeyError::OutOfRange));
        assert_eq!(scattered.find(1500, 0, write), Ok(UserSlice::lent(1500, 0)));
        assert_eq!(scattered.find(1500, 1, write), Err(KeyError::OutOfRange));
        let none = Region { pieces: Box::new([]), ..region(true) };
        assert_eq!(none.find(0, 0, write), Err(KeyError::OutOfRange));
    }

    #[test]
    fn an_overlong_piece_ends_with_the_address_space() {
        let write = Access::RemoteWrite;
        for virtual_address in [false, true] {
            let pieces = Box::new([UserSlice::lent(4096, u64::MAX)]);
            let r = Region { pieces, ..region(virtual_address) };
            let at = if virtual_address { 0 } else { 4096 };
            assert_eq!(r.find(u64::MAX - at - 7, 7, write), Ok(UserSlice::lent(u64::MAX - 7, 7)));
            assert_eq!(r.find(u64::MAX - at - 7, 9, write), Err(KeyError::OutOfRange));
            assert_eq!(
                r.find(u64::MAX - at + u64::from(at > 0), 1, write),
                Err(KeyError::OutOfRange)
            );
        }
    }

    #[test]
    fn user_memory_is_copied_where_its_address_says() {
        let regions = EndpointLock::new(true, regions());
        let mut bytes = *b"0123456789";
        let base = bytes.as_mut_ptr().expose_provenance() as u64;
        let mut memory = UserMemory(&regions);
        memory.write(UserSlice::lent(base + 2, 3), b"abc");
        let mut out = [0; 4];
        memory.read(UserSlice::lent(base + 1, 4), &mut out);
        assert_eq!(&out, b"1abc");
        memory.write(UserSlice::lent(base + 10, 0), b"");
        assert_eq!(&bytes, b"01abc56789");
        // By key, as a peer asks for it.
        let all = Region {
            pieces: Box::new([UserSlice::lent(base, 10)]),
            access: flags::REMOTE_READ,
            virtual_address: true,
        };
        let (key, id) = regions.lock().add(None, all).expect("a free key");
        let found = UserMemory(&regions).resolve(key, base + 8, 2, Access::RemoteRead);
        let found = found.expect("inside");
        assert_eq!((found.base, found.len, found.region), (base + 8, 2, id));
        UserMemory(&regions).read(found, &mut out[..2]);
        assert_eq!(&out[..2], b"89");
        regions.lock().remove(key);
        let gone = UserMemory(&regions).resolve(key, base, 1, Access::RemoteRead);
        assert_eq!(gone, Err(KeyError::BadKey));
    }

    #[test]
    fn the_whole_address_space_can_be_a_region() {
        let all = Region {
            pieces: Box::new([UserSlice::lent(0, u64::MAX)]),
            access: flags::REMOTE_READ,
            virtual_address: false,
        };
        let at = 0x7fff_0000_1234;
        assert_eq!(all.find(at, 8, Access::RemoteRead), Ok(UserSlice::lent(at, 8)));
    }

    #[test]
    fn keys_are_unique_and_may_use_bit_63() {
        let mut regions = regions();
        assert_eq!(regions.add(Some(1 << 63), region(false)), Ok((1 << 63, RegionId(1))));
        assert_eq!(regions.add(Some(1 << 63), region(false)), Err(Errno::NOKEY));
        assert_eq!(regions.add(Some(0), region(false)), Ok((0, RegionId(2))));
        let drawn = regions.add(None, region(false));
        assert_eq!(drawn.map(|(_, id)| id), Ok(RegionId(3)));
        // A number is used again when nothing refers to it any more, and no two open regions have
        // the same.
        regions.remove(0);
        regions.free_id(RegionId(2));
        assert_eq!(regions.add(Some(9), region(true)), Ok((9, RegionId(2))));
        assert_eq!(regions.add(Some(10), region(true)), Ok((10, RegionId(4))));
    }
}
