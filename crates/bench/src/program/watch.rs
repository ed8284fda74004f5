//! What a watch tells, with the moment at which it was read.

use std::{fmt::Debug, pin::Pin, time::Instant};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// Changes as they are seen. An error is not the end: the watch goes on where it was.
pub(crate) type Changes<K> = Pin<Box<dyn Stream<Item = Change<K>> + Send>>;

#[derive(Clone, Debug)]
pub(crate) struct Change<K> {
    pub(crate) at: Instant,
    pub(crate) object: Box<K>,
    pub(crate) is_gone: bool,
}

/// Watches everything that `labels` fits, and returns when the watch is there: nothing that happens afterwards is missed.
pub(crate) async fn changes<K>(api: Api<K>, labels: Option<&str>) -> Result<Changes<K>>
where
    K: Resource<DynamicType: Clone> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = match labels {
        Some(labels) => watcher::Config::default().labels(labels),
        None => watcher::Config::default(),
    };
    let mut events = watcher(api, config).default_backoff().boxed();
    // What is there already does not change before something is done to it.
    loop {
        let event = events.next().await.context("the watch ended")?;
        if matches!(event.context("the watch cannot begin")?, Event::InitDone) {
            break;
        }
    }
    let changes = events.filter_map(|event| async move {
        let (object, is_gone) = match event {
            Ok(Event::Init | Event::InitDone) => return None,
            Ok(Event::InitApply(object) | Event::Apply(object)) => (object, false),
            Ok(Event::Delete(object)) => (object, true),
            Err(error) => {
                println!("a watch was interrupted and goes on: {error}");
                return None;
            }
        };
        Some(Change {
            at: Instant::now(),
            object: Box::new(object),
            is_gone,
        })
    });
    Ok(changes.boxed())
}

/// Whether a pod has come to its end.
pub(crate) fn has_ended(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn phase(pod: &k8s_openapi::api::core::v1::Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}
