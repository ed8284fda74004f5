//! The Job controller: follows Jobs and their pods, plans, and does what the plan says.
//!
//! It works as the one in Kubernetes 1.35 does, with two differences. Indexed Jobs fail at once with a condition that says
//! so. Pods belong to a Job by their owner reference alone: it does not adopt pods that merely match its selector.

mod backoff;
mod plan;
mod pods;
mod policy;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use serde::Deserialize;
use serde_json::Value;

use self::{
    backoff::Ends,
    plan::{Effect, PodRef, plan},
    pods::TRACKING_FINALIZER,
};
use super::{AT_ONCE, collection, timers::Timers, warnings};
use crate::{
    builtin::{Builtin, Endpoint},
    defects::Defect,
    error::{ApiError, Reason},
    server::{Client, Expected},
    store::{Collection, Event, EventKind, Key, Object},
};

/// The wait after a failed write; each further one doubles it.
const RETRY_DELAY: SignedDuration = SignedDuration::from_secs(1);
const RETRY_DELAY_MAX: SignedDuration = SignedDuration::from_mins(1);
/// How long a pod that has begun to run waits to be counted as ready. Nothing depends on that number, and it costs a write of
/// the Job, so a pod that ends meanwhile is counted only once.
const READY_DELAY: SignedDuration = SignedDuration::from_secs(2);

#[derive(Debug)]
pub(super) struct Jobs {
    client: Client,
    collection: Collection,
    pods: Collection,
    /// How long a change of a pod waits for others before the Job is looked at.
    delay: SignedDuration,
    timers: Timers<Key>,
    memories: BTreeMap<Key, Memory>,
    /// Pods with the finalizer and without a Job that would take it.
    strays: Timers<Key>,
}

/// What is remembered of one Job between two plans.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// Another Job of the same name starts afresh.
    uid: String,
    ends: Ends,
    /// How many times in a row its plan could not be carried out.
    failures: u32,
}

/// Who controls a pod.
enum Owner {
    Job(Key),
    /// Something that is not a Job, and whose business the finalizer is.
    Other,
    /// No one, or a Job that is gone.
    Nobody,
}

/// What a change of a pod means to its Job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Concern {
    /// The pod waits as before: it was given a node, or told why it has none.
    Nothing,
    /// The pod has begun to run: at most the number of ready pods is another.
    Readiness,
    /// Anything else.
    Course,
}

/// The part of a pod that tells how far it has come; everything else is skipped unread.
#[derive(Deserialize)]
struct Progress {
    status: ProgressStatus,
}

#[derive(Deserialize)]
struct ProgressStatus {
    phase: String,
}

impl Concern {
    fn of(event: &Event) -> Self {
        let Some(previous) = event
            .previous
            .as_ref()
            .filter(|_| event.kind == EventKind::Modified)
        else {
            return Self::Course;
        };
        let (old, new) = (&previous.meta, &event.object.meta);
        if old.deleting != new.deleting || old.finalizers != new.finalizers || old.owners != new.owners {
            return Self::Course;
        }
        let phase = |pod: &Object| serde_json::from_slice::<Progress>(&pod.json).map(|pod| pod.status.phase);
        match (phase(previous).as_deref(), phase(&event.object).as_deref()) {
            (Ok("Pending"), Ok("Pending")) => Self::Nothing,
            (Ok("Pending"), Ok("Running")) => Self::Readiness,
            _ => Self::Course,
        }
    }
}

/// What came of looking at one Job.
struct Visit {
    key: Key,
    memory: Option<Memory>,
    wake_at: Option<Timestamp>,
}

impl Jobs {
    pub(super) fn new(client: Client, delay: Duration) -> Self {
        Self {
            client,
            collection: collection(Builtin::Job),
            pods: collection(Builtin::Pod),
            delay: SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX),
            timers: Timers::default(),
            memories: BTreeMap::new(),
            strays: Timers::default(),
        }
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        [self.timers.next(), self.strays.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Makes due what a change concerns.
    pub(super) fn note(&mut self, event: &Event) {
        if event.collection == self.collection {
            match event.kind {
                EventKind::Added | EventKind::Modified => {
                    self.timers.add(event.key.clone(), self.client.now());
                }
                EventKind::Deleted => self.note_gone(&event.key, &event.object),
            }
        } else if event.collection == self.pods {
            let delay = match Concern::of(event) {
                Concern::Nothing => return,
                Concern::Readiness => self.delay.max(READY_DELAY),
                Concern::Course => self.delay,
            };
            let stays = event.kind != EventKind::Deleted;
            self.note_pod(&event.key, &event.object, stays, delay);
            if let Some(previous) = &event.previous {
                self.note_pod(&event.key, previous, false, delay);
            }
        }
    }

    /// Makes everything due.
    pub(super) fn note_everything(&mut self) {
        let now = self.client.now();
        // Those among them that are gone by now are forgotten when they are visited.
        for key in self.memories.keys() {
            self.timers.add(key.clone(), now);
        }
        let Ok(snapshot) = self.client.store().snapshot(&self.collection, None) else {
            return;
        };
        for (key, _) in snapshot.iter(None, None) {
            self.timers.add(key.clone(), now);
        }
        let Ok(snapshot) = self.client.store().snapshot(&self.pods, None) else {
            return;
        };
        for (key, object) in snapshot.iter(None, None) {
            self.note_pod(key, object, true, self.delay);
        }
    }

    fn note_gone(&mut self, key: &Key, job: &Object) {
        self.timers.remove(key);
        self.memories.remove(key);
        for (collection, pod, object) in self.client.store().dependents(&job.meta.uid) {
            if collection == self.pods {
                self.note_pod(&pod, &object, true, self.delay);
            }
        }
    }

    fn note_pod(&mut self, key: &Key, pod: &Object, stays: bool, delay: SignedDuration) {
        match self.owner_of(key, pod) {
            Owner::Job(job) => {
                let at = self.client.now().saturating_add(delay);
                self.timers.add(job, at.unwrap_or(Timestamp::MAX));
            }
            Owner::Nobody if stays && tracked(pod) => self.strays.add(key.clone(), self.client.now()),
            Owner::Nobody | Owner::Other => {}
        }
    }

    /// Who controls a pod. A Job of another namespace cannot, whatever the reference says.
    fn owner_of(&self, key: &Key, pod: &Object) -> Owner {
        let Some(owner) = pod.meta.owners.iter().find(|owner| owner.controller) else {
            return Owner::Nobody;
        };
        if owner.kind != "Job" || owner.api_version != "batch/v1" {
            return Owner::Other;
        }
        match self.client.store().find_uid(&owner.uid) {
            Some((collection, job, _)) if collection == self.collection && job.namespace == key.namespace => {
                Owner::Job(job)
            }
            _ => Owner::Nobody,
        }
    }

    /// Looks at Jobs that are due; those that are too many for one turn stay due.
    pub(super) async fn act(&mut self) {
        let now = self.client.now();
        self.release_strays(now).await;
        let due = self.timers.take_due(now, AT_ONCE);
        let this = &*self;
        let visits: Vec<Visit> = futures::stream::iter(due)
            .map(|key| this.visit(key, now))
            .buffered(AT_ONCE)
            .collect()
            .await;
        for visit in visits {
            match visit.memory {
                Some(memory) => self.memories.insert(visit.key.clone(), memory),
                None => self.memories.remove(&visit.key),
            };
            if let Some(at) = visit.wake_at {
                self.timers.add(visit.key, at);
            }
        }
    }

    /// Takes the finalizer of pods that have no Job, where that is still so.
    async fn release_strays(&mut self, now: Timestamp) {
        for key in self.strays.take_due(now, AT_ONCE) {
            let Some(object) = self.client.store().get(&self.pods, &key) else {
                continue;
            };
            if !matches!(self.owner_of(&key, &object), Owner::Nobody) {
                continue;
            }
            if let Err(error) = self.release(&key, &object.meta.uid).await {
                tracing::warn!(pod = %key.name, %error, "could not release a pod without a Job");
                let again = now.saturating_add(RETRY_DELAY_MAX);
                self.strays.add(key, again.unwrap_or(now));
            }
        }
    }

    async fn visit(&self, key: Key, now: Timestamp) -> Visit {
        let nothing = |key| Visit {
            key,
            memory: None,
            wake_at: None,
        };
        let Some(object) = self.client.store().get(&self.collection, &key) else {
            return nothing(key);
        };
        let Some((job, pods)) = self.observe(&key, &object) else {
            return nothing(key);
        };
        let known = self.memories.get(&key);
        let mut memory = known
            .filter(|memory| memory.uid == object.meta.uid)
            .cloned()
            .unwrap_or_default();
        memory.uid.clone_from(&object.meta.uid);
        let plan = plan(&job, &pods, &memory.ends, now);
        let mut wake_at = plan.wake_at;
        match self.carry_out(&key, &object, plan.effects).await {
            Ok(()) => {
                memory.failures = 0;
                memory.ends = plan.ends;
            }
            // Whatever was faster is an event of its own, which brings the Job here again.
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::NotFound) => {}
            Err(error) => {
                tracing::warn!(job = %key.name, namespace = %key.namespace, %error, "could not bring the Job forward");
                let again = now.saturating_add(retry_delay(memory.failures)).unwrap_or(now);
                wake_at = Some(wake_at.map_or(again, |at| at.min(again)));
                memory.failures = memory.failures.saturating_add(1);
            }
        }
        let worth_keeping = memory.failures > 0 || memory.ends != Ends::default();
        Visit {
            key,
            memory: worth_keeping.then_some(memory),
            wake_at,
        }
    }

    /// A Job and the pods that it controls.
    fn observe(&self, key: &Key, object: &Object) -> Option<(Job, Vec<Pod>)> {
        let mut job: Job = parse(object)?;
        if self.client.has(Defect::FailurePolicy)
            && let Some(spec) = &mut job.spec
        {
            spec.pod_failure_policy = None;
        }
        let owned = self.client.store().dependents(&object.meta.uid).into_iter();
        let pods = owned.filter(|(collection, pod_key, pod)| {
            *collection == self.pods
                && matches!(self.owner_of(pod_key, pod), Owner::Job(owner) if owner == *key)
        });
        let pods = pods.map(|(_, _, pod)| parse(&pod)).collect::<Option<Vec<_>>>()?;
        Some((job, pods))
    }

    /// Does what a plan says, in its order. A pod that cannot be made does not keep the rest from happening.
    async fn carry_out(&self, key: &Key, job: &Object, effects: Vec<Effect>) -> Result<(), ApiError> {
        let mut refused = Ok(());
        let mut unmade = 0;
        for effect in effects {
            match effect {
                Effect::CreatePod(pod) => {
                    if let Err(error) = self.create(key, job, &pod).await {
                        unmade += 1;
                        refused = Err(error);
                    }
                }
                Effect::DeletePod { pod, released } => {
                    let pod_key = Key::new(&key.namespace, &pod.name);
                    if released {
                        self.release(&pod_key, &pod.uid).await?;
                    }
                    self.client.delete(Builtin::Pod, &pod_key, &pod.uid, None).await?;
                }
                Effect::WriteStatus(mut status) => {
                    status.active = status
                        .active
                        .map(|active| active - unmade)
                        .filter(|left| *left > 0);
                    self.write_status(key, job, &status).await?;
                }
                Effect::ReleasePod(PodRef { name, uid }) => {
                    self.release(&Key::new(&key.namespace, &name), &uid).await?;
                }
            }
        }
        refused
    }

    async fn create(&self, key: &Key, job: &Object, pod: &Pod) -> Result<(), ApiError> {
        let object = serde_json::to_value(pod).map_err(ApiError::internal)?;
        let created = self.client.create(Builtin::Pod, &key.namespace, object).await;
        let Err(error) = &created else { return created };
        let causes = error.details.iter().flat_map(|details| &details.causes);
        if causes
            .into_iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
        {
            // The Job goes with its namespace, and needs no pod for that.
            return Ok(());
        }
        let about = warnings::About {
            kind: Builtin::Job,
            key,
            uid: &job.meta.uid,
        };
        let text = format!("Error creating: {error}");
        warnings::warn(&self.client, about, "FailedCreate", &text, "job-controller").await;
        created
    }

    async fn write_status(&self, key: &Key, job: &Object, status: &JobStatus) -> Result<(), ApiError> {
        let status = serde_json::to_value(status).map_err(ApiError::internal)?;
        let expected = Expected::Revision(job.revision);
        self.client
            .update(Builtin::Job, key, Endpoint::Status, expected, |job| {
                job["status"] = status.clone();
            })
            .await
    }

    /// Takes the finalizer from a pod; one that is gone needs nothing.
    async fn release(&self, key: &Key, uid: &str) -> Result<(), ApiError> {
        let result = self
            .client
            .update(Builtin::Pod, key, Endpoint::Main, Expected::Uid(uid), |pod| {
                if let Some(Value::Array(finalizers)) = pod.pointer_mut("/metadata/finalizers") {
                    finalizers.retain(|finalizer| finalizer != TRACKING_FINALIZER);
                }
            })
            .await;
        match result {
            Err(error) if error.reason == Reason::NotFound => Ok(()),
            other => other,
        }
    }
}

fn tracked(pod: &Object) -> bool {
    pod.meta.finalizers.iter().any(|name| name == TRACKING_FINALIZER)
}

fn parse<T: serde::de::DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.json)
        .inspect_err(|error| tracing::warn!(uid = object.meta.uid, %error, "a stored object cannot be read"))
        .ok()
}

fn retry_delay(failures: u32) -> SignedDuration {
    let factor = 2_i32.checked_pow(failures).unwrap_or(i32::MAX);
    RETRY_DELAY
        .checked_mul(factor)
        .unwrap_or(RETRY_DELAY_MAX)
        .min(RETRY_DELAY_MAX)
}
