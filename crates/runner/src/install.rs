//! `agent-runner install DIR`: copies this program to where the container of the agent can start it.
//!
//! An init container does this with nothing else in its image: no shell, no `cp`.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
};

const NAME: &str = "agent-runner";

/// Everybody may execute it: the agent's container may run as another user.
const MODE: u32 = 0o755;

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

/// Copies this program into `directory` and returns where it is now. A copy that is there already is replaced in one step,
/// so that whoever starts it gets the old one or the new one, whole.
pub(crate) fn install(directory: &Path) -> Result<PathBuf, InstallError> {
    if !directory.is_dir() {
        return Err(InstallError::NotADirectory(directory.to_owned()));
    }
    let program = env::current_exe().map_err(InstallError::OwnPath)?;
    let target = directory.join(NAME);
    let half = directory.join(format!(".{NAME}.{}", process::id()));
    copy(&program, &half, &target).map_err(|source| {
        // Whatever is left of the copy is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&half);
        InstallError::Write {
            path: target.clone(),
            user: rustix::process::geteuid().as_raw(),
            source,
        }
    })?;
    Ok(target)
}

fn copy(program: &Path, half: &Path, target: &Path) -> io::Result<()> {
    fs::copy(program, half)?;
    fs::set_permissions(half, fs::Permissions::from_mode(MODE))?;
    fs::File::open(half)?.sync_all()?;
    fs::rename(half, target)
}
