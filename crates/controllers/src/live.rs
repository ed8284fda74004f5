//! Live reads: what the API server itself says, where a cache is not proof enough.

use std::{sync::Arc, time::Duration};

use jangar_api::agents::{
    agent::Agent, agent_provider::AgentProvider, implementation_spec::ImplementationSpec, memory::Memory,
};
use jangar_engine::decision::{Key, Question, Uid};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, Client, api::ListParams};
use thiserror::Error;

use crate::{caches::Cached, driver::learned::Learned};

/// How long a read may take. It holds up one key only, which is tried again after a pause.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The label by which the Job controller marks the pods of a Job.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

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
}

/// Reads one object; `None` if there is none.
pub(crate) async fn get<K: Cached>(client: &Client, key: &Key) -> Result<Option<K>, ReadError> {
    let api = Api::<K>::namespaced(client.clone(), &key.namespace);
    let mut found = bounded(|| format!("{} {key}", K::KIND), api.get_opt(&key.name)).await?;
    if let Some(object) = &mut found {
        object.meta_mut().managed_fields = None;
    }
    Ok(found)
}

/// Reads one object and remembers the answer.
pub(crate) async fn learn<K: Cached>(
    client: &Client,
    key: &Key,
    learned: &mut Learned,
) -> Result<(), ReadError> {
    match get::<K>(client, key).await? {
        Some(object) => learned.seen(Arc::new(object)),
        None => learned.absent::<K>(&key.name),
    }
    Ok(())
}

/// Finds the answer to a question, in the namespace that it is asked in.
pub(crate) async fn answer(
    client: &Client,
    namespace: &str,
    question: &Question,
    learned: &mut Learned,
) -> Result<(), ReadError> {
    let key = |name: &str| Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match question {
        Question::Agent(name) => learn::<Agent>(client, &key(name), learned).await,
        Question::AgentProvider(name) => learn::<AgentProvider>(client, &key(name), learned).await,
        Question::ImplementationSpec(name) => learn::<ImplementationSpec>(client, &key(name), learned).await,
        Question::Memory(name) => learn::<Memory>(client, &key(name), learned).await,
        Question::Job(name) => learn::<Job>(client, &key(name), learned).await,
        Question::PodsOf(job) => pods_of(client, namespace, job, learned).await,
    }
}

async fn pods_of(
    client: &Client,
    namespace: &str,
    job: &Uid,
    learned: &mut Learned,
) -> Result<(), ReadError> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{CONTROLLER_UID}={job}"));
    let list = bounded(|| format!("the pods of Job UID {job}"), api.list(&params)).await?;
    let mut names = std::collections::BTreeSet::new();
    for mut pod in list {
        pod.metadata.managed_fields = None;
        names.extend(pod.metadata.name.clone());
        learned.seen(Arc::new(pod));
    }
    learned.pods_of.insert(job.clone(), names);
    Ok(())
}

async fn bounded<T>(
    what: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReadError> {
    match tokio::time::timeout(READ_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(ReadError::Api {
            what: what(),
            source: Box::new(source),
        }),
        Err(_) => Err(ReadError::TimedOut { what: what() }),
    }
}
