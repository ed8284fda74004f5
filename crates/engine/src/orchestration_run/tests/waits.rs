//! Gates, signals and checkpoints.

use jangar_api::{
    condition::ConditionType,
    labels::APPROVAL,
    orchestration::orchestration_run::{ApprovalDecision, OrchestrationRun},
    phase::RunPhase,
    reason::Reason,
    signals::SignalDelivery,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::world::{World, agent};
use crate::approval::{Caller, Request, decide};

pub(super) fn policy(world: &mut World, spec: Value) {
    let policy = serde_json::from_value(json!({
        "apiVersion": "approvals.proompteng.ai/v1alpha1", "kind": "ApprovalPolicy",
        "metadata": {"name": "release", "namespace": "agents"}, "spec": spec,
    }));
    world
        .policies
        .insert("release".to_owned(), policy.expect("a policy"));
}

fn gated() -> World {
    let mut world = World::of(json!([
        agent("build", json!({})),
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "release"},
        agent("deploy", json!({})),
    ]));
    world.settle();
    world.end("run-build-1", RunPhase::Succeeded, json!({"image": "i:1"}));
    world.settle();
    world
}

fn answer(world: &mut World, decision: ApprovalDecision) {
    let digest = world
        .step("gate")
        .waits_for
        .as_ref()
        .and_then(|waits| waits.digest.clone());
    let run = world.run.as_mut().expect("a run");
    let request = Request {
        step: "gate".to_owned(),
        decision,
        comment: None,
        digest: digest.expect("a digest"),
    };
    let caller = Caller {
        user: "bob".to_owned(),
        groups: Vec::new(),
    };
    run.status =
        Some(decide(run, &world.policies["release"], &caller, request, world.now).expect("a decision"));
    world.settle();
}

#[test]
fn a_gate_waits_where_people_find_it_and_opens_when_it_is_approved() {
    let mut world = gated();
    policy(&mut world, json!({}));
    world.settle();

    assert_eq!(world.stands("gate"), "Running/ApprovalPending");
    assert_eq!(
        world.reason(&ConditionType::Blocked),
        Some(Reason::ApprovalPending)
    );
    assert!(world.run.as_ref().expect("a run").labels().contains_key(APPROVAL));
    assert!(
        world
            .notices
            .iter()
            .any(|notice| notice.reason == Reason::ApprovalPending)
    );
    answer(&mut world, ApprovalDecision::Approved);

    assert_eq!(
        [world.stands("gate"), world.stands("deploy")],
        ["Succeeded", "Running"]
    );
    assert!(!world.run.as_ref().expect("a run").labels().contains_key(APPROVAL));
}

#[test]
fn a_gate_that_is_denied_fails_and_is_not_asked_again() {
    let mut world = gated();
    policy(&mut world, json!({}));
    world.settle();
    answer(&mut world, ApprovalDecision::Denied);

    assert_eq!(
        [world.stands("gate"), world.stands("deploy")],
        ["Failed/ApprovalDenied", "Skipped/DependencyFailed"]
    );
    assert_eq!(world.phase(), RunPhase::Failed);
}

#[test]
fn a_gate_expires_as_its_policy_says() {
    let mut world = gated();
    policy(&mut world, json!({"expiresAfterSeconds": 30}));
    world.settle();
    assert_eq!(world.wake_at.map(jiff::Timestamp::as_second), Some(30));
    world.pass(30);
    world.settle();

    assert_eq!(world.stands("gate"), "Failed/ApprovalExpired");
}

#[test]
fn a_gate_without_its_policy_waits_for_the_grace() {
    let mut world = gated();
    assert_eq!(world.stands("gate"), "Running/MissingApprovalPolicy");
    world.pass(60);
    world.settle();
    assert_eq!(world.stands("gate"), "Failed/MissingApprovalPolicy");
}

#[test]
fn a_policy_that_is_replaced_may_be_away_for_the_grace_however_long_the_gate_has_waited() {
    let mut world = gated();
    policy(&mut world, json!({}));
    world.settle();
    world.pass(3600);
    let replaced = world.policies.remove("release").expect("a policy");
    world.settle();
    assert_eq!(world.stands("gate"), "Running/MissingApprovalPolicy");
    world.pass(59);
    world.policies.insert("release".to_owned(), replaced);
    world.settle();
    assert_eq!(world.stands("gate"), "Running/ApprovalPending");

    world.policies.clear();
    world.settle();
    world.pass(59);
    world.settle();
    assert_eq!(world.stands("gate"), "Running/MissingApprovalPolicy");
    world.pass(1);
    world.settle();
    assert_eq!(world.stands("gate"), "Failed/MissingApprovalPolicy");
}

#[test]
fn a_gate_shows_what_is_to_be_approved_and_an_approval_of_something_else_does_not_count() {
    let mut world = World::with(
        json!([
            agent("build", json!({})),
            {"name": "gate", "kind": "ApprovalGate", "policyRef": "release",
             "with": {"image": "{{ steps.build.outputs.image }}", "stage": "{{ parameters.stage }}"}},
        ]),
        json!({"parameters": {"stage": "prod"}}),
    );
    policy(&mut world, json!({"requiredApprovals": 2}));
    world.settle();
    world.end("run-build-1", RunPhase::Succeeded, json!({"image": "i:1"}));
    world.settle();
    let shown = |world: &World| world.step("gate").waits_for.clone().expect("it waits");
    assert_eq!(
        json!(shown(&world).with),
        json!({"image": "i:1", "stage": "prod"})
    );
    answer(&mut world, ApprovalDecision::Approved);
    let before = shown(&world);

    // Somebody changes what was reported.
    let status = world
        .run
        .as_mut()
        .and_then(|run| run.status.as_mut())
        .expect("a status");
    status.step_statuses[0].outputs = serde_json::from_value(json!({"image": "i:2"})).expect("outputs");
    policy(&mut world, json!({}));
    world.settle();
    assert_eq!(json!(shown(&world).with["image"]), "i:2");
    assert_ne!(shown(&world).digest, before.digest);
    assert_eq!(world.stands("gate"), "Running/ApprovalPending");
    answer(&mut world, ApprovalDecision::Approved);
    assert_eq!(world.stands("gate"), "Succeeded");
}

#[test]
fn nobody_is_asked_to_approve_what_cannot_be_shown() {
    let mut world = World::of(json!([
        {"name": "gate", "kind": "ApprovalGate", "policyRef": "release", "with": {"text": "x".repeat(20_000)}},
    ]));
    world.settle();
    assert_eq!(world.stands("gate"), "Failed/InvalidStep");
}

#[test]
fn what_a_gate_shows_depends_on_what_was_done_before() {
    let digest = |image: &str| {
        let mut world = World::of(json!([
            agent("build", json!({})),
            {"name": "gate", "kind": "ApprovalGate", "policyRef": "release"},
        ]));
        world.settle();
        world.end("run-build-1", RunPhase::Succeeded, json!({"image": image}));
        world.settle();
        world
            .step("gate")
            .waits_for
            .as_ref()
            .and_then(|waits| waits.digest.clone())
            .expect("a digest")
    };
    assert_eq!(digest("i:1"), digest("i:1"));
    assert_ne!(digest("i:1"), digest("i:2"));
}

fn signalled() -> World {
    let mut world = World::of(json!([
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}},
        agent("after", json!({"with": {"commit": "{{ steps.wait.outputs.commit }}"}})),
    ]));
    world.pass(10);
    world.settle();
    world
}

pub(super) fn delivery(name: &str, signal: &str, created: &str) -> SignalDelivery {
    serde_json::from_value(json!({
        "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery",
        "metadata": {"name": name, "namespace": "agents", "uid": name, "resourceVersion": "1", "creationTimestamp": created},
        "spec": {"signalRef": {"name": signal}, "payload": {"commit": "abc"}},
    }))
    .expect("a delivery")
}

#[test]
fn a_delivery_releases_the_step_that_waits_for_it_and_hands_on_what_it_carries() {
    let mut world = signalled();
    assert_eq!(world.stands("wait"), "Running/SignalPending");
    world.deliveries = vec![
        delivery("other", "closed", "1970-01-01T00:00:20Z"),
        delivery("one", "merged", "1970-01-01T00:00:20Z"),
    ];
    world.settle();

    assert_eq!(world.stands("wait"), "Succeeded");
    assert_eq!(world.child("run-after-1")["spec"]["parameters"]["commit"], "abc");
    let by = world.deliveries[1]
        .status
        .as_ref()
        .and_then(|status| status.consumed_by.clone())
        .expect("used");
    assert_eq!((by.run_uid.as_str(), by.step.as_str()), ("run-uid", "wait"));
    assert_eq!(world.log, ["consume one", "create run-after-1"]);
}

#[test]
fn a_delivery_from_before_the_run_does_not_count() {
    let mut world = signalled();
    world.run.as_mut().expect("a run").metadata.creation_timestamp =
        serde_json::from_value(json!("1970-01-01T00:00:10Z")).expect("a time");
    world.deliveries = vec![delivery("old", "merged", "1970-01-01T00:00:09Z")];
    world.settle();

    assert_eq!(world.stands("wait"), "Running/SignalPending");
}

#[test]
fn one_delivery_releases_the_step_that_has_waited_longest() {
    let mut first = signalled();
    let mut elder = first.run.clone().expect("a run");
    elder.metadata.name = Some("elder".to_owned());
    elder.metadata.uid = Some("elder".to_owned());
    let steps = &mut elder.status.as_mut().expect("a status").step_statuses;
    steps[0].progress.started_at = Some(jangar_api::values::Timestamp(jiff::Timestamp::UNIX_EPOCH));
    first.others = vec![elder];
    first.deliveries = vec![delivery("one", "merged", "1970-01-01T00:00:20Z")];
    first.settle();
    assert_eq!(first.stands("wait"), "Running/SignalPending");

    first
        .deliveries
        .push(delivery("two", "merged", "1970-01-01T00:00:21Z"));
    first.settle();
    assert_eq!(first.log.first().map(String::as_str), Some("consume two"));
}

#[test]
fn a_run_that_ends_or_goes_keeps_no_delivery_from_those_who_wait() {
    let leaving: [fn(&mut OrchestrationRun); 3] = [
        |run| run.status.as_mut().expect("a status").phase = Some(RunPhase::Cancelling),
        |run| run.status.as_mut().expect("a status").phase = Some(RunPhase::Failed),
        |run| {
            run.metadata.deletion_timestamp =
                serde_json::from_value(json!("1970-01-01T00:00:19Z")).expect("a time");
        },
    ];
    for leave in leaving {
        let mut world = signalled();
        let mut elder = world.run.clone().expect("a run");
        elder.metadata.uid = Some("elder".to_owned());
        let steps = &mut elder.status.as_mut().expect("a status").step_statuses;
        steps[0].progress.started_at = Some(jangar_api::values::Timestamp(jiff::Timestamp::UNIX_EPOCH));
        leave(&mut elder);
        world.others = vec![elder];
        world.deliveries = vec![delivery("one", "merged", "1970-01-01T00:00:20Z")];
        world.settle();
        assert_eq!(world.stands("wait"), "Succeeded");
    }
}

#[test]
fn a_wait_for_a_signal_ends_with_its_timeout() {
    let mut world = World::of(json!([
        {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}, "timeoutSeconds": 30},
    ]));
    world.settle();
    world.pass(30);
    world.settle();

    assert_eq!(world.stands("wait"), "Failed/StepTimedOut");
}

#[test]
fn a_checkpoint_is_reached_at_once_and_told() {
    let mut world = World::of(json!([{"name": "half", "kind": "Checkpoint"}, agent("a", json!({}))]));
    world.settle();

    assert_eq!(
        [world.stands("half"), world.stands("a")],
        ["Succeeded", "Running"]
    );
}
