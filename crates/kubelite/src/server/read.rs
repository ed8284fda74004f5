//! Get and list.

use std::{num::NonZeroUsize, time::Duration};

use crate::{
    defects::Defect,
    error::{ApiError, Cause, Reason},
    request::{ContinueToken, ListFrom, ListOptions},
    server::{Core, select::Selection, target::Target},
    store::{Key, Object, Snapshot, SnapshotError},
    table::ListMeta,
};

/// How long a read waits for a version that the server has not reached.
pub(crate) const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    pub(crate) metadata: ListMeta,
}

impl Core {
    pub(crate) fn get(&self, target: &Target) -> Result<Object, ApiError> {
        self.store
            .get(&target.served.resource.collection, &target.key())
            .ok_or_else(|| ApiError::not_found(target.subject()))
    }

    pub(crate) async fn list(&self, target: &Target, options: &ListOptions) -> Result<Page, ApiError> {
        let selection = self.selection(target, &options.label_selector, &options.field_selector)?;
        let collection = &target.served.resource.collection;
        let mut after = None;
        let mut requested = None;
        let exact = match &options.from {
            ListFrom::Latest | ListFrom::Any => None,
            ListFrom::AtLeast(version) => {
                self.reach(*version).await?;
                None
            }
            ListFrom::Exact(version) => {
                self.reach(*version).await?;
                requested = Some(*version);
                requested
            }
            ListFrom::Continue(token) => {
                after = Some(key_of(&token.start));
                token.version
            }
        };
        let snapshot = self
            .store
            .snapshot(collection, exact)
            .map_err(|error| match error {
                SnapshotError::Expired { .. } => expired_list(&options.from),
                error @ SnapshotError::Future { .. } => snapshot_error(error, requested.unwrap_or(0)),
            })?;
        let limit = options.limit.filter(|_| !self.defects.has(Defect::Limit));
        Ok(page(
            &snapshot,
            &selection,
            after.as_ref(),
            limit.map_or(0, NonZeroUsize::get),
        ))
    }

    /// Which objects a request is about.
    pub(crate) fn selection(
        &self,
        target: &Target,
        labels: &str,
        fields: &str,
    ) -> Result<Selection, ApiError> {
        let labels = if self.defects.has(Defect::Labels) {
            ""
        } else {
            labels
        };
        Selection::new(target, labels, fields)
    }

    /// Waits until the store has reached a version that a client has seen elsewhere.
    pub(crate) async fn reach(&self, version: u64) -> Result<(), ApiError> {
        let current = self.store.revision();
        if version <= current {
            return Ok(());
        }
        let reached = tokio::time::timeout(FRESHNESS_WAIT, self.store.wait_for(version)).await;
        reached.map_err(|_| too_large(version, current))
    }
}

pub(crate) fn too_large(version: u64, current: u64) -> ApiError {
    ApiError::new(
        Reason::Timeout,
        format!("Timeout: Too large resource version: {version}, current: {current}"),
    )
    .with_cause(Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    })
    .with_retry_after(1)
}

/// A list of a moment that the history no longer reaches.
fn expired_list(from: &ListFrom) -> ApiError {
    let message = if matches!(from, ListFrom::Continue(_)) {
        "The provided continue parameter is too old to display a consistent list result. You must start a new list \
         without the continue parameter."
    } else {
        "The resourceVersion for the provided list is too old."
    };
    ApiError::new(Reason::Expired, message)
}

/// A watch that cannot begin, or go on, at the version that the client named.
pub(crate) fn snapshot_error(error: SnapshotError, requested: u64) -> ApiError {
    match error {
        SnapshotError::Future { current } => too_large(requested, current),
        SnapshotError::Expired { oldest } => ApiError::new(
            Reason::Expired,
            format!("too old resource version: {requested} ({oldest})"),
        ),
    }
}

fn page(snapshot: &Snapshot, selection: &Selection, after: Option<&Key>, limit: usize) -> Page {
    let namespace = selection.namespace.as_deref();
    let mut objects = Vec::new();
    let mut last: Option<&Key> = None;
    let mut more = false;
    let mut entries = snapshot.iter(namespace, after);
    for (key, object) in entries.by_ref() {
        if !selection.matches(key, object) {
            continue;
        }
        if limit > 0 && objects.len() == limit {
            more = true;
            break;
        }
        objects.push(object.clone());
        last = Some(key);
    }
    let mut metadata = ListMeta {
        resource_version: snapshot.revision.to_string(),
        ..ListMeta::default()
    };
    if let (true, Some(last)) = (more, last) {
        metadata.continue_token = ContinueToken::after(snapshot.revision, &token_key(last)).encode();
        if selection.selects_all() {
            let remaining = match after {
                None => snapshot.count(namespace).saturating_sub(objects.len()),
                // One was taken from the iterator to find out that there is more.
                Some(_) => entries.count() + 1,
            };
            metadata.remaining_item_count = Some(remaining as u64);
        }
    }
    Page { objects, metadata }
}

/// A key as a continue token writes it: `namespace/name`, or the name alone for cluster-scoped kinds.
fn token_key(key: &Key) -> String {
    if key.namespace.is_empty() {
        key.name.to_string()
    } else {
        format!("{}/{}", key.namespace, key.name)
    }
}

/// The key after which a page begins. The token's start is the last key of the page before and a zero byte.
fn key_of(start: &str) -> Key {
    let last = start.trim_end_matches('\0');
    let (namespace, name) = last.split_once('/').unwrap_or(("", last));
    Key {
        namespace: namespace.into(),
        name: name.into(),
    }
}
