//! A file of memory that this process writes and others of its user may read.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use crate::shm::segment::Segment;

/// A file in a directory that belongs to its user alone, mapped for writing. It stays when the process ends without
/// [`MappedFile::remove`], however it ends.
#[derive(Debug)]
pub struct MappedFile {
    memory: Segment,
    path: PathBuf,
}

impl MappedFile {
    /// Makes a file of `bytes` zeros that its owner may read and write, in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// The system's: no room (`StorageFull`), a name that is taken (`AlreadyExists`); `PermissionDenied` for a directory
    /// of somebody else, or one that others may enter; `FileTooLarge` where a limit (RLIMIT_FSIZE) forbids it.
    pub fn create(directory: &Path, name: &str, bytes: usize) -> io::Result<Self> {
        own(directory)?;
        let path = directory.join(name);
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        match Segment::of_file(&file, bytes) {
            Ok(memory) => Ok(Self { memory, path }),
            Err(error) => {
                // It is ours, and empty.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Its memory, as whole words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Takes the file's name away. Who has it open reads on.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Sees to it that a directory is there and nobody else's.
fn own(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(directory)?;
    // SAFETY: geteuid(2) takes nothing, returns a number and does not fail.
    let ours = about.uid() == unsafe { libc::geteuid() };
    if !about.is_dir() || !ours || about.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the directory is another user's, or others may enter it",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::Ordering;

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("squall-mapped-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_in_the_file_without_a_call() {
        let directory = place("plain");
        let mapped = MappedFile::create(&directory, "one", 4096).expect("room");
        mapped.words()[3].store(77, Ordering::Relaxed);
        let bytes = fs::read(mapped.path()).expect("readable");
        assert_eq!((bytes.len(), mapped.words().len()), (4096, 512));
        assert_eq!(bytes[24..32], 77u64.to_ne_bytes());
        let taken = MappedFile::create(&directory, "one", 4096).expect_err("it is there");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let path = mapped.path().to_owned();
        drop(mapped);
        assert!(path.exists(), "it stays behind");
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn a_removed_file_can_still_be_written() {
        let directory = place("gone");
        let mapped = MappedFile::create(&directory, "one", 8192).expect("room");
        fs::remove_dir_all(&directory).expect("ours");
        mapped.words()[1000].store(1, Ordering::Relaxed);
        assert!(mapped.remove().is_err());
    }

    #[test]
    fn directories_that_others_may_enter_are_refused() {
        let directory = place("open");
        fs::create_dir(&directory).expect("room");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("ours");
        let refused = MappedFile::create(&directory, "one", 4096).expect_err("not private");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir(&directory).expect("nothing was put there");
        let link = place("link");
        std::os::unix::fs::symlink(std::env::temp_dir(), &link).expect("room");
        assert!(MappedFile::create(&link, "one", 4096).is_err());
        fs::remove_file(&link).expect("ours");
    }

    #[test]
    fn a_file_that_there_is_no_room_for_leaves_nothing() {
        let directory = place("full");
        assert!(MappedFile::create(&directory, "one", usize::MAX / 4).is_err());
        assert!(!directory.join("one").exists());
        fs::remove_dir(&directory).expect("empty");
    }
}
