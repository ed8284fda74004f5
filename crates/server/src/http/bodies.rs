//! What good answers hold beside `ok`. The handlers write these types, and the OpenAPI document describes them.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    plane::{events::EventRecord, logs::Log, runs::RunRecord, status::Counted},
    told::{AuditRecord, Explanation, PastRun, Time},
    world::Object,
};

/// An object of Kubernetes. Its kind is described by its CustomResourceDefinition, and not once more here.
#[derive(Clone, Debug)]
pub(super) enum KubernetesObject {
    Known(Arc<Object>),
    Document(Value),
}

impl From<Arc<Object>> for KubernetesObject {
    fn from(object: Arc<Object>) -> Self {
        Self::Known(object)
    }
}

impl From<Object> for KubernetesObject {
    fn from(object: Object) -> Self {
        Self::Document(object.json)
    }
}

impl From<Value> for KubernetesObject {
    fn from(document: Value) -> Self {
        Self::Document(document)
    }
}

impl Serialize for KubernetesObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(object) => object.json.serialize(serializer),
            Self::Document(document) => document.serialize(serializer),
        }
    }
}

impl JsonSchema for KubernetesObject {
    fn schema_name() -> Cow<'static, str> {
        "KubernetesObject".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "An object as Kubernetes has it, without managedFields. What spec and status hold, the CustomResourceDefinition \
                            of its kind says.",
            "required": ["apiVersion", "kind", "metadata"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": {"type": "object"},
                "status": {"type": "object"},
            },
        })
    }
}

/// That the program lives.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Alive {
    /// `ok`.
    pub(super) status: &'static str,
    /// `jangar`.
    pub(super) service: &'static str,
}

/// That requests are answered.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ready {
    /// `ready`.
    pub(super) status: &'static str,
    /// What does not keep requests from being answered, and should be known.
    pub(super) notes: Vec<String>,
}

/// One object.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OneObject {
    pub(super) resource: KubernetesObject,
}

/// An object that is deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DeletedObject {
    /// As it was; null if it was gone before anybody could read it.
    pub(super) resource: Option<KubernetesObject>,
}

/// A page of objects of a kind.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectPage {
    pub(super) kind: String,
    pub(super) items: Vec<KubernetesObject>,
    /// What the next request gives as its cursor; null at the end.
    pub(super) next_cursor: Option<String>,
}

/// An AgentRun that was made, now or before with the same key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MadeAgentRun {
    pub(super) agent_run: RunRecord,
    pub(super) resource: KubernetesObject,
    /// Whether the key was used before.
    pub(super) idempotent: bool,
}

/// An OrchestrationRun that was made, now or before with the same key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MadeOrchestrationRun {
    pub(super) orchestration_run: RunRecord,
    pub(super) resource: KubernetesObject,
    /// Whether the key was used before.
    pub(super) idempotent: bool,
}

/// A run of any kind that was made, now or before with the same key.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MadeRun {
    pub(super) run: RunRecord,
    pub(super) resource: KubernetesObject,
    /// Whether the key was used before.
    pub(super) idempotent: bool,
}

/// A page of AgentRuns.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentRunPage {
    pub(super) agent_runs: Vec<RunRecord>,
    /// What the next request gives as its cursor; null at the end.
    pub(super) next_cursor: Option<String>,
}

/// A page of OrchestrationRuns.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OrchestrationRunPage {
    pub(super) orchestration_runs: Vec<RunRecord>,
    /// What the next request gives as its cursor; null at the end.
    pub(super) next_cursor: Option<String>,
}

/// What there is of a run beside its record.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunParts {
    pub(super) resource: KubernetesObject,
    /// Whether it is gone from the cluster, so that the object is what history has of it.
    pub(super) archived: bool,
    /// What else history has of a run that is gone; null for one that is in the cluster.
    pub(super) history: Option<PastRun>,
}

/// One AgentRun.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OneAgentRun {
    pub(super) agent_run: RunRecord,
    #[serde(flatten)]
    pub(super) parts: RunParts,
}

/// One OrchestrationRun.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OneOrchestrationRun {
    pub(super) orchestration_run: RunRecord,
    #[serde(flatten)]
    pub(super) parts: RunParts,
}

/// What a run is a run of.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RunWord {
    Agent,
    Orchestration,
    Tool,
}

/// One run of any kind.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OneRun {
    pub(super) kind: RunWord,
    pub(super) run: RunRecord,
    #[serde(flatten)]
    pub(super) parts: RunParts,
}

/// Why a run waits, or how it ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Explained {
    pub(super) explanation: Explanation,
}

/// What came of asking a run to stop.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CancelledRun {
    pub(super) message: String,
    pub(super) resource: KubernetesObject,
}

/// What a run wrote.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LogAnswer {
    pub(super) log: Log,
}

/// The Events about a run, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunEvents {
    pub(super) events: Vec<EventRecord>,
}

/// The Events about an object, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ObjectEvents {
    pub(super) items: Vec<EventRecord>,
}

/// A Memory in short, with the names that earlier versions had in their database.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemoryRecord {
    /// The UID.
    pub(super) id: String,
    pub(super) memory_name: String,
    pub(super) namespace: String,
    pub(super) provider: Option<String>,
    pub(super) status: Option<String>,
    #[schemars(with = "Option<Time>")]
    pub(super) created_at: Option<String>,
    #[schemars(with = "Option<Time>")]
    pub(super) updated_at: Option<String>,
}

/// One Memory, without what its Secret holds.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OneMemory {
    pub(super) memory: MemoryRecord,
    pub(super) resource: KubernetesObject,
}

/// A page of the audit, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditPage {
    pub(super) entries: Vec<AuditRecord>,
    /// What the next request gives as its cursor; null at the end.
    pub(super) next_cursor: Option<String>,
}

/// What there is in numbers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Summary {
    /// `*` for all of them.
    pub(super) namespace: String,
    /// By kind. A kind that the caller may not list is not among them.
    pub(super) resources: BTreeMap<String, Counted>,
}

/// What came of a delivery.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Delivered {
    /// It is nothing for any source.
    Ignored { ignored: bool, reason: String },
    /// What sources made of it.
    Taken {
        /// Sources that it was given to.
        queued: usize,
        /// Sources that had it before.
        deduped: usize,
        /// Sources whose ImplementationSpec is as the issue is.
        synced: usize,
        /// Sources whose ImplementationSpec was of a later version already.
        outdated: usize,
    },
}
