//! The data directory: belongs to one process at a time, and keeps what outlives it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use kubelite::kubeconfig;

/// Secrets and the token lie in it.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// A process number has at most 10 digits; whatever else the file holds is not ours.
const HOLDER_BYTES_MAX: u64 = 16;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("{} is not a directory: choose another place for the data with --data-dir", .0.display())]
    NotADirectory(PathBuf),
    #[error("cannot make the data directory {}: {source}; choose another place with --data-dir", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot write in the data directory {}: {source}; make it writable, or choose another one with --data-dir", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is in use by process {pid}: stop that process, or choose another directory with --data-dir", path.display())]
    InUse { path: PathBuf, pid: u32 },
    #[error("{} is in use by another process: stop that process, or choose another directory with --data-dir", path.display())]
    InUseBySomebody { path: PathBuf },
    #[error("cannot lock {}: {source}; choose a directory on a local disk with --data-dir", path.display())]
    Lock { path: PathBuf, source: io::Error },
}

/// A data directory that belongs to this process until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The lock counts, not the file or the number in it: what a dead process left is of no meaning.
    _lock: File,
}

impl Directory {
    /// Makes the directory if there is none, and takes it.
    pub(crate) fn claim(path: &Path) -> Result<Self, DirectoryError> {
        if path.exists() && !path.is_dir() {
            return Err(DirectoryError::NotADirectory(path.to_owned()));
        }
        let path = DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(path)
            .and_then(|()| path.canonicalize())
            .map_err(|source| DirectoryError::Make {
                path: path.to_owned(),
                source,
            })?;
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Its path, without links in it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The bearer token of this directory, made on first use and kept, so that clients outlive a restart.
    pub(crate) fn token(&self) -> Result<String, DirectoryError> {
        self.secret("token")
    }

    /// The key that the tokens of callbacks are signed with, made on first use and kept: runs outlive a restart.
    pub(crate) fn callback_key(&self) -> Result<String, DirectoryError> {
        self.secret("callback-key")
    }

    fn secret(&self, name: &str) -> Result<String, DirectoryError> {
        let path = self.path.join(name);
        if let Ok(kept) = fs::read_to_string(&path)
            && !kept.trim().is_empty()
        {
            return Ok(kept.trim().to_owned());
        }
        let secret = kubeconfig::new_token(&mut rand::rng());
        private(&path)
            .and_then(|mut file| {
                file.set_len(0)?;
                file.write_all(secret.as_bytes())?;
                file.sync_all()
            })
            .map_err(|source| DirectoryError::Write {
                path: self.path.clone(),
                source,
            })?;
        Ok(secret)
    }
}

fn lock(directory: &Path) -> Result<File, DirectoryError> {
    let failed = |source| DirectoryError::Write {
        path: directory.to_owned(),
        source,
    };
    let mut file = private(&directory.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| writeln!(file, "{}", std::process::id()))
                .map_err(failed)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(in_use(directory, file)),
        Err(TryLockError::Error(source)) => Err(DirectoryError::Lock {
            path: directory.to_owned(),
            source,
        }),
    }
}

/// Says who holds the directory. The number is missing for the moment between locking the file and writing to it.
fn in_use(directory: &Path, file: File) -> DirectoryError {
    let mut text = String::new();
    // A file that cannot be read says as much as an empty one.
    let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    let path = directory.to_owned();
    match text.trim().parse() {
        Ok(pid) => DirectoryError::InUse { path, pid },
        Err(_) => DirectoryError::InUseBySomebody { path },
    }
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_belongs_to_one_at_a_time_and_the_next_is_told_who_has_it() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("deep/er");
        let first = Directory::claim(&path).unwrap();
        let error = Directory::claim(&path).unwrap_err().to_string();
        let pid = std::process::id();
        assert!(
            error.contains(&format!("in use by process {pid}")) && error.contains("--data-dir"),
            "{error}"
        );
        drop(first);
        Directory::claim(&path).unwrap();
    }

    #[test]
    fn what_a_dead_process_left_does_not_matter() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("lock"), "4194304999999\n").unwrap();
        let directory = Directory::claim(base.path()).unwrap();
        let text = fs::read_to_string(directory.path().join("lock")).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_place_that_cannot_be_used_is_named_with_the_remedy() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, expected) in [
            (file.clone(), "file is not a directory"),
            (file.join("below"), "cannot make the data directory"),
        ] {
            let error = Directory::claim(&path).unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains("--data-dir"),
                "{error}"
            );
        }
    }

    #[test]
    fn nobody_else_can_read_what_is_kept_and_the_token_stays() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("data");
        let directory = Directory::claim(&path).unwrap();
        let token = directory.token().unwrap();
        assert_eq!(directory.token().unwrap(), token);
        for (path, mode) in [(path.clone(), 0o700), (path.join("token"), 0o600)] {
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{}", path.display());
        }
    }
}
