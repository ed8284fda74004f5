//! The scheduler: gives waiting pods the one node there is, oldest first, while it has room.
//!
//! Of a pod's wishes it honours `nodeName` (such a pod never waits), `nodeSelector`, scheduling gates and the scheduler's
//! name. With one node and no taints, spread and inter-pod affinity have nothing to decide; node affinity, resource requests
//! and priorities are ignored, so a pod that asks for them runs where a larger cluster might keep it waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AT_ONCE, Config, Follower, collection};
use crate::{
    builtin::{Builtin, Endpoint},
    clock,
    error::{ApiError, Reason},
    server::{Client, Expected},
    store::{Collection, Event, EventKind, Key, Object},
};

const OWN_NAME: &str = "default-scheduler";
/// How many pods are told within a `TELLING_PERIOD` why they wait. Each of them costs a write, and every watcher of pods
/// something, so a crowd of thousands must not keep the machine from running those that may go; a person looks at a few.
const TOLD_MAX: usize = AT_ONCE;
const TELLING_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Scheduler {
    client: Client,
    pods: Collection,
    nodes: Collection,
    node: String,
    /// How many pods the node may have, those in line included.
    capacity: usize,
    /// Pods on the node that have not ended.
    bound: BTreeSet<Key>,
    waiting: BTreeMap<Place, Waiting>,
    places: BTreeMap<Key, Place>,
    /// How many pods have begun to wait, which orders those of the same second.
    arrivals: u64,
    /// Something changed that may let a pod go.
    stale: bool,
    /// Pods wait that have not been told why.
    untold: bool,
    telling: Telling,
}

/// How many pods have been told why they wait, and since when that is counted.
#[derive(Debug)]
struct Telling {
    since: Timestamp,
    told: usize,
}

impl Telling {
    /// When counting begins anew.
    fn ends(&self) -> Timestamp {
        self.since
            .saturating_add(TELLING_PERIOD)
            .unwrap_or(Timestamp::MAX)
    }

    /// Begins a new period if the present one is over, or if the clock was set back.
    fn renew(&mut self, now: Timestamp) {
        if now < self.since || now >= self.ends() {
            *self = Self { since: now, told: 0 };
        }
    }

    /// Whether one more may be told.
    fn take(&mut self) -> bool {
        let may = self.told < TOLD_MAX;
        self.told += usize::from(may);
        may
    }
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    created: Timestamp,
    arrival: u64,
}

#[derive(Debug)]
struct Waiting {
    key: Key,
    uid: String,
    selector: BTreeMap<String, String>,
    /// What its status says about why it waits.
    told: Option<Refusal>,
}

/// Why a pod cannot go to the node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    Unschedulable,
    SelectorMismatch,
    TooManyPods,
}

impl Refusal {
    /// In the words of the scheduler of Kubernetes 1.35.
    fn message(self) -> String {
        let (what, preemption) = match self {
            Self::Unschedulable => (
                "node(s) were unschedulable",
                "Preemption is not helpful for scheduling",
            ),
            Self::SelectorMismatch => (
                "node(s) didn't match Pod's node affinity/selector",
                "Preemption is not helpful for scheduling",
            ),
            Self::TooManyPods => ("Too many pods", "No preemption victims found for incoming pod"),
        };
        format!(
            "0/1 nodes are available: 1 {what}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 \
             {preemption}."
        )
    }
}

/// The part of a pod that matters here; everything else is skipped unread.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct View {
    metadata: MetadataView,
    #[serde(default)]
    spec: SpecView,
    #[serde(default)]
    status: StatusView,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataView {
    creation_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecView {
    node_name: Option<String>,
    scheduler_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    scheduling_gates: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Default, Deserialize)]
struct StatusView {
    phase: Option<String>,
}

impl Scheduler {
    pub(super) fn new(client: Client, config: &Config) -> Self {
        Self {
            client,
            pods: collection(Builtin::Pod),
            nodes: collection(Builtin::Node),
            node: config.name.clone(),
            capacity: usize::try_from(config.pods.saturating_add(config.ahead)).unwrap_or(usize::MAX),
            bound: BTreeSet::new(),
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            arrivals: 0,
            stale: true,
            untold: false,
            telling: Telling {
                since: Timestamp::MIN,
                told: 0,
            },
        }
    }

    fn note_pod(&mut self, key: &Key, pod: Option<&Object>) {
        let view = pod.and_then(|pod| Some((pod, serde_json::from_slice::<View>(&pod.json).ok()?)));
        let ended = |view: &View| matches!(view.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let Some((pod, view)) = view.filter(|(_, view)| !ended(view)) else {
            self.stale |= self.bound.remove(key);
            self.leave(key);
            return;
        };
        let node = view.spec.node_name.as_deref().unwrap_or_default();
        if node == self.node {
            self.bound.insert(key.clone());
        } else {
            self.stale |= self.bound.remove(key);
        }
        let gated = view.spec.scheduling_gates.is_some_and(|gates| !gates.is_empty());
        let ours = view.spec.scheduler_name.as_deref().unwrap_or(OWN_NAME) == OWN_NAME;
        if node.is_empty() && ours && !gated && !pod.meta.deleting {
            let created = view.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
            self.enter(key, pod, created, view.spec.node_selector.unwrap_or_default());
        } else {
            self.leave(key);
        }
    }

    fn enter(&mut self, key: &Key, pod: &Object, created: Timestamp, selector: BTreeMap<String, String>) {
        let known = self
            .places
            .get(key)
            .and_then(|place| self.waiting.get_mut(place))
            .filter(|waiting| waiting.uid == pod.meta.uid);
        if let Some(waiting) = known {
            self.stale |= waiting.selector != selector;
            waiting.selector = selector;
            return;
        }
        self.leave(key);
        self.stale = true;
        self.arrivals += 1;
        let place = Place {
            created,
            arrival: self.arrivals,
        };
        self.places.insert(key.clone(), place);
        let waiting = Waiting {
            key: key.clone(),
            uid: pod.meta.uid.clone(),
            selector,
            told: None,
        };
        self.waiting.insert(place, waiting);
    }

    fn leave(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.waiting.remove(&place);
        }
    }

    async fn apply(&self, place: Place, refusal: Option<Refusal>) -> Result<(), ApiError> {
        let Some(pod) = self.waiting.get(&place) else {
            return Ok(());
        };
        let Some(refusal) = refusal else {
            return self.client.bind(&pod.key, &pod.uid, &self.node).await;
        };
        let now = clock::seconds(self.client.now());
        let expected = Expected::Uid(&pod.uid);
        self.client
            .update(Builtin::Pod, &pod.key, Endpoint::Status, expected, |pod| {
                set_refusal(pod, refusal, &now);
            })
            .await
    }

    fn remember(&mut self, place: Place, refusal: Option<Refusal>, outcome: Result<(), ApiError>) {
        let Some(pod) = self.waiting.get_mut(&place) else {
            return;
        };
        match (outcome, refusal) {
            (Ok(()), Some(refusal)) => pod.told = Some(refusal),
            (Ok(()), None) => {
                let key = pod.key.clone();
                self.bound.insert(key.clone());
                self.leave(&key);
            }
            // Bound, deleted or gone: its own event says which.
            (Err(error), _) if matches!(error.reason, Reason::Conflict | Reason::NotFound) => {
                let key = pod.key.clone();
                self.leave(&key);
                self.stale = true;
            }
            // It is looked at again when the next words may be told, or at the next change.
            (Err(error), _) => {
                (self.stale, self.untold) = (true, true);
                tracing::warn!(pod = %pod.key.name, namespace = %pod.key.namespace, %error, "could not schedule the pod");
            }
        }
    }
}

impl Follower for Scheduler {
    fn next(&self) -> Option<Timestamp> {
        self.untold.then(|| self.telling.ends())
    }

    fn note(&mut self, event: &Event) {
        if event.collection == self.pods {
            let stays = event.kind != EventKind::Deleted;
            self.note_pod(&event.key, stays.then_some(&event.object));
        } else if event.collection == self.nodes {
            self.stale = true;
        }
    }

    fn note_everything(&mut self) {
        self.bound.clear();
        self.waiting.clear();
        self.places.clear();
        let Ok(snapshot) = self.client.store().snapshot(&self.pods, None) else {
            return;
        };
        for (key, object) in snapshot.iter(None, None) {
            self.note_pod(key, Some(object));
        }
    }

    /// Looks through the queue once, if anything changed. Every pod that may go does; those that have to be told why they wait
    /// are, a few at a time.
    async fn act(&mut self) {
        let now = self.client.now();
        let may_tell = self.untold && (now >= self.telling.ends() || now < self.telling.since);
        if !(std::mem::take(&mut self.stale) || may_tell) {
            return;
        }
        self.untold = false;
        self.telling.renew(now);
        let node = self.client.store().get(&self.nodes, &Key::new("", &self.node));
        let Some(node) = node else { return };
        let cordoned = node.value().pointer("/spec/unschedulable") == Some(&Value::Bool(true));
        let mut room = self.capacity.saturating_sub(self.bound.len());
        let mut decisions = Vec::new();
        for (place, pod) in &self.waiting {
            let matches = |(name, value): (&String, &String)| node.meta.labels.get(name) == Some(value);
            let refusal = if cordoned {
                Some(Refusal::Unschedulable)
            } else if !pod.selector.iter().all(matches) {
                Some(Refusal::SelectorMismatch)
            } else if room == 0 {
                Some(Refusal::TooManyPods)
            } else {
                room -= 1;
                None
            };
            if refusal.is_some() {
                if refusal == pod.told {
                    continue;
                }
                if !self.telling.take() {
                    self.untold = true;
                    if room == 0 {
                        break;
                    }
                    continue;
                }
            }
            decisions.push((*place, refusal));
        }
        let this = &*self;
        let outcomes: Vec<(Place, Option<Refusal>, Result<(), ApiError>)> = futures::stream::iter(decisions)
            .map(async |(place, refusal)| (place, refusal, this.apply(place, refusal).await))
            .buffered(AT_ONCE)
            .collect()
            .await;
        for (place, refusal, outcome) in outcomes {
            self.remember(place, refusal, outcome);
        }
    }

    fn longest_wait(&self) -> Duration {
        TELLING_PERIOD
    }
}

/// Says on the pod why it waits. The time of the condition is that of its last change of status, not of its message.
fn set_refusal(pod: &mut Value, refusal: Refusal, now: &str) {
    let generation = pod.pointer("/metadata/generation").cloned();
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = conditions else { return };
    let known = list
        .iter_mut()
        .find(|condition| condition["type"] == "PodScheduled");
    let since = known
        .as_ref()
        .filter(|known| known["status"] == "False")
        .and_then(|known| known["lastTransitionTime"].as_str());
    let fresh = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": refusal.message(),
        "observedGeneration": generation,
        "lastProbeTime": null,
        "lastTransitionTime": since.unwrap_or(now),
    });
    match known {
        Some(known) => *known = fresh,
        None => list.push(fresh),
    }
}
