//! Taking parts of the cluster away and bringing them back. Everybody on the bench feels it, so a test that does so has to be
//! alone there.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use tokio::{process::Command, time::Instant};

use super::{Bench, Failure, wait::LIMIT};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cluster/bench.sh");
/// Between two looks at an API server that starts, which tells nobody when it is ready.
const PAUSE: Duration = Duration::from_millis(50);

/// A part of the bench that can be missing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubelet,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        })
    }
}

/// Why the bench did not do as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("bench.sh cannot be started: {0}")]
    Start(#[from] io::Error),
    #[error("bench.sh {command} failed: {words}")]
    Failed { command: String, words: String },
    #[error("the API server was not ready within {seconds} s: {error}", seconds = LIMIT.as_secs())]
    NotReady { error: Box<kube::Error> },
}

impl Bench {
    /// Takes a part away for as long as something takes. It comes back whatever becomes of that, so that a test that fails does
    /// not fail all others.
    pub async fn without<T>(
        &self,
        part: Part,
        meanwhile: impl AsyncFnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.stop(part).await?;
        let outcome = AssertUnwindSafe(meanwhile()).catch_unwind().await;
        self.start(part).await?;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Ends a part, and returns when it has ended.
    async fn stop(&self, part: Part) -> Result<(), ScriptError> {
        script("stop", part.to_string().as_ref()).await
    }

    /// Starts a part. It takes a moment to be ready.
    async fn start(&self, part: Part) -> Result<(), ScriptError> {
        script("start", part.to_string().as_ref()).await
    }

    /// Waits until the API server answers that it is ready.
    pub async fn until_ready(&self, client: &Client) -> Result<(), ScriptError> {
        let end = Instant::now() + LIMIT;
        loop {
            let mut request = http::Request::new(Vec::new());
            *request.uri_mut() = http::Uri::from_static("/readyz");
            match client.request_text(request).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(ScriptError::NotReady {
                        error: Box::new(error),
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Runs `bench.sh` on the bench that this process is inside of.
pub(super) async fn script(command: &str, argument: &Path) -> Result<(), ScriptError> {
    let output = Command::new(SCRIPT).arg(command).arg(argument).output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(ScriptError::Failed {
        command: format!("{command} {}", argument.display()),
        words: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
