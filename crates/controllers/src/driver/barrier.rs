//! Read your own writes: a key is not planned again before the caches show what was written for it.
//!
//! Otherwise the next plan would be made from a world in which the last one did not happen yet, and do it again. Usually the
//! wait is over in milliseconds. If a watch is stuck, live reads put what they find into the caches after a while, so that one
//! stuck watch does not hold up a key for good.

use std::time::Duration;

use jangar_engine::decision::{Key, Uid};

use super::Context;
use crate::{
    caches::{Cached, CachedKind, Caches, ResourceVersion, with_kind},
    live::{self, ReadError},
    metrics::ObjectKind,
};

/// How long the caches are given to show a write before live reads decide.
pub const BARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// A write that the caches have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub kind: CachedKind,
    pub key: Key,
    pub uid: Uid,
    /// The label by which its watch finds the object, where there is one for each.
    pub label: Option<&'static str>,
    pub mark: Mark,
}

/// By what a write is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The object has this version. A write that changed nothing has the version that was there before.
    Version(ResourceVersion),
    /// The object went.
    Gone,
}

impl Written {
    /// Whether the caches show it.
    pub fn is_shown_by(&self, caches: &Caches) -> bool {
        with_kind!(self.kind, K => {
            let cache = K::cache(caches);
            match self.mark {
                Mark::Version(version) => cache.has_reached(&self.key, self.label, version),
                Mark::Gone => !cache.holds(&self.key, &self.uid),
            }
        })
    }
}

/// Waits until the caches show all of it.
pub(super) async fn settle(context: &Context, controller: &ObjectKind, written: &[Written]) {
    let mut left = unseen(context, written.iter().collect());
    if !left.is_empty() {
        context.metrics.barrier_wait(controller.clone());
    }
    while !left.is_empty() {
        let shown = |caches: &Caches| left.iter().all(|write| write.is_shown_by(caches));
        let wait = context.world.until(shown);
        if tokio::time::timeout(BARRIER_PATIENCE, wait).await.is_ok() {
            return;
        }
        context.metrics.barrier_timeout(controller.clone());
        let mut unread = Vec::new();
        for write in unseen(context, left) {
            if let Err(error) = refresh(context, write).await {
                tracing::warn!(
                    kind = %write.kind,
                    object = %write.key,
                    %error,
                    "the cache does not show a write, and reading it failed"
                );
                unread.push(write);
            }
        }
        left = unread;
    }
}

fn unseen<'w>(context: &Context, writes: Vec<&'w Written>) -> Vec<&'w Written> {
    let caches = context.world.caches();
    writes
        .into_iter()
        .filter(|write| !write.is_shown_by(&caches))
        .collect()
}

/// Puts into the cache what a live read finds.
async fn refresh(context: &Context, write: &Written) -> Result<(), ReadError> {
    with_kind!(write.kind, K => {
        let answer = live::get::<K>(context, &write.key).await?;
        context.world.learn(&write.key, &write.uid, answer);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jangar_api::labels;
    use jangar_engine::settings::Settings;
    use k8s_openapi::api::batch::v1::Job;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::caches::{Delivered, Feed, Scope};

    fn key() -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: "a".to_owned(),
        }
    }

    fn written(kind: CachedKind, mark: Mark) -> Written {
        Written {
            kind,
            key: key(),
            uid: Uid("u1".to_owned()),
            label: Some(labels::AGENT_RUN),
            mark,
        }
    }

    fn at(version: &str) -> Mark {
        Mark::Version(ResourceVersion::parse(version))
    }

    fn job(name: &str, version: &str) -> Delivered<Job> {
        let metadata = json!({ "namespace": "agents", "name": name, "uid": "u1", "resourceVersion": version, "labels": { labels::AGENT_RUN: "r" } });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn caches(events: Vec<Event<Delivered<Job>>>) -> Caches {
        let scope = Scope::All;
        let mut caches = Caches::new(&BTreeSet::from([scope.clone()]), &Settings::default());
        let label = Some(labels::AGENT_RUN);
        let feed = Feed { scope, label };
        for event in events {
            caches.apply(&feed, event);
        }
        caches
    }

    #[test]
    fn a_write_is_shown_by_its_own_version_or_a_later_one() {
        let write = written(CachedKind::Job, at("7"));

        assert!(!write.is_shown_by(&caches(vec![])));
        assert!(!write.is_shown_by(&caches(vec![Event::Apply(job("a", "6"))])));
        assert!(write.is_shown_by(&caches(vec![Event::Apply(job("a", "7"))])));
        assert!(write.is_shown_by(&caches(vec![Event::Apply(job("b", "8"))])));
        assert!(write.is_shown_by(&caches(vec![Event::Delete(job("a", "8"))])));
    }

    #[test]
    fn a_write_is_not_shown_by_the_cache_of_another_kind() {
        let write = written(CachedKind::Pod, at("7"));

        assert!(!write.is_shown_by(&caches(vec![Event::Apply(job("a", "8"))])));
    }

    #[test]
    fn a_deletion_is_shown_when_that_object_is_not_there() {
        let write = written(CachedKind::Job, Mark::Gone);
        let there = || Event::Apply(job("a", "6"));

        assert!(!write.is_shown_by(&caches(vec![there()])));
        assert!(write.is_shown_by(&caches(vec![there(), Event::Delete(job("a", "7"))])));
    }
}
