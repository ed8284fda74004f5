//! One pod, from the moment it is bound to its end.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use kubelite::{
    clock::{Clock, TokioClock},
    store::Store,
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    record::{Assignment, Ending, Record},
    script::{Eviction, Lack, OnTerm, Script, Scripts},
    status::{State, disruption, status},
};
use crate::trace::Trace;

/// How long a pod takes from its binding to its start: less than whoever made it by mistake needs to think better of it.
const START_AFTER: Duration = Duration::from_millis(10);
/// How long the kubelet tries to start a container before it begins to wait between two tries.
const BACK_OFF_AFTER: Duration = Duration::from_secs(10);

/// How long a node is silent before Kubernetes says of its pods that they are not ready.
const SILENCE: Duration = Duration::from_secs(50);

/// What the API says of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Here {
        /// The seconds of grace, once it was told to stop.
        grace: Option<i64>,
    },
    Gone,
}

/// What ended a wait.
enum Woke {
    Time,
    /// The pod is to stop within this many seconds.
    Told(i64),
    Gone,
}

pub(super) struct Worker {
    pub(super) pod: Pod,
    pub(super) api: Api<Pod>,
    pub(super) seen: watch::Receiver<Sight>,
    pub(super) store: Store,
    pub(super) clock: TokioClock,
    pub(super) scripts: Arc<Scripts>,
    pub(super) record: Record,
    pub(super) trace: Arc<Trace>,
}

impl Worker {
    pub(super) async fn run(mut self) {
        let assignment = Assignment::of(&self.pod, &self.store);
        let script = self
            .scripts
            .get(&assignment.run, assignment.step, assignment.attempt);
        if self.live(&script).await.is_none() {
            return;
        }
        // All has ended; a pod stays until somebody wants it gone.
        if let Woke::Told(_) = self.wait(None).await {
            self.remove().await;
        }
    }

    /// Leads the pod to its end. `None`: it is gone before.
    async fn live(&mut self, script: &Script) -> Option<()> {
        self.say(&State::Creating).await;
        if let Script::NeverStarts(lack) = script {
            return self.never_start(*lack).await;
        }
        match self.wait(Some(START_AFTER)).await {
            Woke::Gone => return None,
            Woke::Told(_) => {
                self.say(&State::Refused).await;
                return Some(());
            }
            Woke::Time => {}
        }
        let since = self.begin().await;
        match *script {
            Script::Exits { after, code, on_term } => match self.wait(Some(after)).await {
                Woke::Gone => self.vanish(),
                Woke::Told(grace) => self.stop(since, grace, on_term).await,
                Woke::Time => self.end(since, Ending::Exited(code)).await,
            },
            Script::Runs { on_term } => match self.wait(None).await {
                Woke::Gone | Woke::Time => self.vanish(),
                Woke::Told(grace) => self.stop(since, grace, on_term).await,
            },
            Script::Evicted { after, by } => match self.wait(Some(after)).await {
                Woke::Gone => self.vanish(),
                Woke::Told(grace) => self.stop(since, grace, OnTerm::Obeys(Duration::ZERO)).await,
                Woke::Time => self.evict(since, by).await,
            },
            Script::NodeLost { after, noticed_after } => match self.wait(Some(after)).await {
                Woke::Gone => self.vanish(),
                Woke::Told(grace) => self.stop(since, grace, OnTerm::Obeys(Duration::ZERO)).await,
                Woke::Time => self.lose_node(since, noticed_after).await,
            },
            Script::NeverStarts(_) => Some(()),
        }
    }

    async fn never_start(&mut self, lack: Lack) -> Option<()> {
        let since = self.clock.now();
        let words = lack.words();
        let waiting = |reason| State::Lacking { since, reason, words };
        let [first, later] = lack.reasons();
        self.say(&waiting(first)).await;
        let woke = match self.wait(Some(BACK_OFF_AFTER)).await {
            Woke::Time => {
                self.say(&waiting(later)).await;
                self.wait(None).await
            }
            woke => woke,
        };
        match woke {
            Woke::Gone | Woke::Time => None,
            Woke::Told(_) => {
                self.say(&State::Refused).await;
                Some(())
            }
        }
    }

    /// The work starts, and then the API hears of it.
    async fn begin(&mut self) -> Timestamp {
        let assignment = Assignment::of(&self.pod, &self.store);
        let Assignment {
            run, step, attempt, ..
        } = &assignment;
        let step = if *step == 0 {
            String::new()
        } else {
            format!(" step {step}")
        };
        self.note(&format!("starts the work of {run}{step} attempt {attempt}"));
        self.record.start(&self.pod, assignment);
        let since = self.clock.now();
        self.say(&State::Running { since }).await;
        since
    }

    async fn stop(&mut self, since: Timestamp, grace: i64, on_term: OnTerm) -> Option<()> {
        let told = Instant::now();
        let mut grace = seconds(grace);
        let own = match on_term {
            OnTerm::Obeys(after) => Some((after, Ending::Stopped)),
            OnTerm::Finishes(after) => Some((after, Ending::Exited(0))),
            OnTerm::Ignores => None,
        };
        loop {
            let (after, ending) = own
                .filter(|(after, _)| *after < grace)
                .unwrap_or((grace, Ending::Killed));
            tokio::select! {
                biased;
                () = sleep_until(told + after) => return self.end(since, ending).await,
                changed = self.seen.changed() => {
                    let sight = *self.seen.borrow_and_update();
                    match sight {
                        _ if changed.is_err() => return self.vanish(),
                        Sight::Gone => return self.vanish(),
                        // Asked again, with less grace.
                        Sight::Here { grace: Some(left) } => grace = grace.min(seconds(left)),
                        Sight::Here { grace: None } => {}
                    }
                }
            }
        }
    }

    async fn evict(&mut self, since: Timestamp, by: Eviction) -> Option<()> {
        let now = self.clock.now();
        match by {
            Eviction::Drain => {
                let condition = disruption("EvictionByEvictionAPI", "Eviction API: evicting", now);
                self.patch(&json!({ "conditions": [condition] })).await;
                self.delete(&DeleteParams::default()).await;
                match self.wait(None).await {
                    Woke::Gone | Woke::Time => self.vanish(),
                    Woke::Told(grace) => {
                        self.stop(since, grace, OnTerm::Obeys(Duration::from_secs(1)))
                            .await
                    }
                }
            }
            Eviction::Pressure => {
                self.record.end(&self.uid(), Ending::Killed);
                self.note("evicts for want of memory");
                let ended = State::Ended {
                    since,
                    at: now,
                    ending: Ending::Killed,
                };
                let mut patch = status(&self.pod, &ended, now);
                patch["reason"] = "Evicted".into();
                patch["message"] = "The node was low on resource: memory.".into();
                let condition = disruption(
                    "TerminationByKubelet",
                    "The node was low on resource: memory.",
                    now,
                );
                if let Value::Array(conditions) = &mut patch["conditions"] {
                    conditions.push(condition);
                }
                self.patch(&patch).await;
                Some(())
            }
        }
    }

    async fn lose_node(&mut self, since: Timestamp, noticed_after: Duration) -> Option<()> {
        self.record.end(&self.uid(), Ending::Lost);
        self.note("its node dies");
        // Nobody is there to obey: deletion has no effect until the pod is given up.
        let silence = SILENCE.min(noticed_after);
        tokio::time::sleep(silence).await;
        let not_ready = json!({
            "type": "Ready", "status": "False", "lastTransitionTime": kubelite::clock::seconds(self.clock.now()),
        });
        self.patch(&json!({ "conditions": [not_ready] })).await;
        tokio::time::sleep(noticed_after.saturating_sub(silence)).await;
        let now = self.clock.now();
        let ended = State::Ended {
            since,
            at: now,
            ending: Ending::Lost,
        };
        let mut patch = status(&self.pod, &ended, now);
        let condition = disruption("DeletionByPodGC", "PodGC: node no longer exists", now);
        if let Value::Array(conditions) = &mut patch["conditions"] {
            conditions.push(condition);
        }
        self.patch(&patch).await;
        self.remove().await;
        None
    }

    async fn end(&mut self, since: Timestamp, ending: Ending) -> Option<()> {
        self.record.end(&self.uid(), ending);
        self.note(&format!("its work ends: {ending:?}"));
        let at = self.clock.now();
        self.say(&State::Ended { since, at, ending }).await;
        Some(())
    }

    /// The pod was taken out of the API under its work, which is killed as soon as that is noticed.
    fn vanish(&self) -> Option<()> {
        self.record.end(&self.uid(), Ending::Killed);
        self.note("is gone from the API; its work is killed");
        None
    }

    /// Waits for this long, or for as long as it takes, unless the pod is told to stop before.
    async fn wait(&mut self, time: Option<Duration>) -> Woke {
        let until = time.map(|time| Instant::now() + time);
        loop {
            match *self.seen.borrow_and_update() {
                Sight::Gone => return Woke::Gone,
                Sight::Here { grace: Some(grace) } => return Woke::Told(grace),
                Sight::Here { grace: None } => {}
            }
            let sleep = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.seen.changed() => if changed.is_err() {
                    return Woke::Gone;
                },
                () = sleep => return Woke::Time,
            }
        }
    }

    async fn say(&self, state: &State) {
        self.patch(&status(&self.pod, state, self.clock.now())).await;
    }

    async fn patch(&self, status: &Value) {
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid()}, "status": status}));
        let name = self.name();
        let result = self
            .api
            .patch_status(&name, &PatchParams::default(), &patch)
            .await;
        if let Err(error) = result {
            // Gone, or another pod of that name, which the next sight of it tells.
            self.note(&format!("its status is not wanted: {error}"));
        }
    }

    /// All has stopped: the pod may go.
    async fn remove(&self) {
        self.delete(&DeleteParams::default().grace_period(0)).await;
    }

    async fn delete(&self, params: &DeleteParams) {
        let params = params.clone().preconditions(Preconditions {
            uid: Some(self.uid()),
            resource_version: None,
        });
        if let Err(error) = self.api.delete(&self.name(), &params).await {
            self.note(&format!("cannot be deleted: {error}"));
        }
    }

    fn note(&self, what: &str) {
        self.trace
            .note("kubelet", format_args!("{}: {what}", self.name()));
    }

    fn name(&self) -> String {
        self.pod.metadata.name.clone().unwrap_or_default()
    }

    fn uid(&self) -> String {
        self.pod.metadata.uid.clone().unwrap_or_default()
    }
}

fn seconds(grace: i64) -> Duration {
    Duration::from_secs(u64::try_from(grace).unwrap_or(0))
}
