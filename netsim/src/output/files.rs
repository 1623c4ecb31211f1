//! Results in files. A file is written under another name and then renamed, so that a file under
//! its final name is complete, whenever the program ends or the disk is full.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Provenance, Run};

/// The reason why a file of results could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file could not be written.
    #[error("cannot write {}: {error}{}", path.display(), hint(error))]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The content of a file is not the JSON of results.
    #[error("{}:{}:{}: not results of squall: {error}", path.display(), error.line(), error.column())]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// The error, with line and column.
        error: serde_json::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::StorageFull {
        "; the disk is full, files written before are complete"
    } else {
        ""
    }
}

/// Writes a whole file, or leaves the existing one. An existing path that is no regular file (a
/// device, a pipe) is written to directly, because it must not be replaced.
///
/// # Errors
/// Returns the file, and why it could not be written.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let failed = |error| FileError::Write { path: path.to_owned(), error };
    if let Ok(there) = fs::metadata(path)
        && !there.is_file()
    {
        let mut to = File::options().write(true).open(path).map_err(failed)?;
        return fill(&mut to).and_then(|()| to.flush()).map_err(failed);
    }
    // A symbolic link is resolved, so that its target is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = (|| {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(&part)?);
        fill(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&part, path)
    })();
    written.map_err(|error| {
        // A partial file is of no use, and a failure to remove it changes nothing.
        let _ = fs::remove_file(&part);
        failed(error)
    })
}

/// Writes runs as JSON: one run as an object, several as an array.
///
/// # Errors
/// Returns an error if writing failed.
pub fn json(runs: &[Run], to: &mut dyn Write) -> io::Result<()> {
    match runs {
        [run] => serde_json::to_writer(&mut *to, run)?,
        runs => serde_json::to_writer(&mut *to, runs)?,
    }
    writeln!(to)
}

/// Returns the provenance that all runs have in common; `None` if a run has none.
#[must_use]
pub fn provenance(runs: &[Run]) -> Option<Provenance> {
    let (first, rest) = runs.split_first()?;
    rest.iter().try_fold(first.provenance.clone()?, |common, run| {
        run.provenance.as_ref().map(|made| common.common(made))
    })
}

/// Reads the runs of a JSON file, or of every `*.json` file of a folder, in the order of their
/// names.
///
/// # Errors
/// Returns the file, and what is wrong with it.
pub fn read_runs(path: &Path) -> Result<Vec<Run>, FileError> {
    let mut files = vec![path.to_owned()];
    let read = |path: &Path, error| FileError::Read { path: path.to_owned(), error };
    if path.is_dir() {
        files = fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
            .map_err(|error| read(path, error))?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
    }
    let mut runs = Vec::new();
    for file in files {
        let text = fs::read(&file).map_err(|error| read(&file, error))?;
        let json = |error| FileError::Json { path: file.clone(), error };
        // The first byte decides, because an untagged enum would hide the position of a mistake.
        if text.trim_ascii_start().first() == Some(&b'[') {
            runs.append(&mut serde_json::from_slice(&text).map_err(json)?);
        } else {
            runs.push(serde_json::from_slice(&text).map_err(json)?);
        }
    }
    Ok(runs)
}

/// Returns the names of the parameters that occur in runs.
#[must_use]
pub fn parameter_names(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> =
        runs.iter().flat_map(|run| run.parameters.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}
