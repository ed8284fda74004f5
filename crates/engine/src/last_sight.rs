//! What an object shows about how it went: the evidence that is left when a Job was deleted or has vanished.
//!
//! Kubernetes does not record on an object who deletes it; only the audit log of the API server does. Nor does it record who
//! took something away from it, such as a finalizer. What the object itself shows is when its deletion was asked for, when it
//! was last written, and which programs had set fields that it still has.

use std::fmt;

use jangar_api::labels;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Resource, ResourceExt};
use serde::Serialize;

use crate::decision::Uid;

/// Under this name the controllers of Kubernetes write.
const KUBERNETES: &str = "kube-controller-manager";

/// Sentences about a Job that is not there begin with this and its name.
const ABOUT_JOB: &str = "Job ";

/// What was seen of an object last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastSight {
    pub uid: Uid,
    /// The object that controlled it: of a Job, its run.
    pub owner: Option<Uid>,
    pub version: String,
    /// When that version was written, as far as the API server notes it.
    pub written_at: Option<Timestamp>,
    /// When its deletion was asked for; absent if it was not held by anything, and went at once.
    pub deleted_at: Option<Timestamp>,
    /// Who was the last to set fields that it still has, apart from us and the controllers of Kubernetes.
    pub writer: Option<Writer>,
    /// What a Job says of the run that it was made for; nothing of anything else.
    pub made_for: MadeFor,
}

/// What a Job says of the run that it was made for, which the status of the run is to say when nothing is left of the Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MadeFor {
    /// When the run was let in.
    pub admitted_at: Option<Timestamp>,
    /// Hash of what the spec was.
    pub spec_hash: Option<String>,
    /// The repository whose slot the run took.
    pub repository: Option<String>,
}

impl MadeFor {
    fn of(object: &impl Resource) -> Self {
        let said = |annotation: &str| object.annotations().get(annotation).cloned();
        Self {
            admitted_at: said(labels::ADMITTED_AT).and_then(|at| at.parse().ok()),
            spec_hash: said(labels::SPEC_HASH),
            repository: said(labels::REPOSITORY),
        }
    }
}

/// Somebody who set fields of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// What the program calls itself: `kubectl-edit`, for example. The API server does not note the user.
    pub program: String,
    pub at: Option<Timestamp>,
}

impl LastSight {
    /// What an object shows.
    pub fn of(object: &impl Resource) -> Self {
        let writes = object.managed_fields();
        let time = |write: &ManagedFieldsEntry| write.time.as_ref().map(|time| time.0);
        // Only controllers write a status.
        let foreign = writes.iter().filter(|write| {
            let program = write.manager.as_deref().unwrap_or_default();
            write.subresource.as_deref() != Some("status")
                && ![labels::FIELD_MANAGER, KUBERNETES, ""].contains(&program)
        });
        Self {
            uid: Uid(object.uid().unwrap_or_default()),
            owner: object
                .owner_references()
                .iter()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| Uid(owner.uid.clone())),
            version: object.resource_version().unwrap_or_default(),
            written_at: writes.iter().filter_map(time).max(),
            deleted_at: object.meta().deletion_timestamp.as_ref().map(|time| time.0),
            writer: foreign.max_by_key(|write| time(write)).map(|write| Writer {
                program: write.manager.clone().unwrap_or_default(),
                at: time(write),
            }),
            made_for: MadeFor::of(object),
        }
    }
}

/// Begins a sentence about a Job that is not there.
pub(crate) fn about_job(name: &str) -> String {
    format!("{ABOUT_JOB}{name}")
}

/// The Job that such a sentence is about. A run that loses one Job after the other says the same of each, and only the name tells
/// that it is another one.
pub fn job_of(sentence: &str) -> Option<&str> {
    sentence.strip_prefix(ABOUT_JOB)?.split(' ').next()
}

impl fmt::Display for LastSight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.deleted_at {
            Some(at) => write!(f, "its deletion was asked for at {at}")?,
            None => f.write_str("nothing held it when it was deleted")?,
        }
        write!(f, "; it was last seen as version {}", self.version)?;
        if let Some(at) = self.written_at {
            write!(f, " of {at}")?;
        }
        if let Some(Writer { program, at }) = &self.writer {
            write!(f, "; {program} had set fields of it")?;
            if let Some(at) = at {
                write!(f, " at {at}")?;
            }
        }
        f.write_str("; who deleted it stands in the audit log of the API server only")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use super::*;

    fn sight(metadata: &Value) -> LastSight {
        let job: Job = serde_json::from_value(json!({"metadata": metadata})).expect("a Job");
        LastSight::of(&job)
    }

    fn write(manager: &str, subresource: Option<&str>, minute: u32) -> Value {
        json!({
            "manager": manager, "operation": "Update", "subresource": subresource,
            "time": format!("2026-03-01T10:{minute:02}:00Z"),
        })
    }

    #[test]
    fn another_program_is_told_from_us_and_from_kubernetes() {
        let shown = sight(&json!({
            "name": "a-job", "uid": "u", "resourceVersion": "12",
            "managedFields": [
                write("jangar-controllers", None, 1), write("kubectl-label", None, 2), write("kubectl-patch", None, 3),
                write("some-controller", Some("status"), 4), write("kube-controller-manager", None, 5),
            ],
        }));
        assert_eq!(
            shown.to_string(),
            "nothing held it when it was deleted; it was last seen as version 12 of 2026-03-01T10:05:00Z; kubectl-patch had set \
             fields of it at 2026-03-01T10:03:00Z; who deleted it stands in the audit log of the API server only"
        );
    }

    #[test]
    fn a_sentence_about_a_job_names_it_and_one_about_something_else_does_not() {
        let sentence = format!("{} is gone; its pod was still there", about_job("mend-job"));
        assert_eq!(job_of(&sentence), Some("mend-job"));
        assert_eq!(job_of("the step took too long"), None);
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let shown = sight(&json!({
            "name": "a-job", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-03-01T10:00:00Z",
        }));
        assert_eq!(shown.writer, None);
        assert_eq!(
            shown.to_string(),
            "its deletion was asked for at 2026-03-01T10:00:00Z; it was last seen as version 7; who deleted it stands in the audit log of the API server only"
        );
    }
}
