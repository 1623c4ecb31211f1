//! The name under which the provider registers with libfabric.
//!
//! Some applications accept only the providers of a list that is compiled into them (`docs/consumers.md`). For these, a copy
//! of the provider in a file called `libsquall-as-tcp-fi.so` registers as `tcp`, in the place of libfabric's own provider
//! of that name. The name of the file decides, so both come from one build. Parameters and log lines keep the name squall.

use core::ptr::null_mut;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use crate::abi::compat;
use crate::abi::ffi;
use crate::host::libfabric;
use crate::{Record, provider};

/// The file whose copy of the provider registers as `tcp`.
const TCP_FILE: &str = "libsquall-as-tcp-fi.so";
/// Version of the record called `tcp`: of two providers with one name libfabric uses the newer one, and its own has a
/// hundred times libfabric's version.
const TCP_VERSION: u32 = compat::version(9999, 0);

static TCP: Record = Record::new(c"tcp", TCP_VERSION);

/// The name under which the provider registers with libfabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Announcement {
    /// The provider's own name, `squall`.
    Squall,
    /// The name of libfabric's provider for TCP, `tcp`.
    Tcp,
    /// No name: the copy for `tcp` lies in libfabric's own directory, from which it would replace libfabric's `tcp` in
    /// every process.
    Refused,
}

/// Returns the provider record to register, or NULL to register none.
pub(crate) fn record() -> *mut ffi::fi_provider {
    match announcement() {
        Announcement::Squall => provider().cast_mut(),
        Announcement::Tcp => TCP.0.get(),
        Announcement::Refused => {
            log::warn!(
                "{TCP_FILE} registers no provider: it lies in libfabric's own directory, from which it would replace tcp \
                 in every process; move it to a directory of its own and name that in FI_PROVIDER_PATH"
            );
            null_mut()
        }
    }
}

/// Returns whether the provider has registered as `tcp`.
pub(crate) fn is_tcp() -> bool {
    announcement() == Announcement::Tcp
}

fn announcement() -> Announcement {
    static ANNOUNCEMENT: OnceLock<Announcement> = OnceLock::new();
    *ANNOUNCEMENT.get_or_init(|| {
        libfabric::own_path().map_or(Announcement::Squall, |path| announcement_of(&path))
    })
}

/// Returns the name under which the provider in the file `path` registers.
fn announcement_of(path: &Path) -> Announcement {
    if path.file_name() != Some(OsStr::new(TCP_FILE)) {
        return Announcement::Squall;
    }
    match libfabric::installed_in(path) {
        Some(_) => Announcement::Refused,
        None => Announcement::Tcp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_decides_outside_of_libfabrics_directory() {
        let table = [
            ("/opt/squall/libsquall-fi.so", Announcement::Squall),
            ("/opt/squall-as-tcp/libsquall-as-tcp-fi.so", Announcement::Tcp),
            ("libsquall-as-tcp-fi.so", Announcement::Tcp),
            ("/usr/lib64/libfabric/libsquall-as-tcp-fi.so", Announcement::Refused),
            ("/usr/lib64/libfabric/libsquall-fi.so", Announcement::Squall),
            ("/opt/libsquall-as-tcp-fi.so/libsquall-fi.so", Announcement::Squall),
        ];
        for (path, announcement) in table {
            assert_eq!(announcement_of(Path::new(path)), announcement, "{path}");
        }
    }
}
