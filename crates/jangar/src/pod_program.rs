//! The program that pods are started with: `jangar-pod` if it lies beside this one and belongs to it, else this one.
//!
//! One file is enough for everything to work; the second makes each pod cheaper.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::process::Command;

const NAME: &str = "jangar-pod";
/// The argument by which it tells its build, and nothing else.
const BUILD_ARGUMENT: &str = "--build-of-jangar";
/// Of which build this program is.
const BUILD: &str = env!("JANGAR_BUILD");
/// How long it may take to say so: it does nothing else, so this only bounds a program that is not ours.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct PodProgram {
    /// Where pods see it.
    pub(crate) file: PathBuf,
    /// How to start it; `None` if it is this program.
    pub(crate) shim: Option<PathBuf>,
    /// Keeps what was looked at, even if the file is replaced by another.
    _open: Option<File>,
}

impl PodProgram {
    pub(crate) async fn find() -> Result<Self> {
        let own = std::env::current_exe().and_then(|path| path.canonicalize()).context(
            "failed to find the file of this program, which pods run as agent-runner: was it moved or replaced?",
        )?;
        match beside(&own.with_file_name(NAME)).await {
            Ok(found) => Ok(found),
            Err(reason) => {
                tracing::info!(%reason, "pods are started with jangar instead of the smaller {NAME}");
                Ok(Self {
                    file: own,
                    shim: None,
                    _open: None,
                })
            }
        }
    }
}

async fn beside(path: &Path) -> io::Result<PodProgram> {
    let file = path.canonicalize()?;
    let open = File::open(&file)?;
    let shim = if cfg!(target_os = "linux") {
        // A new process finds the open file under the same number before it becomes what is in it.
        PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
    } else {
        file.clone()
    };
    let answer = Command::new(&shim)
        .arg(BUILD_ARGUMENT)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let answer = tokio::time::timeout(ANSWER, answer).await??;
    if answer.stdout != BUILD.as_bytes() {
        let message = format!("{} is of another build: build both anew", file.display());
        return Err(io::Error::other(message));
    }
    Ok(PodProgram {
        file,
        shim: Some(shim),
        _open: Some(open),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// What `jangar-pod` is taken for if it is this script.
    async fn script(text: &str) -> io::Result<PodProgram> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        beside(&path).await
    }

    #[tokio::test]
    async fn only_a_program_of_the_same_build_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let missing = beside(&directory.path().join(NAME)).await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(script("no program").await.is_err());
        let other = Path::new("/bin/echo");
        let error = beside(other).await.unwrap_err();
        assert!(error.to_string().contains("another build"), "{error}");
    }
}
