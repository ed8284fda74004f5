//! Who may decide, and what decisions come to.

use serde_json::{Value, json};

use super::*;

#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
fn policy(spec: Value, status: Value) -> ApprovalPolicy {
    serde_json::from_value(json!({
        "apiVersion": "approvals.proompteng.ai/v1alpha1", "kind": "ApprovalPolicy",
        "metadata": {"name": "release", "namespace": "agents"}, "spec": spec, "status": status,
    }))
    .expect("a policy")
}

fn run() -> OrchestrationRun {
    serde_json::from_value(json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
        "metadata": {"name": "r", "namespace": "agents", "annotations": {CREATED_BY: "ada"}},
        "spec": {"orchestrationRef": {"name": "o"}},
        "status": {"phase": "Running", "stepStatuses": [
            {"name": "gate", "kind": "ApprovalGate", "phase": "Running",
             "waitsFor": {"approvalPolicy": "release", "digest": "d1"}},
            {"name": "build", "kind": "AgentRun", "phase": "Running"},
        ]},
    }))
    .expect("a run")
}

fn caller(user: &str, groups: &[&str]) -> Caller {
    Caller {
        user: user.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    }
}

fn request(step: &str, digest: &str, decision: ApprovalDecision) -> Request {
    Request {
        step: step.to_owned(),
        decision,
        comment: Some("fine".to_owned()),
        digest: digest.to_owned(),
    }
}

fn at(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).expect("a time")
}

fn gate(approvals: &[Approval]) -> Gate<'_> {
    Gate {
        step: "gate",
        digest: "d1",
        since: at(0),
        creator: Some("ada"),
        approvals,
    }
}

fn decided(policy: &ApprovalPolicy, callers: &[(&str, &[&str], ApprovalDecision)]) -> Vec<Approval> {
    let mut run = run();
    for (user, groups, decision) in callers {
        let request = request("gate", "d1", decision.clone());
        run.status = Some(decide(&run, policy, &caller(user, groups), request, at(1)).expect("a decision"));
    }
    run.status.expect("a status").approvals
}

#[test]
fn those_who_are_named_decide_and_nobody_else() {
    let policy = policy(
        json!({"subjects": [
            {"kind": "User", "name": "bob"}, {"kind": "Group", "name": "leads"},
            {"kind": "ServiceAccount", "name": "bot"},
        ]}),
        json!(null),
    );
    for (user, groups, may) in [
        ("bob", &[][..], true),
        ("eve", &["leads"], true),
        ("system:serviceaccount:agents:bot", &[], true),
        ("system:serviceaccount:other:bot", &[], false),
        ("leads", &["people"], false),
    ] {
        let request = request("gate", "d1", ApprovalDecision::Approved);
        let decided = decide(&run(), &policy, &caller(user, groups), request, at(1));
        assert_eq!(decided.is_ok(), may, "{user}");
    }
}

#[test]
fn a_decision_about_something_else_than_was_shown_is_refused() {
    let policy = policy(json!({}), json!(null));
    let ask = |step: &str, digest: &str| {
        let request = request(step, digest, ApprovalDecision::Approved);
        decide(&run(), &policy, &caller("bob", &[]), request, at(1)).err()
    };
    assert_eq!(ask("gate", "d0"), Some(Refused::Outdated));
    assert_eq!(ask("build", "d1"), Some(Refused::NotPending("build".to_owned())));
    assert_eq!(ask("none", "d1"), Some(Refused::NotPending("none".to_owned())));
}

#[test]
fn the_creator_may_not_approve_unless_the_policy_says_so() {
    let ask = |spec: Value| {
        let request = request("gate", "d1", ApprovalDecision::Approved);
        decide(
            &run(),
            &policy(spec, json!(null)),
            &caller("ada", &[]),
            request,
            at(1),
        )
        .is_ok()
    };
    assert!(!ask(json!({})));
    assert!(ask(json!({"allowCreator": true})));
}

#[test]
fn where_nobody_knows_the_creator_a_policy_that_bars_them_bars_everybody() {
    let mut unknown = run();
    unknown.metadata.annotations = None;
    for (spec, refused) in [
        (json!({}), None),
        (json!({"allowCreator": true}), None),
        (
            json!({"allowCreator": false}),
            Some(Refused::CreatorUnknown("release".to_owned())),
        ),
    ] {
        let policy = policy(spec, json!(null));
        let ask = |decision: ApprovalDecision| {
            let request = request("gate", "d1", decision);
            decide(&unknown, &policy, &caller("bob", &[]), request, at(1)).err()
        };
        assert_eq!(ask(ApprovalDecision::Approved), refused);
        assert_eq!(ask(ApprovalDecision::Denied), None, "anybody may say no");
    }
}

#[test]
fn as_many_different_people_have_to_approve_as_the_policy_says() {
    let policy = policy(json!({"requiredApprovals": 2}), json!(null));
    let pending = Verdict::Pending { until: None };
    let once = decided(
        &policy,
        &[
            ("bob", &[], ApprovalDecision::Approved),
            ("bob", &[], ApprovalDecision::Approved),
        ],
    );
    assert_eq!(verdict(&policy, &gate(&once), at(2)), pending);
    let twice = decided(
        &policy,
        &[
            ("bob", &[], ApprovalDecision::Approved),
            ("eve", &[], ApprovalDecision::Approved),
        ],
    );
    assert!(matches!(verdict(&policy, &gate(&twice), at(2)), Verdict::Approved(by) if by == ["bob", "eve"]));
}

#[test]
fn one_who_denies_outweighs_those_who_approve() {
    let policy = policy(json!({}), json!(null));
    let both = decided(
        &policy,
        &[
            ("bob", &[], ApprovalDecision::Approved),
            ("eve", &[], ApprovalDecision::Denied),
        ],
    );
    assert!(
        matches!(verdict(&policy, &gate(&both), at(2)), Verdict::Denied(why) if why.reason == Reason::ApprovalDenied)
    );
}

#[test]
fn an_approval_of_what_has_changed_since_does_not_count() {
    let policy = policy(json!({}), json!(null));
    let approvals = decided(&policy, &[("bob", &[], ApprovalDecision::Approved)]);
    let changed = Gate {
        digest: "d2",
        ..gate(&approvals)
    };
    assert_eq!(
        verdict(&policy, &changed, at(2)),
        Verdict::Pending { until: None }
    );
}

#[test]
fn a_gate_that_nobody_decides_expires_as_the_policy_says() {
    let spec = |default: &str| json!({"expiresAfterSeconds": 60, "defaultDecision": default});
    let denies = policy(spec("deny"), json!(null));
    assert_eq!(
        verdict(&denies, &gate(&[]), at(59)),
        Verdict::Pending { until: Some(at(60)) }
    );
    assert!(
        matches!(verdict(&denies, &gate(&[]), at(60)), Verdict::Denied(why) if why.reason == Reason::ApprovalExpired)
    );
    let approves = policy(spec("approve"), json!(null));
    assert_eq!(
        verdict(&approves, &gate(&[]), at(60)),
        Verdict::Approved(Vec::new())
    );
}

#[test]
fn a_decision_that_comes_after_the_gate_has_expired_is_refused_and_does_not_count() {
    let plain = policy(json!({}), json!(null));
    let spec = |default: &str| json!({"expiresAfterSeconds": 60, "defaultDecision": default});
    for (default, late, passes) in [
        ("deny", ApprovalDecision::Approved, false),
        ("approve", ApprovalDecision::Denied, true),
    ] {
        let expiring = policy(spec(default), json!(null));
        let mut run = run();
        let steps = &mut run.status.as_mut().expect("a status").step_statuses;
        steps[0].progress.started_at = Some(Timestamp(at(0)));
        let ask = |policy: &ApprovalPolicy, second: i64| {
            let request = request("gate", "d1", late.clone());
            decide(&run, policy, &caller("bob", &[]), request, at(second))
        };
        let told = ask(&expiring, 60).expect_err("it is too late").to_string();
        assert!(told.contains("was up at 1970-01-01T00:01:00Z"), "{told}");
        // The policy did not say so when they were asked.
        let written = ask(&plain, 60).expect("a decision").approvals;
        let by_then = verdict(&expiring, &gate(&written), at(500));
        assert_eq!(matches!(by_then, Verdict::Approved(_)), passes, "{by_then:?}");

        let in_time = ask(&expiring, 59).expect("a decision").approvals;
        let by_then = verdict(&expiring, &gate(&in_time), at(500));
        assert_eq!(matches!(by_then, Verdict::Approved(_)), !passes, "{by_then:?}");
    }
}

#[test]
fn the_phase_of_the_policy_decides_only_in_that_mode() {
    let status = json!({"phase": "Approved"});
    let plain = policy(json!({}), status.clone());
    assert_eq!(
        verdict(&plain, &gate(&[]), at(1)),
        Verdict::Pending { until: None }
    );
    let by_phase = policy(json!({"mode": "phase"}), status);
    assert_eq!(
        verdict(&by_phase, &gate(&[]), at(1)),
        Verdict::Approved(Vec::new())
    );
    let denied = policy(json!({"mode": "phase"}), json!({"phase": "Denied"}));
    assert!(matches!(verdict(&denied, &gate(&[]), at(1)), Verdict::Denied(_)));
    // Nobody writes a phase: the gate ends all the same.
    let open = policy(json!({"mode": "phase", "expiresAfterSeconds": 60}), json!(null));
    assert_eq!(
        verdict(&open, &gate(&[]), at(59)),
        Verdict::Pending { until: Some(at(60)) }
    );
    assert!(matches!(verdict(&open, &gate(&[]), at(60)), Verdict::Denied(_)));
}
