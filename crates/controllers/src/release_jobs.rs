//! Takes our finalizers from every Job, pod and run that carries them, for when there will be no controllers any more to do so.
//!
//! Jobs of runs, and their pods where Kubernetes leaves these to us, are held by `agents.proompteng.ai/job-status` until their end is recorded, and runs that have something outside of
//! the cluster, or do the work of a step, by `agents.proompteng.ai/runtime-cleanup` until that is over or recorded. Whoever removes
//! Jangar while there are such leaves them, and the namespace they are in, unable to go. This is what lets them go: one pass over
//! the Jobs, one over the pods and one over each kind of runs, a page at a time, each patched only as it was seen. Doing it again changes nothing.

use std::{fmt, time::Duration};

use jangar_api::{
    agents::agent_run::{AgentRun, RuntimeType},
    labels,
    orchestration::orchestration_run::OrchestrationRun,
    phase::RunPhase,
    tools::ToolRun,
};
use jangar_engine::{
    decision::{ObjectId, Uid},
    settings::{LeaseSettings, Namespaces},
};
use k8s_openapi::api::{batch::v1::Job, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::{caches::has_ended, effects};

/// How many objects are asked for at once. One can have a quarter of a megabyte of files in its annotations.
const PAGE: u32 = 100;
/// How often the list is begun anew because the API server has forgotten where we were. Each pass finds fewer.
const LISTS_MAX: u32 = 5;
/// How often one object is tried that others change at the same time.
const TRIES_MAX: u32 = 5;
/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at the Lease. A leader renews it every few seconds.
const LEASE_LOOK: Duration = Duration::from_secs(1);

/// Why it cannot be said, or done.
#[derive(Debug, Error)]
pub enum ReleaseError {
    #[error("failed to {action}: {source}")]
    Api {
        action: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to {action}: no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut { action: String },
    #[error("the list of {what} was begun {LISTS_MAX} times, and the API server forgot it each time")]
    Forgotten { what: What },
    #[error("failed to release {what} {name}: others changed it {TRIES_MAX} times at the same moment")]
    Contested { what: What, name: String },
    #[error("the patch cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    AgentRun,
    ToolRun,
    OrchestrationRun,
    Pod,
    Job,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What became of one object.
#[derive(Debug)]
pub enum Fate {
    Released,
    /// It would be released, if this were not only asked.
    WouldBe,
    /// It went, or somebody else released it, before we could.
    Gone,
    Failed(ReleaseError),
}

/// One object that was held, and what became of it.
#[derive(Debug)]
pub struct Release {
    pub what: What,
    pub namespace: String,
    pub name: String,
    /// Whether its work is over. If not, nobody will record how it ends.
    pub ended: bool,
    /// What it has outside of the cluster, which nobody will see to any more.
    pub leaves: Option<String>,
    pub fate: Fate,
}

/// A kind whose objects we hold.
trait Held:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + fmt::Debug + DeserializeOwned
{
    const WHAT: What;
    const FINALIZERS: &'static [&'static str];

    /// Whether its work is over.
    fn has_ended(&self) -> bool;

    /// What it has outside of the cluster.
    fn leaves(&self) -> Option<String>;

    fn is_held(&self) -> bool {
        let mut finalizers = self.finalizers().iter();
        finalizers.any(|name| Self::FINALIZERS.contains(&name.as_str()))
    }
}

impl Held for Job {
    const WHAT: What = What::Job;
    const FINALIZERS: &'static [&'static str] = &[labels::JOB_STATUS_FINALIZER];

    fn has_ended(&self) -> bool {
        has_ended(self)
    }

    fn leaves(&self) -> Option<String> {
        None
    }
}

/// One that we made, because Kubernetes leaves its Job to us.
impl Held for Pod {
    const WHAT: What = What::Pod;
    const FINALIZERS: &'static [&'static str] = &[labels::JOB_STATUS_FINALIZER];

    fn has_ended(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    fn leaves(&self) -> Option<String> {
        None
    }
}

/// Says where a run keeps its phase, and by what it is held.
macro_rules! held_run {
    ($what:ident) => {
        const WHAT: What = What::$what;
        const FINALIZERS: &'static [&'static str] =
            &[labels::RUNTIME_CLEANUP_FINALIZER, labels::ARCHIVE_FINALIZER];

        fn has_ended(&self) -> bool {
            let phase = self
                .status
                .as_ref()
                .and_then(|status| status.phase.as_ref());
            phase.is_some_and(RunPhase::is_terminal)
        }
    };
}

/// It may be the run of a step, whose end its OrchestrationRun has not recorded.
impl Held for ToolRun {
    held_run!(ToolRun);

    fn leaves(&self) -> Option<String> {
        None
    }
}

impl Held for OrchestrationRun {
    held_run!(OrchestrationRun);

    fn leaves(&self) -> Option<String> {
        None
    }
}

impl Held for AgentRun {
    held_run!(AgentRun);

    fn leaves(&self) -> Option<String> {
        let status = self.status.as_ref()?;
        let vcs = status.vcs.as_ref();
        if let Some(ends) = vcs.and_then(|vcs| vcs.token_expires_at) {
            return Some(format!("its token of a GitHub App is good until {}", ends.0));
        }
        let outside = match self.spec.runtime.type_ {
            RuntimeType::Custom | RuntimeType::Temporal if !self.has_ended() => {
                status.runtime_ref.as_ref()?
            }
            _ => return None,
        };
        let name = outside.0.get("name").and_then(Value::as_str)?;
        Some(format!("{name} is not told to stop"))
    }
}

/// Releases all Jobs, pods and runs that are held in these namespaces, or only says which those are, and tells of each.
pub async fn release_jobs(
    client: &Client,
    namespaces: &Namespaces,
    dry_run: bool,
    mut tell: impl FnMut(&Release),
) -> Result<(), ReleaseError> {
    of_kind::<Job>(client, namespaces, dry_run, &mut tell).await?;
    of_kind::<Pod>(client, namespaces, dry_run, &mut tell).await?;
    of_kind::<AgentRun>(client, namespaces, dry_run, &mut tell).await?;
    of_kind::<ToolRun>(client, namespaces, dry_run, &mut tell).await?;
    of_kind::<OrchestrationRun>(client, namespaces, dry_run, &mut tell).await
}

async fn of_kind<K: Held>(
    client: &Client,
    namespaces: &Namespaces,
    dry_run: bool,
    tell: &mut impl FnMut(&Release),
) -> Result<(), ReleaseError> {
    let apis: Vec<Api<K>> = match namespaces {
        Namespaces::All => vec![Api::all(client.clone())],
        Namespaces::These(names) => names
            .iter()
            .map(|name| Api::namespaced(client.clone(), name))
            .collect(),
    };
    for api in &apis {
        of_list(client, api, dry_run, tell).await?;
    }
    Ok(())
}

/// Goes through one list. No selector: somebody may have taken our label from a Job, and it would be held all the same.
async fn of_list<K: Held>(
    client: &Client,
    api: &Api<K>,
    dry_run: bool,
    tell: &mut impl FnMut(&Release),
) -> Result<(), ReleaseError> {
    let mut lists = 1;
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match bounded(format!("list {}s", K::WHAT), api.list(&params)).await {
            // Without the kind there is nothing of it.
            Err(ReleaseError::Api { source, .. }) if code(&source) == Some(404) => return Ok(()),
            Err(ReleaseError::Api { source, .. }) if is_forgotten(&source) => {
                lists += 1;
                if lists > LISTS_MAX {
                    return Err(ReleaseError::Forgotten { what: K::WHAT });
                }
                params.continue_token = None;
                continue;
            }
            page => page?,
        };
        for object in page.items.iter().filter(|object| object.is_held()) {
            tell(&of_object(client, object, dry_run).await);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

async fn of_object<K: Held>(client: &Client, object: &K, dry_run: bool) -> Release {
    let namespace = object.namespace().unwrap_or_default();
    let fate = if dry_run {
        Fate::WouldBe
    } else {
        let api = Api::namespaced(client.clone(), &namespace);
        release(&api, object).await.unwrap_or_else(Fate::Failed)
    };
    Release {
        what: K::WHAT,
        namespace,
        name: object.name_any(),
        ended: object.has_ended(),
        leaves: object.leaves(),
        fate,
    }
}

/// Releases this very object. If it is not as it was seen, it is looked at again.
async fn release<K: Held>(api: &Api<K>, seen: &K) -> Result<Fate, ReleaseError> {
    let id = ObjectId {
        name: seen.name_any(),
        uid: Uid(seen.uid().unwrap_or_default()),
    };
    let mut finalizers = seen.finalizers().to_vec();
    for _ in 0..TRIES_MAX {
        let operations = effects::without(&id, K::FINALIZERS, &finalizers);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations))?);
        let params = effects::patching();
        let request = api.patch(&id.name, &params, &patch);
        match bounded(format!("release {} {}", K::WHAT, id.name), request).await {
            Ok(_) => return Ok(Fate::Released),
            Err(ReleaseError::Api { source, .. }) if code(&source) == Some(404) => return Ok(Fate::Gone),
            // A test of the patch does not hold: somebody has changed the finalizers.
            Err(ReleaseError::Api { source, .. }) if matches!(code(&source), Some(409 | 422)) => {}
            Err(error) => return Err(error),
        }
        let found = bounded(format!("read {} {}", K::WHAT, id.name), api.get_opt(&id.name)).await?;
        match found.filter(|object| object.uid().as_ref() == Some(&id.uid.0) && object.is_held()) {
            Some(object) => finalizers = object.finalizers().to_vec(),
            None => return Ok(Fate::Gone),
        }
    }
    Err(ReleaseError::Contested {
        what: K::WHAT,
        name: id.name,
    })
}

/// The name of the process that leads, if one does.
///
/// The time in a Lease is another machine's, so it is not compared with ours: a leader that lives renews its Lease before it
/// has run out, and that is waited for. `None` is certain; it takes as long as a lease lasts if its holder has died.
pub async fn leader(client: &Client, settings: &LeaseSettings) -> Result<Option<String>, ReleaseError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    let read = || {
        let action = format!("read Lease {}/{}", settings.namespace, settings.name);
        bounded(action, api.get_opt(&settings.name))
    };
    let Some(first) = read().await?.filter(is_taken) else {
        return Ok(None);
    };
    let lasts = first.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let lasts = lasts.and_then(|seconds| u64::try_from(seconds).ok());
    let end = Instant::now() + lasts.map_or(settings.duration, Duration::from_secs);
    while Instant::now() < end {
        sleep(LEASE_LOOK).await;
        match read().await?.filter(is_taken) {
            None => return Ok(None),
            Some(lease) if lease.resource_version() != first.resource_version() => return Ok(holder(&lease)),
            Some(_) => {}
        }
    }
    Ok(None)
}

fn holder(lease: &Lease) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.clone()?;
    (!holder.is_empty()).then_some(holder)
}

fn is_taken(lease: &Lease) -> bool {
    holder(lease).is_some()
}

fn is_forgotten(error: &kube::Error) -> bool {
    code(error) == Some(410)
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

async fn bounded<T>(
    action: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReleaseError> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(ReleaseError::Api {
            action,
            source: Box::new(source),
        }),
        Err(_) => Err(ReleaseError::TimedOut { action }),
    }
}
