//! A world in a value: carries plans out on what a run observes, without an API server.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus},
        implementation_spec::ImplementationSpec,
    },
    condition::{Condition, ConditionType},
    labels,
    phase::RunPhase,
};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::super::{Observed, References, plan};
use crate::{
    custom::call::{CallState, Outside},
    decision::{
        Decision, Effect, HeldPod, Key, KeyHolder, Keys, Notice, Plan, PodSight, Question, Sight, TokenSight,
        Uid,
    },
    last_sight::LastSight,
    queue::Answer,
    settings::Settings,
    temporal::call::{Following, Known, What},
};

/// More rounds than any life of a run takes: a plan that never comes to rest is a defect.
const ROUNDS_MAX: usize = 16;

pub(super) struct World {
    pub observed: Observed,
    pub settings: Settings,
    pub now: Timestamp,
    /// What exists although the caches do not show it.
    pub hidden_pods: BTreeMap<Uid, Vec<Arc<Pod>>>,
    /// What exists and is not watched.
    pub key_holders: BTreeMap<KeyHolder, Keys>,
    pub done: Vec<Effect>,
    pub notices: Vec<Notice>,
    pub questions: Vec<Question>,
    pub wake_at: Option<Timestamp>,
    /// How often the status was written.
    pub statuses: u32,
    /// The repositories for which slots were asked, one after the other.
    pub slots: Vec<Option<String>>,
    /// What the queue says to those who ask, one after the other; then it lets everybody in.
    pub answers: VecDeque<Answer>,
    /// How many seconds a token of a GitHub App lasts; absent, the forge gives none.
    pub token_lasts: Option<i64>,
    /// What a forge that gives none says.
    pub refusal_words: String,
    /// Until when it asks to be left alone.
    pub forge_rests_until: Option<Timestamp>,
    made: u32,
}

pub(super) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a legal object")
}

impl World {
    /// A run of the runtime `job` with everything it refers to.
    pub(super) fn new() -> Self {
        let run = json!({
            "metadata": {"name": "mend", "namespace": "agents", "uid": "run-1", "generation": 1},
            "spec": {
                "agentRef": {"name": "fixer"},
                "implementationSpecRef": {"name": "mend-it"},
                "runtime": {"type": "job"},
            },
        });
        let agent: Agent =
            object(json!({"metadata": {"name": "fixer"}, "spec": {"providerRef": {"name": "scripted"}}}));
        let provider: AgentProvider =
            object(json!({"metadata": {"name": "scripted"}, "spec": {"binary": "/bin/true"}}));
        let implementation: ImplementationSpec =
            object(json!({"metadata": {"name": "mend-it"}, "spec": {"text": "Mend it."}}));
        let mut settings = Settings::default();
        settings.runner.image = Some("agent:1".to_owned());
        Self {
            observed: Observed {
                key: Key {
                    namespace: "agents".to_owned(),
                    name: "mend".to_owned(),
                },
                run: Some(Arc::new(object(run))),
                references: References {
                    agent: Sight::Seen(Arc::new(agent)),
                    provider: Some(Sight::Seen(Arc::new(provider))),
                    implementations: BTreeMap::from([(
                        "mend-it".to_owned(),
                        Sight::Seen(Arc::new(implementation)),
                    )]),
                    memory: None,
                    vcs: BTreeMap::new(),
                },
                jobs: BTreeMap::new(),
                live_jobs: BTreeSet::new(),
                departed: BTreeMap::new(),
                lost_pods: BTreeSet::new(),
                pods: BTreeMap::new(),
                keys: BTreeMap::new(),
                refusal: None,
                occupant: None,
                cancel_above: None,
                busy: false,
                admission: None,
                outside: Outside {
                    process: "me".to_owned(),
                    ..Outside::default()
                },
                branch_rivals: BTreeMap::new(),
                tokens: BTreeMap::new(),
            },
            settings,
            now: "2026-03-01T10:00:00Z".parse().expect("a time"),
            hidden_pods: BTreeMap::new(),
            key_holders: BTreeMap::new(),
            done: Vec::new(),
            notices: Vec::new(),
            questions: Vec::new(),
            wake_at: None,
            statuses: 0,
            slots: Vec::new(),
            answers: VecDeque::new(),
            token_lasts: Some(3600),
            refusal_words: "the forge said no".to_owned(),
            forge_rests_until: None,
            made: 0,
        }
    }

    /// What is known of the ImplementationSpec that the run refers to.
    pub(super) fn know_implementation(&mut self, sight: Sight<ImplementationSpec>) {
        let known = &mut self.observed.references.implementations;
        known.insert("mend-it".to_owned(), sight);
    }

    /// Changes the run as a user would.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut AgentRun)) -> &mut Self {
        let mut run = self.run().clone();
        change(&mut run);
        self.observed.run = Some(Arc::new(run));
        self
    }

    pub(super) fn run(&self) -> &AgentRun {
        self.observed.run.as_ref().expect("the run is there")
    }

    pub(super) fn status(&self) -> AgentRunStatus {
        self.run().status.clone().unwrap_or_default()
    }

    pub(super) fn phase(&self) -> Option<RunPhase> {
        self.status().phase
    }

    pub(super) fn condition(&self, type_: &ConditionType) -> Condition {
        let status = self.status();
        let found = status.common.condition(type_).cloned();
        found.unwrap_or_else(|| panic!("{type_} is not set in {status:#?}"))
    }

    pub(super) fn wait(&mut self, seconds: i64) -> &mut Self {
        self.now += seconds.seconds();
        self
    }

    /// Plans and carries out until nothing is left to do. What caches had not shown and a live read did is forgotten
    /// afterwards, as a controller forgets it between two looks at a run.
    pub(super) fn settle(&mut self) -> &mut Self {
        let cached = self.observed.pods.clone();
        for _ in 0..ROUNDS_MAX {
            if self.round() {
                self.observed.live_jobs.clear();
                self.observed.keys.clear();
                self.observed.admission = None;
                self.observed.tokens.clear();
                for (uid, sight) in &mut self.observed.pods {
                    let pods = cached.get(uid).map_or(&[][..], |sight| sight.pods());
                    if matches!(sight, PodSight::Live(_)) {
                        *sight = PodSight::Cached(pods.to_vec());
                    }
                }
                return self;
            }
        }
        panic!("the plan does not come to rest: {:#?}", self.done);
    }

    /// Plans once, and carries that out or answers. Whether there was nothing to do.
    pub(super) fn round(&mut self) -> bool {
        match plan(&self.observed, &self.settings, self.now) {
            Decision::Look(questions) => {
                for question in questions {
                    self.answer(question);
                }
                false
            }
            Decision::Act(plan) => {
                self.wake_at = plan.wake_at;
                self.carry_out(plan)
            }
        }
    }

    /// Whether there was nothing to do.
    fn carry_out(&mut self, plan: Plan<AgentRunStatus>) -> bool {
        let idle = plan.is_idle();
        if !plan.effects.is_empty() {
            self.observed.admission = None;
        }
        for effect in plan.effects {
            self.execute(&effect);
            self.done.push(effect);
        }
        if let Some(status) = plan.status {
            self.statuses += 1;
            self.edit(|run| run.status = Some(status));
        }
        self.notices.extend(plan.notices);
        idle
    }

    pub(super) fn answer(&mut self, question: Question) {
        match &question {
            Question::Job(name) => {
                self.observed.live_jobs.insert(name.clone());
            }
            Question::PodsOf(uid) => {
                let mut pods = self.hidden_pods.get(uid).cloned().unwrap_or_default();
                if let Some(sight) = self.observed.pods.get(uid) {
                    pods.extend_from_slice(sight.pods());
                }
                self.observed.pods.insert(uid.clone(), PodSight::Live(pods));
            }
            Question::Agent(_) => self.observed.references.agent = Sight::Absent,
            Question::AgentProvider(_) => self.observed.references.provider = Some(Sight::Absent),
            Question::ImplementationSpec(name) => {
                let known = &mut self.observed.references.implementations;
                known.insert(name.clone(), Sight::Absent);
            }
            Question::Memory(_) => self.observed.references.memory = Some(Sight::Absent),
            Question::VersionControlProvider(name) => {
                self.observed.references.vcs.insert(name.clone(), Sight::Absent);
            }
            Question::Delivery(_) => panic!("no run waits for a forge"),
            Question::Tool(_)
            | Question::Orchestration(_)
            | Question::ApprovalPolicy(_)
            | Question::Signal(_)
            | Question::Child(..) => panic!("an AgentRun asks for {question:?}"),
            Question::Slot { repository, .. } => {
                self.slots.push(repository.clone());
                let granted = Answer::Granted { at: self.now };
                let answer = self.answers.pop_front().unwrap_or(granted);
                self.observed.admission = Some(answer);
                // It is no read.
                return;
            }
            Question::Keys(holder) => {
                let keys = self.key_holders.get(holder).cloned().unwrap_or(Keys::Absent);
                self.observed.keys.insert(holder.clone(), keys);
            }
        }
        self.questions.push(question);
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each effect")]
    fn execute(&mut self, effect: &Effect) {
        match effect {
            Effect::CreateConfigMap(_) | Effect::RevokeToken { .. } => {}
            Effect::CreateChild(_)
            | Effect::CancelChild { .. }
            | Effect::ReleaseChild { .. }
            | Effect::ConsumeSignal { .. }
            | Effect::MarkApproval { .. } => panic!("an AgentRun has no children: {effect:?}"),
            Effect::CreateJob(new) => {
                self.made += 1;
                let mut job = new.job.clone();
                job.metadata.uid = Some(format!("job-{}", self.made));
                job.metadata.creation_timestamp = Some(Time(self.now));
                let name = job.metadata.name.clone().expect("a Job has a name");
                let before = self.observed.jobs.insert(name, Arc::new(job));
                assert!(before.is_none(), "a Job was created over another one");
            }
            Effect::StopJob { job } => self.change_job(&job.name, |found, now| {
                found.metadata.deletion_timestamp = Some(Time(now));
                let finalizers = found.metadata.finalizers.get_or_insert_default();
                finalizers.push("foregroundDeletion".to_owned());
            }),
            Effect::CreatePod(pod) => self.make_pod(pod),
            Effect::TellJob { job, status } => self.tell_job(&job.name, status),
            Effect::ReleasePods(pods) => self.release_pods(pods),
            Effect::ReleaseJob {
                job,
                finalizers,
                ttl_seconds_after_finished,
                kept: settlement,
            } => {
                if let Some(settlement) = settlement {
                    if let Some(status) = &settlement.status {
                        self.tell_job(&job.name, status);
                    }
                    self.release_pods(&settlement.pods);
                }
                let kept =
                    i32::try_from(ttl_seconds_after_finished.unwrap_or_default()).expect("a short time");
                self.change_job(&job.name, |found, _| {
                    let others = finalizers
                        .iter()
                        .filter(|name| *name != labels::JOB_STATUS_FINALIZER);
                    found.metadata.finalizers = Some(others.cloned().collect());
                    found.spec.get_or_insert_default().ttl_seconds_after_finished = Some(kept);
                });
            }
            Effect::DeletePod { pod, grace_seconds } => {
                for sight in self.observed.pods.values_mut() {
                    let mut pods = sight.pods().to_vec();
                    for found in &mut pods {
                        if found.metadata.name.as_ref() == Some(&pod.name) {
                            let metadata = &mut Arc::make_mut(found).metadata;
                            metadata.deletion_timestamp = Some(Time(self.now));
                            metadata.deletion_grace_period_seconds = grace_seconds.map(i64::from);
                        }
                    }
                    *sight = PodSight::Cached(pods);
                }
            }
            Effect::DeleteRun { .. } => self.observed.run = None,
            Effect::SetFinalizers { finalizers, .. } => {
                let gone = self.run().metadata.deletion_timestamp.is_some() && finalizers.is_empty();
                self.edit(|run| run.metadata.finalizers = Some(finalizers.clone()));
                if gone {
                    self.observed.run = None;
                }
            }
            Effect::PostCustom(post) => {
                let before = self
                    .observed
                    .outside
                    .calls
                    .insert(post.id.clone(), CallState::UnderWay);
                assert_eq!(before, None, "a call was made twice");
            }
            Effect::MintToken(new) => {
                let secret = new.secret.metadata.name.clone().expect("a Secret has a name");
                let token = match self.token_lasts.map(|seconds| self.now + seconds.seconds()) {
                    Some(expires_at) => TokenSight::Ready {
                        expires_at: expires_at.min(new.used_until),
                    },
                    None => TokenSight::Failed {
                        message: self.refusal_words.clone(),
                        not_before: self.forge_rests_until,
                    },
                };
                self.observed.tokens.insert(secret, token);
            }
            Effect::CallTemporal(call) => {
                let sight = &mut self.observed.outside.workflow;
                match &call.what {
                    What::Start(start) => {
                        sight.start = Some(Known {
                            number: start.number,
                            answer: None,
                        });
                    }
                    What::Stop(stop) => {
                        sight.stop = Some(Known {
                            number: stop.number,
                            answer: None,
                        });
                    }
                    What::Follow { .. } => {
                        let before = sight.following.replace(Following::default());
                        assert_eq!(before, None, "a workflow is waited for twice");
                    }
                }
            }
        }
    }

    /// A pod of a Job that we look after.
    fn make_pod(&mut self, pod: &Pod) {
        let owner = pod.metadata.owner_references.iter().flatten().next();
        let owner = Uid(owner.expect("a pod of a Job has an owner").uid.clone());
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("{owner}-pod"));
        pod.metadata.creation_timestamp = Some(Time(self.now));
        let pods = PodSight::Cached(vec![Arc::new(pod)]);
        let before = self.observed.pods.insert(owner, pods);
        let before = before.map_or(0, |sight| sight.pods().len());
        assert_eq!(before, 0, "a Job was given a second pod");
    }

    /// What is told of a Job lies over what it says, as a merge patch does.
    fn tell_job(&mut self, name: &str, told: &JobStatus) {
        self.change_job(name, |found, _| {
            let mut status = json!(found.status.clone().unwrap_or_default());
            for (field, value) in json!(told).as_object().into_iter().flatten() {
                status[field] = value.clone();
            }
            found.status = Some(object(status));
        });
    }

    /// One that is deleted and has ended goes when nothing holds it any more.
    fn release_pods(&mut self, held: &[HeldPod]) {
        let names: Vec<&String> = held.iter().map(|held| &held.pod.name).collect();
        for sight in self.observed.pods.values_mut() {
            let mut pods = sight.pods().to_vec();
            for pod in &mut pods {
                if pod
                    .metadata
                    .name
                    .as_ref()
                    .is_some_and(|name| names.contains(&name))
                {
                    Arc::make_mut(pod).metadata.finalizers = None;
                }
            }
            pods.retain(|pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                let over = matches!(phase, Some("Succeeded" | "Failed"));
                let held = pod
                    .metadata
                    .finalizers
                    .as_ref()
                    .is_some_and(|held| !held.is_empty());
                held || !over || pod.metadata.deletion_timestamp.is_none()
            });
            *sight = match sight {
                PodSight::Cached(_) => PodSight::Cached(pods),
                PodSight::Live(_) => PodSight::Live(pods),
            };
        }
    }

    /// Changes a Job as somebody would.
    pub(super) fn change_job(&mut self, name: &str, change: impl FnOnce(&mut Job, Timestamp)) {
        let now = self.now;
        let job = self.observed.jobs.get_mut(name).expect("the Job is there");
        change(Arc::make_mut(job), now);
    }

    /// Comes to rest with a Job whose pod has begun to work.
    pub(super) fn begun(&mut self, job: &str) -> &mut Self {
        self.settle().pod(job, &json!({"phase": "Running"})).settle()
    }

    /// The pod of a Job, in this state.
    pub(super) fn pod(&mut self, job: &str, status: &Value) -> &mut Self {
        let uid = Uid(self.observed.jobs[job].metadata.uid.clone().expect("a UID"));
        if self.looks_after(job) {
            let made = self
                .observed
                .pods
                .get(&uid)
                .and_then(|sight| sight.pods().first());
            let mut pod = made.expect("its pod was made").as_ref().clone();
            pod.status = Some(object(status.clone()));
            let pods = PodSight::Cached(vec![Arc::new(pod)]);
            self.observed.pods.insert(uid, pods);
            return self;
        }
        self.change_job(job, |found, _| {
            found.status.get_or_insert_default().active = Some(1);
        });
        let pod: Pod = object(json!({
            "metadata": {
                "name": format!("{job}-x"), "uid": format!("{uid}-pod"),
                "creationTimestamp": self.observed.jobs[job].metadata.creation_timestamp,
            },
            "status": status,
        }));
        self.observed
            .pods
            .insert(uid, PodSight::Cached(vec![Arc::new(pod)]));
        self
    }

    /// The pod of a Job ended, with this exit code and these last words, and the Job controller has written so.
    pub(super) fn pod_ended(&mut self, job: &str, exit_code: i32, words: &Value) -> &mut Self {
        self.pod_just_ended(job, exit_code, words).job_ended(job)
    }

    /// Whether Kubernetes leaves a Job to us.
    fn looks_after(&self, job: &str) -> bool {
        let spec = self.observed.jobs[job].spec.as_ref();
        spec.is_some_and(|spec| spec.managed_by.is_some())
    }

    /// The Job controller writes what became of a Job that nobody has deleted.
    pub(super) fn job_ended(&mut self, job: &str) -> &mut Self {
        if self.looks_after(job) {
            return self;
        }
        let uid = Uid(self.observed.jobs[job].metadata.uid.clone().expect("a UID"));
        let failed = self.observed.pods[&uid].pods().iter().any(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Failed")
        });
        let type_ = if failed { "Failed" } else { "Complete" };
        self.change_job(job, |found, now| {
            if found.metadata.deletion_timestamp.is_none() {
                let condition = json!({"type": type_, "status": "True", "lastTransitionTime": Time(now)});
                found.status.get_or_insert_default().conditions = Some(vec![object(condition)]);
            }
        });
        self
    }

    /// The pod of a Job ended, and the Job controller has not noticed yet.
    pub(super) fn pod_just_ended(&mut self, job: &str, exit_code: i32, words: &Value) -> &mut Self {
        let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
        let finished_at = Time(self.now);
        self.pod(
            job,
            &json!({
                "phase": phase,
                "containerStatuses": [{
                    "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {
                        "exitCode": exit_code, "finishedAt": finished_at, "message": words.to_string(),
                    }},
                }],
            }),
        )
    }

    /// Somebody takes our finalizer from a Job and deletes it, before our eyes.
    pub(super) fn job_robbed(&mut self, name: &str) -> &mut Self {
        let job = self.observed.jobs.remove(name).expect("the Job is there");
        let sight = LastSight::of(job.as_ref());
        self.observed.departed.insert(name.to_owned(), sight);
        self
    }

    /// Every pod vanishes, and the caches show it.
    pub(super) fn pods_vanish(&mut self) -> &mut Self {
        self.observed.pods.clear();
        self.hidden_pods.clear();
        self
    }

    /// What was done, as words.
    pub(super) fn deeds(&self) -> Vec<String> {
        self.done
            .iter()
            .map(|effect| match effect {
                Effect::CreateConfigMap(map) => {
                    format!("files {}", map.metadata.name.clone().unwrap_or_default())
                }
                Effect::CreateJob(new) => {
                    format!("create {}", new.job.metadata.name.clone().unwrap_or_default())
                }
                Effect::CreateChild(_)
                | Effect::CancelChild { .. }
                | Effect::ReleaseChild { .. }
                | Effect::ConsumeSignal { .. }
                | Effect::MarkApproval { .. } => panic!("an AgentRun has no children: {effect:?}"),
                Effect::CreatePod(pod) => {
                    format!("create {}", pod.metadata.name.clone().unwrap_or_default())
                }
                Effect::TellJob { job, .. } => format!("tell {}", job.name),
                Effect::ReleasePods(pods) => {
                    let names: Vec<&str> = pods.iter().map(|held| held.pod.name.as_str()).collect();
                    format!("release {}", names.join(", "))
                }
                Effect::StopJob { job } => format!("stop {}", job.name),
                Effect::DeletePod { pod, grace_seconds } => match grace_seconds {
                    Some(grace) => format!("delete {} within {grace} s", pod.name),
                    None => format!("delete {}", pod.name),
                },
                Effect::ReleaseJob {
                    job,
                    ttl_seconds_after_finished,
                    ..
                } => match ttl_seconds_after_finished {
                    Some(ttl) => format!("release {} for {ttl} s", job.name),
                    None => format!("release {}", job.name),
                },
                Effect::DeleteRun { run, .. } => format!("delete run {}", run.name),
                Effect::SetFinalizers { finalizers, .. } => format!("hold by {finalizers:?}"),
                Effect::PostCustom(post) => {
                    let (purpose, number) = (post.id.purpose.word(), post.id.number);
                    format!(
                        "{purpose} {number} to {} as {}",
                        post.endpoint,
                        post.idempotency_key()
                    )
                }
                Effect::MintToken(new) => {
                    format!(
                        "mint {} for {}",
                        new.secret.metadata.name.clone().unwrap_or_default(),
                        new.repository
                    )
                }
                Effect::RevokeToken { secret, .. } => format!("revoke {secret}"),
                Effect::CallTemporal(call) => {
                    let id = &call.workflow.id;
                    match &call.what {
                        What::Start(start) => format!("start {} of {id}", start.number),
                        What::Stop(stop) => format!("{} {} of {id}", stop.means.word(), stop.number),
                        What::Follow { task_queue } => format!("follow {id} on {task_queue}"),
                    }
                }
            })
            .collect()
    }

    pub(super) fn is_held(&self, job: &str) -> bool {
        self.observed.jobs[job]
            .metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == labels::JOB_STATUS_FINALIZER)
    }
}
