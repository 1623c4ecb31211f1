//! Every way an operation can fail, in one table: the libfabric error, the provider's own number
//! (`prov_errno`), its name, and what to do about it. `fi_cq_strerror` and the manual read it.

use std::net::SocketAddr;

use squall_engine::{DestinationError, OpError, ReturnCode, WIRE_VERSION};

use crate::abi::errno::Errno;
use crate::host::param::{WireKind, params};

/// A row of the table of the provider's errors.
pub(crate) struct Row {
    /// Provider error code (`prov_errno`).
    pub(crate) code: i32,
    /// Short name of the error.
    pub(crate) name: &'static str,
    /// The libfabric error number that operations report for the error.
    pub(crate) errno: Errno,
    /// Description of the error: what happened and what to do.
    pub(crate) text: &'static str,
}

macro_rules! faults {
    ($($name:ident = $code:literal, $errno:ident, $text:literal;)*) => {
        /// The reasons why operations fail, each with a provider error code.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Fault {
            $(#[doc = $text] $name = $code,)*
        }

        /// The rows of the table of errors, by rising code.
        pub(crate) const TABLE: &[Row] = &[
            $(Row {
                code: $code,
                name: stringify!($name),
                errno: Errno::$errno,
                text: $text,
            },)*
        ];
    };
}

faults! {
    Truncated = 1, TRUNC,
        "the message was longer than the receive buffer; the rest of it is lost. Post a larger \
         buffer, or look at the length first (FI_PEEK)";
    Cancelled = 2, CANCELED,
        "the operation was cancelled by fi_cancel";
    NoMessage = 3, NOMSG,
        "no message that matches has arrived yet";
    Unreachable = 4, HOSTUNREACH,
        "the peer never answered. Is its process still running, is its UDP port open in every firewall, does a \
         route lead from this interface to its address? If not, set FI_SQUALL_IFACE to the network that all hosts \
         of the job share, such as 10.1.0.0/16. FI_SQUALL_DEADLINE sets how long to wait";
    TimedOut = 5, TIMEDOUT,
        "the peer answered before, then fell silent: its process or host died or was stopped, or the \
         network in between is cut. FI_SQUALL_DEADLINE sets how long to wait";
    PeerRestarted = 6, CONNRESET,
        "another process now owns the peer's address: what was in flight to the old one is lost";
    Closed = 7, CONNABORTED,
        "the peer closed its endpoint, refused the connection context, or gave up on it after the network \
         had let nothing through for FI_SQUALL_DEADLINE; if it is still running, new operations may succeed";
    BadKey = 8, KEYREJECTED,
        "the target has no memory region with this key that contains the range and was registered for this access \
         (FI_REMOTE_READ, FI_REMOTE_WRITE, or both for an atomic that fetches or compares). Only the target's \
         counters tell which of them is wrong (rx_key_unknown, rx_out_of_range, rx_not_permitted in its \
         FI_SQUALL_STATS). Is the region closed already, or another domain's? Without FI_MR_VIRT_ADDR remote \
         addresses are offsets from the region's start";
    OutOfRange = 9, ACCES,
        "the range is not inside the target's memory region. Without FI_MR_VIRT_ADDR remote addresses \
         are offsets from the region's start. (Other implementations report this; squall reports BadKey)";
    Permission = 10, ACCES,
        "the target's memory region was registered without the access that was asked for \
         (FI_REMOTE_READ or FI_REMOTE_WRITE). (Other implementations report this; squall reports BadKey)";
    Refused = 11, REMOTEIO,
        "the target refused the operation";
    WrongJob = 12, ACCES,
        "the target belongs to another job. Give both ends the same FI_SQUALL_JOB or auth_key";
    OtherInstance = 13, CONNREFUSED,
        "another endpoint than the one that was meant is at the peer's address: either that one is gone and another \
         process has its port now, or two hosts have the same address; then choose the interface that others can \
         reach with FI_SQUALL_IFACE";
    OtherVersion = 14, CONNREFUSED,
        "the peer's build of squall speaks another version of the wire format: install the same one on all \
         hosts";
    OtherKey = 15, ACCES,
        "the two ends do not have the same job key, or one has none, or an address translation (NAT) lies between \
         them, which the proofs of a key do not allow. Give both the same FI_SQUALL_KEY_FILE or auth_key";
    NotListed = 16, ACCES,
        "the peer talks only to addresses in its address vector (FI_SQUALL_PEERS=av there), and ours was never in it";
    Unaligned = 17, INVAL,
        "the atomic's remote address is not aligned as its type must be, or a value lies in two pieces of the memory \
         region";
    NoSuchAtomic = 18, OPNOTSUPP,
        "the target has no such atomic operation on values of this type, or not on so many at once. \
         fi_atomicvalid and its variants report what is supported";
    DeviceCopy = 19, IO,
        "a device driver could not copy the operation's buffer to or from the device's memory: is the allocation \
         still there, and is the buffer inside of it? The log has the driver's error";
    TargetCopy = 20, REMOTEIO,
        "the target could not move the bytes to or from its memory: its device driver failed, or, on one host, the \
         memory was taken back. The target's log has the reason";
    OtherEncryption = 21, ACCES,
        "one of the two ends encrypts its packets, and the other one does not. Give both the same FI_SQUALL_TSS and \
         job key";
}

/// Returns the name of a libfabric error number that the table of errors uses.
#[cfg(test)]
pub(crate) fn errno_name(errno: Errno) -> &'static str {
    match errno {
        Errno::TRUNC => "FI_ETRUNC",
        Errno::CANCELED => "FI_ECANCELED",
        Errno::NOMSG => "FI_ENOMSG",
        Errno::HOSTUNREACH => "FI_EHOSTUNREACH",
        Errno::TIMEDOUT => "FI_ETIMEDOUT",
        Errno::CONNRESET => "FI_ECONNRESET",
        Errno::CONNABORTED => "FI_ECONNABORTED",
        Errno::KEYREJECTED => "FI_EKEYREJECTED",
        Errno::ACCES => "FI_EACCES",
        Errno::REMOTEIO => "FI_EREMOTEIO",
        Errno::CONNREFUSED => "FI_ECONNREFUSED",
        Errno::INVAL => "FI_EINVAL",
        Errno::OPNOTSUPP => "FI_EOPNOTSUPP",
        Errno::IO => "FI_EIO",
        other => unreachable!("{other:?} has no name here"),
    }
}

/// Returns the row of the table of errors with this code, or the row for unknown errors.
pub(crate) fn row(code: i32) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.code == code)
}

impl Fault {
    /// Returns the row of the table of errors for this error.
    pub(crate) fn row(self) -> &'static Row {
        match row(self as i32) {
            Some(row) => row,
            None => unreachable!("every variant has a row, both from one macro"),
        }
    }

    /// Returns the fault that corresponds to an error of the engine.
    pub(crate) fn of(error: OpError) -> Self {
        match error {
            OpError::Truncated { .. } => Self::Truncated,
            OpError::Cancelled => Self::Cancelled,
            OpError::NoMessage => Self::NoMessage,
            OpError::Unreachable => Self::Unreachable,
            OpError::TimedOut => Self::TimedOut,
            OpError::PeerRestarted => Self::PeerRestarted,
            OpError::OtherInstance { .. } => Self::OtherInstance,
            OpError::OtherVersion { .. } => Self::OtherVersion,
            OpError::OtherKey => Self::OtherKey,
            OpError::OtherEncryption { .. } => Self::OtherEncryption,
            OpError::NotListed => Self::NotListed,
            OpError::Closed => Self::Closed,
            OpError::Uncopied => Self::DeviceCopy,
            OpError::Remote(code) => Self::remote(code),
        }
    }

    /// Returns the fault that corresponds to an SES return code (UE 1.0 table 3-19).
    fn remote(code: ReturnCode) -> Self {
        match code {
            ReturnCode::BadMkey => Self::BadKey,
            ReturnCode::AtOutOfRange | ReturnCode::BadAddr => Self::OutOfRange,
            ReturnCode::AtPerm | ReturnCode::PermViolation => Self::Permission,
            ReturnCode::BadJobId | ReturnCode::BadPid => Self::WrongJob,
            ReturnCode::TooLong => Self::Truncated,
            ReturnCode::HostUnsuccessCmpl => Self::TargetCopy,
            ReturnCode::AmoUnaligned => Self::Unaligned,
            ReturnCode::AmoUnsupportedOp
            | ReturnCode::AmoUnsupportedDt
            | ReturnCode::AmoUnsupportedSize => Self::NoSuchAtomic,
            _ => Self::Refused,
        }
    }
}

/// Returns the text about a failure for the user: the sentence of the table of errors, the peer's address, the local
/// address and interface, and the last ICMP error.
pub(crate) fn describe(
    error: OpError,
    peer: Option<SocketAddr>,
    (local, interface): (SocketAddr, &str),
    trouble: Option<DestinationError>,
) -> String {
    let row = Fault::of(error).row();
    let mut text = format!("{}: {}", row.name, row.text);
    match error {
        OpError::Remote(code) => {
            text.push_str(&format!("; the peer's return code is {code:?}"));
            if code == ReturnCode::OpViolation && params().wire != WireKind::Squall {
                text.push_str(
                    ", as when its packets have another payload size: give both ends the same, here by FI_SQUALL_MTU",
                );
            }
        }
        OpError::OtherInstance { found } => {
            text.push_str(&format!("; there is instance {found}"));
        }
        OpError::OtherVersion { theirs } => {
            let older = if theirs < WIRE_VERSION { "the peer's host" } else { "this host" };
            text.push_str(&format!(
                "; the peer speaks wire version {theirs}, this endpoint {WIRE_VERSION}: upgrade squall on {older}"
            ));
        }
        OpError::OtherEncryption { theirs } => text.push_str(if theirs {
            "; the peer encrypts, this endpoint does not (FI_SQUALL_TSS=off, or no job key)"
        } else {
            "; this endpoint encrypts, the peer does not (FI_SQUALL_TSS=off, or no job key)"
        }),
        _ => {}
    }
    if let Some(peer) = peer {
        text.push_str(&format!(" [peer {peer}, local {local} on {interface}"));
        if let Some(trouble) = trouble {
            text.push_str(&match trouble.errno {
                // Only a port on a software network says so.
                libc::ENOTCONN => format!(
                    ", cause: the emulator {}, which FI_SQUALL_EMULATOR names, is gone, its process ended or was \
                     killed; the peer is not at fault",
                    params().emulator
                ),
                errno => {
                    let cause = std::io::Error::from_raw_os_error(errno);
                    format!(", last network error: {cause} from {}", trouble.peer)
                }
            });
        }
        text.push(']');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_row_with_advice() {
        for (i, r) in TABLE.iter().enumerate() {
            assert_eq!(r.code, i32::try_from(i).expect("small") + 1);
            assert!(r.text.len() > 30 && r.errno.0 > 0, "{}", r.name);
        }
        assert!(row(0).is_none() && row(1000).is_none());
        assert_eq!(Fault::of(OpError::Cancelled).row().errno, Errno::CANCELED);
    }

    #[test]
    fn a_peer_of_another_version_is_described_by_both_versions() {
        let own = ("10.0.0.1:4793".parse().expect("literal"), "eth0");
        let cases = [(WIRE_VERSION - 1, "the peer's host"), (WIRE_VERSION + 1, "this host")];
        for (theirs, older) in cases {
            let text = describe(OpError::OtherVersion { theirs }, None, own, None);
            let expected = format!(
                "wire version {theirs}, this endpoint {WIRE_VERSION}: upgrade squall on {older}"
            );
            assert!(text.ends_with(&expected), "{text}");
        }
    }

    #[test]
    fn the_end_that_encrypts_is_named() {
        let own = ("10.0.0.1:4793".parse().expect("literal"), "eth0");
        let text = |theirs| describe(OpError::OtherEncryption { theirs }, None, own, None);
        assert!(text(true).contains("the peer encrypts, this endpoint does not"));
        assert!(text(false).contains("this endpoint encrypts, the peer does not"));
        for part in ["OtherEncryption", "FI_SQUALL_TSS", "job key"] {
            assert!(text(true).contains(part) && text(false).contains(part), "{part}");
        }
    }

    #[test]
    fn the_sentence_names_both_ends_and_the_cause() {
        let peer: SocketAddr = "10.0.0.2:4793".parse().expect("literal");
        let local: SocketAddr = "10.0.0.1:4793".parse().expect("literal");
        let trouble = DestinationError { errno: libc::ECONNREFUSED, peer };
        let own = (local, "eth0");
        let text = describe(OpError::Unreachable, Some(peer), own, Some(trouble));
        let ends = "[peer 10.0.0.2:4793, local 10.0.0.1:4793 on eth0";
        for part in [ends, "refused", "FI_SQUALL_IFACE", "FI_SQUALL_DEADLINE"] {
            assert!(text.contains(part), "{text}");
            // Of a software network whose relay died, the peer is not accused.
            let gone = DestinationError { errno: libc::ENOTCONN, peer };
            let text = describe(OpError::TimedOut, Some(peer), own, Some(gone));
            assert!(text.contains("FI_SQUALL_EMULATOR") && text.contains("not at fault"), "{text}");
        }
    }
}
