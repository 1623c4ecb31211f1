//! CRC-32C (polynomial 0x1EDC6F41, reflected, initial and final complement) and the trailer that
//! holds it: four bytes, most significant first, over everything before them in the UDP payload.
//!
//! With the feature `std` (on by default) this module uses the CRC instruction of the CPU, and
//! without it a table.

/// Bytes of the trailer.
pub const CRC_LEN: usize = 4;

/// Returns the CRC-32C of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    update(0, bytes)
}

/// Extends `crc`, the CRC-32C of earlier bytes, by `bytes`, for a packet that lies in pieces. The
/// CRC-32C of no bytes is 0.
#[cfg(feature = "std")]
#[inline]
#[must_use]
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Extends `crc`, the CRC-32C of earlier bytes, by `bytes`, for a packet that lies in pieces. The
/// CRC-32C of no bytes is 0.
#[cfg(not(feature = "std"))]
#[inline]
#[must_use]
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    portable::update(crc, bytes)
}

/// Returns the trailer of a packet that consists of `pieces`.
#[inline]
#[must_use]
pub fn trailer(pieces: &[&[u8]]) -> [u8; CRC_LEN] {
    pieces.iter().fold(0, |crc, piece| update(crc, piece)).to_be_bytes()
}

/// Returns the packet without its CRC trailer; `None` when the trailer is missing or wrong.
#[inline]
#[must_use]
pub fn check_and_strip_crc(bytes: &[u8]) -> Option<&[u8]> {
    let (packet, trailer) = bytes.split_last_chunk::<CRC_LEN>()?;
    (crc32c(packet) == u32::from_be_bytes(*trailer)).then_some(packet)
}

/// Slicing by eight: eight table look-ups for eight bytes, independent of each other.
#[cfg(any(test, not(feature = "std")))]
mod portable {
    /// The polynomial, reflected.
    const POLYNOMIAL: u32 = 0x82F6_3B78;

    /// `TABLES[k][b]`: the CRC of byte `b` followed by `k` zero bytes.
    static TABLES: [[u32; 256]; 8] = tables();

    const fn tables() -> [[u32; 256]; 8] {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            tables[0][byte] = crc;
            byte += 1;
        }
        let mut k = 1;
        while k < 8 {
            let mut byte = 0;
            while byte < 256 {
                let crc = tables[k - 1][byte];
                tables[k][byte] = crc >> 8 ^ tables[0][(crc & 0xFF) as usize];
                byte += 1;
            }
            k += 1;
        }
        tables
    }

    pub(super) fn update(crc: u32, bytes: &[u8]) -> u32 {
        let mut crc = !crc;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let x = u64::from_le_bytes(*word) ^ u64::from(crc);
            crc = x
                .to_le_bytes()
                .iter()
                .zip(TABLES.iter().rev())
                .fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
        }
        for byte in rest {
            crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
        }
        !crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(portable::update(0, b"123456789"), 0xE306_9283);
        assert_eq!(trailer(&[b"1234", b"", b"56789"]), [0xE3, 0x06, 0x92, 0x83]);
    }

    #[test]
    fn table_and_instruction_agree_at_every_length_and_split() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in (0..64).chain([255, 256, 257, 1023, 1024, 1500, 2000]) {
            let whole = crc32c(&bytes[..len]);
            assert_eq!(portable::update(0, &bytes[..len]), whole, "length {len}");
            for at in [0, 1, len / 3, len / 2, len] {
                let at = at.min(len);
                assert_eq!(update(crc32c(&bytes[..at]), &bytes[at..len]), whole, "{at} of {len}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_trailer_is_refused() {
        let mut packet = b"a packet".to_vec();
        packet.extend(trailer(&[b"a packet"]));
        assert_eq!(check_and_strip_crc(&packet), Some(&b"a packet"[..]));
        for bit in 0..packet.len() * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_and_strip_crc(&packet), None, "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(check_and_strip_crc(&packet[..3]), None);
        assert_eq!(check_and_strip_crc(&[]), None);
    }
}
