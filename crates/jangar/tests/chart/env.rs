//! From values to variables, for both workloads, and whether the program understands them.

use std::collections::{BTreeMap, BTreeSet};

use jangar_engine::settings::{Settings, reference};
use serde_json::{Value, json};

use crate::helm::{env_of, rendered, values_files, workload};

/// Which workloads a value reaches.
#[derive(Clone, Copy, PartialEq)]
enum For {
    Both,
    Controllers,
    ControlPlane,
}

/// One row: a value, what it is set to, the variable, and its text.
type Row = (&'static str, Value, &'static str, &'static str, For);

/// Every value that becomes a variable, set to something that is not its default.
#[rustfmt::skip] // One row on a line reads like the table it is.
fn rows() -> Vec<Row> {
    use For::{Both, ControlPlane, Controllers};
    vec![
        ("controller.enabled", json!(false), "JANGAR_AGENTS_CONTROLLER_ENABLED", "0", Both),
        ("controller.namespaces", json!(["a", "b"]), "JANGAR_AGENTS_CONTROLLER_NAMESPACES", "a,b", Both),
        ("controller.namespaces", json!(["a", "b"]), "JANGAR_PRIMITIVES_NAMESPACES", "a,b", Both),
        ("controller.referenceGraceSeconds", json!(0), "JANGAR_REFERENCE_GRACE_SECONDS", "0", Both),
        ("controller.leaderElection.enabled", json!(false), "JANGAR_LEADER_ELECTION_ENABLED", "false", Both),
        ("controller.leaderElection.leaseName", json!("own"), "JANGAR_LEADER_ELECTION_LEASE_NAME", "own", Both),
        ("controller.leaderElection.leaseNamespace", json!("leases"), "JANGAR_LEADER_ELECTION_LEASE_NAMESPACE", "leases", Both),
        ("controller.leaderElection.leaseDurationSeconds", json!(90), "JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "90", Both),
        ("controller.leaderElection.renewDeadlineSeconds", json!(60), "JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "60", Both),
        ("controller.leaderElection.retryPeriodSeconds", json!(30), "JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "30", Both),
        ("controller.concurrency.perNamespace", json!(1_000_000), "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE", "1000000", Both),
        ("controller.concurrency.perAgent", json!(7), "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", "7", Both),
        ("controller.concurrency.cluster", json!(8), "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER", "8", Both),
        ("controller.repoConcurrency.enabled", json!(true), "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_ENABLED", "true", Both),
        ("controller.repoConcurrency.default", json!(4), "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_DEFAULT", "4", Both),
        (
            "controller.repoConcurrency.overrides",
            json!({"example/adder": 2}),
            "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES",
            r#"{"example/adder":2}"#,
            Both,
        ),
        ("controller.queue.perNamespace", json!(0), "JANGAR_AGENTS_CONTROLLER_QUEUE_NAMESPACE", "0", Both),
        ("controller.queue.perRepo", json!(0), "JANGAR_AGENTS_CONTROLLER_QUEUE_REPO", "0", Both),
        ("controller.queue.cluster", json!(0), "JANGAR_AGENTS_CONTROLLER_QUEUE_CLUSTER", "0", Both),
        ("controller.rate.windowSeconds", json!(30), "JANGAR_AGENTS_CONTROLLER_RATE_WINDOW_SECONDS", "30", Both),
        ("controller.rate.perNamespace", json!(0), "JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE", "0", Both),
        ("controller.rate.perRepo", json!(0), "JANGAR_AGENTS_CONTROLLER_RATE_REPO", "0", Both),
        ("controller.rate.cluster", json!(0), "JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER", "0", Both),
        ("controller.webhook.queueSize", json!(9), "JANGAR_AGENTS_CONTROLLER_WEBHOOK_QUEUE_SIZE", "9", Both),
        ("controller.webhook.retry.baseDelaySeconds", json!(0), "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_BASE_DELAY_SECONDS", "0", Both),
        ("controller.webhook.retry.maxDelaySeconds", json!(9), "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_DELAY_SECONDS", "9", Both),
        ("controller.webhook.retry.maxAttempts", json!(2), "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_ATTEMPTS", "2", Both),
        ("controller.agentRunRetentionSeconds", json!(0), "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS", "0", Both),
        (
            "controller.agentRunRetentionDeletesPerMinute",
            json!(12_000),
            "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_DELETES_PER_MINUTE",
            "12000",
            Both,
        ),
        ("controller.agentRunArtifacts.max", json!(0), "JANGAR_AGENTRUN_ARTIFACTS_MAX", "0", Both),
        ("controller.agentRunArtifacts.strict", json!(true), "JANGAR_AGENTRUN_ARTIFACTS_STRICT", "true", Both),
        ("controller.logRetentionSeconds", json!(31_536_000), "JANGAR_AGENT_RUNNER_LOG_RETENTION_SECONDS", "31536000", Both),
        ("controller.jobController", json!("jangar"), "JANGAR_AGENT_RUNNER_JOB_CONTROLLER", "jangar", Both),
        ("controller.jobTtlSecondsAfterFinished", json!(604_800), "JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", "604800", Both),
        ("controller.authSecret.name", json!("auth"), "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME", "auth", Both),
        ("controller.authSecret.key", json!("file"), "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_KEY", "file", Both),
        ("controller.authSecret.mountPath", json!("/auth"), "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH", "/auth", Both),
        ("controller.admissionPolicy.labels.required", json!(["a/b"]), "JANGAR_AGENTS_CONTROLLER_LABELS_REQUIRED", r#"["a/b"]"#, Both),
        ("controller.admissionPolicy.labels.allowed", json!(["a/*"]), "JANGAR_AGENTS_CONTROLLER_LABELS_ALLOWED", r#"["a/*"]"#, Both),
        ("controller.admissionPolicy.labels.denied", json!(["c"]), "JANGAR_AGENTS_CONTROLLER_LABELS_DENIED", r#"["c"]"#, Both),
        ("controller.admissionPolicy.images.allowed", json!(["x/*"]), "JANGAR_AGENTS_CONTROLLER_IMAGES_ALLOWED", r#"["x/*"]"#, Both),
        ("controller.admissionPolicy.images.denied", json!(["y"]), "JANGAR_AGENTS_CONTROLLER_IMAGES_DENIED", r#"["y"]"#, Both),
        ("controller.admissionPolicy.secrets.blocked", json!(["root"]), "JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS", r#"["root"]"#, Both),
        (
            "controller.admissionPolicy.serviceAccounts.allowed",
            json!(["r"]),
            "JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED",
            r#"["r"]"#,
            Both,
        ),
        (
            "controller.admissionPolicy.priorityClasses.allowed",
            json!(["p"]),
            "JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED",
            r#"["p"]"#,
            Both,
        ),
        (
            "controller.admissionPolicy.podSecurityRestricted",
            json!(false),
            "JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED",
            "false",
            Both,
        ),
        ("controller.vcsProviders.enabled", json!(false), "JANGAR_AGENTS_CONTROLLER_VCS_PROVIDERS_ENABLED", "false", Both),
        (
            "controller.vcsProviders.deprecatedTokenTypes",
            json!({"github": ["pat"], "gitlab": ["access_token"]}),
            "JANGAR_AGENTS_CONTROLLER_VCS_DEPRECATED_TOKEN_TYPES",
            r#"{"github":["pat"],"gitlab":["access_token"]}"#,
            Both,
        ),
        (
            "controller.vcsProviders.prRateLimits",
            json!({"github": {"windowSeconds": 60}}),
            "JANGAR_AGENTS_CONTROLLER_VCS_PR_RATE_LIMITS",
            r#"{"github":{"windowSeconds":60}}"#,
            Both,
        ),
        (
            "controller.customRuntime.callbackUrl",
            json!("https://jangar.example.com"),
            "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL",
            "https://jangar.example.com",
            Controllers,
        ),
        ("controller.customRuntime.keySecret.name", json!("k"), "JANGAR_CUSTOM_RUNTIME_KEY_FILE", "/etc/jangar/custom-runtime/key", Controllers),
        (
            "controller.customRuntime.callbackUrl",
            json!("https://jangar.example.com"),
            "JANGAR_CUSTOM_RUNTIME_CALLBACK_LISTEN",
            "0.0.0.0:8081",
            Controllers,
        ),
        (
            "controller.customRuntime.allowedEndpoints",
            json!(["https://a"]),
            "JANGAR_CUSTOM_RUNTIME_ALLOWED_ENDPOINTS",
            r#"["https://a"]"#,
            Controllers,
        ),
        (
            "controller.customRuntime.openNetworks",
            json!(["10.0.0.0/8"]),
            "JANGAR_CUSTOM_RUNTIME_OPEN_NETWORKS",
            r#"["10.0.0.0/8"]"#,
            Controllers,
        ),
        ("controller.customRuntime.timeoutSeconds", json!(31_536_000), "JANGAR_CUSTOM_RUNTIME_TIMEOUT_SECONDS", "31536000", Controllers),
        ("controller.defaultWorkload.serviceAccountName", json!("runs"), "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT", "runs", Both),
        ("controller.defaultWorkload.nodeSelector", json!({"a": "b"}), "JANGAR_AGENT_RUNNER_NODE_SELECTOR", r#"{"a":"b"}"#, Both),
        (
            "controller.defaultWorkload.tolerations",
            json!([{"operator": "Exists"}]),
            "JANGAR_AGENT_RUNNER_TOLERATIONS",
            r#"[{"operator":"Exists"}]"#,
            Both,
        ),
        (
            "controller.defaultWorkload.affinity",
            json!({"nodeAffinity": {}}),
            "JANGAR_AGENT_RUNNER_AFFINITY",
            r#"{"nodeAffinity":{}}"#,
            Both,
        ),
        (
            "controller.defaultWorkload.topologySpreadConstraints",
            json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]),
            "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS",
            r#"[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]"#,
            Both,
        ),
        (
            "controller.defaultWorkload.podSecurityContext",
            json!({"runAsUser": 1000}),
            "JANGAR_AGENT_RUNNER_POD_SECURITY_CONTEXT",
            r#"{"runAsUser":1000}"#,
            Both,
        ),
        (
            "controller.defaultWorkload.imagePullSecrets",
            json!(["pull"]),
            "JANGAR_AGENT_RUNNER_IMAGE_PULL_SECRETS",
            r#"["pull"]"#,
            Both,
        ),
        ("controller.defaultWorkload.priorityClassName", json!("p"), "JANGAR_AGENT_RUNNER_PRIORITY_CLASS", "p", Both),
        ("controller.defaultWorkload.schedulerName", json!("s"), "JANGAR_AGENT_RUNNER_SCHEDULER_NAME", "s", Both),
        ("orchestrationController.enabled", json!(false), "JANGAR_ORCHESTRATION_CONTROLLER_ENABLED", "0", Both),
        ("orchestrationController.namespaces", json!(["a"]), "JANGAR_ORCHESTRATION_CONTROLLER_NAMESPACES", "a", Both),
        ("orchestrationController.cancel.enabled", json!(false), "JANGAR_ORCHESTRATION_CANCEL_ENABLED", "false", Both),
        ("orchestrationController.cancel.timeoutMs", json!(3_600_000), "JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS", "3600000", Both),
        ("supportingController.enabled", json!(false), "JANGAR_SUPPORTING_CONTROLLER_ENABLED", "0", Both),
        ("supportingController.namespaces", json!(["b"]), "JANGAR_SUPPORTING_CONTROLLER_NAMESPACES", "b", Both),
        ("runner.image.repository", json!("r.example.com/a"), "JANGAR_AGENT_RUNNER_IMAGE", "r.example.com/a:latest", Both),
        ("runtime.agentImage", json!("r.example.com/b:1"), "JANGAR_AGENT_IMAGE", "r.example.com/b:1", Both),
        ("runtime.scheduleRunnerImage", json!("r.example.com/c:1"), "JANGAR_SCHEDULE_RUNNER_IMAGE", "r.example.com/c:1", Both),
        ("runtime.scheduleServiceAccount", json!("schedule"), "JANGAR_SCHEDULE_SERVICE_ACCOUNT", "schedule", Both),
        ("image.repository", json!("r.example.com/jangar"), "JANGAR_IMAGE", "r.example.com/jangar:0.10.0", Both),
        ("serviceAccount.name", json!("account"), "JANGAR_SERVICE_ACCOUNT_NAME", "account", Controllers),
        ("rbac.clusterScoped", json!(true), "JANGAR_RBAC_CLUSTER_SCOPED", "true", Both),
        ("kubernetesApi.host", json!("api.example.com"), "KUBERNETES_SERVICE_HOST", "api.example.com", Both),
        ("kubernetesApi.port", json!("8443"), "KUBERNETES_SERVICE_PORT", "8443", Both),
        ("logging.level", json!("warn"), "JANGAR_LOG", "warn", Both),
        ("metrics.enabled", json!(false), "JANGAR_PROMETHEUS_METRICS_ENABLED", "false", ControlPlane),
        ("metrics.path", json!("/numbers"), "JANGAR_PROMETHEUS_METRICS_PATH", "/numbers", ControlPlane),
        ("controlPlane.tls.secret.name", json!("t"), "JANGAR_TLS_CERT_FILE", "/etc/jangar/tls/tls.crt", ControlPlane),
        ("controlPlane.tls.secret.name", json!("t"), "JANGAR_TLS_KEY_FILE", "/etc/jangar/tls/tls.key", ControlPlane),
        ("grpc.enabled", json!(true), "JANGAR_GRPC_ENABLED", "true", ControlPlane),
        ("grpc.enabled", json!(true), "JANGAR_GRPC_HOST", "0.0.0.0", ControlPlane),
        ("grpc.port", json!(50_052), "JANGAR_GRPC_PORT", "50052", ControlPlane),
        ("database.url", json!("postgres://db"), "DATABASE_URL", "postgres://db", Both),
        ("trustedCertificates.configMap", json!("authorities"), "SSL_CERT_DIR", "/etc/ssl/certs:/etc/jangar/trusted", Both),
        ("database.caSecret.name", json!("ca"), "PGSSLROOTCERT", "/etc/jangar/ca/ca.crt", Both),
    ]
}

/// All rows as one values file.
fn values() -> Value {
    let mut values = json!({"controlPlane": {"enabled": true}});
    for (path, value, ..) in rows() {
        let pointer = path.split('.').fold(&mut values, |at, key| &mut at[key]);
        *pointer = value;
    }
    values
}

fn variables(values: &Value, name: &str) -> BTreeMap<String, Option<String>> {
    env_of(workload(&rendered(&values.to_string()), name))
        .into_iter()
        .collect()
}

#[test]
fn each_value_reaches_its_variable_in_every_workload_that_reads_it() {
    let values = values();
    let workloads = [
        ("agents", For::ControlPlane),
        ("agents-controllers", For::Controllers),
    ];
    for (workload, kind) in workloads {
        let variables = variables(&values, workload);
        for (path, _, name, text, reach) in rows() {
            let expected = (reach == For::Both || reach == kind).then_some(text);
            let found = variables.get(name).and_then(Option::as_deref);
            if name != "JANGAR_GRPC_ENABLED" || kind == For::ControlPlane {
                let expected = if name == "JANGAR_SERVICE_ACCOUNT_NAME" && kind == For::ControlPlane {
                    Some("agents-control-plane")
                } else {
                    expected
                };
                assert_eq!(found, expected, "{path} in {workload}");
            }
        }
    }
}

/// Values that stand in for others of the table above, or whose variable is not written out: each by itself. What is expected is the
/// value of the entry, or whatever else it has.
#[rustfmt::skip] // One row on a line reads like the table it is.
fn alone() -> Vec<(Value, &'static str, Value)> {
    let digest = format!("sha256:{}", "0".repeat(64));
    let secret = |name: &str, key: &str| json!({"secretKeyRef": {"name": name, "key": key}});
    vec![
        (json!({"runtime": {"agentRunnerImage": "a:1"}}), "JANGAR_AGENT_RUNNER_IMAGE", json!("a:1")),
        (json!({"runner": {"image": {"repository": "a", "tag": "2"}}}), "JANGAR_AGENT_RUNNER_IMAGE", json!("a:2")),
        (json!({"runner": {"image": {"repository": "a", "digest": digest}}}), "JANGAR_AGENT_RUNNER_IMAGE", json!(format!("a:latest@{digest}"))),
        (json!({"runner": {"image": {"pullSecrets": ["b"]}}}), "JANGAR_AGENT_RUNNER_IMAGE_PULL_SECRETS", json!(r#"["b"]"#)),
        (json!({"image": {"tag": "2"}}), "JANGAR_IMAGE", json!("ghcr.io/proompteng/jangar:2")),
        (json!({"image": {"digest": digest}}), "JANGAR_IMAGE", json!(format!("ghcr.io/proompteng/jangar:0.10.0@{digest}"))),
        (json!({"controllers": {"image": {"repository": "c"}}}), "JANGAR_IMAGE", json!("c:0.10.0")),
        (json!({"controllers": {"image": {"tag": "3"}}}), "JANGAR_IMAGE", json!("ghcr.io/proompteng/jangar:3")),
        (json!({"controllers": {"image": {"digest": digest}}}), "JANGAR_IMAGE", json!(format!("ghcr.io/proompteng/jangar:0.10.0@{digest}"))),
        (json!({"runnerServiceAccount": {"create": true}}), "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT", json!("agents-runner")),
        (json!({"runnerServiceAccount": {"name": "mine"}}), "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT", json!("mine")),
        (json!({"runnerServiceAccount": {"create": true, "setAsDefault": false}}), "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT", Value::Null),
        (json!({"database": {"secretRef": {"name": "db"}}}), "DATABASE_URL", secret("db", "url")),
        (json!({"database": {"secretRef": {"name": "db", "key": "uri"}}}), "DATABASE_URL", secret("db", "uri")),
        (json!({"database": {"url": "x", "createSecret": {"enabled": true}}}), "DATABASE_URL", secret("agents-db", "url")),
        (json!({"database": {"url": "x", "createSecret": {"enabled": true, "name": "n"}}}), "DATABASE_URL", secret("n", "url")),
        (json!({"database": {"url": "x", "caSecret": {"name": "ca", "key": "root.pem"}}}), "PGSSLROOTCERT", json!("/etc/jangar/ca/root.pem")),
        (json!({"controller": {"jobTtlSecondsAfterFinished": null, "jobTtlSeconds": 77}}), "JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", json!("77")),
        (json!({"controller": {"jobTtlSecondsAfterFinished": null, "jobTTLSeconds": 78}}), "JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", json!("78")),
        (json!({"kubernetesApi": {"port": 8443}}), "KUBERNETES_SERVICE_PORT", json!("8443")),
        (json!({"fullnameOverride": "own", "runnerServiceAccount": {"create": true}}), "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT", json!("own-runner")),
        (json!({"namespaceOverride": "there"}), "JANGAR_AGENTS_CONTROLLER_NAMESPACES", json!("there")),
        (json!({"serviceAccount": {"create": false, "name": "mine"}}), "JANGAR_SERVICE_ACCOUNT_NAME", json!("mine")),
        (json!({"env": {"vars": {"FOO": 1_000_000}}}), "FOO", json!("1000000")),
        (json!({"controllers": {"env": {"vars": {"FOO": true}}}}), "FOO", json!("true")),
        (json!({"env": {"extra": [{"name": "FOO", "value": 2}]}}), "FOO", json!("2")),
        (json!({"env": {"secrets": [{"name": "FOO", "secretName": "s"}]}}), "FOO", secret("s", "value")),
        (json!({"env": {"config": [{"name": "FOO", "configMapName": "c"}]}}), "FOO", json!({"configMapKeyRef": {"name": "c", "key": "FOO"}})),
    ]
}

#[test]
fn a_value_that_stands_in_for_another_reaches_the_same_variable() {
    for (values, name, expected) in alone() {
        let objects = rendered(&values.to_string());
        let own = values["fullnameOverride"].as_str().unwrap_or("agents");
        let entries = &workload(&objects, &format!("{own}-controllers"))["spec"]["template"]["spec"]["containers"]
            [0]["env"];
        let entry = entries
            .as_array()
            .expect("there are variables")
            .iter()
            .find(|entry| entry["name"] == name);
        let found = entry.map_or(Value::Null, |entry| match &entry["value"] {
            Value::Null => entry["valueFrom"].clone(),
            value => value.clone(),
        });
        assert_eq!(found, expected, "{values}");
    }
}

/// What has nothing to do with variables: other objects, or what a pod is like. A name with a dot at its end is all that begins so.
#[rustfmt::skip] // It is read as a list.
const NO_VARIABLE: &[&str] = &[
    "affinity", "argocdHooks.", "autoscaling.", "containerSecurityContext", "controlPlane.enabled", "controlPlane.env.vars",
    "controlPlane.image.", "controlPlane.replicaCount", "controlPlane.resources", "controlPlane.webhooks.", "controllers.autoscaling.",
    "controllers.enabled", "controllers.image.pullPolicy", "controllers.image.pullSecrets", "controllers.replicaCount",
    "controllers.resources", "controller.customRuntime.keySecret.key", "database.createSecret.annotations", "envFromConfigMapRefs",
    "envFromSecretRefs", "extraVolumeMounts", "extraVolumes", "global", "grpc.servicePort", "grpc.serviceType", "image.pullPolicy",
    "image.pullSecrets", "limitRange.", "livenessProbe.", "metrics.dashboards.", "metrics.prometheusRule.", "metrics.service.",
    "metrics.serviceMonitor.", "minReadySeconds", "nameOverride", "networkPolicy.", "nodeSelector", "podAnnotations",
    "podDisruptionBudget.", "podLabels", "podSecurityAdmission.", "progressiveDelivery.", "rbac.create", "rbac.creatorPolicy.",
    "rbac.extraRules", "rbac.userRoles.", "readinessProbe.", "replicaCount", "resourceQuota.", "resources", "runner.image.pullPolicy",
    "runnerServiceAccount.annotations", "runnerServiceAccount.rbac.", "securityContext", "service.", "serviceAccount.annotations",
    "terminationGracePeriodSeconds", "tolerations", "uninstall.", "versionControlProvider.",
];

fn schema() -> Value {
    let path = crate::helm::root().join("charts/agents/values.schema.json");
    let text = std::fs::read_to_string(path).expect("there is a schema");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The names of all values of a schema, or of those that a values file sets.
fn leaves(
    of: &Value,
    keys: fn(&Value) -> Option<&serde_json::Map<String, Value>>,
    prefix: &str,
    all: &mut BTreeSet<String>,
) {
    match keys(of) {
        Some(inner) if !inner.is_empty() => {
            for (key, value) in inner {
                let name = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                leaves(value, keys, &name, all);
            }
        }
        _ if of.get("const").is_some() => {}
        _ => {
            all.insert(prefix.to_owned());
        }
    }
}

#[test]
fn every_value_is_in_the_table_or_has_no_variable() {
    let mut known = BTreeSet::new();
    leaves(
        &schema(),
        |schema| schema["properties"].as_object(),
        "",
        &mut known,
    );
    assert!(known.len() > 200, "{known:?}");
    let mut shown: BTreeSet<String> = rows().into_iter().map(|(path, ..)| path.to_owned()).collect();
    for (values, ..) in alone() {
        leaves(&values, Value::as_object, "", &mut shown);
    }
    let is_shown = |name: &str| {
        shown
            .iter()
            .any(|each| each == name || each.starts_with(&format!("{name}.")))
    };
    let has_none = |name: &str| {
        NO_VARIABLE
            .iter()
            .any(|each| name == *each || each.ends_with('.') && name.starts_with(each))
    };
    let missing: Vec<&String> = known
        .iter()
        .filter(|name| !is_shown(name) && !has_none(name))
        .collect();
    assert!(
        missing.is_empty(),
        "{missing:?}: add a row that shows their variable, or name them in NO_VARIABLE"
    );
    let unknown: Vec<&&str> = NO_VARIABLE
        .iter()
        .filter(|each| {
            !known
                .iter()
                .any(|name| name == *each || each.ends_with('.') && name.starts_with(*each))
        })
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} is no value");
}

/// A number that the program would refuse at its start is refused before anything is installed.
#[test]
fn bounds_of_the_schema_are_those_of_the_program() {
    let (schema, reference) = (schema(), reference());
    let mut compared = 0;
    for (path, _, name, ..) in rows() {
        let line = reference
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let Some((_, bounds)) = line.and_then(|line| line.split_once("| a whole number from ")) else {
            continue;
        };
        let (least, most) = bounds
            .split_once(" |")
            .and_then(|(bounds, _)| bounds.split_once(" to "))
            .expect("the reference has both bounds");
        let value = path.split('.').fold(&schema, |at, key| &at["properties"][key]);
        let found = [&value["minimum"], &value["maximum"]].map(Value::to_string);
        assert_eq!(found, [least, most], "{path}, which becomes {name}");
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn what_is_empty_becomes_no_variable() {
    let variables = variables(&json!({}), "agents-controllers");
    for name in [
        "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS",
        "JANGAR_AGENT_RUNNER_IMAGE",
        "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_KEY",
        "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL",
        "DATABASE_URL",
    ] {
        assert!(!variables.contains_key(name), "{name}");
    }
}

#[test]
fn the_narrower_source_of_a_variable_wins() {
    let base = json!({
        "controlPlane": {"enabled": true, "env": {"vars": {"FOO": "control plane", "JANGAR_LOG": "debug"}}},
        "controllers": {"env": {"vars": {"FOO": "controllers", "BAR": 5_000_000}}},
        "database": {"url": "x"},
        "env": {"vars": {"FOO": "both", "BAR": "both", "BAZ": true, "JANGAR_AGENTRUN_ARTIFACTS_MAX": "7", "EXTRA": "vars"},
                "extra": [{"name": "EXTRA", "value": "extra"}]},
    });
    let expect = |workload: &str, expected: &[(&str, &str)]| {
        let variables = variables(&base, workload);
        for (name, text) in expected {
            assert_eq!(variables[*name].as_deref(), Some(*text), "{name} in {workload}");
        }
    };
    expect(
        "agents",
        &[
            ("FOO", "control plane"),
            ("BAR", "both"),
            ("BAZ", "true"),
            ("JANGAR_LOG", "debug"),
            ("JANGAR_AGENTRUN_ARTIFACTS_MAX", "7"),
            ("EXTRA", "extra"),
            ("JANGAR_MIGRATIONS", "auto"),
            // Its status tells what is looked after, here or elsewhere.
            ("JANGAR_AGENTS_CONTROLLER_ENABLED", "1"),
        ],
    );
    expect(
        "agents-controllers",
        &[
            ("FOO", "controllers"),
            ("BAR", "5000000"),
            ("JANGAR_LOG", "info"),
            ("JANGAR_AGENTS_CONTROLLER_ENABLED", "1"),
        ],
    );
}

#[test]
fn only_their_own_map_lifts_what_controllers_are_given() {
    let forced = [
        ("JANGAR_MIGRATIONS", "skip"),
        ("JANGAR_GRPC_ENABLED", "0"),
        ("JANGAR_CONTROL_PLANE_CACHE_ENABLED", "0"),
    ];
    let said = json!({"JANGAR_MIGRATIONS": "auto", "JANGAR_GRPC_ENABLED": "true", "JANGAR_CONTROL_PLANE_CACHE_ENABLED": "1"});
    let shared = variables(&json!({"env": {"vars": said}}), "agents-controllers");
    let own = variables(
        &json!({"controllers": {"env": {"vars": said}}}),
        "agents-controllers",
    );
    for (name, text) in forced {
        assert_eq!(shared[name].as_deref(), Some(text), "{name}");
        assert_eq!(own[name].as_deref(), said[name].as_str(), "{name}");
    }
}

#[test]
fn without_controllers_the_control_plane_does_their_work() {
    let custom = json!({"callbackUrl": "https://jangar.example.com", "keySecret": {"name": "k"}});
    let values = json!({"controllers": {"enabled": false}, "controller": {"customRuntime": custom}});
    let variables = variables(&values, "agents");
    for (name, text) in [
        ("JANGAR_AGENTS_CONTROLLER_ENABLED", "1"),
        ("JANGAR_ORCHESTRATION_CONTROLLER_ENABLED", "1"),
        ("JANGAR_SUPPORTING_CONTROLLER_ENABLED", "1"),
        ("JANGAR_ROLLOUT_ROLE_FILE", "/etc/jangar/pod/rollout-role"),
        ("JANGAR_CUSTOM_RUNTIME_CALLBACK_URL", "https://jangar.example.com"),
        ("JANGAR_GRPC_ENABLED", "true"),
        ("JANGAR_MIGRATIONS", "auto"),
    ] {
        assert_eq!(variables[name].as_deref(), Some(text), "{name}");
    }
}

/// The program reads what the chart writes: every value is legal to it, and no name is foreign.
#[test]
fn the_program_takes_what_the_chart_sets() {
    for (name, values) in values_files() {
        for object in rendered(&values) {
            if !["Deployment", "Rollout"].contains(&object["kind"].as_str().unwrap_or_default()) {
                continue;
            }
            let env = env_of(&object)
                .into_iter()
                .filter(|(name, _)| name != "JANGAR_LOG");
            let parsed = Settings::from_vars(env.filter_map(|(name, value)| Some((name, value?))))
                .unwrap_or_else(|mistakes| panic!("{name}: {mistakes}"));
            assert_eq!(
                parsed.unknown,
                Vec::<String>::new(),
                "{name}: the program does not know these"
            );
            // One file sets whatever there is, also what nobody reads yet.
            let (idle, warnings): (Vec<String>, Vec<String>) = parsed
                .warnings
                .into_iter()
                .partition(|warning| warning.contains("has no effect"));
            assert_eq!(warnings, Vec::<String>::new(), "{name}");
            let expected = if name == "everything" { TOLD_AT_START } else { &[] };
            let names: Vec<&str> = idle
                .iter()
                .filter_map(|warning| warning.split(' ').next())
                .collect();
            assert_eq!(names, expected, "{name}");
        }
    }
}

/// Settings that have no value of their own and are set with `env.vars`: README.md names them.
const BY_VARIABLE: &[&str] = &[
    "JANGAR_AGENTRUN_IMMUTABILITY_ENFORCED",
    "JANGAR_AGENT_RUNNER_BACKOFF_LIMIT",
    "JANGAR_AGENT_RUNNER_NATS_AUTH_PASSWORD_KEY",
    "JANGAR_AGENT_RUNNER_NATS_AUTH_SECRET_NAME",
    "JANGAR_AGENT_RUNNER_NATS_AUTH_USERNAME_KEY",
    "JANGAR_GITHUB_REPOS_ALLOWED",
    "JANGAR_GRPC_ADDRESS",
    "TEMPORAL_ADDRESS",
    "TEMPORAL_API_KEY_FILE",
    "TEMPORAL_NAMESPACE",
    "TEMPORAL_TLS",
    "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "TEMPORAL_TLS_CLIENT_KEY_PATH",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "TEMPORAL_TLS_SERVER_NAME",
];

/// What the chart sets because the seeds name it, and what ours has no use for: it always has caches, no account to name, and no supporting
/// controllers to switch.
const NOT_BUILT: &[&str] = &[
    "JANGAR_CONTROL_PLANE_CACHE_ENABLED",
    "JANGAR_PRIMITIVES_NAMESPACES",
    "JANGAR_SERVICE_ACCOUNT_NAME",
    "JANGAR_SUPPORTING_CONTROLLER_ENABLED",
];

/// What the chart sets for older values files, and the program says at its start that it has no effect.
const TOLD_AT_START: &[&str] = &[
    "JANGAR_SCHEDULE_RUNNER_IMAGE",
    "JANGAR_SCHEDULE_SERVICE_ACCOUNT",
    "JANGAR_SUPPORTING_CONTROLLER_NAMESPACES",
];

/// What is read by something else than the table of settings: the history, the log, the name of the process, the client of Kubernetes,
/// and whatever asks for certificates.
const READ_ELSEWHERE: &[&str] = &[
    "DATABASE_URL",
    "PGSSLROOTCERT",
    "SSL_CERT_DIR",
    "JANGAR_MIGRATIONS",
    "JANGAR_LOG",
    "JANGAR_POD_UID",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
];

/// What programs read beside the table of settings and the chart has no value for: README.md names them, too.
const BY_VARIABLE_ELSEWHERE: &[&str] = &[
    "JANGAR_BUILD_SHA",
    "JANGAR_BUILD_TIME",
    "JANGAR_CONTROL_PLANE_CACHE_CLUSTER",
    "JANGAR_DB_CA_CERT",
    "JANGAR_DB_LOG_TAIL_BYTES",
    "JANGAR_DB_POOL_SIZE",
    "JANGAR_GRPC_TOKEN",
    "JANGAR_SKIP_MIGRATIONS",
    "JANGAR_VERSION",
    "PGCONNECT_TIMEOUT_MS",
    "PGQUERY_TIMEOUT_MS",
    "PGSSLMODE",
];

/// The variables that stand in the code of the programs, as a text of their own. `JANGAR_BUILD` is one of the compiler.
fn named_in_code() -> BTreeSet<String> {
    let mut waiting: Vec<_> = ["controllers", "jangar", "server", "store", "temporal"]
        .map(|part| crate::helm::root().join("crates").join(part).join("src"))
        .into();
    let mut found = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let inner = std::fs::read_dir(&path).expect("it is a directory");
            waiting.extend(inner.map(|entry| entry.expect("it is readable").path()));
            continue;
        }
        let code = std::fs::read_to_string(&path).expect("it is text");
        let texts = code.split('"').filter(|text| {
            let prefixes = ["JANGAR_", "PG"];
            prefixes.iter().any(|prefix| text.starts_with(prefix))
                && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        });
        found.extend(texts.map(str::to_owned));
    }
    found.remove("JANGAR_BUILD");
    found
}

#[test]
fn what_programs_read_beside_their_settings_is_set_or_told() {
    let values = values();
    let set: BTreeSet<String> = variables(&values, "agents").into_keys().collect();
    let reference = reference();
    let readme = std::fs::read_to_string(crate::helm::root().join("charts/agents/README.md"))
        .expect("there is a README");
    let found = named_in_code();
    for name in &found {
        let known = set.contains(name)
            || reference.contains(&format!("| `{name}` |"))
            || READ_ELSEWHERE.contains(&name.as_str())
            || BY_VARIABLE_ELSEWHERE.contains(&name.as_str());
        assert!(
            known,
            "a program reads {name}: give the chart a value for it, or name it in README.md and here"
        );
    }
    for name in BY_VARIABLE_ELSEWHERE {
        assert!(found.contains(*name), "no program reads {name}");
        assert!(
            readme.contains(&format!("`{name}`")),
            "README.md does not name {name}"
        );
    }
}

#[test]
fn chart_and_program_know_the_same_names() {
    let values = values();
    let set: BTreeSet<String> = ["agents", "agents-controllers"]
        .into_iter()
        .flat_map(|workload| variables(&values, workload).into_keys())
        .collect();
    let reference = reference();
    let read: BTreeSet<&str> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.contains('_'))
        .collect();
    assert!(read.len() > 40, "{read:?}");
    let unset: Vec<&str> = read
        .iter()
        .copied()
        .filter(|name| !set.contains(*name) && !BY_VARIABLE.contains(name))
        .collect();
    assert!(
        unset.is_empty(),
        "the program reads {unset:?}, and the chart has no value for it: add one, or name it in BY_VARIABLE and in README.md"
    );
    let unread: Vec<&str> = set
        .iter()
        .map(String::as_str)
        .filter(|name| !read.contains(name))
        .filter(|name| {
            let known = [READ_ELSEWHERE, NOT_BUILT, TOLD_AT_START];
            !known.iter().any(|list| list.contains(name))
        })
        .collect();
    assert!(
        unread.is_empty(),
        "the chart sets {unread:?}, and no program reads it: take it out, or name it in NOT_BUILT"
    );
    let readme = std::fs::read_to_string(crate::helm::root().join("charts/agents/README.md"))
        .expect("there is a README");
    for name in BY_VARIABLE {
        assert!(
            readme.contains(&format!("`{name}`")),
            "README.md does not name {name}"
        );
    }
}
