//! What a run has to do with the OrchestrationRun that started it: the finalizer that keeps it until its end is recorded
//! there, the time until which a cancel from above waits, and what outlives one.

use std::{sync::Arc, time::Duration};

use jangar_api::{
    cancel::CancelRequest,
    condition::{CommonStatus, ConditionType},
    labels::{CANCEL_DEADLINE, RUNTIME_CLEANUP_FINALIZER, STOPPED_BY},
    orchestration::orchestration_run::OrchestrationRun,
    phase::RunPhase,
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// How deep orchestrations may be nested.
pub const NESTED_MAX: usize = 8;
/// How much sooner than its parent a child gives up, so that the parent hears of it in time.
const CHILD_GIVES_UP_EARLIER: Duration = Duration::from_secs(2);

/// The OrchestrationRun that a run does the work of a step for.
pub fn of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "OrchestrationRun")
}

/// Whether a run has to stay until its parent has recorded its end. Only the controller of the parent lets it go.
pub fn is_held(metadata: &ObjectMeta) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    of(metadata).is_some() && finalizers.any(|name| name == RUNTIME_CLEANUP_FINALIZER)
}

/// Whether a run that its parent has not let go was deleted: it stops as if it had been cancelled, so that the parent learns how
/// it ended.
pub fn is_deleted_under_parent(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() && is_held(metadata)
}

/// Whether it is the parent that stops a run: its step takes too long, or nobody waits for it any more.
pub fn is_stopped_from_above(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    let by = annotations.and_then(|all| all.get(STOPPED_BY));
    by.is_some() && by == of(metadata).map(|parent| &parent.uid)
}

/// Whether a run has to stop. People can be kept from asking for that, and a parent cannot: it waits until its child has stopped.
pub fn has_to_stop(metadata: &ObjectMeta, request: &CancelRequest, people_may: bool) -> bool {
    let requested = request.is_requested() && (people_may || is_stopped_from_above(metadata));
    requested || is_deleted_under_parent(metadata)
}

/// Whether somebody wants a run to stop who may not ask for it.
pub fn is_stop_refused(metadata: &ObjectMeta, request: &CancelRequest, people_may: bool) -> bool {
    request.is_requested() && !has_to_stop(metadata, request, people_may)
}

/// Whether a run has ended because its cancel was given up, so that something of it may have outlived that. Its parent goes on looking at it:
/// when nothing of it was left is told later.
pub fn outlived_its_cancel(phase: Option<&RunPhase>, common: &CommonStatus) -> bool {
    let succeeded = common.condition(&ConditionType::Succeeded);
    phase == Some(&RunPhase::Cancelled)
        && succeeded.is_some_and(|condition| condition.reason == Reason::CancelTimedOut)
}

/// When the children of a run give up that is being cancelled.
pub fn deadline_of_children(deadline: Timestamp) -> Timestamp {
    deadline
        .saturating_sub(CHILD_GIVES_UP_EARLIER)
        .unwrap_or(Timestamp::MIN)
}

/// Whether an OrchestrationRun above a run is being cancelled, and until when the run has time to stop. Each says so to its children too,
/// one after the other; who looks at those above knows at once. `find` looks one up by its name.
pub fn cancel_above(
    metadata: &ObjectMeta,
    find: impl Fn(&str) -> Option<Arc<OrchestrationRun>>,
) -> Option<Timestamp> {
    let mut owner = of(metadata).cloned();
    for levels in 1..=NESTED_MAX {
        let known = owner?;
        let above = find(&known.name).filter(|above| above.metadata.uid.as_ref() == Some(&known.uid))?;
        let status = above.status.as_ref();
        let cancelling = status.filter(|status| status.phase == Some(RunPhase::Cancelling));
        if let Some(deadline) = cancelling.and_then(|status| status.cancel_deadline) {
            return Some((0..levels).fold(deadline.0, |deadline, _| deadline_of_children(deadline)));
        }
        owner = of(&above.metadata).cloned();
    }
    None
}

/// When a cancel that begins now is given up: when the parent says so, or after the usual time.
pub fn cancel_deadline(metadata: &ObjectMeta, timeout: Duration, now: Timestamp) -> Timestamp {
    let own = now.saturating_add(timeout).unwrap_or(Timestamp::MAX);
    let annotations = metadata.annotations.as_ref();
    let from_above = annotations.and_then(|all| all.get(CANCEL_DEADLINE)?.parse::<Timestamp>().ok());
    // Nobody above can wait for longer than the settings say.
    from_above.map_or(own, |from_above| from_above.min(own))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(value: serde_json::Value) -> ObjectMeta {
        serde_json::from_value(value).expect("metadata")
    }

    #[test]
    fn the_deadline_of_the_parent_counts_if_it_is_sooner() {
        let now = Timestamp::UNIX_EPOCH;
        let minute = Duration::from_mins(1);
        let until = |text: &str| {
            cancel_deadline(
                &metadata(json!({"annotations": {CANCEL_DEADLINE: text}})),
                minute,
                now,
            )
        };

        assert_eq!(cancel_deadline(&ObjectMeta::default(), minute, now), now + minute);
        assert_eq!(until("1970-01-01T00:00:20Z"), now + Duration::from_secs(20));
        assert_eq!(until("1980-01-01T00:00:00Z"), now + minute);
        assert_eq!(until("soon"), now + minute);
    }

    #[test]
    fn those_above_are_looked_at_by_what_is_theirs_and_only_while_they_are_being_cancelled() {
        let owned_by = |name: &str| json!([{"apiVersion": "v1", "kind": "OrchestrationRun", "name": name, "uid": name, "controller": true}]);
        let child = metadata(json!({"ownerReferences": owned_by("parent")}));
        let above = |parent: &str, parent_stands: &str, root_stands: &str| {
            let run = |name: &str, uid: &str, phase: &str, owners: serde_json::Value| {
                let run = json!({
                    "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
                    "metadata": {"name": name, "uid": uid, "ownerReferences": owners},
                    "spec": {"orchestrationRef": {"name": "o"}},
                    "status": {"phase": phase, "cancelDeadline": "1970-01-01T00:01:00Z"},
                });
                Arc::new(serde_json::from_value(run).expect("a run"))
            };
            cancel_above(&child, |name| match name {
                "parent" => Some(run(name, parent, parent_stands, owned_by("root"))),
                _ => Some(run(name, name, root_stands, json!([]))),
            })
        };
        let until = |second: u64| Some(Timestamp::UNIX_EPOCH + Duration::from_secs(second));

        assert_eq!(above("parent", "Cancelling", "Running"), until(58));
        assert_eq!(above("parent", "Running", "Cancelling"), until(56));
        assert_eq!(above("parent", "Cancelling", "Cancelling"), until(58));
        assert_eq!(above("parent", "Running", "Running"), None);
        assert_eq!(above("another", "Cancelling", "Cancelling"), None);
    }

    #[test]
    fn runs_that_own_each_other_are_not_looked_at_for_ever() {
        let owner = json!([{"apiVersion": "v1", "kind": "OrchestrationRun", "name": "o", "uid": "o", "controller": true}]);
        let own: OrchestrationRun = serde_json::from_value(json!({
            "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
            "metadata": {"name": "o", "uid": "o", "ownerReferences": owner},
            "spec": {"orchestrationRef": {"name": "o"}},
        }))
        .expect("a run");
        let own = Arc::new(own);
        assert_eq!(cancel_above(&own.metadata, |_| Some(Arc::clone(&own))), None);
    }

    #[test]
    fn a_stop_from_above_counts_also_where_people_may_not_cancel() {
        let owner = json!([{"apiVersion": "v1", "kind": "OrchestrationRun", "name": "o", "uid": "u", "controller": true}]);
        let asked = CancelRequest {
            cancel: true,
            ..CancelRequest::default()
        };
        for (by, people_may, stops) in [
            (None, true, true),
            (None, false, false),
            (Some("u"), false, true),
            (Some("another"), false, false),
        ] {
            let known = metadata(
                json!({"ownerReferences": owner, "annotations": {STOPPED_BY: by.unwrap_or_default()}}),
            );
            assert_eq!(
                has_to_stop(&known, &asked, people_may),
                stops,
                "{by:?} {people_may}"
            );
            assert_eq!(
                is_stop_refused(&known, &asked, people_may),
                !stops,
                "{by:?} {people_may}"
            );
            assert!(!has_to_stop(&known, &CancelRequest::default(), people_may));
        }
    }

    #[test]
    fn only_a_child_with_the_finalizer_is_held() {
        let owner = json!([{"apiVersion": "v1", "kind": "OrchestrationRun", "name": "o", "uid": "u", "controller": true}]);
        let finalizers = json!([RUNTIME_CLEANUP_FINALIZER]);
        assert!(is_held(&metadata(
            json!({"ownerReferences": owner, "finalizers": finalizers})
        )));
        assert!(!is_held(&metadata(json!({"ownerReferences": owner}))));
        assert!(!is_held(&metadata(json!({"finalizers": finalizers}))));
    }
}
