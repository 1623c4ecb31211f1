//! CUDA, by its driver API (`libcuda.so.1`; CUDA Driver API reference, sections 6.5 to 6.21).
//!
//! The functions are called with the context current that the memory is of, whichever thread calls, and leave the
//! thread's own as it was. Copies go by a stream of ours that does not wait for the application's.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use std::task::Poll;

use super::copy_request::{CopyDirection, CopyError, CopyRequest};
use super::library::{Library, functions};

type Status = c_int;

const SUCCESS: Status = 0;
const NOT_READY: Status = 600;
/// CUDA flag CU_STREAM_NON_BLOCKING: the stream does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;
/// CUDA flag CU_EVENT_DISABLE_TIMING: the event records no times.
const NO_TIMING: c_uint = 2;
/// CUDA flag CU_MEMHOSTALLOC_PORTABLE: the memory is pinned for every context.
const PORTABLE: c_uint = 1;
/// CUDA pointer attributes for the context (CU_POINTER_ATTRIBUTE_CONTEXT) and the device (_DEVICE_ORDINAL).
const OF_CONTEXT: c_int = 1;
const OF_ORDINAL: c_int = 9;

functions! {
    /// The functions of the driver that this provider calls. Names that end in `_v2` are those to
    /// which `cuda.h` maps the plain names.
    Functions {
        init = c"cuInit": unsafe extern "C" fn(c_uint) -> Status;
        error_name = c"cuGetErrorName": unsafe extern "C" fn(Status, *mut *const c_char) -> Status;
        error_string = c"cuGetErrorString": unsafe extern "C" fn(Status, *mut *const c_char) -> Status;
        device_count = c"cuDeviceGetCount": unsafe extern "C" fn(*mut c_int) -> Status;
        device = c"cuDeviceGet": unsafe extern "C" fn(*mut c_int, c_int) -> Status;
        primary = c"cuDevicePrimaryCtxRetain": unsafe extern "C" fn(*mut *mut c_void, c_int) -> Status;
        push = c"cuCtxPushCurrent_v2": unsafe extern "C" fn(*mut c_void) -> Status;
        pop = c"cuCtxPopCurrent_v2": unsafe extern "C" fn(*mut *mut c_void) -> Status;
        attribute = c"cuPointerGetAttribute": unsafe extern "C" fn(*mut c_void, c_int, u64) -> Status;
        to_host = c"cuMemcpyDtoHAsync_v2": unsafe extern "C" fn(*mut c_void, u64, usize, *mut c_void) -> Status;
        to_device = c"cuMemcpyHtoDAsync_v2": unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> Status;
        stream = c"cuStreamCreate": unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Status;
        stream_query = c"cuStreamQuery": unsafe extern "C" fn(*mut c_void) -> Status;
        stream_wait = c"cuStreamSynchronize": unsafe extern "C" fn(*mut c_void) -> Status;
        stream_destroy = c"cuStreamDestroy_v2": unsafe extern "C" fn(*mut c_void) -> Status;
        event = c"cuEventCreate": unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Status;
        event_record = c"cuEventRecord": unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
        event_query = c"cuEventQuery": unsafe extern "C" fn(*mut c_void) -> Status;
        event_wait = c"cuEventSynchronize": unsafe extern "C" fn(*mut c_void) -> Status;
        event_destroy = c"cuEventDestroy_v2": unsafe extern "C" fn(*mut c_void) -> Status;
        pin = c"cuMemHostAlloc": unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Status;
        unpin = c"cuMemFreeHost": unsafe extern "C" fn(*mut c_void) -> Status;
    }
}

/// The CUDA driver, loaded and initialised, on a machine with at least one device.
pub(super) struct Driver(Functions);

impl Driver {
    /// Loads and initialises the CUDA driver. Returns `None` if the machine has no such library.
    ///
    /// # Errors
    /// A text that describes the problem with the driver.
    pub(super) fn load() -> Result<Option<Self>, String> {
        let Some(library) = Library::load(c"libcuda.so.1") else { return Ok(None) };
        let driver = Self(Functions::find(&library)?);
        let mut count = 0;
        // SAFETY: cuInit(3) takes flags, of which there are none; the other writes one int, a local variable.
        unsafe {
            driver.check("cuInit", (driver.0.init)(0)).map_err(|error| error.to_string())?;
            let counted = (driver.0.device_count)(&raw mut count);
            driver.check("cuDeviceGetCount", counted).map_err(|error| error.to_string())?;
        }
        if count == 0 { Err("it has no device".into()) } else { Ok(Some(driver)) }
    }

    fn check(&self, call: &str, status: Status) -> Result<(), CopyError> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = |of: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = core::ptr::null();
            // SAFETY: the function writes one pointer, to a local variable: NULL, or a string of the driver's own that
            // is never freed.
            unsafe {
                of(status, &raw mut text);
                if text.is_null() {
                    return "unknown".into();
                }
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        let (name, words) = (text(self.0.error_name), text(self.0.error_string));
        Err(CopyError(format!("{call}: {name} ({status}): {words}")))
    }

    /// Returns the CUDA context of the memory at `at`, which must be memory of the device `ordinal`.
    ///
    /// # Errors
    /// A text that says why there is none.
    pub(super) fn context_of(&'static self, at: u64, ordinal: u32) -> Result<Context, String> {
        let (mut context, mut found) = (null_mut::<c_void>(), -1 as c_int);
        // SAFETY: either writes one value of the attribute's type, a context or an int, to a local variable; `at` is
        // looked up, not followed.
        let (of_context, of_ordinal) = unsafe {
            (
                (self.0.attribute)((&raw mut context).cast(), OF_CONTEXT, at),
                (self.0.attribute)((&raw mut found).cast(), OF_ORDINAL, at),
            )
        };
        let text = |error: CopyError| error.to_string();
        self.check("cuPointerGetAttribute", of_ordinal).map_err(text)?;
        if u32::try_from(found).ok() != Some(ordinal) {
            return Err(format!("{at:#x} is memory of device {found}, not of {ordinal}"));
        }
        // Memory of a pool, or mapped by hand, is of no context: the device's primary one may access it.
        if of_context != SUCCESS || context.is_null() {
            let mut device = 0;
            // SAFETY: the first writes an int, the second a context, to local variables. It stays retained: the process
            // has the region's copies to make, and the application the allocation.
            unsafe {
                self.check("cuDeviceGet", (self.0.device)(&raw mut device, found)).map_err(text)?;
                let retained = (self.0.primary)(&raw mut context, device);
                self.check("cuDevicePrimaryCtxRetain", retained).map_err(text)?;
            }
        }
        let mut opened = Context { driver: self, context, stream: null_mut() };
        let inside = opened.enter().map_err(text)?;
        let mut stream = null_mut();
        // SAFETY: writes one stream, to a local variable; the context is current.
        let made = unsafe { (self.0.stream)(&raw mut stream, NON_BLOCKING) };
        drop(inside);
        self.check("cuStreamCreate", made).map_err(text)?;
        opened.stream = stream;
        Ok(opened)
    }
}

/// A context of CUDA with a stream of the provider, in which its copies run.
pub(super) struct Context {
    driver: &'static Driver,
    context: *mut c_void,
    stream: *mut c_void,
}

// SAFETY: both are handles that the driver lets any thread use, one after the other or at once (CUDA C++ Programming
// Guide, 3.3: the context is made current by the calling thread); nothing here is written after it was made.
unsafe impl Send for Context {}
// SAFETY: the driver's functions, which alone get at what the two handles stand for, take locks of their own.
unsafe impl Sync for Context {}

/// A CUDA event, recorded in the stream behind a copy, which shows when the copy has ended.
pub(crate) struct Event(*mut c_void);

// SAFETY: a handle that any thread may ask about and destroy, as the driver locks.
unsafe impl Send for Event {}

/// Guard that keeps a CUDA context current in this thread until it is dropped.
struct Inside<'a>(&'a Functions);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut context = null_mut();
        // SAFETY: the thread pushed one (`enter` made this value), which is popped once; it is written to a local.
        unsafe { (self.0.pop)(&raw mut context) };
    }
}

impl Context {
    /// Returns the number that identifies the CUDA context.
    pub(super) fn key(&self) -> usize {
        self.context.addr()
    }

    fn enter(&self) -> Result<Inside<'_>, CopyError> {
        // SAFETY: a context that the driver gave out; if the application has destroyed it meanwhile the driver says so.
        let pushed = unsafe { (self.driver.0.push)(self.context) };
        self.driver.check("cuCtxPushCurrent", pushed).map(|()| Inside(&self.driver.0))
    }

    /// Returns whether the CUDA context still exists, and is not another one at the same address.
    pub(super) fn is_alive(&self) -> bool {
        let Ok(_inside) = self.enter() else { return false };
        // SAFETY: asks about a stream of ours, which the driver looks up.
        matches!(unsafe { (self.driver.0.stream_query)(self.stream) }, SUCCESS | NOT_READY)
    }

    /// Puts a copy into the context's stream. The context is current.
    ///
    /// # Safety
    /// As [`Self::begin`].
    unsafe fn enqueue_copy(&self, order: CopyRequest) -> Result<(), CopyError> {
        let CopyRequest { direction, device, host, len } = order;
        let call = &self.driver.0;
        // SAFETY: `host` has `len` bytes for this direction by this function's contract; `device` is checked by the
        // driver.
        let (name, status) = unsafe {
            match direction {
                CopyDirection::ToHost => {
                    ("cuMemcpyDtoHAsync", (call.to_host)(host.cast(), device, len, self.stream))
                }
                CopyDirection::ToDevice => {
                    ("cuMemcpyHtoDAsync", (call.to_device)(device, host.cast(), len, self.stream))
                }
            }
        };
        self.driver.check(name, status)
    }

    /// Copies between CUDA device memory and host memory, and waits for the end.
    ///
    /// # Safety
    /// `order.host` may be read or written, as its direction says, for `order.len` bytes.
    pub(super) unsafe fn copy(&self, order: CopyRequest) -> Result<(), CopyError> {
        let _inside = self.enter()?;
        // SAFETY: as this function's contract says, and the copy is over when it returns.
        unsafe {
            self.enqueue_copy(order)?;
            self.driver.check("cuStreamSynchronize", (self.driver.0.stream_wait)(self.stream))
        }
    }

    /// Begins a copy between CUDA device memory and host memory.
    ///
    /// # Safety
    /// `order.host` may be read or written, as its direction says, for `order.len` bytes, until the event says that it is over.
    pub(super) unsafe fn begin(&self, order: CopyRequest) -> Result<Event, CopyError> {
        let _inside = self.enter()?;
        let mut event = null_mut();
        let call = &self.driver.0;
        // SAFETY: an event is written to a local variable and recorded in a stream of the same context; the copy is as
        // this function's contract says. When the event cannot be recorded, the copy is waited for.
        unsafe {
            self.driver.check("cuEventCreate", (call.event)(&raw mut event, NO_TIMING))?;
            let event = Event(event);
            let ordered = self.enqueue_copy(order).and_then(|()| {
                self.driver.check("cuEventRecord", (call.event_record)(event.0, self.stream))
            });
            if let Err(error) = ordered {
                (call.stream_wait)(self.stream);
                (call.event_destroy)(event.0);
                return Err(error);
            }
            Ok(event)
        }
    }

    /// Returns whether a copy has ended, and its result. The event is destroyed if it has.
    pub(super) fn poll(&self, event: &Event) -> Poll<Result<(), CopyError>> {
        let inside = match self.enter() {
            Ok(inside) => inside,
            Err(error) => return Poll::Ready(Err(error)),
        };
        // SAFETY: an event that `begin` made, which was not found over before.
        let status = unsafe { (inside.0.event_query)(event.0) };
        if status == NOT_READY {
            return Poll::Pending;
        }
        // SAFETY: the same event, destroyed once: who gets `Ready` asks no more.
        unsafe { (inside.0.event_destroy)(event.0) };
        Poll::Ready(self.driver.check("cuEventQuery", status))
    }

    /// Waits for a copy whose result is not needed, and destroys the event.
    pub(super) fn wait(&self, event: &Event) {
        let Ok(inside) = self.enter() else { return };
        // SAFETY: an event that `begin` made, which was not found over; this is the last that is done with it.
        unsafe {
            (inside.0.event_wait)(event.0);
            (inside.0.event_destroy)(event.0);
        }
    }

    /// Allocates host memory that the device can access by itself (pinned memory), without which no copy is
    /// asynchronous. Returns `None` if there is no more.
    pub(super) fn pin(&self, len: usize) -> Option<*mut u8> {
        let inside = self.enter().ok()?;
        let mut memory = null_mut();
        // SAFETY: writes the address of new memory, to a local variable, or says that there is none.
        let status = unsafe { (inside.0.pin)(&raw mut memory, len, PORTABLE) };
        (status == SUCCESS && !memory.is_null()).then_some(memory.cast())
    }

    /// Frees pinned host memory.
    ///
    /// # Safety
    /// It is from [`Self::pin`] of this context, and nothing uses it any more.
    pub(super) unsafe fn unpin(&self, memory: *mut u8) {
        if let Ok(inside) = self.enter() {
            // SAFETY: memory that cuMemHostAlloc gave out in this context, which is current, and that no code uses any
            // more.
            unsafe { (inside.0.unpin)(memory.cast()) };
        }
    }
}

impl Drop for Context {
    /// Destroys the stream of a context that is not in the table of device memories, because it was known already.
    fn drop(&mut self) {
        if !self.stream.is_null()
            && let Ok(inside) = self.enter()
        {
            // SAFETY: the stream that this value made, destroyed once; copies wait for its end before they let go of
            // the context.
            unsafe { (inside.0.stream_destroy)(self.stream) };
        }
    }
}
