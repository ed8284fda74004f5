//! Runs of either kind by one id: found, told in short, cancelled.

use std::sync::Arc;

use jangar_api::Kind;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Caller, ControlPlane, FIELD_MANAGER, live, objects::checked_namespace};
use crate::{
    access::Question,
    audit::Deed,
    refusal::{Refusal, Trouble, shown},
    world::{Object, resource, text},
};

/// The kinds that run, in the order in which a name is looked for.
pub const RUN_KINDS: [Kind; 3] = [Kind::AgentRun, Kind::OrchestrationRun, Kind::ToolRun];
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
            Self::Archived { kind, document } => Err(Refusal::new(
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

/// The run in short, with the names that earlier versions had in their database.
pub fn record(kind: Kind, run: &Value) -> Value {
    let (subject, subject_field, key) = match kind {
        Kind::OrchestrationRun => (
            "/spec/orchestrationRef/name",
            "orchestrationName",
            "/spec/deliveryId",
        ),
        Kind::ToolRun => ("/spec/toolRef/name", "toolName", "/spec/deliveryId"),
        _ => ("/spec/agentRef/name", "agentName", "/spec/idempotencyKey"),
    };
    let provider = text(run, "/spec/runtime/type").unwrap_or_else(|| "workflow".to_owned());
    let updated = ["/status/updatedAt", "/status/finishedAt", "/status/startedAt"]
        .iter()
        .find_map(|pointer| text(run, pointer))
        .or_else(|| text(run, "/metadata/creationTimestamp"));
    json!({
        "id": text(run, "/metadata/uid"),
        subject_field: text(run, subject),
        "deliveryId": text(run, key),
        "provider": provider,
        "status": text(run, "/status/phase").unwrap_or_else(|| "Pending".to_owned()),
        "externalRunId": text(run, "/metadata/name"),
        "namespace": text(run, "/metadata/namespace"),
        "createdAt": text(run, "/metadata/creationTimestamp"),
        "updatedAt": updated,
    })
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
                found.extend(self.archived(&kinds, &namespace, id).await?);
            }
        }
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
        seen.pop().ok_or_else(none)
    }

    async fn archived(&self, kinds: &[Kind], namespace: &str, id: &str) -> Result<Vec<Run>, Refusal> {
        let Some(history) = &self.history else {
            return Ok(Vec::new());
        };
        let failed = |error: crate::history::HistoryError| {
            Refusal::unavailable(format!(
                "the run is not in the cluster, and the history cannot be read: {error}"
            ))
        };
        let is_wanted = |document: &Value| {
            let kind = text(document, "/kind")?;
            kinds.iter().copied().find(|wanted| wanted.info().kind == kind)
        };
        if let Some(document) = history.run(id).await.map_err(failed)? {
            let kind = is_wanted(&document);
            return Ok(kind
                .map(|kind| Run::Archived { kind, document })
                .into_iter()
                .collect());
        }
        checked_namespace(namespace)?;
        let mut runs = Vec::new();
        for kind in kinds {
            let document = history.run_named(*kind, namespace, id).await.map_err(failed)?;
            runs.extend(document.map(|document| Run::Archived {
                kind: *kind,
                document,
            }));
        }
        Ok(runs)
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
        let work = async {
            let api: Api<DynamicObject> =
                Api::namespaced_with(caller.identity.client(), &run.namespace, &resource(kind));
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            // The UID keeps another run of the same name from being cancelled instead.
            let patch = json!({"metadata": {"uid": run.uid}, "spec": spec});
            live(api.patch(&run.name, &params, &Patch::Merge(&patch))).await
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
            record(Kind::AgentRun, &run),
            json!({
                "id": "u", "agentName": "coder", "deliveryId": "k", "provider": "job", "status": "Running",
                "externalRunId": "r", "namespace": "a", "createdAt": "2026-03-01T12:00:00Z",
                "updatedAt": "2026-03-01T12:00:05Z",
            })
        );
    }
}
