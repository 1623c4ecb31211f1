//! The libfabric that loaded us: its parameter and log functions, found at run time.
//!
//! There is no link dependency on libfabric (spec: MPI wheels bundle their own, often loaded
//! RTLD_LOCAL, and a versioned reference would not load in 1.17 or would pull in a second copy). The
//! functions used here have had one signature since 1.4. Without them everything works with
//! defaults and without logging.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use std::ffi::CString;
use std::sync::OnceLock;

use crate::ffi;

type Define = unsafe extern "C" fn(
    *const ffi::fi_provider,
    *const c_char,
    ffi::fi_param_type,
    *const c_char,
    ...
) -> c_int;
type Get = unsafe extern "C" fn(*mut ffi::fi_provider, *const c_char, *mut c_void) -> c_int;
type Log = unsafe extern "C" fn(
    *const ffi::fi_provider,
    ffi::fi_log_level,
    ffi::fi_log_subsys,
    *const c_char,
    c_int,
    *const c_char,
    ...
);
type LogEnabled =
    unsafe extern "C" fn(*const ffi::fi_provider, ffi::fi_log_level, ffi::fi_log_subsys) -> c_int;

/// What the host offers; each may be missing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Host {
    pub(crate) param_define: Option<Define>,
    pub(crate) param_get: Option<Get>,
    pub(crate) log: Option<Log>,
    pub(crate) log_enabled: Option<LogEnabled>,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// The host's functions. The first call must come from inside `fi_prov_ini`, so that the calling
/// libfabric is on the stack.
pub(crate) fn host() -> &'static Host {
    HOST.get_or_init(|| {
        // Miri has no loader to ask, and no libfabric is loaded there.
        if cfg!(miri) {
            return Host::default();
        }
        for source in [Source::Caller, Source::Default, Source::Name, Source::Loaded] {
            if let Some(found) = source.find() {
                return found;
            }
        }
        Host::default()
    })
}

/// Places to look, the surest first.
#[derive(Clone, Copy)]
enum Source {
    /// The objects on the call stack: one of them is the libfabric that called `fi_prov_ini`. Exact
    /// even when a process holds several libfabrics.
    Caller,
    /// The global symbol scope: libfabric linked into the program or loaded RTLD_GLOBAL.
    Default,
    /// An already loaded `libfabric.so.1`.
    Name,
    /// Any loaded object whose name speaks of fabric: bundled under another name.
    Loaded,
}

impl Source {
    fn find(self) -> Option<Host> {
        match self {
            Self::Caller => caller_objects().iter().find_map(|path| from_loaded(path)),
            Self::Default => from_handle(libc::RTLD_DEFAULT),
            Self::Name => from_loaded(c"libfabric.so.1"),
            Self::Loaded => loaded_objects().iter().find_map(|path| from_loaded(path)),
        }
    }
}

fn from_loaded(path: &CStr) -> Option<Host> {
    // SAFETY: a terminated string; RTLD_NOLOAD runs no code of the object.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let found = from_handle(handle);
    // SAFETY: the handle is the one just opened; the host keeps its own reference, it loaded us.
    unsafe { libc::dlclose(handle) };
    found
}

fn from_handle(handle: *mut c_void) -> Option<Host> {
    // SAFETY: a valid handle and terminated names.
    let symbol = |name: &CStr| unsafe { libc::dlsym(handle, name.as_ptr()) };
    let (define, get) = (symbol(c"fi_param_define"), symbol(c"fi_param_get"));
    if define.is_null() || get.is_null() {
        return None;
    }
    // SAFETY: libfabric's exported functions of these names have these signatures (rdma/providers/
    // fi_prov.h, fi_log.h, rdma/fabric.h, unchanged from 1.4 to 2.6); a null becomes None.
    unsafe {
        Some(Host {
            param_define: transmute::<*mut c_void, Option<Define>>(define),
            param_get: transmute::<*mut c_void, Option<Get>>(get),
            log: transmute::<*mut c_void, Option<Log>>(symbol(c"fi_log")),
            log_enabled: transmute::<*mut c_void, Option<LogEnabled>>(symbol(c"fi_log_enabled")),
        })
    }
}

/// Paths of the objects that own the frames of the current call stack.
fn caller_objects() -> Vec<CString> {
    let mut frames = [null_mut::<c_void>(); 32];
    // SAFETY: room for 32 addresses.
    let n = unsafe { libc::backtrace(frames.as_mut_ptr(), 32) };
    let mut paths: Vec<CString> = Vec::new();
    for frame in frames.iter().take(usize::try_from(n).unwrap_or(0)) {
        // SAFETY: all-zero is a valid Dl_info.
        let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: dladdr takes any address and fills `info` when it returns non-zero.
        if unsafe { libc::dladdr(*frame, &raw mut info) } == 0 || info.dli_fname.is_null() {
            continue;
        }
        // SAFETY: dladdr's names are terminated and live while the object is loaded.
        let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_owned();
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Paths of loaded objects that may be a libfabric under another name.
fn loaded_objects() -> Vec<CString> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the vector passed below; the loader passes a valid record.
        let (paths, name) = unsafe { (&mut *data.cast::<Vec<CString>>(), (*info).dlpi_name) };
        if !name.is_null() {
            // SAFETY: the loader's names are terminated.
            let name = unsafe { CStr::from_ptr(name) };
            if name.to_bytes().windows(6).any(|w| w == b"fabric") {
                paths.push(name.to_owned());
            }
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: the callback matches, and `paths` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut paths).cast()) };
    paths
}
