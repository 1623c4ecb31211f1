//! The key log: a text file with the secrets of handshakes, from which recorded packets can be
//! decrypted. Its model is the file of the variable `SSLKEYLOGFILE`, which other programs write for
//! TLS.
//!
//! A line has a label, the two ends and the secret. Readers skip empty lines, comments (`#`), and
//! lines with other labels:
//!
//! ```text
//! SQUALL_PAIR_SECRET 10.0.0.1:4793 11121314 10.0.0.2:4793 a1222324 1 ea57..8e70
//! ```
//!
//! An end is its address and its source identifier (SSI), 8 hexadecimal digits; the end that wrote
//! the line comes first. Behind the two ends are the secure domain (SDI) in decimal, and the secret
//! of the pair, 64 hexadecimal digits.

use core::fmt::{self, Write as _};
use core::net::SocketAddr;

use zeroize::Zeroizing;

use crate::base::PairSecret;
use crate::pair::{Pair, SourceId};

/// The label of a line with the secret of a pair.
const LABEL: &str = "SQUALL_PAIR_SECRET";

/// A line of the key log: two ends, and the secret that they share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyLogEntry {
    /// Address and identifier of the endpoint that wrote the line.
    pub local: (SocketAddr, SourceId),
    /// Address and identifier of the other endpoint.
    pub peer: (SocketAddr, SourceId),
    /// Secure domain (SDI) in the TSS headers of the packets.
    pub domain: u32,
    /// Secret that the two endpoints share.
    pub secret: PairSecret,
}

/// Name of the part of a key log's line that is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyLogError(&'static str);

impl fmt::Display for KeyLogError {
    /// Prints no part of the line itself, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for KeyLogError {}

impl KeyLogEntry {
    /// Creates the entry of a pair for the endpoint at `local`.
    #[must_use]
    pub fn new(local: SocketAddr, pair: &Pair) -> Self {
        Self {
            local: (local, pair.own),
            peer: (pair.peer, pair.theirs),
            domain: pair.domain,
            secret: pair.secret.clone(),
        }
    }

    /// Returns the line, with its end. Dropping the text overwrites the secret in it with zeros.
    #[must_use]
    pub fn to_line(&self) -> Zeroizing<String> {
        // Long enough for all lines: a text that grows would leave copies of its beginning behind.
        let mut line = Zeroizing::new(String::with_capacity(320));
        let ((local, own), (peer, theirs)) = (self.local, self.peer);
        // Writing to a String cannot fail.
        let _ = write!(
            line,
            "{LABEL} {local} {:08x} {peer} {:08x} {} ",
            own.get(),
            theirs.get(),
            self.domain
        );
        for byte in self.secret.expose() {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        line
    }

    /// Reads a line. Returns `None` if it is empty, a comment, or has another label.
    ///
    /// # Errors
    /// The line has the label, and a part of it is malformed.
    pub fn from_line(line: &str) -> Result<Option<Self>, KeyLogError> {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some(LABEL) {
            return Ok(None);
        }
        let mut word = || words.next().unwrap_or_default();
        let mut end = || {
            let addr = word().parse().map_err(|_| KeyLogError("no address with a port"))?;
            let id = word();
            let id = hex_digits(id, 8).and_then(|id| u32::from_str_radix(id, 16).ok());
            let id = id.ok_or(KeyLogError("no source identifier of 8 hexadecimal digits"))?;
            Ok((addr, SourceId::from_header(id)))
        };
        let (local, peer) = (end()?, end()?);
        let domain = word().parse().ok().filter(|domain| *domain < 1 << 24);
        let domain = domain.ok_or(KeyLogError("no secure domain (a number of 24 bits)"))?;
        let secret = secret(word()).ok_or(KeyLogError("no secret of 64 hexadecimal digits"))?;
        if words.next().is_some() {
            return Err(KeyLogError("a word behind the secret, which must be the last"));
        }
        Ok(Some(Self { local, peer, domain, secret }))
    }
}

/// Returns `word` if it has `len` hexadecimal digits and nothing else.
fn hex_digits(word: &str, len: usize) -> Option<&str> {
    (word.len() == len && word.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(word)
}

/// Reads a secret of 64 hexadecimal digits; `None` if `word` is anything else.
fn secret(word: &str) -> Option<PairSecret> {
    let digits = hex_digits(word, 64)?;
    let mut bytes = Zeroizing::new([0; 32]);
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(PairSecret::new(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Instance;

    fn entry() -> KeyLogEntry {
        let id = |number, asked| SourceId::new(Instance::new(number).unwrap(), asked);
        let mut secret = [0; 32];
        secret.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(9));
        KeyLogEntry {
            local: ("10.0.0.1:4793".parse().unwrap(), id(0x1112_1314, true)),
            peer: ("[fe80::2%3]:5000".parse().unwrap(), id(0x2122_2324, false)),
            domain: 0x7d_28bb,
            secret: PairSecret::new(secret),
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = entry().to_line();
        let secret = "0009121b242d363f48515a636c757e879099a2abb4bdc6cfd8e1eaf3fc050e17";
        let expected = format!(
            "SQUALL_PAIR_SECRET 10.0.0.1:4793 11121314 [fe80::2%3]:5000 a1222324 8202427 {secret}\n"
        );
        assert_eq!(*line, expected);
        assert_eq!(KeyLogEntry::from_line(&line), Ok(Some(entry())));
        assert!(!format!("{:?}", entry()).contains("0009"));
        let longest = KeyLogEntry {
            local: (
                "[1111:1111:1111:1111:1111:1111:1111:1111%4294967295]:65535".parse().unwrap(),
                entry().peer.1,
            ),
            domain: 0x00FF_FFFF,
            ..entry()
        };
        let longest = KeyLogEntry { peer: longest.local, ..longest };
        assert!(longest.to_line().len() <= 320);
    }

    #[test]
    fn lines_of_others_are_skipped_and_broken_ones_refused() {
        for other in ["", "\n", "# a comment", "CLIENT_RANDOM 00 11"] {
            assert_eq!(KeyLogEntry::from_line(other), Ok(None));
        }
        let line = entry().to_line();
        let words: Vec<&str> = line.split_whitespace().collect();
        let digits = words[6];
        let bad = [
            (1, "10.0.0.1"),
            (2, "1112131"),
            (2, "+1121314"),
            (3, "peer"),
            (4, "0xa12223"),
            (5, "16777216"),
            (6, &digits[1..]),
            (6, &digits.replace('f', "g")),
            (6, &digits.replace("00", "+1")),
            (6, &digits.replace("0009", "\u{e9}\u{e9}")),
            (6, ""),
        ];
        for (at, word) in bad {
            let mut words = words.clone();
            words[at] = word;
            let error = KeyLogEntry::from_line(&words.join(" ")).expect_err(word);
            assert!(!error.to_string().contains(word) || word.is_empty(), "{error}");
        }
        assert!(KeyLogEntry::from_line(&format!("{} more", words.join(" "))).is_err());
    }
}
