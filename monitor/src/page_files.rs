//! The directory of statistics pages and the names of their files.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::Description;

/// Returns the directory of a user's pages. The path depends on the user ID alone, because the
/// ranks of a job and `squall top` have different environments. It is in memory, so that writing a
/// page never waits for a disk.
#[must_use]
pub fn directory(user: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/squall-{user}"))
}

/// Returns the file name of a statistics page: process ID, start time and endpoint number.
#[must_use]
pub fn file_name(of: &Description) -> String {
    format!("{}-{}-{}", of.pid, of.started, of.endpoint)
}

/// Returns the process ID and the start time in the name of a page's file, or `None` if the name is
/// another.
#[must_use]
pub fn process_of_file(file_name: &str) -> Option<(u32, u64)> {
    let mut parts = file_name.split('-');
    let (pid, started) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let _endpoint: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((pid, started))
}

/// Returns the start time of a process in clock ticks, from the text of its `/proc/PID/stat`. The
/// start time is the 22nd field (proc(5)). The second field is a program name in parentheses, which
/// may itself hold spaces and parentheses, so the fields are counted from the last parenthesis.
#[must_use]
pub fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Names of the flow words that hold the peer's address; see [`address_words`].
pub const ADDRESS: [&str; 3] = ["ip_high", "ip_low", "udp_port"];

/// Encodes an address as flow words. An IPv4 address is stored in its IPv6-mapped form.
#[must_use]
pub fn address_words(address: SocketAddr) -> [u64; 3] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let bits = ip.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(address.port())]
}

/// Decodes a socket address from the three words that [`address_words`] returned.
#[must_use]
pub fn address_from_words([high, low, port]: [u64; 3]) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical();
    SocketAddr::new(ip, u16::try_from(port).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive() {
        for text in ["10.1.2.3:4793", "[fe80::1]:1", "[::1]:65535"] {
            let address: SocketAddr = text.parse().expect("literal");
            assert_eq!(address_from_words(address_words(address)), address);
        }
    }

    #[test]
    fn file_names_contain_the_process() {
        assert_eq!(process_of_file("12-3456-0"), Some((12, 3456)));
        for foreign in ["", "12", "12-3", "12-3-4-5", "a-1-2", "12-3-x", ".12-3-4"] {
            assert_eq!(process_of_file(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(start_ticks(&format!("42 (a) b) c) {rest}")), Some(777));
        assert_eq!(start_ticks("42 (cut"), None);
    }
}
