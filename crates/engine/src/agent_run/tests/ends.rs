//! How a run ends, and what is left of it.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    values::Int32,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::World;

fn done() -> Value {
    json!({
        "version": 1, "exitCode": 0, "reason": "Completed", "summary": "It adds now.", "commit": "3f1c2a9",
        "artifacts": [{"name": "patch", "path": "out/a.patch", "bytes": 12}], "outputs": {"branch": "fix"},
    })
}

#[test]
fn a_run_ends_when_its_pod_does_and_then_lets_its_job_go() {
    let mut world = World::new();
    world
        .begun("mend-job")
        .wait(5)
        .pod_just_ended("mend-job", 0, &done());
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(
        world.deeds(),
        ["create mend-job"],
        "the Job controller is still writing"
    );
    world.job_ended("mend-job").settle();
    let status = world.status();
    let outcome = status.outcome.expect("an outcome");
    assert_eq!(outcome.summary.as_deref(), Some("It adds now."));
    assert_eq!(outcome.commit.as_deref(), Some("3f1c2a9"));
    assert_eq!(outcome.outputs.expect("outputs").0["branch"], json!("fix"));
    assert_eq!(status.artifacts[0].name, "patch");
    assert_eq!(world.deeds(), ["create mend-job", "release mend-job for 600 s"]);
    assert_eq!(
        world.condition(&ConditionType::InProgress).status,
        ConditionStatus::False
    );
    assert_eq!(world.notices.len(), 2, "one Event at each end");
    assert!(world.questions.is_empty(), "the good way needs no live read");
}

#[test]
fn a_run_that_is_over_before_anything_was_told_of_it_is_written_once() {
    let mut world = World::new();
    world.settle().pod_ended("mend-job", 0, &done()).settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(world.statuses, 1);
    assert_eq!(world.deeds(), ["create mend-job", "release mend-job for 600 s"]);
    let status = world.status();
    assert!(status.started_at.is_some() && status.spec_hash.is_some() && status.runtime_ref.is_some());
    let told: Vec<_> = world.notices.iter().map(|notice| &notice.reason).collect();
    assert_eq!(told, [&Reason::Completed]);
}

#[test]
fn a_run_whose_pod_waits_takes_five_writes() {
    let mut world = World::new();
    let pending = json!({"phase": "Pending"});
    world.settle().pod("mend-job", &pending).settle();
    world.wait(5).settle().wait(30).settle();
    world
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle()
        .pod_ended("mend-job", 0, &done())
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(
        (world.statuses, world.deeds().len()),
        (3, 2),
        "{:?}",
        world.deeds()
    );
}

#[test]
fn a_job_whose_end_is_never_written_is_let_go_in_the_end() {
    let mut world = World::new();
    world.settle().pod_just_ended("mend-job", 0, &done()).settle();
    assert!(world.is_held("mend-job"));
    world.now = world.wake_at.expect("it is looked at again");
    world.settle();
    assert!(!world.is_held("mend-job"));
}

#[test]
fn a_failed_agent_fails_the_run_with_its_words() {
    let mut world = World::new();
    let words = json!({"version": 1, "exitCode": 3, "reason": "AgentFailed", "message": "tests are red"});
    world.settle().pod_ended("mend-job", 3, &words).settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::JobFailed);
    assert!(failed.message.contains("tests are red"), "{}", failed.message);
    assert_eq!(
        world.status().outcome.expect("an outcome").exit_code,
        Some(Int32::from(3))
    );
}

#[test]
fn a_missing_binary_names_the_field_to_look_at() {
    let mut world = World::new();
    let words = json!({"version": 1, "exitCode": 127, "reason": "BinaryNotFound", "message": "no /opt/x"});
    world.settle().pod_ended("mend-job", 127, &words).settle();
    let message = world.condition(&ConditionType::Failed).message;
    assert!(message.contains("spec.binary of the AgentProvider"), "{message}");
}

#[test]
fn last_words_that_are_not_ours_are_a_message() {
    let mut world = World::new();
    world
        .settle()
        .pod_ended("mend-job", 1, &json!("segmentation fault"))
        .settle();
    assert!(
        world
            .condition(&ConditionType::Failed)
            .message
            .contains("segmentation fault")
    );
}

#[test]
fn a_failure_is_followed_by_as_many_attempts_as_are_allowed() {
    let mut world = World::new();
    world.settings.runner.backoff_limit = 1;
    let words = json!({"version": 1, "exitCode": 1, "reason": "AgentFailed"});
    world.settle().pod_ended("mend-job", 1, &words).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(
        world.deeds(),
        ["create mend-job", "release mend-job for 600 s"],
        "the next attempt waits"
    );
    let due = world.wake_at.expect("the wait has an end");
    world.now = due;
    world.settle();
    assert_eq!(world.deeds()[2], "create mend-job-attempt-2");
    world.pod_ended("mend-job-attempt-2", 1, &words).settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    assert!(
        world
            .condition(&ConditionType::Failed)
            .message
            .contains("attempt 2, the last")
    );
    assert!(!world.is_held("mend-job-attempt-2"));
}

#[test]
fn a_pod_that_its_node_took_away_costs_no_retry_five_times() {
    let mut world = World::new();
    let evicted = json!({"phase": "Failed", "conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained",
    }]});
    world.settle();
    let mut name = "mend-job".to_owned();
    for attempt in 2..=6 {
        world.pod(&name, &evicted).settle();
        assert_eq!(
            world.phase(),
            Some(RunPhase::Running),
            "attempt {attempt} follows"
        );
        name = format!("mend-job-attempt-{attempt}");
        assert!(world.observed.jobs.contains_key(&name), "at once");
    }
    world.pod(&name, &evicted).settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::Disrupted);
    assert!(failed.message.contains("drained"));
}

#[test]
fn a_completed_job_without_a_pod_succeeds_and_says_that_its_result_is_lost() {
    let mut world = World::new();
    world.settle();
    world.change_job("mend-job", |job, now| {
        job.status = Some(super::object(json!({"conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": Time(now)},
        ]})));
    });
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(
        world.condition(&ConditionType::ResultUnavailable).status,
        ConditionStatus::True
    );
    assert_eq!(world.questions.len(), 1, "that there is no pod was read live");
}

#[test]
fn a_job_that_failed_without_a_pod_fails_the_run() {
    let mut world = World::new();
    world.settle();
    world.change_job("mend-job", |job, now| {
        job.status = Some(super::object(json!({"conditions": [{
            "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too slow",
            "lastTransitionTime": Time(now),
        }]})));
    });
    world.settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::JobFailed);
    assert!(failed.message.contains("DeadlineExceeded"));
}

#[test]
fn a_job_that_vanished_is_missing_and_not_run_again() {
    let mut world = World::new();
    world.begun("mend-job").pods_vanish();
    world.observed.jobs.clear();
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert_eq!(world.condition(&ConditionType::Failed).reason, Reason::JobMissing);
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::JobMissing
    );
    assert_eq!(world.questions.len(), 2, "Job and pods were both read live");
}

#[test]
fn a_job_that_somebody_deleted_is_told_from_one_that_vanished() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.change_job("mend-job", |job, now| {
        job.metadata.deletion_timestamp = Some(Time(now));
    });
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "delete mend-job-x"]);
    assert_eq!(world.phase(), Some(RunPhase::Running), "its pod is still there");
    world.pods_vanish().settle();
    assert_eq!(
        world.condition(&ConditionType::Failed).reason,
        Reason::WorkflowJobDeleted
    );
    assert!(!world.is_held("mend-job"));
}

#[test]
fn a_job_that_was_deleted_after_its_pod_succeeded_has_succeeded() {
    let mut world = World::new();
    world.settle().pod_ended("mend-job", 0, &done());
    world.change_job("mend-job", |job, now| {
        job.metadata.deletion_timestamp = Some(Time(now));
    });
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert!(!world.is_held("mend-job"));
}

/// As by a time to live that somebody set while no controller was there: the pod goes first, and the finalizer keeps the rest.
#[test]
fn a_job_that_was_deleted_with_its_pod_after_it_ended_keeps_its_end() {
    for (condition, phase, told) in [
        ("Complete", RunPhase::Succeeded, ConditionType::ResultUnavailable),
        ("Failed", RunPhase::Failed, ConditionType::Failed),
    ] {
        let mut world = World::new();
        world.settle();
        world.change_job("mend-job", |job, now| {
            job.status = Some(super::object(json!({"conditions": [
                {"type": condition, "status": "True", "lastTransitionTime": Time(now)},
            ]})));
            job.metadata.deletion_timestamp = Some(Time(now + std::time::Duration::from_secs(1)));
        });
        world.wait(10).settle();
        assert_eq!(world.phase(), Some(phase));
        assert_ne!(world.condition(&told).reason, Reason::WorkflowJobDeleted);
        assert!(!world.is_held("mend-job"));
    }
}

#[test]
fn a_finished_run_is_deleted_when_its_time_has_come() {
    let mut world = World::new();
    world.edit(|run| run.spec.ttl_seconds_after_finished = Some(Int32::from(60)));
    world.settle().pod_ended("mend-job", 0, &done()).settle();
    let due = world.wake_at.expect("retention has a time");
    world.wait(59).settle();
    assert!(world.observed.run.is_some());
    world.now = due;
    world.settle();
    assert_eq!(world.deeds().last().map(String::as_str), Some("delete run mend"));
}

#[test]
fn a_run_that_is_to_be_kept_is_kept() {
    for keep in ["label", "zero"] {
        let mut world = World::new();
        world.edit(|run| match keep {
            "label" => {
                run.metadata
                    .labels
                    .get_or_insert_default()
                    .insert("agents.proompteng.ai/retain".to_owned(), "true".to_owned());
            }
            _ => run.spec.ttl_seconds_after_finished = Some(Int32::from(0)),
        });
        world.settle().pod_ended("mend-job", 0, &done()).settle();
        assert_eq!(world.wake_at, None, "{keep}");
        world.wait(10_000_000).settle();
        assert!(world.observed.run.is_some(), "{keep}");
    }
}

#[test]
fn a_rejected_run_is_deleted_by_retention_too() {
    let mut world = World::new();
    world
        .edit(|run| run.spec.runtime.type_ = "custom".into())
        .settle();
    assert!(world.wake_at.is_some());
    world.wait(31 * 24 * 3600).settle();
    assert!(world.observed.run.is_none());
}

#[test]
fn a_terminal_phase_does_not_change() {
    let mut world = World::new();
    world.settle().pod_ended("mend-job", 0, &done()).settle();
    let ended = world.status();
    world.observed.jobs.clear();
    world.pods_vanish().wait(60).settle();
    assert_eq!(world.status(), ended);
}

#[test]
fn a_run_that_has_ended_does_not_let_a_job_go_that_may_still_begin() {
    let mut world = World::new();
    world.settle();
    world.edit(|run| {
        run.status.get_or_insert_default().phase = Some(RunPhase::Failed);
    });
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    assert!(world.is_held("mend-job"));
}

#[test]
fn the_report_of_an_attempt_is_not_that_of_the_next() {
    let mut world = World::new();
    world.settings.runner.backoff_limit = 1;
    world
        .settle()
        .pod_ended("mend-job", 1, &json!({"version": 1, "summary": "half done"}))
        .settle();
    assert_eq!(world.status().outcome, None);
}

#[test]
fn one_bad_field_of_the_last_words_does_not_cost_the_others() {
    let mut world = World::new();
    let words = json!({"version": 1, "summary": "fine", "usage": 3, "artifacts": [{"path": "nameless"}, {"name": "a"}]});
    world.settle().pod_ended("mend-job", 0, &words).settle();
    let status = world.status();
    assert_eq!(
        status.outcome.expect("an outcome").summary.as_deref(),
        Some("fine")
    );
    assert_eq!(status.artifacts.len(), 1);
}

#[test]
fn too_many_artifacts_fail_a_run_only_where_that_is_set() {
    for strict in [false, true] {
        let mut world = World::new();
        world.settings.runs.artifacts_max = 1;
        world.settings.runs.artifacts_strict = strict;
        let words = json!({"version": 1, "artifacts": [{"name": "a"}, {"name": "b"}]});
        world.settle().pod_ended("mend-job", 0, &words).settle();
        let expected = if strict {
            RunPhase::Failed
        } else {
            RunPhase::Succeeded
        };
        assert_eq!(world.phase(), Some(expected));
        assert_eq!(world.status().artifacts[0].name, "b", "the last is kept");
    }
}
