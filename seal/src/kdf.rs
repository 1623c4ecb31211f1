//! The key derivation function of the specification: NIST SP 800-108 in counter mode, with
//! CMAC-AES-256 as its pseudorandom function.

use core::net::{Ipv4Addr, Ipv6Addr};

use aes::Aes256;
use cmac::{Cmac, KeyInit as _, Mac as _};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The mode of a secure domain. Two ASCII characters for it are part of the input of the key
/// derivation, so the modes derive different keys from one secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyLabel {
    /// Cluster mode: every endpoint of a domain holds the domain's secret.
    Cluster,
    /// Server mode: only the server holds the domain's secret, and each client holds its own derived
    /// key.
    Server,
}

impl KeyLabel {
    const fn bytes(self) -> [u8; 2] {
        match self {
            Self::Cluster => *b"U1",
            Self::Server => *b"U2",
        }
    }
}

/// The name of the sender whose packets a key encrypts, as it enters the key derivation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeySource {
    /// The secure source identifier (SSI) in the TSS header.
    Id(u32),
    /// The IPv4 source address, if the header has no identifier.
    V4(Ipv4Addr),
    /// The IPv6 source address, if the header has no identifier.
    V6(Ipv6Addr),
}

/// A key for AES-256-GCM, and the mask for its nonces. Dropping it overwrites both with zeros.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct DerivedKey {
    /// Key for AES-256-GCM.
    pub key: [u8; 32],
    /// Mask that is XORed into the nonce of each packet.
    pub iv_mask: [u8; 12],
}

impl core::fmt::Debug for DerivedKey {
    /// Prints a placeholder, so that logs contain no part of the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DerivedKey(..)")
    }
}

/// Length of the output in bits, which is the last part of the input of every block.
const OUTPUT_BITS: u16 = 352;

/// Derives the key of a sender's packets from a domain's secret.
///
/// `epoch` is the number of 16 bits before the counter in the TSS header. `interval` is the number of the counter
/// interval, which the specification calls the rekey value; every interval has another key.
#[must_use]
pub fn derive_key(
    secret: &[u8; 32],
    label: KeyLabel,
    epoch: u16,
    interval: u32,
    source: KeySource,
) -> DerivedKey {
    let mut context = [0; 26];
    let len = match source {
        KeySource::Id(id) => write_short(&mut context, epoch, interval, id.to_be_bytes()),
        KeySource::V4(ip) => write_short(&mut context, epoch, interval, ip.octets()),
        KeySource::V6(ip) => {
            context[4..6].copy_from_slice(&epoch.to_be_bytes());
            context[6..10].copy_from_slice(&interval.to_be_bytes());
            context[10..26].copy_from_slice(&ip.octets());
            26
        }
    };
    let mut output = [0; 48];
    for (i, block) in (1..).zip(output.chunks_exact_mut(16)) {
        let mut mac = Cmac::<Aes256>::new(secret.into());
        mac.update(&[i]);
        mac.update(&label.bytes());
        mac.update(&[0]);
        mac.update(&context[..len]);
        mac.update(&OUTPUT_BITS.to_be_bytes());
        block.copy_from_slice(&mac.finalize().into_bytes());
    }
    let mut derived = DerivedKey { key: [0; 32], iv_mask: [0; 12] };
    derived.key.copy_from_slice(&output[..32]);
    derived.iv_mask.copy_from_slice(&output[32..44]);
    output.zeroize();
    derived
}

/// Writes the context of the key derivation for a source of 32 bits, and returns its length.
fn write_short(context: &mut [u8; 26], epoch: u16, interval: u32, source: [u8; 4]) -> usize {
    context[..2].copy_from_slice(&epoch.to_be_bytes());
    context[2..6].copy_from_slice(&interval.to_be_bytes());
    context[6..10].copy_from_slice(&source);
    10
}
