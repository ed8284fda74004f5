//! A call of an endpoint: what is sent, and how it can be answered.
//!
//! A call cannot be taken back and may take effect although no answer came, so a run's status says that it is meant to be
//! made before it is. The one process that wrote so makes it, at most once; every other process only knows that it may have
//! been made.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{callback::Callback, endpoint::Endpoint};
use crate::{
    decision::{Key, Uid},
    temporal::call::Sight,
};

/// What an endpoint is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Purpose {
    Submit,
    Cancel,
}

impl Purpose {
    /// How the endpoint is told, in a header.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
        }
    }
}

/// One call, and no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CallId {
    pub run: Uid,
    pub purpose: Purpose,
    /// Counted from one for each purpose. A call that surely never arrived is followed by another one.
    pub number: u32,
}

/// A call that is to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Post {
    pub id: CallId,
    pub run: Key,
    pub attempt: u32,
    pub endpoint: Endpoint,
    pub body: Value,
    /// Until when the endpoint may report.
    pub expires_at: Timestamp,
}

impl Post {
    /// By which the endpoint knows a call that it has had already. It is the same for every call of one purpose and attempt.
    pub fn idempotency_key(&self) -> String {
        let CallId { run, purpose, .. } = &self.id;
        let attempt = self.attempt;
        match purpose {
            Purpose::Submit => format!("{run}/{attempt}"),
            Purpose::Cancel => format!("{run}/{attempt}/cancel"),
        }
    }
}

/// How a call was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Answer {
    /// The endpoint has taken it; with what it said, if that is JSON and not too long.
    Taken { response: Option<Value> },
    /// It surely did not arrive, or the endpoint asked to be called later: it may be made again.
    NotTaken {
        words: String,
        retry_after: Option<Duration>,
    },
    /// The endpoint will not have it. It would refuse a repetition as well.
    Refused { words: String },
    /// The endpoint may not be called from here.
    NotAllowed { words: String },
    /// It may have arrived, and nobody knows what became of it.
    Unknown { words: String },
}

/// What this process knows of a call that it has begun.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum CallState {
    UnderWay,
    Answered(Answer),
}

/// What is known of a run beyond the API server: the calls of this process, and what the endpoint reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outside {
    /// Tells this process from every other one, those before it included.
    pub process: String,
    /// The calls that this process has begun, for this run.
    pub calls: BTreeMap<CallId, CallState>,
    /// What the endpoint reported and is not recorded yet, in the order of its coming.
    pub callbacks: Vec<Callback>,
    /// What is known of the workflow, for a run that one of a Temporal server does.
    pub workflow: Sight,
}
