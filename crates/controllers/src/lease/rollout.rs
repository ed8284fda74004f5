//! Whether this process is a canary of a rollout, which Argo Rollouts says with a label and the pod finds in a file.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a canary leaves a free lease to others: three looks of theirs, so that the version that is known to work leads
/// as long as one of its pods is there. Where there is none any more, a canary that leads is better than nobody.
pub const CANARY_PATIENCE: Duration = Duration::from_secs(15);

/// What the file says of a canary. A pod without the label finds it empty.
const CANARY: &str = "canary";

/// The file with the role. The kubelet writes it anew when the label changes.
#[derive(Debug)]
pub(super) struct RoleFile {
    path: PathBuf,
    /// What the log was last told, so that it is told once.
    told: Option<String>,
}

impl RoleFile {
    pub(super) fn new(path: &str) -> Self {
        Self {
            path: PathBuf::from(path),
            told: None,
        }
    }

    /// Whether this process is a canary now. A file that cannot be read makes it one: to wait too long costs seconds, and a
    /// canary that leads too early works with a version that nobody has promoted.
    pub(super) async fn is_canary(&mut self) -> bool {
        match read(&self.path).await {
            Ok(role) => {
                if self.told.as_ref() != Some(&role) {
                    tracing::info!(role, "the role in the rollout");
                }
                let canary = role == CANARY;
                self.told = Some(role);
                canary
            }
            Err(error) => {
                let error = error.to_string();
                if self.told.as_ref() != Some(&error) {
                    tracing::warn!(
                        file = %self.path.display(),
                        error,
                        "the role in the rollout cannot be read: waiting for the lease as a canary does"
                    );
                }
                self.told = Some(error);
                true
            }
        }
    }
}

/// Whether the file says that this process is a canary. One that cannot be read counts as one here as well: whoever waits for the lease
/// as a canary does has to plan as one, too.
pub(crate) async fn says_canary(path: &str) -> bool {
    match read(Path::new(path)).await {
        Ok(role) => role == CANARY,
        Err(_) => true,
    }
}

async fn read(path: &Path) -> io::Result<String> {
    let role = tokio::fs::read_to_string(path).await?;
    Ok(role.trim().to_owned())
}
