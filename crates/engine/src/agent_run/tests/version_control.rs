//! A run with a repository: what its status says, and how long it waits for what is not there.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use serde_json::{Value, json};

use super::World;
use crate::{
    decision::{KeyHolder, Keys, Sight},
    vcs::tests::{Forge, keys},
};

/// A run that works on a repository, with the provider and the Secret in place.
fn world(policy: &Value) -> World {
    let mut world = World::new();
    let forge = Forge::github();
    world.observed.references.vcs = forge.sight();
    world.key_holders.extend(forge.keys);
    let policy = policy.clone();
    world.edit(|run| {
        run.spec.vcs_ref = Some(jangar_api::refs::LocalRef {
            name: "forge".to_owned(),
        });
        run.spec.vcs_policy = serde_json::from_value(policy).expect("a policy");
        run.spec
            .parameters
            .insert("repository".to_owned(), "example/adder".to_owned());
    });
    world
}

#[test]
fn the_status_shows_the_repository_and_the_branches_of_the_run_until_its_end() {
    let mut world = world(&json!({}));
    world.settle();
    let expected = json!({
        "provider": "forge", "repository": "example/adder", "baseBranch": "main", "headBranch": "agents/mend",
        "mode": "read-write",
    });
    assert_eq!(json!(world.status().vcs), expected);

    world.pod_ended("mend-job", 0, &json!({"version": 1})).settle();
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    assert_eq!(json!(world.status().vcs), expected);
    assert!(
        world
            .status()
            .common
            .condition(&ConditionType::VcsSkipped)
            .is_none()
    );
}

#[test]
fn what_agent_runner_says_of_the_work_stands_in_the_status_at_the_end_of_the_run() {
    let pushed = json!({"state": "Pushed", "branch": "agents/mend", "commit": "c0ffee", "commitsAhead": 2,
                        "pullRequest": {"number": 7, "url": "https://forge.example/7"}});
    for (exit, words, status, reason, parts) in [
        (
            0,
            json!({"vcs": pushed}),
            "Unknown",
            Reason::DeliveryUnknown,
            "pushed 2 commits to agents/mend",
        ),
        (
            0,
            json!({"vcs": {"state": "NothingChanged", "commitsAhead": 0}}),
            "False",
            Reason::NothingChanged,
            "without a commit",
        ),
        (
            125,
            json!({"reason": "PushRejected", "message": "a hook declined", "vcs": {"state": "PushRejected", "commitsAhead": 1}}),
            "False",
            Reason::PushRejected,
            "a hook declined",
        ),
    ] {
        let mut world = world(&json!({}));
        world.settle().pod_ended("mend-job", exit, &words).settle();
        let delivered = world.condition(&ConditionType::Delivered);
        assert_eq!((delivered.status.as_str(), &delivered.reason), (status, &reason));
        assert!(delivered.message.contains(parts), "{}", delivered.message);
        let vcs = world.status().vcs.expect("a repository");
        assert_eq!(vcs.head_branch.as_deref(), Some("agents/mend"));
        assert_eq!(
            vcs.commits_ahead
                .map(|ahead| u32::try_from(ahead.get()).expect("a count")),
            words["vcs"]["commitsAhead"]
                .as_u64()
                .map(|ahead| u32::try_from(ahead).expect("a count"))
        );
    }
}

#[test]
fn a_run_without_a_repository_says_nothing_about_a_delivery() {
    let mut world = World::new();
    world
        .settle()
        .pod_ended(
            "mend-job",
            0,
            &json!({"vcs": {"state": "Pushed", "commitsAhead": 1}}),
        )
        .settle();
    assert!(
        world
            .status()
            .common
            .condition(&ConditionType::Delivered)
            .is_none()
    );
    assert_eq!(world.status().vcs, None);
}

#[test]
fn a_run_that_needs_no_repository_goes_on_without_and_says_why() {
    let mut world = world(&json!({"mode": "none"}));
    world.settle();
    let skipped = world.condition(&ConditionType::VcsSkipped);
    assert_eq!(
        (skipped.status, skipped.reason),
        (ConditionStatus::True, Reason::VcsDisabled)
    );
    assert_eq!(world.status().vcs, None);
    assert_eq!(world.deeds(), ["create mend-job"]);
}

#[test]
fn a_run_without_version_control_asks_and_says_nothing_about_it() {
    let mut world = World::new();
    world.settle();
    assert!(world.questions.is_empty(), "{:?}", world.questions);
    assert!(
        world
            .status()
            .common
            .condition(&ConditionType::VcsSkipped)
            .is_none()
    );
}

#[test]
fn a_run_that_insists_waits_for_its_provider_and_then_fails() {
    let mut world = world(&json!({"required": true}));
    world.observed.references.vcs = Some(Sight::Absent);
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::MissingVcsProvider
    );
    world.now = world.wake_at.expect("the wait has an end");
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    assert_eq!(
        world.condition(&ConditionType::InvalidSpec).reason,
        Reason::MissingVcsProvider
    );
}

#[test]
fn a_run_that_does_not_insist_waits_as_long_and_then_goes_on_without() {
    let mut world = world(&json!({}));
    world.observed.references.vcs = Some(Sight::Absent);
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::MissingVcsProvider
    );
    assert_eq!(world.deeds(), [] as [&str; 0]);
    world.now = world.wake_at.expect("the wait has an end");
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert_eq!(
        world.condition(&ConditionType::VcsSkipped).reason,
        Reason::MissingVcsProvider
    );
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn a_provider_that_comes_in_time_is_used() {
    let mut world = world(&json!({}));
    let provider = world.observed.references.vcs.replace(Sight::Absent);
    world.settle().wait(5);
    world.observed.references.vcs = provider;
    world.settle();
    assert!(world.status().vcs.is_some());
    assert!(
        world
            .status()
            .common
            .condition(&ConditionType::VcsSkipped)
            .is_none()
    );
}

#[test]
fn a_secret_that_comes_in_time_is_found_although_no_event_tells_of_it() {
    let mut world = world(&json!({"required": true}));
    let token = KeyHolder::Secret("forge-token".to_owned());
    world.key_holders.insert(token.clone(), Keys::Absent);
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::VcsAuthUnavailable
    );
    world.key_holders.insert(token, keys(&["token"]));
    world.now = world.wake_at.expect("it is looked for again");
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
}

#[test]
fn what_is_wrong_with_the_rest_of_the_run_is_said_before_its_repository() {
    let mut world = world(&json!({"required": true}));
    world.observed.references.vcs = Some(Sight::Absent);
    world.edit(|run| run.spec.secrets = vec!["keys".to_owned()]);
    world.settings.policy.blocked_secrets.insert("keys".to_owned());
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Failed).reason,
        Reason::SecretBlocked
    );
}

#[test]
fn a_later_attempt_works_on_the_branch_of_the_first() {
    let mut world = world(&json!({}));
    let forge = Forge::github().provider("/defaults/branchConflictSuffixTemplate", json!("two"));
    world.observed.references.vcs = forge.sight();
    world.observed.branch_rival = Some("other".to_owned());
    world.edit(|run| {
        run.spec.runtime =
            serde_json::from_value(json!({"type": "job", "config": {"backoffLimit": 1}})).expect("a runtime");
    });
    world.settle();
    let first = world.status().vcs.and_then(|vcs| vcs.head_branch);
    assert_eq!(first.as_deref(), Some("agents/mend-two"));

    world.observed.branch_rival = None;
    world.pod_ended("mend-job", 1, &json!({"version": 1})).settle();
    world.wait(3600).settle();
    assert!(
        world.deeds().contains(&"create mend-job-attempt-2".to_owned()),
        "{:?}",
        world.deeds()
    );
    assert_eq!(world.status().vcs.and_then(|vcs| vcs.head_branch), first);
}

#[test]
fn a_deprecated_token_is_a_warning_on_the_run() {
    let mut world = world(&json!({}));
    world.observed.references.vcs = Forge::github().provider("/auth/token/type", json!("pat")).sight();
    world.settle();
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(warning.reason, Reason::DeprecatedAuth);
    assert!(
        warning.message.contains("VersionControlProvider forge"),
        "{}",
        warning.message
    );
}
