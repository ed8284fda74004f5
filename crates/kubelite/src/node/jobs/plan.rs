//! What to do about one Job: a pure function of the Job, its pods, what is remembered of them, and the time.
//!
//! A plan is made again after every change, so it takes one step at a time: first the pods that ended are listed in the
//! status, then they lose their finalizer, then they are counted, and only then may the Job end. A crash between two steps
//! leaves a state from which the next plan goes on.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};

use super::{
    backoff::Ends,
    pods::{Phase, PodView, TRACKING_FINALIZER},
    policy::{Judgement, judge},
};

/// Keeps the list of uncounted pods in a status small, as Kubernetes does.
const UNCOUNTED_MAX: usize = 500;
/// How many pods one plan makes at most, so that one wide Job does not hold up the others.
const CREATED_MAX: i32 = 500;
/// `spec.managedBy` of Jobs that are not left to another controller.
const OWN_NAME: &str = "kubernetes.io/job-controller";

/// Something to do, in the namespace of the Job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    CreatePod(Box<Pod>),
    /// Marks a pod for deletion. `released` takes its finalizer first, so that its end does not count as a failure.
    DeletePod {
        pod: PodRef,
        released: bool,
    },
    WriteStatus(Box<JobStatus>),
    /// Takes the finalizer of a pod that is counted, or that nobody is going to count.
    ReleasePod(PodRef),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PodRef {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl PodRef {
    fn of(view: &PodView<'_>) -> Self {
        Self {
            name: view.pod.metadata.name.clone().unwrap_or_default(),
            uid: view.uid.to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobPlan {
    /// In the order in which they are to happen.
    pub(crate) effects: Vec<Effect>,
    /// When to plan again even if nothing changes.
    pub(crate) wake_at: Option<Timestamp>,
    /// What to remember of the pods for the next plan.
    pub(crate) ends: Ends,
}

/// How a Job ends, decided before it has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Ending {
    success: bool,
    reason: String,
    message: String,
}

impl Ending {
    fn failure(reason: &str, message: &str) -> Self {
        Self {
            success: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// The condition that says where the Job is heading, and the one that says that it has arrived.
    fn conditions(&self) -> (&'static str, &'static str) {
        if self.success {
            ("SuccessCriteriaMet", "Complete")
        } else {
            ("FailureTarget", "Failed")
        }
    }
}

/// Decides about a Job whose pods are these.
pub(crate) fn plan(job: &Job, pods: &[Pod], known: &Ends, now: Timestamp) -> JobPlan {
    let pods: Vec<PodView<'_>> = pods.iter().map(PodView::new).collect();
    let default = JobSpec::default();
    let spec = job.spec.as_ref().unwrap_or(&default);
    if spec.managed_by.as_deref().is_some_and(|name| name != OWN_NAME) {
        return JobPlan::default();
    }
    let finished = ["Complete", "Failed"]
        .iter()
        .any(|kind| find_true(job.status.as_ref(), kind).is_some());
    if finished {
        let late = pods.iter().filter(|pod| pod.tracked);
        return JobPlan {
            effects: late.map(|pod| Effect::ReleasePod(PodRef::of(pod))).collect(),
            ..JobPlan::default()
        };
    }
    let mut draft = Draft::new(job, spec, &pods, known, now);
    let ending = match draft.decided() {
        Some(ending) => {
            draft.stop_pods();
            Some(ending)
        }
        None => draft.go_on(),
    };
    draft.account(ending.as_ref());
    if let Some(ending) = &ending {
        draft.conclude(ending);
    }
    draft.into_plan()
}

/// A plan in the making.
struct Draft<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    pods: &'a [PodView<'a>],
    ends: Ends,
    now: Timestamp,
    /// Pods count as failed, and are replaced, only once they have ended.
    only_ended: bool,
    status: JobStatus,
    uncounted_succeeded: Vec<String>,
    uncounted_failed: Vec<String>,
    active: i32,
    ready: i32,
    terminating: i32,
    /// All that succeeded and failed, those among them that are not counted yet included.
    succeeded: i32,
    failed: i32,
    effects: Vec<Effect>,
    release: Vec<PodRef>,
    wake_at: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    fn new(job: &'a Job, spec: &'a JobSpec, pods: &'a [PodView<'a>], known: &Ends, now: Timestamp) -> Self {
        let only_ended =
            spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some();
        let mut status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
        let succeeded_uids = uncounted.succeeded.unwrap_or_default();
        let failed_uids = uncounted.failed.unwrap_or_default();
        let newly = |counts: &dyn Fn(&PodView<'_>) -> bool, listed: &[String]| {
            let fresh = pods.iter().filter(|pod| {
                pod.tracked && counts(pod) && !listed.iter().any(|uid| uid.as_str() == pod.uid)
            });
            number(fresh.count() + listed.len())
        };
        let succeeded = newly(&|pod| pod.phase == Phase::Succeeded, &succeeded_uids);
        let policy = spec.pod_failure_policy.as_ref();
        let failed = newly(
            &|pod| pod.is_failed(only_ended) && judge(policy, pod.pod) != Judgement::Ignore,
            &failed_uids,
        );
        // Times in a status are whole seconds, and what is compared with them must not run ahead of them.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let mut draft = Self {
            job,
            spec,
            pods,
            ends: known.with(pods, only_ended),
            now,
            only_ended,
            active: number(pods.iter().filter(|pod| pod.is_active()).count()),
            ready: number(
                pods.iter()
                    .filter(|pod| pod.is_active() && pod.is_ready())
                    .count(),
            ),
            terminating: number(pods.iter().filter(|pod| pod.is_terminating()).count()),
            succeeded: status.succeeded.unwrap_or_default().saturating_add(succeeded),
            failed: status.failed.unwrap_or_default().saturating_add(failed),
            status,
            uncounted_succeeded: succeeded_uids,
            uncounted_failed: failed_uids,
            effects: Vec::new(),
            release: Vec::new(),
            wake_at: None,
        };
        if draft.status.start_time.is_none() && !draft.suspended() {
            draft.status.start_time = Some(Time(now));
        }
        draft
    }

    fn suspended(&self) -> bool {
        self.spec.suspend.unwrap_or_default()
    }

    fn deleting(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    /// The end that is decided already, or that what happened demands.
    fn decided(&mut self) -> Option<Ending> {
        for (kind, success) in [("SuccessCriteriaMet", true), ("FailureTarget", false)] {
            if let Some(condition) = find_true(self.job.status.as_ref(), kind) {
                return Some(Ending {
                    success,
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                });
            }
        }
        if self.spec.completion_mode.as_deref() == Some("Indexed") && !self.suspended() {
            return Some(Ending::failure(
                "CompletionModeNotSupported",
                "this cluster runs Jobs with completionMode NonIndexed only",
            ));
        }
        let policy = self.spec.pod_failure_policy.as_ref();
        let failed = self.pods.iter().filter(|pod| pod.is_failed(self.only_ended));
        for pod in failed {
            if let Judgement::FailJob(message) = judge(policy, pod.pod) {
                return Some(Ending::failure("PodFailurePolicy", &message));
            }
        }
        if self.failed > self.spec.backoff_limit.unwrap_or_default() || self.restarted_too_often() {
            let message = "Job has reached the specified backoff limit";
            return Some(Ending::failure("BackoffLimitExceeded", message));
        }
        // A suspended Job has no deadline. Yet the time for which it was suspended counts when it is resumed late, because its
        // start is reset only after this has been asked: so does Kubernetes 1.35.
        if let Some(start) = &self.status.start_time
            && let Some(seconds) = self.spec.active_deadline_seconds
            && !self.suspended()
        {
            let deadline = start.0.saturating_add(SignedDuration::from_secs(seconds));
            let deadline = deadline.unwrap_or(Timestamp::MAX);
            if self.now >= deadline {
                let message = "Job was active longer than specified deadline";
                return Some(Ending::failure("DeadlineExceeded", message));
            }
            self.wake(deadline);
        }
        None
    }

    /// Pods that restart in place use up the limit as well.
    fn restarted_too_often(&self) -> bool {
        let template = self.spec.template.spec.as_ref();
        if template.and_then(|pod| pod.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let unfinished = self.pods.iter().filter(|pod| pod.phase == Phase::Unfinished);
        let restarts: i64 = unfinished.map(PodView::restarts).sum();
        match i64::from(self.spec.backoff_limit.unwrap_or_default()) {
            0 => restarts > 0,
            limit => restarts >= limit,
        }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The Job is over: what still runs is told to end.
    fn stop_pods(&mut self) {
        let active: Vec<&PodView<'_>> = self.pods.iter().filter(|pod| pod.is_active()).collect();
        self.delete(&active, false);
    }

    fn delete(&mut self, pods: &[&PodView<'_>], released: bool) {
        for pod in pods {
            self.active -= 1;
            self.terminating += 1;
            if pod.is_ready() {
                self.ready -= 1;
            }
            self.effects.push(Effect::DeletePod {
                pod: PodRef::of(pod),
                released,
            });
        }
    }

    /// Brings the number of pods to what is wanted; the Job succeeds when enough pods have.
    fn go_on(&mut self) -> Option<Ending> {
        let managed = !self.deleting();
        if managed {
            self.adjust_pods();
        }
        let enough = self.spec.completions.unwrap_or(1);
        if self.succeeded >= enough && self.active == 0 {
            return Some(Ending {
                success: true,
                reason: "CompletionsReached".to_owned(),
                message: "Reached expected number of succeeded pods".to_owned(),
            });
        }
        if managed {
            self.note_suspension();
        }
        None
    }

    fn adjust_pods(&mut self) {
        let wanted = if self.suspended() {
            0
        } else {
            let parallelism = self.spec.parallelism.unwrap_or(1);
            match self.spec.completions {
                Some(completions) => parallelism.min(completions.saturating_sub(self.succeeded)).max(0),
                // The first success ends such a Job, and the pods beside it may finish.
                None if self.succeeded > 0 => self.active,
                None => parallelism,
            }
        };
        let surplus = usize::try_from(self.active - wanted).unwrap_or_default();
        if surplus > 0 {
            let mut active: Vec<&PodView<'_>> = self.pods.iter().filter(|pod| pod.is_active()).collect();
            active.sort_by_key(|pod| pod.rank_to_keep());
            active.truncate(surplus);
            self.delete(&active, true);
            return;
        }
        let occupied = if self.only_ended { self.terminating } else { 0 };
        let missing = (wanted - occupied - self.active).min(CREATED_MAX);
        if missing <= 0 {
            return;
        }
        if let Some(start) = self.ends.next_start()
            && start > self.now
        {
            self.wake(start);
            return;
        }
        for _ in 0..missing {
            self.effects
                .push(Effect::CreatePod(Box::new(pod_of(self.job, self.spec))));
        }
        self.active += missing;
    }

    fn note_suspension(&mut self) {
        let suspended = self.suspended();
        let (status, reason, message) = if suspended {
            ("True", "JobSuspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Job resumed")
        };
        let now = self.now;
        let conditions = self.status.conditions.get_or_insert_default();
        let known = conditions
            .iter_mut()
            .find(|condition| condition.type_ == "Suspended");
        match known {
            Some(condition) if condition.status == status => return,
            Some(known) => *known = condition("Suspended", status, reason, message, now),
            None if suspended => {
                conditions.push(condition("Suspended", status, reason, message, now));
            }
            None => return,
        }
        if !suspended {
            self.status.start_time = Some(Time(now));
        }
    }

    /// Counts the pods that have lost their finalizer, and lists the ones that may lose it now.
    fn account(&mut self, ending: Option<&Ending>) {
        let tracked = |uid: &String| self.pods.iter().any(|pod| pod.tracked && pod.uid == uid);
        for (listed, counter) in [
            (&mut self.uncounted_succeeded, &mut self.status.succeeded),
            (&mut self.uncounted_failed, &mut self.status.failed),
        ] {
            let before = listed.len();
            listed.retain(tracked);
            let counted = number(before - listed.len());
            *counter = Some(counter.unwrap_or_default().saturating_add(counted));
        }
        let over = self.deleting() || ending.is_some();
        let failing = ending.is_some_and(|ending| !ending.success);
        for pod in self.pods.iter().filter(|pod| pod.tracked) {
            let failed = pod.is_failed(self.only_ended);
            if !(over || failed || pod.phase == Phase::Succeeded) {
                continue;
            }
            self.release.push(PodRef::of(pod));
            let listed = |uids: &[String]| uids.iter().any(|uid| uid.as_str() == pod.uid);
            if pod.phase == Phase::Succeeded && !listed(&self.uncounted_failed) {
                if !listed(&self.uncounted_succeeded) {
                    self.uncounted_succeeded.push(pod.uid.to_owned());
                }
            } else if (failed || failing)
                && !listed(&self.uncounted_failed)
                && judge(self.spec.pod_failure_policy.as_ref(), pod.pod) != Judgement::Ignore
            {
                self.uncounted_failed.push(pod.uid.to_owned());
            }
            if self.uncounted_succeeded.len() + self.uncounted_failed.len() >= UNCOUNTED_MAX {
                break;
            }
        }
    }

    /// Says how the Job is going to end, and then, once every pod has ended and is counted, that it has.
    fn conclude(&mut self, ending: &Ending) {
        let (target, terminal) = ending.conditions();
        let (reason, message) = (&ending.reason, &ending.message);
        let announced = find_true(Some(&self.status), target).is_some();
        let counted = self.uncounted_succeeded.is_empty() && self.uncounted_failed.is_empty();
        let conditions = self.status.conditions.get_or_insert_default();
        if !announced {
            conditions.push(condition(target, "True", reason, message, self.now));
        } else if counted && self.release.is_empty() && self.terminating == 0 && self.active == 0 {
            conditions.push(condition(terminal, "True", reason, message, self.now));
            if ending.success {
                self.status.completion_time = Some(Time(self.now));
            }
        }
    }

    fn into_plan(mut self) -> JobPlan {
        let some = |count: i32| (count != 0).then_some(count);
        let list = |uids: Vec<String>| if uids.is_empty() { None } else { Some(uids) };
        let mut status = self.status;
        status.active = some(self.active);
        status.ready = Some(self.ready);
        status.terminating = Some(self.terminating);
        status.succeeded = status.succeeded.and_then(some);
        status.failed = status.failed.and_then(some);
        status.conditions = status.conditions.filter(|conditions| !conditions.is_empty());
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: list(self.uncounted_succeeded),
            failed: list(self.uncounted_failed),
        });
        if self.job.status.as_ref() != Some(&status) {
            self.effects.push(Effect::WriteStatus(Box::new(status)));
        }
        let release = self.release.into_iter().map(Effect::ReleasePod);
        self.effects.extend(release);
        JobPlan {
            effects: self.effects,
            wake_at: self.wake_at,
            ends: self.ends,
        }
    }
}

/// Counts fit: a Job has far fewer pods than that.
fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn find_true<'s>(status: Option<&'s JobStatus>, kind: &str) -> Option<&'s JobCondition> {
    let conditions = status?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind && condition.status == "True")
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// A pod from the Job's template, which carries the Job's labels since the Job was created.
fn pod_of(job: &Job, spec: &JobSpec) -> Pod {
    let template = spec.template.metadata.clone().unwrap_or_default();
    let name = job.metadata.name.clone().unwrap_or_default();
    let mut finalizers = template.finalizers.unwrap_or_default();
    if !finalizers.iter().any(|name| name == TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.to_owned());
    }
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            labels: template.labels,
            annotations: template.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "Job".to_owned(),
                name,
                uid: job.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: spec.template.spec.clone(),
        status: None,
    }
}
