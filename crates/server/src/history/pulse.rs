//! Whether the database answers: asked now and then, so that readiness and metrics can tell without asking.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::History;
use crate::metrics::Metrics;

/// How long the first answer is waited for by who asks before it is there.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions. Whoever reads history meanwhile learns it at once.
const PERIOD: Duration = Duration::from_secs(15);

/// How long it took, or what was wrong.
pub(crate) type Answer = Result<Duration, String>;

/// Asks until it is dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    answer: watch::Receiver<Option<Answer>>,
    task: JoinHandle<()>,
}

impl Pulse {
    /// Must be called in a tokio runtime.
    pub(crate) fn start(history: Arc<dyn History>, metrics: Arc<Metrics>) -> Self {
        let (sender, answer) = watch::channel(None::<Answer>);
        let task = tokio::spawn(async move {
            loop {
                let found = history.ready().await.map_err(|error| error.to_string());
                metrics.database(found.as_ref().ok().copied());
                let known = sender.borrow().as_ref().map(Result::is_ok);
                match (&found, known) {
                    (Err(error), None | Some(true)) => {
                        tracing::warn!(error, "the database with the history does not answer");
                    }
                    (Ok(_), Some(false)) => tracing::info!("the database with the history answers again"),
                    (Err(_), Some(false)) | (Ok(_), None | Some(true)) => {}
                }
                sender.send_replace(Some(found));
                sleep(PERIOD).await;
            }
        });
        Self { answer, task }
    }

    /// What the database said when it was asked last; absent if it has not answered since the start, for which this waits a moment.
    pub(crate) async fn answer(&self) -> Option<Answer> {
        let mut answer = self.answer.clone();
        let first = timeout(FIRST_PATIENCE, answer.wait_for(Option::is_some)).await;
        first.ok()?.ok()?.clone()
    }

    /// What the database said when it was asked last; absent if all was well, or nobody has asked yet.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.answer.borrow().clone()?.err()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.task.abort();
    }
}
