//! Runs of the runtime `workflow`: steps one after the other.

use jangar_api::{
    agents::{
        agent_run::Workflow,
        agent_run_status::{WorkflowStatus, WorkflowStepStatus},
    },
    condition::{ConditionStatus, ConditionType},
    phase::{RunPhase, StepPhase},
    reason::Reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{World, object};
use crate::decision::{Effect, Sight};

pub(super) const FIRST: &str = "mend-step-1-attempt-1";
pub(super) const SECOND: &str = "mend-step-2-attempt-1";

/// A run with these steps.
pub(super) fn workflow(steps: &Value) -> World {
    let mut world = World::new();
    let steps = json!({ "steps": steps });
    let workflow: Workflow = object(steps);
    world.edit(|run| {
        run.spec.runtime.type_ = "workflow".into();
        run.spec.workflow = Some(workflow);
        run.spec.parameters = [("lang".to_owned(), "rust".to_owned())].into();
    });
    world
}

pub(super) fn plan_and_build() -> World {
    workflow(&json!([
        {"name": "plan"},
        {"name": "build", "parameters": {"branch": "{{ steps.plan.outputs.branch }}", "l": "{{ parameters.lang }}"}},
    ]))
}

pub(super) fn done(outputs: &Value) -> Value {
    json!({"version": 1, "exitCode": 0, "reason": "Completed", "summary": "Done.", "outputs": outputs})
}

fn bad() -> Value {
    json!({"version": 1, "exitCode": 1, "reason": "AgentFailed", "message": "tests are red"})
}

fn progress(world: &World) -> WorkflowStatus {
    world.status().workflow.expect("the steps are shown")
}

fn step(world: &World, index: usize) -> WorkflowStepStatus {
    progress(world).steps[index].clone()
}

pub(super) fn phases(world: &World) -> Vec<String> {
    let steps = progress(world).steps;
    let phase = |step: &WorkflowStepStatus| step.progress.phase.as_ref().map(ToString::to_string);
    steps.iter().map(|step| phase(step).unwrap_or_default()).collect()
}

pub(super) fn failed(world: &World) -> (Reason, String) {
    assert_eq!(world.phase(), Some(RunPhase::Failed), "{:#?}", world.status());
    let failed = world.condition(&ConditionType::Failed);
    (failed.reason, failed.message)
}

/// What the agent is told in the pod of a Job.
pub(super) fn run_document(world: &World, job: &str) -> Value {
    file(world, job, "run.json")
}

fn file(world: &World, job: &str, name: &str) -> Value {
    let created = world.done.iter().find_map(|effect| match effect {
        Effect::CreateJob(new) if new.job.metadata.name.as_deref() == Some(job) => Some(&new.job),
        _ => None,
    });
    let spec = created
        .and_then(|job| job.spec.as_ref())
        .expect("the Job was made");
    let annotations = spec
        .template
        .metadata
        .as_ref()
        .and_then(|pod| pod.annotations.as_ref());
    let document = &annotations.expect("its files")[&format!("agents.proompteng.ai/{name}")];
    serde_json::from_str(document).expect("JSON")
}

#[test]
fn steps_run_one_after_the_other_and_the_next_starts_in_the_same_pass() {
    let mut world = plan_and_build();
    world.begun(FIRST);
    assert_eq!(world.deeds(), [format!("create {FIRST}")]);
    assert_eq!(phases(&world), ["Running", "Pending"]);
    assert_eq!(progress(&world).phase, Some(RunPhase::Running));
    let first = step(&world, 0);
    assert_eq!(first.job_ref.expect("a Job").uid.as_deref(), Some("job-1"));
    assert!(first.job_observed_at.is_some() && first.progress.started_at.is_some());

    world
        .wait(5)
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})))
        .settle();

    assert_eq!(
        world.deeds()[1..],
        [format!("release {FIRST} for 600 s"), format!("create {SECOND}")]
    );
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(phases(&world), ["Succeeded", "Running"]);
    let document = run_document(&world, SECOND);
    assert_eq!(
        document["parameters"],
        json!({"lang": "rust", "branch": "fix", "l": "rust"})
    );
    assert_eq!(document["steps"]["plan"]["outputs"]["branch"], "fix");
    assert_eq!(
        document["step"],
        json!({"name": "build", "index": 2, "attempt": 1})
    );
    let labels = world.observed.jobs[SECOND]
        .metadata
        .labels
        .clone()
        .expect("labels");
    assert_eq!(labels["agents.proompteng.ai/step"], "build");
    assert_eq!(labels["agents.proompteng.ai/step-index"], "2");

    world
        .wait(5)
        .pod_ended(SECOND, 0, &done(&json!({"answer": 42})))
        .settle();

    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(phases(&world), ["Succeeded", "Succeeded"]);
    assert_eq!(progress(&world).phase, Some(RunPhase::Succeeded));
    let outcome = world.status().outcome.expect("that of the last step");
    assert_eq!(outcome.outputs.expect("outputs").0["answer"], 42);
    assert!(!world.is_held(FIRST) && !world.is_held(SECOND));
    let told: Vec<_> = world.notices.iter().map(|notice| &notice.reason).collect();
    assert_eq!(
        told,
        [&Reason::Submitted, &Reason::Completed],
        "one Event at each end"
    );
    assert!(world.questions.is_empty(), "the good way needs no live read");
}

#[test]
fn a_step_that_fails_ends_the_run_and_skips_the_rest() {
    let mut world = plan_and_build();
    world.settle().pod_ended(FIRST, 1, &bad()).settle();
    let (reason, message) = failed(&world);
    assert_eq!(reason, Reason::WorkflowStepFailed);
    assert!(
        message.contains("step plan") && message.contains("tests are red"),
        "{message}"
    );
    assert_eq!(phases(&world), ["Failed", "Skipped"]);
    assert!(step(&world, 0).progress.finished_at.is_some());
    assert_eq!(step(&world, 1).message.as_deref(), Some("step plan failed"));
    assert_eq!(progress(&world).phase, Some(RunPhase::Failed));
    assert!(!world.is_held(FIRST));
}

#[test]
fn a_step_is_tried_again_after_its_wait_and_each_wait_is_longer() {
    let mut world = workflow(&json!([{"name": "plan", "retries": 2, "retryBackoffSeconds": 30}]));
    world.settle().pod_ended(FIRST, 1, &bad()).settle();
    assert_eq!(phases(&world), ["Retrying"]);
    let due = step(&world, 0).progress.next_retry_at.expect("it is shown").0;
    assert_eq!(world.wake_at, Some(due));
    let first_wait = due.duration_since(world.now).as_secs();
    assert!((30..=36).contains(&first_wait), "{first_wait}");
    assert!(!world.is_held(FIRST), "its end is recorded");

    world.now = due;
    world.settle();
    assert_eq!(phases(&world), ["Running"]);
    assert_eq!(step(&world, 0).progress.next_retry_at, None);
    world.pod_ended("mend-step-1-attempt-2", 1, &bad()).settle();
    let due = step(&world, 0).progress.next_retry_at.expect("it is shown").0;
    let second_wait = due.duration_since(world.now).as_secs();
    assert!((60..=72).contains(&second_wait), "{second_wait}");

    world.now = due;
    world
        .settle()
        .pod_ended("mend-step-1-attempt-3", 1, &bad())
        .settle();
    let (reason, message) = failed(&world);
    assert_eq!(reason, Reason::WorkflowStepRetriesExhausted);
    assert!(message.contains("attempt 3, the last"), "{message}");
}

#[test]
fn the_retries_of_one_step_are_not_used_up_by_another() {
    let mut world = workflow(&json!([{"name": "plan", "retries": 1}, {"name": "build", "retries": 1}]));
    world.settle().pod_ended(FIRST, 1, &bad()).settle();
    world
        .pod_ended("mend-step-1-attempt-2", 0, &done(&json!({})))
        .settle();
    world.pod_ended(SECOND, 1, &bad()).settle();
    assert!(
        world.deeds().contains(&"create mend-step-2-attempt-2".to_owned()),
        "{:?}",
        world.deeds()
    );
    world
        .pod_ended("mend-step-2-attempt-2", 0, &done(&json!({})))
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
}

#[test]
fn a_step_whose_pod_was_taken_away_costs_no_retry() {
    let mut world = workflow(&json!([{"name": "plan"}]));
    let evicted = json!({"phase": "Failed", "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"},
    ]});
    world.settle();
    for attempt in 1..=5 {
        world
            .pod(&format!("mend-step-1-attempt-{attempt}"), &evicted)
            .settle();
        assert_eq!(world.phase(), Some(RunPhase::Running), "after attempt {attempt}");
    }
    world.pod("mend-step-1-attempt-6", &evicted).settle();
    assert_eq!(failed(&world).0, Reason::WorkflowStepFailed);
}

#[test]
fn a_step_that_takes_too_long_is_stopped_before_the_next_attempt_starts() {
    let mut world = workflow(&json!([{"name": "plan", "timeoutSeconds": 60, "retries": 1}]));
    world.settle().pod(FIRST, &json!({"phase": "Running"})).settle();
    let limit = world.wake_at.expect("the attempt has a limit");
    assert_eq!(limit.duration_since(world.now).as_secs(), 60);
    world.now = limit;
    world.settle();
    assert_eq!(
        world.deeds()[1..],
        [format!("stop {FIRST}")],
        "the pod is still there"
    );
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::WorkflowStepTimedOut
    );

    world.wait(5).pods_vanish().settle();

    assert_eq!(
        world.deeds()[2..],
        [
            format!("release {FIRST} for 600 s"),
            "create mend-step-1-attempt-2".to_owned()
        ]
    );
    world
        .pod("mend-step-1-attempt-2", &json!({"phase": "Running"}))
        .wait(60)
        .settle();
    world.wait(5).pods_vanish().settle();
    let (reason, message) = failed(&world);
    assert_eq!(reason, Reason::WorkflowStepTimedOut);
    assert!(message.contains("60 s of its timeoutSeconds"), "{message}");
    assert_eq!(phases(&world), ["Failed"]);
}

#[test]
fn work_that_ended_before_it_was_stopped_counts_although_its_time_was_up() {
    let mut world = workflow(&json!([{"name": "plan", "timeoutSeconds": 60}]));
    world.settle().pod(FIRST, &json!({"phase": "Running"})).settle();
    world.wait(60);
    world.pod_ended(FIRST, 0, &done(&json!({}))).settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
}

#[test]
fn the_time_of_a_step_wins_over_that_of_the_agent_and_holds_in_the_pod_too() {
    for (of_step, expected) in [
        (json!(60), json!(60)),
        (json!(0), json!(null)),
        (json!(null), json!(900)),
    ] {
        let mut world = workflow(&json!([{"name": "plan", "timeoutSeconds": of_step}]));
        let agent = json!({
            "metadata": {"name": "fixer"},
            "spec": {"providerRef": {"name": "scripted"}, "defaults": {"timeoutSeconds": 900}},
        });
        world.observed.references.agent = Sight::Seen(std::sync::Arc::new(object(agent)));
        world.settle();
        let deadlines = &file(&world, FIRST, "agent-runner.json")["deadlines"];
        assert_eq!(deadlines["softSeconds"], expected, "{of_step}");
    }
}

#[test]
fn retries_of_a_step_that_says_nothing_are_those_of_its_agent() {
    let mut world = workflow(&json!([{"name": "plan"}]));
    let agent = json!({
        "metadata": {"name": "fixer"},
        "spec": {"providerRef": {"name": "scripted"}, "defaults": {"retryLimit": 1}},
    });
    world.observed.references.agent = Sight::Seen(std::sync::Arc::new(object(agent)));
    world.settle().pod_ended(FIRST, 1, &bad()).settle();
    world.pod_ended("mend-step-1-attempt-2", 1, &bad()).settle();
    assert_eq!(failed(&world).0, Reason::WorkflowStepRetriesExhausted);
}

#[test]
fn an_agent_that_the_runner_stopped_for_its_time_has_timed_out() {
    let mut world = workflow(&json!([{"name": "plan", "timeoutSeconds": 60}]));
    let words =
        json!({"version": 1, "exitCode": 124, "reason": "SoftDeadlineExceeded", "message": "too long"});
    world.settle().pod_ended(FIRST, 124, &words).settle();
    assert_eq!(failed(&world).0, Reason::WorkflowStepTimedOut);
}

/// How many Events have this reason.
fn told_of(world: &World, reason: &Reason) -> usize {
    let notices = world.notices.iter();
    notices.filter(|notice| notice.reason == *reason).count()
}

#[test]
fn a_job_of_a_step_that_was_deleted_is_not_replaced_unless_the_step_says_so() {
    for (policy, expected) in [(None, Some(Reason::WorkflowJobDeleted)), (Some("Retry"), None)] {
        let mut world = workflow(&json!([{"name": "plan", "retries": 1, "onJobMissing": policy}]));
        world.settle().pod(FIRST, &json!({"phase": "Running"})).settle();
        world.change_job(FIRST, |job, now| {
            job.metadata.deletion_timestamp = Some(Time(now));
        });
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Running), "its pod is being stopped");
        world.pods_vanish().settle();
        match expected {
            Some(reason) => assert_eq!(failed(&world).0, reason),
            None => {
                assert_eq!(phases(&world), ["Running"]);
                assert!(world.deeds().contains(&"create mend-step-1-attempt-2".to_owned()));
            }
        }
        assert_eq!(
            world.condition(&ConditionType::Warning).reason,
            Reason::WorkflowJobDeleted
        );
        assert_eq!(
            told_of(&world, &Reason::WorkflowJobDeleted),
            1,
            "onJobMissing: {policy:?}"
        );
    }
}

#[test]
fn a_job_of_a_step_that_vanished_is_not_replaced_unless_the_step_says_so() {
    for (policy, retries, expected) in [
        (None, 1, Some(Reason::WorkflowJobMissing)),
        (Some("Fail"), 1, Some(Reason::WorkflowJobMissing)),
        (Some("Retry"), 0, Some(Reason::WorkflowJobMissing)),
        (Some("Retry"), 1, None),
    ] {
        let mut world = workflow(&json!([{"name": "plan", "retries": retries, "onJobMissing": policy}]));
        world.settle().pod(FIRST, &json!({"phase": "Running"})).settle();
        world.observed.jobs.clear();
        world.pods_vanish().settle();
        match expected {
            Some(reason) => assert_eq!(failed(&world).0, reason),
            None => assert_eq!(phases(&world), ["Running"]),
        }
        assert_eq!(
            world.condition(&ConditionType::Warning).reason,
            Reason::WorkflowJobMissing
        );
        assert_eq!(
            told_of(&world, &Reason::WorkflowJobMissing),
            1,
            "onJobMissing: {policy:?}"
        );
    }
}

#[test]
fn a_pod_on_a_silent_node_is_given_up_and_replaced_only_when_it_is_dead() {
    let mut world = workflow(&json!([{"name": "plan"}]));
    world.settle();
    let silent = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": Time(world.now)},
        {"type": "ContainersReady", "status": "True"},
    ]});
    world.pod(FIRST, &silent).settle();
    let limit = world.wake_at.expect("the silence has a limit");
    assert_eq!(limit.duration_since(world.now).as_secs(), 600);
    world.now = limit;
    world.settle();
    assert_eq!(world.condition(&ConditionType::Warning).reason, Reason::NodeLost);
    world.wait(3600).settle();
    assert_eq!(
        world.deeds()[1..],
        [format!("stop {FIRST}")],
        "nobody knows whether it still works"
    );
    world.pods_vanish().settle();
    assert_eq!(phases(&world), ["Running"]);
    assert!(
        world.deeds().contains(&"create mend-step-1-attempt-2".to_owned()),
        "no retry was asked for"
    );
}

#[test]
fn the_same_holds_for_a_run_of_one_job() {
    let mut world = World::new();
    world.settle();
    let silent = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": Time(world.now)},
        {"type": "ContainersReady", "status": "True"},
    ]});
    world.pod("mend-job", &silent).settle().wait(600).settle();
    assert_eq!(world.condition(&ConditionType::Warning).reason, Reason::NodeLost);
    world.pods_vanish().settle();
    assert_eq!(
        world.deeds().last().map(String::as_str),
        Some("create mend-job-attempt-2")
    );
}

#[test]
fn a_cancel_between_two_steps_starts_nothing_more() {
    let mut world = plan_and_build();
    world
        .settle()
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})));
    world.edit(|run| run.spec.stop.cancel = true).settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(
        phases(&world),
        ["Succeeded", "Skipped"],
        "what was done stays done"
    );
    assert_eq!(world.deeds()[1..], [format!("release {FIRST} for 600 s")]);
    assert_eq!(world.status().outcome, None, "the run has no result");
}

#[test]
fn a_cancel_stops_the_step_that_runs() {
    let mut world = plan_and_build();
    world.settle().pod(FIRST, &json!({"phase": "Running"})).settle();
    world.edit(|run| run.spec.stop.cancel = true).settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(phases(&world), ["Cancelled", "Skipped"]);
    assert!(!world.is_held(FIRST));
}

#[test]
fn a_step_that_was_cancelled_before_its_job_was_recorded_is_not_said_to_be_skipped() {
    let mut world = plan_and_build();
    world
        .settle()
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})))
        .settle();
    let (mut before, job) = (world.status(), world.observed.jobs[SECOND].clone());
    // As it was when the Job of the second step had just been made.
    before.workflow.as_mut().expect("steps").steps[1] = object(json!({"name": "build", "phase": "Pending"}));
    let reference = &mut before.runtime_ref.as_mut().expect("a reference").0;
    reference.remove("uid");
    world.edit(|run| run.status = Some(before));
    world.edit(|run| run.spec.stop.cancel = true);
    world.observed.jobs.insert(SECOND.to_owned(), job);
    world.pod(SECOND, &json!({"phase": "Running"})).settle();
    world.pods_vanish().settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(phases(&world), ["Succeeded", "Cancelled"]);
}

#[test]
fn a_deleted_workflow_leaves_nothing_running() {
    let mut world = plan_and_build();
    world
        .settle()
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})))
        .settle();
    world.pod(SECOND, &json!({"phase": "Running"}));
    world.observed.run = None;
    world.settle();
    assert_eq!(world.deeds().last(), Some(&format!("stop {SECOND}")));
    world.pods_vanish().settle();
    assert!(!world.is_held(FIRST) && !world.is_held(SECOND));
}

#[test]
fn a_status_that_was_lost_is_made_again_from_the_jobs() {
    let mut world = plan_and_build();
    world
        .settle()
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})))
        .settle();
    let before = world.deeds().len();
    world.edit(|run| run.status = None).settle();
    assert_eq!(world.deeds().len(), before, "nothing is done twice");
    assert_eq!(phases(&world), ["Succeeded", "Running"]);
    assert_eq!(
        step(&world, 1).job_ref.expect("a Job").name.as_deref(),
        Some(SECOND)
    );
}

#[test]
fn a_step_waits_for_an_agent_that_was_deleted_meanwhile_and_the_one_that_runs_does_not() {
    let mut world = plan_and_build();
    world.settle().pod(FIRST, &json!({"phase": "Running"})).settle();
    let agent = std::mem::replace(&mut world.observed.references.agent, Sight::Absent);
    let before = world.status();
    world.wait(3600).settle();
    assert_eq!(world.status(), before, "the step that runs needs it no more");

    world
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})))
        .settle();
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(
        (blocked.status, blocked.reason),
        (ConditionStatus::True, Reason::MissingAgent)
    );
    assert!(blocked.message.contains("step build"), "{}", blocked.message);
    assert_eq!(step(&world, 1).message.as_deref(), Some(blocked.message.as_str()));
    assert_eq!(step(&world, 1).progress.phase, Some(StepPhase::Pending));

    world.observed.references.agent = agent;
    world.settle();
    assert_eq!(phases(&world), ["Succeeded", "Running"]);
    assert_eq!(step(&world, 1).message, None);
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn an_agent_that_does_not_come_back_fails_the_step_that_needs_it() {
    let mut world = plan_and_build();
    world
        .settle()
        .pod_ended(FIRST, 0, &done(&json!({"branch": "fix"})));
    world.observed.references.agent = Sight::Absent;
    world.settle().wait(60).settle();
    assert_eq!(failed(&world).0, Reason::MissingAgent);
    assert_eq!(phases(&world), ["Succeeded", "Failed"]);
}

#[test]
fn a_result_that_nobody_read_does_not_stop_the_workflow_and_is_told() {
    let mut world = workflow(&json!([{"name": "plan"}, {"name": "build"}]));
    world.settle().change_job(FIRST, |job, now| {
        let complete = json!({"type": "Complete", "status": "True", "lastTransitionTime": Time(now)});
        let status = job.status.get_or_insert_default();
        status.conditions = Some(vec![object(complete)]);
    });
    world.settle();
    assert_eq!(phases(&world), ["Succeeded", "Running"]);
    assert_eq!(
        world.condition(&ConditionType::ResultUnavailable).status,
        ConditionStatus::True
    );
}
