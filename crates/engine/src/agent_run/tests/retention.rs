//! How long a run and what it leaves are kept, and what is said about a Job that did not wait for it.

use std::{collections::BTreeMap, time::Duration};

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    labels,
    phase::RunPhase,
    reason::Reason,
    values::Int32,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{
    World,
    workflows::{FIRST, workflow},
};
use crate::{
    agent_run::spec_hash,
    decision::Key,
    last_sight::LastSight,
    life::attempt::Attempt,
    queue::{Answer, Demand, Facts, Index},
};

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

fn ended(world: &mut World) -> &mut World {
    world
        .settle()
        .pod_ended("mend-job", 0, &json!({"version": 1}))
        .settle()
}

/// Changes how long the run is kept, as a user does.
fn kept_for(world: &mut World, seconds: i32) {
    world.edit(|run| {
        run.spec.ttl_seconds_after_finished = Some(Int32::from(seconds));
        run.metadata.generation = run.metadata.generation.map(|generation| generation + 1);
    });
}

#[test]
fn the_status_says_how_long_things_are_kept_from_the_first_write_on() {
    let mut world = World::new();
    world.begun("mend-job");
    assert_eq!(numbers(&world), [600, 604_800, 2_592_000]);
    ended(&mut world);
    assert_eq!(numbers(&world), [600, 604_800, 2_592_000]);
    assert!(world.status().common.condition(&ConditionType::Warning).is_none());
}

#[test]
fn what_is_changed_about_a_run_that_has_ended_is_told_and_what_is_changed_about_all_is_no_write() {
    let mut world = World::new();
    ended(&mut world);
    let before = world.status();
    world.settings.runs.retention = Some(Duration::from_hours(1));
    world.settings.runner.job_ttl_seconds = Some(7_200);
    world.settle();
    assert_eq!(world.status(), before, "a write for every run there is");
    kept_for(&mut world, 10_000);
    world.settle();
    assert_eq!(numbers(&world), [7_200, 604_800, 10_000]);
}

#[test]
fn a_job_that_should_outlive_its_run_is_a_warning_with_both_numbers_until_it_does_not() {
    let mut world = World::new();
    kept_for(&mut world, 60);
    world.begun("mend-job");
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(warning.reason, Reason::JobOutlivesRun);
    assert!(
        warning.message.contains("600 s") && warning.message.contains("60 s"),
        "{}",
        warning.message
    );
    ended(&mut world);
    kept_for(&mut world, 600);
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Warning).status,
        ConditionStatus::False
    );
}

#[test]
fn a_graver_warning_is_not_hidden_by_one_about_retention() {
    let mut world = World::new();
    kept_for(&mut world, 60);
    world.begun("mend-job").pods_vanish();
    world.observed.jobs.clear();
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::JobMissing
    );
}

#[test]
fn an_edit_that_is_only_warned_about_goes_before_a_remark_about_retention() {
    let mut world = World::new();
    world.settings.runs.immutability_enforced = false;
    kept_for(&mut world, 60);
    world.begun("mend-job");
    world.edit(|run| run.spec.priority = Int32::from(5));
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::SpecImmutableViolation
    );
}

#[test]
fn a_run_is_kept_in_doubt_and_says_what_would_be_clear() {
    let mut world = World::new();
    kept_for(&mut world, 3_600);
    let retain = |world: &mut World, value: &str| {
        let annotations = BTreeMap::from([(labels::RETAIN.to_owned(), value.to_owned())]);
        world.edit(|run| run.metadata.annotations = Some(annotations));
    };
    retain(&mut world, "yes");
    ended(&mut world);
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(warning.reason, Reason::InvalidRetain);
    assert!(warning.message.contains(r#"is "yes""#), "{}", warning.message);
    world.wait(10_000).settle();
    assert!(world.observed.run.is_some(), "it is kept in doubt");
    retain(&mut world, "false");
    world.settle();
    assert_eq!(world.deeds().last().map(String::as_str), Some("delete run mend"));
}

#[test]
fn a_job_that_vanished_under_our_eyes_leaves_its_last_state_as_evidence() {
    let mut world = World::new();
    world.begun("mend-job").pods_vanish();
    world.change_job("mend-job", |job, now| {
        job.metadata.resource_version = Some("812".to_owned());
        job.metadata.managed_fields = Some(vec![super::object(json!({
            "manager": "kubectl-patch", "operation": "Update", "time": Time(now),
        }))]);
    });
    let departed = LastSight::of(world.observed.jobs["mend-job"].as_ref());
    world.observed.departed.insert("mend-job".to_owned(), departed);
    world.observed.jobs.clear();
    world.settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::JobMissing);
    for words in [
        "version 812 of 2026-03-01T10:00:00Z",
        "kubectl-patch had set fields of it",
        "audit log",
    ] {
        assert!(failed.message.contains(words), "{words}: {}", failed.message);
    }
    assert_eq!(
        world.notices.last().map(|notice| &notice.reason),
        Some(&Reason::JobMissing)
    );
}

#[test]
fn a_job_that_vanished_before_it_was_recorded_is_not_made_again() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.statuses, 0, "nothing was told of it");
    let admitted = world.now;
    world.pods_vanish().job_robbed("mend-job").wait(1).settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert_eq!(world.condition(&ConditionType::Failed).reason, Reason::JobMissing);
    let status = world.status();
    assert_eq!(
        recorded_job(&world),
        ("mend-job".to_owned(), "job-1".to_owned(), 1)
    );
    assert_eq!(status.admitted_at.map(|at| at.0), Some(admitted));
    assert_eq!(status.started_at.map(|at| at.0), Some(admitted));
    assert_eq!(status.spec_hash, Some(spec_hash(&world.run().spec)));
}

/// The Job that the status remembers: its name, its UID and its attempt.
fn recorded_job(world: &World) -> (String, String, u32) {
    let status = world.status();
    let attempt = Attempt::remembered(status.runtime_ref.as_ref());
    let job = attempt.job.expect("a Job");
    (job.name, job.uid.0, attempt.number)
}

#[test]
fn a_run_whose_job_vanished_untold_counts_as_one_that_executed_however_it_ended() {
    for cancelled in [false, true] {
        let mut world = World::new();
        world.edit(|run| run.spec.idempotency_key = Some("once".to_owned()));
        world.settle().pods_vanish().job_robbed("mend-job");
        world.edit(|run| run.spec.stop.cancel = cancelled).settle();
        let ended = if cancelled {
            RunPhase::Cancelled
        } else {
            RunPhase::Failed
        };
        assert_eq!(world.phase(), Some(ended));
        assert!(world.status().runtime_ref.is_some() && world.status().admitted_at.is_some());

        let mut queue = Index::new(world.settings.limits.clone());
        let first = world.observed.key.clone();
        queue.put(
            &first,
            Facts::of(&first, Some(world.run()), [], [], true),
            world.now,
        );
        let mut run = world.run().clone();
        run.metadata.uid = Some("run-2".to_owned());
        run.status = None;
        let second = Key {
            name: "again".to_owned(),
            ..first
        };
        queue.put(&second, Facts::of(&second, Some(&run), [], [], true), world.now);
        let answer = queue.ask(&second, &Demand::of("agents", &run), Some("again-job"), world.now);
        assert_eq!(
            answer,
            Answer::Duplicate {
                of: "mend".to_owned()
            }
        );
    }
}

#[test]
fn the_pod_of_a_job_that_vanished_untold_is_stopped_before_the_run_ends() {
    let mut world = World::new();
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    world.job_robbed("mend-job").settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(recorded_job(&world).0, "mend-job");
    assert_eq!(world.deeds()[1..], ["delete mend-job-x"]);
    let warning = world.condition(&ConditionType::Warning);
    assert!(
        warning.message.contains("is being stopped"),
        "{}",
        warning.message
    );
    world.pods_vanish().settle();
    assert_eq!(world.condition(&ConditionType::Failed).reason, Reason::JobMissing);
    assert_eq!(world.deeds().len(), 2, "nothing is begun anew");
}

#[test]
fn the_job_of_a_later_attempt_that_vanished_untold_is_that_attempt() {
    let mut world = World::new();
    world.edit(|run| {
        run.spec.runtime = super::object(json!({"type": "job", "config": {"backoffLimit": 3}}));
    });
    world.begun("mend-job");
    world.pod_ended("mend-job", 1, &json!({"version": 1})).settle();
    world.wait(3_600).settle();
    let second = "mend-job-attempt-2";
    assert!(world.observed.jobs.contains_key(second));
    world.job_robbed(second).settle();
    assert_eq!(world.condition(&ConditionType::Failed).reason, Reason::JobMissing);
    assert_eq!(recorded_job(&world), (second.to_owned(), "job-2".to_owned(), 2));
}

#[test]
fn a_step_that_says_so_is_tried_again_also_if_its_job_vanished_untold() {
    let mut world = workflow(&json!([{"name": "plan", "retries": 2, "onJobMissing": "Retry"}]));
    world.settle().job_robbed(FIRST).settle();
    let second = "mend-step-1-attempt-2";
    assert_eq!(
        world.deeds(),
        [format!("create {FIRST}"), format!("create {second}")]
    );
    assert!(world.status().admitted_at.is_some(), "it was let in");
    world.job_robbed(second).settle();
    let warning = world.condition(&ConditionType::Warning);
    assert!(warning.message.contains(second), "{}", warning.message);
    assert_eq!(world.deeds().len(), 3, "{:?}", world.deeds());
}

#[test]
fn a_job_of_an_earlier_run_of_that_name_keeps_nobody_from_starting() {
    let mut world = World::new();
    world.settle();
    let mut departed = LastSight::of(world.observed.jobs["mend-job"].as_ref());
    departed.owner = Some(crate::decision::Uid("of an earlier run".to_owned()));
    let mut world = World::new();
    world.observed.departed.insert("mend-job".to_owned(), departed);
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
}

#[test]
fn a_job_that_vanished_while_nobody_watched_is_known_from_the_status() {
    let mut world = World::new();
    // Between this plan and the next the Job gets its version from the API server.
    world.begun("mend-job").pods_vanish();
    let mut other = LastSight::of(world.observed.jobs["mend-job"].as_ref());
    other.uid = crate::decision::Uid("of another Job of that name".to_owned());
    world.observed.departed.insert("mend-job".to_owned(), other);
    world.observed.jobs.clear();
    world.settle();
    let message = world.condition(&ConditionType::Failed).message;
    assert!(
        message.contains("first seen at 2026-03-01T10:00:00Z"),
        "{message}"
    );
}

#[test]
fn a_job_that_vanished_after_its_pod_succeeded_is_told_beside_the_success() {
    let mut world = World::new();
    world
        .begun("mend-job")
        .pod_ended("mend-job", 0, &json!({"version": 1}));
    world.observed.jobs.clear();
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    let told: Vec<_> = world.notices.iter().map(|notice| notice.reason.clone()).collect();
    assert_eq!(told, [Reason::Submitted, Reason::Completed, Reason::JobMissing]);
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::JobMissing
    );
}

#[test]
fn what_a_deleted_job_shows_while_it_goes_is_told_once() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    world.change_job("mend-job", |job, now| {
        job.metadata.deletion_timestamp = Some(Time(now));
    });
    world.settle();
    let noticed = world.status();
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::WorkflowJobDeleted
    );
    world.change_job("mend-job", |job, _| {
        job.metadata.resource_version = Some("99".to_owned());
    });
    world.settle();
    assert_eq!(
        world.status(),
        noticed,
        "each version of the Job would be a write"
    );
    world.pods_vanish().settle();
    let failed = world.condition(&ConditionType::Failed);
    assert!(
        failed
            .message
            .contains("its deletion was asked for at 2026-03-01T10:00:00Z"),
        "{}",
        failed.message
    );
    assert!(failed.message.contains("version 99"), "{}", failed.message);
}
