//! The run over its Agent over the settings.

use jangar_api::reason::Reason;
use serde_json::{Value, json};

use super::{
    super::{attempts_allowed, ttl_seconds},
    World, as_json,
};

/// Settings that say something about everything.
fn outspoken() -> World {
    World::minimal().trusting(&["of-run"]).with_settings(|settings| {
        let runner = &mut settings.runner;
        runner.service_account = Some("of-settings".to_owned());
        runner.node_selector = [("pool".to_owned(), "of-settings".to_owned())].into();
        runner.tolerations = serde_json::from_value(json!([{"key": "of-settings"}])).unwrap();
        runner.topology_spread_constraints = vec![serde_json::from_value(constraint(&json!({}))).unwrap()];
        runner.affinity = Some(serde_json::from_value(json!({"nodeAffinity": {}})).unwrap());
        runner.pod_security_context = Some(serde_json::from_value(json!({"runAsUser": 5})).unwrap());
        runner.priority_class = Some("of-settings".to_owned());
        runner.scheduler_name = Some("of-settings".to_owned());
        runner.image_pull_secrets = vec!["of-settings".to_owned()];
    })
}

fn constraint(more: &Value) -> Value {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
    });
    constraint
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    constraint
}

/// Key in `spec.runtime.config`, field of the pod, what the settings lead to, another value, what that leads to.
fn overrides() -> Vec<(&'static str, &'static str, Value, Value, Value)> {
    let spread = |key: &str| {
        json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {
            "matchExpressions": [{"key": "agents.proompteng.ai/agent-run", "operator": "Exists"}],
        }}])
    };
    let same = |key, value: Value, other: Value| (key, key, value, other.clone(), other);
    let text = |key| same(key, json!("of-settings"), json!("of-run"));
    vec![
        text("priorityClassName"),
        text("schedulerName"),
        (
            "serviceAccount",
            "serviceAccountName",
            json!("of-settings"),
            json!("of-run"),
            json!("of-run"),
        ),
        same(
            "nodeSelector",
            json!({"pool": "of-settings"}),
            json!({"disk": "of-run"}),
        ),
        same(
            "tolerations",
            json!([{"key": "of-settings"}]),
            json!([{"key": "of-run"}]),
        ),
        same(
            "affinity",
            json!({"nodeAffinity": {}}),
            json!({"podAffinity": {}}),
        ),
        (
            "podSecurityContext",
            "securityContext",
            json!({"runAsUser": 5}),
            json!({"fsGroup": 6}),
            json!({"fsGroup": 6}),
        ),
        (
            "imagePullSecrets",
            "imagePullSecrets",
            json!([{"name": "of-settings"}]),
            json!([{"name": "a"}, " b ", ""]),
            json!([{"name": "a"}, {"name": "b"}]),
        ),
        (
            "topologySpreadConstraints",
            "topologySpreadConstraints",
            spread("zone"),
            json!([constraint(&json!({"topologyKey": "host"}))]),
            spread("host"),
        ),
    ]
}

fn field(world: &World, name: &str) -> Value {
    as_json(&world.pod()).get(name).cloned().unwrap_or(Value::Null)
}

#[test]
fn what_the_run_says_replaces_what_the_settings_say() {
    for (key, name, of_settings, given, of_run) in overrides() {
        assert_eq!(field(&outspoken(), name), of_settings, "{key}");
        let run = outspoken().with_config(&json!({key: given}));
        assert_eq!(field(&run, name), of_run, "{key}");
    }
}

#[test]
fn null_and_blank_texts_leave_the_settings_alone() {
    for (key, name, of_settings, given, _) in overrides() {
        let null = outspoken().with_config(&json!({key: null}));
        assert_eq!(field(&null, name), of_settings, "{key}");
        if given.is_string() {
            let blank = outspoken().with_config(&json!({key: " "}));
            assert_eq!(field(&blank, name), of_settings, "{key}");
        }
    }
}

#[test]
fn an_empty_list_or_object_clears_what_the_settings_say() {
    for (key, name, _, given, _) in overrides() {
        let empty = match given {
            Value::Array(_) => json!([]),
            Value::Object(_) => json!({}),
            _ => continue,
        };
        let run = outspoken().with_config(&json!({key: empty}));
        assert_eq!(field(&run, name), Value::Null, "{key}");
    }
}

#[test]
fn what_nobody_says_is_not_written() {
    let world = World::minimal();
    for (key, name, ..) in overrides() {
        if key != "podSecurityContext" {
            assert_eq!(field(&world, name), Value::Null, "{key}");
        }
    }
}

#[test]
fn a_constraint_that_selects_nothing_counts_the_pods_of_all_runs() {
    let exists =
        json!({"matchExpressions": [{"key": "agents.proompteng.ai/agent-run", "operator": "Exists"}]});
    let own = json!({"matchLabels": {"agents.proompteng.ai/agent": "fixer"}});
    let expression = json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]});
    for (given, expected) in [
        (json!({}), &exists),
        (json!({"labelSelector": null}), &exists),
        (json!({"labelSelector": {}}), &exists),
        (
            json!({"labelSelector": {"matchLabels": {}, "matchExpressions": []}}),
            &exists,
        ),
        (json!({"labelSelector": own}), &own),
        (json!({"labelSelector": expression}), &expression),
    ] {
        let constraints = json!([constraint(&given)]);
        let of_run = World::minimal().with_config(&json!({"topologySpreadConstraints": constraints}));
        let of_settings = World::minimal().with_settings(|settings| {
            settings.runner.topology_spread_constraints =
                vec![serde_json::from_value(constraint(&given)).unwrap()];
        });
        for world in [of_run, of_settings] {
            let written = field(&world, "topologySpreadConstraints");
            assert_eq!(written[0]["labelSelector"], *expected, "{given}");
        }
    }
}

#[test]
fn only_a_service_account_that_somebody_chose_brings_its_token() {
    for (world, expected) in [
        (World::minimal(), json!(false)),
        (outspoken(), Value::Null),
        (
            World::minimal()
                .trusting(&["builder"])
                .with_config(&json!({"serviceAccount": "builder"})),
            Value::Null,
        ),
    ] {
        assert_eq!(field(&world, "automountServiceAccountToken"), expected);
    }
}

#[test]
fn a_security_context_of_somebody_else_replaces_only_that_of_the_pod() {
    let world = World::minimal()
        .trusting(&[])
        .with_config(&json!({"podSecurityContext": {"runAsUser": 0}}));

    assert_eq!(field(&world, "securityContext"), json!({"runAsUser": 0}));
    let pod = world.pod();
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        assert_eq!(
            as_json(&container.security_context),
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
        );
    }
}

#[test]
fn the_system_prompt_is_the_runs_before_the_agents_and_a_reference_before_a_text() {
    let reference = |name: &str| json!({"kind": "ConfigMap", "name": name, "key": "k"});
    let all = [
        ("run", "systemPromptRef", reference("of-run")),
        ("run", "systemPrompt", json!("of run")),
        ("agent", "systemPromptRef", reference("of-agent")),
        ("agent", "systemPrompt", json!("of agent")),
    ];
    let expected = ["of-run", "of run", "of-agent", "of agent"];
    for first in 0..all.len() {
        let mut run = json!({"systemPrompt": " "});
        let mut defaults = json!({});
        for (whose, field, value) in &all[first..] {
            match *whose {
                "run" => run[*field] = value.clone(),
                _ => defaults[*field] = value.clone(),
            }
        }
        let world = World::minimal()
            .with_run(&run)
            .with_agent(&json!({"defaults": defaults}));
        let text = world.document("run.json")["systemPrompt"]
            .as_str()
            .map(str::to_owned);
        let volumes = world.pod().volumes.unwrap();
        let config_map = volumes
            .into_iter()
            .find(|volume| volume.name == "fix-1-system-prompt")
            .map(|volume| volume.config_map.unwrap().name);
        assert_eq!(text.or(config_map).as_deref(), Some(expected[first]));
    }
}

#[test]
fn attempts_are_one_and_the_retries_that_run_agent_or_settings_allow() {
    let world = |config: Value, retry_limit: Value, of_settings: u32| {
        World::minimal()
            .with_config(&config)
            .with_agent(&json!({"defaults": {"retryLimit": retry_limit}}))
            .with_settings(|settings| settings.runner.backoff_limit = of_settings)
    };
    let attempts = |world: &World| attempts_allowed(&world.run, Some(&world.agent), &world.settings);
    for (config, retry_limit, of_settings, expected) in [
        (json!({}), Value::Null, 0, 1),
        (json!({}), Value::Null, 2, 3),
        (json!({}), json!(0), 2, 1),
        (json!({"backoffLimit": 4}), json!(3), 2, 5),
        (json!({"backoffLimit": 0}), json!(3), 2, 1),
        (json!({"backoffLimit": 1.9}), json!(3), 2, 2),
        (json!({"backoffLimit": -1}), json!(3), 2, 1),
        (json!({"backoffLimit": 100}), json!(3), 2, 101),
    ] {
        let world = world(config, retry_limit, of_settings);
        assert_eq!(attempts(&world), Ok(expected), "{:?}", world.run.spec.runtime);
    }
    let world = world(json!({}), json!(3), 2);
    assert_eq!(attempts_allowed(&world.run, None, &world.settings), Ok(3));
}

#[test]
fn too_many_attempts_are_refused_by_the_name_of_who_asked_for_them() {
    let of_run = World::minimal().with_config(&json!({"backoffLimit": 101}));
    let of_agent = World::minimal().with_agent(&json!({"defaults": {"retryLimit": 101}}));
    let of_settings = World::minimal().with_settings(|settings| settings.runner.backoff_limit = 101);
    for (world, place) in [
        (of_run, "spec.runtime.config.backoffLimit"),
        (of_agent, "spec.defaults.retryLimit of Agent \"fixer\""),
        (of_settings, "JANGAR_AGENT_RUNNER_BACKOFF_LIMIT"),
    ] {
        let rejection = attempts_allowed(&world.run, Some(&world.agent), &world.settings).unwrap_err();
        assert_eq!(rejection.reason, Reason::InvalidRuntimeConfig);
        assert_eq!(
            rejection.message,
            format!("{place} is 101, and a run has at most 100 retries: choose a smaller number")
        );
    }
}

#[test]
fn a_finished_job_is_kept_within_bounds_or_for_good() {
    for (config, of_settings, expected) in [
        (json!({}), Some(600), Some(600)),
        (json!({}), None, None),
        (json!({}), Some(0), None),
        (json!({"ttlSecondsAfterFinished": 0}), Some(600), None),
        (json!({"ttlSecondsAfterFinished": -5}), Some(600), None),
        (json!({"ttlSecondsAfterFinished": 1}), Some(600), Some(30)),
        (json!({"ttlSecondsAfterFinished": 60}), None, Some(60)),
        (
            json!({"ttlSecondsAfterFinished": 9_999_999}),
            Some(600),
            Some(604_800),
        ),
    ] {
        let world = World::minimal()
            .with_config(&config)
            .with_settings(|settings| settings.runner.job_ttl_seconds = of_settings);
        assert_eq!(ttl_seconds(&world.run, &world.settings), Ok(expected), "{config}");
    }
}

#[test]
fn deadlines_are_those_of_the_agent() {
    for (seconds, expected) in [
        (json!(null), json!({"graceSeconds": 25})),
        (json!(0), json!({"graceSeconds": 25})),
        (json!(90), json!({"softSeconds": 90, "graceSeconds": 25})),
    ] {
        let world = World::minimal().with_agent(&json!({"defaults": {"timeoutSeconds": seconds}}));
        assert_eq!(
            world.document("agent-runner.json")["deadlines"],
            expected,
            "{seconds}"
        );
    }
}

#[test]
fn logs_are_kept_as_the_run_says() {
    let retention =
        |world: &World| world.document("agent-runner.json")["artifacts"]["logRetentionSeconds"].clone();

    assert_eq!(retention(&World::minimal()), 604_800);
    assert_eq!(
        retention(&World::minimal().with_config(&json!({"logRetentionSeconds": 60}))),
        60
    );
}

#[test]
fn a_field_that_our_types_do_not_know_is_sent_as_it_was_given() {
    let affinity = json!({"nodeAffinity": {"newer": [1]}});
    let tolerations = json!([{"key": "gpu"}, {"key": "spot", "newer": true}]);
    let constraints = json!([constraint(&json!({"newer": {"deep": 1}}))]);
    let security = json!({"runAsUser": 5, "newer": 1});
    let built = World::minimal()
        .trusting(&[])
        .with_config(&json!({
            "affinity": affinity, "tolerations": tolerations, "topologySpreadConstraints": constraints,
            "podSecurityContext": security,
        }))
        .built();

    let mut spread = constraints;
    spread[0]["labelSelector"] = json!({
        "matchExpressions": [{"key": "agents.proompteng.ai/agent-run", "operator": "Exists"}],
    });
    assert_eq!(
        as_json(&built.pod_fields),
        json!({
            "affinity": affinity, "tolerations": tolerations, "topologySpreadConstraints": spread,
            "securityContext": security,
        })
    );
    let known = World::minimal().with_config(&json!({"tolerations": [{"key": "gpu"}]}));
    assert!(
        known.built().pod_fields.is_empty(),
        "what is known needs no second form"
    );
}
