//! Whether the database answers: asked now and then, so that readiness and metrics can tell without asking.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinHandle, time::sleep};

use super::History;
use crate::metrics::Metrics;

/// Between two questions. Whoever reads history meanwhile learns it at once.
const PERIOD: Duration = Duration::from_secs(15);

/// Asks until it is dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    trouble: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Pulse {
    /// Must be called in a tokio runtime.
    pub(crate) fn start(history: Arc<dyn History>, metrics: Arc<Metrics>) -> Self {
        let (sender, trouble) = watch::channel(None);
        let task = tokio::spawn(async move {
            loop {
                let found = history.ready().await.err().map(|error| error.to_string());
                metrics.database(found.is_none());
                sender.send_if_modified(|known| {
                    let news = known.is_some() != found.is_some();
                    if news {
                        match &found {
                            Some(error) => {
                                tracing::warn!(error, "the database with the history does not answer");
                            }
                            None => tracing::info!("the database with the history answers again"),
                        }
                    }
                    *known = found;
                    news
                });
                sleep(PERIOD).await;
            }
        });
        Self { trouble, task }
    }

    /// What the database said when it was asked last; absent if all was well, or nobody has asked yet.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.task.abort();
    }
}
