//! Level Zero (`libze_loader.so.1`; oneAPI Level Zero specification 1.x, core programming guide).

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use std::sync::Arc;

use parking_lot::Mutex;

use super::copy_request::{CopyDirection, CopyError, CopyRequest};
use super::library::{Library, functions};

type Status = c_int;

/// Level Zero flag ZE_INIT_FLAG_GPU_ONLY: initialise the drivers of GPUs only.
const GPU_ONLY: u32 = 1;
/// Level Zero structure types ZE_STRUCTURE_TYPE_CONTEXT_DESC and _COMMAND_QUEUE_DESC.
const CONTEXT_DESC: u32 = 0xd;
const QUEUE_DESC: u32 = 0xe;
/// Level Zero mode ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS: a command has ended when the call that appends it returns.
const SYNCHRONOUS: u32 = 1;

/// `ze_context_desc_t`, the description of a Level Zero context.
#[repr(C)]
struct ContextDesc {
    kind: u32,
    next: *const c_void,
    flags: u32,
}

/// `ze_command_queue_desc_t`, the description of a Level Zero command queue.
#[repr(C)]
struct QueueDesc {
    kind: u32,
    next: *const c_void,
    ordinal: u32,
    index: u32,
    flags: u32,
    mode: u32,
    priority: u32,
}

functions! {
    Functions {
        init = c"zeInit": unsafe extern "C" fn(u32) -> Status;
        drivers = c"zeDriverGet": unsafe extern "C" fn(*mut u32, *mut *mut c_void) -> Status;
        devices = c"zeDeviceGet": unsafe extern "C" fn(*mut c_void, *mut u32, *mut *mut c_void) -> Status;
        context = c"zeContextCreate": unsafe extern "C" fn(*mut c_void, *const ContextDesc, *mut *mut c_void) -> Status;
        list = c"zeCommandListCreateImmediate": unsafe extern "C" fn(
            *mut c_void, *mut c_void, *const QueueDesc, *mut *mut c_void
        ) -> Status;
        copy = c"zeCommandListAppendMemoryCopy": unsafe extern "C" fn(
            *mut c_void, *mut c_void, *const c_void, usize, *mut c_void, u32, *mut *mut c_void
        ) -> Status;
    }
}

fn check(call: &str, status: Status) -> Result<(), String> {
    // ze_result_t has no words for its numbers.
    if status == 0 { Ok(()) } else { Err(format!("{call}: ze_result_t {status:#x}")) }
}

/// A Level Zero command list of a device, which one thread at a time may use.
struct List(*mut c_void);

// SAFETY: a handle that any thread may use while no other does, which the mutex round it sees to.
unsafe impl Send for List {}

/// The first Level Zero driver, initialised, with its devices.
pub(super) struct Driver {
    functions: Arc<Functions>,
    /// The command lists of the devices, in the order of zeDeviceGet.
    lists: Vec<Arc<Mutex<List>>>,
}

impl Driver {
    /// Loads and initialises the Level Zero driver. Returns `None` if the machine has no such library.
    ///
    /// # Errors
    /// A text that describes the problem with the driver.
    pub(super) fn load() -> Result<Option<Self>, String> {
        let Some(library) = Library::load(c"libze_loader.so.1") else { return Ok(None) };
        let call = Functions::find(&library)?;
        let (mut driver, mut context) = (null_mut(), null_mut());
        let mut lists = Vec::new();
        // SAFETY: each writes as many handles as the count before says there is room for, to local variables, and reads
        // descriptions that are local variables of its type, with their kind in the first field. The handles are the
        // driver's own, and live until the process ends.
        unsafe {
            check("zeInit", (call.init)(GPU_ONLY))?;
            let mut count = 1;
            check("zeDriverGet", (call.drivers)(&raw mut count, &raw mut driver))?;
            let desc = ContextDesc { kind: CONTEXT_DESC, next: null_mut(), flags: 0 };
            check("zeContextCreate", (call.context)(driver, &raw const desc, &raw mut context))?;
            count = 0;
            check("zeDeviceGet", (call.devices)(driver, &raw mut count, null_mut()))?;
            let mut devices = vec![null_mut(); count as usize];
            check("zeDeviceGet", (call.devices)(driver, &raw mut count, devices.as_mut_ptr()))?;
            for device in devices.into_iter().take(count as usize) {
                // Every device has a group 0 of engines, which copy.
                let queue = QueueDesc {
                    kind: QUEUE_DESC,
                    next: null_mut(),
                    ordinal: 0,
                    index: 0,
                    flags: 0,
                    mode: SYNCHRONOUS,
                    priority: 0,
                };
                let mut list = null_mut();
                let made = (call.list)(context, device, &raw const queue, &raw mut list);
                check("zeCommandListCreateImmediate", made)?;
                lists.push(Arc::new(Mutex::new(List(list))));
            }
        }
        if lists.is_empty() {
            return Err("it has no device".into());
        }
        Ok(Some(Self { functions: Arc::new(call), lists }))
    }

    /// Returns the device of a `fi_hmem_ze_device`: the driver's index is in the upper 16 bits, and the device's index
    /// in the lower ones.
    ///
    /// # Errors
    /// A text that says that the device does not exist.
    pub(super) fn device(&self, number: u32) -> Result<Device, String> {
        let (driver, index) = (number >> 16, number & 0xffff);
        let list = self.lists.get(index as usize).filter(|_| driver == 0);
        let list = list.ok_or_else(|| format!("there is no device {index} of driver {driver}"))?;
        Ok(Device { index, functions: Arc::clone(&self.functions), list: Arc::clone(list) })
    }
}

/// The memory of a Level Zero device, with the command list that copies it.
pub(super) struct Device {
    index: u32,
    functions: Arc<Functions>,
    list: Arc<Mutex<List>>,
}

impl Device {
    /// Returns the number that identifies the Level Zero device.
    pub(super) fn key(&self) -> u32 {
        self.index
    }

    /// Copies between Level Zero device memory and host memory.
    ///
    /// # Safety
    /// `order.host` may be read or written, as its direction says, for `order.len` bytes.
    pub(super) unsafe fn copy(&self, order: CopyRequest) -> Result<(), CopyError> {
        let CopyRequest { direction, device, host, len } = order;
        let device: *mut c_void =
            core::ptr::with_exposed_provenance_mut(usize::try_from(device).unwrap_or(0));
        let (to, from) = match direction {
            CopyDirection::ToHost => (host.cast(), device),
            CopyDirection::ToDevice => (device, host.cast()),
        };
        let list = self.list.lock();
        // SAFETY: the one side has `len` bytes by this function's contract, the other is for the device to check; the
        // list is held, and synchronous, so that the copy is over when this returns. No events are given.
        let status =
            unsafe { (self.functions.copy)(list.0, to, from, len, null_mut(), 0, null_mut()) };
        check("zeCommandListAppendMemoryCopy", status).map_err(CopyError)
    }
}
