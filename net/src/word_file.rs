//! A file of 64-bit words that this process writes and other processes of its user may read.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::shm::segment::{check, largest_file};

/// A file of words in the byte order of the machine, in a directory that only its user may enter.
/// The file remains when the process ends without [`WordFile::remove`], even after a crash.
///
/// The file is written by system calls and not mapped. Any process that may write the file may also
/// truncate it, and a store behind the end of a mapped file raises a signal that ends the process.
#[derive(Debug)]
pub struct WordFile {
    file: File,
    words: usize,
    path: PathBuf,
}

impl WordFile {
    /// Creates a file of `words` zero words with mode 0600 in `directory`, and creates the
    /// directory if it does not exist.
    ///
    /// # Errors
    /// The error of the system: `StorageFull`; `AlreadyExists` for the name; `PermissionDenied` if
    /// the directory belongs to another user or others may enter it; `FileTooLarge` if RLIMIT_FSIZE
    /// forbids the size.
    pub fn create(directory: &Path, name: &str, words: usize) -> io::Result<Self> {
        ensure_private_directory(directory)?;
        let path = directory.join(name);
        let mut options = File::options();
        // An existing file or symbolic link of another process is never followed or overwritten.
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        let made = Self { file, words, path };
        if let Err(error) = made.reserve() {
            // The file is new and still empty, so it is removed again.
            let _ = fs::remove_file(&made.path);
            return Err(error);
        }
        Ok(made)
    }

    /// Allocates the whole file now, so that later writes cannot fail for lack of space.
    fn reserve(&self) -> io::Result<()> {
        let bytes = self.words.checked_mul(8).ok_or(io::ErrorKind::InvalidInput)?;
        if largest_file() < bytes as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let size = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: fallocate(2) takes numbers alone; the file is open.
        unsafe { check(libc::fallocate(self.file.as_raw_fd(), 0, 0, size)) }.map(drop)
    }

    /// Writes words from the word `at` on. A concurrent reader may see some of them before the
    /// others.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` behind the end of the file; `FileTooLarge` if
    /// RLIMIT_FSIZE forbids the write by now. The limit is checked first, because the kernel would
    /// send SIGXFSZ, which ends the process.
    pub fn write(&self, at: usize, words: &[u64]) -> io::Result<()> {
        let end = at.checked_add(words.len()).filter(|end| *end <= self.words);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        if largest_file() < end as u64 * 8 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, at as u64 * 8)
    }

    /// Removes the file's name. Processes that have the file open can still read it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Returns the path of the word file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Ensures that a directory exists and belongs to this user alone.
fn ensure_private_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not `metadata`: a symbolic link could lead to a directory that others control.
    let about = fs::symlink_metadata(directory)?;
    // SAFETY: geteuid(2) takes nothing, returns a number and does not fail.
    let ours = about.uid() == unsafe { libc::geteuid() };
    if !about.is_dir() || !ours || about.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the directory is not private: it belongs to another user, or others may enter it; remove it, or set its mode to 0700",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("squall-words-{}-{name}", std::process::id()))
    }

    #[test]
    fn written_words_are_in_the_file() {
        let directory = place("plain");
        let made = WordFile::create(&directory, "one", 512).expect("room");
        made.write(3, &[77, 78]).expect("room");
        let bytes = fs::read(made.path()).expect("readable");
        assert_eq!((bytes.len(), &bytes[16..24]), (4096, &[0; 8][..]));
        assert_eq!(bytes[24..40], [77u64.to_ne_bytes(), 78u64.to_ne_bytes()].concat());
        assert!(made.write(511, &[1, 2]).is_err() && made.write(usize::MAX, &[1]).is_err());
        let taken = WordFile::create(&directory, "one", 512).expect_err("it is there");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let path = made.path().to_owned();
        drop(made);
        assert!(path.exists(), "it stays behind");
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn a_removed_file_can_still_be_written() {
        let directory = place("gone");
        let made = WordFile::create(&directory, "one", 1024).expect("room");
        fs::remove_dir_all(&directory).expect("ours");
        made.write(1000, &[1]).expect("it is open");
        assert!(made.remove().is_err());
    }

    #[test]
    fn truncating_the_file_does_no_harm() {
        let directory = place("short");
        let made = WordFile::create(&directory, "one", 1024).expect("room");
        let other = File::options().write(true).open(made.path()).expect("ours");
        other.set_len(0).expect("ours");
        made.write(1000, &[5]).expect("room");
        let bytes = fs::read(made.path()).expect("readable");
        assert_eq!((bytes.len(), bytes[8000]), (8008, 5u64.to_ne_bytes()[0]));
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn directories_that_others_may_enter_are_refused() {
        let directory = place("open");
        fs::create_dir(&directory).expect("room");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("ours");
        let refused = WordFile::create(&directory, "one", 512).expect_err("not private");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir(&directory).expect("nothing was put there");
        let link = place("link");
        std::os::unix::fs::symlink(std::env::temp_dir(), &link).expect("room");
        assert!(WordFile::create(&link, "one", 512).is_err());
        fs::remove_file(&link).expect("ours");
    }

    #[test]
    fn a_file_that_there_is_no_room_for_leaves_nothing() {
        let directory = place("full");
        assert!(WordFile::create(&directory, "one", usize::MAX / 32).is_err());
        assert!(!directory.join("one").exists());
        fs::remove_dir(&directory).expect("empty");
    }
}
