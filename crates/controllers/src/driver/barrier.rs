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
};

/// How long the caches are given to show a write before live reads decide.
pub const BARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// A write that the caches have to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub kind: CachedKind,
    pub key: Key,
    pub uid: Uid,
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
                Mark::Version(version) => cache.has_reached(&self.key, version),
                Mark::Gone => !cache.holds(&self.key, &self.uid),
            }
        })
    }
}

/// Waits until the caches show all of it.
pub(super) async fn settle(context: &Context, controller: &'static str, written: &[Written]) {
    let mut left: Vec<&Written> = written.iter().collect();
    while !left.is_empty() {
        let shown = |caches: &Caches| left.iter().all(|write| write.is_shown_by(caches));
        let wait = context.world.until(shown);
        if tokio::time::timeout(BARRIER_PATIENCE, wait).await.is_ok() {
            return;
        }
        let unseen: Vec<&Written> = {
            let caches = context.world.caches();
            left.into_iter()
                .filter(|write| !write.is_shown_by(&caches))
                .collect()
        };
        context.metrics.barrier_expired(controller);
        left = Vec::new();
        for write in unseen {
            if let Err(error) = refresh(context, write).await {
                tracing::warn!(object = %write.key, kind = %write.kind, %error, "a write is not seen in the cache, and reading it failed");
                left.push(write);
            }
        }
    }
}

/// Puts into the cache what a live read finds.
async fn refresh(context: &Context, write: &Written) -> Result<(), ReadError> {
    with_kind!(write.kind, K => {
        let answer = live::get::<K>(&context.client, &write.key).await?;
        context.world.learn(&write.key, &write.uid, answer);
    });
    Ok(())
}
