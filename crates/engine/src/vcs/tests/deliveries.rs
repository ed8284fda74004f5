//! Whether the work arrived, as the condition `Delivered` says it.

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    condition::{Condition, ConditionType},
    reason::Reason,
};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::{Forge, object};
use crate::{
    decision::{ApiCredentials, Decision, DeliveryAnswer, DeliveryQuery, Found, Plan, Question, Sight},
    vcs::delivery::{Observed, is_due, plan},
};

const END: &str = "2026-03-01T10:00:00Z";

/// A run that ended, and says that it pushed.
fn pushed(forge: &Forge) -> AgentRun {
    let mut run = forge.run.clone();
    run["status"] = json!({
        "phase": "Succeeded", "finishedAt": END,
        "vcs": {"provider": "forge", "repository": "example/adder", "baseBranch": "main", "headBranch": "fix",
                "mode": "read-write", "commit": "f00", "commitsAhead": 1},
        "conditions": [{"type": "Delivered", "status": "Unknown", "reason": "Progressing", "message": "pushed"}],
    });
    object(&run)
}

fn observed(forge: &Forge) -> Observed {
    Observed {
        run: Arc::new(pushed(forge)),
        provider: forge.sight().expect("a provider"),
        answers: BTreeMap::new(),
    }
}

fn at(seconds: i64) -> Timestamp {
    END.parse::<Timestamp>().expect("a time") + seconds.seconds()
}

/// What is asked.
fn query(forge: &Forge) -> DeliveryQuery {
    match plan(&observed(forge), &forge.settings, at(1)) {
        Decision::Look(questions) => match questions.first() {
            Some(Question::Delivery(query)) => (**query).clone(),
            other => panic!("{other:?}"),
        },
        Decision::Act(plan) => panic!("{plan:#?}"),
    }
}

fn answered(forge: &Forge, answer: DeliveryAnswer, now: Timestamp) -> Plan<AgentRunStatus> {
    let mut observed = observed(forge);
    observed.answers.insert(query(forge), answer);
    match plan(&observed, &forge.settings, now) {
        Decision::Act(plan) => plan,
        Decision::Look(questions) => panic!("{questions:?}"),
    }
}

fn delivered(plan: &Plan<AgentRunStatus>) -> Condition {
    let status = plan.status.as_ref().expect("it changed");
    status
        .common
        .condition(&ConditionType::Delivered)
        .expect("set")
        .clone()
}

fn found(commit: Option<&str>, ahead: u32, pull_request: Option<u64>) -> DeliveryAnswer {
    DeliveryAnswer::Found(Found {
        commit: commit.map(str::to_owned),
        commits_ahead: Some(ahead),
        pull_request: pull_request.map(|number| (number, "https://forge.example/7".to_owned())),
        merged: None,
    })
}

/// The work was merged with this pull request; the branch has this last commit, or is gone.
fn merged(commit: Option<&str>, ahead: u32, number: u64) -> DeliveryAnswer {
    let DeliveryAnswer::Found(found) = found(commit, ahead, None) else {
        panic!("it was found");
    };
    DeliveryAnswer::Found(Found {
        merged: Some((number, "https://forge.example/7".to_owned())),
        ..found
    })
}

#[test]
fn the_forge_is_asked_with_the_name_of_the_secret_and_not_with_the_token() {
    assert_eq!(
        query(&Forge::github()),
        DeliveryQuery {
            forge: jangar_api::agents::version_control_provider::ForgeKind::Github,
            api: "https://api.github.com".to_owned(),
            repository: "example/adder".to_owned(),
            base: Some("main".to_owned()),
            head: "fix".to_owned(),
            commit: "f00".to_owned(),
            pull_request: None,
            credentials: ApiCredentials::Token {
                secret: "forge-token".to_owned(),
                key: "token".to_owned(),
            },
        }
    );
}

#[test]
fn every_end_of_a_delivery_has_its_reason_and_its_words() {
    let without = || Forge::github().provider("/defaults/pullRequest/enabled", json!(false));
    for (forge, answer, status, reason, parts) in [
        (
            Forge::github as fn() -> Forge,
            found(Some("c0ffee"), 2, Some(7)),
            "True",
            Reason::Delivered,
            ["c0ffee", "pull request 7"],
        ),
        (
            without,
            found(Some("c0ffee"), 2, None),
            "True",
            Reason::Delivered,
            ["fix of example/adder", "2 commits ahead of main"],
        ),
        (
            Forge::github as fn() -> Forge,
            found(Some("c0ffee"), 2, None),
            "False",
            Reason::PullRequestMissing,
            ["fix", "open one, or set"],
        ),
        (
            Forge::github as fn() -> Forge,
            found(Some("c0ffee"), 0, None),
            "False",
            Reason::NothingChanged,
            ["fix", "main"],
        ),
        (
            Forge::github as fn() -> Forge,
            merged(Some("c0ffee"), 0, 7),
            "True",
            Reason::Delivered,
            ["merged into main", "pull request 7"],
        ),
        (
            Forge::github as fn() -> Forge,
            merged(Some("c0ffee"), 2, 7),
            "True",
            Reason::Delivered,
            ["merged into main", "pull request 7"],
        ),
        (
            without,
            merged(None, 0, 7),
            "True",
            Reason::Delivered,
            ["merged into main", "fix of example/adder"],
        ),
        (
            Forge::github as fn() -> Forge,
            found(None, 0, None),
            "False",
            Reason::BranchMissing,
            ["no branch fix", "example/adder"],
        ),
    ] {
        let condition = delivered(&answered(&forge(), answer, at(1)));
        assert_eq!(
            (condition.status.as_str(), &condition.reason),
            (status, &reason),
            "{}",
            condition.message
        );
        for part in parts {
            assert!(
                condition.message.contains(part),
                "{part} is not in: {}",
                condition.message
            );
        }
    }
}

#[test]
fn what_the_forge_has_stands_in_the_place_of_what_was_reported() {
    let plan = answered(&Forge::github(), found(Some("c0ffee"), 2, Some(7)), at(1));
    let vcs = json!(plan.status.expect("it changed").vcs);
    assert_eq!(
        vcs,
        json!({
            "provider": "forge", "repository": "example/adder", "baseBranch": "main", "headBranch": "fix", "mode": "read-write",
            "commit": "c0ffee", "commitsAhead": 2, "pullRequest": {"number": 7, "url": "https://forge.example/7"},
        })
    );
}

#[test]
fn of_merged_work_the_report_stays_beside_the_pull_request() {
    let plan = answered(&Forge::github(), merged(None, 0, 7), at(1));
    let vcs = json!(plan.status.expect("it changed").vcs);
    assert_eq!((&vcs["commit"], &vcs["commitsAhead"]), (&json!("f00"), &json!(1)));
    assert_eq!(vcs["pullRequest"]["number"], 7);
}

#[test]
fn a_forge_that_cannot_answer_is_asked_again_for_some_time_and_one_that_will_not_is_not() {
    let failed = |passing| DeliveryAnswer::Failed {
        message: "GET /x: 503".to_owned(),
        passing,
        not_before: None,
    };
    let plan = answered(&Forge::github(), failed(true), at(1));
    assert_eq!(plan.wake_at, Some(at(31)));
    let condition = delivered(&plan);
    assert_eq!(
        (condition.status.as_str(), condition.reason),
        ("Unknown", Reason::DeliveryUnknown)
    );
    assert!(condition.message.contains("503"), "{}", condition.message);

    assert_eq!(
        answered(&Forge::github(), failed(true), at(3600)).wake_at,
        None,
        "it was asked for long enough"
    );
    assert_eq!(answered(&Forge::github(), failed(false), at(1)).wake_at, None);
}

#[test]
fn a_forge_without_an_api_is_not_asked_and_says_so_once() {
    let own = json!("https://git.example.com");
    let generic = Forge::github()
        .provider("/provider", json!("generic"))
        .provider("/cloneBaseUrl", own);
    let ssh = Forge::github().provider(
        "/auth",
        json!({"ssh": {"privateKeySecretRef": {"name": "forge-key"}}}),
    );
    for forge in [generic, ssh] {
        let mut observed = observed(&forge);
        let Decision::Act(first) = plan(&observed, &forge.settings, at(1)) else {
            panic!("there is nothing to ask");
        };
        assert!(delivered(&first).message.contains("cannot be asked"));
        let mut run: Value = json!(*observed.run);
        run["status"] = json!(first.status);
        observed.run = Arc::new(object(&run));
        assert_eq!(
            plan(&observed, &forge.settings, at(2)),
            Decision::Act(Plan::nothing())
        );
    }
    let mut gone = observed(&Forge::github());
    gone.provider = Sight::Absent;
    let Decision::Act(first) = plan(&gone, &Forge::github().settings, at(1)) else {
        panic!("there is nobody to ask");
    };
    assert!(
        delivered(&first)
            .message
            .contains("VersionControlProvider forge is not there")
    );
}

#[test]
fn only_work_that_is_promised_and_not_found_is_asked_for() {
    let run = pushed(&Forge::github());
    assert_eq!(is_due(&run), Some("forge"));
    let but = |pointer: &str, value: Value| {
        let mut run = json!(run);
        *run.pointer_mut(pointer).expect(pointer) = value;
        object::<AgentRun>(&run)
    };
    for other in [
        but("/status/phase", json!("Running")),
        but("/status/vcs/mode", json!("read-only")),
        but("/status/vcs/commit", json!(null)),
        but("/status/vcs", json!(null)),
        but("/status/conditions/0/status", json!("True")),
        but("/status/conditions", json!([])),
    ] {
        assert_eq!(is_due(&other), None, "{:?}", other.status);
    }
}

#[test]
fn a_forge_that_says_when_it_will_answer_is_asked_then_and_for_longer() {
    let limited = |until| DeliveryAnswer::Failed {
        message: "GET /x: 403, too many requests".to_owned(),
        passing: true,
        not_before: Some(at(until)),
    };
    for (until, again) in [(5, Some(31)), (2_400, Some(2_400)), (8_000, None)] {
        let plan = answered(&Forge::github(), limited(until), at(1));
        assert_eq!(plan.wake_at, again.map(at), "{until}");
    }
}

#[test]
fn a_forge_that_did_not_answer_is_left_alone_for_a_while() {
    let forge = Forge::github();
    let failed = DeliveryAnswer::Failed {
        message: "GET /x: 503".to_owned(),
        passing: true,
        not_before: None,
    };
    let first = answered(&forge, failed, at(1));
    let mut observed = observed(&forge);
    let mut run: Value = json!(*observed.run);
    run["status"] = json!(first.status);
    observed.run = Arc::new(object(&run));

    let rests = Plan {
        wake_at: Some(at(31)),
        ..Plan::nothing()
    };
    assert_eq!(plan(&observed, &forge.settings, at(2)), Decision::Act(rests));
    assert!(matches!(
        plan(&observed, &forge.settings, at(31)),
        Decision::Look(_)
    ));
}
