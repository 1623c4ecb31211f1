//! The libfabric provider `squall`: Ultra Ethernet transport in software, as one shared object that
//! libfabric 1.17 to 2.x loads (`libsquall-fi.so`, found through FI_PROVIDER_PATH).
//!
//! This crate is the `fi_*` ABI: objects and their operation tables, argument checks, progress. The
//! transport is [`squall_engine`], the packet I/O [`squall_net`]; nothing here names a packet field.
//!
//! # Rooms
//!
//! Each directory is a room. The table in `docs/architecture.md` says what is where; a room imports those above it in the
//! table, and `ci/run check deps` holds it to that.
//!
//! # Conventions
//!
//! - Every object is an `Arc` of a `repr(C)` struct whose first field is libfabric's `fid_*`
//!   (`objects`); every `extern "C"` body runs inside `abi/boundary.rs`.
//! - Inside, functions return `Result<_, Errno>`; the boundary makes `-FI_E...` of it.
//! - What libfabric added after 1.17 is written out in `abi/compat.rs`.
//! - Parameters are one table (`host/param.rs`), failures another (`reports/fault.rs`).

mod abi;
mod av;
mod clock;
mod device_memory;
mod domain;
mod endpoint;
mod fabric;
mod host;
mod info;
mod mr;
mod network;
mod objects;
mod optional;
mod queues;
mod reports;
mod virtual_time;
mod waiting;

use abi::{boundary, compat, ffi};
use host::{announced, libfabric, logger, param, standard_error};
use reports::process_report;
use waiting::{background, open_endpoints, progress};

use core::cell::UnsafeCell;
use core::ffi::CStr;

/// Version of the provider, `major.minor`, packed as libfabric does it.
const VERSION: u32 = compat::version(
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
);

/// Converts decimal digits to a number at compile time.
const fn number(digits: &str) -> u32 {
    let (mut value, mut i) = (0, 0);
    while i < digits.len() {
        value = value * 10 + (digits.as_bytes()[i] - b'0') as u32;
        i += 1;
    }
    value
}

/// The libfabric API version that the provider reports. libfabric skips providers older than the version that the
/// application asks for, and MPICH asks for its library's own version. Changes of the API after 2.5 do not concern this
/// provider.
const FI_VERSION: u32 = compat::version(2, 9);

/// The provider record (`fi_provider`) that libfabric gets. libfabric writes its own data into `context`.
struct Record(UnsafeCell<ffi::fi_provider>);

// SAFETY: the pointers inside are to functions, and to a literal (`name`); `context` is the host's own. We do
// not read the record, only give its address away: once to the host, which writes to it while it
// registers providers, one at a time under its own lock, and then to its functions as our name tag.
unsafe impl Sync for Record {}

impl Record {
    /// Creates a provider record with a name and a version.
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
        if libfabric::add_caller() {
            logger::install();
            param::define();
        }
    });
    boundary::value(core::ptr::null_mut(), announced::record).cast()
}

/// Ends the provider for a libfabric that ends and may be unmapped afterwards, while this library stays loaded.
/// libfabric may call this before or after the library's own destructors, and with endpoints still open; a second call
/// finds nothing left to do.
unsafe extern "C" fn cleanup() {
    boundary::value((), || {
        if libfabric::remove_caller() {
            background::stop();
            progress::stop_all();
        }
        open_endpoints::report();
        process_report::write_at_exit();
    });
}
