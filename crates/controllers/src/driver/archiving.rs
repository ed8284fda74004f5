//! What waits for history: the deletion of runs whose time has come, and, for a while, that of runs which somebody deletes.

use std::{sync::Arc, time::Duration};

use jangar_api::{labels::RUNTIME_CLEANUP_FINALIZER, reason::Reason};
use jangar_engine::decision::{Effect, Notice, Severity};

use super::Context;
use crate::caches::{Cached, uid_of};

/// When a run is looked at again whose time has come and that is not written yet. Nobody waits for it.
const RETENTION_RETRY: Duration = Duration::from_secs(30);
/// How long somebody's deletion waits for history at most.
const DELETION_PATIENCE: Duration = Duration::from_mins(1);
/// When such a run is looked at again. Somebody watches it.
const DELETION_RETRY: Duration = Duration::from_secs(1);

/// Whether an effect may be carried out.
pub(super) enum Leave {
    Granted,
    /// It has waited for long enough: this is to be told.
    GrantedUnwritten(Box<Notice>),
    /// Not before this time is over.
    Later(Duration),
}

/// There is nothing left to do about a run that has ended: it is written now, and long before its time has come.
pub(super) fn settled<K: Cached>(context: &Context, run: &Arc<K>) {
    if let Some(archiver) = context.outside.archiver()
        && run.has_ended()
    {
        archiver.offer(run);
    }
}

/// Whether this effect lets a run go that is not written yet.
pub(super) fn leave<K: Cached>(context: &Context, run: Option<&Arc<K>>, effect: &Effect) -> Leave {
    let (Some(archiver), Some(run)) = (context.outside.archiver(), run) else {
        return Leave::Granted;
    };
    match effect {
        Effect::DeleteRun { .. } if !archiver.has(run.as_ref()) => {
            archiver.offer(run);
            Leave::Later(RETENTION_RETRY)
        }
        Effect::SetFinalizers { finalizers, .. }
            if !finalizers.iter().any(|name| name == RUNTIME_CLEANUP_FINALIZER)
                && !archiver.has(run.as_ref()) =>
        {
            let Some(deleted) = &run.meta().deletion_timestamp else {
                return Leave::Granted;
            };
            // A clock that is behind makes it wait no longer than from now.
            let waited =
                Duration::try_from(context.clock.now().duration_since(deleted.0)).unwrap_or_default();
            if waited < DELETION_PATIENCE {
                archiver.offer(run);
                return Leave::Later(DELETION_RETRY.min(DELETION_PATIENCE.saturating_sub(waited)));
            }
            let why = archiver
                .trouble()
                .unwrap_or_else(|| "it was not answered in time".to_owned());
            archiver.given_up(run.as_ref());
            Leave::GrantedUnwritten(Box::new(Notice {
                regarding: uid_of(run.meta()),
                severity: Severity::Warning,
                reason: Reason::NotArchived,
                message: format!(
                    "the run was deleted before it was written into history, after {} s of waiting: {why}",
                    DELETION_PATIENCE.as_secs()
                ),
            }))
        }
        _ => Leave::Granted,
    }
}
