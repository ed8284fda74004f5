//! What the server does on its own: it follows every change and brings definitions, namespaces and owned objects forward.
//!
//! One task and one order, so that the same writes always lead to the same consequences.

use std::sync::Arc;

use crate::server::Core;

/// Runs until the server stops.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        // The place in the history comes first, so that nothing falls between the look at everything and what follows.
        let mut follow = core.store.follow();
        visit_everything(&core).await;
        loop {
            let batch = tokio::select! {
                biased;
                () = core.stopping() => return,
                batch = follow.next() => batch,
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
