//! What is remembered of a run, as callers get it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use jangar_api::{
    Kind,
    phase::{RunPhase, StepPhase},
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{Error, LogTailInfo};

/// The kinds that are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum RunKind {
    AgentRun,
    OrchestrationRun,
    ToolRun,
}

impl RunKind {
    pub const ALL: &'static [Self] = &[Self::AgentRun, Self::OrchestrationRun, Self::ToolRun];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentRun => "AgentRun",
            Self::OrchestrationRun => "OrchestrationRun",
            Self::ToolRun => "ToolRun",
        }
    }
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RunKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|kind| kind.as_str() == text);
        found.copied().ok_or_else(|| Error::Query {
            field: "kind",
            value: text.to_owned(),
            why: "give AgentRun, OrchestrationRun or ToolRun".to_owned(),
        })
    }
}

impl From<RunKind> for Kind {
    fn from(kind: RunKind) -> Self {
        match kind {
            RunKind::AgentRun => Self::AgentRun,
            RunKind::OrchestrationRun => Self::OrchestrationRun,
            RunKind::ToolRun => Self::ToolRun,
        }
    }
}

/// A run as a line of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    pub uid: String,
    pub kind: RunKind,
    /// Which cluster it ran in, as whoever archived it calls that.
    pub cluster: String,
    pub namespace: String,
    pub name: String,
    /// Name of the Agent, Orchestration or Tool.
    pub subject: String,
    pub phase: RunPhase,
    /// Why it is in that phase, in one word.
    pub reason: Option<String>,
    /// The same in words.
    pub message: Option<String>,
    pub priority: i64,
    /// The type of its runtime, for an AgentRun.
    pub runtime: Option<String>,
    /// UID of the OrchestrationRun it was a step of.
    pub parent: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// When it was last written here.
    pub archived_at: Timestamp,
    pub labels: BTreeMap<String, String>,
}

/// A run with its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub summary: RunSummary,
    /// The object as it was last seen, without secrets: apiVersion, kind, metadata, spec and status.
    pub document: Value,
    /// Whether something of it was too long to be kept whole.
    pub document_cut: bool,
}

/// A step of a workflow or of an orchestration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its number in the order of the spec, from zero.
    pub position: i64,
    pub name: String,
    /// What it runs, in an orchestration.
    pub kind: Option<String>,
    pub phase: StepPhase,
    pub reason: Option<String>,
    pub message: Option<String>,
    /// The step that made it be skipped.
    pub caused_by: Option<String>,
    pub attempt: Option<i64>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Name of the run or Job that did it.
    pub child: Option<String>,
    pub child_uid: Option<String>,
}

/// Something that became otherwise at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    pub at: Timestamp,
    /// Empty for the run, else the name of a step.
    pub subject: String,
    /// Type of a condition, or `Phase`.
    pub what: String,
    /// What it became: `True`, `False`, `Unknown`, or a phase.
    pub became: String,
    pub reason: String,
    pub message: String,
}

/// A decision of a person about a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub step: String,
    /// `Approved` or `Denied`.
    pub decision: String,
    pub by: String,
    pub groups: Vec<String>,
    pub at: Option<Timestamp>,
    pub comment: Option<String>,
    /// What was approved, as a hash.
    pub digest: String,
}

/// What became of a child when its run was cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelReceipt {
    pub step: String,
    /// Kind and name of the child.
    pub resource: Option<String>,
    pub asked_at: Option<Timestamp>,
    pub gone_at: Option<Timestamp>,
    pub result: Option<String>,
}

/// Where something that the run left behind is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactReference {
    pub name: String,
    pub path: Option<String>,
    pub key: Option<String>,
    pub url: Option<String>,
}

/// Everything that is remembered of one run, but for the texts of its logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    pub run: Run,
    pub steps: Vec<Step>,
    /// In the order of time.
    pub transitions: Vec<Transition>,
    pub approvals: Vec<Approval>,
    pub cancel_receipts: Vec<CancelReceipt>,
    pub artifacts: Vec<ArtifactReference>,
    pub logs: Vec<LogTailInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_that_are_remembered_are_the_runs() {
        let runs: Vec<Kind> = RunKind::ALL.iter().map(|kind| Kind::from(*kind)).collect();
        let all: Vec<Kind> = Kind::ALL.iter().copied().filter(|kind| kind.is_run()).collect();
        assert_eq!(runs, all);
        for kind in RunKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
            assert_eq!(Kind::from(*kind).info().kind, kind.as_str());
        }
        assert!("Agent".parse::<RunKind>().is_err());
    }
}
