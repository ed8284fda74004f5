//! Follows the pods of the node and the objects they may wait for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, TryStreamExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::{
    Api, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use rustix::process::Signal;
use tokio::{
    io::AsyncReadExt,
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    ObjectChange, Shared,
    attempt::{self, State, remove_tree},
    objects::{Kind, Reference},
    prepare::Places,
    run,
    worker::{self, Seen, Turn},
};

/// How long a process that nobody wants any more has to end once it is told to.
const ORPHAN_END: Duration = Duration::from_secs(10);

pub(crate) fn spawn(shared: &Arc<Shared>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let until_stopped = |work: BoxFuture<'static, ()>| {
        let mut stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                // An error means that the executor is gone, which is the end as well.
                _ = stop.wait_for(|stopping| *stopping) => {}
            }
        })
    };
    vec![
        tokio::spawn(Manager::new(shared.clone()).run(stop.clone())),
        until_stopped(Box::pin(follow::<ConfigMap>(shared.clone(), Kind::ConfigMap))),
        until_stopped(Box::pin(follow::<Secret>(shared.clone(), Kind::Secret))),
        until_stopped(Box::pin(follow_claims(shared.clone()))),
    ]
}

/// Tells workers about every change of one kind of object.
async fn follow<K>(shared: Arc<Shared>, kind: Kind)
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + serde::de::DeserializeOwned
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(shared.client.clone());
    let mut changes = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(change) = changes.next().await {
        if let Some((object, _)) = touched(change) {
            tell(&shared, kind, &object);
        }
    }
}

fn tell<K>(shared: &Shared, kind: Kind, object: &PartialObjectMeta<K>) {
    let change = ObjectChange {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        reference: Reference {
            kind,
            name: object.metadata.name.clone().unwrap_or_default(),
        },
    };
    // Nobody may be waiting.
    let _ = shared.objects.send(change);
}

/// The object of a change, and whether it is gone.
fn touched<K>(change: Result<Event<K>, watcher::Error>) -> Option<(K, bool)> {
    match change {
        Ok(Event::Apply(object) | Event::InitApply(object)) => Some((object, false)),
        Ok(Event::Delete(object)) => Some((object, true)),
        Ok(Event::Init | Event::InitDone) => None,
        Err(error) => {
            tracing::warn!(%error, "a watch of the node failed and is tried again");
            None
        }
    }
}

/// As `follow`, and removes the directories of claims that are gone.
async fn follow_claims(shared: Arc<Shared>) {
    let api: Api<PartialObjectMeta<PersistentVolumeClaim>> = Api::all(shared.client.clone());
    let mut changes = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
    // The claims of the first list; those deleted before are known by their directories only.
    let mut first = Some(BTreeSet::new());
    while let Some(change) = changes.next().await {
        match &change {
            Ok(Event::InitApply(claim)) => {
                if let Some(listed) = &mut first {
                    listed.extend(claim.uid());
                }
            }
            Ok(Event::InitDone) => {
                if let Some(listed) = first.take()
                    && let Err(error) = remove_claims_except(&shared, &listed)
                {
                    tracing::warn!(%error, "the directories of earlier claims cannot be looked through");
                }
            }
            _ => {}
        }
        let Some((claim, gone)) = touched(change) else {
            continue;
        };
        tell(&shared, Kind::Claim, &claim);
        let uid = claim.uid().unwrap_or_default();
        if gone && !uid.is_empty() && shared.claims.abandon(&uid) {
            remove_claim(&shared, &uid);
        }
    }
}

/// Removes what claims left that were deleted while nobody looked; for those that pods still use, when these end.
fn remove_claims_except(shared: &Shared, listed: &BTreeSet<String>) -> io::Result<()> {
    let mut used = BTreeSet::new();
    for pod in fs::read_dir(shared.settings.pods_dir())? {
        let places: Option<Places> = run::read(&pod?.path().join(worker::PLACES))?;
        used.extend(places.into_iter().flatten().filter_map(|(_, place)| place.claim));
    }
    for entry in fs::read_dir(shared.settings.claims_dir())? {
        let uid = entry?.file_name().to_string_lossy().into_owned();
        if listed.contains(&uid) {
            continue;
        }
        if used.contains(&uid) {
            shared.claims.abandon_in_use(&uid);
        } else if shared.claims.abandon(&uid) {
            remove_claim(shared, &uid);
        }
    }
    Ok(())
}

pub(crate) fn remove_claim(shared: &Shared, uid: &str) {
    if let Err(error) = remove_tree(&shared.settings.claims_dir().join(uid)) {
        tracing::warn!(%error, uid, "the directory of a deleted claim cannot be removed");
    }
}

/// Whether the API says that nothing of the pod runs, or will.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A pod and the way to its worker.
struct Followed {
    seen: watch::Sender<Seen>,
    /// It needs no place any more.
    over: Arc<AtomicBool>,
}

struct Manager {
    shared: Arc<Shared>,
    /// Every pod of the node by UID, also those whose worker has nothing left to do.
    pods: BTreeMap<String, Followed>,
    workers: JoinSet<()>,
}

impl Drop for Manager {
    /// Its workers go one after the other, and their pods run on: none of them may make room for another.
    fn drop(&mut self) {
        self.shared.slots.close();
    }
}

impl Manager {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            pods: BTreeMap::new(),
            workers: JoinSet::new(),
        }
    }

    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let api: Api<Pod> = Api::all(self.shared.client.clone());
        let own = format!("spec.nodeName={}", self.shared.settings.config.node_name);
        let changes = watcher(api, watcher::Config::default().fields(&own)).default_backoff();
        tokio::select! {
            () = self.follow(Box::pin(changes)) => {}
            _ = stop.wait_for(|stopping| *stopping) => {}
        }
        self.shared.slots.close();
        self.workers.shutdown().await;
    }

    async fn follow(&mut self, mut changes: impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Unpin) {
        let mut listed = BTreeSet::new();
        let mut first = true;
        loop {
            let change = tokio::select! {
                change = changes.try_next() => change,
                // Only so that what ended workers hold is freed.
                Some(_) = self.workers.join_next() => continue,
            };
            match change {
                Ok(Some(Event::Init)) => listed.clear(),
                Ok(Some(Event::InitApply(pod))) => {
                    listed.extend(pod.uid());
                    self.present(pod);
                }
                Ok(Some(Event::InitDone)) => {
                    self.keep_only(&listed);
                    if std::mem::take(&mut first) {
                        self.remove_orphans(&listed);
                        self.shared.slots.open();
                    }
                }
                Ok(Some(Event::Apply(pod))) => self.present(pod),
                Ok(Some(Event::Delete(pod))) => {
                    if let Some(worker) = pod.uid().and_then(|uid| self.pods.remove(&uid)) {
                        worker.seen.send_replace(Seen::Removed);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the watch of the node's pods failed and is tried again");
                }
            }
        }
    }

    fn present(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let ended = has_ended(&pod);
        let present = Seen::Present(Arc::new(pod));
        if let Some(worker) = self.pods.get(&uid) {
            worker.seen.send_replace(present);
            return;
        }
        let others = self
            .pods
            .values()
            .filter(|pod| !pod.over.load(Ordering::Relaxed))
            .count();
        let (seen, receiver) = watch::channel(present);
        // One that ended before this executor began is kept for its log alone. There may be more of them than places, and all
        // are listed before the worker of any has had a look.
        let over = Arc::new(AtomicBool::new(ended));
        let turn = if ended {
            Turn::Over
        } else if worker::has_begun(&self.shared.settings.pods_dir().join(&uid)) {
            Turn::Now(self.shared.slots.occupy())
        } else {
            Turn::InLine(self.shared.slots.ask())
        };
        let work = worker::run(
            self.shared.clone(),
            uid.clone(),
            receiver,
            others,
            over.clone(),
            turn,
        );
        self.workers.spawn(work);
        self.pods.insert(uid, Followed { seen, over });
    }

    fn keep_only(&mut self, listed: &BTreeSet<String>) {
        self.pods.retain(|uid, worker| {
            let kept = listed.contains(uid);
            if !kept {
                worker.seen.send_replace(Seen::Removed);
            }
            kept
        });
    }

    /// Ends and removes what is left of pods that were deleted while nobody looked.
    fn remove_orphans(&mut self, listed: &BTreeSet<String>) {
        let entries = match fs::read_dir(self.shared.settings.pods_dir()) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "what is left of earlier pods cannot be listed");
                return;
            }
        };
        for entry in entries.flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            if !listed.contains(&uid) {
                let shared = self.shared.clone();
                // What it left may still run.
                let slot = worker::has_begun(&entry.path()).then(|| shared.slots.occupy());
                self.workers.spawn(async move {
                    let _until_gone = slot;
                    if let Err(error) = remove_orphan(&shared, &entry.path()).await {
                        tracing::warn!(%error, uid, "what is left of a deleted pod cannot be removed");
                    }
                });
            }
        }
    }
}

async fn remove_orphan(shared: &Shared, dir: &std::path::Path) -> io::Result<()> {
    for files in attempt::all_in(dir)? {
        let State::Alive(mut wake) = attempt::find(&files, shared.now())? else {
            continue;
        };
        attempt::signal(&files, Signal::USR1)?;
        let mut rest = Vec::new();
        if tokio::time::timeout(ORPHAN_END, wake.read_to_end(&mut rest))
            .await
            .is_err()
        {
            attempt::signal(&files, Signal::KILL)?;
        }
    }
    remove_tree(dir)
}
