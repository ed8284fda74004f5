//! Runs of either kind by one id: found, told in short, cancelled.

use std::sync::Arc;

use jangar_api::{Kind, phase::RunPhase};
use jangar_store::{AuditEntry, AuditFilter, Namespaces, Page, PageRequest, RunFilter, RunKind, RunSummary};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Caller, ControlPlane, FIELD_MANAGER, live,
    objects::{ALL_NAMESPACES, ListQuery, checked_name, checked_namespace},
};
use crate::{
    access::Question,
    audit::Deed,
    history::{ArchivedRun, HistoryError},
    refusal::{Refusal, Trouble, shown},
    told::{PastRun, Time},
    world::{Object, resource, text},
};

/// The kinds that run, in the order in which a name is looked for.
pub const RUN_KINDS: [Kind; 3] = [Kind::AgentRun, Kind::OrchestrationRun, Kind::ToolRun];
/// Who may get this path may read what everybody did.
const AUDIT_PATH: &str = "/v1/audit";
/// The longest reason of a cancel, which stays in the spec of the run.
const REASON_MAX: usize = 1_024;

/// A run, wherever it was found.
#[derive(Clone, Debug)]
pub enum Run {
    Live(Arc<Object>),
    /// Gone from the cluster, and remembered.
    Archived {
        kind: Kind,
        document: Value,
        /// Whether something of it was too long to be kept whole.
        cut: bool,
        /// When it was last seen.
        at: Timestamp,
    },
}

impl Run {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Live(object) => object.kind,
            Self::Archived { kind, .. } => *kind,
        }
    }

    pub fn document(&self) -> &Value {
        match self {
            Self::Live(object) => &object.json,
            Self::Archived { document, .. } => document,
        }
    }

    /// The object, for what can be done only while there is one.
    pub fn live(&self) -> Result<&Arc<Object>, Refusal> {
        match self {
            Self::Live(object) => Ok(object),
            Self::Archived { kind, document, .. } => Err(Refusal::new(
                Trouble::Conflict,
                format!(
                    "{} {} is gone from the cluster, and only its history is there",
                    kind.info().kind,
                    text(document, "/metadata/name").unwrap_or_default()
                ),
            )
            .remedy("submit a new run")),
        }
    }
}

/// A run in short, with the names that earlier versions had in their database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// The UID.
    pub id: Option<String>,
    /// Of an AgentRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// Of an OrchestrationRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestration_name: Option<String>,
    /// Of a ToolRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The key that it was submitted with. A list of history does not tell it.
    pub delivery_id: Option<String>,
    /// The type of the runtime; `workflow` if it has none.
    pub provider: String,
    /// The phase.
    pub status: String,
    /// Why it is in that phase, in one word. Only a list of history tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The name.
    pub external_run_id: Option<String>,
    pub namespace: Option<String>,
    #[schemars(with = "Option<Time>")]
    pub created_at: Option<String>,
    #[schemars(with = "Option<Time>")]
    pub updated_at: Option<String>,
    /// When history last wrote it, in a list of history.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub archived_at: Option<String>,
}

impl RunRecord {
    /// With the name of what a run of this kind is a run of.
    fn of(kind: Kind, subject: Option<String>) -> Self {
        let mut record = Self::default();
        match kind {
            Kind::OrchestrationRun => record.orchestration_name = subject,
            Kind::ToolRun => record.tool_name = subject,
            _ => record.agent_name = subject,
        }
        record
    }
}

/// The run in short.
pub fn record(kind: Kind, run: &Value) -> RunRecord {
    let (subject, key) = match kind {
        Kind::OrchestrationRun => ("/spec/orchestrationRef/name", "/spec/deliveryId"),
        Kind::ToolRun => ("/spec/toolRef/name", "/spec/deliveryId"),
        _ => ("/spec/agentRef/name", "/spec/idempotencyKey"),
    };
    let created = text(run, "/metadata/creationTimestamp");
    let updated = ["/status/updatedAt", "/status/finishedAt", "/status/startedAt"]
        .iter()
        .find_map(|pointer| text(run, pointer))
        .or_else(|| created.clone());
    RunRecord {
        id: text(run, "/metadata/uid"),
        delivery_id: text(run, key),
        provider: text(run, "/spec/runtime/type").unwrap_or_else(|| "workflow".to_owned()),
        status: text(run, "/status/phase").unwrap_or_else(|| "Pending".to_owned()),
        external_run_id: text(run, "/metadata/name"),
        namespace: text(run, "/metadata/namespace"),
        created_at: created,
        updated_at: updated,
        ..RunRecord::of(kind, text(run, subject))
    }
}

/// The same of a run as history lists it.
pub fn remembered(run: &RunSummary) -> RunRecord {
    let updated = run.finished_at.or(run.started_at).unwrap_or(run.created_at);
    RunRecord {
        id: Some(run.uid.clone()),
        provider: run.runtime.clone().unwrap_or_else(|| "workflow".to_owned()),
        status: run.phase.as_str().to_owned(),
        reason: run.reason.clone(),
        message: run.message.clone(),
        external_run_id: Some(run.name.clone()),
        namespace: Some(run.namespace.clone()),
        created_at: Some(run.created_at.to_string()),
        updated_at: Some(updated.to_string()),
        archived_at: Some(run.archived_at.to_string()),
        ..RunRecord::of(run.kind.into(), Some(run.subject.clone()))
    }
}

/// The same as an object, with what a list needs of it.
pub fn remembered_object(kind: Kind, run: &RunSummary) -> Value {
    let subject = match run.kind {
        RunKind::AgentRun => "agentRef",
        RunKind::OrchestrationRun => "orchestrationRef",
        RunKind::ToolRun => "toolRef",
    };
    let info = kind.info();
    let mut object = json!({
        "apiVersion": format!("{}/{}", info.group, info.version),
        "kind": info.kind,
        "metadata": {
            "name": run.name,
            "namespace": run.namespace,
            "uid": run.uid,
            "creationTimestamp": run.created_at.to_string(),
            "labels": run.labels,
        },
        "spec": {subject: {"name": run.subject}},
        "status": {"phase": run.phase.as_str()},
    });
    if let Some(runtime) = &run.runtime {
        object["spec"]["runtime"] = json!({"type": runtime});
    }
    for (field, time) in [("startedAt", run.started_at), ("finishedAt", run.finished_at)] {
        if let Some(time) = time {
            object["status"][field] = json!(time.to_string());
        }
    }
    if let Some(reason) = &run.reason {
        let at = run.finished_at.unwrap_or(run.archived_at);
        object["status"]["conditions"] = json!([{
            "type": run.phase.as_str(), "status": "True", "reason": reason,
            "message": run.message.as_deref().unwrap_or_default(), "lastTransitionTime": at.to_string(),
        }]);
    }
    object
}

fn archived(kind: Kind, run: ArchivedRun) -> Run {
    Run::Archived {
        kind,
        document: run.document,
        cut: run.cut,
        at: run.at,
    }
}

/// What history is asked for a list. It knows fewer filters than the caches.
fn remembered_query(kind: Kind, query: &ListQuery) -> Result<(RunFilter, PageRequest), Refusal> {
    for (field, value) in [
        ("labelSelector", &query.label_selector),
        ("runtime", &query.runtime),
    ] {
        if !value.trim().is_empty() {
            return Err(
                Refusal::field(field, value, "the history cannot be filtered by it")
                    .remedy("filter by phase or by name, or search for words"),
            );
        }
    }
    let given = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let phases = match given(&query.phase) {
        None => Vec::new(),
        Some(word) => {
            let phase = RunPhase::KNOWN
                .iter()
                .find(|phase| phase.as_str().eq_ignore_ascii_case(&word));
            let phase = phase.ok_or_else(|| {
                Refusal::field("phase", &word, "runs have no such phase")
                    .remedy("give Pending, Running, Cancelling, Succeeded, Failed or Cancelled")
            })?;
            vec![phase.clone()]
        }
    };
    let filter = RunFilter {
        namespaces: match query.namespace.trim() {
            ALL_NAMESPACES => Namespaces::All,
            namespace => Namespaces::Only(vec![namespace.to_owned()]),
        },
        kind: Some(match kind {
            Kind::OrchestrationRun => RunKind::OrchestrationRun,
            Kind::ToolRun => RunKind::ToolRun,
            _ => RunKind::AgentRun,
        }),
        phases,
        subject: given(&query.subject),
        text: given(&query.search),
        ..RunFilter::default()
    };
    let page = PageRequest {
        limit: u32::try_from(query.limit()?).unwrap_or(u32::MAX),
        cursor: given(&query.cursor),
    };
    Ok((filter, page))
}

/// What came of asking a run to stop.
#[derive(Clone, Debug)]
pub struct Cancelled {
    pub message: String,
    pub resource: Value,
}

impl ControlPlane {
    /// The run with this UID or, in a namespace, of this name. Whoever may not see it gets the same answer as if there were none.
    pub async fn run(
        &self,
        caller: &Caller,
        id: &str,
        namespace: Option<&str>,
        kind: Option<Kind>,
    ) -> Result<Run, Refusal> {
        let none = || {
            Refusal::new(
                Trouble::NotFound,
                format!("there is no run {} that you may see", shown(id)),
            )
            .remedy("give the UID of a run, or its name together with `namespace`")
        };
        let kinds: Vec<Kind> = RUN_KINDS
            .into_iter()
            .filter(|one| kind.is_none_or(|kind| kind == *one))
            .collect();
        let mut found: Vec<Run> = kinds
            .iter()
            .filter_map(|kind| self.world.by_uid(*kind, id))
            .map(Run::Live)
            .collect();
        if found.is_empty() {
            let namespace = self.namespace(namespace)?;
            let named = kinds
                .iter()
                .filter_map(|kind| self.world.get(*kind, &namespace, id));
            found.extend(named.map(Run::Live));
            if found.is_empty() {
                // One that was made a moment ago, perhaps by another replica, is not one that is gone.
                found.extend(self.made_lately(&kinds, &namespace, id).await?);
            }
            if found.is_empty() {
                found.extend(self.archived(&kinds, &namespace, id).await?);
            }
        }
        let live = found.iter().any(|run| matches!(run, Run::Live(_)));
        let mut seen = Vec::new();
        for run in found {
            let document = run.document();
            let namespace = text(document, "/metadata/namespace").unwrap_or_default();
            let name = text(document, "/metadata/name").unwrap_or_default();
            let question = Question::get(run.kind(), &namespace, &name);
            if self.gatekeeper.may(&caller.identity, &question).await? {
                seen.push(run);
            }
        }
        if seen.len() > 1 {
            let kinds: Vec<&str> = seen.iter().map(|run| run.kind().info().kind.as_str()).collect();
            return Err(Refusal::new(
                Trouble::Conflict,
                format!("several runs are called {}: {}", shown(id), kinds.join(", ")),
            )
            .named("kind")
            .remedy("say which one with `kind`, or give its UID"));
        }
        if seen.is_empty() && live {
            // While the database is away, who may not see a run learns no more than if there were none.
            self.archived(&kinds, &self.namespace(namespace)?, id).await?;
        }
        seen.pop().ok_or_else(none)
    }

    /// Runs of this name that the caches do not show yet.
    async fn made_lately(&self, kinds: &[Kind], namespace: &str, id: &str) -> Result<Vec<Run>, Refusal> {
        if checked_name("name", id).is_err() {
            return Ok(Vec::new());
        }
        let mut runs = Vec::new();
        for kind in kinds {
            runs.extend(self.seen(*kind, namespace, id).await?.map(Run::Live));
        }
        Ok(runs)
    }

    async fn archived(&self, kinds: &[Kind], namespace: &str, id: &str) -> Result<Vec<Run>, Refusal> {
        let Some(history) = &self.history else {
            return Ok(Vec::new());
        };
        let failed = |error: HistoryError| error.refusal("the run is not in the cluster");
        if let Some(run) = history.run(id).await.map_err(failed)? {
            let named = text(&run.document, "/kind").unwrap_or_default();
            let kind = kinds.iter().find(|wanted| wanted.info().kind == named);
            return Ok(kind.map(|kind| archived(*kind, run)).into_iter().collect());
        }
        checked_namespace(namespace)?;
        let mut runs = Vec::new();
        for kind in kinds {
            let run = history.run_named(*kind, namespace, id).await.map_err(failed)?;
            runs.extend(run.map(|run| archived(*kind, run)));
        }
        Ok(runs)
    }

    /// All that history has of a run that is gone: its steps, what changed when and why, decisions, receipts, artifacts, and
    /// which logs are there.
    pub async fn history_of(&self, run: &Run) -> Result<Option<PastRun>, Refusal> {
        let (Run::Archived { document, .. }, Some(history)) = (run, &self.history) else {
            return Ok(None);
        };
        let uid = text(document, "/metadata/uid").unwrap_or_default();
        let page = history.page(&uid).await;
        let page = page.map_err(|error| error.refusal("the run is gone from the cluster"))?;
        Ok(page.map(PastRun::from))
    }

    /// A page of the runs of a kind that history has, whether or not they are in the cluster.
    pub async fn remembered_runs(
        &self,
        caller: &Caller,
        kind: Kind,
        query: &ListQuery,
    ) -> Result<Page<RunSummary>, Refusal> {
        let (filter, page) = remembered_query(kind, query)?;
        let namespace = Some(query.namespace.as_str()).filter(|name| *name != ALL_NAMESPACES);
        self.require_list(caller, kind, namespace).await?;
        let history = self.history.as_ref().ok_or_else(|| {
            Refusal::new(
                Trouble::BadRequest,
                "no database is configured, so that there is no history",
            )
            .named("archived")
            .remedy("set DATABASE_URL, or leave `archived` out to list what is in the cluster")
        })?;
        let found = history.runs(&filter, &page).await;
        found.map_err(|error| error.refusal("runs that are gone are asked for"))
    }

    /// A page of what everybody did. It tells of all namespaces, so that it takes a right of its own.
    pub async fn audit_entries(
        &self,
        caller: &Caller,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, Refusal> {
        let question = Question::Path(AUDIT_PATH.to_owned());
        self.gatekeeper.require(&caller.identity, &question).await?;
        let history = self.history.as_ref().ok_or_else(|| {
            Refusal::new(
                Trouble::BadRequest,
                "no database is configured, so that only the log has the audit",
            )
            .remedy("set DATABASE_URL, or look for the target jangar::audit in the log")
        })?;
        let found = history.audited(filter, page).await;
        found.map_err(|error| error.refusal("the audit is in the log"))
    }

    /// Asks a run to stop, as the caller. One that has ended keeps its end.
    pub async fn cancel(
        &self,
        caller: &Caller,
        run: &Object,
        reason: Option<&str>,
    ) -> Result<Cancelled, Refusal> {
        let kind = run.kind;
        let word = run.phase.clone().unwrap_or_default();
        if matches!(word.as_str(), "Succeeded" | "Failed" | "Cancelled") {
            return Ok(Cancelled {
                message: format!("it has ended already: {word}"),
                resource: run.json.clone(),
            });
        }
        let mut spec = json!({"cancel": true});
        if let Some(reason) = reason.map(str::trim).filter(|reason| !reason.is_empty()) {
            spec["cancelReason"] = json!(reason.chars().take(REASON_MAX).collect::<String>());
        }
        let deed = Deed {
            action: match kind {
                Kind::OrchestrationRun => "orchestration_run.cancelled",
                Kind::ToolRun => "tool_run.cancelled",
                _ => "agent_run.cancelled",
            },
            kind,
            namespace: run.namespace.clone(),
            name: run.name.clone(),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(caller.identity.client(), &run.namespace, &resource(kind));
        // The UID keeps another run of the same name from being cancelled instead.
        let patch = json!({"metadata": {"uid": run.uid}, "spec": spec});
        let name = run.name.clone();
        let work = async move {
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            live(api.patch(&name, &params, &Patch::Merge(&patch))).await
        };
        let object = self.audited(caller, deed, work).await?;
        Ok(Cancelled {
            message: "it is asked to stop; it has when its phase is Cancelled".to_owned(),
            resource: self.read(kind, object).json,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_the_names_of_earlier_versions() {
        let run = json!({
            "metadata": {"uid": "u", "name": "r", "namespace": "a", "creationTimestamp": "2026-03-01T12:00:00Z"},
            "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"}, "idempotencyKey": "k"},
            "status": {"phase": "Running", "startedAt": "2026-03-01T12:00:05Z"},
        });
        assert_eq!(
            json!(record(Kind::AgentRun, &run)),
            json!({
                "id": "u", "agentName": "coder", "deliveryId": "k", "provider": "job", "status": "Running",
                "externalRunId": "r", "namespace": "a", "createdAt": "2026-03-01T12:00:00Z",
                "updatedAt": "2026-03-01T12:00:05Z",
            })
        );
    }
}
