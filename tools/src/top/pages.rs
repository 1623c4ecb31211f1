//! Statistics pages of endpoints: found, read, and refused where they are somebody else's.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use squall_base::Span;
use squall_monitor::{Snapshot, SnapshotError, directory, process_of_file, start_ticks};
use thiserror::Error;

/// No page is larger, bytes.
const LARGEST: u64 = 16 << 20;
/// Looks at a page that is being written.
const TRIES: u32 = 50;

/// Why a file is not shown.
#[derive(Debug, Error)]
pub(super) enum PageFileError {
    #[error(transparent)]
    Content(#[from] SnapshotError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("it belongs to another user, or others may write it")]
    Stranger,
    #[error("it is no regular file of a size that pages have")]
    Kind,
}

/// The last reading of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct EndpointReading {
    /// The page's file.
    pub(super) path: PathBuf,
    /// What it showed.
    pub(super) snapshot: Snapshot,
    /// Whether the process is still there.
    pub(super) alive: bool,
    /// Since the values were written.
    pub(super) age: Span,
}

/// Where pages are looked for.
#[derive(Clone, Debug)]
pub(super) struct PageDirectory {
    directory: PathBuf,
    user: u32,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Endpoints in the order of job, rank, process and number.
    pub(super) seen: Vec<EndpointReading>,
    /// Files that are not shown, and why not.
    pub(super) refused: Vec<(PathBuf, PageFileError)>,
}

impl PageDirectory {
    /// Those of a user, in the directory where endpoints put them or in another.
    pub(super) fn of(user: u32, elsewhere: Option<PathBuf>) -> Self {
        Self { directory: elsewhere.unwrap_or_else(|| directory(user)), user }
    }

    /// Where they are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads all; `now` in ns since 1970. No directory is no endpoint.
    pub(super) fn look(&self, now: u64) -> io::Result<Look> {
        let mut look = Look::default();
        let about = match fs::symlink_metadata(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(look),
            other => other?,
        };
        if !about.is_dir() || !self.trusts(&about) {
            let why = "it is no directory of this user's, or others may write into it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        for file in fs::read_dir(&self.directory)?.flatten() {
            let path = file.path();
            let Some(process) = file.file_name().to_str().and_then(process_of_file) else {
                continue;
            };
            match self.read(&path, process, now) {
                Ok(seen) => look.seen.push(seen),
                // It closed meanwhile.
                Err(PageFileError::System(error)) if error.kind() == io::ErrorKind::NotFound => {}
                // It is only just being made.
                Err(PageFileError::Content(SnapshotError::Foreign)) if lives(process) => {}
                Err(error) => look.refused.push((path, error)),
            }
        }
        look.seen.sort_by(|a, b| key(a).cmp(&key(b)));
        Ok(look)
    }

    /// Whether nobody but the user, or root, can have written what is there.
    fn trusts(&self, about: &fs::Metadata) -> bool {
        about.uid() == self.user && about.mode() & 0o022 == 0
    }

    fn read(
        &self,
        path: &Path,
        process: (u32, u64),
        now: u64,
    ) -> Result<EndpointReading, PageFileError> {
        let mut options = File::options();
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let file = options.read(true).custom_flags(flags).open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.len() > LARGEST {
            return Err(PageFileError::Kind);
        }
        if !self.trusts(&about) {
            return Err(PageFileError::Stranger);
        }
        let alive = lives(process);
        let read = || -> Result<Vec<u8>, PageFileError> {
            let mut bytes = Vec::new();
            // Always from its beginning: the file's own position is not used.
            let mut from = At { file: &file, at: 0 };
            from.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let snapshot = Snapshot::take(read, TRIES, !alive)?;
        let age = Span(now.saturating_sub(snapshot.written));
        Ok(EndpointReading { path: path.to_owned(), snapshot, alive, age })
    }
}

fn key(seen: &EndpointReading) -> (&str, Option<u32>, u32, u32) {
    let of = &seen.snapshot.description;
    (&of.place.job, of.place.rank, of.pid, of.endpoint)
}

/// Whether a process is there that started then.
fn lives((pid, started): (u32, u64)) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| start_ticks(&text) == Some(started))
}

/// Reads a file from a place of its own.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;
        if self.at > LARGEST {
            return Ok(0);
        }
        let n = self.file.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
