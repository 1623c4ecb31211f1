//! Writes a packet of every kind that UE has into a pcap file, so that a dissector that shares no code with
//! this crate can judge them:
//!
//! ```text
//! cargo run -p squall-wire --example sample_pcap -- samples.pcap
//! cargo run -p squall-wire --example sample_pcap -- --crc samples.pcap     with CRC-32C trailers
//! cargo run -p squall-wire --example sample_pcap -- --corpus wire/corpus   one file a packet
//! ```
//!
//! The packets are UDP over IPv4 from 10.0.0.1 to 10.0.0.2, destination port 4793, link type raw IP.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

mod samples;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--crc", file] => write_pcap(file, true),
        ["--corpus", dir] => write_corpus(Path::new(dir)),
        [file] => write_pcap(file, false),
        _ => Err(io::Error::other("usage: sample_pcap [--crc] FILE | --corpus DIRECTORY")),
    }
}

fn write_corpus(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    samples::all().into_iter().try_for_each(|(name, bytes)| fs::write(dir.join(name), bytes))
}

fn write_pcap(file: &str, crc: bool) -> io::Result<()> {
    let mut out = io::BufWriter::new(fs::File::create(file)?);
    // Magic (microseconds), version 2.4, no zone, no accuracy, snap length, LINKTYPE_RAW.
    for word in [0xA1B2_C3D4_u32, 0x0002_0004, 0, 0, 65_535, 101] {
        out.write_all(&word.to_be_bytes())?;
    }
    for (i, (_, mut payload)) in samples::standard().into_iter().enumerate() {
        // An encrypted packet ends in its integrity check value instead.
        if crc && payload[0] >> 3 != squall_wire::PdsType::Tss.to_u8() {
            let trailer = squall_wire::crc::trailer(&[&payload]);
            payload.extend(trailer);
        }
        let number = u32::try_from(i).map_err(io::Error::other)?;
        let packet = ipv4(&payload)?;
        let length = u32::try_from(packet.len()).map_err(io::Error::other)?;
        for word in [number, 0, length, length] {
            out.write_all(&word.to_be_bytes())?;
        }
        out.write_all(&packet)?;
    }
    out.flush()
}

/// An IPv4 and a UDP header before `payload`; no UDP checksum.
fn ipv4(payload: &[u8]) -> io::Result<Vec<u8>> {
    let total = u16::try_from(payload.len() + 28).map_err(io::Error::other)?;
    let mut b = vec![0x45, 0x02];
    b.extend(total.to_be_bytes());
    b.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    b.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let words = b.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let sum: u32 = words.map(u32::from).sum();
    let checksum = !u16::try_from((sum & 0xFFFF) + (sum >> 16)).map_err(io::Error::other)?;
    b[10..12].copy_from_slice(&checksum.to_be_bytes());
    for field in [50_000, squall_wire::UDP_PORT, total - 20, 0] {
        b.extend(field.to_be_bytes());
    }
    b.extend(payload);
    Ok(b)
}
