//! What is known about a Job that was deleted, or that is gone: for the words that a run says about it.

use k8s_openapi::api::batch::v1::Job;

use super::{Run, Situation};
use crate::{decision::ObjectId, last_sight::LastSight};

/// What a Job shows that is being deleted, and that our finalizer still holds.
pub(crate) fn of_deleted(job: &Job) -> String {
    LastSight::of(job).to_string()
}

/// What is known of a Job that is gone. A watch tells the last state of what goes; who was not watching then knows what the
/// run's status has of the first.
pub(crate) fn of_missing<R: Run>(situation: &Situation<'_, R>, job: &ObjectId) -> String {
    let departed = situation.seen.departed.get(&job.name);
    if let Some(sight) = departed.filter(|sight| sight.uid == job.uid) {
        return sight.to_string();
    }
    let first = match &situation.attempt.first_seen {
        Some(first) => {
            let version = first.version.as_deref().unwrap_or("unknown");
            format!("it was first seen at {} as version {version}", first.at)
        }
        None => "it is not known when it was first seen".to_owned(),
    };
    format!(
        "{first}, and went while nobody watched; who deleted it stands in the audit log of the API server only"
    )
}
