//! Keeps the caches filled: one watch for each kind and namespace, or for each kind if all namespaces are looked
//! after. Jobs and pods have one for each label by which ours are told from others.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use jangar_engine::settings::Settings;
use kube::{
    Client,
    runtime::watcher::{self, Event, watcher},
};
use tokio::task::JoinSet;

use super::{
    Feed, Scope, World,
    delivered::Delivered,
    kinds::{Cached, CachedKind, with_kind},
};
use crate::{
    backoff::Backoff,
    metrics::{Metrics, ObjectKind, WatchEvent},
};

/// How long a watch that failed rests. It lists or resumes on its own after that; the upper bound keeps caches from staying
/// behind much longer than the API server was away.
const WATCH_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    most: Duration::from_secs(30),
};

/// How long a watch lasts before it goes on where it was with a new request. A connection that something on the way has
/// forgotten tells nobody: this, and a few seconds that the client adds, is how long a cache can stay behind because of it.
const WATCH_SECONDS: u32 = 60;

/// Starts all watches. They end when the set is dropped.
pub(crate) fn spawn_watches(
    tasks: &mut JoinSet<()>,
    client: &Client,
    world: &Arc<World>,
    scopes: &BTreeSet<Scope>,
    settings: &Settings,
    metrics: &Arc<Metrics>,
) {
    for kind in CachedKind::ALL
        .into_iter()
        .filter(|kind| kind.is_watched(settings))
    {
        with_kind!(kind, K => for feed in Feed::of::<K>(scopes) {
            let (client, world, metrics) = (client.clone(), Arc::clone(world), Arc::clone(metrics));
            tasks.spawn(watch::<K>(client, world, feed, metrics));
        });
    }
}

async fn watch<K: Cached>(client: Client, world: Arc<World>, feed: Feed, metrics: Arc<Metrics>) {
    let api = feed.scope.api::<Delivered<K>>(&client);
    let config = watcher::Config {
        label_selector: feed.label.map(str::to_owned),
        timeout: Some(WATCH_SECONDS),
        ..watcher::Config::default()
    };
    let mut events = pin!(watcher(api, config));
    let mut failures = 0;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // That a list begins says nothing yet: it begins after every failure.
                if !matches!(event, Event::Init) {
                    failures = 0;
                }
                if let Some(delivered) = delivered(&event) {
                    metrics.watch_event(ObjectKind::of::<K>(), delivered);
                }
                let unreadable = world.apply(&feed, event);
                if matches!(K::KIND, CachedKind::Job | CachedKind::Pod) {
                    let caches = world.caches();
                    metrics.jobs_uncaptured(caches.jobs.uncaptured() + caches.pods.uncaptured());
                }
                for broken in unreadable {
                    metrics.watch_event(ObjectKind::of::<K>(), WatchEvent::Unreadable);
                    tracing::error!(
                        kind = %K::KIND,
                        object = %broken.key,
                        error = broken.error,
                        "an object cannot be read and is left alone until it changes"
                    );
                }
            }
            Err(error) => {
                failures += 1;
                let pause = WATCH_BACKOFF.delay(failures);
                metrics.watch_event(ObjectKind::of::<K>(), WatchEvent::Failed);
                tracing::warn!(kind = %K::KIND, ?feed, %error, ?pause, "a watch failed and starts again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// What an event is counted as.
fn delivered<K>(event: &Event<K>) -> Option<WatchEvent> {
    match event {
        Event::Init | Event::InitDone => None,
        Event::InitApply(_) => Some(WatchEvent::Listed),
        Event::Apply(_) => Some(WatchEvent::Applied),
        Event::Delete(_) => Some(WatchEvent::Deleted),
    }
}
