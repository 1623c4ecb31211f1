//! The specification of a packet capture: file name and direction.

use std::path::PathBuf;
use std::str::FromStr;

/// The direction of the packets that a capture contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The capture contains sent and received packets.
    #[default]
    Both,
    /// The capture contains sent packets only.
    Tx,
    /// The capture contains received packets only.
    Rx,
}

/// File name pattern of a capture, with `,tx` or `,rx` behind it for one direction only.
///
/// In the pattern, `%p` is the process ID, `%h` the host name, `%e` the endpoint's number and `%%`
/// a percent sign. A pattern that ends in `.pcapng` selects that format, with directions and
/// comments. A pattern with neither `%p` nor `%e` gets `-%p-%e` before its extension, because every
/// endpoint needs a file of its own and the processes of a job share the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapSpec {
    /// The pattern of the capture file's name, in which placeholders stand for host, process and endpoint.
    pub pattern: String,
    /// The direction of the packets that are captured.
    pub direction: Direction,
}

impl PcapSpec {
    /// Returns the file name of an endpoint of this process.
    #[must_use]
    pub fn file(&self, endpoint: usize) -> PathBuf {
        let pattern = if self.pattern.contains("%p") || self.pattern.contains("%e") {
            self.pattern.clone()
        } else {
            let name = self.pattern.rfind('/').map_or(0, |i| i + 1);
            // A dot at the beginning of the name (".hidden") begins no extension.
            match self.pattern[name..].rfind('.').filter(|i| *i > 0) {
                Some(dot) => {
                    let (stem, extension) = self.pattern.split_at(name + dot);
                    format!("{stem}-%p-%e{extension}")
                }
                None => format!("{}-%p-%e", self.pattern),
            }
        };
        let mut file = String::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '%' { chars.next() } else { None }) {
                ('%', Some('p')) => file += &std::process::id().to_string(),
                ('%', Some('e')) => file += &endpoint.to_string(),
                ('%', Some('h')) => file += &host(),
                ('%', Some('%') | None) => file.push('%'),
                ('%', Some(other)) => file.extend(['%', other]),
                _ => file.push(c),
            }
        }
        file.into()
    }
}

impl FromStr for PcapSpec {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (pattern, direction) = if let Some(pattern) = text.strip_suffix(",tx") {
            (pattern, Direction::Tx)
        } else if let Some(pattern) = text.strip_suffix(",rx") {
            (pattern, Direction::Rx)
        } else {
            (text, Direction::Both)
        };
        if pattern.is_empty() || pattern.ends_with('/') {
            return Err(
                "capture: a file name is missing, as in trace-%h-%p-%e.pcap or trace.pcap,rx",
            );
        }
        Ok(Self { pattern: pattern.into(), direction })
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".into(), |name| name.trim().to_owned())
}
