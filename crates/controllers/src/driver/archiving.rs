//! What goes into history and when, and what waits for it: the deletion of runs whose time has come, and, for a while, that of
//! runs which somebody deletes.

use std::{sync::Arc, time::Duration};

use jangar_api::{
    labels::{self, RUNTIME_CLEANUP_FINALIZER},
    reason::Reason,
};
use jangar_engine::{
    decision::{Effect, Key, Notice, Severity, Uid},
    retention::Ladder,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt;

use super::Context;
use crate::{
    archive::logs::Source,
    caches::{Cached, Caches, RunFacts, key_of, uid_of},
};

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

/// There is nothing left to do about a run for now: if it has ended, it is written, long before its time has come, and so are
/// the logs of those of its pods that have ended.
pub(super) fn settled<K: Cached>(context: &Context, run: &Arc<K>) {
    let (Some(archiver), Some(facts)) = (context.outside.archiver(), run.run_facts()) else {
        return;
    };
    if facts.ended {
        archiver.offer(run);
    }
    let (key, uid) = (key_of(run.meta()), uid_of(run.meta()));
    let kept_for = facts
        .logs_kept
        .unwrap_or_else(|| Ladder::of_settings(&context.settings).logs);
    let caches = context.world.caches();
    let sources: Vec<Source> = ended_pods(&caches, &key, &facts)
        .filter(|pod| !archiver.logs().knows(&uid_of(&pod.metadata)))
        .filter_map(|pod| source(&caches, &uid, pod, kept_for))
        .collect();
    drop(caches);
    for source in sources {
        archiver.logs().offer(&context.client, source);
    }
}

/// The pods that carry the label of a run and have ended.
fn ended_pods<'a>(
    caches: &'a Caches,
    run: &'a Key,
    facts: &'a RunFacts,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    let names = facts
        .pods
        .iter()
        .flat_map(move |term| caches.pods.naming(&run.namespace, term.clone()));
    let pods = names.filter_map(move |name| {
        caches.pods.get(&Key {
            namespace: run.namespace.clone(),
            name: name.clone(),
        })
    });
    pods.filter(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    })
}

/// Where the log of a pod belongs: to the step and the attempt of the Job that made it, if that Job is the run's own.
fn source(caches: &Caches, run: &Uid, pod: &Arc<Pod>, kept_for: Duration) -> Option<Source> {
    let pod_key = key_of(&pod.metadata);
    let owner = controller(pod.owner_references())?;
    let job = caches.jobs.get(&Key {
        namespace: pod_key.namespace.clone(),
        name: owner.name.clone(),
    })?;
    let is_own = controller(job.owner_references()).is_some_and(|owner| owner.uid == run.0);
    let container = pod.spec.as_ref()?.containers.first()?;
    let attempt = job.annotations().get(labels::ATTEMPT);
    is_own.then(|| Source {
        run: run.clone(),
        step: job.labels().get(labels::STEP).cloned().unwrap_or_default(),
        // What says nothing about it was tried once.
        attempt: attempt.and_then(|text| text.parse().ok()).unwrap_or(1),
        pod_uid: uid_of(&pod.metadata),
        pod: pod_key,
        container: container.name.clone(),
        kept_for,
    })
}

fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
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
