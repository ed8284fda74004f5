//! Owner garbage collection: what belongs to something that is gone goes too.
//!
//! Driven by the store's event stream. An owner that was deleted takes its dependents along (background), an owner that
//! waits in `foregroundDeletion` goes after its blocking dependents, and an `orphan` owner first lets its dependents go.

use serde_json::Value;

use crate::{
    defects::Defect,
    error::ApiError,
    request::{Preconditions, Propagation, WriteOptions},
    resource::Scope,
    server::{
        Core,
        delete::{FOREGROUND, ORPHAN},
        metadata,
        target::Target,
        write::{Ownership, WriteContext},
    },
    store::{Collection, Event, EventKind, Key, Object, Owner},
};

const MANAGER: &str = "garbage-collector";

impl Core {
    pub(super) async fn collect(&self, event: &Event) {
        match event.kind {
            EventKind::Added | EventKind::Modified => {
                self.collect_object(&event.collection, &event.key, &event.object)
                    .await;
            }
            EventKind::Deleted => {
                let uid = &event.object.meta.uid;
                for (collection, key, dependent) in self.store.dependents(uid) {
                    self.collect_object(&collection, &key, &dependent).await;
                }
                // An owner that waited for this one may be free to go now.
                for owner in &event.object.meta.owners {
                    if let Some((collection, key, object)) = self.store.find_uid(&owner.uid) {
                        self.collect_object(&collection, &key, &object).await;
                    }
                }
            }
        }
    }

    pub(super) async fn collect_everything(&self) {
        for collection in self.store.collections() {
            let Ok(snapshot) = self.store.snapshot(&collection, None) else {
                continue;
            };
            for (key, object) in snapshot.iter(None, None) {
                self.collect_object(&collection, key, object).await;
            }
        }
    }

    async fn collect_object(&self, collection: &Collection, key: &Key, object: &Object) {
        let has = |name: &str| object.meta.finalizers.iter().any(|finalizer| finalizer == name);
        let waits = object.meta.deleting && (has(FOREGROUND) || has(ORPHAN));
        if object.meta.owners.is_empty() && !waits {
            return;
        }
        let Some(served) = self.registry().of_collection(collection) else {
            return;
        };
        let target = Target::new(served, &key.namespace, &key.name);
        let result = if object.meta.deleting && has(ORPHAN) {
            self.orphan_dependents(&target, object).await
        } else if object.meta.deleting && has(FOREGROUND) {
            self.delete_blocking_dependents(&target, object).await
        } else if object.meta.deleting {
            Ok(())
        } else {
            self.delete_if_ownerless(&target, object).await
        };
        if let Err(error) = result {
            tracing::warn!(collection = collection.as_str(), name = %key.name, %error, "garbage collection failed");
            self.metrics.gc_failures.inc();
        }
    }

    async fn delete_if_ownerless(&self, target: &Target, object: &Object) -> Result<(), ApiError> {
        if self.defects.has(Defect::Orphans) {
            return Ok(());
        }
        let mut kept = false;
        let mut awaited = false;
        let mut not_keeping = Vec::new();
        for owner in &object.meta.owners {
            match self.standing(owner, &target.namespace) {
                // As long as one owner may be there unseen, nothing is decided.
                Standing::Unknown => return Ok(()),
                Standing::Absent => not_keeping.push(owner.uid.clone()),
                Standing::Waiting => {
                    awaited = true;
                    not_keeping.push(owner.uid.clone());
                }
                Standing::Present => kept = true,
            }
        }
        if kept {
            // Somebody alive still wants it; only the references to the others go.
            return if not_keeping.is_empty() {
                Ok(())
            } else {
                self.drop_owners(target, &not_keeping).await
            };
        }
        let has_dependents = !self.store.dependents(&object.meta.uid).is_empty();
        let propagation = if awaited && has_dependents {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        // An event may show owners that the object has lost since, so only the version that was judged may go. A newer one
        // has an event of its own.
        let judged = Preconditions {
            uid: Some(object.meta.uid.clone()),
            resource_version: Some(object.revision.to_string()),
        };
        self.delete_found(target, judged, propagation).await
    }

    /// What became of the owner that an object in `namespace` names.
    fn standing(&self, owner: &Owner, namespace: &str) -> Standing {
        let registry = self.registry();
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let known = registry.resources().iter().find(|resource| {
            resource.group == group && resource.kind == owner.kind && resource.version(version).is_some()
        });
        let Some(kind) = known else {
            return Standing::Unknown;
        };
        if kind.scope == Scope::Namespaced && namespace.is_empty() {
            // Nothing says in which namespace the owner would be.
            return Standing::Unknown;
        }
        let found = self.store.find_uid(&owner.uid).filter(|(collection, key, _)| {
            let near = kind.scope == Scope::Cluster || *key.namespace == *namespace;
            near && *collection == kind.collection && *key.name == *owner.name
        });
        match found {
            None => Standing::Absent,
            Some((_, _, found)) if waits_for_dependents(&found) => Standing::Waiting,
            Some(_) => Standing::Present,
        }
    }

    async fn delete_blocking_dependents(&self, target: &Target, owner: &Object) -> Result<(), ApiError> {
        let mut blocked = false;
        for (collection, key, dependent) in self.store.dependents(&owner.meta.uid) {
            let blocks = dependent
                .meta
                .owners
                .iter()
                .any(|reference| reference.uid == owner.meta.uid && reference.block_owner_deletion);
            if !blocks || self.defects.has(Defect::BlockingDependents) {
                continue;
            }
            blocked = true;
            if !dependent.meta.deleting {
                let Some(served) = self.registry().of_collection(&collection) else {
                    continue;
                };
                let dependent_target = Target::new(served, &key.namespace, &key.name);
                self.delete_if_ownerless(&dependent_target, &dependent).await?;
            }
        }
        if blocked {
            Ok(())
        } else {
            self.drop_finalizer(target, FOREGROUND).await
        }
    }

    async fn orphan_dependents(&self, target: &Target, owner: &Object) -> Result<(), ApiError> {
        for (collection, key, _) in self.store.dependents(&owner.meta.uid) {
            let Some(served) = self.registry().of_collection(&collection) else {
                continue;
            };
            let dependent = Target::new(served, &key.namespace, &key.name);
            self.drop_owners(&dependent, std::slice::from_ref(&owner.meta.uid))
                .await?;
        }
        self.drop_finalizer(target, ORPHAN).await
    }

    async fn drop_owners(&self, target: &Target, uids: &[String]) -> Result<(), ApiError> {
        self.amend(target, MANAGER, |object| {
            if let Some(Value::Array(owners)) = object.pointer_mut("/metadata/ownerReferences") {
                owners.retain(|owner| {
                    !owner
                        .get("uid")
                        .and_then(Value::as_str)
                        .is_some_and(|uid| uids.iter().any(|gone| gone == uid))
                });
                if owners.is_empty() {
                    metadata::of(object).remove("ownerReferences");
                }
            }
        })
        .await
    }

    pub(crate) async fn drop_finalizer(&self, target: &Target, name: &str) -> Result<(), ApiError> {
        self.amend(target, MANAGER, |object| {
            let left = metadata::finalizers(object)
                .into_iter()
                .filter(|f| *f != name)
                .map(ToOwned::to_owned)
                .collect();
            metadata::set_finalizers(object, left);
        })
        .await
    }

    /// Changes an object on behalf of a controller inside the server; an object that is gone is left alone.
    pub(crate) async fn amend(
        &self,
        target: &Target,
        manager: &str,
        change: impl Fn(&mut Value),
    ) -> Result<(), ApiError> {
        let context = WriteContext {
            core: self,
            target,
            options: &WriteOptions::default(),
            manager,
        };
        let result = context
            .until_stored(Ownership::Track, |live| {
                let mut new = live.clone();
                change(&mut new);
                Ok(new)
            })
            .await;
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.code == http::StatusCode::NOT_FOUND => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// How an owner stands to its dependents.
enum Standing {
    Present,
    /// It goes once its dependents are gone.
    Waiting,
    /// It is not there, or not where and what the reference says.
    Absent,
    /// It is of a kind that nobody serves here.
    Unknown,
}

fn waits_for_dependents(owner: &Object) -> bool {
    owner.meta.deleting
        && owner
            .meta
            .finalizers
            .iter()
            .any(|finalizer| finalizer == FOREGROUND)
}
