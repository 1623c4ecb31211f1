//! The words of a trace: what an application did with an endpoint, a line an event, as `FI_SQUALL_TRACE` writes it.
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
//! Behind the head, which says when the endpoint was enabled by two clocks, times count nanoseconds since then. An event has a moment, the
//! [`OperationKind`] of the operation, the peer's number, bytes, and the tag in hexadecimal digits. An operation has no `end` that
//! was complete when it was copied, or whose end the application is not shown: nobody waits for it. A trace without the last
//! line was cut.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The extension of a trace's file.
pub const EXTENSION: &str = "trace";
/// What the first line begins with; the number changes with the form of what follows.
const MAGIC: &str = "squall-trace 1 ";

/// Names for the variants of an enum, both ways.
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
    /// What happened.
    EventKind {
        /// An operation of the endpoint began.
        Begin = "begin",
        /// It ended, later than at its call.
        End = "end",
        /// A message of a peer was received.
        Receive = "receive",
    }
}

words! {
    /// What kind of operation it is.
    OperationKind {
        /// A message without a tag.
        Message = "message",
        /// A message with a tag.
        Tagged = "tagged",
        /// A message of a collective operation.
        Collective = "collective",
        /// An RMA write.
        Write = "write",
        /// An RMA read: the bytes come from the peer.
        Read = "read",
        /// An atomic that brings nothing back.
        Update = "update",
        /// An atomic that brings values back.
        Fetch = "fetch",
    }
}

/// Whose trace it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The job, as its launcher calls it.
    pub job: String,
    /// The process' rank.
    pub rank: Option<u32>,
    /// How many ranks there are.
    pub ranks: Option<u32>,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Number of the endpoint in its process.
    pub endpoint: u32,
    /// Its address.
    pub address: SocketAddr,
    /// When the endpoint was enabled, ns since 1970.
    pub began: u64,
    /// The same by the machine's monotonic clock, which its processes share, ns.
    pub opened: u64,
    /// Every parameter of the provider by its environment variable, as it was said, or its default.
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
        let text =
            text.ok_or_else(|| format!("expected `{MAGIC}..`, which a trace begins with"))?;
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// When, ns since the endpoint was enabled.
    pub at: u64,
    /// What.
    pub moment: EventKind,
    /// Of which operation.
    pub class: OperationKind,
    /// With whom, by number.
    pub peer: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Its tag; zero where there is none.
    pub tag: u64,
}

/// A line behind the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceLine {
    /// The address of a peer, before the first event with it.
    Peer {
        /// The number that events name it by.
        number: u32,
        /// Its address.
        address: SocketAddr,
    },
    /// An event.
    Event(TraceEvent),
    /// The endpoint was closed: the last line.
    Closed {
        /// When.
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
            word.parse().map_err(|_| format!("`{word}` where {what} was expected"))
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
                    .map_err(|_| format!("`{tag}` where a tag in hexadecimal was expected"))?,
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
    fn what_is_no_line_is_answered_by_what_is() {
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
