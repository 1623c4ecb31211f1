//! Standard error of the process, which is descriptor 2 for as long as the application leaves it alone. An application may
//! close it, and then the number belongs to the next file that it opens.

use std::sync::OnceLock;

/// Device number and inode number, which identify a file.
type FileId = (libc::dev_t, libc::ino_t);

/// The file behind standard error when the provider was loaded; `None` if there was none.
static AT_LOAD: OnceLock<Option<FileId>> = OnceLock::new();

/// Records which file descriptor 2 (standard error) is. A descriptor that is closed at exec was not there when the
/// program began.
pub(crate) fn remember() {
    // SAFETY: F_GETFD only reads the flags of a descriptor, which need not be open.
    let flags = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD) };
    let inherited = flags != -1 && flags & libc::FD_CLOEXEC == 0;
    AT_LOAD.get_or_init(|| about().filter(|_| inherited).map(|about| id(&about)));
}

/// Writes a line to standard error, unless the application has replaced it.
pub(crate) fn write_line(line: &str) {
    if is_unchanged().is_some() {
        write(line);
    }
}

/// Writes a line to standard error if another process reads it there. A launcher reads from a pipe, a socket of this host or
/// a terminal. If descriptor 2 is a file, the application may have opened it before it loaded the provider.
pub(crate) fn write_for_launcher(line: &str) {
    let is_read = |about: libc::stat| match about.st_mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFCHR => true,
        libc::S_IFSOCK => is_local_socket(),
        _ => false,
    };
    if is_unchanged().is_some_and(is_read) {
        write(line);
    }
}

/// Returns the file status of descriptor 2 if it still is the file that it was when the provider was loaded.
fn is_unchanged() -> Option<libc::stat> {
    let now = about()?;
    (*AT_LOAD.get()? == Some(id(&now))).then_some(now)
}

fn id(about: &libc::stat) -> FileId {
    (about.st_dev, about.st_ino)
}

fn about() -> Option<libc::stat> {
    let mut about = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes a whole `stat` to the pointer if it returns 0, and needs no open descriptor.
    let found = unsafe { libc::fstat(libc::STDERR_FILENO, about.as_mut_ptr()) };
    // SAFETY: the call above returned 0, so it has written the structure.
    (found == 0).then(|| unsafe { about.assume_init() })
}

/// Returns whether standard error (descriptor 2) is a Unix socket.
fn is_local_socket() -> bool {
    let (mut domain, mut len) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, the size of `domain`, and then the length.
    let found = unsafe {
        let to = (&raw mut domain).cast();
        libc::getsockopt(libc::STDERR_FILENO, libc::SOL_SOCKET, libc::SO_DOMAIN, to, &raw mut len)
    };
    found == 0 && domain == libc::AF_UNIX
}

/// Writes a line in one system call, so that lines of several processes do not mix. Errors are written to whatever the
/// application has made its standard error, as libfabric's and the MPI's own are.
pub(crate) fn write(line: &str) {
    // SAFETY: the pointer and the length are those of a string, which the call only reads. A line that the descriptor does
    // not take is lost.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
