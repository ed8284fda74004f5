//! A world in a value: carries plans out on what a ToolRun observes, without an API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::{
    condition::{Condition, ConditionType},
    labels,
    phase::RunPhase,
    tools::{ToolRun, ToolRunStatus},
};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::super::{Observed, plan};
use crate::{
    decision::{Decision, Effect, Key, NewJob, Notice, Plan, PodSight, Question, Sight, Uid},
    last_sight::LastSight,
    orchestration_run::tests::tool_run_of_a_step,
    settings::Settings,
};

/// More rounds than any life of a run takes: a plan that never comes to rest is a defect.
const ROUNDS_MAX: usize = 16;

pub(super) struct World {
    pub observed: Observed,
    pub settings: Settings,
    pub now: Timestamp,
    pub deeds: Vec<String>,
    pub created: Vec<NewJob>,
    pub notices: Vec<Notice>,
    pub questions: Vec<Question>,
    pub wake_at: Option<Timestamp>,
    made: u32,
}

pub(super) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a legal object")
}

impl World {
    /// A run of a Tool that says as little as it can.
    pub(super) fn new() -> Self {
        Self {
            observed: Observed {
                key: Key {
                    namespace: "agents".to_owned(),
                    name: "lint".to_owned(),
                },
                run: Some(Arc::new(object(json!({
                    "metadata": {"name": "lint", "namespace": "agents", "uid": "run-1", "generation": 1},
                    "spec": {"toolRef": {"name": "linter"}},
                })))),
                tool: Sight::Unseen,
                jobs: BTreeMap::new(),
                live_jobs: BTreeSet::new(),
                departed: BTreeMap::new(),
                lost_pods: BTreeSet::new(),
                pods: BTreeMap::new(),
                refusal: None,
                occupant: None,
                cancel_above: None,
                busy: false,
            },
            settings: Settings::default(),
            now: "2026-03-01T10:00:00Z".parse().expect("a time"),
            deeds: Vec::new(),
            created: Vec::new(),
            notices: Vec::new(),
            questions: Vec::new(),
            wake_at: None,
            made: 0,
        }
        .with_tool(&json!({"image": "linter:1", "command": ["lint"]}))
    }

    /// The same as the work of a step: all that its OrchestrationRun writes into a child.
    pub(super) fn of_a_step() -> Self {
        let child = tool_run_of_a_step();
        let mut world = Self::new();
        world.edit(|run| {
            run.metadata.owner_references = child.metadata.owner_references;
            run.metadata.finalizers = child.metadata.finalizers;
            run.metadata.labels = child.metadata.labels;
            run.metadata.annotations = child.metadata.annotations;
        });
        world
    }

    pub(super) fn with_tool(mut self, spec: &Value) -> Self {
        self.tool(spec);
        self
    }

    /// The Tool becomes this.
    pub(super) fn tool(&mut self, spec: &Value) -> &mut Self {
        let tool = object(json!({"metadata": {"name": "linter"}, "spec": spec}));
        self.observed.tool = Sight::Seen(Arc::new(tool));
        self
    }

    /// Changes the run as a user would.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut ToolRun)) -> &mut Self {
        let mut run = self.run().clone();
        change(&mut run);
        self.observed.run = Some(Arc::new(run));
        self
    }

    pub(super) fn run(&self) -> &ToolRun {
        self.observed.run.as_ref().expect("the run is there")
    }

    pub(super) fn status(&self) -> ToolRunStatus {
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

    /// Plans and carries out until nothing is left to do. What a live read showed is forgotten afterwards.
    pub(super) fn settle(&mut self) -> &mut Self {
        let cached = self.observed.pods.clone();
        for _ in 0..ROUNDS_MAX {
            match plan(&self.observed, &self.settings, self.now) {
                Decision::Look(questions) => questions.into_iter().for_each(|question| self.answer(question)),
                Decision::Act(plan) => {
                    self.wake_at = plan.wake_at;
                    if self.carry_out(plan) {
                        self.observed.live_jobs.clear();
                        for (uid, sight) in &mut self.observed.pods {
                            let pods = cached.get(uid).map_or(&[][..], |sight| sight.pods());
                            if matches!(sight, PodSight::Live(_)) {
                                *sight = PodSight::Cached(pods.to_vec());
                            }
                        }
                        return self;
                    }
                }
            }
        }
        panic!("the plan does not come to rest: {:#?}", self.deeds);
    }

    fn answer(&mut self, question: Question) {
        match &question {
            Question::Job(name) => drop(self.observed.live_jobs.insert(name.clone())),
            Question::PodsOf(uid) => {
                let pods = self.observed.pods.get(uid);
                let pods = pods.map(|sight| sight.pods().to_vec()).unwrap_or_default();
                self.observed.pods.insert(uid.clone(), PodSight::Live(pods));
            }
            Question::Tool(_) => self.observed.tool = Sight::Absent,
            other => panic!("a ToolRun asks {other:?}"),
        }
        self.questions.push(question);
    }

    /// Whether there was nothing to do.
    fn carry_out(&mut self, plan: Plan<ToolRunStatus>) -> bool {
        let idle = plan.is_idle();
        for effect in plan.effects {
            let deed = self.execute(effect);
            self.deeds.push(deed);
        }
        if let Some(status) = plan.status {
            self.edit(|run| run.status = Some(status));
        }
        self.notices.extend(plan.notices);
        idle
    }

    fn execute(&mut self, effect: Effect) -> String {
        match effect {
            Effect::CreateConfigMap(map) => format!("files {}", map.metadata.name.unwrap_or_default()),
            Effect::CreateJob(new) => {
                self.made += 1;
                let mut job = new.job.clone();
                job.metadata.uid = Some(format!("job-{}", self.made));
                job.metadata.creation_timestamp = Some(Time(self.now));
                let name = job.metadata.name.clone().expect("a Job has a name");
                let before = self.observed.jobs.insert(name.clone(), Arc::new(job));
                assert!(before.is_none(), "a Job was created over another one");
                self.created.push(*new);
                format!("create {name}")
            }
            Effect::StopJob { job } => {
                self.change_job(&job.name, |found, now| {
                    found.metadata.deletion_timestamp = Some(Time(now));
                    let finalizers = found.metadata.finalizers.get_or_insert_default();
                    finalizers.push("foregroundDeletion".to_owned());
                });
                format!("stop {}", job.name)
            }
            Effect::ReleaseJob {
                job,
                finalizers,
                ttl_seconds_after_finished: ttl,
                kept: _,
            } => {
                let others = finalizers
                    .into_iter()
                    .filter(|name| name != labels::JOB_STATUS_FINALIZER);
                let others: Vec<String> = others.collect();
                self.change_job(&job.name, |found, _| found.metadata.finalizers = Some(others));
                match ttl {
                    Some(ttl) => format!("release {} for {ttl} s", job.name),
                    None => format!("release {}", job.name),
                }
            }
            Effect::DeletePod { pod, grace_seconds } => {
                for sight in self.observed.pods.values_mut() {
                    let mut pods = sight.pods().to_vec();
                    for found in &mut pods {
                        Arc::make_mut(found).metadata.deletion_timestamp = Some(Time(self.now));
                    }
                    *sight = PodSight::Cached(pods);
                }
                match grace_seconds {
                    Some(grace) => format!("delete {} within {grace} s", pod.name),
                    None => format!("delete {}", pod.name),
                }
            }
            Effect::DeleteRun { run, .. } => {
                self.observed.run = None;
                format!("delete run {}", run.name)
            }
            Effect::SetFinalizers { finalizers, .. } => {
                self.edit(|run| run.metadata.finalizers = Some(finalizers));
                "let the run go".to_owned()
            }
            other => panic!("a ToolRun does {other:?}"),
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
        self.change_job(job, |found, _| {
            found.status.get_or_insert_default().active = Some(1);
        });
        let uid = Uid(self.observed.jobs[job].metadata.uid.clone().expect("a UID"));
        let pod: Pod = object(json!({
            "metadata": {"name": format!("{job}-x"), "uid": format!("{uid}-pod")},
            "spec": {"containers": [], "terminationGracePeriodSeconds": 30},
            "status": status,
        }));
        self.observed
            .pods
            .insert(uid, PodSight::Cached(vec![Arc::new(pod)]));
        self
    }

    pub(super) fn works(&mut self, job: &str) -> &mut Self {
        self.pod(job, &json!({"phase": "Running"}))
    }

    /// The pod of a Job ended, with this exit code and these last words, and the Job controller has written so.
    pub(super) fn pod_ended(&mut self, job: &str, exit_code: i32, words: &str) -> &mut Self {
        let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
        let finished_at = Time(self.now);
        let status = json!({
            "phase": phase,
            "containerStatuses": [{
                "name": "tool-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": exit_code, "finishedAt": finished_at, "message": words}},
            }],
        });
        self.pod(job, &status);
        let type_ = if exit_code == 0 { "Complete" } else { "Failed" };
        self.change_job(job, |found, now| {
            let condition = json!({"type": type_, "status": "True", "lastTransitionTime": Time(now)});
            found.status.get_or_insert_default().conditions = Some(vec![object(condition)]);
        });
        self
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
        self
    }
}
