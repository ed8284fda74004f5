//! What a run's status remembers of its Jobs: `status.runtimeRef`.

use jangar_api::{
    agents::agent_run::RuntimeType,
    values::{AnyMap, Timestamp},
};
use serde::{Deserialize, Serialize};

use super::task::{Task, name};
use crate::{
    decision::{Key, ObjectId, Rejection, Uid},
    job::Place,
};

/// Where the attempts of a run stand. The default is a run that has not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The step that it is an attempt of, counted from one; zero if the run is no workflow.
    pub step: u32,
    /// Counted from one; zero if there was none.
    pub number: u32,
    /// The Job of this attempt; absent while it is still to be made.
    pub job: Option<ObjectId>,
    /// When that Job was seen for the first time, and in which version.
    pub first_seen: Option<FirstSight>,
    /// How many attempts of the step ended in a failure of their own.
    pub failures: u32,
    /// How many were taken away by the node. They cost no retry.
    pub disruptions: u32,
    /// When the Job of this attempt may be made.
    pub not_before: Option<jiff::Timestamp>,
    /// Why the attempt, or the run, is given up although its pod is there. It is recorded before the pod is stopped:
    /// afterwards nothing else tells why.
    pub given_up: Option<Rejection>,
}

/// The moment from which on a Job that is not there is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstSight {
    pub at: jiff::Timestamp,
    /// Absent if it was recorded by an earlier version.
    pub version: Option<String>,
}

/// The form in which it is stored. Other fields of `runtimeRef` are not ours, and are left out of a new one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(rename = "type")]
    type_: RuntimeType,
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job_observed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_name: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    step: u32,
    #[serde(default = "first")]
    attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    failures: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    disruptions: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_up: Option<GivenUp>,
}

/// The stored form of a [`Rejection`].
#[derive(Debug, Serialize, Deserialize)]
struct GivenUp {
    reason: String,
    message: String,
}

const fn first() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Whether a run is between two attempts: one has ended, and the next has its time.
pub(crate) fn is_between(runtime_ref: Option<&AnyMap>) -> bool {
    let attempt = Attempt::remembered(runtime_ref);
    attempt.job.is_none() && attempt.not_before.is_some()
}

impl Attempt {
    /// What the status says. A `runtimeRef` that makes no sense is none: the Job is found again by its name.
    pub(crate) fn remembered(runtime_ref: Option<&AnyMap>) -> Self {
        let stored = runtime_ref
            .and_then(|reference| serde_json::from_value::<Stored>(reference.0.clone().into()).ok());
        let Some(stored) = stored else {
            return Self::default();
        };
        let job = stored.uid.map(|uid| ObjectId {
            name: stored.name,
            uid: Uid(uid),
        });
        Self {
            step: stored.step,
            number: stored.attempt,
            job,
            first_seen: stored.job_observed_at.map(|at| FirstSight {
                at: at.0,
                version: stored.resource_version,
            }),
            failures: stored.failures,
            disruptions: stored.disruptions,
            not_before: stored.next_attempt_at.map(|at| at.0),
            given_up: stored
                .given_up
                .map(|given_up| Rejection::new(given_up.reason.as_str().into(), given_up.message)),
        }
    }

    /// Records in a stored attempt that it is given up.
    pub(crate) fn give_up(stored: &mut AnyMap, why: &Rejection) {
        let given_up = GivenUp {
            reason: why.reason.to_string(),
            message: why.message.clone(),
        };
        // Two texts always become JSON.
        if let Ok(given_up) = serde_json::to_value(given_up) {
            stored.0.insert("givenUp".to_owned(), given_up);
        }
    }

    /// The number of the attempt whose Job is to be made next, or has just been made.
    pub(crate) fn current(&self) -> u32 {
        self.number.max(1)
    }

    /// How far it is. One that has not begun is before the first.
    pub(crate) fn place(&self) -> Place {
        Place {
            step: self.step,
            attempt: self.number,
        }
    }

    /// Where the Job stands that is to be made next, or has just been made.
    pub(crate) fn current_place(&self) -> Place {
        Place {
            step: self.step,
            attempt: self.current(),
        }
    }

    /// The first attempt of a task, or the one of which a Job tells.
    pub(crate) fn at(place: Place) -> Self {
        Self {
            step: place.step,
            number: place.attempt,
            ..Self::default()
        }
    }

    /// The form in which it is stored, with the name of the Job it has or will have.
    pub(crate) fn stored(&self, key: &Key, task: Task<'_>, job: &str) -> AnyMap {
        let step = task.step();
        let type_ = step.map_or(RuntimeType::Job, |_| RuntimeType::Workflow);
        let first_seen = self.first_seen.as_ref();
        let stored = Stored {
            type_,
            name: job.to_owned(),
            namespace: key.namespace.clone(),
            uid: self.job.as_ref().map(|job| job.uid.0.clone()),
            job_observed_at: first_seen.map(|first| Timestamp(first.at)),
            resource_version: first_seen.and_then(|first| first.version.clone()),
            run_name: step.map(|_| key.name.clone()),
            step_name: step.map(|step| name(step.spec).to_owned()),
            step: self.step,
            attempt: self.current(),
            failures: self.failures,
            disruptions: self.disruptions,
            next_attempt_at: self.not_before.map(Timestamp),
            given_up: None,
        };
        // The stored form is an object of plain values, which always becomes JSON.
        match serde_json::to_value(stored) {
            Ok(serde_json::Value::Object(fields)) => AnyMap(fields),
            _ => AnyMap::default(),
        }
    }
}
