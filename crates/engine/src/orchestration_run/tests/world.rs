//! A world in which effects happen at once: what a plan leads to can be looked at without a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jangar_api::{
    approvals::ApprovalPolicy,
    condition::ConditionType,
    labels::{APPROVAL, CANCEL_DEADLINE, RUNTIME_CLEANUP_FINALIZER, STOPPED_BY},
    orchestration::{
        Orchestration, OrchestrationSpec,
        orchestration_run::{OrchestrationRun, StepStatus},
    },
    phase::{RunPhase, StepPhase},
    reason::Reason,
    signals::{SignalDelivery, SignalDeliveryStatus},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    decision::{ChildKind, Decision, Effect, Key, NewChild, Notice, Question, Refusal, Sight},
    orchestration::{read, read_named},
    orchestration_run::{Child, Observed, plan, waiters},
    settings::Settings,
};

/// More rounds than any run of a test needs.
const ROUNDS_MAX: usize = 50;

pub(super) struct World {
    pub run: Option<OrchestrationRun>,
    pub definition: Option<Orchestration>,
    pub children: BTreeMap<(ChildKind, String), Child>,
    pub policies: BTreeMap<String, ApprovalPolicy>,
    pub deliveries: Vec<SignalDelivery>,
    /// Other runs of the namespace that wait for signals.
    pub others: Vec<OrchestrationRun>,
    pub refusals: BTreeMap<(ChildKind, String), Refusal>,
    /// Children that exist, but are not in the cache yet.
    pub unseen: BTreeSet<(ChildKind, String)>,
    pub settings: Settings,
    /// A run above is being cancelled.
    pub cancel_above: Option<Timestamp>,
    /// There is much to do, and children say when they were made, as they do on an API server.
    pub busy: bool,
    pub now: Timestamp,
    pub wake_at: Option<Timestamp>,
    pub status_writes: usize,
    pub notices: Vec<Notice>,
    /// The effects in the order in which they were carried out.
    pub log: Vec<String>,
    live: BTreeSet<(ChildKind, String)>,
    live_definition: bool,
    live_policies: bool,
    uids: u32,
}

impl World {
    pub(super) fn of(steps: Value) -> Self {
        Self::with(steps, json!({}))
    }

    pub(super) fn with(steps: Value, spec: Value) -> Self {
        let spec_of_definition: OrchestrationSpec =
            serde_json::from_value(json!({"steps": steps})).expect("steps");
        let mut definition = Orchestration::new("pipeline", spec_of_definition);
        definition.metadata.namespace = Some("agents".to_owned());
        definition.metadata.uid = Some("definition".to_owned());
        let mut full = json!({"orchestrationRef": {"name": "pipeline"}});
        let fields = spec.as_object().expect("fields").clone();
        full.as_object_mut().expect("a spec").extend(fields);
        let run = serde_json::from_value(json!({
            "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
            "metadata": {"name": "run", "namespace": "agents", "uid": "run-uid", "generation": 1,
                         "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": full,
        }))
        .expect("a run");
        Self {
            run: Some(run),
            definition: Some(definition),
            children: BTreeMap::new(),
            policies: BTreeMap::new(),
            deliveries: Vec::new(),
            others: Vec::new(),
            refusals: BTreeMap::new(),
            unseen: BTreeSet::new(),
            busy: false,
            cancel_above: None,
            settings: Settings::default(),
            now: Timestamp::UNIX_EPOCH,
            wake_at: None,
            status_writes: 0,
            notices: Vec::new(),
            log: Vec::new(),
            live: BTreeSet::new(),
            live_definition: false,
            live_policies: false,
            uids: 0,
        }
    }

    fn observed(&self) -> Observed {
        let run = self.run.as_ref();
        let kept = run.and_then(|run| run.status.as_ref()?.definition.as_ref());
        let graph = match kept {
            Some(kept) => Some(read(&OrchestrationSpec {
                steps: kept.steps.clone(),
                ..OrchestrationSpec::default()
            })),
            None => {
                let definition = self.definition.as_ref();
                definition.map(|definition| read_named(&definition.name_any(), &definition.spec))
            }
        };
        let definition = match &self.definition {
            Some(definition) => Sight::Seen(Arc::new(definition.clone())),
            None if self.live_definition => Sight::Absent,
            None => Sight::Unseen,
        };
        let steps = run
            .and_then(|run| run.status.as_ref())
            .map(|status| status.step_statuses.clone());
        let policies = steps
            .unwrap_or_default()
            .into_iter()
            .filter_map(|step| step.waits_for?.approval_policy)
            .map(|name| {
                let sight = match self.policies.get(&name) {
                    Some(policy) => Sight::Seen(Arc::new(policy.clone())),
                    None if self.live_policies => Sight::Absent,
                    None => Sight::Unseen,
                };
                (name, sight)
            })
            .collect();
        let visible = |key: &(ChildKind, String)| !self.unseen.contains(key) || self.live.contains(key);
        Observed {
            busy: self.busy,
            key: Key {
                namespace: "agents".to_owned(),
                name: "run".to_owned(),
            },
            run: run.map(|run| Arc::new(run.clone())),
            definition,
            graph: graph.map(|graph| graph.map(Arc::new)),
            children: self
                .children
                .iter()
                .filter(|(key, _)| visible(key))
                .map(|(key, child)| (key.clone(), child.clone()))
                .collect(),
            live_children: self.live.clone(),
            policies,
            deliveries: self.deliveries.iter().cloned().map(Arc::new).collect(),
            waiters: self.others.iter().chain(run).flat_map(waiters).collect(),
            refusals: self.refusals.clone(),
            cancel_above: self.cancel_above,
        }
    }

    /// Plans once, without carrying anything out.
    pub(super) fn plan(
        &self,
    ) -> Decision<jangar_api::orchestration::orchestration_run::OrchestrationRunStatus> {
        plan(&self.observed(), &self.settings, self.now)
    }

    /// Plans and acts until there is nothing left to do, as one reconcile does.
    pub(super) fn settle(&mut self) {
        self.live.clear();
        self.live_definition = false;
        self.live_policies = false;
        for _ in 0..ROUNDS_MAX {
            match self.plan() {
                Decision::Look(questions) => questions.into_iter().for_each(|question| match question {
                    Question::Child(kind, name) => {
                        self.live.insert((kind, name));
                    }
                    Question::Orchestration(_) => self.live_definition = true,
                    Question::ApprovalPolicy(_) => self.live_policies = true,
                    other => panic!("{other:?}"),
                }),
                Decision::Act(plan) => {
                    let idle = plan.is_idle();
                    self.wake_at = plan.wake_at;
                    for effect in plan.effects {
                        self.carry_out(effect);
                    }
                    if let Some(status) = plan.status {
                        self.status_writes += 1;
                        self.run.as_mut().expect("a run").status = Some(status);
                    }
                    self.notices.extend(plan.notices);
                    if idle {
                        return;
                    }
                }
            }
        }
        panic!("there is still something to do: {:#?}", self.plan());
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::CreateChild(child) => self.create(*child),
            Effect::CancelChild { child, deadline, .. } => {
                self.log.push(format!("cancel {}", child.id.name));
                self.edit(child.kind, &child.id.name, |value| {
                    value["spec"]["cancel"] = json!(true);
                    value["metadata"]["annotations"][STOPPED_BY] = json!(child.parent);
                    if let Some(deadline) = deadline {
                        value["metadata"]["annotations"][CANCEL_DEADLINE] = json!(deadline.to_string());
                    }
                });
            }
            Effect::ReleaseChild { child, .. } => {
                self.log.push(format!("release {}", child.id.name));
                self.edit(child.kind, &child.id.name, |value| {
                    value["metadata"]["finalizers"] = json!([]);
                });
            }
            Effect::ConsumeSignal { delivery, by, .. } => {
                self.log.push(format!("consume {}", delivery.name));
                let known = self
                    .deliveries
                    .iter_mut()
                    .find(|known| known.name_any() == delivery.name);
                let status = SignalDeliveryStatus {
                    consumed_by: Some(by),
                    ..SignalDeliveryStatus::default()
                };
                known.expect("a delivery").status = Some(status);
            }
            Effect::MarkApproval { pending, .. } => {
                let labels = self.run.as_mut().expect("a run").labels_mut();
                if pending {
                    labels.insert(APPROVAL.to_owned(), "pending".to_owned());
                } else {
                    labels.remove(APPROVAL);
                }
            }
            Effect::DeleteRun { run, .. } => {
                self.log.push(format!("delete run {}", run.name));
                self.run = None;
            }
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, child: NewChild) {
        self.uids += 1;
        let uid = Some(format!("uid-{}", self.uids));
        // In whole seconds, as an API server has it.
        let second = Timestamp::from_second(self.now.as_second()).expect("a time");
        let made = self.busy.then_some(Time(second));
        let (key, child) = match child {
            NewChild::AgentRun(mut run) => {
                run.metadata.uid = uid;
                run.metadata.creation_timestamp = made;
                (
                    (ChildKind::AgentRun, run.name_any()),
                    Child::AgentRun(Arc::new(run)),
                )
            }
            NewChild::ToolRun(mut run) => {
                run.metadata.uid = uid;
                (
                    (ChildKind::ToolRun, run.name_any()),
                    Child::ToolRun(Arc::new(run)),
                )
            }
            NewChild::OrchestrationRun(mut run) => {
                run.metadata.uid = uid;
                (
                    (ChildKind::OrchestrationRun, run.name_any()),
                    Child::OrchestrationRun(Arc::new(run)),
                )
            }
        };
        self.log.push(format!("create {}", key.1));
        assert!(!self.children.contains_key(&key), "{key:?} is made twice");
        self.children.insert(key, child);
    }

    /// Changes a child as JSON.
    pub(super) fn edit(&mut self, kind: ChildKind, name: &str, change: impl FnOnce(&mut Value)) {
        let key = (kind, name.to_owned());
        let child = self.children.get_mut(&key).expect("a child");
        *child = match child {
            Child::AgentRun(run) => Child::AgentRun(changed(run.as_ref(), change)),
            Child::ToolRun(run) => Child::ToolRun(changed(run.as_ref(), change)),
            Child::OrchestrationRun(run) => Child::OrchestrationRun(changed(run.as_ref(), change)),
        };
    }

    /// A child ends like this.
    pub(super) fn end(&mut self, name: &str, phase: RunPhase, outputs: Value) {
        self.end_because(name, phase, Reason::Completed, outputs);
    }

    /// A child ends well, and says when.
    pub(super) fn end_now(&mut self, name: &str) {
        let now = self.now.to_string();
        self.end(name, RunPhase::Succeeded, json!({}));
        self.edit(ChildKind::AgentRun, name, |value| {
            value["status"]["conditions"][0]["lastTransitionTime"] = json!(now);
        });
    }

    pub(super) fn end_because(&mut self, name: &str, phase: RunPhase, reason: Reason, outputs: Value) {
        self.edit(ChildKind::AgentRun, name, |value| {
            value["status"] = json!({
                "phase": phase, "outcome": {"outputs": outputs},
                "conditions": [{"type": ConditionType::Succeeded, "status": "False", "reason": reason,
                                "message": "words"}],
            });
        });
    }

    /// Ends a child and settles.
    pub(super) fn ends(&mut self, name: &str, phase: RunPhase) {
        self.end(name, phase, json!({}));
        self.settle();
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    pub(super) fn step(&self, name: &str) -> &StepStatus {
        let status = self
            .run
            .as_ref()
            .and_then(|run| run.status.as_ref())
            .expect("a status");
        status
            .step_statuses
            .iter()
            .find(|step| step.name == name)
            .expect(name)
    }

    /// The phase of a step, with the reason if it has one.
    pub(super) fn stands(&self, name: &str) -> String {
        let step = self.step(name);
        let phase = step.progress.phase.clone().unwrap_or(StepPhase::Pending);
        match &step.reason {
            Some(reason) => format!("{phase}/{reason}"),
            None => phase.to_string(),
        }
    }

    pub(super) fn phase(&self) -> RunPhase {
        let status = self.run.as_ref().and_then(|run| run.status.as_ref());
        status
            .and_then(|status| status.phase.clone())
            .unwrap_or(RunPhase::Pending)
    }

    /// Why the run stands where it does, by this condition.
    pub(super) fn reason(&self, type_: &ConditionType) -> Option<Reason> {
        let status = self.run.as_ref()?.status.as_ref()?;
        Some(status.common.condition(type_)?.reason.clone())
    }

    pub(super) fn child(&self, name: &str) -> Value {
        let child = self.children.iter().find(|((_, known), _)| known == name);
        let (_, child) = child.expect(name);
        match child {
            Child::AgentRun(run) => serde_json::to_value(run.as_ref()),
            Child::ToolRun(run) => serde_json::to_value(run.as_ref()),
            Child::OrchestrationRun(run) => serde_json::to_value(run.as_ref()),
        }
        .expect("JSON")
    }

    pub(super) fn is_held(&self, name: &str) -> bool {
        self.child(name)["metadata"]["finalizers"] == json!([RUNTIME_CLEANUP_FINALIZER])
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.children.keys().map(|(_, name)| name.as_str()).collect()
    }
}

/// A step that runs an agent, with these fields.
pub(super) fn agent(name: &str, fields: Value) -> Value {
    let mut step = json!({
        "name": name, "kind": "AgentRun", "agentRef": {"name": "coder"},
        "implementation": {"inline": {"text": "do it"}},
    });
    let fields = fields.as_object().expect("fields").clone();
    step.as_object_mut().expect("a step").extend(fields);
    step
}

/// `a`, then `b` and `c` side by side, then `d`.
pub(super) fn diamond() -> Value {
    json!([
        agent("a", json!({"dependsOn": []})),
        agent("b", json!({"dependsOn": ["a"]})),
        agent("c", json!({"dependsOn": ["a"]})),
        agent("d", json!({"dependsOn": ["b", "c"]})),
    ])
}

/// The same object, changed as JSON.
fn changed<T: serde::Serialize + serde::de::DeserializeOwned>(
    object: &T,
    change: impl FnOnce(&mut Value),
) -> Arc<T> {
    let mut value = serde_json::to_value(object).expect("JSON");
    change(&mut value);
    Arc::new(serde_json::from_value(value).expect("the same kind"))
}
