//! What goes into history and when, and what waits for it: the deletion of runs whose time has come, and, for a while, that of
//! runs which somebody deletes.
//!
//! Kubernetes asks nobody before it removes an object without a finalizer. So a run that has ended, and is not written because history
//! has answered nothing for some seconds or is known to be away, gets one: a write that is made only while history is away. It is taken back when the
//! run is written, when somebody's deletion has waited for long enough, or when there is no history any more.

use std::{sync::Arc, time::Duration};

use jangar_api::{
    labels::{self, ARCHIVE_FINALIZER, RUNTIME_CLEANUP_FINALIZER},
    names::label_value,
    reason::Reason,
};
use jangar_engine::{
    decision::{Effect, Key, Notice, ObjectId, Severity},
    retention::Ladder,
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt;

use super::Context;
use crate::{
    archive::{Archiver, logs::Source},
    caches::{Cache, Cached, Caches, RunFacts, Term, key_of, uid_of},
};

/// When a run is looked at again whose time has come and that is not written yet. Nobody waits for it.
const RETENTION_RETRY: Duration = Duration::from_secs(30);
/// How long somebody's deletion waits for history at most.
const DELETION_PATIENCE: Duration = Duration::from_mins(1);
/// When such a run is looked at again. Somebody watches it.
const DELETION_RETRY: Duration = Duration::from_secs(1);
/// How long history may answer nothing before a run is held that is not written. It usually takes less than one.
const HOLD_AFTER: Duration = Duration::from_secs(5);
/// When a run that is held is looked at again, to let it go when it is written.
const HELD_RETRY: Duration = Duration::from_mins(1);

/// Whether an effect may be carried out.
pub(super) enum Leave {
    Granted,
    /// It has waited for long enough: this is to be told.
    GrantedUnwritten(Box<Notice>),
    /// Not before this time is over.
    Later(Duration),
}

/// What is to be done about the finalizer with which a run waits for history.
pub(super) enum Hold {
    /// Nothing, but to look again after this time.
    AsItIs(Option<Duration>),
    Set(Effect),
    /// It has waited for long enough: this is to be told.
    GivenUp(Effect, Box<Notice>),
}

/// There is nothing left to do about a run for now: if it has ended, it is written, long before its time has come, and so are
/// the logs of those of its pods that have ended.
pub(super) fn settled<K: Cached>(context: &Context, run: &Arc<K>) -> Hold {
    let Some(facts) = run.run_facts() else {
        return Hold::AsItIs(None);
    };
    let Some(archiver) = context.outside.archiver() else {
        // Without a history nothing waits.
        return released(run.as_ref()).map_or(Hold::AsItIs(None), Hold::Set);
    };
    if facts.ended {
        archiver.offer(run);
    }
    keep_logs(context, archiver, run, &facts);
    if facts.ended {
        hold(context, archiver, run)
    } else {
        Hold::AsItIs(None)
    }
}

fn hold<K: Cached>(context: &Context, archiver: &Arc<Archiver>, run: &Arc<K>) -> Hold {
    let uid = uid_of(run.meta());
    let release = released(run.as_ref());
    if archiver.is_done_with(&uid) {
        return release.map_or(Hold::AsItIs(None), Hold::Set);
    }
    let deleted = run.meta().deletion_timestamp.is_some();
    match (release, deleted) {
        (Some(release), true) => match patience(context, archiver, run.as_ref()) {
            Some(wait) => Hold::AsItIs(Some(wait)),
            None => {
                let notice = given_up(archiver, run);
                Hold::GivenUp(release, Box::new(notice))
            }
        },
        (Some(_), false) => Hold::AsItIs(Some(HELD_RETRY)),
        // It goes as soon as others let it, and is written from memory.
        (None, true) => Hold::AsItIs(None),
        (None, false) => {
            let left = HOLD_AFTER.saturating_sub(archiver.waits(&uid).unwrap_or_default());
            if left.is_zero() || archiver.trouble().is_some() {
                let others = run.meta().finalizers.iter().flatten().cloned();
                let all = others.chain([ARCHIVE_FINALIZER.to_owned()]).collect();
                Hold::Set(finalizers(run.as_ref(), all))
            } else {
                Hold::AsItIs(Some(left))
            }
        }
    }
}

/// Takes the finalizer from a run with which it waits for history, if it has it.
pub(super) fn released<K: Cached>(run: &K) -> Option<Effect> {
    let all = run.meta().finalizers.iter().flatten();
    let others: Vec<String> = all.filter(|name| *name != ARCHIVE_FINALIZER).cloned().collect();
    let held = others.len() < run.meta().finalizers.as_ref().map_or(0, Vec::len);
    held.then(|| finalizers(run, others))
}

fn finalizers<K: Cached>(run: &K, finalizers: Vec<String>) -> Effect {
    let metadata = run.meta();
    Effect::SetFinalizers {
        run: ObjectId {
            name: metadata.name.clone().unwrap_or_default(),
            uid: uid_of(metadata),
        },
        version: metadata.resource_version.clone().unwrap_or_default(),
        finalizers,
    }
}

/// How long somebody's deletion still waits at once; nothing if it has waited for long enough.
fn patience<K: Cached>(context: &Context, archiver: &Archiver, run: &K) -> Option<Duration> {
    let deleted = run.meta().deletion_timestamp.as_ref()?;
    let since = Duration::try_from(context.clock.now().duration_since(deleted.0)).unwrap_or_default();
    // A clock that is behind makes it wait no longer than from when we first saw it.
    let waited = since.max(archiver.leaves(&uid_of(run.meta())));
    let left = DELETION_PATIENCE
        .checked_sub(waited)
        .filter(|left| !left.is_zero())?;
    Some(DELETION_RETRY.min(left))
}

fn given_up<K: Cached>(archiver: &Arc<Archiver>, run: &Arc<K>) -> Notice {
    let why = archiver
        .trouble()
        .unwrap_or_else(|| "it was not answered in time".to_owned());
    archiver.given_up(run);
    Notice {
        regarding: uid_of(run.meta()),
        severity: Severity::Warning,
        reason: Reason::NotArchived,
        message: format!(
            "the run was deleted before it was written into history, after {} s of waiting: {why}",
            DELETION_PATIENCE.as_secs()
        ),
    }
}

fn keep_logs<K: Cached>(context: &Context, archiver: &Archiver, run: &Arc<K>, facts: &RunFacts) {
    let key = key_of(run.meta());
    let kept_for = facts
        .logs_kept
        .unwrap_or_else(|| Ladder::of_settings(&context.settings).logs);
    let caches = context.world.caches();
    let sources: Vec<Source> = ended_pods(&caches, &key, facts)
        .filter(|pod| !archiver.logs().knows(&uid_of(&pod.metadata)))
        .filter_map(|pod| source(&caches, run.as_ref(), pod, kept_for))
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
fn source<K: Cached>(caches: &Caches, run: &K, pod: &Arc<Pod>, kept_for: Duration) -> Option<Source> {
    let uid = uid_of(run.meta());
    let pod_key = key_of(&pod.metadata);
    let owner = controller(pod.owner_references())?;
    let job = caches.jobs.get(&Key {
        namespace: pod_key.namespace.clone(),
        name: owner.name.clone(),
    })?;
    let is_own = controller(job.owner_references()).is_some_and(|owner| owner.uid == uid.0);
    let container = pod.spec.as_ref()?.containers.first()?;
    let attempt = job.annotations().get(labels::ATTEMPT);
    is_own.then(|| Source {
        run: uid,
        step: step(run, job),
        // What says nothing about it was tried once.
        attempt: attempt.and_then(|text| text.parse().ok()).unwrap_or(1),
        pod_uid: uid_of(&pod.metadata),
        pod: pod_key,
        container: container.name.clone(),
        kept_for,
    })
}

/// The name of the step that a Job executes, as people write it and ask for it. Its label is that in other letters, which two steps
/// can have in common; it counts where the spec does not have the step any more.
fn step<K: Cached>(run: &K, job: &Job) -> String {
    let Some(label) = job.labels().get(labels::STEP) else {
        return String::new();
    };
    let number = job.labels().get(labels::STEP_INDEX);
    let name = number
        .and_then(|number| run.step_name(number.parse().ok()?))
        .filter(|name| label_value(name) == *label);
    name.unwrap_or(label).to_owned()
}

fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// Whether this effect lets a run go that is not written yet.
pub(super) fn leave<K: Cached>(context: &Context, run: Option<&Arc<K>>, effect: &Effect) -> Leave {
    let (Some(archiver), Some(run)) = (context.outside.archiver(), run) else {
        return Leave::Granted;
    };
    let uid = uid_of(run.meta());
    match effect {
        Effect::DeleteRun { .. } => {
            if let Some(why) = archiver.refusal(&uid) {
                return Leave::GrantedUnwritten(Box::new(Notice {
                    regarding: uid,
                    severity: Severity::Warning,
                    reason: Reason::NotArchived,
                    message: format!(
                        "the run goes, and is not written into history, which refuses it: {why}"
                    ),
                }));
            }
            let children = unwritten_children(context, archiver, &key_of(run.meta()));
            if archiver.has(run.as_ref()) && !children {
                return Leave::Granted;
            }
            archiver.offer(run);
            Leave::Later(RETENTION_RETRY)
        }
        Effect::SetFinalizers { finalizers, .. }
            if !finalizers
                .iter()
                .any(|name| name == RUNTIME_CLEANUP_FINALIZER || name == ARCHIVE_FINALIZER)
                && run.meta().deletion_timestamp.is_some()
                && !archiver.has(run.as_ref())
                && !archiver.is_done_with(&uid) =>
        {
            archiver.offer(run);
            match patience(context, archiver, run.as_ref()) {
                Some(wait) => Leave::Later(wait),
                None => Leave::GrantedUnwritten(Box::new(given_up(archiver, run))),
            }
        }
        _ => Leave::Granted,
    }
}

/// Whether a run made others for its steps that have ended and are not written: they go with it. Those are written soon.
fn unwritten_children(context: &Context, archiver: &Arc<Archiver>, run: &Key) -> bool {
    let caches = context.world.caches();
    let agents = unwritten(&caches.agent_runs, archiver, run);
    let tools = unwritten(&caches.tool_runs, archiver, run);
    let orchestrations = unwritten(&caches.orchestration_runs, archiver, run);
    agents || tools || orchestrations
}

fn unwritten<K: Cached>(cache: &Cache<K>, archiver: &Arc<Archiver>, parent: &Key) -> bool {
    let mut some = false;
    for name in cache.naming(&parent.namespace, Term::ChildOf(parent.name.clone())) {
        let key = Key {
            namespace: parent.namespace.clone(),
            name: name.clone(),
        };
        let Some(child) = cache.get(&key) else { continue };
        let ended = child.run_facts().is_some_and(|facts| facts.ended);
        if ended && !archiver.is_done_with(&uid_of(child.meta())) {
            archiver.offer(child);
            some = true;
        }
    }
    some
}

#[cfg(test)]
mod tests {
    use jangar_api::agents::agent_run::AgentRun;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_log_of_a_step_is_kept_under_the_name_that_people_wrote() {
        let run = json!({
            "metadata": {"name": "mend"},
            "spec": {
                "agentRef": {"name": "fixer"}, "runtime": {"type": "workflow"},
                "workflow": {"steps": [{"name": "Build"}, {"name": "build"}]},
            },
        });
        let run: AgentRun = serde_json::from_value(run).unwrap();
        let step_of = |labels: Value| {
            let job = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            step(&run, &job)
        };
        let labelled = |step: &str, index: &str| json!({labels::STEP: step, labels::STEP_INDEX: index});
        assert_eq!(step_of(labelled("build", "1")), "Build");
        assert_eq!(step_of(labelled("build", "2")), "build");
        assert_eq!(
            step_of(labelled("test", "2")),
            "test",
            "the step is another one by now"
        );
        assert_eq!(step_of(labelled("build", "3")), "build", "the step is gone");
        assert_eq!(step_of(json!({})), "", "the run has no steps");
    }
}
