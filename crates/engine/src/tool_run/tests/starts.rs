//! A run without a Job: what it waits for, and what is told.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use serde_json::json;

use super::World;
use crate::decision::{Refusal, Sight};

#[test]
fn a_run_starts_at_once_and_takes_no_slot() {
    let mut world = World::new();
    world.begun("lint-job");
    assert_eq!(world.deeds, ["create lint-job"]);
    assert!(world.questions.is_empty(), "{:?}", world.questions);
    let status = world.status();
    assert_eq!(status.phase, Some(RunPhase::Running));
    assert_eq!(status.run_id.as_deref(), Some("lint"));
    let runtime = status.runtime_ref.expect("the Job is recorded").0;
    assert_eq!(
        (&runtime["type"], &runtime["name"], &runtime["uid"]),
        (&json!("job"), &json!("lint-job"), &json!("job-1"))
    );
}

#[test]
fn a_missing_tool_is_waited_for_and_ends_the_run_when_the_grace_is_over() {
    let mut world = World::new();
    world.observed.tool = Sight::Unseen;
    world.settle();
    assert_eq!(world.questions.len(), 1, "that it is missing was read live");
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(
        (blocked.status, blocked.reason),
        (ConditionStatus::True, Reason::MissingTool)
    );
    assert_eq!(world.phase(), Some(RunPhase::Pending));
    world.observed.tool = Sight::Absent;
    world.wait(59).settle();
    assert_eq!(world.phase(), Some(RunPhase::Pending));
    world.wait(1).settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    assert_eq!(
        world.condition(&ConditionType::Failed).reason,
        Reason::MissingTool
    );
    assert!(world.deeds.is_empty());
}

#[test]
fn a_tool_that_is_mended_releases_the_run_that_waits_for_it() {
    let mut world = World::new().with_tool(&json!({"command": ["{{ open"]}));
    world.settle();
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.reason, Reason::InvalidTool);
    for mistake in ["spec.image", "spec.command[0]"] {
        assert!(blocked.message.contains(mistake), "{}", blocked.message);
    }
    world
        .tool(&json!({"image": "linter:1", "command": ["lint"]}))
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

/// Makes something forbidden.
type Forbid = fn(&mut World);

#[test]
fn what_the_operator_forbids_ends_the_run_at_once_with_its_own_reason() {
    let tool =
        json!({"image": "linter:1", "command": ["lint"], "secrets": ["root"], "serviceAccount": "admin"});
    let ways: [(&str, Reason, Forbid); 6] = [
        ("spec.image", Reason::ImageBlocked, |world| {
            world.settings.policy.images_denied = vec!["linter:*".to_owned()];
        }),
        ("spec.image", Reason::ImageNotAllowed, |world| {
            world.settings.policy.images_allowed = vec!["ghcr.io/*".to_owned()];
        }),
        ("spec.secrets[0]", Reason::SecretBlocked, |world| {
            world.settings.policy.blocked_secrets.insert("root".to_owned());
        }),
        ("spec.serviceAccount", Reason::ServiceAccountNotAllowed, |world| {
            world.settings.policy.service_accounts_allowed = vec!["builder".to_owned()];
        }),
        ("metadata.labels", Reason::MissingRequiredLabels, |world| {
            world.settings.policy.labels_required = vec!["team".to_owned()];
        }),
        (
            "spec.runtime.config.imagePullSecrets[0]",
            Reason::SecretBlocked,
            |world| {
                world.settings.policy.blocked_secrets.insert("pull".to_owned());
                let runtime = json!({"config": {"imagePullSecrets": ["pull"]}});
                world.edit(|run| run.spec.runtime = serde_json::from_value(runtime).expect("settings"));
            },
        ),
    ];
    for (field, reason, forbid) in ways {
        let mut world = World::new().with_tool(&tool);
        forbid(&mut world);
        world.settle();
        let failed = world.condition(&ConditionType::Failed);
        assert_eq!(failed.reason, reason);
        assert!(failed.message.contains(field), "{}", failed.message);
        assert_eq!(
            world.condition(&ConditionType::InvalidSpec).status,
            ConditionStatus::True
        );
        assert!(world.deeds.is_empty());
    }
}

#[test]
fn a_parameter_that_a_template_needs_and_nobody_set_is_told_by_its_path() {
    let mut world =
        World::new().with_tool(&json!({"image": "rm:1", "args": ["-rf", "{{ parameters.dir }}/"]}));
    world.settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::InvalidTemplate);
    assert!(
        failed.message.contains("parameters.dir") && failed.message.contains("args[1]"),
        "{}",
        failed.message
    );
}

#[test]
fn a_job_that_the_api_server_refuses_fails_the_run_with_its_words() {
    let mut world = World::new();
    world.observed.refusal = Some(Refusal {
        code: 422,
        message: "resources.limits: bad quantity".to_owned(),
    });
    world.settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::JobRejected);
    assert!(failed.message.contains("bad quantity"), "{}", failed.message);
}
