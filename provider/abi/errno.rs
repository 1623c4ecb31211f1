//! libfabric's error numbers as a type: functions inside the provider return
//! `Result<T, Errno>`, the boundary turns that into `-FI_E...`.

use crate::abi::ffi;

/// A positive libfabric error number (`FI_E...`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

/// The result of an operation of the provider, or a libfabric error number.
pub(crate) type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $ffi:ident;)*) => {
        // libfabric's numbers are small and positive.
        #[allow(clippy::cast_possible_wrap)]
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($ffi), "`.")]
                pub(crate) const $name: Self = Self(ffi::$ffi as i32);
            )*
        }
    };
}

errnos! {
    AGAIN = FI_EAGAIN;
    IO = FI_EIO;
    NOMEM = FI_ENOMEM;
    BUSY = FI_EBUSY;
    INVAL = FI_EINVAL;
    NOSYS = FI_ENOSYS;
    NODATA = FI_ENODATA;
    NOMSG = FI_ENOMSG;
    MSGSIZE = FI_EMSGSIZE;
    NOPROTOOPT = FI_ENOPROTOOPT;
    OPNOTSUPP = FI_EOPNOTSUPP;
    TIMEDOUT = FI_ETIMEDOUT;
    CANCELED = FI_ECANCELED;
    INTR = FI_EINTR;
    NODEV = FI_ENODEV;
    NOENT = FI_ENOENT;
    ACCES = FI_EACCES;
    ADDRNOTAVAIL = FI_EADDRNOTAVAIL;
    CONNREFUSED = FI_ECONNREFUSED;
    CONNRESET = FI_ECONNRESET;
    CONNABORTED = FI_ECONNABORTED;
    HOSTUNREACH = FI_EHOSTUNREACH;
    REMOTEIO = FI_EREMOTEIO;
    KEYREJECTED = FI_EKEYREJECTED;
    OTHER = FI_EOTHER;
    TOOSMALL = FI_ETOOSMALL;
    OPBADSTATE = FI_EOPBADSTATE;
    AVAIL = FI_EAVAIL;
    BADFLAGS = FI_EBADFLAGS;
    NOCQ = FI_ENOCQ;
    TRUNC = FI_ETRUNC;
    NOKEY = FI_ENOKEY;
    NOAV = FI_ENOAV;
    NOEQ = FI_ENOEQ;
}

impl Errno {
    /// Returns the error as a libfabric call returns it: `-FI_E...`.
    pub(crate) const fn code(self) -> i32 {
        -self.0
    }
}

impl From<std::io::Error> for Errno {
    /// Converts an error of the system: libfabric's numbers below 256 are the system's.
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        error.raw_os_error().map(Self).unwrap_or_else(|| match error.kind() {
            Kind::InvalidInput => Self::INVAL,
            Kind::NotFound => Self(libc::ENOENT),
            Kind::ConnectionRefused => Self(libc::ECONNREFUSED),
            Kind::PermissionDenied => Self(libc::EACCES),
            Kind::TimedOut => Self(libc::ETIMEDOUT),
            _ => Self::OTHER,
        })
    }
}
