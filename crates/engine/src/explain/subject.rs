//! What is read from a run, of whichever kind it is.

use std::fmt;

use jangar_api::{
    agents::{agent_run::AgentRun, agent_run_status::RunOutcome},
    condition::{CommonStatus, Condition, ConditionStatus, ConditionType},
    labels,
    orchestration::orchestration_run::OrchestrationRun,
    phase::RunPhase,
    tools::ToolRun,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::reasons::Referred;
use crate::{life::attempt::is_between, orchestration_run::survivors};

/// The run that is asked about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    AgentRun(&'a AgentRun),
    ToolRun(&'a ToolRun),
    OrchestrationRun(&'a OrchestrationRun),
}

impl<'a> From<&'a AgentRun> for Subject<'a> {
    fn from(run: &'a AgentRun) -> Self {
        Self::AgentRun(run)
    }
}

impl<'a> From<&'a ToolRun> for Subject<'a> {
    fn from(run: &'a ToolRun) -> Self {
        Self::ToolRun(run)
    }
}

impl<'a> From<&'a OrchestrationRun> for Subject<'a> {
    fn from(run: &'a OrchestrationRun) -> Self {
        Self::OrchestrationRun(run)
    }
}

impl<'a> Subject<'a> {
    pub(super) const fn metadata(self) -> &'a ObjectMeta {
        match self {
            Self::AgentRun(run) => &run.metadata,
            Self::ToolRun(run) => &run.metadata,
            Self::OrchestrationRun(run) => &run.metadata,
        }
    }
}

/// What every kind of run has, in one form.
pub(super) struct Facts<'a> {
    pub what: Subject<'a>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub phase: Option<&'a RunPhase>,
    pub is_deleting: bool,
    pub cancel_deadline: Option<Timestamp>,
    /// When nothing was left of what had survived a cancel that was given up.
    pub survivors_gone_at: Option<Timestamp>,
    pub outcome: Option<&'a RunOutcome>,
    /// Whether an attempt has failed and the next one has its time.
    pub is_between_attempts: bool,
    common: Option<&'a CommonStatus>,
}

/// As people name a run.
impl fmt::Display for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind(), self.namespace, self.name)
    }
}

impl<'a> Facts<'a> {
    pub(super) fn of(what: Subject<'a>) -> Self {
        let metadata = what.metadata();
        let blank = Self {
            what,
            namespace: metadata.namespace.as_deref().unwrap_or("default"),
            name: metadata.name.as_deref().unwrap_or_default(),
            phase: None,
            is_deleting: metadata.deletion_timestamp.is_some(),
            cancel_deadline: None,
            survivors_gone_at: None,
            outcome: None,
            is_between_attempts: false,
            common: None,
        };
        match what {
            Subject::AgentRun(AgentRun {
                status: Some(status), ..
            }) => Self {
                phase: status.phase.as_ref(),
                cancel_deadline: status.cancel_deadline.map(|at| at.0),
                survivors_gone_at: status.survivors_gone_at.map(|at| at.0),
                outcome: status.outcome.as_ref(),
                is_between_attempts: is_between(status.runtime_ref.as_ref()),
                common: Some(&status.common),
                ..blank
            },
            Subject::ToolRun(ToolRun {
                status: Some(status), ..
            }) => Self {
                phase: status.phase.as_ref(),
                cancel_deadline: status.cancel_deadline.map(|at| at.0),
                survivors_gone_at: status.survivors_gone_at.map(|at| at.0),
                outcome: status.outcome.as_ref(),
                is_between_attempts: is_between(status.runtime_ref.as_ref()),
                common: Some(&status.common),
                ..blank
            },
            Subject::OrchestrationRun(OrchestrationRun {
                status: Some(status), ..
            }) => Self {
                phase: status.phase.as_ref(),
                cancel_deadline: status.cancel_deadline.map(|at| at.0),
                survivors_gone_at: survivors::gone_at(status),
                common: Some(&status.common),
                ..blank
            },
            Subject::AgentRun(_) | Subject::ToolRun(_) | Subject::OrchestrationRun(_) => blank,
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        match self.what {
            Subject::AgentRun(_) => "AgentRun",
            Subject::ToolRun(_) => "ToolRun",
            Subject::OrchestrationRun(_) => "OrchestrationRun",
        }
    }

    pub(super) fn condition(&self, type_: &ConditionType) -> Option<&'a Condition> {
        self.common?.condition(type_)
    }

    /// The condition, if it is true.
    pub(super) fn holds(&self, type_: &ConditionType) -> Option<&'a Condition> {
        self.condition(type_)
            .filter(|condition| condition.status == ConditionStatus::True)
    }

    /// What selects the pods of the run; an orchestration has none of its own.
    pub(super) const fn pod_label(&self) -> Option<&'static str> {
        match self.what {
            Subject::AgentRun(_) => Some(labels::AGENT_RUN),
            Subject::ToolRun(_) => Some(labels::TOOL_RUN),
            Subject::OrchestrationRun(_) => None,
        }
    }

    /// The name of an object of this kind that the run refers to, as far as the run itself tells.
    pub(super) fn refers_to(&self, kind: Referred) -> Option<&'a str> {
        let name = match (self.what, kind) {
            (Subject::AgentRun(run), Referred::Agent) => Some(run.spec.agent_ref.name.as_str()),
            (Subject::AgentRun(run), Referred::ImplementationSpec) => run
                .spec
                .implementation_spec_ref
                .as_ref()
                .map(|reference| reference.name.as_str()),
            (Subject::AgentRun(run), Referred::Memory) => run
                .spec
                .memory_ref
                .as_ref()
                .map(|reference| reference.name.as_str()),
            (Subject::AgentRun(run), Referred::VersionControlProvider) => {
                let status = run.status.as_ref().and_then(|status| status.vcs.as_ref());
                let known = status.and_then(|vcs| vcs.provider.as_deref());
                let named = run.spec.vcs_ref.as_ref().map(|reference| reference.name.as_str());
                known.or(named)
            }
            (Subject::AgentRun(run), Referred::SystemPrompt) => run
                .spec
                .system_prompt_ref
                .as_ref()
                .map(|reference| reference.name.as_str()),
            (Subject::ToolRun(run), Referred::Tool) => Some(run.spec.tool_ref.name.as_str()),
            (Subject::OrchestrationRun(run), Referred::Orchestration) => {
                Some(run.spec.orchestration_ref.name.as_str())
            }
            _ => None,
        };
        name.map(str::trim).filter(|name| !name.is_empty())
    }
}
