//! A kubelet without containers: it speaks to the API as the real one does, and what its pods do is written down beforehand.
//!
//! It learns of pods from the changes of the store, moves those of its node from Pending to Running and to their end, obeys
//! deletion with its grace, and takes a pod away when all of it has stopped. Every start of work goes into a [`Record`] that
//! only the checks read: what the API says about work may be wrong, this is what happened.

mod record;
mod script;
mod status;
mod worker;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use kubelite::{
    clock::TokioClock,
    store::{Event, EventKind, Store},
};
use tokio::{sync::watch, task::JoinSet};

use self::worker::{Sight, Worker};
pub use self::{
    record::{Assignment, Ending, Record, Work},
    script::{Eviction, Lack, OnTerm, Script, Scripts},
};
use crate::{
    trace::Trace,
    world::{NAMESPACE, NODE, World, pods},
};

/// The running kubelet. Dropping it ends it.
#[derive(Debug)]
pub struct Kubelet {
    tasks: JoinSet<()>,
}

impl Kubelet {
    /// Starts it in a world that has no pods yet.
    pub fn start(world: &World, scripts: Scripts, record: &Record) -> Self {
        let following = Following {
            client: Client::new(world.api("kubelet"), NAMESPACE),
            store: world.store().clone(),
            clock: world.clock(),
            trace: Arc::clone(world.trace()),
            scripts: Arc::new(scripts),
            record: record.clone(),
            seen: BTreeMap::new(),
            workers: JoinSet::new(),
        };
        let mut follow = world.store().follow();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut following = following;
            loop {
                let batch = follow.next().await.expect("the kubelet keeps up");
                for event in &batch.events {
                    following.note(event);
                }
            }
        });
        Self { tasks }
    }

    /// Whether it is still there: it ends only by a panic.
    pub fn is_alive(&mut self) -> bool {
        self.tasks.try_join_next().is_none()
    }
}

struct Following {
    client: Client,
    store: Store,
    clock: TokioClock,
    trace: Arc<Trace>,
    scripts: Arc<Scripts>,
    record: Record,
    /// What each worker is told of its pod, by the pod's UID.
    seen: BTreeMap<String, watch::Sender<Sight>>,
    workers: JoinSet<()>,
}

impl Following {
    fn note(&mut self, event: &Event) {
        if event.collection != pods() {
            return;
        }
        let uid = &event.object.meta.uid;
        if event.kind == EventKind::Deleted {
            if let Some(seen) = self.seen.remove(uid) {
                seen.send_replace(Sight::Gone);
            }
            return;
        }
        let pod: Pod = serde_json::from_slice(&event.object.json).expect("a stored pod is a pod");
        if pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) != Some(NODE) {
            return;
        }
        let sight = Sight::Here {
            grace: pod
                .metadata
                .deletion_timestamp
                .is_some()
                .then(|| pod.metadata.deletion_grace_period_seconds.unwrap_or(0)),
        };
        if let Some(seen) = self.seen.get(uid) {
            seen.send_replace(sight);
            return;
        }
        let (sender, receiver) = watch::channel(sight);
        self.seen.insert(uid.clone(), sender);
        let worker = Worker {
            api: Api::namespaced(self.client.clone(), NAMESPACE),
            pod,
            seen: receiver,
            store: self.store.clone(),
            clock: self.clock,
            scripts: Arc::clone(&self.scripts),
            record: self.record.clone(),
            trace: Arc::clone(&self.trace),
        };
        self.workers.spawn(worker.run());
    }
}
