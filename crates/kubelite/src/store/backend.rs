//! What a place to keep objects has to do. The store does the rest.

use std::path::PathBuf;

use bytes::Bytes;

use super::{Collection, Event, Key};

/// Where committed objects are kept.
pub(super) trait Backend: Send {
    /// Hands every stored object to `visit`, in the order of collections and keys, and returns the newest revision.
    fn load(&mut self, visit: &mut dyn FnMut(Stored) -> Result<(), Damage>) -> Result<u64, OpenError>;

    /// Makes all of these events durable or none. After an error the backend is ready for the next attempt.
    fn commit(&mut self, events: &[Event]) -> Result<(), BackendError>;
}

/// An object as it comes from a backend, its checksum already verified.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) collection: Collection,
    pub(super) key: Key,
    pub(super) json: Bytes,
}

/// What is wrong with what was read.
#[derive(Debug)]
pub(super) struct Damage(pub(super) String);

/// A sentence that says why a transaction failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BackendError(pub(super) String);

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is in use by another process: stop that process, or use another directory", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} is damaged: {what}. Nothing was started. Restore the file from a copy, or start with a new, empty directory",
        path.display()
    )]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{} has format {found}, and this program reads format {supported}: use the program that wrote it, or a new directory",
        path.display()
    )]
    Format {
        path: PathBuf,
        found: u32,
        supported: u32,
    },
    #[error("{} cannot be opened: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}
