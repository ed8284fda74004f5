//! A Job that Kubernetes leaves to us (`spec.managedBy`): its one pod is made here, and what became of it is written into the
//! status of the Job, as the Job controller would have done.
//!
//! The pod has a name that follows from the Job and its UID, so that it is made once, however often that is tried. Our finalizer
//! holds it until the Job tells of it or has gone: neither an eviction nor the removal of a node takes away how it ended. Nobody waits for the status of the Job,
//! which is written when the Job is let go, or a while after the pod has begun if that lasts.

use std::sync::Arc;

use jangar_api::{labels, names::DnsLabel, phase::RunPhase, reason::Reason};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::ResourceExt;

use super::{
    Run, RunStatus, Seen,
    attempt::Attempt,
    jobs,
    leftovers::{self, Gone},
    start::FORBIDDEN_RETRY,
};
use crate::{
    decision::{Effect, HeldPod, PodSight, Question, Rejection, Settlement, Uid},
    job,
    waiting::{Gate, Waiting},
};

/// How much of the end of a Job's UID stands in the name of its pod, so that the pods of two Jobs that had one name, one after the
/// other, have two.
const UID_IN_NAME: usize = 8;

/// Whether Kubernetes leaves this Job to us. One whose API server does not know the field has not got it.
pub(crate) fn is_kept(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    spec.and_then(|spec| spec.managed_by.as_deref()) == Some(labels::JOB_CONTROLLER)
}

/// Whether something has to be written before a Job that has ended can be forgotten: that it is let go, or how it ended, if somebody
/// took our finalizer from it.
pub(super) fn is_open(job: &Job) -> bool {
    jobs::is_held(job) || is_untold(job)
}

/// Whether nobody has said yet how a Job of ours ended. One that is being deleted goes without that.
fn is_untold(job: &Job) -> bool {
    is_kept(job) && jobs::end(job).is_none() && !jobs::is_deleting(job)
}

/// What is to be done about a Job of ours that shows no pod.
pub(super) enum First {
    Make(Box<Pod>),
    /// Somebody wants it to wait, who says when it may go on.
    Suspended,
    /// There was one, and a cache does not show it.
    Unsure(Question),
    /// There was one, and it is gone.
    Lost,
    /// The API server does not let it in at the moment.
    Refused(Waiting),
    /// It never will.
    Rejected(Rejection),
}

pub(super) fn first_pod<R>(seen: &Seen<'_, R>, job: &Job, sight: &PodSight) -> First {
    let uid = jobs::uid(job);
    if jobs::had_a_pod(job) || seen.lost_pods.contains(&uid) {
        return match leftovers::pods_gone(&uid, sight) {
            Gone::Unsure(question) => First::Unsure(question),
            Gone::Yes | Gone::No => First::Lost,
        };
    }
    let spec = job.spec.as_ref();
    if spec.and_then(|spec| spec.suspend) == Some(true) {
        return First::Suspended;
    }
    let Some(refusal) = seen.refusal else {
        return First::Make(Box::new(pod_of(job)));
    };
    if refusal.may_pass() {
        return First::Refused(Waiting::at(Gate::Forbidden {
            what: "pod",
            words: refusal.message.clone(),
            retry: FORBIDDEN_RETRY,
        }));
    }
    let message = format!(
        "the API server refused the pod of Job {}: {}",
        job.name_any(),
        refusal.message
    );
    First::Rejected(Rejection::new(Reason::JobRejected, message))
}

/// The pod as the Job controller would make it, but for its name and our finalizer.
fn pod_of(job: &Job) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone());
    let template = template.unwrap_or_default();
    let said = template.metadata.unwrap_or_default();
    let mut owner = job::owned_by(job);
    owner.block_owner_deletion = Some(true);
    Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(job).into()),
            namespace: job.metadata.namespace.clone(),
            labels: said.labels,
            annotations: said.annotations,
            finalizers: Some(vec![labels::JOB_STATUS_FINALIZER.to_owned()]),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

fn pod_name(job: &Job) -> DnsLabel {
    let Uid(uid) = jobs::uid(job);
    let letters: Vec<char> = uid.chars().filter(char::is_ascii_alphanumeric).collect();
    let begin = letters.len().saturating_sub(UID_IN_NAME);
    let end: String = letters.into_iter().skip(begin).collect();
    DnsLabel::join(&job.name_any(), &end)
}

/// Says in the status of a Job that its pod is there, if it does not say so: whoever looks at the Job sees it, and what is gone later
/// is known to have been there.
pub(super) fn tell_active(job: &Job, sight: &PodSight) -> Option<Effect> {
    let pod = sight
        .pods()
        .first()
        .filter(|_| is_kept(job) && !jobs::had_a_pod(job))?;
    Some(Effect::TellJob {
        job: jobs::id(job),
        status: Box::new(JobStatus {
            active: Some(1),
            start_time: started(job, Some(pod)),
            ..JobStatus::default()
        }),
    })
}

/// Lets the pods of a Job go that is being deleted: they go when their node has stopped them. That there was one is told first, so
/// that nobody waits for it in vain.
pub(super) fn let_pods_go(job: &Job, sight: &PodSight) -> Vec<Effect> {
    let pods = held(sight);
    let Some(first) = sight.pods().first().filter(|_| is_kept(job) && !pods.is_empty()) else {
        return Vec::new();
    };
    let told = Effect::TellJob {
        job: jobs::id(job),
        status: Box::new(JobStatus {
            active: Some(0),
            terminating: i32::try_from(sight.pods().len()).ok(),
            start_time: started(job, Some(first)),
            ..JobStatus::default()
        }),
    };
    let told = (!jobs::had_a_pod(job)).then_some(told);
    told.into_iter().chain([Effect::ReleasePods(pods)]).collect()
}

/// What has to be written of a Job of ours before it is let go: how it ended, and that its pod may go. The error is what has to be
/// known first: that there is no pod is believed of a live list alone.
pub(super) fn settlement(
    job: &Job,
    sight: &PodSight,
    now: Timestamp,
) -> Result<Option<Box<Settlement>>, Question> {
    if !is_kept(job) {
        return Ok(None);
    }
    let pods = sight.pods();
    if pods.is_empty() && matches!(sight, PodSight::Cached(_)) {
        return Err(Question::PodsOf(jobs::uid(job)));
    }
    let ended = pods.iter().find(|pod| jobs::has_ended(pod)).map(Arc::as_ref);
    let over = ended.is_some() || pods.is_empty();
    let status = (over && is_untold(job)).then(|| end_status(job, ended, now));
    let pods = held(sight);
    Ok((status.is_some() || !pods.is_empty()).then(|| Box::new(Settlement { status, pods })))
}

/// How a Job ended whose pod has ended, or is gone, in the words of the Job controller as far as it has any.
fn end_status(job: &Job, pod: Option<&Pod>, now: Timestamp) -> JobStatus {
    let succeeded = pod.is_some_and(jobs::has_succeeded);
    let (conditions, reason, message) = match pod {
        Some(_) if succeeded => {
            let message = "Reached expected number of succeeded pods".to_owned();
            (["SuccessCriteriaMet", "Complete"], "CompletionsReached", message)
        }
        Some(pod) if jobs::was_disrupted(pod) => {
            let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            let message =
                format!("Pod {pod} has condition DisruptionTarget matching FailJob rule at index 0");
            (["FailureTarget", "Failed"], "PodFailurePolicy", message)
        }
        Some(_) => {
            let message = "Job has reached the specified backoff limit".to_owned();
            (["FailureTarget", "Failed"], "BackoffLimitExceeded", message)
        }
        None => {
            let message = "There is no pod of the Job".to_owned();
            (["FailureTarget", "Failed"], "PodGone", message)
        }
    };
    let start = started(job, pod);
    // Our clock may be behind the one that the start was taken from, and nothing ends before it begins.
    let time = whole_seconds(start.as_ref().map_or(now, |start| now.max(start.0)));
    let condition = |type_: &str| JobCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.clone()),
        last_probe_time: Some(time.clone()),
        last_transition_time: Some(time.clone()),
    };
    JobStatus {
        active: Some(0),
        ready: Some(0),
        terminating: Some(0),
        succeeded: succeeded.then_some(1),
        failed: (!succeeded).then_some(1),
        start_time: start,
        completion_time: succeeded.then(|| time.clone()),
        conditions: Some(conditions.map(condition).into()),
        ..JobStatus::default()
    }
}

/// When the work of a Job began, as it says itself, or as its pod was made, or as it was made. The API server lets nobody change it.
fn started(job: &Job, pod: Option<&Pod>) -> Option<Time> {
    let told = job.status.as_ref().and_then(|status| status.start_time.clone());
    let made = pod.and_then(|pod| pod.metadata.creation_timestamp.clone());
    told.or(made).or_else(|| job.metadata.creation_timestamp.clone())
}

fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The pods that our finalizer holds.
fn held(sight: &PodSight) -> Vec<HeldPod> {
    let held = sight
        .pods()
        .iter()
        .filter(|pod| labels::is_held(pod.finalizers()));
    held.map(|pod| HeldPod {
        pod: jobs::id(pod.as_ref()),
        finalizers: pod.finalizers().to_vec(),
    })
    .collect()
}

/// Lets pods go whose Job is gone.
pub(super) fn let_orphans_go(sight: &PodSight) -> Option<Effect> {
    let pods = held(sight);
    (!pods.is_empty()).then_some(Effect::ReleasePods(pods))
}

/// Lets pods go that are held although their Job is gone, or was let go before they were. Nobody but us does. The error is what has
/// to be known first.
pub(super) fn stragglers<R: Run>(seen: &Seen<'_, R>) -> Result<Vec<Effect>, Question> {
    let mut effects = Vec::new();
    for (uid, sight) in seen.pods {
        let Some(name) = sight
            .pods()
            .iter()
            .find(|pod| labels::is_held(pod.finalizers()))
            .and_then(|pod| job_name(pod))
        else {
            continue;
        };
        let job = seen.jobs.get(name).filter(|job| jobs::uid(job.as_ref()) == *uid);
        let gone = match job {
            Some(job) => !is_open(job),
            None if seen.live_jobs.contains(name) => true,
            None => return Err(Question::Job(name.clone())),
        };
        if gone && !is_unrecorded(seen, uid, job) {
            effects.extend(let_orphans_go(sight));
        }
    }
    Ok(effects)
}

/// Whether this Job does, or did, the attempt whose end the run has not recorded: its pod may be all that tells of it.
fn is_unrecorded<R: Run>(seen: &Seen<'_, R>, uid: &Uid, job: Option<&Arc<Job>>) -> bool {
    let Some(run) = seen.run.filter(|run| !jobs::is_deleting(*run)) else {
        return false;
    };
    let status = run.status();
    if status
        .and_then(RunStatus::phase)
        .is_some_and(RunPhase::is_terminal)
    {
        return false;
    }
    match Attempt::remembered(status.and_then(RunStatus::runtime_ref)).job {
        Some(recorded) => recorded.uid == *uid,
        // It is told of later. That it is the run's own is all that can be known of it.
        None => job.is_some_and(|job| jobs::owner_run::<R>(job, &seen.key.name) == Some(jobs::uid(run))),
    }
}

/// What a Job needs that whoever deleted its run wanted to go on without it: nobody else makes its pod, or says how it ended.
pub(super) fn orphan<R>(
    job: &Job,
    seen: &Seen<'_, R>,
    now: Timestamp,
) -> Result<(Option<Effect>, Option<Timestamp>), Question> {
    let sight = seen.pods_of(&jobs::uid(job));
    if is_untold(job) && sight.pods().is_empty() {
        match first_pod(seen, job, &sight) {
            First::Make(pod) => return Ok((Some(Effect::CreatePod(pod)), None)),
            First::Unsure(question) => return Err(question),
            First::Suspended => return Ok((None, None)),
            First::Refused(_) => return Ok((None, Some(leftovers::after(now, FORBIDDEN_RETRY)))),
            First::Lost | First::Rejected(_) => {}
        }
    }
    if is_kept(job) && !sight.pods().iter().all(|pod| jobs::has_ended(pod)) {
        return Ok((None, None));
    }
    let release = jobs::release(job, &sight, None, now)?;
    Ok((Some(release), None))
}

/// The name of the Job of a pod. The label tells it of a pod whose Job was deleted without it, and which has no owner any more.
fn job_name(pod: &Pod) -> Option<&String> {
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    owner
        .map(|owner| &owner.name)
        .or_else(|| pod.labels().get(labels::JOB_NAME))
}
