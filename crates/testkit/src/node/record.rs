//! What really happened on the node, whatever the API says about it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jangar_api::labels::{ATTEMPT, STEP_INDEX};
use k8s_openapi::api::core::v1::Pod;
use kubelite::store::Store;
use serde_json::Value;
use tokio::time::Instant;

/// For whom a pod works, as its Job says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub run: String,
    pub run_uid: String,
    /// The step of a workflow, counted from one; 0 if the run is none.
    pub step: u32,
    /// Counted from one; 0 if the Job does not say.
    pub attempt: u32,
    pub job_uid: String,
}

impl Assignment {
    /// Reads the Job that controls a pod. It is empty where there is no such Job any more.
    pub(super) fn of(pod: &Pod, store: &Store) -> Self {
        let controller = pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true));
        let Some((_, _, job)) = controller.and_then(|owner| store.find_uid(&owner.uid)) else {
            return Self::default();
        };
        let metadata = &job.value()["metadata"];
        let number = |text: &Value| text.as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        let is_run = |kind: &str| matches!(kind, "AgentRun" | "ToolRun");
        let run = job.meta.owners.iter().find(|owner| is_run(&owner.kind));
        Self {
            run: run.map(|owner| owner.name.clone()).unwrap_or_default(),
            run_uid: run.map(|owner| owner.uid.clone()).unwrap_or_default(),
            step: number(&metadata["labels"][STEP_INDEX]),
            attempt: number(&metadata["annotations"][ATTEMPT]),
            job_uid: job.meta.uid.clone(),
        }
    }
}

/// One pod's work, from its start.
#[derive(Clone, Debug)]
pub struct Work {
    pub assignment: Assignment,
    pub pod: String,
    pub pod_uid: String,
    pub started: Instant,
    pub ended: Option<(Instant, Ending)>,
}

/// How work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// It was told to stop, and did.
    Stopped,
    /// It was killed.
    Killed,
    /// Its node died.
    Lost,
}

/// What stands for the Job of work that an endpoint does.
const OUTSIDE: &str = "endpoint";

impl Work {
    /// Whether an endpoint does it, and no pod.
    pub fn is_outside(&self) -> bool {
        self.assignment.job_uid == OUTSIDE
    }

    pub fn is_running(&self) -> bool {
        self.ended.is_none()
    }
}

/// All work that was ever started, in order. Everybody who holds it sees the same.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<Work>>>);

impl Record {
    pub fn all(&self) -> Vec<Work> {
        self.lock().clone()
    }

    /// Whether work of this attempt of a step has started, ended or not.
    pub fn has_started(&self, run: &str, step: u32, attempt: u32) -> bool {
        let is_meant = |work: &Work| {
            let Assignment {
                run: of,
                step: at,
                attempt: number,
                ..
            } = &work.assignment;
            (of.as_str(), *at, *number) == (run, step, attempt)
        };
        self.lock().iter().any(is_meant)
    }

    /// An endpoint began to work for the first attempt of a run. Returns by what it is known.
    pub fn start_outside(&self, run: &str, run_uid: &str) -> String {
        let mut all = self.lock();
        let name = format!("{OUTSIDE}-{}", all.len());
        all.push(Work {
            assignment: Assignment {
                run: run.to_owned(),
                run_uid: run_uid.to_owned(),
                step: 0,
                attempt: 1,
                job_uid: OUTSIDE.to_owned(),
            },
            pod: name.clone(),
            pod_uid: name.clone(),
            started: Instant::now(),
            ended: None,
        });
        name
    }

    /// An endpoint ended its work.
    pub fn end_outside(&self, work: &str, ending: Ending) {
        self.end(work, ending);
    }

    pub(super) fn start(&self, pod: &Pod, assignment: Assignment) {
        self.lock().push(Work {
            assignment,
            pod: pod.metadata.name.clone().unwrap_or_default(),
            pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
            started: Instant::now(),
            ended: None,
        });
    }

    pub(super) fn end(&self, pod_uid: &str, ending: Ending) {
        let mut all = self.lock();
        let found = all
            .iter_mut()
            .find(|work| work.pod_uid == pod_uid && work.is_running());
        if let Some(work) = found {
            work.ended = Some((Instant::now(), ending));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Work>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
