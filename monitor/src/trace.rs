//! The format of a trace: the operations of an application on an endpoint, one line for each event.
//! `FI_SQUALL_TRACE` enables it.
//!
//! ```text
//! squall-trace 1 {"job":"launcher-77","rank":0,"ranks":2,"host":"n1","pid":81,"endpoint":0,"address":"10.0.0.1:4793","began":..,"opened":..,"parameters":{..}}
//! peer 0 10.0.0.2:4793
//! 120345 begin tagged 0 8192 1f
//! 190311 receive tagged 0 64 20
//! 190420 end tagged 0 8192 1f
//! 200000 closed
//! ```
//!
//! The first line has the time at which the endpoint was enabled, by two clocks. All other times are
//! nanoseconds since then. An event has its [`EventKind`], the [`OperationKind`], the number of the
//! peer, the number of bytes, and the tag in hexadecimal digits.
//!
//! An operation has no `end` if it was complete when it was copied, or if the application does not see
//! its completion, because nothing waits for it then. A trace without the last line is truncated.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Extension of the name of a trace file.
pub const EXTENSION: &str = "trace";
/// Beginning of the first line of a trace. The number is the version of the format.
const MAGIC: &str = "squall-trace 1 ";

/// Defines an enum whose variants are written to and read from a trace as words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$about])* $variant,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!("`{text}`, expected one of: {}", [$($word),*].join(", "))),
                }
            }
        }
    };
}

words! {
    /// The kind of an event in a trace.
    EventKind {
        /// An operation of the traced endpoint began.
        Begin = "begin",
        /// An operation ended, later than the call that began it.
        End = "end",
        /// The traced endpoint received a message of a peer.
        Receive = "receive",
    }
}

words! {
    /// The kind of an operation in a trace.
    OperationKind {
        /// An untagged message.
        Message = "message",
        /// A tagged message.
        Tagged = "tagged",
        /// A message of a collective operation.
        Collective = "collective",
        /// An RMA write to a peer's memory.
        Write = "write",
        /// An RMA read of a peer's memory; the bytes travel from the peer.
        Read = "read",
        /// An atomic operation that returns nothing.
        Update = "update",
        /// An atomic operation that returns the previous values.
        Fetch = "fetch",
    }
}

/// The first line of a trace: the endpoint and its settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceHeader {
    /// Name of the job, as its launcher reports it.
    pub job: String,
    /// Rank of the traced process in its job, if the launcher reports it.
    pub rank: Option<u32>,
    /// Number of ranks of the job, if the launcher reports it.
    pub ranks: Option<u32>,
    /// Name of the host on which the traced process ran.
    pub host: String,
    /// Process ID of the traced process.
    pub pid: u32,
    /// Number of the endpoint within its process, from 0 on.
    pub endpoint: u32,
    /// Address of the traced endpoint.
    pub address: SocketAddr,
    /// Time at which the endpoint was enabled, in ns since 1970.
    pub began: u64,
    /// Time of opening by the monotonic clock of the host, in ns. Traces of processes on one host are
    /// related exactly by it.
    pub opened: u64,
    /// All parameters of the provider by environment variable: the value that was set, or the
    /// default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl fmt::Display for TraceHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        write!(f, "{MAGIC}{text}")
    }
}

impl FromStr for TraceHeader {
    type Err = String;
    fn from_str(line: &str) -> Result<Self, String> {
        let text = line.strip_prefix(MAGIC);
        let text = text.ok_or_else(|| {
            format!("this is not a trace of this version: it does not begin with `{MAGIC}`")
        })?;
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// An event of a trace: the begin or end of an operation, or a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// Time of the event since the endpoint was enabled, in ns.
    pub at: u64,
    /// The kind of the event: begin, end or receive.
    pub moment: EventKind,
    /// The kind of the operation: message, read, write and so on.
    pub class: OperationKind,
    /// Number of the peer; a line `peer` gives its address.
    pub peer: u32,
    /// Length of the message or operation in bytes.
    pub bytes: u64,
    /// Tag of the message; 0 for an operation without a tag.
    pub tag: u64,
}

/// A line of a trace other than the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceLine {
    /// The address of a peer. The line comes before the first event with this peer.
    Peer {
        /// Number by which the events of the trace name the peer.
        number: u32,
        /// Address of the peer with this number.
        address: SocketAddr,
    },
    /// An event, such as the begin of an operation.
    Event(TraceEvent),
    /// The endpoint was closed. This is the last line of a complete trace.
    Closed {
        /// Time at which the endpoint was closed, since it was enabled, in ns.
        at: u64,
    },
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { number, address } => write!(f, "peer {number} {address}"),
            Self::Event(TraceEvent { at, moment, class, peer, bytes, tag }) => {
                write!(f, "{at} {moment} {class} {peer} {bytes} {tag:x}")
            }
            Self::Closed { at } => write!(f, "{at} closed"),
        }
    }
}

impl FromStr for TraceLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        fn number<N: FromStr>(word: &str, what: &str) -> Result<N, String> {
            word.parse().map_err(|_| format!("`{word}`, expected {what}"))
        }
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            ["peer", peer, address] => Ok(Self::Peer {
                number: number(peer, "a peer's number")?,
                address: number(address, "an address such as 10.0.0.1:4793")?,
            }),
            [at, "closed"] => Ok(Self::Closed { at: number(at, "a time in ns")? }),
            [at, moment, class, peer, bytes, tag] => Ok(Self::Event(TraceEvent {
                at: number(at, "a time in ns")?,
                moment: moment.parse()?,
                class: class.parse()?,
                peer: number(peer, "a peer's number")?,
                bytes: number(bytes, "a number of bytes")?,
                tag: u64::from_str_radix(tag, 16)
                    .map_err(|_| format!("`{tag}`, expected a tag in hexadecimal"))?,
            })),
            _ => Err(format!(
                "`{line}`, expected TIME MOMENT CLASS PEER BYTES TAG, peer NUMBER ADDRESS, or TIME closed"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive() {
        for text in [
            "peer 3 10.0.0.2:4793",
            "peer 0 [fe80::1]:1",
            "120345 begin tagged 0 8192 8000000000000001",
            "0 receive message 7 0 0",
            "9 end write 1 18446744073709551615 0",
            "200000 closed",
        ] {
            assert_eq!(text.parse::<TraceLine>().map(|line| line.to_string()), Ok(text.to_owned()));
        }
        let head = TraceHeader {
            job: "a job".to_owned(),
            rank: Some(1),
            ranks: None,
            host: "n1".to_owned(),
            pid: 9,
            endpoint: 0,
            address: "127.0.0.1:4793".parse().expect("literal"),
            began: 77,
            opened: 7,
            parameters: BTreeMap::from([("FI_SQUALL_CC".to_owned(), "nscc".to_owned())]),
        };
        assert_eq!(head.to_string().parse(), Ok(head));
    }

    #[test]
    fn errors_of_lines_show_what_was_expected() {
        for (text, says) in [
            ("", "TIME MOMENT CLASS"),
            ("1 begin tagged 0 5", "TIME MOMENT CLASS"),
            ("x begin tagged 0 5 0", "a time in ns"),
            ("1 start tagged 0 5 0", "begin, end, receive"),
            ("1 begin sent 0 5 0", "message, tagged"),
            ("1 begin tagged 0 -5 0", "a number of bytes"),
            ("1 begin tagged 0 5 xyz", "hexadecimal"),
            ("peer 1 localhost", "an address"),
        ] {
            let error = text.parse::<TraceLine>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(
            "squall-trace 2 {}"
                .parse::<TraceHeader>()
                .expect_err("another")
                .contains("squall-trace 1")
        );
        assert!(
            "squall-trace 1 {}"
                .parse::<TraceHeader>()
                .expect_err("empty")
                .contains("missing field")
        );
    }
}
