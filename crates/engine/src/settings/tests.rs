//! The settings as a whole: what every variable does, and what is said when it cannot.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::agents::version_control_provider::{ForgeKind, TokenType};
use proptest::{collection, prelude::Strategy, prop_oneof, proptest, sample};
use serde_json::json;

use super::*;
use crate::as_given::AsGiven;

const REQUIRED_NODES: &str = r#"{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
    {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}}}"#;

/// A value for every variable, other than its default.
const ALL_SET: &[(&str, &str)] = &[
    ("JANGAR_AGENTS_CONTROLLER_ENABLED", "off"),
    ("JANGAR_ORCHESTRATION_CONTROLLER_ENABLED", "off"),
    ("JANGAR_ORCHESTRATION_CONTROLLER_NAMESPACES", "agents,drafts"),
    ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "*"),
    ("JANGAR_RBAC_CLUSTER_SCOPED", "Yes"),
    ("JANGAR_POD_NAMESPACE", "jangar"),
    ("JANGAR_LEADER_ELECTION_ENABLED", "0"),
    ("JANGAR_LEADER_ELECTION_LEASE_NAME", "another.lease"),
    ("JANGAR_LEADER_ELECTION_LEASE_NAMESPACE", "leases"),
    ("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "40"),
    ("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "25"),
    ("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "4"),
    ("JANGAR_ROLLOUT_ROLE_FILE", "/etc/pod/role"),
    ("JANGAR_REFERENCE_GRACE_SECONDS", "0"),
    (
        "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS",
        "1.2096e+06",
    ),
    (
        "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_DELETES_PER_MINUTE",
        "30",
    ),
    ("JANGAR_AGENTRUN_IMMUTABILITY_ENFORCED", "no"),
    ("JANGAR_ORCHESTRATION_CANCEL_ENABLED", "off"),
    ("JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS", "1500"),
    ("JANGAR_AGENTRUN_ARTIFACTS_MAX", "7"),
    ("JANGAR_AGENTRUN_ARTIFACTS_STRICT", "TRUE"),
    ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", "1"),
    ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE", "2"),
    ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER", "3"),
    ("JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_ENABLED", "true"),
    ("JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_DEFAULT", "4"),
    (
        "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES",
        r#"{"Team/App": 6, "team/free": 0}"#,
    ),
    ("JANGAR_AGENTS_CONTROLLER_QUEUE_NAMESPACE", "0"),
    ("JANGAR_AGENTS_CONTROLLER_QUEUE_REPO", "7"),
    ("JANGAR_AGENTS_CONTROLLER_QUEUE_CLUSTER", "8"),
    ("JANGAR_AGENTS_CONTROLLER_RATE_WINDOW_SECONDS", "90"),
    ("JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE", "9"),
    ("JANGAR_AGENTS_CONTROLLER_RATE_REPO", "0"),
    ("JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER", "11"),
    (
        "JANGAR_AGENTS_CONTROLLER_LABELS_REQUIRED",
        r#"["team", "example.com/cost"]"#,
    ),
    ("JANGAR_AGENTS_CONTROLLER_LABELS_ALLOWED", "team,example.com/*"),
    ("JANGAR_AGENTS_CONTROLLER_LABELS_DENIED", "*/secret"),
    (
        "JANGAR_AGENTS_CONTROLLER_IMAGES_ALLOWED",
        "registry.example.com/*",
    ),
    ("JANGAR_AGENTS_CONTROLLER_IMAGES_DENIED", r#"["*:latest"]"#),
    ("JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS", "root-token, ca-key"),
    (
        "JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED",
        "runner,builder",
    ),
    (
        "JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED",
        r#"["batch"]"#,
    ),
    ("JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED", "false"),
    ("JANGAR_AGENT_RUNNER_IMAGE", "registry.example.com/agent:1"),
    ("JANGAR_AGENT_IMAGE", "registry.example.com/older:1"),
    ("JANGAR_IMAGE", "registry.example.com/jangar:2"),
    ("JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT", "runner"),
    (
        "JANGAR_AGENT_RUNNER_NODE_SELECTOR",
        r#"{"kubernetes.io/os": "linux"}"#,
    ),
    (
        "JANGAR_AGENT_RUNNER_TOLERATIONS",
        r#"[{"key": "spot", "operator": "Exists"}]"#,
    ),
    (
        "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS",
        r#"[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]"#,
    ),
    ("JANGAR_AGENT_RUNNER_AFFINITY", REQUIRED_NODES),
    (
        "JANGAR_AGENT_RUNNER_POD_SECURITY_CONTEXT",
        r#"{"runAsUser": 1000}"#,
    ),
    ("JANGAR_AGENT_RUNNER_PRIORITY_CLASS", "batch"),
    ("JANGAR_AGENT_RUNNER_SCHEDULER_NAME", "packer"),
    (
        "JANGAR_AGENT_RUNNER_IMAGE_PULL_SECRETS",
        r#"["one", {"name": "two"}]"#,
    ),
    ("JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME", "codex-auth"),
    ("JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_KEY", "login.json"),
    (
        "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH",
        "/home/agent/.codex",
    ),
    ("JANGAR_AGENT_RUNNER_NATS_AUTH_SECRET_NAME", "nats"),
    ("JANGAR_AGENT_RUNNER_NATS_AUTH_USERNAME_KEY", "user"),
    ("JANGAR_AGENT_RUNNER_NATS_AUTH_PASSWORD_KEY", "pass"),
    ("JANGAR_AGENT_RUNNER_BACKOFF_LIMIT", "2"),
    ("JANGAR_AGENT_RUNNER_JOB_CONTROLLER", "jangar"),
    ("JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", "0"),
    ("JANGAR_AGENT_RUNNER_LOG_RETENTION_SECONDS", "86400"),
    (
        "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL",
        "https://jangar.example.com/",
    ),
    ("JANGAR_CUSTOM_RUNTIME_CALLBACK_LISTEN", "127.0.0.1:9000"),
    ("JANGAR_CUSTOM_RUNTIME_KEY_FILE", "/keys/callback key"),
    (
        "JANGAR_CUSTOM_RUNTIME_ALLOWED_ENDPOINTS",
        "https://*.example.com/agents, http://10.1.2.3:80",
    ),
    ("JANGAR_CUSTOM_RUNTIME_OPEN_NETWORKS", r#"["10.1.0.0/16", "::1"]"#),
    ("JANGAR_CUSTOM_RUNTIME_TIMEOUT_SECONDS", "60"),
    ("JANGAR_AGENTS_CONTROLLER_VCS_PROVIDERS_ENABLED", "off"),
    ("JANGAR_GITHUB_REPOS_ALLOWED", "example/*, other/adder"),
    (
        "JANGAR_AGENTS_CONTROLLER_VCS_DEPRECATED_TOKEN_TYPES",
        r#"{"gitlab": ["pat"]}"#,
    ),
    (
        "JANGAR_AGENTS_CONTROLLER_VCS_PR_RATE_LIMITS",
        r#"{"github": {"windowSeconds": 60, "maxRequests": 5}}"#,
    ),
    ("TEMPORAL_ADDRESS", "temporal.example.com:7233"),
    ("TEMPORAL_NAMESPACE", "agents"),
    ("TEMPORAL_TLS", "true"),
    ("TEMPORAL_TLS_SERVER_CA_CERT_PATH", "/keys/ca.pem"),
    ("TEMPORAL_TLS_SERVER_NAME", "temporal"),
    ("TEMPORAL_TLS_CLIENT_CERT_PATH", "/keys/own.pem"),
    ("TEMPORAL_TLS_CLIENT_KEY_PATH", "/keys/own.key"),
    ("TEMPORAL_API_KEY_FILE", "/keys/api"),
    ("JANGAR_GRPC_ENABLED", "off"),
    ("JANGAR_GRPC_HOST", "0.0.0.0"),
    ("JANGAR_GRPC_PORT", "50052"),
    ("JANGAR_GRPC_ADDRESS", "0.0.0.0:50053"),
    ("JANGAR_PROMETHEUS_METRICS_ENABLED", "no"),
    ("JANGAR_PROMETHEUS_METRICS_PATH", "/internal/metrics"),
    ("JANGAR_TLS_CERT_FILE", "/tls/tls.crt"),
    ("JANGAR_TLS_KEY_FILE", "/tls/tls.key"),
    ("JANGAR_AGENTS_CONTROLLER_WEBHOOK_QUEUE_SIZE", "12"),
    ("JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_BASE_DELAY_SECONDS", "0"),
    ("JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_DELAY_SECONDS", "13"),
    ("JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_ATTEMPTS", "14"),
];

fn read(vars: &[(&str, &str)]) -> Result<Parsed, Mistakes> {
    Settings::from_vars(
        vars.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn words<C: FromIterator<String>>(words: &[&str]) -> C {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn nothing_set_means_the_defaults() {
    let expected = Parsed {
        settings: Settings::default(),
        unknown: Vec::new(),
        warnings: Vec::new(),
    };
    assert_eq!(read(&[]), Ok(expected.clone()));
    let blank: Vec<_> = ALL_SET.iter().map(|(name, _)| (*name, " \t")).collect();
    assert_eq!(read(&blank), Ok(expected));
}

#[test]
fn a_default_that_is_written_out_changes_nothing() {
    let unset = read(&[]);
    for variable in table::variables() {
        if let table::Unset::Is(value) = variable.unset {
            assert_eq!(
                read(&[(variable.name, value)]),
                unset,
                "{}={value}",
                variable.name
            );
        }
    }
}

#[test]
fn every_variable_changes_something_by_itself() {
    let names: BTreeSet<&str> = ALL_SET.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        table::variables().map(|variable| variable.name).collect(),
        "ALL_SET has every variable"
    );
    for (name, value) in ALL_SET {
        // Some say something only beside another one: what a Secret holds, for instance, without a Secret.
        let before = match *name {
            "JANGAR_RBAC_CLUSTER_SCOPED" => vec![("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "*")],
            "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_KEY"
            | "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH" => {
                vec![("JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME", "secret")]
            }
            "JANGAR_AGENT_RUNNER_NATS_AUTH_USERNAME_KEY" | "JANGAR_AGENT_RUNNER_NATS_AUTH_PASSWORD_KEY" => {
                vec![("JANGAR_AGENT_RUNNER_NATS_AUTH_SECRET_NAME", "secret")]
            }
            "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_DEFAULT"
            | "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES" => {
                vec![("JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_ENABLED", "true")]
            }
            _ => Vec::new(),
        };
        let after = [before.clone(), vec![(*name, *value)]].concat();
        assert_ne!(read(&before), read(&after), "{name}");
    }
}

#[test]
fn every_variable_is_read() {
    let expected = Settings {
        agents_enabled: false,
        orchestrations_enabled: false,
        orchestration_namespaces: Namespaces::These(BTreeSet::from([
            "agents".to_owned(),
            "drafts".to_owned(),
        ])),
        namespaces: Namespaces::All,
        lease: LeaseSettings {
            enabled: false,
            name: "another.lease".to_owned(),
            namespace: "leases".to_owned(),
            duration: Duration::from_secs(40),
            renew_deadline: Duration::from_secs(25),
            retry_period: Duration::from_secs(4),
            role_file: Some("/etc/pod/role".to_owned()),
        },
        runs: RunSettings {
            reference_grace: Duration::ZERO,
            retention: Some(Duration::from_hours(14 * 24)),
            deletions_per_minute: 30,
            immutability_enforced: false,
            cancel_enabled: false,
            cancel_timeout: Duration::from_millis(1500),
            artifacts_max: 7,
            artifacts_strict: true,
        },
        limits: LimitSettings {
            concurrency: ConcurrencyLimits {
                agent: 1,
                repositories: Some(RepositoryLimits {
                    default: Some(4),
                    overrides: BTreeMap::from([
                        ("team/app".to_owned(), Some(6)),
                        ("team/free".to_owned(), None),
                    ]),
                }),
                namespace: 2,
                cluster: 3,
            },
            queue: QueueLimits {
                namespace: None,
                repository: Some(7),
                cluster: Some(8),
            },
            rate: RateLimits {
                window: Duration::from_secs(90),
                namespace: Some(9),
                repository: None,
                cluster: Some(11),
            },
        },
        policy: PolicySettings {
            labels_required: words(&["team", "example.com/cost"]),
            labels_denied: words(&["*/secret"]),
            labels_allowed: words(&["team", "example.com/*"]),
            images_denied: words(&["*:latest"]),
            images_allowed: words(&["registry.example.com/*"]),
            blocked_secrets: words(&["ca-key", "root-token"]),
            service_accounts_allowed: words(&["runner", "builder"]),
            priority_classes_allowed: words(&["batch"]),
            pod_security_restricted: false,
        },
        runner: RunnerSettings {
            image: Some("registry.example.com/agent:1".to_owned()),
            install: Some(Install::from_image("registry.example.com/jangar:2".to_owned())),
            service_account: Some("runner".to_owned()),
            node_selector: BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]),
            tolerations: vec![given(&json!({"key": "spot", "operator": "Exists"}))],
            topology_spread_constraints: vec![given(
                &json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}),
            )],
            affinity: Some(given(&serde_json::from_str(REQUIRED_NODES).expect("JSON"))),
            pod_security_context: Some(given(&json!({"runAsUser": 1000}))),
            priority_class: Some("batch".to_owned()),
            scheduler_name: Some("packer".to_owned()),
            image_pull_secrets: words(&["one", "two"]),
            auth_secret: Some(AuthSecret {
                name: "codex-auth".to_owned(),
                key: "login.json".to_owned(),
                mount_path: "/home/agent/.codex".to_owned(),
            }),
            nats_auth: Some(NatsAuth {
                secret: "nats".to_owned(),
                username_key: "user".to_owned(),
                password_key: "pass".to_owned(),
            }),
            backoff_limit: 2,
            job_controller: JobController::Jangar,
            job_ttl_seconds: None,
            log_retention_seconds: 86_400,
        },
        custom: CustomSettings {
            allowed_endpoints: vec![
                "https://*.example.com/agents".parse().expect("a pattern"),
                "http://10.1.2.3:80".parse().expect("a pattern"),
            ],
            open_networks: vec![
                "10.1.0.0/16".parse().expect("a network"),
                "::1".parse().expect("a network"),
            ],
            callback_url: Some("https://jangar.example.com".to_owned()),
            callback_listen: "127.0.0.1:9000".parse().expect("an address"),
            key_file: Some("/keys/callback key".into()),
            timeout: Duration::from_mins(1),
        },
        vcs: VcsSettings {
            enabled: false,
            repositories_allowed: words(&["example/*", "other/adder"]),
            deprecated_token_types: BTreeMap::from([(ForgeKind::Gitlab, BTreeSet::from([TokenType::Pat]))]),
            rate_limits: BTreeMap::from([(
                ForgeKind::Github,
                PullRequestRate {
                    window_seconds: Some(60),
                    max_requests: Some(5),
                    backoff_seconds: None,
                },
            )]),
        },
        temporal: TemporalSettings {
            address: Some("temporal.example.com:7233".to_owned()),
            namespace: "agents".to_owned(),
            tls: true,
            server_ca_file: Some("/keys/ca.pem".into()),
            server_name: Some("temporal".to_owned()),
            client_cert_file: Some("/keys/own.pem".into()),
            client_key_file: Some("/keys/own.key".into()),
            api_key_file: Some("/keys/api".into()),
        },
        control_plane: ControlPlaneSettings {
            grpc_enabled: false,
            grpc_host: "0.0.0.0".parse().expect("an address"),
            grpc_port: 50_052,
            grpc_address: Some("0.0.0.0:50053".parse().expect("an address")),
            metrics_enabled: false,
            metrics_path: "/internal/metrics".to_owned(),
            tls: Some(TlsFiles {
                certificate: "/tls/tls.crt".into(),
                key: "/tls/tls.key".into(),
            }),
        },
        webhooks: WebhookSettings {
            queue_size: 12,
            pause_first: Duration::ZERO,
            pause_most: Duration::from_secs(13),
            attempts: 14,
        },
        safeguards: Safeguards::default(),
    };
    assert_eq!(read(ALL_SET).map(|parsed| parsed.settings), Ok(expected));
}

fn given<T: serde::de::DeserializeOwned + serde::Serialize>(json: &serde_json::Value) -> AsGiven<T> {
    AsGiven::read(json).expect("a legal value")
}

#[test]
fn a_field_that_this_version_does_not_know_passes_through_with_a_warning() {
    let parsed = read(&[
        (
            "JANGAR_AGENT_RUNNER_TOLERATIONS",
            r#"[{"key": "a"}, {"key": "b", "newer": 3}]"#,
        ),
        (
            "JANGAR_AGENT_RUNNER_AFFINITY",
            r#"{"nodeAffinity": {"newer": 1}}"#,
        ),
    ])
    .expect("it is no mistake");
    assert_eq!(parsed.settings.runner.tolerations[1].json()["newer"], json!(3));
    assert_eq!(parsed.warnings.len(), 2, "{:?}", parsed.warnings);
    for (warning, place) in parsed.warnings.iter().zip([
        "JANGAR_AGENT_RUNNER_TOLERATIONS has `[1].newer`",
        "JANGAR_AGENT_RUNNER_AFFINITY has `nodeAffinity.newer`",
    ]) {
        assert!(warning.starts_with(place), "{warning}");
    }
}

#[test]
fn what_is_not_set_falls_back_to_its_neighbour() {
    let lease = |vars: &[_]| read(vars).map(|parsed| parsed.settings.lease.namespace);
    let pod = ("JANGAR_POD_NAMESPACE", "pods");
    let own = ("JANGAR_LEADER_ELECTION_LEASE_NAMESPACE", "leases");
    assert_eq!(lease(&[]), Ok("agents".to_owned()));
    assert_eq!(lease(&[pod]), Ok("pods".to_owned()));
    assert_eq!(lease(&[pod, own]), Ok("leases".to_owned()));

    let image = |vars: &[_]| read(vars).map(|parsed| parsed.settings.runner.image);
    let older = ("JANGAR_AGENT_IMAGE", "older:1");
    let newer = ("JANGAR_AGENT_RUNNER_IMAGE", "newer:1");
    assert_eq!(image(&[]), Ok(None));
    assert_eq!(image(&[older]), Ok(Some("older:1".to_owned())));
    assert_eq!(image(&[older, newer]), Ok(Some("newer:1".to_owned())));
}

#[test]
fn zero_keeps_finished_runs_and_jobs_for_good() {
    let parsed = read(&[
        ("JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS", "0"),
        ("JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", "0"),
    ])
    .expect("both may be zero");
    assert_eq!(parsed.settings.runs.retention, None);
    assert_eq!(parsed.settings.runner.job_ttl_seconds, None);
    assert_eq!(parsed.warnings, Vec::<String>::new());
}

#[test]
fn every_mistake_is_listed_at_once() {
    let mistakes = read(&[
        ("JANGAR_AGENTS_CONTROLLER_ENABLED", "maybe"),
        ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "agents, Team_A"),
        ("JANGAR_POD_NAMESPACE", "two words"),
        ("JANGAR_LEADER_ELECTION_LEASE_NAME", "a/b"),
        ("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "3601"),
        ("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "10"),
        ("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "10"),
        ("JANGAR_REFERENCE_GRACE_SECONDS", "1m"),
        ("JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS", "-1"),
        ("JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS", "0"),
        ("JANGAR_AGENTRUN_ARTIFACTS_MAX", "2.5"),
        ("JANGAR_AGENTS_CONTROLLER_LABELS_REQUIRED", r#"["team", 7]"#),
        ("JANGAR_AGENTS_CONTROLLER_LABELS_DENIED", "a,,b"),
        (
            "JANGAR_AGENTS_CONTROLLER_IMAGES_ALLOWED",
            r#"["registry.example.com/*""#,
        ),
        ("JANGAR_AGENT_RUNNER_IMAGE", "an image"),
        ("JANGAR_AGENT_RUNNER_NODE_SELECTOR", r#"{"zone": 1}"#),
        (
            "JANGAR_AGENT_RUNNER_TOLERATIONS",
            r#"[{"key": "spot", "effect": 5}]"#,
        ),
        (
            "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS",
            r#"{"maxSkew": 1}"#,
        ),
        ("JANGAR_AGENT_RUNNER_AFFINITY", "none"),
        (
            "JANGAR_AGENT_RUNNER_POD_SECURITY_CONTEXT",
            "{\"runAsUser\":\n\"root\"}",
        ),
        ("JANGAR_AGENT_RUNNER_IMAGE_PULL_SECRETS", r#"[{"secret": "a"}]"#),
        ("JANGAR_AGENT_RUNNER_BACKOFF_LIMIT", "101"),
        ("JANGAR_AGENT_RUNNER_JOB_CONTROLLER", "us"),
        ("JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", "29"),
        ("JANGAR_AGENT_RUNNER_LOG_RETENTION_SECONDS", &"9".repeat(500)),
    ])
    .expect_err("none of these can be used");
    insta::assert_snapshot!(mistakes);
}

#[test]
fn values_that_contradict_each_other_are_mistakes() {
    let duration = "JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS";
    let renew = "JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS";
    let retry = "JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS";
    let cases: &[&[(&str, &str)]] = &[
        &[("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "*")],
        &[
            ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", r#"["*"]"#),
            ("JANGAR_RBAC_CLUSTER_SCOPED", "0"),
        ],
        &[
            ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "a,*"),
            ("JANGAR_RBAC_CLUSTER_SCOPED", "1"),
        ],
        &[("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "[]")],
        &[(duration, "20")],
        &[(renew, "5")],
        &[(retry, "20")],
        &[(duration, "10"), (renew, "10"), (retry, "10")],
    ];
    let said: Vec<String> = cases
        .iter()
        .map(|vars| read(vars).expect_err("a contradiction").to_string())
        .collect();
    insta::assert_snapshot!(said.join("\n\n"));
}

#[test]
fn a_value_that_cannot_be_read_is_not_compared_with_another() {
    let mistakes = read(&[
        ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "*"),
        ("JANGAR_RBAC_CLUSTER_SCOPED", "perhaps"),
        ("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "soon"),
        ("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "6"),
    ])
    .expect_err("two cannot be read");
    let named: Vec<_> = mistakes.iter().map(|mistake| mistake.variable).collect();
    assert_eq!(
        named,
        [
            "JANGAR_RBAC_CLUSTER_SCOPED",
            "JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS"
        ]
    );
}

#[test]
fn a_name_that_nobody_reads_is_reported() {
    let parsed = read(&[
        ("JANGAR_AGENT_RUNNER_IMAGES", "x"),
        ("JANGAR_", "x"),
        ("JANGAR_LEFT_BLANK", " "),
        ("JANGAR_GRPC_PORT", "tcp://10.0.0.1:50051"),
        ("JANGAR_AGENTS_CONTROLLER_WEBHOOK_QUEUE_SIZE", "50"),
        ("JANGAR_REFERENCE_GRACE_SECONDS", "5"),
        ("PATH", "/bin"),
    ])
    .expect("an unknown name is no mistake");
    assert_eq!(parsed.unknown, ["JANGAR_", "JANGAR_AGENT_RUNNER_IMAGES"]);
}

#[test]
fn a_limit_that_nothing_keeps_is_warned_about() {
    let overrides = (
        "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES",
        r#"{"team/app": 1}"#,
    );
    let warnings = |vars: &[(&str, &str)]| read(vars).expect("legal").warnings.len();
    assert_eq!(warnings(&[overrides]), 1);
    // What a chart writes where nobody has chosen anything.
    assert_eq!(
        warnings(&[
            ("JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES", "{}"),
            ("JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_DEFAULT", "0"),
        ]),
        0
    );
    assert_eq!(
        warnings(&[
            overrides,
            ("JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_ENABLED", "true")
        ]),
        0
    );
}

#[test]
fn limits_on_repositories_are_numbers_and_each_is_named_once() {
    for bad in [
        "[]",
        r#"{"a/b": "2"}"#,
        r#"{"a/b": -1}"#,
        r#"{"a/b": 1.5}"#,
        r#"{"a/b": 4294967296}"#,
        r#"{" ": 1}"#,
        r#"{"a/b": 1, "A/B": 2}"#,
        r#"{"a/b""#,
    ] {
        let name = "JANGAR_AGENTS_CONTROLLER_REPO_CONCURRENCY_OVERRIDES";
        let mistakes = read(&[(name, bad)]).expect_err(bad);
        assert_eq!(mistakes.iter().count(), 1, "{bad}");
    }
}

#[test]
fn a_job_that_should_outlive_its_run_is_warned_about() {
    let warnings = |job, run| {
        read(&[
            ("JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", job),
            ("JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS", run),
        ])
        .expect("a warning is no mistake")
        .warnings
    };
    assert_eq!(
        warnings("7200", "3600"),
        [
            "a finished Job should be kept for 7200 s (JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS) but its run only for 3600 s \
             (JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS), and the Job is deleted with the run: keep the run \
             longer, or the Job shorter"
        ]
    );
    for (job, run) in [("3600", "3600"), ("3600", "7200"), ("3600", "0"), ("0", "3600")] {
        assert_eq!(warnings(job, run), Vec::<String>::new(), "{job} {run}");
    }
}

/// Any text, and texts that are close to what some variable takes.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,40}",
        "[-+0-9.e]{1,12}",
        "[\\[\\]{}\":,0-9a-z* ]{0,24}",
        sample::select(ALL_SET).prop_map(|(_, value)| value.to_owned()),
        sample::select(ALL_SET).prop_flat_map(|(_, value)| {
            let length = value.chars().count();
            (0..=length).prop_map(|kept| value.chars().take(kept).collect())
        }),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => sample::select(ALL_SET).prop_map(|(name, _)| name.to_owned()),
        1 => "JANGAR_[A-Z_0-9]{0,12}",
    ]
}

proptest! {
    #[test]
    fn no_environment_is_too_strange(vars in collection::vec((name(), value()), 0..12)) {
        if let Err(mistakes) = Settings::from_vars(vars) {
            let count = mistakes.iter().count();
            assert!(count > 0);
            assert_eq!(mistakes.to_string().lines().count(), count, "one line each");
        }
    }
}
