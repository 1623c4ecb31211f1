//! Finds and reads the statistics pages of endpoints, and refuses pages of other users.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use squall_base::Span;
use squall_monitor::{Snapshot, SnapshotError, directory, process_of_file, start_ticks};
use thiserror::Error;

/// Size in bytes of the largest statistics page that is read.
const LARGEST: u64 = 16 << 20;
/// Number of attempts to read a statistics page while the endpoint writes it.
const TRIES: u32 = 50;

/// The reason why a file in the directory of statistics pages is not shown.
#[derive(Debug, Error)]
pub(super) enum PageFileError {
    #[error(transparent)]
    Content(#[from] SnapshotError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("it belongs to another user, or others may write it")]
    Stranger,
    #[error("it is not a regular file of a valid size")]
    Kind,
}

/// The last reading of an endpoint's statistics page.
#[derive(Clone, Debug)]
pub(super) struct EndpointReading {
    /// Path of the file with the statistics page.
    pub(super) path: PathBuf,
    /// Content of the statistics page.
    pub(super) snapshot: Snapshot,
    /// True if the process of the endpoint still runs.
    pub(super) alive: bool,
    /// Time since the endpoint last wrote its page.
    pub(super) age: Span,
}

/// The directory with the statistics pages of a user.
#[derive(Clone, Debug)]
pub(super) struct PageDirectory {
    directory: PathBuf,
    user: u32,
}

/// The result of reading a directory of statistics pages.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Endpoints in the order of job, rank, process and number.
    pub(super) seen: Vec<EndpointReading>,
    /// Files of the directory that are not shown, with the reasons.
    pub(super) refused: Vec<(PathBuf, PageFileError)>,
}

impl PageDirectory {
    /// Selects the statistics pages of a user, in the directory where endpoints put them or in
    /// `elsewhere`.
    pub(super) fn of(user: u32, elsewhere: Option<PathBuf>) -> Self {
        Self { directory: elsewhere.unwrap_or_else(|| directory(user)), user }
    }

    /// Returns the path of the directory with the statistics pages.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads all statistics pages. `now` is in ns since 1970. A missing directory counts as an
    /// empty one.
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
                // The endpoint closed meanwhile.
                Err(PageFileError::System(error)) if error.kind() == io::ErrorKind::NotFound => {}
                // The endpoint is just creating the page.
                Err(PageFileError::Content(SnapshotError::Foreign)) if lives(process) => {}
                Err(error) => look.refused.push((path, error)),
            }
        }
        look.seen.sort_by(|a, b| key(a).cmp(&key(b)));
        Ok(look)
    }

    /// Returns whether only the user or root can have written the file or directory.
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
            // Each attempt reads from the beginning; the position of the open file is not used.
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

/// Returns whether the process with this number and start time still runs.
fn lives((pid, started): (u32, u64)) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| start_ticks(&text) == Some(started))
}

/// Reads a file from a position of its own, which other readers of the file do not change.
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
