//! Carries effects out. Each is one request that is safe to repeat, and its answer is learned; a call of somebody's endpoint
//! is only begun here.

use jangar_api::labels;
use jangar_engine::decision::{Effect, Key, NewJob, ObjectId, Refusal};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, Request, ValidationDirective},
    core::Status,
};
use serde_json::{Value, json};

use crate::{
    caches::Cached,
    children,
    driver::{Context, ReconcileError, Work},
    kept_jobs,
    lease::WriteError,
    live::{self, Holder},
    metrics::{EffectKind, EffectResult, Verb},
    tokens,
};

/// How an effect ended that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// It had been done before, so the plan still holds.
    Already,
    /// The API server will not have what was only told for others to read. The plan still holds, and telling it again would change nothing.
    Unheard,
    /// The world is not as the plan took it to be. What was found instead is learned; the rest of the plan is void.
    Otherwise,
    /// The API server will not have it. Its words are learned, and the rest of the plan is void.
    Refused,
}

impl From<Outcome> for EffectResult {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Already | Outcome::Otherwise => Self::Already,
            Outcome::Refused | Outcome::Unheard => Self::Refused,
        }
    }
}

/// Carries one effect out, in the namespace of the key. `R` is the kind that the key is one of.
pub(crate) async fn carry_out<R: Cached>(
    context: &Context,
    key: &Key,
    effect: &Effect,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let result = send::<R>(context, key, effect, work).await;
    let counted = result
        .as_ref()
        .map_or(EffectResult::Failed, |outcome| EffectResult::from(*outcome));
    context.metrics.effect(effect, counted);
    if let Ok(outcome) = &result {
        context.leisure.after(effect, *outcome);
    }
    tracing::info!(effect = ?EffectKind::from(effect), result = ?counted, "effect");
    result
}

async fn send<R: Cached>(
    context: &Context,
    key: &Key,
    effect: &Effect,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let namespace = &key.namespace;
    match effect {
        Effect::CreateConfigMap(config_map) => create_config_map(context, namespace, config_map, work).await,
        Effect::CreateJob(job) => create_job(context, namespace, job, work).await,
        Effect::StopJob { job } => {
            // In the foreground, because our finalizer would otherwise keep the pods running as long as it stands.
            let params = DeleteParams::foreground();
            delete::<Job>(context, namespace, job, None, params, work).await
        }
        Effect::DeletePod { pod, grace_seconds } => {
            let params = DeleteParams {
                grace_period_seconds: *grace_seconds,
                ..DeleteParams::default()
            };
            delete::<Pod>(context, namespace, pod, None, params, work).await
        }
        Effect::ReleaseJob {
            job,
            finalizers,
            ttl_seconds_after_finished,
            kept,
        } => {
            let told = match kept {
                Some(settlement) => kept_jobs::settle(context, namespace, job, settlement, work).await?,
                None => Outcome::Done,
            };
            // Nothing is left to be done of a Job that will not have its end written.
            if told == Outcome::Otherwise || told == Outcome::Unheard && !labels::is_held(finalizers) {
                return Ok(told);
            }
            let patch = release(job, finalizers, *ttl_seconds_after_finished)?;
            release_job(context, namespace, job, patch, work).await
        }
        Effect::CreatePod(pod) => kept_jobs::create_pod(context, namespace, pod, work).await,
        Effect::TellJob { job, status } => kept_jobs::tell(context, namespace, job, status, work).await,
        Effect::ReleasePods(pods) => kept_jobs::release_pods(context, namespace, pods, work).await,
        Effect::DeleteRun { run, version } => {
            let params = DeleteParams::background();
            delete::<R>(context, namespace, run, Some(version), params, work).await
        }
        Effect::SetFinalizers {
            run,
            version,
            finalizers,
        } => set_finalizers::<R>(context, namespace, run, version, finalizers, work).await,
        Effect::PostCustom(post) => {
            // No write to the cluster, but only who may write begins it.
            if !context.gate.is_open() {
                return Err(ReconcileError::NotLeading);
            }
            context.outside.begin(post, &context.gate)?;
            Ok(Outcome::Done)
        }
        Effect::MintToken(new) => tokens::mint(context, namespace, new, work).await,
        Effect::RevokeToken { secret, run } => tokens::revoke(context, namespace, secret, run.as_ref()).await,
        Effect::CallTemporal(call) => {
            // No write to the cluster, but only who may write begins it.
            if !context.gate.is_open() {
                return Err(ReconcileError::NotLeading);
            }
            context.outside.call_temporal(call)?;
            Ok(Outcome::Done)
        }
        Effect::CreateChild(child) => children::create(context, namespace, child, work).await,
        Effect::CancelChild {
            child,
            reason,
            deadline,
        } => children::cancel(context, namespace, child, reason, *deadline, work).await,
        Effect::ReleaseChild { child, finalizers } => {
            children::release(context, namespace, child, finalizers, work).await
        }
        Effect::ConsumeSignal {
            delivery,
            version,
            by,
        } => children::consume(context, namespace, delivery, version, by, work).await,
        Effect::MarkApproval { run, pending } => {
            children::mark_approval(context, namespace, run, *pending, work).await
        }
    }
}

/// How many effects are sent, or questions asked, at the same time, at most. An API server answers this many of one client
/// without making others wait.
pub(crate) const TOGETHER_MAX: usize = 32;

/// How many of these effects can be carried out at the same time: children have nothing to do with each other.
pub(crate) fn together(effects: &[Effect]) -> usize {
    let of_child = |effect: &&Effect| {
        matches!(
            effect,
            Effect::CreateChild(_) | Effect::CancelChild { .. } | Effect::ReleaseChild { .. }
        )
    };
    effects
        .iter()
        .take(TOGETHER_MAX)
        .take_while(of_child)
        .count()
        .max(1)
}

/// Carries effects out at the same time. The first that was not carried out as it was planned is what it came to.
pub(crate) async fn carry_out_together<R: Cached>(
    context: &Context,
    key: &Key,
    effects: &[Effect],
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    if let [effect] = effects {
        return carry_out::<R>(context, key, effect, work).await;
    }
    let failures = work.failures;
    let each = effects.iter().map(|effect| async move {
        let mut own = Work {
            failures,
            ..Work::default()
        };
        let result = carry_out::<R>(context, key, effect, &mut own).await;
        (own, result)
    });
    let mut outcome = Ok(Outcome::Done);
    for (own, result) in futures::future::join_all(each).await {
        work.absorb(own);
        match result {
            Ok(Outcome::Done | Outcome::Already) => {}
            Ok(other) => outcome = outcome.and(Ok(other)),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

async fn create_config_map(
    context: &Context,
    namespace: &str,
    config_map: &ConfigMap,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), namespace);
    match context
        .write::<ConfigMap, _>(Verb::Create, api.create(&post(), config_map))
        .await
    {
        Ok(_) => Ok(Outcome::Done),
        Err(error) if status(&error).is_some_and(Status::is_already_exists) => {
            match live::holder(context, namespace, config_map).await? {
                // Made for this very attempt, before something went wrong.
                Holder::SameRun => Ok(Outcome::Already),
                Holder::None => Ok(Outcome::Otherwise),
                Holder::Other(occupant) => {
                    work.learned.occupant = Some(occupant);
                    Ok(Outcome::Otherwise)
                }
            }
        }
        Err(error) => refused_or(error, "create a ConfigMap", work),
    }
}

async fn create_job(
    context: &Context,
    namespace: &str,
    new: &NewJob,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let request = creation(namespace, new)?;
    match context
        .write::<Job, _>(Verb::Create, context.client.request::<Job>(request))
        .await
    {
        Ok(job) => {
            work.wrote(job);
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_already_exists) => {
            let name = new.job.metadata.name.clone().unwrap_or_default();
            find_out::<Job>(context, namespace, &name, work).await
        }
        Err(error) => refused_or(error, "create a Job", work),
    }
}

/// The request that creates a Job. It is put together here because a Job can hold fields that its type does not know, and
/// because of `Strict`: without it the API server drops what it does not know either, and the agent would run elsewhere than
/// somebody asked for.
fn creation(namespace: &str, new: &NewJob) -> Result<http::Request<Vec<u8>>, ReconcileError> {
    let mut body = serde_json::to_value(&new.job)?;
    let pod = body
        .pointer_mut("/spec/template/spec")
        .and_then(Value::as_object_mut);
    if let Some(pod) = pod {
        let fields = new.pod_fields.iter();
        pod.extend(fields.map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
    let path = Job::url_path(&(), Some(namespace));
    let action = || "create a Job".to_owned();
    let request = Request::new(path)
        .create(&post(), serde_json::to_vec(&body)?)
        .map_err(|error| {
            ReconcileError::write(action(), WriteError::Api(kube::Error::BuildRequest(error)))
        })?;
    let (mut parts, body) = request.into_parts();
    parts.uri =
        format!("{}&fieldValidation=Strict", parts.uri)
            .parse()
            .map_err(|error: http::uri::InvalidUri| {
                let error = kube::Error::HttpError(error.into());
                ReconcileError::write(action(), WriteError::Api(error))
            })?;
    Ok(http::Request::from_parts(parts, body))
}

/// Deletes this very object, if it is still the given version. Whoever has taken its name since is left alone.
async fn delete<K: Cached>(
    context: &Context,
    namespace: &str,
    object: &ObjectId,
    version: Option<&String>,
    params: DeleteParams,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<K>::namespaced(context.client.clone(), namespace);
    let params = params.preconditions(Preconditions {
        uid: Some(object.uid.0.clone()),
        resource_version: version.cloned(),
    });
    match context
        .write::<K, _>(Verb::Delete, api.delete(&object.name, &params))
        .await
    {
        Ok(answer) => {
            match answer.left() {
                Some(going) => work.wrote(going),
                None => work.went::<K>(namespace, object),
            }
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_not_found) => {
            work.went::<K>(namespace, object);
            Ok(Outcome::Otherwise)
        }
        Err(error) if status(&error).is_some_and(Status::is_conflict) => {
            find_out::<K>(context, namespace, &object.name, work).await
        }
        Err(error) => Err(ReconcileError::write(format!("delete {}", K::KIND), error)),
    }
}

/// One patch that sets how long a Job is kept and takes our finalizer away.
///
/// It holds only for this very Job with these very finalizers. The version of the Job is no precondition: the Job controller
/// writes its status at about the same time, and that must not get into the way.
pub(crate) fn release(
    job: &ObjectId,
    finalizers: &[String],
    ttl_seconds_after_finished: Option<u32>,
) -> Result<json_patch::Patch, serde_json::Error> {
    let mut operations = without(job, &[labels::JOB_STATUS_FINALIZER], finalizers);
    if let Some(seconds) = ttl_seconds_after_finished {
        let path = "/spec/ttlSecondsAfterFinished";
        operations.push(json!({"op": "add", "path": path, "value": seconds}));
    }
    serde_json::from_value(Value::Array(operations))
}

/// What takes our finalizers from this very object, if it has these very finalizers.
pub(crate) fn without(id: &ObjectId, ours: &[&str], finalizers: &[String]) -> Vec<Value> {
    let others = finalizers.iter().filter(|name| !ours.contains(&name.as_str()));
    let others: Vec<&String> = others.collect();
    let change = if others.is_empty() {
        json!({"op": "remove", "path": "/metadata/finalizers"})
    } else {
        json!({"op": "replace", "path": "/metadata/finalizers", "value": others})
    };
    vec![
        json!({"op": "test", "path": "/metadata/uid", "value": id.uid}),
        json!({"op": "test", "path": "/metadata/finalizers", "value": finalizers}),
        change,
    ]
}

async fn release_job(
    context: &Context,
    namespace: &str,
    id: &ObjectId,
    patch: json_patch::Patch,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<Job>::namespaced(context.client.clone(), namespace);
    let patch: Patch<()> = Patch::Json(patch);
    match context
        .write::<Job, _>(Verb::Patch, api.patch(&id.name, &patching(), &patch))
        .await
    {
        Ok(job) => {
            let held = job.metadata.finalizers.iter().flatten().next().is_some();
            if job.metadata.deletion_timestamp.is_some() && !held {
                // Ours was the last finalizer on a Job that was deleted: this patch made it go.
                work.went::<Job>(namespace, id);
            } else {
                work.wrote(job);
            }
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_not_found) => {
            work.went::<Job>(namespace, id);
            Ok(Outcome::Otherwise)
        }
        // A test of a JSON patch that does not hold makes the patch invalid.
        Err(error) if status(&error).is_some_and(|status| status.is_conflict() || status.code == 422) => {
            find_out::<Job>(context, namespace, &id.name, work).await
        }
        Err(error) => Err(ReconcileError::write("release a Job".to_owned(), error)),
    }
}

/// Makes these the finalizers of a run, if it is still the version that was looked at.
async fn set_finalizers<R: Cached>(
    context: &Context,
    namespace: &str,
    id: &ObjectId,
    version: &str,
    finalizers: &[String],
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let api = Api::<R>::namespaced(context.client.clone(), namespace);
    let metadata = json!({"uid": id.uid, "resourceVersion": version, "finalizers": finalizers});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match context
        .write::<R, _>(Verb::Patch, api.patch(&id.name, &patching(), &patch))
        .await
    {
        Ok(run) => {
            if run.meta().deletion_timestamp.is_some() && finalizers.is_empty() {
                // Ours was the last finalizer on a run that was deleted: this patch made it go.
                work.went::<R>(namespace, id);
            } else {
                work.wrote(run);
            }
            Ok(Outcome::Done)
        }
        Err(error) if status(&error).is_some_and(Status::is_not_found) => {
            work.went::<R>(namespace, id);
            Ok(Outcome::Otherwise)
        }
        Err(error) if status(&error).is_some_and(Status::is_conflict) => {
            find_out::<R>(context, namespace, &id.name, work).await
        }
        Err(error) => Err(ReconcileError::write("hold a run or let it go".to_owned(), error)),
    }
}

/// The API server knows better than the plan did: asks it.
pub(crate) async fn find_out<K: Cached>(
    context: &Context,
    namespace: &str,
    name: &str,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    let key = Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    live::learn_legible::<K>(context, &key, &mut work.learned).await?;
    Ok(Outcome::Otherwise)
}

/// How often something is tried that the API server could not do, before the plan is told: a hiccup is over by then, and nothing
/// may wait without saying so.
const SILENT_TRIES: u32 = 3;

/// What the API server will never accept is for the plan to answer, and so is what it could not do several times in a row;
/// anything else is tried again.
pub(crate) fn refused_or(
    error: WriteError,
    action: &str,
    work: &mut Work,
) -> Result<Outcome, ReconcileError> {
    match refusal(&error).or_else(|| passing(&error, work.failures)) {
        Some(refusal) => {
            work.learned.refusal = Some(refusal);
            Ok(Outcome::Refused)
        }
        None => Err(ReconcileError::write(action.to_owned(), error)),
    }
}

/// What the API server said to something that it may take another time: for want of a right or of room in a quota, or because of a trouble
/// that has lasted for so many failures in a row.
pub(crate) fn passing(error: &WriteError, failures: u32) -> Option<Refusal> {
    status(error)
        .filter(|status| match status.code {
            403 => true,
            429 | 500.. => failures >= SILENT_TRIES,
            _ => false,
        })
        .map(in_its_words)
}

/// What the API server said to something that it would refuse again, however often it is sent.
pub(crate) fn refusal(error: &WriteError) -> Option<Refusal> {
    status(error)
        .filter(|status| matches!(status.code, 400 | 413 | 422))
        .map(in_its_words)
}

fn in_its_words(status: &Status) -> Refusal {
    Refusal {
        code: status.code,
        message: status.message.clone(),
    }
}

/// What the API server said, if it was the one to refuse.
pub(crate) fn status(error: &WriteError) -> Option<&Status> {
    match error {
        WriteError::Api(kube::Error::Api(status)) => Some(status),
        WriteError::Api(_) | WriteError::NotLeading | WriteError::TimedOut => None,
    }
}

/// How objects are created and replaced.
pub(crate) fn post() -> PostParams {
    PostParams {
        field_manager: Some(labels::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// How objects are patched. The API server is not asked to look for fields that it does not know: it would only warn, which nobody reads.
pub(crate) fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(labels::FIELD_MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod tests {
    use jangar_engine::decision::Uid;

    use super::*;

    fn job() -> ObjectId {
        ObjectId {
            name: "run-1".to_owned(),
            uid: Uid("u-1".to_owned()),
        }
    }

    fn operations(finalizers: &[&str], ttl: Option<u32>) -> Value {
        let finalizers: Vec<String> = finalizers.iter().map(|name| (*name).to_owned()).collect();
        serde_json::to_value(release(&job(), &finalizers, ttl).expect("a patch")).expect("JSON")
    }

    #[test]
    fn a_release_sets_the_time_to_live_and_keeps_the_finalizers_of_others() {
        let all = ["others/finalizer", labels::JOB_STATUS_FINALIZER];
        assert_eq!(
            operations(&all, Some(60)),
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u-1"},
                {"op": "test", "path": "/metadata/finalizers", "value": all},
                {"op": "replace", "path": "/metadata/finalizers", "value": ["others/finalizer"]},
                {"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": 60},
            ])
        );
    }

    #[test]
    fn a_release_without_a_time_to_live_leaves_the_spec_alone() {
        assert_eq!(
            operations(&[labels::JOB_STATUS_FINALIZER], None),
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u-1"},
                {"op": "test", "path": "/metadata/finalizers", "value": [labels::JOB_STATUS_FINALIZER]},
                {"op": "remove", "path": "/metadata/finalizers"},
            ])
        );
    }
}
