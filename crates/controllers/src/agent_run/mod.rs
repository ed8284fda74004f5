//! The controller of AgentRuns: what the engine decides about runs, connected to the driver.

mod claims;
mod observe;

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    phase::RunPhase,
};
use jangar_engine::{
    agent_run::{self, Observed},
    decision::{Decision, Key},
    queue::Answer,
    settings::Settings,
};
use jiff::Timestamp;

use self::claims::Claims;
use crate::{
    admissions::Admissions,
    caches::{CachedKind, Caches, Change, Term},
    driver::{Controller, Scene},
    metrics::Metrics,
    orchestration::untold_children,
    outside::Outside,
    report::{self, Told},
};

/// Looks after AgentRuns, and after what is left of those that are gone.
#[derive(Clone, Debug, Default)]
pub struct AgentRuns {
    /// Absent where nobody decides which of them may start.
    admissions: Option<Arc<Admissions>>,
    outside: Arc<Outside>,
    claims: Arc<Claims>,
}

impl AgentRuns {
    /// With a queue that decides which of them may start, and with this way to the endpoints that do the work of some.
    pub fn new(admissions: Arc<Admissions>, outside: Arc<Outside>) -> Self {
        Self {
            admissions: Some(admissions),
            outside,
            claims: Arc::default(),
        }
    }

    /// Without a queue, to see what would be done.
    pub(crate) fn unqueued(outside: Arc<Outside>) -> Self {
        Self {
            admissions: None,
            outside,
            claims: Arc::default(),
        }
    }
}

impl Controller for AgentRuns {
    type Object = AgentRun;
    type Observed = Observed;
    const NAME: &'static str = "agent-run";
    const COMES_IN_CROWDS: bool = true;

    /// A Job or a pod concerns the run in its label, also if there is no such run any more. Everything else concerns the
    /// runs that refer to it and have not ended, and an OrchestrationRun that is being cancelled its children.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        let namespace = &change.key.namespace;
        let name = change.key.name.clone();
        let runs = |term: Term| caches.agent_runs.naming(namespace, term);
        let runs_of_agents = |term: Term| {
            let agents = caches.agents.naming(namespace, term);
            agents.flat_map(|agent| runs(Term::Agent(agent.clone())))
        };
        let runs_of_specs = |term: Term| {
            let specs = caches.implementation_specs.naming(namespace, term);
            specs.flat_map(|spec| runs(Term::ImplementationSpec(spec.clone())))
        };
        let names: BTreeSet<String> = match change.kind {
            CachedKind::AgentRun => BTreeSet::from([name]),
            CachedKind::Job | CachedKind::Pod => labelled(change),
            CachedKind::Tool
            | CachedKind::ToolRun
            | CachedKind::Orchestration
            | CachedKind::ApprovalPolicy
            | CachedKind::Signal
            | CachedKind::SignalDelivery => BTreeSet::new(),
            CachedKind::OrchestrationRun => untold_children::<AgentRun>(caches, &change.key),
            CachedKind::Agent => runs(Term::Agent(name)).cloned().collect(),
            CachedKind::AgentProvider => runs_of_agents(Term::AgentProvider(name)).cloned().collect(),
            CachedKind::ImplementationSpec => runs(Term::ImplementationSpec(name)).cloned().collect(),
            CachedKind::Memory => {
                let direct = runs(Term::Memory(name.clone()));
                direct
                    .chain(runs_of_agents(Term::Memory(name)))
                    .cloned()
                    .collect()
            }
            CachedKind::VersionControlProvider => {
                let term = Term::VersionControlProvider(name);
                runs(term.clone())
                    .chain(runs_of_agents(term.clone()))
                    .chain(runs_of_specs(term))
                    .cloned()
                    .collect()
            }
        };
        let key = |name| Key {
            namespace: namespace.clone(),
            name,
        };
        let runs = names.into_iter().map(key).collect();
        if let Some(admissions) = &self.admissions {
            admissions.observe(caches, change, &runs);
        }
        runs
    }

    fn admissions(&self) -> Option<&Admissions> {
        self.admissions.as_deref()
    }

    fn ask(&self, key: &Key, run: &AgentRun, job: Option<&str>, repository: Option<&str>) -> Option<Answer> {
        let admissions = self.admissions.as_deref()?;
        Some(admissions.ask(key, run, job, repository))
    }

    fn has_remains(&self, scene: &Scene<'_>) -> bool {
        let run = Term::AgentRun(scene.key.name.clone());
        !scene.jobs(&run).is_empty() || scene.holds_pods(&run) || self.outside.is_asked_about(scene.key)
    }

    fn observe(&self, scene: &Scene<'_>, run: Option<Arc<AgentRun>>) -> Option<Observed> {
        Some(observe::observe(scene, run, &self.outside, &self.claims))
    }

    fn settled(&self, key: &Key, run: Option<&AgentRun>) {
        self.outside.settled(key, run);
        if run.is_none_or(has_ended) {
            self.claims.give_back(key);
        }
    }

    fn reported(
        &self,
        key: &Key,
        metrics: &Metrics,
        before: Option<&AgentRunStatus>,
        after: &AgentRunStatus,
    ) {
        let told = |status: &AgentRunStatus| Told {
            phase: status.phase.clone(),
            common: status.common.clone(),
        };
        report::changed::<AgentRun>(key, metrics, before.map(told).as_ref(), &told(after));
    }

    fn plan(&self, observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
        agent_run::plan(observed, settings, now)
    }
}

/// Whether a run has come to its end.
fn has_ended(run: &AgentRun) -> bool {
    let phase = run.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.is_some_and(RunPhase::is_terminal)
}

/// The runs that a Job or a pod belongs to: one, or two if somebody changed the label.
fn labelled(change: &Change) -> BTreeSet<String> {
    let names = change.terms.iter().filter_map(|term| match term {
        Term::AgentRun(name) => Some(name.clone()),
        Term::ToolRun(_)
        | Term::Tool(_)
        | Term::Agent(_)
        | Term::AgentProvider(_)
        | Term::ImplementationSpec(_)
        | Term::Memory(_)
        | Term::VersionControlProvider(_)
        | Term::Branch(_)
        | Term::DefaultMemory
        | Term::OrchestrationRun(_)
        | Term::ChildOf(_)
        | Term::Orchestration(_)
        | Term::ApprovalPolicy(_)
        | Term::DecidedUnder(_)
        | Term::Signal(_)
        | Term::DeliveryId(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use serde_json::{Value, json};

    use super::*;

    /// What is counted of vanished Jobs while a run has these statuses, one after the other.
    fn missing(statuses: &[Value]) -> Vec<String> {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let key = Key {
            namespace: "agents".to_owned(),
            name: "a".to_owned(),
        };
        let statuses: Vec<AgentRunStatus> = statuses
            .iter()
            .map(|status| serde_json::from_value(status.clone()).unwrap())
            .collect();
        let mut before = None;
        for status in &statuses {
            AgentRuns::default().reported(&key, &metrics, before, status);
            before = Some(status);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("jangar_job_missing_total"));
        lines.map(str::to_owned).collect()
    }

    fn status(phase: &str, conditions: &Value) -> Value {
        json!({ "phase": phase, "conditions": conditions })
    }

    fn condition(type_: &str, reason: &str) -> Value {
        json!({ "type": type_, "status": "True", "reason": reason })
    }

    #[test]
    fn a_job_that_vanished_is_counted_also_if_its_run_ended_well() {
        let warning = condition("Warning", "JobMissing");
        let well = json!([warning, condition("Succeeded", "Completed")]);

        assert_eq!(
            missing(&[status("Running", &json!([])), status("Succeeded", &well)]),
            ["{phase=\"Succeeded\",reason=\"JobMissing\"} 1"]
        );
    }

    #[test]
    fn each_job_that_vanished_is_counted_whether_or_not_the_one_before_is_still_told() {
        let warning = |status: &str, job: &str, rest: &str| {
            let message = format!("Job {job} is gone{rest}");
            json!([{ "type": "Warning", "status": status, "reason": "WorkflowJobMissing", "message": message }])
        };
        let told = [
            warning("True", "a-step-1-attempt-1", "; its pod is being stopped"),
            warning("True", "a-step-1-attempt-1", ", and nothing is left of it"),
            warning("False", "a-step-1-attempt-1", ", and nothing is left of it"),
            warning("True", "a-step-1-attempt-2", ", and nothing is left of it"),
            // This one went before anything was told of it.
            warning("True", "a-step-1-attempt-3", ", and nothing is left of it"),
        ];

        assert_eq!(
            missing(&told.map(|conditions| status("Running", &conditions))),
            ["{phase=\"Running\",reason=\"WorkflowJobMissing\"} 3"]
        );
    }

    #[test]
    fn a_job_that_vanished_is_counted_once_and_when_it_is_noticed() {
        let warning = condition("Warning", "WorkflowJobDeleted");
        let failed = json!([warning, condition("Failed", "WorkflowJobDeleted")]);

        assert_eq!(
            missing(&[
                status("Running", &json!([])),
                status("Running", &json!([warning])),
                status("Failed", &failed),
                status("Failed", &failed),
            ]),
            ["{phase=\"Running\",reason=\"WorkflowJobDeleted\"} 1"]
        );
    }
}
