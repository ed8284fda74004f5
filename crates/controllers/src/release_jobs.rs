//! Takes our finalizer from every Job that carries it, for when there will be no controllers any more to do so.
//!
//! Jobs of runs are held by `agents.proompteng.ai/job-status` until their end is recorded. Whoever removes Jangar while there
//! are such Jobs leaves them, and the namespace they are in, unable to go. This is what lets them go: one pass over the Jobs,
//! a page at a time, each patched only as it was seen. Doing it again changes nothing.

use std::time::Duration;

use jangar_api::labels;
use jangar_engine::{
    decision::{ObjectId, Uid},
    settings::{LeaseSettings, Namespaces},
};
use k8s_openapi::api::{batch::v1::Job, coordination::v1::Lease};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch},
};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::{caches::has_ended, effects};

/// How many Jobs are asked for at once. One can have a quarter of a megabyte of files in its annotations.
const PAGE: u32 = 100;
/// How often the list is begun anew because the API server has forgotten where we were. Each pass finds fewer Jobs.
const LISTS_MAX: u32 = 5;
/// How often one Job is tried that others change at the same time.
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
    #[error("the list of Jobs was begun {LISTS_MAX} times, and the API server forgot it each time")]
    Forgotten,
    #[error("failed to release Job {job}: others changed it {TRIES_MAX} times at the same moment")]
    Contested { job: String },
    #[error("the patch cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// What became of one Job.
#[derive(Debug)]
pub enum Fate {
    Released,
    /// It would be released, if this were not only asked.
    WouldBe,
    /// It went, or somebody else released it, before we could.
    Gone,
    Failed(ReleaseError),
}

/// One Job that was held, and what became of it.
#[derive(Debug)]
pub struct Release {
    pub namespace: String,
    pub name: String,
    /// Whether its work is over. If not, nobody will record how it ends.
    pub ended: bool,
    pub fate: Fate,
}

/// Releases every Job that is held in these namespaces, or only says which those are, and tells of each.
pub async fn release_jobs(
    client: &Client,
    namespaces: &Namespaces,
    dry_run: bool,
    mut tell: impl FnMut(&Release),
) -> Result<(), ReleaseError> {
    let apis = match namespaces {
        Namespaces::All => vec![Api::all(client.clone())],
        Namespaces::These(names) => names
            .iter()
            .map(|name| Api::namespaced(client.clone(), name))
            .collect(),
    };
    for api in &apis {
        of_list(client, api, dry_run, &mut tell).await?;
    }
    Ok(())
}

/// Goes through one list. No selector: somebody may have taken our label from a Job, and it would be held all the same.
async fn of_list(
    client: &Client,
    api: &Api<Job>,
    dry_run: bool,
    tell: &mut impl FnMut(&Release),
) -> Result<(), ReleaseError> {
    let mut lists = 1;
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match bounded("list Jobs".to_owned(), api.list(&params)).await {
            Err(ReleaseError::Api { source, .. }) if is_forgotten(&source) => {
                lists += 1;
                if lists > LISTS_MAX {
                    return Err(ReleaseError::Forgotten);
                }
                params.continue_token = None;
                continue;
            }
            page => page?,
        };
        for job in page.items.iter().filter(|job| is_held(job)) {
            tell(&of_job(client, job, dry_run).await);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

async fn of_job(client: &Client, job: &Job, dry_run: bool) -> Release {
    let namespace = job.namespace().unwrap_or_default();
    let fate = if dry_run {
        Fate::WouldBe
    } else {
        let api = Api::namespaced(client.clone(), &namespace);
        release(&api, job).await.unwrap_or_else(Fate::Failed)
    };
    Release {
        namespace,
        name: job.name_any(),
        ended: has_ended(job),
        fate,
    }
}

/// Releases this very Job. If it is not as it was seen, it is looked at again.
async fn release(api: &Api<Job>, seen: &Job) -> Result<Fate, ReleaseError> {
    let id = ObjectId {
        name: seen.name_any(),
        uid: Uid(seen.uid().unwrap_or_default()),
    };
    let mut finalizers = seen.finalizers().to_vec();
    for _ in 0..TRIES_MAX {
        let patch: Patch<()> = Patch::Json(effects::release(&id, &finalizers, None)?);
        let params = effects::patching();
        let request = api.patch(&id.name, &params, &patch);
        match bounded(format!("release Job {}", id.name), request).await {
            Ok(_) => return Ok(Fate::Released),
            Err(ReleaseError::Api { source, .. }) if code(&source) == Some(404) => return Ok(Fate::Gone),
            // A test of the patch does not hold: somebody has changed the finalizers.
            Err(ReleaseError::Api { source, .. }) if matches!(code(&source), Some(409 | 422)) => {}
            Err(error) => return Err(error),
        }
        let found = bounded(format!("read Job {}", id.name), api.get_opt(&id.name)).await?;
        match found.filter(|job| job.uid().as_ref() == Some(&id.uid.0) && is_held(job)) {
            Some(job) => finalizers = job.finalizers().to_vec(),
            None => return Ok(Fate::Gone),
        }
    }
    Err(ReleaseError::Contested { job: id.name })
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

fn is_held(job: &Job) -> bool {
    let finalizers = job.finalizers();
    finalizers.iter().any(|name| name == labels::JOB_STATUS_FINALIZER)
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
