//! What is written of Jobs that Kubernetes leaves to us: their pods, and what became of these.

use jangar_api::labels;
use jangar_engine::decision::{HeldPod, ObjectId, Refusal, Settlement};
use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kube::{Api, ResourceExt, api::Patch, core::Status};
use serde_json::{Value, json};

use crate::{
    driver::{Context, ReconcileError, Work},
    effects::{self, Outcome, find_out, patching, post, refused_or, status},
    lease::WriteError,
    metrics::Verb,
};

/// Makes the pod of a Job. One of that name is the one that was to be made if the same Job controls it.
pub(crate) async fn create_pod(
    context: &Context,
    namespace: &str,
    pod: &Pod,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<Pod>::namespaced(context.client.clone(), namespace);
    match context
        .write::<Pod, _>(Verb::Create, api.create(&post(), pod))
        .await
    {
        Ok(pod) => {
            work.wrote(pod);
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_already_exists) => {
            let name = pod.name_any();
            find_out::<Pod>(context, namespace, &name, work).await?;
            let known = work.learned.pods.seen(&name);
            if known.is_some_and(|known| controller(known) != controller(pod)) {
                work.learned.refusal = Some(Refusal {
                    code: 409,
                    message: format!(
                        "there is a pod of the name {name} that belongs to something else: delete it"
                    ),
                });
                return Ok(Outcome::Refused);
            }
            Ok(Outcome::Otherwise)
        }
        Err(error) => refused_or(error, "create a pod", work),
    }
}

/// The UID of the Job that controls a pod.
fn controller(pod: &Pod) -> Option<&String> {
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(&owner.uid)
}

/// Writes into the status of a Job what became of its pod. Nothing of ours hangs on it: the run has the result. If the API server
/// will not have it, whatever comes next matters more.
pub(crate) async fn tell(
    context: &Context,
    namespace: &str,
    id: &ObjectId,
    told: &JobStatus,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<Job>::namespaced(context.client.clone(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"uid": id.uid}, "status": told}));
    match context
        .write::<Job, _>(Verb::Patch, api.patch_status(&id.name, &patching(), &patch))
        .await
    {
        Ok(job) => {
            work.wrote(job);
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_not_found) => {
            work.went::<Job>(namespace, id);
            Ok(Outcome::Otherwise)
        }
        // Another Job may have the name by now.
        Err(error) if is_another(&error, id) => find_out::<Job>(context, namespace, &id.name, work).await,
        Err(error) if status(&error).is_some_and(|status| matches!(status.code, 400 | 403 | 413 | 422)) => {
            tracing::warn!(job = %id.name, namespace, %error, "the API server refuses the status of a Job, which will not say how it went");
            Ok(Outcome::Unheard)
        }
        Err(error) => Err(ReconcileError::write("write how a Job stands".to_owned(), error)),
    }
}

/// Whether a write was refused because the object has another UID.
fn is_another(error: &WriteError, id: &ObjectId) -> bool {
    status(error).is_some_and(|status| {
        status.is_conflict() || (status.code == 422 && status.message.contains(id.uid.0.as_str()))
    })
}

/// Takes our finalizer from pods.
pub(crate) async fn release_pods(
    context: &Context,
    namespace: &str,
    pods: &[HeldPod],
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let mut outcome = Outcome::Already;
    for held in pods {
        match release_pod(context, namespace, held, work).await? {
            Outcome::Otherwise => return Ok(Outcome::Otherwise),
            done => outcome = done,
        }
    }
    Ok(outcome)
}

async fn release_pod(
    context: &Context,
    namespace: &str,
    HeldPod { pod: id, finalizers }: &HeldPod,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let operations = effects::without(id, &[labels::JOB_STATUS_FINALIZER], finalizers);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations))?);
    let api = Api::<Pod>::namespaced(context.client.clone(), namespace);
    match context
        .write::<Pod, _>(Verb::Patch, api.patch(&id.name, &patching(), &patch))
        .await
    {
        Ok(pod) => {
            let held = pod.metadata.finalizers.iter().flatten().next().is_some();
            let over = pod.metadata.deletion_grace_period_seconds == Some(0);
            if pod.metadata.deletion_timestamp.is_some() && over && !held {
                // Its node had stopped it, and ours was the last finalizer: this patch made it go.
                work.went::<Pod>(namespace, id);
            } else {
                work.wrote(pod);
            }
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_not_found) => {
            work.went::<Pod>(namespace, id);
            Ok(Outcome::Already)
        }
        // A test of a JSON patch that does not hold makes the patch invalid.
        Err(error) if status(&error).is_some_and(|status| status.is_conflict() || status.code == 422) => {
            find_out::<Pod>(context, namespace, &id.name, work).await
        }
        Err(error) => Err(ReconcileError::write("release a pod".to_owned(), error)),
    }
}

/// Says how a Job ended, and lets its pods go. In this order: nothing may take a pod away of which nothing tells.
pub(crate) async fn settle(
    context: &Context,
    namespace: &str,
    job: &ObjectId,
    settlement: &Settlement,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let told = match &settlement.status {
        Some(status) => tell(context, namespace, job, status, work).await?,
        None => Outcome::Already,
    };
    if told == Outcome::Otherwise {
        return Ok(told);
    }
    let released = release_pods(context, namespace, &settlement.pods, work).await?;
    Ok(if released == Outcome::Already {
        told
    } else {
        released
    })
}
