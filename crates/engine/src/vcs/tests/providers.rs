//! VersionControlProvider: what its conditions say.

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::{
    agents::version_control_provider::{VersionControlProvider, VersionControlProviderStatus},
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Forge, keys, object};
use crate::{
    decision::{Decision, KeyHolder, Keys, Plan, Question},
    settings::Settings,
    vcs::provider::{Observed, plan},
};

fn observed(provider: &Value, known: &BTreeMap<KeyHolder, Keys>) -> Observed {
    Observed {
        provider: Arc::new(object::<VersionControlProvider>(provider)),
        keys: known.clone(),
    }
}

fn planned(provider: &Value, known: &BTreeMap<KeyHolder, Keys>) -> Plan<VersionControlProviderStatus> {
    match plan(
        &observed(provider, known),
        &Settings::default(),
        Timestamp::UNIX_EPOCH,
    ) {
        Decision::Act(plan) => plan,
        Decision::Look(questions) => panic!("{questions:?}"),
    }
}

/// The condition that holds beside `Degraded`, with its message.
fn says(forge: &Forge, type_: &ConditionType) -> (Reason, String) {
    let status = planned(&forge.provider, &forge.keys)
        .status
        .expect("a first status");
    let found = status
        .common
        .condition(type_)
        .unwrap_or_else(|| panic!("{type_} is not set: {status:#?}"));
    assert_eq!(found.status, ConditionStatus::True, "{found:?}");
    (found.reason.clone(), found.message.clone())
}

#[expect(clippy::too_many_lines, reason = "a table of flaws")]
#[test]
fn every_flaw_is_named_with_its_field_and_its_remedy() {
    let github = Forge::github;
    let mut no_secret = github();
    no_secret
        .keys
        .insert(KeyHolder::Secret("forge-token".to_owned()), Keys::Absent);
    let mut no_key = github();
    no_key
        .keys
        .insert(KeyHolder::Secret("forge-token".to_owned()), keys(&["other"]));
    let ssh = |hosts: Keys| {
        let mut forge = github().provider(
            "/auth",
            json!({"ssh": {"privateKeySecretRef": {"name": "forge-key"}, "knownHostsConfigMapRef": {"name": "hosts"}}}),
        );
        forge.keys.insert(KeyHolder::ConfigMap("hosts".to_owned()), hosts);
        forge
    };
    let app = |app: Value| github().provider("/auth", json!({"method": "app", "app": app}));
    let invalid = ConditionType::InvalidSpec;
    let unreachable = ConditionType::Unreachable;
    for (forge, type_, reason, parts) in vec![
        (
            github().provider("/provider", json!("")),
            &invalid,
            Reason::MissingProvider,
            ["spec.provider is blank", "github"],
        ),
        (
            github().provider("/provider", json!("svn")),
            &invalid,
            Reason::UnsupportedProvider,
            ["svn", "github, gitlab"],
        ),
        (
            github().provider("/auth/method", json!("kerberos")),
            &invalid,
            Reason::UnsupportedAuth,
            ["kerberos", "token, app, ssh or none"],
        ),
        (
            github().provider("/auth/token/type", json!("api_token")),
            &invalid,
            Reason::UnsupportedAuth,
            ["api_token", "fine_grained"],
        ),
        (
            github().provider("/auth", json!({"method": "token"})),
            &invalid,
            Reason::MissingSecretRef,
            ["spec.auth.token.secretRef.name", "name the Secret"],
        ),
        (
            app(json!({"installationId": 2})),
            &invalid,
            Reason::MissingAppAuth,
            ["spec.auth.app.appId is not set", "GitHub shows"],
        ),
        (
            app(json!({"appId": 1, "installationId": "../2"})),
            &invalid,
            Reason::MissingAppAuth,
            ["installationId is \"../2\"", "GitHub shows"],
        ),
        (
            app(json!({"appId": 1, "installationId": 2})),
            &invalid,
            Reason::MissingAppAuth,
            ["privateKeySecretRef.name", "name the Secret"],
        ),
        (
            no_secret,
            &unreachable,
            Reason::SecretNotFound,
            ["Secret forge-token", "create it"],
        ),
        (
            no_key,
            &invalid,
            Reason::SecretKeyMissing,
            ["no key token", "add it"],
        ),
        (
            ssh(Keys::Absent),
            &unreachable,
            Reason::ConfigMapNotFound,
            ["ConfigMap hosts", "create it"],
        ),
        (
            ssh(keys(&["x"])),
            &invalid,
            Reason::ConfigMapKeyMissing,
            ["no key known_hosts", "add it"],
        ),
        (
            github().provider("/apiBaseUrl", json!("ftp://x")),
            &invalid,
            Reason::InvalidSpec,
            ["spec.apiBaseUrl is \"ftp://x\"", "https://"],
        ),
        (
            github().provider("/cloneBaseUrl", json!("https://me:hidden@git.example.com")),
            &invalid,
            Reason::InvalidSpec,
            ["spec.cloneBaseUrl has a user", "spec.auth"],
        ),
        (
            github().provider("/provider", json!("generic")),
            &invalid,
            Reason::InvalidSpec,
            ["spec.cloneBaseUrl is not set", "generic"],
        ),
        (
            github().provider("/defaults/pullRequest/bodyTemplate", json!("{{")),
            &invalid,
            Reason::InvalidTemplate,
            ["spec.defaults.pullRequest.bodyTemplate", "add }}"],
        ),
    ] {
        let (found, message) = says(&forge, type_);
        assert_eq!(found, reason, "{message}");
        for part in parts {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        assert!(!message.contains("hidden"), "a password is repeated: {message}");
    }
}

#[test]
fn a_provider_whose_secret_is_missing_is_looked_at_again_and_one_that_is_well_is_not() {
    let mut forge = Forge::github();
    assert_eq!(planned(&forge.provider, &forge.keys).wake_at, None);
    forge
        .keys
        .insert(KeyHolder::Secret("forge-token".to_owned()), Keys::Absent);
    assert!(planned(&forge.provider, &forge.keys).wake_at.is_some());
}

#[test]
fn secrets_are_asked_for_before_anything_is_said() {
    let forge = Forge::github();
    let asked = plan(
        &observed(&forge.provider, &BTreeMap::new()),
        &Settings::default(),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(
        asked,
        Decision::look(Question::Keys(KeyHolder::Secret("forge-token".to_owned())))
    );
}

#[test]
fn what_was_mended_is_ready_and_a_check_that_finds_the_same_writes_nothing() {
    let mut forge = Forge::github();
    let fine = forge.keys.clone();
    forge
        .keys
        .insert(KeyHolder::Secret("forge-token".to_owned()), Keys::Absent);
    forge.provider["status"] = json!(planned(&forge.provider, &forge.keys).status);

    let mended = planned(&forge.provider, &fine).status.expect("it changed");
    let condition = |type_| mended.common.condition(&type_).expect("set").clone();
    assert_eq!(
        condition(ConditionType::Unreachable).status,
        ConditionStatus::False
    );
    assert_eq!(condition(ConditionType::Ready).reason, Reason::AuthReady);
    assert!(mended.last_validated_at.is_some());

    forge.provider["status"] = json!(mended);
    let later = plan(
        &observed(&forge.provider, &fine),
        &Settings::default(),
        Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(1),
    );
    assert_eq!(later, Decision::Act(Plan::nothing()));
}

#[test]
fn a_deprecated_token_is_warned_about_and_works() {
    let forge = Forge::github().provider("/auth/token/type", json!("pat"));
    assert_eq!(says(&forge, &ConditionType::Ready).0, Reason::AuthReady);
    let (reason, message) = says(&forge, &ConditionType::Warning);
    assert_eq!(reason, Reason::DeprecatedAuth);
    assert!(message.contains("use another kind of token"), "{message}");

    let nothing = Forge::github().provider("/auth", json!({}));
    assert_eq!(says(&nothing, &ConditionType::Ready).0, Reason::NoAuth);
}

#[test]
fn the_method_follows_from_the_secret_that_is_given() {
    let forge = Forge::github().provider(
        "/auth",
        json!({"ssh": {"privateKeySecretRef": {"name": "forge-key"}}}),
    );
    assert_eq!(says(&forge, &ConditionType::Ready).0, Reason::AuthReady);
}
