//! The libfabric that loaded us: its parameter and log functions, found at run time.
//!
//! There is no link dependency on libfabric (spec: MPI wheels bundle their own, often loaded
//! RTLD_LOCAL, and a versioned reference would not load in 1.17 or would pull in a second copy). The
//! functions used here have had one signature since 1.4. Without them everything works with
//! defaults and without logging.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::abi::compat::version;
use crate::abi::ffi;
use crate::objects::PerProcess;

/// Name of libfabric's own provider directory under every prefix, such as `/usr/lib64/libfabric`.
const DIRECTORY: &str = "libfabric";
/// The first release that has the structures for peer providers as they are in `optional/peer_provider.rs`.
const PEER_PROVIDERS_SINCE: u32 = version(2, 3);

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

/// The functions of the libfabric that loaded the provider. Each may be missing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Host {
    pub(crate) param_define: Option<Define>,
    pub(crate) param_get: Option<Get>,
    pub(crate) log: Option<Log>,
    pub(crate) log_enabled: Option<LogEnabled>,
    version: Option<unsafe extern "C" fn() -> u32>,
    /// The address at which the loader put libfabric; 0 if it is unknown.
    base: usize,
}

impl Host {
    /// Returns the version of libfabric as FI_VERSION packs it; 0 if it has no fi_version(3).
    pub(crate) fn release(&self) -> u32 {
        // SAFETY: fi_version(3), found in libfabric, which takes nothing and only returns a number.
        self.version.map_or(0, |version| unsafe { version() })
    }

    /// Returns whether libfabric's structures for peer providers (FI_PEER) are those that we know.
    pub(crate) fn has_peer_providers(&self) -> bool {
        self.release() >= PEER_PROVIDERS_SINCE
    }
}

/// The functions that are used before a libfabric has loaded the provider: none.
static NOBODY: Host = Host {
    param_define: None,
    param_get: None,
    log: None,
    log_enabled: None,
    version: None,
    base: 0,
};

/// The functions of the libfabric that loaded the provider last, or NULL.
static HOST: AtomicPtr<Host> = AtomicPtr::new(null_mut());

/// The libfabrics that have loaded the provider and are still loaded, in this order. They are never freed, because a
/// program does not load them without end.
static KNOWN: PerProcess<Mutex<Vec<&'static Host>>> = PerProcess::new();

/// Returns the functions of the libfabric that loaded the provider; of several, of the last.
pub(crate) fn host() -> &'static Host {
    // SAFETY: NULL, or made of a `&'static Host` by `show`, with `Acquire` seeing all that was written before.
    unsafe { HOST.load(Ordering::Acquire).as_ref() }.unwrap_or(&NOBODY)
}

fn log_hosts(known: &[&'static Host]) {
    let last =
        known.last().copied().map_or(null_mut(), |last| core::ptr::from_ref(last).cast_mut());
    HOST.store(last, Ordering::Release);
}

/// Adds the libfabric that calls `fi_prov_ini` and is on the stack. Returns whether it is new.
pub(crate) fn add_caller() -> bool {
    // Miri has no loader to ask, and no libfabric is loaded there.
    if cfg!(miri) {
        return false;
    }
    let sources = [Source::Caller, Source::Default, Source::Name, Source::LoadedObject];
    let Some(found) = sources.into_iter().find_map(Source::find) else { return false };
    let mut known = KNOWN.get().lock();
    if known.iter().any(|host| host.base == found.base) {
        return false;
    }
    known.push(Box::leak(Box::new(found)));
    log_hosts(&known);
    true
}

/// Removes the libfabric that calls `cleanup` and is on the stack. It may be unmapped afterwards, so none of its functions
/// is called any more. Returns whether no other libfabric is left.
pub(crate) fn remove_caller() -> bool {
    let mut known = KNOWN.get().lock();
    let callers = caller_objects();
    // If no caller can be identified, the call counts for all of them.
    let identified = known.iter().any(|host| callers.iter().any(|caller| caller.base == host.base));
    known.retain(|host| identified && callers.iter().all(|caller| caller.base != host.base));
    log_hosts(&known);
    known.is_empty()
}

/// The places in which the functions of libfabric are searched, the surest first.
#[derive(Clone, Copy)]
enum Source {
    /// The libfabric on the call stack, which called `fi_prov_ini`. The search is exact even if a process holds several
    /// libfabrics.
    Caller,
    /// The global symbol scope: a libfabric linked into the program or loaded with RTLD_GLOBAL.
    Default,
    /// The library `libfabric.so.1`, if it is loaded already.
    Name,
    /// Any loaded object whose name contains "fabric": a libfabric bundled under another name.
    LoadedObject,
}

impl Source {
    fn find(self) -> Option<Host> {
        match self {
            Self::Caller => caller_objects().iter().find_map(|object| from_loaded(&object.path)),
            Self::Default => from_handle(libc::RTLD_DEFAULT),
            Self::Name => from_loaded(c"libfabric.so.1"),
            Self::LoadedObject => loaded_objects().iter().find_map(|path| from_loaded(path)),
        }
    }
}

fn from_loaded(path: &CStr) -> Option<Host> {
    // SAFETY: `path` is terminated and lives through the call. RTLD_NOLOAD takes a reference to an object
    // that is loaded already, or returns NULL: no constructor runs.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let found = from_handle(handle);
    // SAFETY: the handle is the one that dlopen returned above, closed once. The functions found in it stay
    // loaded: the object was in memory before, and is the libfabric that loaded us or one that the
    // program holds for as long as it uses us.
    unsafe { libc::dlclose(handle) };
    found
}

fn from_handle(handle: *mut c_void) -> Option<Host> {
    // SAFETY: `handle` is RTLD_DEFAULT, or open until `from_loaded` closes it after this; the names are
    // literals with a terminator.
    let symbol = |name: &CStr| unsafe { libc::dlsym(handle, name.as_ptr()) };
    let (define, get) = (symbol(c"fi_param_define"), symbol(c"fi_param_get"));
    if define.is_null() || get.is_null() {
        return None;
    }
    let base = object_of(define).map_or(0, |object| object.base);
    // SAFETY: an `Option` of a function pointer has the size of a pointer, and NULL is None. What is not
    // NULL is a function of libfabric's, no other library exporting both `fi_param_define` and
    // `fi_param_get`, and these have had these signatures from 1.4 to 2.6 (rdma/providers/fi_prov.h,
    // fi_log.h).
    unsafe {
        Some(Host {
            param_define: transmute::<*mut c_void, Option<Define>>(define),
            param_get: transmute::<*mut c_void, Option<Get>>(get),
            log: transmute::<*mut c_void, Option<Log>>(symbol(c"fi_log")),
            log_enabled: transmute::<*mut c_void, Option<LogEnabled>>(symbol(c"fi_log_enabled")),
            version: transmute::<*mut c_void, Option<unsafe extern "C" fn() -> u32>>(symbol(
                c"fi_version",
            )),
            base,
        })
    }
}

/// Returns the path from which the loader loaded this provider, as libfabric named it; `None` if the loader does not know.
pub(crate) fn own_path() -> Option<PathBuf> {
    // Miri has no loader to ask.
    if cfg!(miri) {
        return None;
    }
    let object = object_of(crate::provider().cast())?;
    Some(PathBuf::from(OsString::from_vec(object.path.into_bytes())))
}

/// Returns the directory of the shared object at `path` if it is libfabric's own provider directory. Symbolic links may
/// lead from there to the object's real place, or from another path to there: in both cases a default search may find
/// the object.
pub(crate) fn installed_in(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize();
    [Ok(path.to_owned()), real].into_iter().flatten().find_map(|path| {
        let directory = path.parent()?;
        (directory.file_name()? == DIRECTORY).then(|| directory.to_owned())
    })
}

/// A shared object of the process: the file that it came from, and its address.
struct LoadedObject {
    path: CString,
    base: usize,
}

/// Returns the shared object that contains an address.
fn object_of(address: *const c_void) -> Option<LoadedObject> {
    // SAFETY: a Dl_info is four pointers, for which zero is a value.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: dladdr(3) looks `address` up among the loaded objects, whatever it is, without following
    // it, and writes one Dl_info, into a local variable.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so the name, which is not NULL, is terminated and lives while its
    // object is loaded; our callers ask for what is on the stack, was found by dlsym just now, or is in this object, so
    // it stays at least until we return. It is copied.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_owned();
    Some(LoadedObject { path, base: info.dli_fbase.addr() })
}

/// Returns the shared objects that contain the functions of the current call stack, each once.
fn caller_objects() -> Vec<LoadedObject> {
    let mut frames = [null_mut::<c_void>(); 32];
    // SAFETY: backtrace(3) writes at most the 32 addresses that `frames`, a local array, has room for.
    let n = unsafe { libc::backtrace(frames.as_mut_ptr(), 32) };
    let mut objects: Vec<LoadedObject> = Vec::new();
    for frame in frames.iter().take(usize::try_from(n).unwrap_or(0)) {
        if let Some(object) = object_of(*frame)
            && objects.iter().all(|other| other.base != object.base)
        {
            objects.push(object);
        }
    }
    objects
}

/// Returns the paths of loaded shared objects that may be a libfabric under another name.
fn loaded_objects() -> Vec<CString> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: only dl_iterate_phdr below calls this, in its own thread and for the time of that call:
        // `data` is the vector that it was given, to which nothing else refers meanwhile, and `info` a
        // record of the loader's, valid until we return.
        let (paths, name) = unsafe { (&mut *data.cast::<Vec<CString>>(), (*info).dlpi_name) };
        if !name.is_null() {
            // SAFETY: not NULL, so a name of the loader's: terminated, and there until this callback returns.
            let name = unsafe { CStr::from_ptr(name) };
            if name.to_bytes().windows(6).any(|w| w == b"fabric") {
                paths.push(name.to_owned());
            }
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: `visit` has the signature asked for and takes its `data` for a `Vec<CString>`, which
    // `paths` is; `paths` outlives the call and is not used otherwise before it returns. `visit` may
    // panic only when memory is short, which aborts.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut paths).cast()) };
    paths
}
