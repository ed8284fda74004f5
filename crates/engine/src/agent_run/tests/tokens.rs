//! A forge that gives no token of its App: how long a run waits for it, and what it says about one that is not renewed.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use jiff::ToSpan;
use serde_json::{Value, json};

use super::{World, object, version_control::with_app, workflows::FIRST};

/// A workflow of these steps that works on a repository with the token of an App.
fn workflow_with_app(steps: &Value) -> World {
    let mut world = with_app(&json!({}));
    let workflow = object(json!({ "steps": steps }));
    world.edit(|run| {
        run.spec.runtime.type_ = "workflow".into();
        run.spec.workflow = Some(workflow);
    });
    world
}

#[test]
fn words_that_change_give_a_run_no_more_time_for_its_token() {
    for (policy, phase) in [
        (json!({"required": true}), RunPhase::Failed),
        (json!({}), RunPhase::Running),
    ] {
        let mut world = with_app(&policy);
        world.token_lasts = None;
        world.settle();
        for second in 1..12 {
            world.refusal_words = format!("wait {} s", 3600 - 5 * second);
            world.wait(5).settle();
            assert_eq!(world.phase(), Some(RunPhase::Pending), "after {second} looks");
        }
        world.wait(5).settle();
        assert_eq!(world.phase(), Some(phase));
    }
}

#[test]
fn a_forge_that_asks_to_be_left_alone_is_and_the_wait_ends_at_its_deadline_all_the_same() {
    let mut world = with_app(&json!({"required": true}));
    world.token_lasts = None;
    let begin = world.now;
    world.forge_rests_until = Some(begin + 30.seconds());
    world.settle();
    assert_eq!(world.wake_at, Some(begin + 30.seconds()));
    let written = world.statuses;
    world.forge_rests_until = Some(begin + 30.minutes());
    world.wait(30).settle();
    assert_eq!(world.wake_at, Some(begin + 60.seconds()));
    assert_eq!(world.statuses, written, "it says so already");
    world.wait(30).settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
}

#[test]
fn a_renewal_that_fails_is_told_while_the_old_token_is_good_and_then_no_more() {
    let mut world = with_app(&json!({}));
    world.settle();
    world.pod("mend-job", &json!({"phase": "Running"})).settle();
    world.now = world.wake_at.expect("the token ends");
    world.token_lasts = None;
    world.settle();

    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(
        (warning.status, warning.reason),
        (ConditionStatus::True, Reason::VcsAuthUnavailable)
    );
    assert!(
        warning.message.contains("the forge said no"),
        "{}",
        warning.message
    );
    assert_eq!(world.phase(), Some(RunPhase::Running));
    let told = |world: &World| {
        let notices = world.notices.iter();
        notices
            .filter(|notice| notice.reason == Reason::VcsAuthUnavailable)
            .count()
    };
    assert_eq!(told(&world), 1);
    world.forge_rests_until = Some(world.now + 10.minutes());
    world.now = world.wake_at.expect("it is tried again");
    world.settle();
    assert_eq!(told(&world), 1, "once is enough");
    assert_eq!(world.wake_at, world.forge_rests_until);

    world.now = world.wake_at.expect("it is tried again");
    world.token_lasts = Some(3600);
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Warning).status,
        ConditionStatus::False
    );
}

#[test]
fn the_token_of_an_attempt_whose_job_vanished_is_taken_back_when_the_run_goes_on() {
    for untold in [true, false] {
        let mut world = workflow_with_app(&json!([{"name": "plan", "retries": 1, "onJobMissing": "Retry"}]));
        world.settle();
        if !untold {
            world.begun(FIRST);
        }
        world.pods_vanish().job_robbed(FIRST).settle();
        let deeds = world.deeds();
        let place = |deed: &str| deeds.iter().position(|known| known == deed);
        let revoked = place("revoke mend-vcs-token-step-1-attempt-1");
        let next = place("create mend-step-1-attempt-2");
        assert!(revoked.is_some() && revoked < next, "untold: {untold}: {deeds:?}");
    }
}

#[test]
fn a_renewal_that_fails_is_told_whatever_else_deserves_attention() {
    let mut world = workflow_with_app(&json!([{"name": "plan", "retries": 1, "timeoutSeconds": 7200}]));
    world.begun(FIRST).wait(7_200).settle();
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::WorkflowStepTimedOut
    );
    world.pods_vanish().settle();
    world.begun("mend-step-1-attempt-2");
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(
        (warning.status, warning.reason),
        (ConditionStatus::False, Reason::WorkflowStepTimedOut),
        "the attempt is over"
    );
    assert!(warning.message.contains("timeoutSeconds"), "{}", warning.message);

    world.settings.runs.immutability_enforced = false;
    world.edit(|run| run.spec.priority = 5.into());
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::SpecImmutableViolation
    );
    world.now = world.wake_at.expect("the token ends");
    world.token_lasts = None;
    world.settle();
    let told = |world: &World| {
        let notices = world.notices.iter();
        notices
            .filter(|notice| notice.reason == Reason::VcsAuthUnavailable)
            .count()
    };
    assert_eq!(
        (told(&world), world.condition(&ConditionType::Warning).reason),
        (1, Reason::VcsAuthUnavailable)
    );
    world.now = world.wake_at.expect("it is tried again");
    world.settle();
    assert_eq!(told(&world), 1, "once is enough");
}
