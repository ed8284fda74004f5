//! A Temporal server outside of the cluster, with a worker that does what its script says.
//!
//! It keeps to the promises of the real one that the controllers count on: there is one workflow of each id, also when it has
//! ended, and a start of the same run finds the workflow that an earlier one has made. Its work goes into the same [`Record`]
//! as that of pods, so that the same rules hold for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jangar_controllers::outside::Waited;
use jangar_engine::{
    decision::{Key, Uid},
    temporal::call::{Closed, Means, Returned, StartAnswer, StopAnswer, Workflow},
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    endpoint::{AFTER_BUSY, Deed, Deeds},
    node::{Ending, Record},
    trace::Trace,
};

/// The address of the server, which nobody resolves.
pub const ADDRESS: &str = "temporal.example:7233";
/// How long a workflow takes to end when it is asked to.
const STOPS_WITHIN: Duration = Duration::from_secs(2);
/// How long the server lets somebody wait for the end of a workflow, and how often it looks.
const WAIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The server.
#[derive(Debug)]
pub struct SimTemporal {
    deeds: Deeds,
    record: Record,
    trace: Arc<Trace>,
    born: Instant,
    workflows: Mutex<BTreeMap<String, Arc<Execution>>>,
}

/// A workflow that was started.
#[derive(Debug)]
struct Execution {
    for_run: Uid,
    run_id: String,
    /// Its work, as the record knows it.
    work: String,
    asked: Notify,
    closed: Mutex<Option<Closed>>,
}

impl SimTemporal {
    pub fn new(deeds: Deeds, record: &Record, trace: &Arc<Trace>) -> Arc<Self> {
        Arc::new(Self {
            deeds,
            record: record.clone(),
            trace: Arc::clone(trace),
            born: Instant::now(),
            workflows: Mutex::default(),
        })
    }

    /// Takes a start that has arrived.
    pub fn start(self: &Arc<Self>, run: &Key, uid: &Uid, workflow: &Workflow) -> StartAnswer {
        let answer = self.started(run, uid, workflow);
        self.trace
            .note("temporal", format_args!("start for {run}: {answer:?}"));
        answer
    }

    fn started(self: &Arc<Self>, run: &Key, uid: &Uid, workflow: &Workflow) -> StartAnswer {
        let mut workflows = lock(&self.workflows);
        if let Some(found) = workflows.get(&workflow.id) {
            return if found.for_run == *uid {
                StartAnswer::Started {
                    run_id: found.run_id.clone(),
                }
            } else {
                StartAnswer::Occupied {
                    words: "already started".to_owned(),
                }
            };
        }
        let (time, closed) = match self.deeds.get(run.name.as_str()) {
            Some(Deed::Reports(time, end)) => (*time, reported(end)),
            Some(Deed::IsClosed(time, closed)) => (*time, closed.clone()),
            Some(Deed::Busy(until, _)) if self.born.elapsed() < *until => {
                return StartAnswer::NotTaken {
                    words: "the server is not there".to_owned(),
                };
            }
            Some(Deed::Busy(_, end)) => (AFTER_BUSY, reported(end)),
            Some(Deed::Refuses | Deed::Mumbles) | None => {
                return StartAnswer::Refused {
                    words: "no such namespace".to_owned(),
                };
            }
        };
        let run_id = format!("execution-of-{}", run.name);
        let execution = Arc::new(Execution {
            for_run: uid.clone(),
            run_id: run_id.clone(),
            work: self.record.start_outside(&run.name, &uid.0),
            asked: Notify::new(),
            closed: Mutex::default(),
        });
        workflows.insert(workflow.id.clone(), Arc::clone(&execution));
        let this = Arc::clone(self);
        tokio::spawn(async move { this.work(&execution, time, closed).await });
        StartAnswer::Started { run_id }
    }

    async fn work(&self, execution: &Execution, time: Duration, closed: Closed) {
        let asked = tokio::select! {
            biased;
            () = sleep(time) => false,
            () = execution.asked.notified() => true,
        };
        if asked {
            sleep(STOPS_WITHIN).await;
            self.close(execution, Ending::Stopped, Closed::Canceled { words: None });
        } else {
            let ending = match closed {
                Closed::Completed(_) => Ending::Exited(0),
                Closed::Failed { .. } => Ending::Exited(1),
                _ => Ending::Killed,
            };
            self.close(execution, ending, closed);
        }
    }

    fn close(&self, execution: &Execution, ending: Ending, closed: Closed) {
        let mut state = lock(&execution.closed);
        if state.is_none() {
            self.trace.note(
                "temporal",
                format_args!("{} is closed: {closed:?}", execution.work),
            );
            self.record.end_outside(&execution.work, ending);
            *state = Some(closed);
        }
    }

    fn find(&self, workflow: &Workflow) -> Option<Arc<Execution>> {
        lock(&self.workflows).get(&workflow.id).cloned()
    }

    /// Takes the wish that a workflow ends.
    pub fn stop(&self, workflow: &Workflow, means: Means) -> StopAnswer {
        let answer = match self.find(workflow) {
            None => StopAnswer::NotFound,
            Some(execution) => {
                match means {
                    Means::Cancel => execution.asked.notify_one(),
                    Means::Terminate => {
                        self.close(&execution, Ending::Killed, Closed::Terminated { words: None });
                    }
                }
                StopAnswer::Told
            }
        };
        self.trace.note(
            "temporal",
            format_args!("{} {}: {answer:?}", means.word(), workflow.id),
        );
        answer
    }

    /// Waits for the end of a workflow, for some time.
    pub async fn wait(&self, workflow: &Workflow) -> Waited {
        let Some(execution) = self.find(workflow) else {
            return Waited::Closed(Closed::Vanished {
                words: "not found".to_owned(),
            });
        };
        let mut waited = Duration::ZERO;
        while waited < WAIT {
            if let Some(closed) = lock(&execution.closed).clone() {
                return Waited::Closed(closed);
            }
            sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
        }
        Waited::Open { note: None }
    }
}

/// How the workflow of a worker is closed that reports this.
fn reported(end: &Value) -> Closed {
    if end["status"] == "Succeeded" {
        Closed::Completed(Returned::Json(json!({"summary": "mended"})))
    } else {
        Closed::Failed {
            kind: None,
            message: "out of luck".to_owned(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
