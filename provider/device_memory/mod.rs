//! Memory that the CPU must not touch: CUDA's, ROCr's, Level Zero's, and DMA-bufs.
//!
//! A driver's library is loaded when an application first asks for FI_HMEM, and by nothing else; without one, or with
//! one that does not initialise, FI_HMEM is not offered. Memory is known by its [`Space`], a number in a table of this
//! process that `fi_mr_regattr` fills; a region's descriptor says which. The bytes go through memory of the host: the
//! transport, the kernel and other processes see that alone.
//!
//! | Bytes | Copied | Why so |
//! |---|---|---|
//! | of sends, writes and operands, to the host | before the operation enters the engine, beside everything else where the driver can | the target must not get a part of what cannot be copied |
//! | the same, injected | during the call | the buffer is the application's again when the call returns |
//! | of receives, reads and results, to the device | when the operation has ended, before its completion is shown, beside everything else where the driver can | packets come in any order, and a device takes few long copies better than many short ones |
//! | written or changed by peers | while the packet is handled | its acknowledgement says that they are in place |
//! | read by peers | when the request comes | a failure must be the answer |
//!
//! CUDA's copies use a stream of this provider that waits for no other stream. ROCr's and Level
//! Zero's copies are synchronous: ROCr has no asynchronous copy without the agents and locked pages
//! of both sides, and Level Zero is called through a list of commands that runs at once. A DMA-buf
//! is copied by the CPU, between the two calls that its exporter requires.

mod bounce;
mod copy_request;
mod cuda;
mod dmabuf;
mod library;
mod rocr;
mod ze;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use parking_lot::RwLock;
use squall_base::{Space, UserSlice};

use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
pub(crate) use bounce::Bounce;
use copy_request::CopyRequest;
pub(crate) use copy_request::{CopyDirection, CopyError};
pub(crate) use dmabuf::DmaBufAttr;

/// The memory of one device, driver or allocation, which only that driver can copy.
enum Device {
    Cuda(cuda::Context),
    Rocr(&'static rocr::Driver),
    Ze(ze::Device),
    DmaBuf(dmabuf::DmaBuf),
}

impl Device {
    /// Copies between device memory and host memory. The copy has ended when this returns.
    ///
    /// # Safety
    /// `order.host` may be read or written, as its direction says, for `order.len` bytes.
    unsafe fn copy(&self, order: CopyRequest) -> core::result::Result<(), CopyError> {
        // SAFETY: the drivers' `copy` ask for `order.host` to be accessible for `order.len` bytes, as this function
        // does.
        unsafe {
            match self {
                Self::Cuda(context) => context.copy(order),
                Self::Rocr(driver) => driver.copy(order),
                Self::Ze(device) => device.copy(order),
                Self::DmaBuf(buffer) => buffer.copy(order),
            }
        }
    }
}

/// The device drivers that this machine has.
struct Drivers {
    cuda: Option<cuda::Driver>,
    rocr: Option<rocr::Driver>,
    ze: Option<ze::Driver>,
}

/// Returns the device drivers. The first call loads their libraries.
fn drivers() -> &'static Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    fn log_driver<D>(name: &str, found: core::result::Result<Option<D>, String>) -> Option<D> {
        match found {
            Ok(Some(driver)) => {
                log::info!("device memory of {name} is supported: its driver is loaded");
                Some(driver)
            }
            Ok(None) => None,
            Err(why) => {
                log::warn!("device memory of {name} is not supported: {why}");
                None
            }
        }
    }
    DRIVERS.get_or_init(|| Drivers {
        cuda: log_driver("CUDA", cuda::Driver::load()),
        rocr: log_driver("ROCr", rocr::Driver::load()),
        ze: log_driver("Level Zero", ze::Driver::load()),
    })
}

/// Returns whether the machine has any device driver. The first call loads libraries, so it is made only for FI_HMEM.
pub(crate) fn is_available() -> bool {
    let all = drivers();
    all.cuda.is_some() || all.rocr.is_some() || all.ze.is_some()
}

/// Returns whether CUDA's driver is loaded.
pub(crate) fn has_cuda() -> bool {
    drivers().cuda.is_some()
}

/// The device memories by their number, from 1 on; 0 is host memory.
static SPACES: RwLock<Vec<Option<Arc<Device>>>> = RwLock::new(Vec::new());
/// The memory spaces of the descriptors (`fi_mr_desc`) of device memory.
static DESCRIBED: RwLock<Option<HashMap<usize, Space>>> = RwLock::new(None);
/// The number of descriptors of device memory that are registered.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns the memory space that a descriptor (`fi_mr_desc`) stands for.
#[inline]
pub(crate) fn space_of(desc: *mut core::ffi::c_void) -> Space {
    if desc.is_null() || !has_descriptors() {
        return Space::HOST;
    }
    find_descriptor(desc.addr())
}

/// Returns whether any descriptor of device memory is registered.
#[inline]
pub(crate) fn has_descriptors() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Looks a descriptor up in the table of device memory; it is host memory if it is not there.
#[cold]
fn find_descriptor(desc: usize) -> Space {
    let described = DESCRIBED.read();
    described.as_ref().and_then(|all| all.get(&desc)).copied().unwrap_or(Space::HOST)
}

/// Registers a descriptor (`fi_mr_desc`) that stands for this memory space.
pub(crate) fn insert_descriptor(desc: usize, space: Space) {
    if !space.is_host() && DESCRIBED.write().get_or_insert_default().insert(desc, space).is_none() {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes a descriptor of device memory, whose region was closed.
pub(crate) fn remove_descriptor(desc: usize) {
    let Some(space) = DESCRIBED.write().as_mut().and_then(|all| all.remove(&desc)) else { return };
    COUNT.fetch_sub(1, Ordering::Relaxed);
    // What is of one region alone goes with it.
    let mut spaces = SPACES.write();
    if let Some(place) = spaces.get_mut(space.0 as usize - 1)
        && place.as_deref().is_some_and(|device| matches!(device, Device::DmaBuf(_)))
    {
        *place = None;
    }
}

fn device(space: Space) -> core::result::Result<Arc<Device>, CopyError> {
    let at = (space.0 as usize).checked_sub(1);
    let found = at.and_then(|at| SPACES.read().get(at).cloned().flatten());
    found.ok_or_else(|| CopyError("its region is closed".into()))
}

/// Returns the number of a device memory: a new number, or that of the known one for which `same` is true.
fn register_device(new: Device, same: impl Fn(&Device) -> bool) -> Space {
    let mut spaces = SPACES.write();
    // Never as many as 2^32.
    let space = |at: usize| Space(at as u32 + 1);
    if let Some(at) = spaces.iter().position(|old| old.as_deref().is_some_and(&same)) {
        return space(at);
    }
    let at = spaces.iter().position(Option::is_none).unwrap_or(spaces.len());
    if at == spaces.len() {
        spaces.push(None);
    }
    spaces[at] = Some(Arc::new(new));
    space(at)
}

/// Returns the name of a memory interface (`fi_mr_attr::iface`), such as CUDA.
fn name(iface: u32) -> &'static str {
    match iface {
        ffi::FI_HMEM_CUDA => "CUDA",
        ffi::FI_HMEM_ROCR => "ROCr",
        ffi::FI_HMEM_ZE => "Level Zero",
        ffi::FI_HMEM_NEURON => "AWS Neuron",
        ffi::FI_HMEM_SYNAPSEAI => "Habana SynapseAI",
        _ => "an unknown device",
    }
}

/// Returns the memory space of `pieces`, which the application says to be of an interface (such as CUDA) and of one of
/// its devices.
///
/// # Errors
/// `FI_ENOSYS` for an interface that is not served, or whose driver is not there; `FI_EINVAL` for memory that the
/// driver does not know, or of another device.
pub(crate) fn space(iface: u32, ordinal: u64, pieces: &[ffi::iovec]) -> Result<Space> {
    // The union's member for all of them is an int.
    let ordinal = ordinal as u32;
    let missing = || {
        log::info!("memory region refused: the driver of {} memory is not loaded", name(iface));
        Errno::NOSYS
    };
    let refused = |why: String| {
        log::info!("memory region in {} memory refused: {why}", name(iface));
        Errno::INVAL
    };
    let first = pieces.first().map_or(0, |piece| piece.iov_base.addr() as u64);
    let all = drivers();
    match iface {
        ffi::FI_HMEM_SYSTEM => Ok(Space::HOST),
        ffi::FI_HMEM_CUDA => {
            let driver = all.cuda.as_ref().ok_or_else(missing)?;
            let mut found = Space::HOST;
            for piece in pieces {
                let at = piece.iov_base.addr() as u64;
                let context = driver.context_of(at, ordinal).map_err(refused)?;
                let key = context.key();
                let same = |old: &Device| matches!(old, Device::Cuda(old) if old.key() == key && old.is_alive());
                let space = register_device(Device::Cuda(context), same);
                if !found.is_host() && found != space {
                    return Err(refused(
                        "its pieces belong to several contexts; register a region for each".into(),
                    ));
                }
                found = space;
            }
            Ok(found)
        }
        ffi::FI_HMEM_ROCR => {
            let driver = all.rocr.as_ref().ok_or_else(missing)?;
            driver.check_memory(first).map_err(refused)?;
            Ok(register_device(Device::Rocr(driver), |old| matches!(old, Device::Rocr(_))))
        }
        ffi::FI_HMEM_ZE => {
            let driver = all.ze.as_ref().ok_or_else(missing)?;
            let device = driver.device(ordinal).map_err(refused)?;
            let key = device.key();
            Ok(register_device(
                Device::Ze(device),
                |old| matches!(old, Device::Ze(old) if old.key() == key),
            ))
        }
        _ => {
            log::info!(
                "memory region refused: {} memory (iface {iface}) is not supported; that of CUDA, ROCr and Level Zero is",
                name(iface)
            );
            Err(Errno::NOSYS)
        }
    }
}

/// Returns the memory space of a DMA-buf, and the piece of memory that a region of it is.
///
/// # Errors
/// `FI_EINVAL` where the descriptor is no DMA-buf, `FI_EOPNOTSUPP` where its exporter does not let the CPU map it.
pub(crate) fn dmabuf(described: &DmaBufAttr, writable: bool) -> Result<UserSlice> {
    let buffer = dmabuf::DmaBuf::map(described, writable)?;
    let (base, len) = buffer.range();
    let space = register_device(Device::DmaBuf(buffer), |_| false);
    Ok(UserSlice { space, ..UserSlice::lent(base, len) })
}

/// Copies between memory of any kind and host memory at `host`, as many bytes as `slice` has. The copy has ended when
/// this returns.
///
/// # Safety
/// `host` may be read, or, when the direction is to the host, written, for as many bytes; if `slice` is memory of the host, so
/// it may be the other direction.
pub(crate) unsafe fn copy(
    direction: CopyDirection,
    slice: UserSlice,
    host: *mut u8,
) -> core::result::Result<(), CopyError> {
    let len = usize::try_from(slice.len).unwrap_or(0);
    if slice.space.is_host() {
        let user = core::ptr::with_exposed_provenance_mut(usize::try_from(slice.base).unwrap_or(0));
        // SAFETY: both may be accessed as the direction says by this function's contract; they may overlap.
        unsafe {
            match direction {
                CopyDirection::ToHost => core::ptr::copy(user, host, len),
                CopyDirection::ToDevice => core::ptr::copy(host, user, len),
            }
        }
        return Ok(());
    }
    if len == 0 {
        return Ok(());
    }
    // SAFETY: `host` has as many bytes for the direction asked for, by this function's contract.
    unsafe { device(slice.space)?.copy(CopyRequest { direction, device: slice.base, host, len }) }
}

/// A copy in progress, or one that has ended already. Dropping it waits for its end.
pub(crate) struct PendingCopy(Option<(Arc<Device>, cuda::Event)>);

/// Copies as [`copy`] does, without waiting for the end if the driver allows that.
///
/// # Safety
/// As [`copy`], until the end of the copy.
pub(crate) unsafe fn begin(
    direction: CopyDirection,
    slice: UserSlice,
    host: *mut u8,
) -> core::result::Result<PendingCopy, CopyError> {
    if !slice.space.is_host() && slice.len > 0 {
        let device = device(slice.space)?;
        if let Device::Cuda(context) = &*device {
            let len = usize::try_from(slice.len).unwrap_or(0);
            // SAFETY: `host` has as many bytes for the direction asked for until the end of the copy, which the event
            // reports.
            let event =
                unsafe { context.begin(CopyRequest { direction, device: slice.base, host, len })? };
            return Ok(PendingCopy(Some((device, event))));
        }
    }
    // SAFETY: as this function's contract says, which lasts longer than this call.
    unsafe { copy(direction, slice, host).map(|()| PendingCopy(None)) }
}

impl PendingCopy {
    /// Returns whether the copy has ended, and its result.
    pub(crate) fn poll(&mut self) -> Poll<core::result::Result<(), CopyError>> {
        let Some((device, event)) = &self.0 else { return Poll::Ready(Ok(())) };
        let Device::Cuda(context) = &**device else { return Poll::Ready(Ok(())) };
        let over = context.poll(event);
        if over.is_ready() {
            self.0 = None;
        }
        over
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        if let Some((device, event)) = &self.0
            && let Device::Cuda(context) = &**device
        {
            context.wait(event);
        }
    }
}
