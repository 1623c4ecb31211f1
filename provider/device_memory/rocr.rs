//! ROCr, by the HSA runtime (`libhsa-runtime64.so.1`; HSA Runtime Programmer's Reference Manual 1.2, sections 2.1 and
//! 2.13).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;

use super::copy_request::{CopyDirection, CopyError, CopyRequest};
use super::library::{Library, functions};

type Status = c_int;

/// `hsa_amd_pointer_info_t`, as far as it is read (hsa_ext_amd.h). The runtime fills as much as `size` says.
#[repr(C)]
struct PointerInfo {
    size: u32,
    /// Kind of the memory at the pointer; 0 if the runtime does not know it.
    kind: u32,
    agent_base: *mut c_void,
    host_base: *mut c_void,
    bytes: usize,
}

functions! {
    Functions {
        init = c"hsa_init": unsafe extern "C" fn() -> Status;
        text = c"hsa_status_string": unsafe extern "C" fn(Status, *mut *const c_char) -> Status;
        copy = c"hsa_memory_copy": unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> Status;
        info = c"hsa_amd_pointer_info": unsafe extern "C" fn(
            *mut c_void, *mut PointerInfo, *mut c_void, *mut u32, *mut *mut c_void
        ) -> Status;
    }
}

/// The ROCr runtime (HSA), loaded and initialised.
pub(super) struct Driver(Functions);

impl Driver {
    /// Loads and initialises the ROCr runtime. Returns `None` if the machine has no such library.
    ///
    /// # Errors
    /// A text that describes the problem with the runtime.
    pub(super) fn load() -> Result<Option<Self>, String> {
        let Some(library) = Library::load(c"libhsa-runtime64.so.1") else { return Ok(None) };
        let driver = Self(Functions::find(&library)?);
        // SAFETY: hsa_init takes nothing; every call is counted, and this one is never undone.
        let status = unsafe { (driver.0.init)() };
        driver.check("hsa_init", status).map_err(|error| error.to_string())?;
        Ok(Some(driver))
    }

    fn check(&self, call: &str, status: Status) -> Result<(), CopyError> {
        if status == 0 {
            return Ok(());
        }
        let mut text = core::ptr::null();
        // SAFETY: one pointer is written, to a local variable: NULL, or a string of the runtime's own.
        let text = unsafe {
            (self.0.text)(status, &raw mut text);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Err(CopyError(format!("{call}: {status:#x}: {text}")))
    }

    /// Returns whether all of `len` bytes at `at` are in one allocation that the runtime knows.
    ///
    /// # Errors
    /// The error that the bytes are not in one allocation.
    pub(super) fn check_pointer(&self, at: u64, len: usize) -> Result<(), CopyError> {
        let size = size_of::<PointerInfo>() as u32; // 32 bytes
        let mut info =
            PointerInfo { size, kind: 0, agent_base: null_mut(), host_base: null_mut(), bytes: 0 };
        let at = core::ptr::with_exposed_provenance_mut(usize::try_from(at).unwrap_or(0));
        // SAFETY: at most `size` bytes are written, to a local variable; `at` is looked up, not followed; the lists of
        // agents are not asked for.
        let status =
            unsafe { (self.0.info)(at, &raw mut info, null_mut(), null_mut(), null_mut()) };
        self.check("hsa_amd_pointer_info", status)?;
        // What it gives out is at one address for the agents and, if at all, the host.
        let offset = at.addr().wrapping_sub(info.agent_base.addr());
        let inside = offset.checked_add(len).is_some_and(|end| end <= info.bytes);
        if info.kind == 0 || !inside {
            return Err(CopyError(format!("{len} bytes at {at:?} are no memory of the runtime's")));
        }
        Ok(())
    }

    /// Checks an address as [`Self::check_pointer`] does, and returns the error as text.
    ///
    /// # Errors
    /// The text of the error of [`Self::check_pointer`].
    pub(super) fn check_memory(&self, at: u64) -> Result<(), String> {
        self.check_pointer(at, 0).map_err(|error| error.to_string())
    }

    /// Copies between ROCr device memory and host memory.
    ///
    /// # Safety
    /// `order.host` may be read or written, as its direction says, for `order.len` bytes.
    pub(super) unsafe fn copy(&self, order: CopyRequest) -> Result<(), CopyError> {
        let CopyRequest { direction, device, host, len } = order;
        // The runtime would follow an address that it does not know with the CPU.
        self.check_pointer(device, len)?;
        let device: *mut c_void =
            core::ptr::with_exposed_provenance_mut(usize::try_from(device).unwrap_or(0));
        let (to, from) = match direction {
            CopyDirection::ToHost => (host.cast(), device),
            CopyDirection::ToDevice => (device, host.cast()),
        };
        // SAFETY: the one side has `len` bytes by this function's contract, the other is memory that the runtime knows,
        // and is its to check; hsa_memory_copy is over when it returns.
        let status = unsafe { (self.0.copy)(to, from, len) };
        self.check("hsa_memory_copy", status)
    }
}
