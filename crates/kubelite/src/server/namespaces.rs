//! The life of a namespace: it gets a default service account, and when it is deleted, everything in it goes first.

use serde_json::{Value, json};

use crate::{
    body::Decoded,
    builtin::Endpoint,
    clock,
    defects::Defect,
    error::{ApiError, Cause, Reason},
    request::WriteOptions,
    resource::Scope,
    server::{Core, metadata, target::Target, write::WriteContext},
    store::{Collection, Event, EventKind, Key},
};

const MANAGER: &str = "namespace-controller";
/// The namespaces that every cluster has.
const INITIAL: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];
/// The finalizer in `spec.finalizers` that stands for "not emptied yet".
const FINALIZER: &str = "kubernetes";

/// The conditions of a terminating namespace that tell of failures which cannot happen here.
const NOTHING_FAILED: [(&str, &str, &str); 3] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
];

fn namespaces() -> Collection {
    Collection::new("", "namespaces")
}

impl Core {
    /// Makes the namespaces that every cluster has, on first start.
    pub(crate) async fn make_initial_namespaces(&self) -> Result<(), ApiError> {
        for name in INITIAL {
            if self.namespace(name).is_none() {
                self.make(
                    &namespaces(),
                    "",
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
                )
                .await?;
            }
        }
        Ok(())
    }

    /// Creates an object of a built-in kind on behalf of the server itself.
    async fn make(&self, collection: &Collection, namespace: &str, object: Value) -> Result<(), ApiError> {
        let Some(served) = self.registry().of_collection(collection) else {
            return Ok(());
        };
        let target = Target::new(served, namespace, "");
        let context = WriteContext {
            core: self,
            target: &target,
            options: &WriteOptions::default(),
            manager: "kube-apiserver",
        };
        match context
            .create(
                Decoded {
                    value: object,
                    duplicates: Vec::new(),
                },
                &mut Vec::new(),
            )
            .await
        {
            Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn namespace(&self, name: &str) -> Option<crate::store::Object> {
        self.store.get(
            &namespaces(),
            &Key {
                namespace: "".into(),
                name: name.into(),
            },
        )
    }

    /// An object can only be created in a namespace that is there to stay.
    pub(crate) fn check_namespace(&self, target: &Target, object: &Value) -> Result<(), ApiError> {
        let namespace = target.namespace.as_str();
        if target.served.resource.scope == Scope::Cluster {
            return Ok(());
        }
        let Some(found) = self.namespace(namespace) else {
            let missing = crate::error::Subject {
                group: "",
                resource: "namespaces",
                kind: "Namespace",
                name: namespace,
            };
            return Err(ApiError::not_found(missing));
        };
        if found.meta.deleting {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let error = ApiError::forbidden(target.subject_named(metadata::text(object, "name")), why);
            return Err(error.with_cause(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            }));
        }
        Ok(())
    }

    pub(super) async fn visit_all_namespaces(&self) {
        let Ok(snapshot) = self.store.snapshot(&namespaces(), None) else {
            return;
        };
        for (key, _) in snapshot.iter(None, None) {
            self.visit_namespace(&key.name).await;
        }
    }

    pub(super) async fn visit_namespace_of(&self, event: &Event) {
        if event.collection == namespaces() {
            if event.kind != EventKind::Deleted {
                self.visit_namespace(&event.key.name).await;
            }
        } else if event.kind == EventKind::Deleted && !event.key.namespace.is_empty() {
            // The last object of its kind in a terminating namespace may just have gone. While there are others of the kind,
            // looking at everything again would tell nothing new.
            let is_last = || {
                let snapshot = self.store.snapshot(&event.collection, None);
                snapshot.is_ok_and(|left| left.iter(Some(&event.key.namespace), None).next().is_none())
            };
            if self
                .namespace(&event.key.namespace)
                .is_some_and(|namespace| namespace.meta.deleting)
                && is_last()
            {
                self.visit_namespace(&event.key.namespace).await;
            }
        }
    }

    async fn visit_namespace(&self, name: &str) {
        let Some(namespace) = self.namespace(name) else {
            return;
        };
        let result = if namespace.meta.deleting {
            self.empty_namespace(name).await
        } else {
            let account = Collection::new("", "serviceaccounts");
            let key = Key {
                namespace: name.into(),
                name: "default".into(),
            };
            if self.store.get(&account, &key).is_some() {
                return;
            }
            self.make(
                &account,
                name,
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
            )
            .await
        };
        // A namespace that began to terminate in between gets its next visit from that change.
        if let Err(error) = result.or_else(|error| {
            if error.reason == Reason::Forbidden {
                Ok(())
            } else {
                Err(error)
            }
        }) {
            tracing::warn!(namespace = name, %error, "could not bring the namespace forward");
            self.metrics.namespace_failures.inc();
        }
    }

    async fn empty_namespace(&self, name: &str) -> Result<(), ApiError> {
        let mut remaining: Vec<(String, usize)> = Vec::new();
        let mut finalizers: Vec<(String, usize)> = Vec::new();
        for collection in self.store.collections() {
            let Some(served) = self.registry().of_collection(&collection) else {
                continue;
            };
            if served.resource.scope == Scope::Cluster {
                continue;
            }
            let Ok(snapshot) = self.store.snapshot(&collection, None) else {
                continue;
            };
            self.delete_all(&served, &snapshot, Some(name)).await?;
            let Ok(after) = self.store.snapshot(&collection, None) else {
                continue;
            };
            let mut left = 0;
            for (_, object) in after.iter(Some(name), None) {
                left += 1;
                for finalizer in &object.meta.finalizers {
                    count(&mut finalizers, finalizer);
                }
            }
            if left > 0 {
                // With a dot at the end for the core group: so the namespace controller writes it.
                remaining.push((
                    format!("{}.{}", served.resource.plural, served.resource.group),
                    left,
                ));
            }
        }
        if remaining.is_empty() || self.defects.has(Defect::Content) {
            self.finish_namespace(name).await
        } else {
            self.explain_namespace(name, &remaining, &finalizers).await
        }
    }

    async fn finish_namespace(&self, name: &str) -> Result<(), ApiError> {
        let Some(served) = self.registry().of_collection(&namespaces()) else {
            return Ok(());
        };
        let mut target = Target::new(served, "", name);
        target.endpoint = Endpoint::Finalize;
        self.amend(&target, MANAGER, |namespace| {
            let spec = metadata::member_map(namespace, "spec");
            if let Some(Value::Array(finalizers)) = spec.get_mut("finalizers") {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
                // An empty list is written as none at all.
                if finalizers.is_empty() {
                    spec.remove("finalizers");
                }
            }
        })
        .await
    }

    /// Says on the namespace what it waits for.
    async fn explain_namespace(
        &self,
        name: &str,
        remaining: &[(String, usize)],
        finalizers: &[(String, usize)],
    ) -> Result<(), ApiError> {
        let Some(served) = self.registry().of_collection(&namespaces()) else {
            return Ok(());
        };
        let mut target = Target::new(served, "", name);
        target.endpoint = Endpoint::Status;
        let now = clock::seconds(self.clock.now());
        let list = |entries: &[(String, usize)], verb: &str| {
            let texts: Vec<String> = entries
                .iter()
                .map(|(what, count)| format!("{what} {verb} {count} resource instances"))
                .collect();
            texts.join(", ")
        };
        let content = format!("Some resources are remaining: {}", list(remaining, "has"));
        let finalizers = if finalizers.is_empty() {
            (
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".to_owned(),
            )
        } else {
            let text = list(finalizers, "in");
            (
                true,
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {text}"),
            )
        };
        self.amend(&target, MANAGER, |namespace| {
            for (type_, reason, message) in NOTHING_FAILED {
                set_condition(namespace, type_, false, reason, message, &now);
            }
            set_condition(
                namespace,
                "NamespaceContentRemaining",
                true,
                "SomeResourcesRemain",
                &content,
                &now,
            );
            let (status, reason, message) = &finalizers;
            set_condition(
                namespace,
                "NamespaceFinalizersRemaining",
                *status,
                reason,
                message,
                &now,
            );
        })
        .await
    }
}

fn count(counts: &mut Vec<(String, usize)>, what: &str) {
    match counts.iter_mut().find(|(name, _)| name == what) {
        Some((_, number)) => *number += 1,
        None => counts.push((what.to_owned(), 1)),
    }
}

/// Sets a condition, and leaves it alone where nothing but the time would change.
fn set_condition(object: &mut Value, type_: &str, status: bool, reason: &str, message: &str, now: &str) {
    let status = if status { "True" } else { "False" };
    let conditions = metadata::member_map(object, "status")
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(list) = conditions else { return };
    let fresh = json!({
        "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match list.iter_mut().find(|condition| condition["type"] == type_) {
        Some(condition) if condition["message"] == message && condition["status"] == status => {}
        Some(condition) => *condition = fresh,
        None => list.push(fresh),
    }
}
