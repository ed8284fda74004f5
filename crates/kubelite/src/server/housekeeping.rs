//! What the server does on its own: it follows every change and brings definitions, namespaces and owned objects forward.
//!
//! One task and one order, so that the same writes always lead to the same consequences.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::server::Core;

/// A step that failed, for want of disk space perhaps, is tried again after this long, together with everything else.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Runs until the server stops.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        // The place in the history comes first, so that nothing falls between the look at everything and what follows.
        let mut follow = core.store.follow();
        let mut failures = core.metrics.failures();
        visit_everything(&core).await;
        let mut retry_at = None;
        loop {
            if core.metrics.failures() > failures {
                failures = core.metrics.failures();
                retry_at.get_or_insert(Instant::now() + RETRY_AFTER);
            }
            let batch = tokio::select! {
                biased;
                () = core.stopping() => return,
                batch = follow.next() => batch,
                () = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => break,
            };
            // Changes were missed, so this place in the history is lost.
            let Ok(batch) = batch else { break };
            for event in &batch.events {
                core.visit_definition_of(event).await;
                core.visit_namespace_of(event).await;
                core.collect(event).await;
            }
        }
    }
}

async fn visit_everything(core: &Core) {
    core.visit_all_definitions().await;
    core.visit_all_namespaces().await;
    core.collect_everything().await;
}
