//! Results in files. A file is written beside its place and renamed, so what is there is whole, at
//! whatever moment the program ends or the disk is full.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Provenance, Run};

/// A file that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Writing failed.
    #[error("cannot write {}: {error}{}", path.display(), hint(error))]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what it should be.
    #[error("{}:{}:{}: not results of squall: {error}", path.display(), error.line(), error.column())]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where and what.
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

/// Writes a whole file, or leaves what was there. What is there and is no file (a device, a pipe) is
/// written to; it must not be replaced.
///
/// # Errors
/// The file and why it could not be written.
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
    // Of a link, what it leads to.
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
        // What is half written is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&part);
        failed(error)
    })
}

/// Writes runs as JSON: one run as an object, several as an array.
///
/// # Errors
/// Writing failed.
pub fn json(runs: &[Run], to: &mut dyn Write) -> io::Result<()> {
    match runs {
        [run] => serde_json::to_writer(&mut *to, run)?,
        runs => serde_json::to_writer(&mut *to, runs)?,
    }
    writeln!(to)
}

/// What all runs say of where they came from; `None` where one says nothing.
#[must_use]
pub fn provenance(runs: &[Run]) -> Option<Provenance> {
    let (first, rest) = runs.split_first()?;
    rest.iter().try_fold(first.provenance.clone()?, |common, run| {
        run.provenance.as_ref().map(|made| common.common(made))
    })
}

/// Reads the runs of a JSON file, or of every `*.json` file of a folder, in the order of their names.
///
/// # Errors
/// The file, and what is wrong with it.
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
        // Looked at by hand: an untagged enum would hide the position of a mistake.
        if text.trim_ascii_start().first() == Some(&b'[') {
            runs.append(&mut serde_json::from_slice(&text).map_err(json)?);
        } else {
            runs.push(serde_json::from_slice(&text).map_err(json)?);
        }
    }
    Ok(runs)
}

/// Names of the parameters that occur in runs.
#[must_use]
pub fn parameter_names(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> =
        runs.iter().flat_map(|run| run.parameters.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}
