//! What history and the engine know, as callers are told it and as the OpenAPI document describes it.
//!
//! The types of other crates carry no schema, so that these repeat them. Each is made from the whole of the other: a field that
//! comes there and is forgotten here does not compile.

use jangar_api::phase::StepPhase;
use jangar_engine::explain;
use jangar_store::{
    Approval, ArtifactReference, AuditEntry, AuditOutcome, CancelReceipt, LogTailInfo, RunPage, Step,
    Transition,
};
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

/// How a time is described: it is written as text.
pub(crate) struct Time;

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// A type that repeats another one, field by field.
macro_rules! repeated {
    ($(#[$of_type:meta])* $name:ident = $source:path { $($(#[$of_field:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of_type])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl From<$source> for $name {
            fn from(source: $source) -> Self {
                let $source { $($field,)* } = source;
                Self { $($field,)* }
            }
        }
    };
}

repeated! {
    /// A step of a workflow or of an orchestration, as history has it.
    PastStep = Step {
        /// Its number in the order of the spec, from zero.
        position: i64,
        name: String,
        /// What it runs, in an orchestration.
        kind: Option<String>,
        phase: StepPhase,
        reason: Option<String>,
        message: Option<String>,
        /// The step that made it be skipped.
        caused_by: Option<String>,
        attempt: Option<i64>,
        #[schemars(with = "Option<Time>")]
        started_at: Option<Timestamp>,
        #[schemars(with = "Option<Time>")]
        finished_at: Option<Timestamp>,
        /// Name of the run or Job that did it.
        child: Option<String>,
        child_uid: Option<String>,
    }
}

repeated! {
    /// Something that became otherwise at a time.
    PastTransition = Transition {
        #[schemars(with = "Time")]
        at: Timestamp,
        /// Empty for the run, else the name of a step.
        subject: String,
        /// Type of a condition, or `Phase`.
        what: String,
        /// What it became: `True`, `False`, `Unknown`, or a phase.
        became: String,
        reason: String,
        message: String,
    }
}

repeated! {
    /// A decision of a person about a gate, as history has it.
    PastApproval = Approval {
        step: String,
        /// `Approved` or `Denied`.
        decision: String,
        by: String,
        groups: Vec<String>,
        #[schemars(with = "Option<Time>")]
        at: Option<Timestamp>,
        comment: Option<String>,
        /// What was decided, as a hash.
        digest: String,
    }
}

repeated! {
    /// What became of a child when its run was cancelled.
    PastCancelReceipt = CancelReceipt {
        step: String,
        /// Kind and name of the child.
        resource: Option<String>,
        #[schemars(with = "Option<Time>")]
        asked_at: Option<Timestamp>,
        #[schemars(with = "Option<Time>")]
        gone_at: Option<Timestamp>,
        result: Option<String>,
    }
}

repeated! {
    /// Where something is that the run left behind.
    PastArtifact = ArtifactReference {
        name: String,
        path: Option<String>,
        key: Option<String>,
        url: Option<String>,
    }
}

repeated! {
    /// What is known of the end of a log, without its text.
    PastLog = LogTailInfo {
        run_uid: String,
        step: String,
        attempt: i64,
        pod: String,
        container: String,
        /// Whether only the end is there.
        cut: bool,
        total_bytes: Option<i64>,
        #[schemars(with = "Time")]
        taken_at: Timestamp,
        #[schemars(with = "Time")]
        expires_at: Timestamp,
    }
}

/// All that history has of a run that is gone, beside the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastRun {
    /// When it was last written.
    #[schemars(with = "Time")]
    pub archived_at: Timestamp,
    /// Which cluster it ran in, as whoever archived it calls that.
    pub cluster: String,
    /// Whether something of the object was too long to be kept whole.
    pub cut: bool,
    pub steps: Vec<PastStep>,
    /// In the order of time.
    pub transitions: Vec<PastTransition>,
    pub approvals: Vec<PastApproval>,
    pub cancel_receipts: Vec<PastCancelReceipt>,
    pub artifacts: Vec<PastArtifact>,
    pub logs: Vec<PastLog>,
}

impl From<RunPage> for PastRun {
    fn from(page: RunPage) -> Self {
        let RunPage {
            run,
            steps,
            transitions,
            approvals,
            cancel_receipts,
            artifacts,
            logs,
        } = page;
        Self {
            archived_at: run.summary.archived_at,
            cluster: run.summary.cluster,
            cut: run.document_cut,
            steps: steps.into_iter().map(PastStep::from).collect(),
            transitions: transitions.into_iter().map(PastTransition::from).collect(),
            approvals: approvals.into_iter().map(PastApproval::from).collect(),
            cancel_receipts: cancel_receipts.into_iter().map(PastCancelReceipt::from).collect(),
            artifacts: artifacts.into_iter().map(PastArtifact::from).collect(),
            logs: logs.into_iter().map(PastLog::from).collect(),
        }
    }
}

/// How something that was asked for went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Outcome {
    /// It was done.
    Allowed,
    /// The caller may not do that.
    Denied,
    /// The caller may, and it failed.
    Failed,
}

/// One thing that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    pub id: String,
    #[schemars(with = "Time")]
    pub at: Timestamp,
    /// Who it was, as the API server knows them.
    pub actor: String,
    pub actor_groups: Vec<String>,
    /// The address they came from.
    pub source: String,
    /// For example `agent_run.created`.
    pub action: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
    pub outcome: Outcome,
    /// More about it, in any form.
    pub detail: Value,
}

impl From<AuditEntry> for AuditRecord {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry {
            id,
            at,
            actor,
            actor_groups,
            source,
            action,
            kind,
            namespace,
            name,
            uid,
            outcome,
            detail,
        } = entry;
        Self {
            id: id.to_string(),
            at,
            actor,
            actor_groups,
            source,
            action,
            kind,
            namespace,
            name,
            uid,
            outcome: match outcome {
                AuditOutcome::Allowed => Outcome::Allowed,
                AuditOutcome::Denied => Outcome::Denied,
                AuditOutcome::Failed => Outcome::Failed,
            },
            detail,
        }
    }
}

repeated! {
    /// A place among those who wait for the same.
    Position = explain::Position {
        /// Counted from one.
        place: u32,
        /// How many wait, if somebody counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        of: Option<u32>,
    }
}

repeated! {
    /// A command for a person.
    Command = explain::Command {
        line: String,
        /// What it does.
        effect: String,
    }
}

/// Where a run stands, as people ask about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Waiting,
    Working,
    /// It is being cancelled or deleted.
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
}

impl From<explain::State> for State {
    fn from(state: explain::State) -> Self {
        match state {
            explain::State::Waiting => Self::Waiting,
            explain::State::Working => Self::Working,
            explain::State::Stopping => Self::Stopping,
            explain::State::Succeeded => Self::Succeeded,
            explain::State::Failed => Self::Failed,
            explain::State::Cancelled => Self::Cancelled,
        }
    }
}

/// Why a run waits, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Kind, namespace and name of the run.
    pub subject: String,
    pub state: State,
    /// The word of the condition that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence: what holds it up or what went wrong, its place, who can change that, and the command that does.
    pub headline: String,
    /// What is known about it, the most important first.
    pub because: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    pub who_can_unblock: String,
    /// The first one is that of the headline.
    pub commands: Vec<Command>,
}

impl From<explain::Explanation> for Explanation {
    fn from(explanation: explain::Explanation) -> Self {
        let explain::Explanation {
            subject,
            state,
            reason,
            headline,
            because,
            position,
            who_can_unblock,
            commands,
        } = explanation;
        Self {
            subject,
            state: state.into(),
            reason,
            headline,
            because,
            position: position.map(Position::from),
            who_can_unblock,
            commands: commands.into_iter().map(Command::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    #[test]
    fn what_is_told_reads_like_what_history_keeps() {
        let step = Step {
            position: 1,
            name: "build".to_owned(),
            kind: Some("AgentRun".to_owned()),
            phase: StepPhase::Succeeded,
            reason: None,
            message: Some("done".to_owned()),
            caused_by: None,
            attempt: Some(2),
            started_at: Some(at()),
            finished_at: None,
            child: Some("r-build-1".to_owned()),
            child_uid: None,
        };
        assert_eq!(json!(PastStep::from(step.clone())), json!(step));
        let log = LogTailInfo {
            run_uid: "u".to_owned(),
            step: String::new(),
            attempt: 1,
            pod: "p".to_owned(),
            container: "c".to_owned(),
            cut: true,
            total_bytes: Some(7),
            taken_at: at(),
            expires_at: at(),
        };
        assert_eq!(json!(PastLog::from(log.clone())), json!(log));
        let entry = AuditEntry {
            id: uuid::Uuid::nil(),
            at: at(),
            actor: "ada".to_owned(),
            actor_groups: vec!["people".to_owned()],
            source: "10.0.0.1".to_owned(),
            action: "agent_run.created".to_owned(),
            kind: "AgentRun".to_owned(),
            namespace: "agents".to_owned(),
            name: "r".to_owned(),
            uid: None,
            outcome: AuditOutcome::Denied,
            detail: json!({"why": "no right"}),
        };
        assert_eq!(json!(AuditRecord::from(entry.clone())), json!(entry));
    }

    #[test]
    fn what_is_told_reads_like_what_the_engine_explains() {
        let explanation = explain::Explanation {
            subject: "AgentRun agents/r".to_owned(),
            state: explain::State::Waiting,
            reason: Some("QueueLimit".to_owned()),
            headline: "AgentRun agents/r waits".to_owned(),
            because: vec!["others came first".to_owned()],
            position: Some(explain::Position {
                place: 3,
                of: Some(5),
            }),
            who_can_unblock: "whoever cancels another".to_owned(),
            commands: vec![explain::Command {
                line: "agentctl top".to_owned(),
                effect: "shows them".to_owned(),
            }],
        };
        assert_eq!(json!(Explanation::from(explanation.clone())), json!(explanation));
    }
}
