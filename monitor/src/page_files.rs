//! Where pages are, and whose a file is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::Description;

/// The directory of a user's pages. In memory, and found by the user's number alone: the ranks of a job and who watches
/// them have different environments.
#[must_use]
pub fn directory(user: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/squall-{user}"))
}

/// The name of a page's file.
#[must_use]
pub fn file_name(of: &Description) -> String {
    format!("{}-{}-{}", of.pid, of.started, of.endpoint)
}

/// The process that a file belongs to, and when that started; `None` for a file that is no page's.
#[must_use]
pub fn process_of(file_name: &str) -> Option<(u32, u64)> {
    let mut parts = file_name.split('-');
    let (pid, started) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let _endpoint: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((pid, started))
}

/// When a process started, in ticks, of the text of its `/proc/PID/stat`: the 22nd field, of which the second is a name
/// in parentheses that may hold anything (proc(5)).
#[must_use]
pub fn start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The names of the words of a flow that hold its peer's address; see [`address_words`].
pub const ADDRESS: [&str; 3] = ["ip_high", "ip_low", "udp_port"];

/// An address as words of a flow; an IPv4 address as its IPv6 form.
#[must_use]
pub fn address_words(address: SocketAddr) -> [u64; 3] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let bits = ip.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(address.port())]
}

/// The address in words that [`address_words`] made.
#[must_use]
pub fn address_of([high, low, port]: [u64; 3]) -> SocketAddr {
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
            assert_eq!(address_of(address_words(address)), address);
        }
    }

    #[test]
    fn files_say_whose_they_are() {
        assert_eq!(process_of("12-3456-0"), Some((12, 3456)));
        for foreign in ["", "12", "12-3", "12-3-4-5", "a-1-2", "12-3-x", ".12-3-4"] {
            assert_eq!(process_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(start_ticks(&format!("42 (a) b) c) {rest}")), Some(777));
        assert_eq!(start_ticks("42 (cut"), None);
    }
}
