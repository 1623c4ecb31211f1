//! The key log of FI_SQUALL_KEY_LOG, with which `squall decrypt` decrypts captures. Its lines are
//! those of [`squall_seal::KeyLogEntry`].

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use squall_seal::{KeyLogEntry, Pair};

use crate::abi::errno::{Errno, Result};
use crate::host::job::check_private;
use crate::host::logger::USER;
use crate::reports::stats::expand;

/// The file for the secrets that an endpoint shares with its peers. Other endpoints and processes of the user may
/// append to the same file.
#[derive(Debug)]
pub(crate) struct KeyLog {
    file: File,
    path: String,
    local: SocketAddr,
    /// True if writing the file failed, which was reported once.
    failed: bool,
}

impl KeyLog {
    /// Opens the key log for endpoint number `number` at `local`, and warns the user of what it holds. Returns `None`
    /// if `pattern` is empty.
    ///
    /// # Errors
    /// `FI_EACCES` for a file that other users may use, `FI_EINVAL` for one that is no regular
    /// file, the system's error for one that cannot be opened; each with a warning.
    pub(crate) fn open(pattern: &str, number: u32, local: SocketAddr) -> Result<Option<Self>> {
        if pattern.is_empty() {
            return Ok(None);
        }
        let path = expand(pattern, number);
        match open_private(&path) {
            Ok(file) => {
                log::warn!(
                    target: USER,
                    "FI_SQUALL_KEY_LOG={path}: everyone who reads this file can decrypt the packets \
                     of the endpoint at {local}; use it for tests alone, and delete it afterwards"
                );
                Ok(Some(Self { file, path, local, failed: false }))
            }
            Err((errno, why)) => {
                log::warn!(target: USER, "FI_SQUALL_KEY_LOG={path}: {why}");
                Err(errno)
            }
        }
    }

    /// Appends the secret that two endpoints share to the log.
    pub(crate) fn append(&mut self, pair: &Pair) {
        if self.failed {
            return;
        }
        // One call for each line, so that the lines of several processes do not mix.
        let line = KeyLogEntry::new(self.local, pair).to_line();
        let error = match self.file.write(line.as_bytes()) {
            Ok(written) if written == line.len() => return,
            Ok(_) => io::ErrorKind::WriteZero.into(),
            Err(error) => error,
        };
        self.failed = true;
        log::warn!(
            target: USER,
            "FI_SQUALL_KEY_LOG={}: cannot write a secret: {error}; packets of later handshakes \
             cannot be decrypted, so give the file room and start again",
            self.path
        );
    }
}

/// Opens or creates a file for appending that no other user may use.
///
/// # Errors
/// The error number, and the reason with a remedy.
fn open_private(path: &str) -> core::result::Result<File, (Errno, String)> {
    // Others could make a link in a folder such as /tmp, and so choose the file. Opening a pipe
    // would block until it has a reader.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened =
        File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let file = opened.map_err(|error| {
        let why = match error.raw_os_error() {
            Some(libc::ELOOP) => "this is a symbolic link; name the file itself".to_owned(),
            _ => format!("cannot open it: {error}; name a file in a folder of yours"),
        };
        (error.into(), why)
    })?;
    let about = file.metadata().map_err(|error| {
        (Errno::INVAL, format!("cannot examine it: {error}; name another file"))
    })?;
    check_private(&about, path)?;
    // SAFETY: geteuid(2) takes no arguments and returns the user id of this process; it cannot fail.
    let user = unsafe { libc::geteuid() };
    if about.uid() != user {
        let why = "the file belongs to another user, who could read it; name another one";
        return Err((Errno::ACCES, why.to_owned()));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use squall_base::{Instance, PairSecret};
    use squall_seal::SourceId;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("squall-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn pair(secret: u8) -> Pair {
        let id = |number, asked| SourceId::new(Instance::new(number).expect("not 0"), asked);
        Pair {
            peer: "10.0.0.2:2".parse().expect("an address"),
            secret: PairSecret::new([secret; 32]),
            domain: 7,
            own: id(1, true),
            theirs: id(2, false),
            confirmed: true,
        }
    }

    fn open(pattern: &str) -> Result<Option<KeyLog>> {
        KeyLog::open(pattern, 3, "10.0.0.1:1".parse().expect("an address"))
    }

    #[test]
    fn endpoints_append_to_a_file_that_is_private() {
        let folder = folder("key-log");
        let pattern = format!("{}/keys-%e", folder.display());
        let mut logs = [open(&pattern), open(&pattern)].map(|log| log.expect("a file"));
        for (secret, log) in (1..).zip(&mut logs) {
            log.as_mut().expect("it was asked for").append(&pair(secret));
        }
        let file = folder.join("keys-3");
        let mode = fs::metadata(&file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&file).expect("text");
        let read: Vec<_> = text.lines().map(KeyLogEntry::from_line).collect();
        let local = "10.0.0.1:1".parse().expect("an address");
        let of = |secret| Ok(Some(KeyLogEntry::new(local, &pair(secret))));
        assert_eq!(read, [of(1), of(2)]);
        assert!(!format!("{logs:?}").contains("0101"));
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_file_that_others_may_use_is_refused() {
        let folder = folder("open-key-log");
        let file = folder.join("keys");
        let name = file.to_str().expect("plain");
        let refusal = |name: &str| open_private(name).expect_err("a refusal");
        for mode in [0o640, 0o620, 0o604, 0o602, 0o610] {
            fs::write(&file, "").expect("room");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
            let (errno, why) = refusal(name);
            assert_eq!(errno, Errno::ACCES);
            assert!(why.contains(&format!("(mode {mode:04o}); run chmod 600 {name}")), "{why}");
            assert_eq!(open(name).err(), Some(Errno::ACCES));
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert!(open_private(name).is_ok());
        let link = folder.join("link");
        symlink(&file, &link).expect("a link");
        let (errno, why) = refusal(link.to_str().expect("plain"));
        assert!(errno == Errno(libc::ELOOP) && why.contains("name the file itself"), "{why}");
        assert_eq!(refusal("/dev/null").0, Errno::INVAL);
        assert_eq!(refusal("/nonexistent/keys").0, Errno(libc::ENOENT));
        assert!(open("").is_ok_and(|log| log.is_none()));
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_full_disk_is_reported_once() {
        let file = File::options().append(true).open("/dev/full").expect("it is there");
        let local = "10.0.0.1:1".parse().expect("an address");
        let mut log = KeyLog { file, path: "/dev/full".to_owned(), local, failed: false };
        log.append(&pair(1));
        assert!(log.failed);
    }
}
