//! The libfabric provider `squall`: Ultra Ethernet transport in software, as one shared object that
//! libfabric 1.17 to 2.x loads (`libsquall-fi.so`, found through FI_PROVIDER_PATH).
//!
//! This crate is the `fi_*` ABI: objects and their operation tables, argument checks, progress. The
//! transport is [`squall_engine`], the packet I/O [`squall_net`]; nothing here names a packet field.
//!
//! # Rooms
//!
//! - `endpoint` is the data path: `calls` check arguments and build a descriptor, `transmit` and `receive` submit it,
//!   `poller` moves packets, `delivery` reports the end of operations, `shutdown` closes.
//! - `optional` has the facilities that an endpoint without them does not pay for: triggered work, peer providers,
//!   collectives, device memory. The data path asks them before an operation is submitted and after one of theirs ends.
//! - `objects` is what all libfabric objects have in common; `cq`, `cntr`, `av`, `mr`, `eq` and `domain` are the objects.
//! - `endpoint_driver` and `backoff` serve threads that poll or wait; `progress` and `background` are threads of ours.
//!
//! # Conventions
//!
//! - Every object is an `Arc` of a `repr(C)` struct whose first field is libfabric's `fid_*`
//!   (`objects.rs`); every `extern "C"` body runs inside `boundary.rs`.
//! - Inside, functions return `Result<_, Errno>`; the boundary makes `-FI_E...` of it.
//! - What libfabric added after 1.17 is written out in `compat.rs`.
//! - Parameters are one table (`param.rs`), failures another (`fault.rs`).

mod activation;
mod addr;
mod announced;
mod av;
mod background;
mod backoff;
mod boundary;
mod clock;
mod cntr;
mod compat;
mod cq;
mod domain;
mod endpoint;
mod endpoint_driver;
mod endpoint_lock;
mod eq;
mod errno;
mod fabric;
mod fault;
mod ffi;
mod flags;
mod host;
mod info;
mod job;
mod key_log;
mod limits;
mod logger;
#[cfg(test)]
mod manual;
mod memory_limit;
mod monitor;
mod mr;
mod nic;
mod objects;
mod open_endpoints;
mod optional;
mod order;
mod param;
mod poll;
mod process_report;
mod progress;
mod secret;
mod standard_error;
mod stats;
mod thread;
mod trace;
mod virtual_time;
mod wait;

use core::cell::UnsafeCell;
use core::ffi::CStr;

/// Version of the provider, `major.minor` as libfabric packs it.
const VERSION: u32 = compat::version(
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
);

/// Parses a number of decimal digits.
const fn number(digits: &str) -> u32 {
    let (mut value, mut i) = (0, 0);
    while i < digits.len() {
        value = value * 10 + (digits.as_bytes()[i] - b'0') as u32;
        i += 1;
    }
    value
}

/// The libfabric API version we say we speak. A host skips providers older than what the application
/// asks for, and MPICH asks for its library's own version; what is newer than 2.5 concerns nothing
/// that we use.
const FI_VERSION: u32 = compat::version(2, 9);

/// The provider record. The host writes its own data into `context`.
struct Record(UnsafeCell<ffi::fi_provider>);

// SAFETY: the pointers inside are to functions, and to a literal (`name`); `context` is the host's own. We do
// not read the record, only give its address away: once to the host, which writes to it while it
// registers providers, one at a time under its own lock, and then to its functions as our name tag.
unsafe impl Sync for Record {}

impl Record {
    /// Makes a record of the provider under a name and a version of it.
    const fn new(name: &'static CStr, version: u32) -> Self {
        Self(UnsafeCell::new(ffi::fi_provider {
            version,
            fi_version: FI_VERSION,
            context: ffi::fi_context { internal: [core::ptr::null_mut(); 4] },
            name: name.as_ptr(),
            getinfo: Some(info::getinfo),
            fabric: Some(fabric::calls::open),
            cleanup: Some(cleanup),
        }))
    }
}

static PROVIDER: Record = Record::new(c"squall", VERSION);

/// The record that gives parameters and log lines their name. The host registers it, unless another name is announced.
fn provider() -> *const ffi::fi_provider {
    PROVIDER.0.get()
}

/// Entry point that libfabric calls after it has loaded the object. It registers parameters and starts nothing. A
/// libfabric that is loaded after another was unloaded finds the state that the other one left.
///
/// The result is a `struct fi_provider *` that stays valid and writable for the rest of the process, or NULL, which
/// libfabric takes for an object without a provider.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut core::ffi::c_void {
    boundary::value((), || {
        standard_error::remember();
        if host::add_caller() {
            logger::install();
            param::define();
        }
    });
    boundary::value(core::ptr::null_mut(), announced::record).cast()
}

/// Ends the provider for a libfabric that ends, and that may be unmapped afterwards, though we stay. It may call this
/// before or after the object's own destructors, and with endpoints still open; a second call finds nothing left to do.
/// Threads may be another host's as well, while one is there.
unsafe extern "C" fn cleanup() {
    boundary::value((), || {
        if host::remove_caller() {
            background::stop();
            progress::stop_all();
        }
        open_endpoints::report();
        process_report::write_at_exit();
    });
}
