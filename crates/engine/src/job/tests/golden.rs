//! Whole Jobs, as the API server gets them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{Place, name},
    World, as_json,
};

/// What a run can say about its work and its pod.
fn work() -> Value {
    json!({
        "secrets": ["agent-keys", "notes-db", "prompts"],
        "systemPromptRef": {"kind": "Secret", "name": "prompts", "key": "careful"},
        "parameters": {
            "repository": "example/adder", "headRef": "fix/adder", "stage": "{{ not a template }}", "cost": "5$",
        },
        "workload": {
            "image": "registry.example/agent@sha256:00",
            "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi"},
                "limits": {"memory": "4Gi", "ephemeral-storage": "10Gi"},
            },
            "volumes": [
                {"name": "workspace", "type": "pvc", "mountPath": "/workspace/", "claimName": "checkout"},
                {"name": "scratch", "type": "emptyDir", "mountPath": "/scratch", "medium": "Memory",
                 "sizeLimit": "1Gi"},
                {"name": "keys", "type": "secret", "mountPath": "/keys", "secretName": "agent-keys",
                 "readOnly": true},
            ],
        },
    })
}

/// What a run can say about its Job.
fn config() -> Value {
    json!({
        "serviceAccount": "builder",
        "nodeSelector": {"pool": "agents"},
        "tolerations": [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": {"agents.proompteng.ai/agent": "fixer"}},
             "minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore",
             "matchLabelKeys": ["agents.proompteng.ai/provider"]},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"noisy": "true"}},
            },
        }]}},
        "podSecurityContext": {
            "runAsNonRoot": true, "runAsUser": 2000, "fsGroup": 2000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "priorityClassName": "batch",
        "schedulerName": "default-scheduler",
        "imagePullSecrets": ["pull", {"name": "pull-too"}],
        "logRetentionSeconds": 3600,
        "workflowType": "a key of another runtime",
    })
}

/// A run that uses everything there is, and may.
fn maximal() -> World {
    let mut world = World::minimal()
        .with_run(&work())
        .with_config(&config())
        .with_settings(|settings| settings.policy.priority_classes_allowed = vec!["batch".to_owned()])
        .with_agent(&json!({
            "config": {"model": "large", "limits": {"turns": 40}},
            "env": [{"name": "EDITOR", "value": "ed"}, {"name": "MODEL", "value": "small"}],
            "defaults": {"timeoutSeconds": 1800},
            "security": {
                "allowedSecrets": ["agent-keys", "notes-db", "prompts", "pull", "pull-too"],
                "allowedServiceAccounts": ["builder"],
            },
        }))
        .with_provider(&json!({
            "binary": "/usr/local/bin/agent",
            "argsTemplate": ["--repository={{ parameters.repository }}", "--limits", "{{ agent.config.limits }}"],
            "envTemplate": {
                "AGENT_PROVIDER": "somebody else",
                "API_KEY": "$(PROVIDER_KEY)",
                "COST": "{{ parameters.cost }}",
                "EDITOR_OF_AGENT": "{{ agent.env.EDITOR }}",
                "MEMORY": "{{ memory.metadata.name }}",
                "MODEL": "{{ agent.config.model }}",
                "NOTHING": "{{ vcs.repository }}",
                "RUN": "{{ agentRun.namespace }}/{{ agentRun.name }} {{ agentRun.uid }}",
                "WORK": "{{ implementation.summary }}",
            },
            "inputFiles": [
                {"path": "/home/agent/.config/agent.toml", "content": "raw = \"{{ agent.name }}\"\n"},
                {"path": " ", "content": "passed over"},
                {"path": "/etc/agent/rules.md", "content": "Be careful.\n"},
            ],
            "outputArtifacts": [{"name": "patch", "path": "out/a.patch"}],
        }))
        .with_implementation(&json!({
            "summary": "Mend the adder",
            "source": {"provider": "github", "externalId": "example/adder#7", "url": "https://forge.example/7"},
            "acceptanceCriteria": ["The test passes."],
            "contract": {
                "requiredKeys": ["repository", "issueNumber", "branch"],
                "mappings": [{"from": "head", "to": "branch"}],
            },
        }))
        .with_memory("notes-db");
    world.attempt = 2;
    world
}

#[test]
fn the_job_of_a_minimal_run() {
    let built = World::minimal().built();

    assert_eq!(built.config_map, None);
    insta::assert_snapshot!(serde_json::to_string_pretty(&built.job).unwrap());
}

#[test]
fn the_job_of_a_maximal_run() {
    let built = maximal().built();

    assert_eq!(built.config_map, None);
    insta::assert_snapshot!(serde_json::to_string_pretty(&built.job).unwrap());
}

#[test]
fn the_documents_of_a_minimal_run() {
    let world = World::minimal();
    let documents = ["run.json", "agent-runner.json"].map(|item| world.document(item));

    insta::assert_snapshot!(serde_json::to_string_pretty(&documents).unwrap());
}

#[test]
fn the_documents_of_a_maximal_run() {
    let world = maximal();
    let documents = ["run.json", "agent-runner.json"].map(|item| world.document(item));

    insta::assert_snapshot!(serde_json::to_string_pretty(&documents).unwrap());
    assert_eq!(world.file("input-0"), "raw = \"{{ agent.name }}\"\n");
    assert_eq!(
        as_json(&world.built().contract),
        json!({"requiredKeys": ["repository", "issueNumber", "branch"]})
    );
}

#[test]
fn the_same_request_makes_the_same_job() {
    let world = maximal();

    assert_eq!(world.built(), world.built());
}

#[test]
fn each_attempt_has_names_of_its_own() {
    let of = |step, attempt| String::from(name("fix-1", Place { step, attempt }));
    assert_eq!(of(0, 1), "fix-1-job");
    assert_eq!(of(0, 2), "fix-1-job-attempt-2");
    assert_eq!(of(2, 1), "fix-1-step-2-attempt-1");
    let long = "x".repeat(63);
    let of = |step, attempt| name(&long, Place { step, attempt });
    assert_ne!(of(0, 1), of(0, 2));
    assert_ne!(of(1, 1), of(2, 1));
}

#[test]
fn nothing_but_the_attempt_differs_between_attempts() {
    let mut world = World::minimal();
    let mut first = world.built().job;
    world.attempt = 3;
    let third = world.built().job;

    first.metadata.name = Some("fix-1-job-attempt-3".to_owned());
    let annotations = first.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert("agents.proompteng.ai/attempt".to_owned(), "3".to_owned());
    assert_eq!(first, third);
}

#[test]
fn without_the_safeguard_there_is_no_finalizer() {
    let with = World::minimal();
    let without = with
        .clone()
        .with_settings(|settings| settings.safeguards.job_finalizer = false);

    assert_eq!(
        with.built().job.metadata.finalizers,
        Some(vec!["agents.proompteng.ai/job-status".to_owned()])
    );
    assert_eq!(without.built().job.metadata.finalizers, None);
}
