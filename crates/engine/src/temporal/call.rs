//! A call of a Temporal server, and how it can be answered.
//!
//! Every one of them is safe to repeat. A workflow has an id that follows from its run, the server takes no second one of that
//! id, and it tells whose start it was that took it: so a start whose answer was lost is simply made again, by this process or
//! by the next one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decision::{Key, Uid};

/// One workflow of a Temporal server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Workflow {
    /// The namespace of Temporal, which has nothing to do with one of Kubernetes.
    pub namespace: String,
    pub id: String,
    /// The first of its executions, where it is known. A workflow can go on as a new execution, and somebody else's of the
    /// same id must not be taken for it.
    pub run_id: Option<String>,
}

/// Something that the server is asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub run: Key,
    pub uid: Uid,
    pub workflow: Workflow,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum What {
    Start(Box<Start>),
    /// Waits until the workflow is closed, for as long as that takes.
    Follow {
        task_queue: String,
    },
    Stop(Stop),
}

/// A workflow that is to be started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Start {
    /// Counted from one: a start that did not arrive is followed by another one.
    pub number: u32,
    pub workflow_type: String,
    pub task_queue: String,
    pub timeouts: Timeouts,
    /// The one argument of the workflow.
    pub argument: Value,
}

/// How long the server gives a workflow; what is absent is as the server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    /// For all of its executions together.
    pub execution: Option<Duration>,
    /// For each of them.
    pub run: Option<Duration>,
    /// For one answer of a worker.
    pub task: Option<Duration>,
}

/// A workflow that is to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// Counted from one.
    pub number: u32,
    pub means: Means,
    pub reason: String,
}

/// How a workflow is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Means {
    /// It is asked to, and may tidy up.
    Cancel,
    /// The server closes it; no worker is asked.
    Terminate,
}

impl Means {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
        }
    }
}

/// How a start was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum StartAnswer {
    /// The workflow of this run is there: started just now, or by an earlier call for the same run.
    Started { run_id: String },
    /// It surely did not arrive.
    NotTaken { words: String },
    /// It may have arrived.
    Unclear { words: String },
    /// There is a workflow of that id that somebody else has started.
    Occupied { words: String },
    /// The server will not have it, and would refuse a repetition as well.
    Refused { words: String },
}

/// How a stop was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum StopAnswer {
    /// The workflow knows, or has ended already.
    Told,
    /// The server has no workflow of that id.
    NotFound,
    /// It may not have arrived, or the server will not have it.
    NotTaken { words: String },
}

/// What this process knows of a call that it has begun; without an answer it is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known<A> {
    pub number: u32,
    pub answer: Option<A>,
}

/// What this process knows of the workflow of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    pub start: Option<Known<StartAnswer>>,
    pub stop: Option<Known<StopAnswer>>,
    /// Absent: nobody waits for its end.
    pub following: Option<Following>,
}

/// What the wait for the end of a workflow has shown so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Following {
    /// Why nothing can be heard, or nothing happens.
    pub trouble: Option<String>,
    pub closed: Option<Closed>,
}

/// How a workflow ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Closed {
    Completed(Returned),
    Failed {
        /// The type of the failure, where it has one.
        kind: Option<String>,
        message: String,
    },
    Canceled {
        words: Option<String>,
    },
    Terminated {
        words: Option<String>,
    },
    TimedOut,
    /// The server does not know it any more.
    Vanished {
        words: String,
    },
}

/// What a workflow returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Returned {
    Nothing,
    Json(Value),
    /// It is there, and is not shown here, for this reason.
    Hidden(String),
}
