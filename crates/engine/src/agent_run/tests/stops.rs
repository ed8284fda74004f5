//! Cancel and deletion: over when the pod is.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    labels::STOPPED_BY,
    phase::RunPhase,
    reason::Reason,
};
use jiff::ToSpan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::{super::plan, World};
use crate::decision::{Decision, PodSight};

fn cancel(world: &mut World) {
    world.edit(|run| {
        run.spec.stop.cancel = true;
        run.spec.stop.cancel_reason = Some("not needed".to_owned());
    });
}

#[test]
fn a_cancelled_run_is_cancelled_when_its_pod_is_gone_and_not_before() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    world.wait(20).settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling), "its pod has its grace");
    assert_eq!(world.deeds().len(), 2, "the Job is deleted once");
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.status, ConditionStatus::True);
    assert!(cancelled.message.contains("not needed"), "{}", cancelled.message);
    assert!(!world.is_held("mend-job"));
    assert!(!world.questions.is_empty(), "that it is gone was read live");
}

#[test]
fn what_a_person_cancels_is_recorded_before_its_job_is_deleted_and_what_a_parent_cancels_need_not_be() {
    let first_deeds = |asked_by_parent: bool| {
        let mut world = World::new();
        world
            .settle()
            .pod("mend-job", &json!({"phase": "Running"}))
            .settle();
        if asked_by_parent {
            world.edit(|run| {
                let parent = json!([{"apiVersion": "v1", "kind": "OrchestrationRun", "name": "o", "uid": "u", "controller": true}]);
                run.metadata.owner_references = serde_json::from_value(parent).expect("an owner");
                let by = (STOPPED_BY.to_owned(), "u".to_owned());
                run.metadata.annotations.get_or_insert_default().extend([by]);
            });
        }
        cancel(&mut world);
        world.round();
        (world.phase(), world.deeds().contains(&"stop mend-job".to_owned()))
    };

    assert_eq!(first_deeds(false), (Some(RunPhase::Cancelling), false));
    assert_eq!(first_deeds(true), (Some(RunPhase::Cancelling), true));
}

#[test]
fn the_child_of_a_run_that_is_being_cancelled_stops_before_it_is_told_and_writes_when_it_is() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.observed.cancel_above = Some(world.now + 58.seconds());

    world.settle();

    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Running));

    cancel(&mut world);
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
}

#[test]
fn below_a_run_that_is_being_cancelled_nothing_starts() {
    let mut world = World::new();
    world.observed.cancel_above = Some(world.now + 58.seconds());

    world.settle();

    assert_eq!(world.deeds(), [] as [&str; 0]);
}

#[test]
fn a_child_that_nobody_comes_to_tell_is_cancelled_when_the_time_of_its_parent_is_over() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    let deadline = world.now + 58.seconds();
    world.observed.cancel_above = Some(deadline);
    world.settle();
    assert_eq!(world.wake_at, Some(deadline));

    world.now = deadline;
    world.settle();

    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
}

/// The Job controller may count the pod as failed that it was told to stop.
#[test]
fn a_job_that_failed_because_it_was_deleted_has_not_ended_by_itself() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.observed.cancel_above = Some(world.now + 58.seconds());
    world.settle();
    let ended_at = world.now + 5.seconds();
    let job = world.observed.jobs.get_mut("mend-job").expect("the Job");
    let job = std::sync::Arc::make_mut(job);
    job.metadata.deletion_timestamp.get_or_insert(Time(world.now));
    job.status = serde_json::from_value(json!({"conditions": [{
        "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": ended_at.to_string(),
    }]}))
    .expect("a status");
    world.observed.pods.clear();
    world.now = ended_at;

    world.settle();

    assert_eq!(world.phase(), Some(RunPhase::Running));
}

/// What a pod that has ended by itself did counts, as it does if the run itself is cancelled.
#[test]
fn a_child_that_has_ended_when_its_parent_is_cancelled_keeps_its_end() {
    let mut world = World::new();
    let words = json!({"version": 1, "exitCode": 0, "reason": "Completed"});
    world.settle().pod_ended("mend-job", 0, &words);
    world.observed.cancel_above = Some(world.now + 58.seconds());

    world.settle();

    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert!(!world.deeds().contains(&"stop mend-job".to_owned()));
}

#[test]
fn a_pod_that_the_cache_lost_sight_of_is_not_taken_for_gone() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    world.settle();
    let (uid, sight) = world.observed.pods.pop_first().expect("a pod");
    world.hidden_pods.insert(uid, sight.pods().to_vec());
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
}

#[test]
fn a_run_without_a_job_is_cancelled_at_once_after_a_live_read() {
    let mut world = World::new();
    cancel(&mut world);
    world.settle();
    assert!(world.deeds().is_empty());
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(world.questions.len(), 1);
}

#[test]
fn what_had_ended_before_the_cancel_keeps_its_end() {
    let mut world = World::new();
    let words = json!({"version": 1, "exitCode": 0, "reason": "Completed"});
    world.settle().pod_ended("mend-job", 0, &words);
    cancel(&mut world);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(
        (cancelled.status, cancelled.reason),
        (ConditionStatus::False, Reason::AlreadySucceeded)
    );
}

#[test]
fn a_cancel_that_has_begun_is_not_undone_by_a_late_success() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    world.settle();
    world
        .edit(|run| run.spec.stop.cancel = false)
        .pod_ended("mend-job", 0, &json!({"version": 1}))
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
}

#[test]
fn a_cancel_that_takes_too_long_names_what_is_left_and_goes_on() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    world.settle();
    world.now = world.wake_at.expect("a cancel has a deadline");
    world.settle();
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.reason, Reason::CancelTimedOut);
    assert!(cancelled.message.contains("mend-job-x"), "{}", cancelled.message);
    assert!(world.is_held("mend-job"), "its pod is still there");
    assert_eq!(world.status().survivors_gone_at, None);
    world.pods_vanish().settle();
    assert!(!world.is_held("mend-job"));
    assert_eq!(world.status().survivors_gone_at.map(|at| at.0), Some(world.now));
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::CancelTimedOut
    );
    let told: Vec<_> = world.notices.iter().map(|notice| &notice.reason).collect();
    assert_eq!(
        told,
        [&Reason::Submitted, &Reason::CancelTimedOut],
        "two Events, as for every run"
    );
}

#[test]
fn a_pod_with_more_grace_than_the_cancel_has_time_gets_less() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    world.settle();
    let killed_at = Time(world.now + 600.seconds());
    for sight in world.observed.pods.values_mut() {
        let mut pods = sight.pods().to_vec();
        let metadata = &mut std::sync::Arc::make_mut(&mut pods[0]).metadata;
        metadata.deletion_timestamp = Some(killed_at.clone());
        metadata.deletion_grace_period_seconds = Some(600);
        *sight = PodSight::Cached(pods);
    }
    world.settle();
    assert_eq!(
        world.deeds().last().map(String::as_str),
        Some("delete mend-job-x within 50 s")
    );
}

/// A kubelet that has begun to stop a container does not hear of a shorter grace, so the pod is told before its Job is.
#[test]
fn a_cancel_with_little_time_tells_the_pod_its_grace_before_the_job_is_stopped() {
    let mut world = World::new();
    world.settings.runs.cancel_timeout = std::time::Duration::from_secs(15);
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    for sight in world.observed.pods.values_mut() {
        let mut pods = sight.pods().to_vec();
        let spec = std::sync::Arc::make_mut(&mut pods[0])
            .spec
            .get_or_insert_default();
        spec.termination_grace_period_seconds = Some(30);
        *sight = PodSight::Cached(pods);
    }
    cancel(&mut world);
    world.settle();
    assert_eq!(
        world.deeds(),
        ["create mend-job", "delete mend-job-x within 5 s", "stop mend-job"]
    );
}

#[test]
fn a_run_that_is_gone_leaves_nothing_running() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.observed.run = None;
    // Kubernetes deletes the Job in the background, which does not touch the pod of a Job that is held.
    world.change_job("mend-job", |job, now| {
        job.metadata.deletion_timestamp = Some(Time(now));
    });
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "delete mend-job-x"]);
    assert!(world.is_held("mend-job"));
    world.pods_vanish().settle();
    assert_eq!(world.deeds().last().map(String::as_str), Some("release mend-job"));
    let told = world.notices.last().expect("an Event");
    assert_eq!(
        (&told.reason, told.regarding.0.as_str()),
        (&Reason::Stopped, "run-1")
    );
}

#[test]
fn a_run_that_is_being_deleted_stops_its_job() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    let now = world.now;
    world
        .edit(|run| run.metadata.deletion_timestamp = Some(Time(now)))
        .settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    world.pods_vanish().settle();
    assert!(!world.is_held("mend-job"));
}

#[test]
fn a_cancel_is_recorded_before_the_job_is_deleted() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    let Decision::Act(plan) = plan(&world.observed, &world.settings, world.now) else {
        panic!("nothing has to be asked");
    };
    assert!(plan.effects.is_empty(), "{:#?}", plan.effects);
    assert_eq!(
        plan.status.and_then(|status| status.phase),
        Some(RunPhase::Cancelling)
    );
}

#[test]
fn a_job_whose_pod_may_be_on_its_way_is_not_taken_for_stopped() {
    let mut world = World::new();
    world.settle();
    cancel(&mut world);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling), "no pod was ever seen");
    assert!(world.is_held("mend-job"));
    world.now = world.wake_at.expect("the wait has an end");
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
}

#[test]
fn a_cancel_looks_for_the_pod_of_a_job_that_vanished() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.observed.jobs.clear();
    cancel(&mut world);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    assert_eq!(
        world.deeds().last().map(String::as_str),
        Some("delete mend-job-x")
    );
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
}

#[test]
fn a_cancel_that_is_taken_back_says_that_it_cannot_be() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    cancel(&mut world);
    world.settle().edit(|run| run.spec.stop.cancel = false).settle();
    let message = world.condition(&ConditionType::Succeeded).message;
    assert!(message.contains("cannot be taken back"), "{message}");
}

#[test]
fn a_job_that_was_orphaned_on_purpose_goes_on_and_is_not_held() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.observed.run = None;
    world.change_job("mend-job", |job, _| job.metadata.owner_references = None);
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "release mend-job"]);
}

#[test]
fn a_cancel_that_the_settings_do_not_allow_is_answered_and_honoured_when_they_do() {
    let mut world = World::new();
    world.settings.runs.cancel_enabled = false;
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    world.edit(|run| run.spec.stop.cancel = true).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    let answer = world.condition(&ConditionType::Cancelled);
    assert_eq!(answer.status, ConditionStatus::False);
    assert_eq!(answer.reason, Reason::CancelDisabled);
    assert!(
        answer.message.contains("JANGAR_ORCHESTRATION_CANCEL_ENABLED"),
        "{}",
        answer.message
    );
    let before = world.status();
    world.wait(60).settle();
    assert_eq!(world.status(), before, "it is answered once");

    world.settings.runs.cancel_enabled = true;
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
}

#[test]
fn a_stop_by_the_parent_is_honoured_also_where_people_may_not_cancel() {
    let mut world = World::new();
    world.settings.runs.cancel_enabled = false;
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    let parent = json!({
        "ownerReferences": [{"apiVersion": "v1", "kind": "OrchestrationRun", "name": "o", "uid": "o-1", "controller": true}],
        "annotations": {STOPPED_BY: "o-1"},
    });
    let told: ObjectMeta = serde_json::from_value(parent).expect("metadata");
    world
        .edit(|run| {
            run.metadata.owner_references = told.owner_references;
            run.metadata.annotations = told.annotations;
            run.spec.stop.cancel = true;
        })
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
}

#[test]
fn a_run_that_ended_before_a_cancel_was_allowed_keeps_its_answer() {
    let mut world = World::new();
    world.settings.runs.cancel_enabled = false;
    world.edit(|run| run.spec.stop.cancel = true).settle();
    world.pod_ended("mend-job", 0, &json!({"version": 1})).settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::CancelDisabled
    );
}
