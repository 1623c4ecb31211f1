//! The command line of `squall decrypt`.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use squall_base::JobKey;
use squall_engine::RecordedHandshake;
use squall_seal::{KeyLogEntry, OpenError, OuterHeader, RecordingKeys, SourceId};
use squall_wire::{Handshake, Packet, parse};
use zeroize::Zeroizing;

use super::capture::{CaptureReader, Record};
use super::frame::UdpDatagram;

/// Decrypt a capture of a job with a key, for Wireshark.
///
/// The input is a capture that FI_SQUALL_PCAP wrote, or one from a switch or tcpdump without
/// segmentation offload (pcap or pcapng, raw IP or Ethernet). The output has the same format.
///
/// Packets are decrypted with secrets from a key log, which FI_SQUALL_KEY_LOG wrote while the job
/// ran, or with the job's key, if the capture contains the handshakes. Other packets, and those
/// that switches trimmed, stay as they are.
///
/// The exit status is 1 if no encrypted packet could be decrypted.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("secrets").required(true).multiple(true).args(["keys", "job_key"])))]
pub(crate) struct DecryptArgs {
    /// Capture file to decrypt.
    capture: PathBuf,
    /// Key log of an endpoint that sent or received the packets (FI_SQUALL_KEY_LOG); repeatable.
    #[arg(long, value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// File with the key of the job (FI_SQUALL_KEY_FILE).
    #[arg(long, value_name = "FILE")]
    job_key: Option<PathBuf>,
    /// File to write, readable by its owner alone. Default: CAPTURE with .clear before its ending.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Numbers of packets of a capture that were decrypted, and of those that were not, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PacketCounts {
    pub(super) decrypted: u64,
    pub(super) clear: u64,
    pub(super) without_secret: u64,
    pub(super) wrong_tag: u64,
    /// Frames without a UDP datagram, or with only a part of one, which stay as they are.
    pub(super) others: u64,
}

impl fmt::Display for PacketCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decrypted, clear, without_secret, wrong_tag, others } = *self;
        write!(
            f,
            "{decrypted} packets decrypted, {clear} in the clear, {without_secret} without a \
             secret, {wrong_tag} with a wrong tag"
        )?;
        if others > 0 { write!(f, ", {others} no whole UDP datagrams") } else { Ok(()) }
    }
}

/// Runs the command and writes the counts to `to`. Returns false if the capture has encrypted
/// packets and none was decrypted.
///
/// # Errors
/// Returns the file that cannot be read or written, and why.
pub(crate) fn run(args: &DecryptArgs, to: &mut dyn Write) -> Result<bool, String> {
    let out = args.out.clone().unwrap_or_else(|| default_output(&args.capture));
    let mut keys = RecordingKeys::new();
    for file in &args.keys {
        read_key_log(file, &mut keys)?;
    }
    let mut other_keys = 0;
    if let Some(file) = &args.job_key {
        other_keys = add_handshakes(&args.capture, &read_job_key(file)?, &mut keys)?;
    }
    if other_keys > 0 {
        note(&format!(
            "{other_keys} handshake packets of {} were made with another key; give --job-key the \
             file of that job",
            args.capture.display()
        ));
    } else if keys.is_empty() && args.job_key.is_some() {
        note(&format!(
            "{} has no handshake, because it began later; use a key log (--keys)",
            args.capture.display()
        ));
    } else if keys.is_empty() {
        note("the key log is empty: the endpoint did not encrypt, or had no peer");
    }
    let counts = decrypt(&args.capture, &out, &mut keys)?;
    // The capture is written. If nobody reads the counts, nothing else is to be done.
    let _ = writeln!(to, "{counts}: {}", out.display());
    let sealed = counts.decrypted + counts.without_secret + counts.wrong_tag;
    Ok(counts.decrypted > 0 || sealed == 0)
}

/// Prints a remark on standard error.
fn note(text: &str) {
    // If standard error is closed, the remark cannot be shown anywhere else.
    let _ = writeln!(io::stderr(), "squall: {text}");
}

/// Returns the name of the output for a capture: `a.pcap` becomes `a.clear.pcap`.
fn default_output(capture: &Path) -> PathBuf {
    let mut name = capture.file_stem().unwrap_or_default().to_owned();
    name.push(".clear");
    if let Some(ending) = capture.extension() {
        name.push(".");
        name.push(ending);
    }
    capture.with_file_name(name)
}

/// Reads a file with secrets. Dropping the bytes overwrites them with zeros.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_secrets(file: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut file = File::open(file)?;
    // A vector that grows leaves copies behind. The room for one byte more shows the end of the file
    // without growth. Only what comes through a pipe, whose length is not known, is copied.
    let len = usize::try_from(file.metadata()?.len()).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(len.saturating_add(1)));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Adds the secrets of a key log to `keys`.
///
/// # Errors
/// Returns the line that is malformed, or why the file cannot be read.
fn read_key_log(file: &Path, keys: &mut RecordingKeys) -> Result<(), String> {
    let shown = file.display();
    let unreadable = |error: &dyn fmt::Display| format!("cannot read the key log {shown}: {error}");
    let secrets = read_secrets(file).map_err(|error| unreadable(&error))?;
    let text = str::from_utf8(&secrets).map_err(|error| unreadable(&error))?;
    for (number, line) in (1..).zip(text.lines()) {
        let entry = KeyLogEntry::from_line(line).map_err(|error| {
            format!(
                "cannot read the key log {shown}: {error} in line {number}; name a file that \
                 FI_SQUALL_KEY_LOG wrote"
            )
        })?;
        if let Some(KeyLogEntry { local, peer, domain, secret }) = entry {
            keys.add(domain, &secret, [local.1, peer.1]);
        }
    }
    Ok(())
}

/// Reads the key of a job as the provider does (`provider/host/job.rs`), without the end of its last
/// line.
///
/// # Errors
/// The file cannot be read, or holds no key.
fn read_job_key(file: &Path) -> Result<JobKey, String> {
    let shown = file.display();
    let mut secret =
        read_secrets(file).map_err(|error| format!("cannot read the job key {shown}: {error}"))?;
    let key = secret.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let length = key.unwrap_or(&secret).len();
    secret.truncate(length);
    if !(16..=256).contains(&secret.len()) {
        return Err(format!(
            "cannot use the job key {shown}: it has {} bytes, and a key has 16 to 256; name the \
             file of FI_SQUALL_KEY_FILE",
            secret.len()
        ));
    }
    Ok(JobKey::new(&secret))
}

/// Adds the secrets that follow from the job's key and the handshakes in a capture. Returns the
/// number of handshake packets that were made with another key.
///
/// # Errors
/// The capture cannot be read.
fn add_handshakes(capture: &Path, key: &JobKey, keys: &mut RecordingKeys) -> Result<u64, String> {
    let mut others = 0;
    for_each_record(capture, |record| {
        let Some((link, frame)) = record.frame() else { return Ok(()) };
        let Some(datagram) = UdpDatagram::find(link, frame) else { return Ok(()) };
        let Ok(Packet::Negotiation { values, .. }) = parse(datagram.payload(frame)) else {
            return Ok(());
        };
        let Ok(Some(packet)) = Handshake::read(values) else { return Ok(()) };
        let way = (datagram.source, datagram.destination);
        if let Some(handshake) = RecordedHandshake::new(key, way, &packet) {
            let RecordedHandshake { initiator, responder, secret } = handshake;
            let ends = [SourceId::new(initiator, true), SourceId::new(responder, false)];
            match secret {
                // The SDI has the 24 bits of the JobID.
                Some(secret) => keys.add(packet.job_id & 0x00FF_FFFF, &secret, ends),
                None => others += 1,
            }
        }
        Ok(())
    })?;
    Ok(others)
}

/// Hands all records of a capture to `handle`, as far as the file goes.
///
/// # Errors
/// The capture cannot be read, or `handle` has failed.
fn for_each_record(
    capture: &Path,
    mut handle: impl FnMut(Record) -> Result<(), String>,
) -> Result<bool, String> {
    let unreadable = |error: &dyn fmt::Display| {
        format!("cannot read the capture {}: {error}", capture.display())
    };
    let file = File::open(capture).map_err(|error| unreadable(&error))?;
    let reader = CaptureReader::new(BufReader::with_capacity(1 << 18, file));
    let mut reader = reader.map_err(|error| unreadable(&error))?;
    while let Some(record) = reader.next().map_err(|error| unreadable(&error))? {
        handle(record)?;
    }
    Ok(reader.cut)
}

/// Opens an output file for decrypted packets that this user alone can read. It replaces a regular file that exists, or a
/// link to one, because others may have made it, or may be able to read it. A pipe or a device is written to.
fn create_private(path: &Path) -> io::Result<File> {
    match path.metadata() {
        Ok(about) if !about.is_file() => File::options().write(true).open(path),
        _ => {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            File::options().write(true).create_new(true).mode(0o600).open(path)
        }
    }
}

/// Writes the capture to `out`, with the packets decrypted whose secrets are among `keys`.
///
/// # Errors
/// Returns the file that cannot be read or written, and why.
pub(super) fn decrypt(
    capture: &Path,
    out: &Path,
    keys: &mut RecordingKeys,
) -> Result<PacketCounts, String> {
    let unwritable = |error: io::Error| format!("cannot write {}: {error}", out.display());
    let same =
        |one: &Path, other: &Path| Some(one.canonicalize().ok()? == other.canonicalize().ok()?);
    if same(capture, out) == Some(true) {
        return Err(format!(
            "cannot write {}: this is the capture itself; give --out another file",
            out.display()
        ));
    }
    let file = create_private(out).map_err(unwritable)?;
    let mut to = BufWriter::with_capacity(1 << 18, file);
    let mut counts = PacketCounts::default();
    let mut packet = Vec::new();
    let cut = for_each_record(capture, |mut record| {
        let clear = record.frame().and_then(|(link, frame)| {
            let datagram = UdpDatagram::find(link, frame);
            open(datagram, frame, keys, &mut packet, &mut counts)
        });
        if let Some(frame) = clear {
            record.replace_frame(&frame);
        }
        to.write_all(&record.bytes).map_err(unwritable)
    })?;
    to.flush().map_err(unwritable)?;
    if cut {
        note(&format!(
            "{} ends within a packet, as does that of a process that was killed",
            capture.display()
        ));
    }
    Ok(counts)
}

/// Decrypts a frame, and counts it. Returns the frame with the delivery packet in the clear, or
/// `None` if it stays as it is.
fn open(
    datagram: Option<UdpDatagram>,
    frame: &[u8],
    keys: &mut RecordingKeys,
    packet: &mut Vec<u8>,
    counts: &mut PacketCounts,
) -> Option<Vec<u8>> {
    let Some(datagram) = datagram else {
        counts.others += 1;
        return None;
    };
    let outer = OuterHeader { source: datagram.source, destination: datagram.destination };
    let counter = match keys.open(&outer, datagram.payload(frame), packet) {
        Ok(()) => {
            counts.decrypted += 1;
            return Some(datagram.with_payload(frame, packet));
        }
        Err(OpenError::Clear) => &mut counts.clear,
        Err(OpenError::UnknownSender) => &mut counts.without_secret,
        Err(OpenError::BadTag | OpenError::Replayed) => &mut counts.wrong_tag,
    };
    *counter += 1;
    None
}
