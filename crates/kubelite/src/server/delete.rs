//! Deletion: grace, finalizers, propagation, and the kinds that go in two steps.

use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::{
    builtin::{self, Builtin},
    clock,
    defects::Defect,
    error::{ApiError, Reason, Subject},
    request::{DeleteOptions, Preconditions, Propagation},
    server::{
        Core, metadata,
        read::Page,
        registry::Served,
        target::Target,
        write::{MODIFIED, WINNER_WAIT, storage_error},
    },
    store::{Change, CommitError, Expect, Object, Snapshot, Write},
};

/// The namespaces without which a cluster does not work.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];
/// How often a deletion is tried again when the object changes under it.
const DELETE_ATTEMPTS_MAX: usize = 100;
/// How many deletions of a whole namespace or kind are under way at once: enough to share the disk's commits.
const DELETIONS_AT_ONCE: usize = 64;

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";
/// Keeps a CustomResourceDefinition until its objects are gone.
pub(crate) const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What became of an object that somebody asked to delete.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Value),
    /// It is marked and waits for finalizers or its grace period.
    Marked(Value),
}

impl Core {
    /// Deletes one object, or marks it for deletion.
    pub(crate) async fn delete(&self, target: &Target, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        for _ in 0..DELETE_ATTEMPTS_MAX {
            let collection = &target.served.resource.collection;
            let Some(old) = self.store.get(collection, &target.key()) else {
                return Err(ApiError::not_found(target.subject()));
            };
            let live = target.served.present(&old);
            if !self.defects.has(Defect::Preconditions) {
                check_preconditions(target, options, &live)?;
            }
            let step = self.deletion_step(target, options, &live);
            let (change, outcome) = match step {
                Step::Nothing => return Ok(Deleted::Marked(live)),
                Step::Remove(last) => (Change::Delete(target.served.to_storage(last)), Outcome::Gone),
                Step::Mark(marked) => (Change::Put(target.served.to_storage(marked)), Outcome::Marked),
            };
            if options.dry_run && !self.defects.has(Defect::DryRun) {
                return Ok(match (change, outcome) {
                    (Change::Put(value), _) => Deleted::Marked(target.served.present_value(value)),
                    (Change::Delete(value), _) => Deleted::Gone(target.served.present_value(value)),
                });
            }
            let write = Write {
                collection: collection.clone(),
                key: target.key(),
                expect: Expect::Revision(old.revision),
                change,
            };
            match self.store.commit(write).await {
                Ok(stored) => {
                    let value = target.served.present(&stored);
                    return Ok(match outcome {
                        Outcome::Gone => Deleted::Gone(value),
                        Outcome::Marked => Deleted::Marked(value),
                    });
                }
                Err(CommitError::Conflict { current }) => {
                    // As in `write`: wait until the faster write can be read; then look again.
                    let _ = tokio::time::timeout(WINNER_WAIT, self.store.wait_for(current)).await;
                }
                Err(CommitError::NotFound) => return Err(ApiError::not_found(target.subject())),
                Err(error) => return Err(storage_error(&error)),
            }
        }
        Err(ApiError::conflict(target.subject(), MODIFIED))
    }

    fn deletion_step(&self, target: &Target, options: &DeleteOptions, live: &Value) -> Step {
        match target.served.resource.builtin {
            Some(Builtin::Namespace) => return self.namespace_step(live),
            Some(Builtin::CustomResourceDefinition) if !metadata::is_deleting(live) => {
                return Step::Mark(self.terminating_definition(live));
            }
            _ => {}
        }
        let finalizers = finalizers_after(target, options, live);
        let wanted = options
            .grace_period_seconds
            .map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
        // Asking again without a period leaves the one that runs.
        let running =
            metadata::number(live, "deletionGracePeriodSeconds").filter(|_| metadata::is_deleting(live));
        let kind = target.served.resource.builtin;
        let grace = kind.map_or(0, |kind| builtin::grace_period(kind, live, wanted.or(running)));
        if metadata::is_deleting(live) {
            return self.deletion_again(live, &finalizers, grace);
        }
        let mut marked = live.clone();
        if finalizers.is_empty() && grace == 0 {
            // Only pods are marked even when they go at once.
            if kind == Some(Builtin::Pod) {
                self.mark(&mut marked, 0);
            }
            return Step::Remove(marked);
        }
        self.mark(&mut marked, grace);
        metadata::set_finalizers(&mut marked, finalizers);
        Step::Mark(marked)
    }

    /// A second request for something already marked can only shorten its grace or change how it propagates.
    fn deletion_again(&self, live: &Value, finalizers: &[String], grace: i64) -> Step {
        let left = metadata::number(live, "deletionGracePeriodSeconds").unwrap_or(0);
        let shorter = grace < left;
        if finalizers.is_empty() && (left == 0 || grace == 0) {
            return Step::Remove(live.clone());
        }
        let mut marked = live.clone();
        metadata::set_finalizers(&mut marked, finalizers.to_vec());
        if shorter {
            let now = self.clock.now();
            let deadline = metadata::text(live, "deletionTimestamp")
                .parse::<jiff::Timestamp>()
                .unwrap_or(now);
            let earlier = deadline
                .saturating_sub(jiff::SignedDuration::from_secs(left - grace))
                .unwrap_or(now)
                .max(now);
            metadata::set(&mut marked, "deletionTimestamp", clock::seconds(earlier));
            metadata::set(&mut marked, "deletionGracePeriodSeconds", grace);
        }
        if marked == *live {
            Step::Nothing
        } else {
            Step::Mark(marked)
        }
    }

    /// Sets the deletion timestamp, the grace period and the next generation.
    fn mark(&self, object: &mut Value, grace: i64) {
        let now = self.clock.now();
        let deadline = now
            .saturating_add(jiff::SignedDuration::from_secs(grace))
            .unwrap_or(now);
        metadata::set(object, "deletionTimestamp", clock::seconds(deadline));
        metadata::set(object, "deletionGracePeriodSeconds", grace);
        if let Some(generation) = metadata::number(object, "generation").filter(|generation| *generation > 0)
        {
            metadata::set(object, "generation", generation + 1);
        }
    }

    /// A namespace is first marked, then emptied by its controller, then removed.
    fn namespace_step(&self, live: &Value) -> Step {
        if !metadata::is_deleting(live) {
            let mut marked = live.clone();
            let now = clock::seconds(self.clock.now());
            metadata::set(&mut marked, "deletionTimestamp", now);
            metadata::member_map(&mut marked, "status").insert("phase".to_owned(), "Terminating".into());
            return Step::Mark(marked);
        }
        if namespace_finalizers(live) == 0 && metadata::finalizers(live).is_empty() {
            Step::Remove(live.clone())
        } else {
            Step::Nothing
        }
    }

    fn terminating_definition(&self, live: &Value) -> Value {
        let mut marked = live.clone();
        let now = clock::seconds(self.clock.now());
        metadata::set(&mut marked, "deletionTimestamp", now.as_str());
        let mut finalizers: Vec<String> = metadata::finalizers(live)
            .into_iter()
            .map(ToOwned::to_owned)
            .collect();
        if !finalizers.iter().any(|finalizer| finalizer == CRD_CLEANUP) {
            finalizers.push(CRD_CLEANUP.to_owned());
        }
        metadata::set_finalizers(&mut marked, finalizers);
        let condition = json!({
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            "lastTransitionTime": now,
        });
        let status = metadata::member_map(&mut marked, "status");
        match status.get_mut("conditions") {
            Some(Value::Array(list)) => list.push(condition),
            _ => {
                status.insert("conditions".to_owned(), json!([condition]));
            }
        }
        marked
    }

    /// Deletes everything in a snapshot, or in one namespace of it, that is not being deleted already.
    pub(crate) async fn delete_all(
        &self,
        served: &Served,
        snapshot: &Snapshot,
        namespace: Option<&str>,
    ) -> Result<(), ApiError> {
        let found: Vec<(Target, Object)> = snapshot
            .iter(namespace, None)
            .filter(|(_, object)| !object.meta.deleting)
            .map(|(key, object)| {
                (
                    Target::new(served.clone(), &key.namespace, &key.name),
                    object.clone(),
                )
            })
            .collect();
        futures::stream::iter(found)
            .map(|(target, object)| async move {
                let same = Preconditions {
                    uid: Some(object.meta.uid.clone()),
                    resource_version: None,
                };
                self.delete_found(&target, same, Propagation::Background).await
            })
            .buffer_unordered(DELETIONS_AT_ONCE)
            .try_collect::<()>()
            .await
    }

    /// Deletes every object of a page; one that somebody else deleted first is as good as deleted.
    pub(crate) async fn delete_page(
        &self,
        target: &Target,
        page: &Page,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let found: Vec<Target> = page
            .objects
            .iter()
            .map(|object| {
                let found = target.served.present(object);
                let (namespace, name) = (
                    metadata::text(&found, "namespace"),
                    metadata::text(&found, "name"),
                );
                Target::new(target.served.clone(), namespace, name)
            })
            .collect();
        futures::stream::iter(found)
            .map(|one| async move {
                match self.delete(&one, options).await {
                    Err(error) if error.reason == Reason::NotFound => Ok(()),
                    other => other.map(|_| ()),
                }
            })
            .buffer_unordered(DELETIONS_AT_ONCE)
            .try_collect::<()>()
            .await
    }

    /// Deletes an object that a controller inside the server found, if it is still what was found.
    pub(crate) async fn delete_found(
        &self,
        target: &Target,
        found: Preconditions,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let options = DeleteOptions {
            propagation: Some(propagation),
            preconditions: found,
            ..DeleteOptions::default()
        };
        match self.delete(target, &options).await {
            Ok(_) => Ok(()),
            // Gone already, replaced by another object of that name, or changed, which is an event of its own.
            Err(error) if error.code == http::StatusCode::NOT_FOUND => Ok(()),
            Err(error) if error.code == http::StatusCode::CONFLICT => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether an update that left a marked object without finalizers may remove it.
pub(crate) fn removable(target: &Target, object: &Value) -> bool {
    match target.served.resource.builtin {
        Some(Builtin::Namespace) => namespace_finalizers(object) == 0,
        _ => true,
    }
}

enum Step {
    Nothing,
    Mark(Value),
    Remove(Value),
}

#[derive(Clone, Copy)]
enum Outcome {
    Gone,
    Marked,
}

fn namespace_finalizers(namespace: &Value) -> usize {
    namespace
        .pointer("/spec/finalizers")
        .and_then(Value::as_array)
        .map_or(0, Vec::len)
}

fn check_preconditions(target: &Target, options: &DeleteOptions, live: &Value) -> Result<(), ApiError> {
    let is_namespace = target.served.resource.builtin == Some(Builtin::Namespace);
    if is_namespace && IMMORTAL_NAMESPACES.contains(&target.name.as_str()) {
        return Err(ApiError::forbidden(
            target.subject(),
            "this namespace may not be deleted",
        ));
    }
    // Here, and only here, Kubernetes names the kind where it otherwise names the resource.
    let subject = Subject {
        resource: &target.served.resource.kind,
        ..target.subject()
    };
    let uid = metadata::text(live, "uid");
    if let Some(wanted) = options
        .preconditions
        .uid
        .as_deref()
        .filter(|wanted| *wanted != uid)
    {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(ApiError::conflict(subject, why));
    }
    let version = metadata::text(live, "resourceVersion");
    let wanted = options.preconditions.resource_version.as_deref();
    if let Some(wanted) = wanted.filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        );
        return Err(ApiError::conflict(subject, why));
    }
    Ok(())
}

/// The finalizers that a deletion leaves on the object: its own, plus the one that makes garbage collection wait or orphan.
fn finalizers_after(target: &Target, options: &DeleteOptions, live: &Value) -> Vec<String> {
    let present = metadata::finalizers(live);
    let propagation = options.propagation.unwrap_or_else(|| {
        if present.contains(&ORPHAN) {
            Propagation::Orphan
        } else if present.contains(&FOREGROUND) {
            Propagation::Foreground
        } else if target.served.resource.builtin == Some(Builtin::Job) {
            // Jobs predate garbage collection, and a client that says nothing gets what it got then.
            Propagation::Orphan
        } else {
            Propagation::Background
        }
    });
    let mut finalizers: Vec<String> = present
        .into_iter()
        .filter(|finalizer| *finalizer != ORPHAN && *finalizer != FOREGROUND)
        .map(ToOwned::to_owned)
        .collect();
    match propagation {
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Background => {}
    }
    finalizers
}
