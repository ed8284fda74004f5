//! A run with a repository: what its status says, and how long it waits for what is not there.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::World;
use crate::{
    decision::{KeyHolder, Keys, Sight},
    queue::{Answer, Scope},
    vcs::{
        WantedBranch,
        tests::{Forge, keys},
    },
    waiting::{Full, Gate, Waiting},
};

/// The provider is there as this forge has it.
fn know(world: &mut World, forge: &Forge) {
    let sight = forge.sight().expect("a provider");
    world.observed.references.vcs.insert("forge".to_owned(), sight);
}

/// There is no provider.
fn forget(world: &mut World) {
    world
        .observed
        .references
        .vcs
        .insert("forge".to_owned(), Sight::Absent);
}

/// A run that works on a repository, with the provider and the Secret in place.
fn world(policy: &Value) -> World {
    let mut world = World::new();
    let forge = Forge::github();
    know(&mut world, &forge);
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
    world.begun("mend-job");
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
fn provider_that_cannot_be_read_ends_the_wait_when_it_is_mended() {
    let mut world = world(&json!({"required": true}));
    let words = "spec.provider: wrong type".to_owned();
    world
        .observed
        .references
        .vcs
        .insert("forge".to_owned(), Sight::Illegible(words));
    world.settle();
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(
        (&blocked.status, &blocked.reason),
        (&ConditionStatus::True, &Reason::UnreadableReference)
    );
    assert!(
        blocked.message.contains("VersionControlProvider forge")
            && blocked.message.contains("mend it before "),
        "{}",
        blocked.message
    );

    know(&mut world, &Forge::github());
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
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
            Reason::Progressing,
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
    world.begun("mend-job");
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
    forget(&mut world);
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
    forget(&mut world);
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
    forget(&mut world);
    world.settle().wait(5);
    know(&mut world, &Forge::github());
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
    forget(&mut world);
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
    know(&mut world, &forge);
    let branch = WantedBranch::new("example/adder", "agents/mend");
    world.observed.branch_rivals.insert(branch, "other".to_owned());
    world.edit(|run| {
        run.spec.runtime =
            serde_json::from_value(json!({"type": "job", "config": {"backoffLimit": 1}})).expect("a runtime");
    });
    world.begun("mend-job");
    let first = world.status().vcs.and_then(|vcs| vcs.head_branch);
    assert_eq!(first.as_deref(), Some("agents/mend-two"));

    world.observed.branch_rivals.clear();
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
    know(
        &mut world,
        &Forge::github().provider("/auth/token/type", json!("pat")),
    );
    world.begun("mend-job");
    let warning = world.condition(&ConditionType::Warning);
    assert_eq!(warning.reason, Reason::DeprecatedAuth);
    assert!(
        warning.message.contains("VersionControlProvider forge"),
        "{}",
        warning.message
    );
}

const HELD: &str = "hold by [\"agents.proompteng.ai/runtime-cleanup\"]";
const LET_GO: &str = "hold by []";

/// A run whose provider is a GitHub App.
pub(super) fn with_app(policy: &Value) -> World {
    let mut world = world(policy);
    let app = json!({"appId": 17, "installationId": 42, "privateKeySecretRef": {"name": "app-key"}});
    let forge = Forge::github().provider("/auth", json!({"method": "app", "app": app}));
    know(&mut world, &forge);
    world
        .key_holders
        .insert(KeyHolder::Secret("app-key".to_owned()), keys(&["privateKey"]));
    world
}

#[test]
fn a_token_is_made_before_the_job_renewed_in_time_and_taken_back_with_it() {
    let mut world = with_app(&json!({"required": true}));
    world.settle();
    assert_eq!(world.statuses, 0, "the first token is told of with the Job");
    world.begun("mend-job");
    assert_eq!(
        world.deeds(),
        [HELD, "mint mend-vcs-token for example/adder", "create mend-job"]
    );
    let job = serde_json::to_string(world.observed.jobs["mend-job"].as_ref()).expect("JSON");
    assert!(
        job.contains("mend-vcs-token") && !job.contains("app-key"),
        "{job}"
    );
    let expires = |world: &World| {
        world
            .status()
            .vcs
            .and_then(|vcs| vcs.token_expires_at)
            .expect("a token")
            .0
    };
    let first = expires(&world);

    world.pod("mend-job", &json!({"phase": "Running"})).settle();
    let wake = world.wake_at.expect("the token ends");
    assert!(wake < first, "it is renewed before that");
    world.now = wake;
    world.settle();
    assert_eq!(
        world.deeds().last().map(String::as_str),
        Some("mint mend-vcs-token for example/adder")
    );
    assert!(expires(&world) > first);
    let renewed = world.deeds().len();
    world.settle();
    assert_eq!(world.deeds().len(), renewed, "once is enough");

    world.pod_ended("mend-job", 0, &json!({"version": 1})).settle();
    let deeds = world.deeds();
    assert_eq!(
        deeds[renewed..],
        [
            "revoke mend-vcs-token",
            "release mend-job for 600 s",
            "revoke mend-vcs-token",
            LET_GO
        ]
    );
}

#[test]
fn a_forge_that_gives_no_token_holds_up_the_run_and_then_fails_it_or_is_done_without() {
    for (policy, phase) in [
        (json!({"required": true}), RunPhase::Failed),
        (json!({}), RunPhase::Running),
    ] {
        let mut world = with_app(&policy);
        world.token_lasts = None;
        world.settle();
        let blocked = world.condition(&ConditionType::Blocked);
        assert_eq!(blocked.reason, Reason::VcsAuthUnavailable);
        assert!(
            blocked.message.contains("the forge said no"),
            "{}",
            blocked.message
        );
        assert!(world.wake_at.is_some(), "it is tried again");
        world.wait(60).settle();
        assert_eq!(world.phase(), Some(phase));
    }
}

#[test]
fn each_attempt_has_a_token_of_its_own() {
    let mut world = with_app(&json!({}));
    world.edit(|run| {
        run.spec.runtime =
            serde_json::from_value(json!({"type": "job", "config": {"backoffLimit": 1}})).expect("a runtime");
    });
    world
        .settle()
        .pod_ended("mend-job", 1, &json!({"version": 1}))
        .settle();
    world.wait(3600).settle();
    let deeds = world.deeds();
    for deed in [
        "revoke mend-vcs-token",
        "mint mend-vcs-token-attempt-2 for example/adder",
        "create mend-job-attempt-2",
    ] {
        assert!(deeds.contains(&deed.to_owned()), "{deed} is not in {deeds:?}");
    }
}

/// The queue has no room.
fn full() -> Answer {
    Answer::Waiting(Box::new(Waiting::at(Gate::Concurrency(Full {
        scope: Scope::Cluster,
        in_use: 5,
        limit: 5,
    }))))
}

#[test]
fn a_run_that_waits_for_its_turn_does_not_wait_for_its_token_again() {
    for app in [false, true] {
        let mut world = if app {
            with_app(&json!({}))
        } else {
            world(&json!({}))
        };
        world.token_lasts = None;
        if !app {
            let token = KeyHolder::Secret("forge-token".to_owned());
            world.key_holders.insert(token, Keys::Absent);
        }
        world.settle();
        assert_eq!(
            world.condition(&ConditionType::Blocked).reason,
            Reason::VcsAuthUnavailable
        );
        world.answers.push_back(full());
        world.wait(60).settle();
        assert_eq!(
            world.condition(&ConditionType::Blocked).reason,
            Reason::ConcurrencyLimit
        );
        assert_eq!(
            world.condition(&ConditionType::VcsSkipped).reason,
            Reason::VcsAuthUnavailable
        );
        world.wait(5).settle();
        assert_eq!(world.phase(), Some(RunPhase::Running), "app: {app}");
        assert_eq!(
            world.condition(&ConditionType::VcsSkipped).reason,
            Reason::VcsAuthUnavailable
        );
    }
}

#[test]
fn no_token_is_made_for_a_run_that_waits_for_its_turn() {
    let mut world = with_app(&json!({}));
    world.answers.push_back(full());
    world.settle();
    assert_eq!(world.deeds(), [] as [&str; 0]);
    world.settle();
    assert_eq!(
        world.deeds(),
        [HELD, "mint mend-vcs-token for example/adder", "create mend-job"]
    );
}

#[test]
fn a_run_that_is_deleted_while_it_works_goes_when_its_token_is_taken_back() {
    let mut world = with_app(&json!({}));
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    let before = world.deeds().len();
    let now = world.now;
    world.edit(|run| run.metadata.deletion_timestamp = Some(Time(now)));
    world.settle();
    assert_eq!(world.deeds()[before..], ["stop mend-job"]);
    assert!(world.observed.run.is_some(), "its pod is there");

    world.pods_vanish().settle();
    assert_eq!(
        world.deeds()[before + 1..],
        [
            "revoke mend-vcs-token",
            "release mend-job",
            "revoke mend-vcs-token",
            LET_GO
        ]
    );
    assert!(world.observed.run.is_none());
}

#[test]
fn a_token_that_never_got_a_job_is_taken_back() {
    for deleted in [false, true] {
        let mut world = with_app(&json!({}));
        while world.deeds().len() < 2 {
            assert!(!world.round(), "there is more to do");
        }
        assert_eq!(world.deeds(), [HELD, "mint mend-vcs-token for example/adder"]);
        let now = world.now;
        world.edit(|run| {
            if deleted {
                run.metadata.deletion_timestamp = Some(Time(now));
            } else {
                run.spec.stop.cancel = true;
            }
        });
        world.settle();
        assert_eq!(
            world.deeds()[2..],
            ["revoke mend-vcs-token", LET_GO],
            "deleted: {deleted}"
        );
    }
}

#[test]
fn the_job_takes_the_slot_of_the_repository_that_it_works_on() {
    let mut world = world(&json!({}));
    world.edit(|run| {
        run.spec
            .parameters
            .insert("repository".to_owned(), "Example/Adder".to_owned());
    });
    world.settle();
    let job = &world.observed.jobs["mend-job"];
    let annotations = job.metadata.annotations.as_ref().expect("annotations");
    assert_eq!(annotations[jangar_api::labels::REPOSITORY], "example/adder");
}

#[test]
fn a_run_of_an_endpoint_says_that_it_has_no_version_control() {
    let of = |policy: &Value| {
        let mut world = world(policy);
        world.settings.custom.callback_url = Some("https://jangar.example.com".to_owned());
        world.edit(|run| {
            let config = json!({"endpoint": "https://agents.example.com/run"});
            run.spec.runtime =
                serde_json::from_value(json!({"type": "custom", "config": config})).expect("a runtime");
        });
        world.settle();
        world
    };
    let world = of(&json!({}));
    let skipped = world.condition(&ConditionType::VcsSkipped);
    assert_eq!(skipped.reason, Reason::VcsUnavailable);
    assert_eq!(world.status().vcs, None);
    let world = of(&json!({"required": true}));
    assert_eq!(
        world.condition(&ConditionType::InvalidSpec).reason,
        Reason::VcsUnavailable
    );
}
