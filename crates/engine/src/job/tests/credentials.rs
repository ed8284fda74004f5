//! Credentials that every agent gets from the settings.

use jangar_api::reason::Reason;
use serde_json::{Value, json};

use super::{World, as_json};
use crate::settings::{AuthSecret, NatsAuth};

fn with_auth() -> World {
    World::minimal().with_settings(|settings| {
        settings.runner.auth_secret = Some(AuthSecret {
            name: "codex-auth".to_owned(),
            key: "auth.json".to_owned(),
            mount_path: "/root/.codex".to_owned(),
        });
    })
}

fn with_nats() -> World {
    World::minimal().with_settings(|settings| {
        settings.runner.nats_auth = Some(NatsAuth {
            secret: "nats".to_owned(),
            username_key: "username".to_owned(),
            password_key: "password".to_owned(),
        });
    })
}

/// The variables of the container, by name and in their order.
fn variables(world: &World) -> Vec<(String, Value)> {
    let env = world.container().env.expect("variables");
    env.iter()
        .map(|variable| (variable.name.clone(), as_json(variable)))
        .collect()
}

fn value_of(world: &World, name: &str) -> Option<Value> {
    let variables = variables(world).into_iter();
    variables
        .filter(|(known, _)| known == name)
        .map(|(_, value)| value)
        .next_back()
}

#[test]
fn the_credentials_file_is_mounted_into_a_directory_that_can_be_written_to() {
    let world = with_auth();
    let pod = as_json(&world.pod());
    let volumes = pod["volumes"].as_array().expect("volumes");
    assert!(volumes.contains(&json!({"name": "fix-1-auth-home", "emptyDir": {}})));
    assert!(volumes.contains(&json!({
        "name": "fix-1-auth-secret",
        "secret": {"secretName": "codex-auth", "items": [{"key": "auth.json", "path": "auth.json"}]},
    })));
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.contains(&json!({"name": "fix-1-auth-home", "mountPath": "/root/.codex"})));
    assert!(mounts.contains(&json!({
        "name": "fix-1-auth-secret", "mountPath": "/root/.codex/auth.json", "subPath": "auth.json",
        "readOnly": true,
    })));
    let names: Vec<String> = variables(&world).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names[..4],
        [
            "AGENT_RUN_SPEC",
            "AGENT_RUNNER_SPEC_PATH",
            "CODEX_HOME",
            "CODEX_AUTH"
        ]
    );
    assert_eq!(
        value_of(&world, "CODEX_HOME").expect("set")["value"],
        "/root/.codex"
    );
    assert_eq!(
        value_of(&world, "CODEX_AUTH").expect("set")["value"],
        "/root/.codex/auth.json"
    );
}

#[test]
fn the_credentials_file_of_all_agents_obeys_the_same_rules_as_other_secrets() {
    let blocked = with_auth().with_settings(|settings| {
        settings.policy.blocked_secrets.insert("codex-auth".to_owned());
    });
    let rejection = blocked.build().expect_err("no run may use it");
    assert_eq!(rejection.reason, Reason::SecretBlocked);
    assert!(
        rejection
            .message
            .contains("JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME")
    );

    let strict = |names: Value| with_auth().with_agent(&json!({"security": {"allowedSecrets": names}}));
    let rejection = strict(json!(["other"]))
        .build()
        .expect_err("the agent does not allow it");
    assert_eq!(rejection.reason, Reason::SecretNotAllowed);
    assert!(strict(json!(["other", "codex-auth"])).build().is_ok());
}

#[test]
fn user_and_password_for_nats_are_variables_from_the_secret() {
    let world = with_nats();
    for (name, key) in [("NATS_USER", "username"), ("NATS_PASSWORD", "password")] {
        assert_eq!(
            value_of(&world, name).expect("set")["valueFrom"],
            json!({"secretKeyRef": {"name": "nats", "key": key}})
        );
    }
    assert_eq!(value_of(&World::minimal(), "NATS_USER"), None);
}

#[test]
fn a_run_that_may_not_have_the_user_for_nats_goes_without() {
    let blocked = with_nats().with_settings(|settings| {
        settings.policy.blocked_secrets.insert("nats".to_owned());
    });
    let not_allowed = with_nats().with_agent(&json!({"security": {"allowedSecrets": ["other"]}}));
    for world in [blocked, not_allowed] {
        assert_eq!(value_of(&world, "NATS_USER"), None);
        assert_eq!(value_of(&world, "NATS_PASSWORD"), None);
    }
}

#[test]
fn a_user_for_nats_of_the_providers_own_is_not_mixed_with_another_password() {
    let world = with_nats().with_provider(&json!({"envTemplate": {"NATS_USER": "me"}}));
    assert_eq!(value_of(&world, "NATS_USER").expect("set")["value"], "me");
    assert_eq!(value_of(&world, "NATS_PASSWORD"), None);
}

#[test]
fn the_runner_is_told_of_every_variable_and_file_that_comes_from_a_secret() {
    let world = with_nats()
        .with_settings(|settings| {
            settings.runner.auth_secret = with_auth().settings.runner.auth_secret;
        })
        .with_run(&json!({
            "secrets": ["keys", "database"],
            "workload": {"image": "registry.example/agent:1", "volumes": [
                {"type": "secret", "name": "certs", "secretName": "certs", "mountPath": "/certs"},
                {"type": "emptyDir", "name": "cache", "mountPath": "/cache"},
            ]},
        }));
    let document = world.document("agent-runner.json");
    assert_eq!(document["secretEnv"], json!(["NATS_USER", "NATS_PASSWORD"]));
    let files = json!([
        "/var/run/secrets/agents/env/0",
        "/var/run/secrets/agents/env/1",
        "/certs",
        "/root/.codex/auth.json",
    ]);
    assert_eq!(document["secretFiles"], files);

    // What is told is there: each variable and each mount of a Secret, and no more.
    let pod = as_json(&world.pod());
    let volumes = pod["volumes"].as_array().expect("volumes");
    let of_secrets: Vec<&Value> = volumes
        .iter()
        .filter(|volume| !volume["secret"].is_null())
        .map(|volume| &volume["name"])
        .collect();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
    let mut mounted: Vec<&Value> = mounts
        .iter()
        .filter(|mount| of_secrets.contains(&&mount["name"]))
        .map(|mount| &mount["mountPath"])
        .collect();
    let mut told: Vec<&Value> = files.as_array().expect("a list").iter().collect();
    mounted.sort_by_key(ToString::to_string);
    told.sort_by_key(ToString::to_string);
    assert_eq!(mounted, told);
    assert_eq!(
        pod["containers"][0]["envFrom"],
        json!([{"secretRef": {"name": "keys"}}, {"secretRef": {"name": "database"}}])
    );
}

#[test]
fn a_run_without_secrets_has_none_to_tell_of() {
    let document = World::minimal().document("agent-runner.json");
    assert!(
        document["secretEnv"].is_null() && document["secretFiles"].is_null(),
        "{document}"
    );
}
