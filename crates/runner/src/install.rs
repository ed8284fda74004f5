//! `agent-runner install DIR`: puts this program where the container of the agent can start it.
//!
//! An init container does this with nothing else in its image: no shell, no `cp`, no `ln`.

use std::{
    env, fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process,
};

use crate::NAME;

/// Everybody may execute it: the agent's container may run as another user.
const MODE: u32 = 0o755;

/// How the program gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Copy,
    /// For containers that see the same file system: it costs nothing, however large the program is.
    Link,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error("{} is not a directory; mount the volume that both containers share there", .0.display())]
    NotADirectory(PathBuf),
    #[error("cannot find this program itself: {0}")]
    OwnPath(io::Error),
    #[error("cannot write {}: {source}; the volume must be writable for user {user} and have room", path.display())]
    Write {
        path: PathBuf,
        user: u32,
        source: io::Error,
    },
}

/// Puts this program into `directory` and returns where it is now. One that is there already is replaced in one step, so that
/// whoever starts it gets the old one or the new one, whole.
pub(crate) fn install(method: Method, directory: &Path) -> Result<PathBuf, InstallError> {
    if !directory.is_dir() {
        return Err(InstallError::NotADirectory(directory.to_owned()));
    }
    let program = own_file().map_err(InstallError::OwnPath)?;
    let target = directory.join(NAME);
    let half = directory.join(format!(".{NAME}.{}", process::id()));
    let written = match method {
        Method::Copy => copy(&program, &half),
        Method::Link => symlink(&program, &half),
    };
    written
        .and_then(|()| fs::rename(&half, &target))
        .map_err(|source| {
            // Whatever is left of it is of no use; that it cannot be removed changes nothing.
            let _ = fs::remove_file(&half);
            InstallError::Write {
                path: target.clone(),
                user: rustix::process::geteuid().as_raw(),
                source,
            }
        })?;
    Ok(target)
}

/// The file of this program, which may have been replaced since it was started.
fn own_file() -> io::Result<PathBuf> {
    let path = env::current_exe()?;
    fs::metadata(&path)?;
    Ok(path)
}

fn copy(program: &Path, half: &Path) -> io::Result<()> {
    fs::copy(program, half)?;
    fs::set_permissions(half, fs::Permissions::from_mode(MODE))?;
    fs::File::open(half)?.sync_all()
}
