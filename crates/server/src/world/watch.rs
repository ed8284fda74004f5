//! Keeps the caches filled.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use jangar_api::Kind;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event, watcher},
};
use tokio::task::JoinSet;

use super::{World, failure::Failure, object::Object, scopes};
use crate::metrics::{Metrics, WatchEvent};

/// How long a watch rests after its first failure; twice as long after each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// Caches do not stay behind much longer than the API server was away.
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// How long a watch lasts before it goes on with a new request: a connection that something on the way has forgotten tells
/// nobody.
const WATCH_SECONDS: u32 = 60;
/// How often those are counted that have failed for long.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// The running watches. Dropping them ends them.
#[derive(Debug)]
pub struct Watches {
    _tasks: JoinSet<()>,
}

/// How Kubernetes addresses a kind.
pub(crate) fn resource(kind: Kind) -> ApiResource {
    let info = kind.info();
    let gvk = GroupVersionKind::gvk(&info.group, &info.version, &info.kind);
    ApiResource::from_gvk_with_plural(&gvk, &info.plural)
}

/// Starts a watch for each kind and namespace. `cancels` says whether the settings let runs be cancelled.
pub fn start(world: &Arc<World>, client: &Client, cancels: bool) -> Watches {
    let mut tasks = JoinSet::new();
    for kind in Kind::ALL {
        for scope in scopes(world.namespaces()) {
            tasks.spawn(watch(Arc::clone(world), client.clone(), *kind, scope, cancels));
        }
    }
    tasks.spawn(count(Arc::clone(world)));
    Watches { _tasks: tasks }
}

async fn count(world: Arc<World>) {
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        world.count_stale();
    }
}

async fn watch(world: Arc<World>, client: Client, kind: Kind, scope: String, cancels: bool) {
    let resource = resource(kind);
    let api: Api<DynamicObject> = if scope.is_empty() {
        Api::all_with(client, &resource)
    } else {
        Api::namespaced_with(client, &scope, &resource)
    };
    let config = watcher::Config {
        timeout: Some(WATCH_SECONDS),
        ..watcher::Config::default()
    };
    let metrics: Arc<Metrics> = Arc::clone(&world.metrics);
    let mut events = pin!(watcher(api, config));
    let mut failures = 0;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // That a list begins says nothing yet: it begins after every failure.
                if !matches!(event, Event::Init) {
                    failures = 0;
                    world.answered(kind, &scope);
                }
                take(&world, kind, &scope, event, cancels);
            }
            Err(error) => {
                let pause = pause(failures);
                failures += 1;
                metrics.watch_event(kind, WatchEvent::Failed);
                world.failed(kind, &scope, Failure::of(&error));
                if matches!(error, watcher::Error::WatchFailed(_)) {
                    // It had begun: something on the way cut it, and nothing was missed if it begins again.
                    world.answered(kind, &scope);
                }
                tracing::warn!(kind = kind.info().kind, scope, %error, ?pause, "a watch failed and starts again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE_FIRST
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(PAUSE_MOST)
}

fn take(world: &World, kind: Kind, scope: &str, event: Event<DynamicObject>, cancels: bool) {
    let metrics = &world.metrics;
    match event {
        Event::Init => world.list_begins(kind, scope),
        Event::InitApply(object) => {
            metrics.watch_event(kind, WatchEvent::Listed);
            world.listed(scope, Object::read(kind, object, cancels));
        }
        Event::InitDone => world.list_ends(kind, scope),
        Event::Apply(object) => {
            metrics.watch_event(kind, WatchEvent::Applied);
            world.apply(Object::read(kind, object, cancels));
        }
        Event::Delete(object) => {
            metrics.watch_event(kind, WatchEvent::Deleted);
            world.delete(kind, &object.namespace().unwrap_or_default(), &object.name_any());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_keeps_failing_rests_ever_longer_up_to_a_bound() {
        assert_eq!(pause(0), PAUSE_FIRST);
        assert_eq!(pause(1), PAUSE_FIRST * 2);
        assert_eq!(pause(40), PAUSE_MOST);
        assert_eq!(pause(u32::MAX), PAUSE_MOST);
    }
}
