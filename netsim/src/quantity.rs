//! Numbers of bytes with units, as people write them: `16K`, `2MiB`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use squall_base::quantity::{Kilobyte, parse_bytes};

/// A number of bytes, in files and on command lines: an integer, or text with a unit (`"16K"`,
/// `"2MiB"`, `"128 KiB"`, `"2MB"`, `"512"`). `KB`, `MB` and `GB` are powers of 1000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_bytes(text, Kilobyte::Of1000).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no size: expected a number and no unit or B, K, M, G, KiB, MiB, GiB \
                 (powers of 1024), KB, MB or GB (powers of 1000); write 16K or 2MiB"
            )
        })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 4096, \"16K\" or \"2MiB\"")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value).map(Bytes).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Read)
    }
}
