//! The effects of OrchestrationRuns: the runs that do the work of their steps, and the signals that they wait for.

use std::fmt;

use jangar_api::{
    agents::agent_run::AgentRun,
    labels,
    orchestration::orchestration_run::OrchestrationRun,
    signals::{ConsumedBy, SignalDelivery},
    tools::ToolRun,
};
use jangar_engine::decision::{ChildId, ChildKind, NewChild, ObjectId};
use jiff::Timestamp;
use kube::{Api, api::Patch, core::Status};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    caches::Cached,
    driver::{Context, ReconcileError, Work},
    effects::{Outcome, find_out, passing, patching, post, refusal, status},
    lease::WriteError,
    metrics::Verb,
};

/// Creates the child of a step. If there is one of that name already, it is looked at.
pub(crate) async fn create(
    context: &Context,
    namespace: &str,
    child: &NewChild,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    match child {
        NewChild::AgentRun(run) => create_one(context, namespace, ChildKind::AgentRun, run, work).await,
        NewChild::ToolRun(run) => create_one(context, namespace, ChildKind::ToolRun, run, work).await,
        NewChild::OrchestrationRun(run) => {
            create_one(context, namespace, ChildKind::OrchestrationRun, run, work).await
        }
    }
}

async fn create_one<K: Cached + Serialize + fmt::Debug>(
    context: &Context,
    namespace: &str,
    kind: ChildKind,
    child: &K,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<K>::namespaced(context.client.clone(), namespace);
    let name = child.meta().name.clone().unwrap_or_default();
    match context
        .write::<K, _>(Verb::Create, api.create(&post(), child))
        .await
    {
        Ok(child) => {
            work.wrote(child);
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_already_exists) => {
            find_out::<K>(context, namespace, &name, work).await
        }
        // One that is not let in now may be later: the plan says so, and the rest of the run goes on.
        Err(error) => match refusal(&error).or_else(|| passing(&error, work.failures)) {
            Some(refusal) => {
                work.learned.child_refusals.insert((kind, name), refusal);
                Ok(Outcome::Refused)
            }
            None => Err(ReconcileError::write(format!("create {kind}"), error)),
        },
    }
}

/// Asks a run to stop.
pub(crate) async fn cancel(
    context: &Context,
    namespace: &str,
    child: &ChildId,
    reason: &str,
    deadline: Option<Timestamp>,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let told = [
        deadline.map(|at| (labels::CANCEL_DEADLINE.to_owned(), json!(at.to_string()))),
        child
            .parent
            .as_ref()
            .map(|parent| (labels::STOPPED_BY.to_owned(), json!(parent))),
    ];
    let annotations: serde_json::Map<String, Value> = told.into_iter().flatten().collect();
    let patch = json!({
        "metadata": {"uid": child.id.uid, "annotations": annotations},
        "spec": {"cancel": true, "cancelReason": reason},
    });
    merge_child(context, namespace, child, patch, work).await
}

/// Takes our finalizer away, from this very run with these very finalizers.
pub(crate) async fn release(
    context: &Context,
    namespace: &str,
    child: &ChildId,
    finalizers: &[String],
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let others: Vec<&String> = finalizers
        .iter()
        .filter(|name| *name != labels::RUNTIME_CLEANUP_FINALIZER)
        .collect();
    let path = "/metadata/finalizers";
    let change = if others.is_empty() {
        json!({"op": "remove", "path": path})
    } else {
        json!({"op": "replace", "path": path, "value": others})
    };
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": child.id.uid},
        {"op": "test", "path": path, "value": finalizers},
        change,
    ]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(operations)?);
    match child.kind {
        ChildKind::AgentRun => patch_one::<AgentRun, _>(context, namespace, &child.id, &patch, work).await,
        ChildKind::ToolRun => patch_one::<ToolRun, _>(context, namespace, &child.id, &patch, work).await,
        ChildKind::OrchestrationRun => {
            patch_one::<OrchestrationRun, _>(context, namespace, &child.id, &patch, work).await
        }
    }
}

async fn merge_child(
    context: &Context,
    namespace: &str,
    child: &ChildId,
    patch: Value,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let patch = Patch::Merge(patch);
    match child.kind {
        ChildKind::AgentRun => patch_one::<AgentRun, _>(context, namespace, &child.id, &patch, work).await,
        ChildKind::ToolRun => patch_one::<ToolRun, _>(context, namespace, &child.id, &patch, work).await,
        ChildKind::OrchestrationRun => {
            patch_one::<OrchestrationRun, _>(context, namespace, &child.id, &patch, work).await
        }
    }
}

async fn patch_one<K: Cached, P: Serialize + fmt::Debug>(
    context: &Context,
    namespace: &str,
    id: &ObjectId,
    patch: &Patch<P>,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<K>::namespaced(context.client.clone(), namespace);
    let request = async { api.patch(&id.name, &patching(), patch).await };
    answered::<K>(
        context,
        namespace,
        id,
        context.write::<K, _>(Verb::Patch, request).await,
        work,
    )
    .await
}

async fn answered<K: Cached>(
    context: &Context,
    namespace: &str,
    id: &ObjectId,
    answer: Result<K, WriteError>,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    match answer {
        Ok(object) => {
            let held = object.meta().finalizers.iter().flatten().next().is_some();
            if object.meta().deletion_timestamp.is_some() && !held {
                // Ours was the last finalizer on an object that was deleted: this patch made it go.
                work.went::<K>(namespace, id);
            } else {
                work.wrote(object);
            }
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_not_found) => {
            work.went::<K>(namespace, id);
            Ok(Outcome::Otherwise)
        }
        // A test of a JSON patch that does not hold makes the patch invalid.
        Err(error) if status(&error).is_some_and(|status| status.is_conflict() || status.code == 422) => {
            find_out::<K>(context, namespace, &id.name, work).await
        }
        Err(error) => Err(ReconcileError::write(format!("change {}", K::KIND), error)),
    }
}

/// Says which step a delivery released, if it is still the version that was looked at.
pub(crate) async fn consume(
    context: &Context,
    namespace: &str,
    delivery: &ObjectId,
    version: &str,
    by: &ConsumedBy,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<SignalDelivery>::namespaced(context.client.clone(), namespace);
    let patch = Patch::Merge(json!({
        "metadata": {"uid": delivery.uid, "resourceVersion": version},
        "status": {"consumedBy": by},
    }));
    let request = async { api.patch_status(&delivery.name, &patching(), &patch).await };
    let answer = context.write::<SignalDelivery, _>(Verb::Patch, request).await;
    answered::<SignalDelivery>(context, namespace, delivery, answer, work).await
}

/// Marks a run that waits for an approval, or takes the mark away.
pub(crate) async fn mark_approval(
    context: &Context,
    namespace: &str,
    run: &ObjectId,
    pending: bool,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let value = if pending { json!("pending") } else { Value::Null };
    let patch = json!({"metadata": {"uid": run.uid, "labels": {labels::APPROVAL: value}}});
    patch_one::<OrchestrationRun, _>(context, namespace, run, &Patch::Merge(patch), work).await
}
