//! The Unix sockets by which two processes connect. Their addresses are abstract, so they disappear
//! with the process. They preserve datagrams (SOCK_SEQPACKET) and carry descriptors.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::segment::check;

/// Largest length in bytes of a greeting, the first datagram on a connection.
pub(super) const MAX_GREETING: usize = 256;
/// Largest number of file descriptors that come with a greeting.
const MAX_FDS: usize = 2;

/// The process and the user at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerCredentials {
    /// Process ID; 0 if the process has none in this PID namespace.
    pub(crate) pid: libc::pid_t,
    /// Effective user ID of the process.
    pub(crate) uid: libc::uid_t,
}

/// Creates a non-blocking Unix socket that is closed on exec.
fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes numbers and returns a new descriptor, which goes nowhere but into the `OwnedFd`.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))?)) }
}

/// Encodes the abstract Unix address with this name.
fn address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: a sockaddr_un is a number and an array of bytes, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte of an abstract address is zero.
    let room = address.sun_path.get_mut(1..).unwrap_or_default();
    if name.is_empty() || name.len() > room.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    Ok((address, len as libc::socklen_t))
}

/// Creates a Unix socket that listens under this abstract name.
pub(super) fn listen(name: &str) -> io::Result<OwnedFd> {
    let (fd, (address, len)) = (socket()?, address(name)?);
    // SAFETY: bind(2) reads `len` bytes of `address`, a local variable that has more; listen(2) takes numbers.
    unsafe {
        check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len))?;
        check(libc::listen(fd.as_raw_fd(), 1024))?;
    }
    Ok(fd)
}

/// Connects to the process that listens under this abstract name.
pub(super) fn connect(name: &str) -> io::Result<OwnedFd> {
    let (fd, (address, len)) = (socket()?, address(name)?);
    // SAFETY: connect(2) reads `len` bytes of `address`, a local variable that has more.
    unsafe { check(libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len))? };
    Ok(fd)
}

/// Accepts a connection that waits at a listening Unix socket.
pub(super) fn accept(listener: RawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: accept4(2) with no place for an address takes numbers, and returns a new descriptor, which goes nowhere
    // but into the `OwnedFd`.
    unsafe {
        let fd = check(libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Shuts a connection down, even if a child of fork holds the socket as well.
pub(super) fn shut_down(socket: RawFd) {
    // SAFETY: shutdown(2) takes the descriptor and what to shut as numbers; it touches no memory of the program.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
}

/// Returns the process and the user at the other end of a Unix socket.
pub(crate) fn credentials(fd: RawFd) -> io::Result<PeerCredentials> {
    // SAFETY: a ucred is three integers, for which zero is a value; getsockopt(2) writes at most `len` bytes into it.
    let who = unsafe {
        let mut who: libc::ucred = zeroed();
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let to = (&raw mut who).cast();
        check(libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len))?;
        who
    };
    Ok(PeerCredentials { pid: who.pid, uid: who.uid })
}

/// Socket option `SO_PEERPIDFD`, since Linux 6.5 (asm-generic/socket.h): a descriptor of the peer's process.
const PEER_PIDFD: libc::c_int = 77;

/// Returns a descriptor (pidfd) of the process at the other end, closed on exec. It always names
/// that process, never a later one with the same ID.
///
/// # Errors
/// `ENOPROTOOPT` if the kernel is too old; another error if the process has ended.
pub(super) fn peer_process(fd: RawFd) -> io::Result<OwnedFd> {
    let mut process: RawFd = -1;
    let mut len = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: getsockopt(2) writes at most `len` bytes into `process`, a local variable. The descriptor that it stores
    // there is new, and goes nowhere but into the `OwnedFd`.
    unsafe {
        let to = (&raw mut process).cast();
        check(libc::getsockopt(fd, libc::SOL_SOCKET, PEER_PIDFD, to, &raw mut len))?;
        if process < 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(OwnedFd::from_raw_fd(process))
    }
}

/// Returns whether enough descriptors are left. A new descriptor has the lowest free number, so
/// `socket` shows how many are in use. A channel takes a few descriptors, and half of the limit is
/// left to the application; packets work without them.
pub(super) fn has_spare_descriptors(socket: RawFd) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes the two numbers of `limit`, which is a local variable.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    rc == 0 && u64::try_from(socket).is_ok_and(|number| number < limit.rlim_cur / 2)
}

/// Returns the effective user ID of this process.
pub(super) fn current_user() -> libc::uid_t {
    // SAFETY: geteuid(2) follows no pointer, and returns the number of the user.
    unsafe { libc::geteuid() }
}

/// Buffer for the control message that carries file descriptors.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

/// Sends a greeting with file descriptors as one datagram.
pub(crate) fn send(socket: RawFd, text: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    if text.len() > MAX_GREETING || raw.len() > MAX_FDS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = (raw.len() * size_of::<RawFd>()) as libc::c_uint;
    let mut control = ControlBuffer([0; 64]);
    let mut iov = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    // SAFETY: a msghdr is numbers and pointers, for which zero is a value. `control` is aligned as a cmsghdr and has
    // room for the header and two descriptors (CMSG_SPACE(8) is 24 bytes), so that CMSG_FIRSTHDR and CMSG_DATA
    // point into it. sendmsg(2) reads `text`, which it does not write to, and `control`, both of which outlive it.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        if !raw.is_empty() {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
            let data = libc::CMSG_DATA(header);
            ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), data, bytes as usize);
        }
        if libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Receives a greeting and its descriptors. The kernel closes descriptors beyond the second. An
/// empty greeting is the end of the connection.
pub(crate) fn receive(socket: RawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = [MaybeUninit::<u8>::uninit(); MAX_GREETING];
    let mut control = ControlBuffer([0; 64]);
    let mut iov = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    let bytes = (MAX_FDS * size_of::<RawFd>()) as libc::c_uint;
    let mut fds = Vec::new();
    // SAFETY: a msghdr is numbers and pointers, for which zero is a value. recvmsg(2) writes at most MAX_GREETING bytes of
    // `text`, and `msg_controllen` bytes of `control`, which is aligned as a cmsghdr; the CMSG macros stay in
    // what it wrote. Each descriptor in an SCM_RIGHTS message is new, and goes nowhere but into its `OwnedFd`.
    let len = unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let len = libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC);
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while len >= 0 && !header.is_null() {
            let rights =
                (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS;
            let held = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            for n in 0..if rights { held / size_of::<RawFd>() } else { 0 } {
                let fd = libc::CMSG_DATA(header).cast::<RawFd>().add(n).read_unaligned();
                fds.push(OwnedFd::from_raw_fd(fd));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        len
    };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: recvmsg(2) has written the first `len` bytes, of MAX_GREETING at most.
    let text = text.iter().take(len).map(|byte| unsafe { byte.assume_init() }).collect();
    Ok((text, fds))
}
