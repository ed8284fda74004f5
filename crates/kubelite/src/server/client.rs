//! How controllers in this process work on the server: with the checks and the field ownership of every other write, but
//! without the way through HTTP.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    body::Decoded,
    builtin::{Builtin, Endpoint},
    clock,
    defects::Defect,
    error::{ApiError, Reason},
    request::{DeleteOptions, Preconditions, Propagation, WriteOptions},
    server::{
        Core, metadata,
        target::Target,
        write::{MODIFIED, Ownership, WriteContext},
    },
    store::{Key, Store},
};

/// How often a binding is tried again after losing to another write of the same pod.
const BIND_ATTEMPTS_MAX: usize = 100;

/// A controller's access to the server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    core: Arc<Core>,
    /// Who owns the fields that it writes.
    manager: &'static str,
}

/// What an update takes for granted about the object it changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    /// It is still the same object, at whatever version.
    Uid(&'a str),
    /// Nothing has changed since it was read.
    Revision(u64),
}

impl Client {
    pub(super) fn new(core: Arc<Core>, manager: &'static str) -> Self {
        Self { core, manager }
    }

    /// The same access under another name.
    pub(crate) fn named(&self, manager: &'static str) -> Self {
        Self::new(self.core.clone(), manager)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.core.clock.now()
    }

    /// For reading and following.
    pub(crate) fn store(&self) -> &Store {
        &self.core.store
    }

    /// Whether the server is wrong on purpose.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.core.defects.has(defect)
    }

    /// Resolves when the server is told to stop.
    pub(crate) async fn stopping(&self) {
        self.core.stopping().await;
    }

    pub(crate) async fn create(&self, kind: Builtin, namespace: &str, object: Value) -> Result<(), ApiError> {
        let target = self.target(kind, &Key::new(namespace, ""), Endpoint::Main)?;
        let body = Decoded {
            value: object,
            duplicates: Vec::new(),
        };
        self.context(&target, &WriteOptions::default())
            .create(body, &mut Vec::new())
            .await
            .map(|_| ())
    }

    /// Changes an object that is still what it is expected to be: `NotFound` for another one of its name, `Conflict` for
    /// another version.
    pub(crate) async fn update(
        &self,
        kind: Builtin,
        key: &Key,
        endpoint: Endpoint,
        expected: Expected<'_>,
        change: impl Fn(&mut Value),
    ) -> Result<(), ApiError> {
        let target = self.target(kind, key, endpoint)?;
        let options = WriteOptions::default();
        let context = self.context(&target, &options);
        let attempt = |live: &Value| {
            match expected {
                Expected::Uid(uid) if metadata::text(live, "uid") != uid => {
                    return Err(ApiError::not_found(target.subject()));
                }
                Expected::Revision(revision)
                    if metadata::text(live, "resourceVersion") != revision.to_string() =>
                {
                    return Err(ApiError::conflict(target.subject(), MODIFIED));
                }
                Expected::Uid(_) | Expected::Revision(_) => {}
            }
            let mut value = live.clone();
            change(&mut value);
            let body = Decoded {
                value,
                duplicates: Vec::new(),
            };
            context.take_in_change(body, live, &mut Vec::new())
        };
        context.until_stored(Ownership::Track, attempt).await.map(|_| ())
    }

    /// Deletes an object if it still has this UID. One that is gone already is as good as deleted.
    pub(crate) async fn delete(
        &self,
        kind: Builtin,
        key: &Key,
        uid: &str,
        propagation: Option<Propagation>,
    ) -> Result<(), ApiError> {
        let target = self.target(kind, key, Endpoint::Main)?;
        let options = DeleteOptions {
            propagation,
            preconditions: Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            },
            ..DeleteOptions::default()
        };
        match self.core.delete(&target, &options).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.reason, Reason::NotFound | Reason::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a pod its node, which no ordinary update may do: the write behind the `binding` subresource. Like there, nobody
    /// comes to own the node name.
    pub(crate) async fn bind(&self, key: &Key, uid: &str, node: &str) -> Result<(), ApiError> {
        let target = self.target(Builtin::Pod, key, Endpoint::Main)?;
        let options = WriteOptions::default();
        let context = self.context(&target, &options);
        for _ in 0..BIND_ATTEMPTS_MAX {
            let found = self.core.store.get(&target.served.resource.collection, key);
            let Some(old) = found.filter(|object| object.meta.uid == uid) else {
                return Err(ApiError::not_found(target.subject()));
            };
            let mut pod = target.served.present(&old);
            check_bindable(&target, &pod)?;
            metadata::member_map(&mut pod, "spec").insert("nodeName".to_owned(), node.into());
            set_scheduled(&mut pod, &clock::seconds(self.now()));
            if context.replace(&old, pod).await?.is_some() {
                return Ok(());
            }
        }
        Err(ApiError::conflict(target.subject(), MODIFIED))
    }

    fn target(&self, kind: Builtin, key: &Key, endpoint: Endpoint) -> Result<Target, ApiError> {
        let info = kind.info();
        let found = self.core.registry().find(info.group, info.version, info.plural);
        let served = found
            .ok_or_else(|| ApiError::new(Reason::NotFound, format!("{} are not served", info.plural)))?;
        let mut target = Target::new(served, &key.namespace, &key.name);
        target.endpoint = endpoint;
        Ok(target)
    }

    fn context<'a>(&'a self, target: &'a Target, options: &'a WriteOptions) -> WriteContext<'a> {
        WriteContext {
            core: &self.core,
            target,
            options,
            manager: self.manager,
        }
    }
}

fn check_bindable(target: &Target, pod: &Value) -> Result<(), ApiError> {
    let name = &target.name;
    let node = pod
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .unwrap_or("");
    let gated = pod
        .pointer("/spec/schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty());
    let why = if metadata::is_deleting(pod) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !node.is_empty() {
        format!("pod {name} is already assigned to node {node:?}")
    } else if gated {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    Err(ApiError::conflict(target.subject(), why))
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let fresh = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    let conditions = metadata::member_map(pod, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    let Value::Array(list) = conditions else { return };
    match list
        .iter_mut()
        .find(|condition| condition["type"] == "PodScheduled")
    {
        Some(condition) => *condition = fresh,
        None => list.push(fresh),
    }
}
