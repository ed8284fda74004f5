//! What a Job and its pods tell about themselves.

use std::sync::Arc;

use jangar_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::{Job, JobCondition},
    core::v1::{Pod, PodCondition},
};
use kube::{Resource, ResourceExt};

use super::{Run, Seen, kept};
use crate::{
    decision::{Effect, ObjectId, PodSight, Question, Uid},
    job::Place,
};

/// The finalizer by which Kubernetes shows that dependents go first.
const FOREGROUND_DELETION: &str = "foregroundDeletion";

/// The name and UID of an object that the API server made.
pub(crate) fn id(object: &impl Resource) -> ObjectId {
    ObjectId {
        name: object.name_any(),
        uid: uid(object),
    }
}

pub(crate) fn uid(object: &impl Resource) -> Uid {
    Uid(object.uid().unwrap_or_default())
}

pub(crate) fn is_deleting(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether the deletion of a Job waits for its pods, which Kubernetes then deletes by itself.
pub(crate) fn deletes_its_pods(job: &Job) -> bool {
    job.finalizers().iter().any(|name| name == FOREGROUND_DELETION)
}

/// Whether a Job is still held by our finalizer.
pub(crate) fn is_held(job: &Job) -> bool {
    labels::is_held(job.finalizers())
}

/// The UID of the run of this kind and name that controls a Job, if one does.
pub(crate) fn owner_run<R: Run>(job: &Job, run: &str) -> Option<Uid> {
    job.owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == R::kind(&()) && owner.name == run)
        .map(|owner| Uid(owner.uid.clone()))
}

/// The Jobs that belong to a run.
pub(crate) fn of_run<'a, R: Run>(
    seen: &Seen<'a, R>,
    run: &R,
) -> impl Iterator<Item = &'a Arc<Job>> + use<'a, R> {
    let uid = uid(run);
    let key = seen.key;
    seen.jobs
        .values()
        .filter(move |job| owner_run::<R>(job, &key.name).as_ref() == Some(&uid))
}

/// Which Job of its run it is, if it says so.
pub(crate) fn place(job: &Job) -> Option<Place> {
    let step = match job.labels().get(labels::STEP_INDEX) {
        Some(step) => step.parse().ok()?,
        None => 0,
    };
    let attempt = job.annotations().get(labels::ATTEMPT)?.parse().ok()?;
    Some(Place { step, attempt })
}

/// Whether nobody controls a Job, as after a deletion that orphans.
pub(crate) fn is_orphan(job: &Job) -> bool {
    !job.owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true))
}

/// Whether the Job controller has ever counted a pod of it.
pub(crate) fn had_a_pod(job: &Job) -> bool {
    let Some(status) = &job.status else { return false };
    [status.active, status.failed, status.succeeded, status.terminating]
        .iter()
        .any(|count| count.is_some_and(|count| count > 0))
}

/// Lets a Job go: takes our finalizer away, and says how long it is kept. Of one that we look after it says first how it ended; the
/// error is what has to be known for that.
pub(crate) fn release(
    job: &Job,
    pods: &PodSight,
    ttl_seconds_after_finished: Option<u32>,
    now: Timestamp,
) -> Result<Effect, Question> {
    Ok(Effect::ReleaseJob {
        job: id(job),
        finalizers: job.finalizers().to_vec(),
        ttl_seconds_after_finished,
        kept: kept::settlement(job, pods, now)?,
    })
}

/// How a Job ended, by its own conditions. Counters prove nothing: they are ahead of the pods.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobEnd<'a> {
    Complete(&'a JobCondition),
    Failed(&'a JobCondition),
}

pub(crate) fn end(job: &Job) -> Option<JobEnd<'_>> {
    condition(job, "Complete")
        .map(JobEnd::Complete)
        .or_else(|| condition(job, "Failed").map(JobEnd::Failed))
}

/// A condition of a Job that holds.
fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    job.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// An annotation that holds a time.
pub(crate) fn time_in(job: &Job, annotation: &str) -> Option<Timestamp> {
    job.annotations().get(annotation)?.parse().ok()
}

pub(crate) fn created_at(object: &impl Resource) -> Option<Timestamp> {
    object.meta().creation_timestamp.as_ref().map(|time| time.0)
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Whether all containers of a pod have ended for good.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn has_succeeded(pod: &Pod) -> bool {
    phase(pod) == "Succeeded"
}

pub(crate) fn is_pending(pod: &Pod) -> bool {
    matches!(phase(pod), "" | "Pending")
}

/// A condition of a pod.
pub(crate) fn pod_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the node took the pod away.
pub(crate) fn was_disrupted(pod: &Pod) -> bool {
    pod_condition(pod, "DisruptionTarget").is_some_and(|condition| condition.status == "True")
}

/// Names of pods, for people.
pub(crate) fn names<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> String {
    let names: Vec<String> = pods.into_iter().map(ResourceExt::name_any).collect();
    names.join(", ")
}
