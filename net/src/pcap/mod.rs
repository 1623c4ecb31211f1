//! A port that writes its packets to a capture file for Wireshark. The format is pcap with
//! nanoseconds, or pcapng if the file name ends in `.pcapng`; the link type is raw IP.
//!
//! A pcapng file names the endpoint. For each packet it has the direction and a comment: the path
//! of a sent packet, and whether a switch marked or trimmed a received one.
//!
//! The kernel does not show the IP and UDP headers, so this module reconstructs them. Addresses,
//! ports, DSCP and ECN are true. The identification is a counter. The IPv4 UDP checksum is left out
//! (0, RFC 768); all other checksums are valid. If the port is bound to the unspecified address,
//! that address stands for this host.
//!
//! Around a [`FaultPort`](crate::FaultPort) a capture shows the packets that the transport
//! received; below it, those that the network carried.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::{Span, Time, TrafficClass, Train};
use crate::{Burst, LayeredPort, Port, PortConfig, PortLayer, RecvReport, RxMeta, SendReport};

mod format;
mod spec;
#[cfg(test)]
mod tests;

use format::{CaptureFormat, Remark};
pub use spec::{Direction, PcapSpec};

/// Longest time for which a captured packet stays in memory while the port is idle. It is short, so that the file is
/// nearly complete when the process is killed.
const FLUSH: Span = Span::millis(10);

/// A port whose packets are written to a capture file.
pub type PcapPort<P> = LayeredPort<P, PcapLayer>;

/// The [`PortLayer`] of [`PcapPort`], which writes the packets to the capture file.
pub struct PcapLayer {
    direction: Direction,
    tos_data: u8,
    tos_control: u8,
    dscp_trimmed: u8,
    writer: CaptureWriter,
}

impl<P: Port> PcapPort<P> {
    /// Creates or truncates the file of endpoint number `endpoint` and wraps `inner`, which was
    /// opened with `config`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(
        inner: P,
        spec: &PcapSpec,
        endpoint: usize,
        config: &PortConfig,
    ) -> io::Result<Self> {
        let whose = format!(
            "endpoint {endpoint}, {}, of process {}: {}",
            inner.local_addr(),
            std::process::id(),
            command_line()
        );
        let writer = CaptureWriter::create(spec.file(endpoint), &whose)?;
        let layer = PcapLayer {
            direction: spec.direction,
            tos_data: (config.dscp_data << 2) | if config.ecn { 2 } else { 0 },
            tos_control: config.dscp_control << 2,
            dscp_trimmed: config.dscp_trimmed,
            writer,
        };
        Ok(Self { inner, layer })
    }

    /// Returns the path of the port's capture file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.layer.writer.path
    }
}

impl PortLayer for PcapLayer {
    fn send<P: Port>(&mut self, inner: &mut P, now: Time, burst: Burst<'_>) -> SendReport {
        let report = inner.send(now, burst);
        if self.direction != Direction::Rx {
            // The packets are written after the send: only then has the path a source port, and the
            // number of packets that the socket took is known.
            let mut src = inner.local_addr();
            let mut bytes = Vec::new();
            for packet in &burst.packets()[..report.sent] {
                src.set_port(inner.source_port(packet.path));
                let control = packet.class == TrafficClass::Control;
                let tos = if control { self.tos_control } else { self.tos_data };
                bytes.clear();
                burst.copy(packet, &mut bytes);
                let remark = Remark::Sent { path: packet.path, control };
                self.writer.write_packet(now, (src, packet.dst, tos), &bytes, remark);
            }
        }
        report
    }

    fn recv<P: Port>(
        &mut self,
        inner: &mut P,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let writer = &mut self.writer;
        if self.direction == Direction::Tx {
            let report = inner.recv(now, budget, sink);
            writer.flush_if_old(now);
            return report;
        }
        let (local, trimmed) = (inner.local_addr(), self.dscp_trimmed);
        let report = inner.recv(now, budget, &mut |meta, train| {
            let tos = (meta.dscp << 2) | meta.ecn;
            let remark = Remark::Received { marked: meta.ce(), trimmed: meta.dscp == trimmed };
            train.for_each(|packet| {
                writer.write_packet(now, (meta.src, local, tos), packet, remark);
            });
            sink(meta, train);
        });
        if report.empty {
            writer.flush_if_old(now);
        }
        report
    }
}

/// The writer of a capture file. It stops at the first error, which it logs once.
struct CaptureWriter {
    path: PathBuf,
    format: CaptureFormat,
    file: Option<BufWriter<File>>,
    /// Nanoseconds from 1970 to the zero of the driver's clock; set by the first packet.
    origin: Option<u64>,
    /// Time of the oldest packet that may still be in memory and not in the file.
    dirty: Option<Time>,
    id: u16,
}

impl CaptureWriter {
    fn create(path: PathBuf, whose: &str) -> io::Result<Self> {
        // Large enough for some hundred packets, so that a capture costs few system calls.
        let mut file = BufWriter::with_capacity(1 << 18, File::create(&path)?);
        let format = CaptureFormat::of_file(&path);
        format.write_header(whose, &mut file)?;
        Ok(Self { path, format, file: Some(file), origin: None, dirty: None, id: 0 })
    }

    /// Writes a packet with its source, destination and traffic class byte.
    fn write_packet(
        &mut self,
        now: Time,
        (src, dst, tos): (SocketAddr, SocketAddr, u8),
        bytes: &[u8],
        remark: Remark,
    ) {
        // The driver's clock does not step, so one reading of the calendar dates all packets.
        let origin = *self.origin.get_or_insert_with(|| wall_clock().saturating_sub(now.0));
        let Some(file) = &mut self.file else { return };
        self.dirty.get_or_insert(now);
        self.id = self.id.wrapping_add(1);
        let mut headers = [0; 48];
        let headers = build_headers(&mut headers, src, dst, tos, self.id, bytes);
        let at = origin.saturating_add(now.0);
        let result = self.format.write_packet(at, (headers, bytes), remark, file);
        self.check_result(result);
    }

    /// Flushes the file if the oldest packet in memory has waited for [`FLUSH`]. Called when the
    /// port has nothing to receive.
    fn flush_if_old(&mut self, now: Time) {
        if self.dirty.is_some_and(|since| now.since(since) >= FLUSH) {
            self.dirty = None;
            if let Some(file) = &mut self.file {
                let result = file.flush();
                self.check_result(result);
            }
        }
    }

    fn check_result(&mut self, result: io::Result<()>) {
        if let Err(e) = result {
            log::warn!(
                "capture {} is incomplete: {e}; no more packets are written to it",
                self.path.display()
            );
            // The bytes in memory are discarded too: they would begin in the middle of a packet.
            if let Some(file) = self.file.take() {
                drop(file.into_parts());
            }
        }
    }
}

impl Drop for CaptureWriter {
    /// Writes what is still in memory. `BufWriter` would ignore an error here.
    fn drop(&mut self) {
        if let Some(file) = &mut self.file {
            let result = file.flush();
            self.check_result(result);
        }
    }
}

/// Builds the IP and UDP headers of a payload in `buffer`.
fn build_headers<'a>(
    buffer: &'a mut [u8; 48],
    src: SocketAddr,
    dst: SocketAddr,
    tos: u8,
    id: u16,
    payload: &[u8],
) -> &'a [u8] {
    // A UDP datagram has at most 65535 bytes.
    let udp_len = u16::try_from(payload.len() + 8).unwrap_or(u16::MAX);
    let mut udp = [0; 8];
    udp[..2].copy_from_slice(&src.port().to_be_bytes());
    udp[2..4].copy_from_slice(&dst.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (src.ip(), dst.ip()) {
        let ip = &mut buffer[..20];
        ip[0] = 0x45;
        ip[1] = tos;
        ip[2..4].copy_from_slice(&udp_len.saturating_add(20).to_be_bytes());
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        // Don't fragment; 64 hops; UDP.
        ip[6..10].copy_from_slice(&[0x40, 0, 64, 17]);
        ip[12..16].copy_from_slice(&from.octets());
        ip[16..20].copy_from_slice(&to.octets());
        let mut sum = Checksum::default();
        sum.add(ip);
        ip[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        buffer[20..28].copy_from_slice(&udp);
        return &buffer[..28];
    }
    let v6 = |addr: IpAddr| match addr {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    };
    let ip = &mut buffer[..40];
    ip[0] = 0x60 | (tos >> 4);
    ip[1] = tos << 4;
    ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
    // UDP; 64 hops.
    ip[6..8].copy_from_slice(&[17, 64]);
    ip[8..24].copy_from_slice(&v6(src.ip()));
    ip[24..40].copy_from_slice(&v6(dst.ip()));
    // The sum covers the pseudo header of RFC 8200 section 8.1 (addresses, length, next header),
    // the UDP header and the payload. A sum of 0 is sent as all ones.
    let mut sum = Checksum::default();
    sum.add(&ip[8..40]);
    sum.add(&[0, 0, ip[4], ip[5], 0, 0, 0, 17]);
    sum.add(&udp);
    sum.add(payload);
    let sum = match sum.finish() {
        0 => u16::MAX,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    buffer[40..48].copy_from_slice(&udp);
    &buffer[..48]
}

/// The Internet checksum (RFC 1071) over pieces of any length.
#[derive(Clone, Debug, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// Adds bytes to the sum.
    pub fn add(&mut self, mut bytes: &[u8]) {
        if self.odd {
            let [first, rest @ ..] = bytes else { return };
            self.sum += u64::from(*first);
            self.odd = false;
            bytes = rest;
        }
        let mut pairs = bytes.chunks_exact(2);
        for pair in &mut pairs {
            self.sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            self.sum += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Returns the checksum of all bytes: 0 if they contained the right one.
    #[must_use]
    pub fn finish(self) -> u16 {
        let mut sum = self.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// Returns the command line of this process, to describe the capture's endpoint.
fn command_line() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    words.join(" ").trim_end().to_owned()
}

/// Returns the nanoseconds since 1970. A capture has calendar time, which the driver's time does
/// not give.
#[allow(clippy::disallowed_methods)]
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
