//! Live reads: what the API server itself says, where a cache is not proof enough.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jangar_api::{
    agents::{
        agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
        implementation_spec::ImplementationSpec, memory::Memory,
        version_control_provider::VersionControlProvider,
    },
    approvals::ApprovalPolicy,
    labels,
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    signals::Signal,
    tools::{Tool, ToolRun},
};
use jangar_engine::decision::{
    ApiCredentials, ChildKind, DeliveryAnswer, DeliveryQuery, Key, KeyHolder, Keys, Occupant, Owner,
    Question, Uid,
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    caches::{Cached, Delivered},
    driver::{Context, learned::Learned},
    forges::Credential,
    metrics::{Answer, ObjectKind, RequestResult, Verb},
};

/// How long a read may take. It holds up one key only, which is tried again after a pause.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a live read has no answer.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("failed to read {what}: {source}")]
    Api {
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to read {what}: no answer within {} s", READ_TIMEOUT.as_secs())]
    TimedOut { what: String },
    #[error("{what} cannot be read: {error}")]
    Illegible { what: String, error: String },
}

impl ReadError {
    /// Whether we may not look.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_forbidden(source))
    }
}

/// Reads one object; `None` if there is none.
pub(crate) async fn get<K: Cached>(context: &Context, key: &Key) -> Result<Option<Delivered<K>>, ReadError> {
    if !can_be_a_name(&key.name) {
        return Ok(None);
    }
    let api = Api::<Delivered<K>>::namespaced(context.client.clone(), &key.namespace);
    let what = || format!("{} {key}", K::KIND);
    bounded::<K, _>(context, Verb::Get, what, api.get_opt(&key.name)).await
}

/// Reads one object as it is, whatever our own type of it can hold; `None` if there is none.
pub(crate) async fn raw<K: Cached>(context: &Context, key: &Key) -> Result<Option<DynamicObject>, ReadError> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &key.namespace, &resource);
    let what = || format!("{} {key}", K::KIND);
    bounded::<K, _>(context, Verb::Get, what, api.get_opt(&key.name)).await
}

/// Whose ConfigMap has the name of the one that was to be created.
pub(crate) enum Holder {
    /// Nobody's: it went meanwhile.
    None,
    SameRun,
    Other(Occupant),
}

/// Finds out whose ConfigMap has the name of this one.
pub(crate) async fn holder(
    context: &Context,
    namespace: &str,
    wanted: &ConfigMap,
) -> Result<Holder, ReadError> {
    let name = wanted.metadata.name.as_deref().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), namespace);
    let what = || format!("ConfigMap {namespace}/{name}");
    let found = bounded::<ConfigMap, _>(context, Verb::Get, what, api.get_opt(name)).await?;
    let Some(found) = found else {
        return Ok(Holder::None);
    };
    if found.metadata.owner_references == wanted.metadata.owner_references {
        return Ok(Holder::SameRun);
    }
    let owner = found.owner_references().first().map(|owner| Owner {
        kind: owner.kind.clone(),
        name: owner.name.clone(),
    });
    Ok(Holder::Other(Occupant {
        name: name.to_owned(),
        owner,
    }))
}

/// Reads one object, of which nothing can be decided if it cannot be read, and remembers the answer.
pub(crate) async fn learn_legible<K: Cached>(
    context: &Context,
    key: &Key,
    learned: &mut Learned,
) -> Result<Answer, ReadError> {
    let answer = learn::<K>(context, key, learned).await?;
    match K::overlay(learned).illegible(&key.name) {
        Some(error) => Err(ReadError::Illegible {
            what: format!("{} {key}", K::KIND),
            error: error.clone(),
        }),
        None => Ok(answer),
    }
}

/// Reads one object and remembers the answer.
pub(crate) async fn learn<K: Cached>(
    context: &Context,
    key: &Key,
    learned: &mut Learned,
) -> Result<Answer, ReadError> {
    match get::<K>(context, key).await? {
        Some(Delivered(Ok(object))) => {
            learned.seen(Arc::new(object));
            Ok(Answer::Found)
        }
        Some(Delivered(Err(illegible))) => {
            learned.illegible::<K>(&key.name, illegible.error);
            Ok(Answer::Found)
        }
        None => {
            learned.absent::<K>(&key.name);
            Ok(Answer::Absent)
        }
    }
}

/// Finds the answer to a question, in the namespace that it is asked in.
pub(crate) async fn answer(
    context: &Context,
    namespace: &str,
    question: &Question,
    learned: &mut Learned,
) -> Result<(), ReadError> {
    let key = |name: &str| Key {
        namespace: namespace.to_owned(),
        // As a scene looks it up.
        name: name.trim().to_owned(),
    };
    let answer = match question {
        Question::Agent(name) => learn::<Agent>(context, &key(name), learned).await,
        Question::AgentProvider(name) => learn::<AgentProvider>(context, &key(name), learned).await,
        Question::ImplementationSpec(name) => learn::<ImplementationSpec>(context, &key(name), learned).await,
        Question::Memory(name) => learn::<Memory>(context, &key(name), learned).await,
        Question::VersionControlProvider(name) => {
            learn::<VersionControlProvider>(context, &key(name), learned).await
        }
        Question::Tool(name) => learn::<Tool>(context, &key(name), learned).await,
        Question::Orchestration(name) => learn::<Orchestration>(context, &key(name), learned).await,
        Question::ApprovalPolicy(name) => learn::<ApprovalPolicy>(context, &key(name), learned).await,
        Question::Signal(name) => learn::<Signal>(context, &key(name), learned).await,
        Question::Child(kind, name) => match kind {
            ChildKind::AgentRun => learn_legible::<AgentRun>(context, &key(name), learned).await,
            ChildKind::ToolRun => learn_legible::<ToolRun>(context, &key(name), learned).await,
            ChildKind::OrchestrationRun => {
                learn_legible::<OrchestrationRun>(context, &key(name), learned).await
            }
        },
        Question::Job(name) => learn_legible::<Job>(context, &key(name), learned).await,
        Question::PodsOf(job) => pods_of(context, namespace, job, learned).await,
        Question::Keys(holder) => keys_of(context, namespace, holder, learned).await,
        Question::Delivery(query) => delivery(context, namespace, query, learned).await,
        // The queue answers it, not the API server.
        Question::Slot { .. } => Ok(Answer::Absent),
    };
    let counted = answer.as_ref().map_or(Answer::Failed, |answer| *answer);
    context.metrics.question(question, counted);
    answer.map(drop)
}

async fn pods_of(
    context: &Context,
    namespace: &str,
    job: &Uid,
    learned: &mut Learned,
) -> Result<Answer, ReadError> {
    let api = Api::<Pod>::namespaced(context.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{}={job}", labels::CONTROLLER_UID));
    let what = || format!("the pods of the Job with UID {job}");
    let list = bounded::<Pod, _>(context, Verb::List, what, api.list(&params)).await?;
    let mut names = BTreeSet::new();
    for mut pod in list {
        pod.metadata.managed_fields = None;
        names.extend(pod.metadata.name.clone());
        learned.seen(Arc::new(pod));
    }
    let answer = if names.is_empty() {
        Answer::Absent
    } else {
        Answer::Found
    };
    learned.pods_of.insert(job.clone(), names);
    Ok(answer)
}

async fn keys_of(
    context: &Context,
    namespace: &str,
    holder: &KeyHolder,
    learned: &mut Learned,
) -> Result<Answer, ReadError> {
    let keys = match holder {
        KeyHolder::Secret(name) => values::<Secret>(context, namespace, name, holder).await,
        KeyHolder::ConfigMap(name) => values::<ConfigMap>(context, namespace, name, holder).await,
    };
    let keys = match keys {
        Ok(Some(values)) => Keys::Of(values),
        Ok(None) => Keys::Absent,
        // An operator may keep Secrets from the controllers, which must not keep them from the pods.
        Err(ReadError::Api { source, .. }) if is_forbidden(&source) => Keys::Forbidden,
        Err(error) => return Err(error),
    };
    let answer = match &keys {
        Keys::Of(_) => Answer::Found,
        Keys::Absent => Answer::Absent,
        Keys::Forbidden => Answer::Failed,
    };
    learned.keys.insert(holder.clone(), keys);
    Ok(answer)
}

/// Asks a forge. That it cannot be asked is an answer too: the run says so.
async fn delivery(
    context: &Context,
    namespace: &str,
    query: &DeliveryQuery,
    learned: &mut Learned,
) -> Result<Answer, ReadError> {
    let (ApiCredentials::Token { secret, key } | ApiCredentials::App { secret, key, .. }) =
        &query.credentials;
    let answer = match value_of(context, namespace, secret, key).await {
        Ok(Some(credential)) => {
            context
                .forges
                .delivery(query, credential, context.clock.now())
                .await
        }
        Ok(None) => DeliveryAnswer::Failed {
            message: format!("Secret {secret} with the key {key} is not there"),
            passing: true,
            not_before: None,
        },
        Err(ReadError::Api { source, .. }) if is_forbidden(&source) => DeliveryAnswer::Failed {
            message: format!("the controllers may not read Secret {secret}: let them get it"),
            passing: false,
            not_before: None,
        },
        Err(error) => return Err(error),
    };
    let counted = match &answer {
        DeliveryAnswer::Found(found) if found.commit.is_some() || found.merged.is_some() => Answer::Found,
        DeliveryAnswer::Found(_) => Answer::Absent,
        DeliveryAnswer::Failed { .. } => Answer::Failed,
    };
    learned.deliveries.insert(query.clone(), answer);
    Ok(counted)
}

/// A Secret with its values, for those who put one there themselves.
pub(crate) async fn secret(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, ReadError> {
    let api = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let what = || format!("Secret {namespace}/{name}");
    bounded::<Secret, _>(context, Verb::Get, what, api.get_opt(name)).await
}

/// One value of a Secret, which goes to a forge and nowhere else.
pub(crate) async fn value_of(
    context: &Context,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<Option<Credential>, ReadError> {
    if !can_be_a_name(name) {
        return Ok(None);
    }
    let found = secret(context, namespace, name).await?;
    let value = found.and_then(|secret| secret.data?.remove(key));
    Ok(value.map(|value| Credential(value.0)))
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

/// A kind that holds values by key.
trait HoldsValues:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + fmt::Debug + DeserializeOwned
{
    /// The hash of each value. The values themselves are forgotten here.
    fn hashed(self) -> BTreeMap<String, String>;
}

impl HoldsValues for Secret {
    fn hashed(self) -> BTreeMap<String, String> {
        let values = self.data.into_iter().flatten();
        values.map(|(key, value)| (key, hash(&value.0))).collect()
    }
}

impl HoldsValues for ConfigMap {
    fn hashed(self) -> BTreeMap<String, String> {
        let texts = self.data.into_iter().flatten();
        let texts = texts.map(|(key, text)| (key, hash(text.as_bytes())));
        let binary = self.binary_data.into_iter().flatten();
        let binary = binary.map(|(key, value)| (key, hash(&value.0)));
        texts.chain(binary).collect()
    }
}

fn hash(value: &[u8]) -> String {
    format!("{:x}", Sha256::digest(value))
}

async fn values<K: HoldsValues>(
    context: &Context,
    namespace: &str,
    name: &str,
    holder: &KeyHolder,
) -> Result<Option<BTreeMap<String, String>>, ReadError> {
    if !can_be_a_name(name) {
        return Ok(None);
    }
    let api = Api::<K>::namespaced(context.client.clone(), namespace);
    let what = || format!("{holder} of namespace {namespace}");
    let found = bounded::<K, _>(context, Verb::Get, what, api.get_opt(name)).await?;
    Ok(found.map(K::hashed))
}

/// Whether an object can have this name. References are written by people, and what they wrote becomes part of the path of a
/// request: a slash in it would ask for something else.
fn can_be_a_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    text.bytes().all(legal) && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

async fn bounded<K, T>(
    context: &Context,
    verb: Verb,
    what: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReadError>
where
    K: Resource<DynamicType = ()>,
{
    let answer = tokio::time::timeout(READ_TIMEOUT, request).await;
    let result = answer.as_ref().map_or(RequestResult::TimedOut, RequestResult::of);
    context.metrics.request(verb, ObjectKind::of::<K>(), result);
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(ReadError::Api {
            what: what(),
            source: Box::new(source),
        }),
        Err(_) => Err(ReadError::TimedOut { what: what() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_name_is_not_asked_for() {
        for name in ["coder", "coder-2", "a.b"] {
            assert!(can_be_a_name(name), "{name}");
        }
        for text in [
            "",
            " ",
            "..",
            "a/b",
            "a/../../secrets/b",
            "a?watch=true",
            "a%2fb",
            "Coder",
            "kö",
        ] {
            assert!(!can_be_a_name(text), "{text}");
        }
    }
}
