//! Waiting for the cluster to get where a test expects it: on a watch, so as soon as it is there, and never without an end.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::Failure;

/// No wait is longer. It is for a machine that is busy with other things; most of what tests wait for takes a few seconds. The
/// longest is a watch whose connection fell silent, and which comes back on another one that is dead as well: each of them is
/// noticed after 70 seconds.
pub const LIMIT: Duration = Duration::from_mins(4);

#[derive(Debug, thiserror::Error)]
#[error("waited {seconds} s for {subject} {what}, in vain; last seen: {seen}{}", error.as_ref().map(|error| format!("; last error: {error}")).unwrap_or_default(), seconds = LIMIT.as_secs())]
pub struct WaitError {
    subject: String,
    what: String,
    seen: String,
    error: Option<String>,
}

/// Between two looks at something that cannot be watched, such as a file or a process.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until the answer is yes, of something that cannot be watched. `what` completes the sentence "waited for ...".
pub async fn until_true<E>(
    what: &str,
    mut question: impl AsyncFnMut() -> Result<bool, E>,
) -> Result<(), Failure>
where
    Failure: From<E>,
{
    let end = Instant::now() + LIMIT;
    while !question().await? {
        if Instant::now() > end {
            return Err(format!("waited {} s for {what}, in vain", LIMIT.as_secs()).into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Waits until an object is there and `holds` is true of it. `what` completes the sentence "waited for the object ...".
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(&K) -> bool,
) -> Result<K, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let subject = format!("{} {name}", K::kind(&K::DynamicType::default()));
    let pick = |objects: &[&K]| {
        objects
            .iter()
            .find(|object| holds(object))
            .map(|&object| object.clone())
    };
    watch(api, config, subject, what, pick).await
}

/// Waits until an object is gone.
pub async fn until_gone<K>(api: &Api<K>, name: &str) -> Result<(), WaitError>
where
    K: Resource<DynamicType: Default> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let subject = format!("{} {name}", K::kind(&K::DynamicType::default()));
    watch(api, config, subject, "to be gone", |objects: &[&K]| {
        objects.is_empty().then_some(())
    })
    .await
}

/// Waits until an object is seen to go, and returns it as it was last, with the version in which it went. It has to be there
/// when the wait begins.
pub async fn until_deleted<K>(api: &Api<K>, name: &str) -> Result<K, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let subject = format!("{} {name}", K::kind(&K::DynamicType::default()));
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    let mut error = None;
    let gone = tokio::time::timeout(LIMIT, async {
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Delete(object)) => return Some(object),
                Ok(_) => {}
                Err(failed) => error = Some(failed.to_string()),
            }
        }
        None
    });
    gone.await.ok().flatten().ok_or_else(|| WaitError {
        subject,
        what: "to be seen to go".to_owned(),
        seen: "no deletion".to_owned(),
        error,
    })
}

/// Waits until `holds` is true of all the objects with these labels together, and returns them, ordered by name.
pub async fn until_list<K>(
    api: &Api<K>,
    labels: &str,
    what: &str,
    holds: impl Fn(&[&K]) -> bool,
) -> Result<Vec<K>, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let config = watcher::Config::default().labels(labels);
    let subject = format!("every {} with {labels}", K::kind(&K::DynamicType::default()));
    let pick =
        |objects: &[&K]| holds(objects).then(|| objects.iter().map(|&object| object.clone()).collect());
    watch(api, config, subject, what, pick).await
}

/// An error of the watch is not the end: tests take the API server away, and it comes back.
async fn watch<K, T>(
    api: &Api<K>,
    config: watcher::Config,
    subject: String,
    what: &str,
    pick: impl Fn(&[&K]) -> Option<T>,
) -> Result<T, WaitError>
where
    K: Resource<DynamicType: Default> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    let (mut view, mut error) = (View::default(), None);
    let found = tokio::time::timeout(LIMIT, async {
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => view.take(event),
                Err(failed) => error = Some(failed.to_string()),
            }
            let picked = view.complete().and_then(|objects| pick(&objects));
            if picked.is_some() {
                return picked;
            }
        }
        None
    })
    .await;
    found.ok().flatten().ok_or_else(|| WaitError {
        subject,
        what: what.to_owned(),
        seen: view.describe(),
        error,
    })
}

/// The objects as the watch tells them. During a list they are incomplete, and nothing may be concluded from them.
#[derive(Debug)]
struct View<K> {
    objects: BTreeMap<(Option<String>, String), K>,
    listing: bool,
}

impl<K> Default for View<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: true,
        }
    }
}

impl<K: Resource + Serialize> View<K> {
    fn take(&mut self, event: Event<K>) {
        let key = |object: &K| (object.namespace(), object.name_any());
        match event {
            Event::Init => *self = Self::default(),
            Event::InitApply(object) | Event::Apply(object) => {
                self.objects.insert(key(&object), object);
            }
            Event::InitDone => self.listing = false,
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
    }

    fn complete(&self) -> Option<Vec<&K>> {
        (!self.listing).then(|| self.objects.values().collect())
    }

    /// Who wrote which field says nothing about why a test waits, and is most of an object.
    fn describe(&self) -> String {
        let documents = self.objects.values().map(|object| {
            let mut document = serde_json::to_value(object).unwrap_or_default();
            if let Some(metadata) = document
                .get_mut("metadata")
                .and_then(|value| value.as_object_mut())
            {
                metadata.remove("managedFields");
            }
            document.to_string()
        });
        let documents: Vec<_> = documents.collect();
        match documents.as_slice() {
            [] => "nothing".to_owned(),
            documents => documents.join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    #[test]
    fn nothing_is_concluded_from_half_a_list() {
        let mut view = View::default();

        view.take(Event::Init);
        assert!(view.complete().is_none(), "nothing has been listed yet");
        view.take(Event::InitApply(object("a")));
        assert!(view.complete().is_none(), "more may follow");
        view.take(Event::InitDone);

        assert_eq!(view.complete().map(|objects| objects.len()), Some(1));
    }

    #[test]
    fn a_new_list_forgets_what_is_not_in_it() {
        let mut view = View::default();
        view.take(Event::InitDone);
        view.take(Event::Apply(object("a")));
        view.take(Event::Apply(object("b")));
        view.take(Event::Delete(object("b")));

        view.take(Event::Init);
        view.take(Event::InitApply(object("c")));
        view.take(Event::InitDone);

        let names: Vec<_> = view
            .complete()
            .into_iter()
            .flatten()
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(names, ["c"]);
    }
}
