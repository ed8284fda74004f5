//! How a run ends: as its pod does, or why there is none.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    values::Int32,
};
use serde_json::json;

use super::World;
use crate::{decision::Severity, life::attempt::Attempt};

#[test]
fn the_outputs_of_a_tool_are_in_the_status_of_its_run() {
    let mut world = World::new();
    world.settle().works("lint-job").settle();
    let words = json!({"outputs": {"findings": 3, "report": {"url": "s3://a"}}}).to_string();
    world.wait(5).pod_ended("lint-job", 0, &words).settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    let outcome = world.status().outcome.expect("an outcome");
    assert_eq!(outcome.outputs.expect("outputs").0["findings"], 3);
    assert_eq!(world.deeds, ["create lint-job", "release lint-job for 600 s"]);
    let [started, ended] = world.notices.as_slice() else {
        panic!("one Event for the start and one for the end: {:?}", world.notices)
    };
    assert_eq!(
        (&started.reason, &ended.reason),
        (&Reason::Submitted, &Reason::Completed)
    );
}

#[test]
fn outputs_that_cannot_be_read_fail_the_run() {
    for (words, reason) in [
        ("{\"outputs\": 5}".to_owned(), Reason::InvalidOutputs),
        ("{\"outputs\": {".to_owned(), Reason::InvalidOutputs),
        (
            format!("{{\"outputs\": {{\"a\": \"{}", "x".repeat(4096)),
            Reason::OutputsTooLarge,
        ),
    ] {
        let mut world = World::new();
        world.settle().pod_ended("lint-job", 0, &words).settle();
        assert_eq!(world.phase(), Some(RunPhase::Failed), "{words}");
        assert_eq!(world.condition(&ConditionType::Failed).reason, reason);
        let told = world.notices.last().expect("an Event");
        assert_eq!((told.severity, &told.reason), (Severity::Warning, &reason));
    }
}

#[test]
fn a_text_that_is_no_json_is_a_message() {
    let mut world = World::new();
    world.settle().pod_ended("lint-job", 0, "all is well").settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    let outcome = world.status().outcome.expect("an outcome");
    assert_eq!(
        (outcome.message.as_deref(), outcome.outputs),
        (Some("all is well"), None)
    );
}

#[test]
fn a_failure_tells_the_exit_code_and_the_last_words() {
    let mut world = World::new();
    world.settle().pod_ended("lint-job", 7, "no such file").settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::JobFailed);
    assert_eq!(
        failed.message,
        "the tool ended with exit code 7 (Error): no such file"
    );
    assert_eq!(world.deeds.len(), 2, "there is no retry: {:?}", world.deeds);
}

#[test]
fn retries_are_jobs_of_their_own() {
    let mut world = World::new();
    let runtime = json!({"config": {"backoffLimit": 1, "ttlSecondsAfterFinished": 60}});
    world.edit(|run| run.spec.runtime = serde_json::from_value(runtime).expect("settings"));
    world.settle().pod_ended("lint-job", 1, "").settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    world.wait(10).settle();
    world.pod_ended("lint-job-attempt-2", 1, "").settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    assert_eq!(
        world.deeds,
        [
            "create lint-job",
            "release lint-job for 60 s",
            "create lint-job-attempt-2",
            "release lint-job-attempt-2 for 60 s",
        ]
    );
}

#[test]
fn a_pod_that_its_node_took_away_costs_no_retry() {
    let mut world = World::new();
    world.settle().pod(
        "lint-job",
        &json!({
            "phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
        }),
    );
    world.settle().wait(1).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert!(
        world.deeds.contains(&"create lint-job-attempt-2".to_owned()),
        "{:?}",
        world.deeds
    );
}

#[test]
fn a_job_that_was_deleted_is_told_from_one_that_vanished() {
    let mut deleted = World::new();
    deleted.settle().works("lint-job").settle();
    deleted.change_job("lint-job", |job, now| {
        job.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    });
    deleted.settle().pods_vanish().wait(5).settle();
    assert_eq!(
        deleted.condition(&ConditionType::Failed).reason,
        Reason::WorkflowJobDeleted
    );

    let mut vanished = World::new();
    vanished.settle().works("lint-job").settle();
    vanished.observed.jobs.clear();
    vanished.pods_vanish().settle();
    assert_eq!(
        vanished.condition(&ConditionType::Failed).reason,
        Reason::JobMissing
    );
    assert_eq!(vanished.deeds, ["create lint-job"], "it is not done again");
}

#[test]
fn a_job_that_completed_without_a_pod_to_read_succeeded_without_a_result() {
    let mut world = World::new();
    world.settle().pod_ended("lint-job", 0, "").pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(
        world.condition(&ConditionType::ResultUnavailable).status,
        ConditionStatus::True
    );
}

#[test]
fn a_finished_run_is_deleted_when_its_time_has_come_but_not_before_its_parent_knows() {
    let mut world = World::of_a_step();
    world
        .settings
        .runs
        .retention
        .replace(std::time::Duration::from_mins(5));
    world.settle().pod_ended("lint-job", 0, "").settle();
    world.wait(600).settle();
    assert_eq!(
        world.deeds.len(),
        2,
        "its parent has not recorded it: {:?}",
        world.deeds
    );
    world.edit(|run| run.metadata.finalizers = None).settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("delete run lint"));
}

fn numbers(world: &World) -> [i32; 3] {
    let kept = world
        .status()
        .retention
        .expect("it says how long things are kept");
    [
        kept.job_ttl_seconds.get(),
        kept.log_retention_seconds.get(),
        kept.run_retention_seconds.get(),
    ]
}

#[test]
fn a_run_says_how_long_its_job_is_kept_by_its_tool_and_how_long_it_is_itself() {
    let tool = |ttl: i32| json!({"image": "linter:1", "command": ["lint"], "ttlSecondsAfterFinished": ttl});
    let mut world = World::new();
    world.begun("lint-job");
    assert_eq!(numbers(&world), [600, 604_800, 2_592_000]);

    for (ttl, shown) in [(90, 90), (0, 0)] {
        let mut world = World::new().with_tool(&tool(ttl));
        world.begun("lint-job");
        assert_eq!(numbers(&world), [shown, 604_800, 2_592_000]);
        // The Tool is only read when a Job is made.
        world.tool(&tool(3_600)).pod_ended("lint-job", 0, "").settle();
        assert_eq!(numbers(&world), [shown, 604_800, 2_592_000]);
    }
}

#[test]
fn a_run_that_ended_before_it_was_seen_to_start_says_the_same() {
    let mut world = World::new()
        .with_tool(&json!({"image": "linter:1", "command": ["lint"], "ttlSecondsAfterFinished": 90}));
    world.settle();
    // As if nothing had been written between the creation of the Job and its end.
    world.edit(|run| run.status = None);
    world.pod_ended("lint-job", 0, "").settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(numbers(&world), [90, 604_800, 2_592_000]);
}

#[test]
fn how_long_a_run_of_a_tool_is_kept_can_be_changed_at_any_time() {
    let mut world = World::new();
    world.settle().pod_ended("lint-job", 0, "").settle();
    world
        .edit(|run| {
            run.spec.ttl_seconds_after_finished = Some(Int32::from(60));
            run.metadata.generation = Some(2);
        })
        .settle();
    assert_eq!(numbers(&world), [600, 604_800, 60]);
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(warning.reason, Reason::JobOutlivesRun, "{}", warning.message);
    assert_eq!(
        world.phase(),
        Some(RunPhase::Succeeded),
        "it is no edit of the work"
    );
    world.wait(60).settle();
    assert_eq!(world.deeds.last().map(String::as_str), Some("delete run lint"));
}

#[test]
fn a_job_that_vanished_before_it_was_recorded_is_not_made_again() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.phase(), None, "nothing was told of it");
    world.job_robbed("lint-job").settle();
    assert_eq!(world.deeds, ["create lint-job"]);
    assert_eq!(world.condition(&ConditionType::Failed).reason, Reason::JobMissing);
    let status = world.status();
    let attempt = Attempt::remembered(status.runtime_ref.as_ref());
    assert_eq!(attempt.job.map(|job| job.uid.0), Some("job-1".to_owned()));
    assert_eq!(status.run_id.as_deref(), Some("lint"));
    assert!(
        status.started_at.is_some() && status.spec_hash.is_some(),
        "{status:?}"
    );
}
