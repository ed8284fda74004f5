//! Why a run waits, or how it ended: what the engine says of it, with what the caches show around it.

use jangar_api::{
    Kind,
    agents::agent_run::AgentRun,
    approvals::ApprovalPolicy,
    orchestration::orchestration_run::OrchestrationRun,
    tools::ToolRun,
};
use jangar_engine::explain::{Context, Explanation, Subject, explain};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Caller, ControlPlane, runs::Run};
use crate::{
    access::Question,
    refusal::{Refusal, Trouble},
    world::{Filter, text},
};

/// Objects of one kind that are looked at. The line that a run stands in is shorter than that, or its place does not matter.
const AROUND_MAX: usize = 2_000;

impl ControlPlane {
    /// Why the run stands where it does.
    pub async fn explain(&self, caller: &Caller, run: &Run) -> Result<Explanation, Refusal> {
        let namespace = text(run.document(), "/metadata/namespace").unwrap_or_default();
        let agent_runs: Vec<AgentRun> = self.around(caller, Kind::AgentRun, &namespace).await?;
        let tool_runs: Vec<ToolRun> = self.around(caller, Kind::ToolRun, &namespace).await?;
        let orchestration_runs: Vec<OrchestrationRun> =
            self.around(caller, Kind::OrchestrationRun, &namespace).await?;
        let policies: Vec<ApprovalPolicy> = self.around(caller, Kind::ApprovalPolicy, &namespace).await?;
        let context = Context {
            agent_runs: agent_runs.iter().collect(),
            tool_runs: tool_runs.iter().collect(),
            orchestration_runs: orchestration_runs.iter().collect(),
            policies: policies.iter().collect(),
            position: None,
        };
        let now = self.now();
        match run.kind() {
            Kind::OrchestrationRun => {
                let run = readable(run.document())?;
                Ok(explain(Subject::OrchestrationRun(&run), &context, now))
            }
            Kind::ToolRun => {
                let run = readable(run.document())?;
                Ok(explain(Subject::ToolRun(&run), &context, now))
            }
            _ => {
                let run = readable(run.document())?;
                Ok(explain(Subject::AgentRun(&run), &context, now))
            }
        }
    }

    /// What is there beside the run, as far as the caller may list it: the answer names nothing that they may not see.
    async fn around<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
    ) -> Result<Vec<T>, Refusal> {
        let question = Question::list(kind, namespace);
        if !self.gatekeeper.may(&caller.identity, &question).await? {
            return Ok(Vec::new());
        }
        let filter = Filter {
            namespace: Some(namespace.to_owned()),
            ..Filter::default()
        };
        let objects = self.world.list(kind, &filter, None, AROUND_MAX);
        // One that cannot be read says nothing about another.
        let read = |json: &Value| serde_json::from_value(json.clone()).ok();
        Ok(objects.iter().filter_map(|object| read(&object.json)).collect())
    }
}

fn readable<T: DeserializeOwned>(document: &Value) -> Result<T, Refusal> {
    serde_json::from_value(document.clone()).map_err(|error| {
        Refusal::new(Trouble::Conflict, format!("the run cannot be read: {error}"))
            .remedy("mend the field that is named, or delete the run")
    })
}
