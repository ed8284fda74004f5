//! AgentRuns on `jangar up`: real pods, real processes, and what becomes of them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    condition::ConditionType,
    phase::RunPhase,
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    objects::create,
    process::{PATIENCE, PAUSE, Setup, Up, eventually, numbers_of_processes_with, processes_with},
};

fn runs(client: &Client) -> Api<AgentRun> {
    Api::default_namespaced(client.clone())
}

/// A run with a provider that runs this shell script.
pub(crate) async fn script(client: &Client, name: &str, script: &str) -> AgentRun {
    agent(
        client,
        name,
        json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]}),
    )
    .await;
    create(client, run(name, json!({}))).await
}

/// An Agent with a provider of its own.
pub(crate) async fn agent(client: &Client, name: &str, provider: Value) {
    let kind = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        })
    };
    create::<jangar_api::agents::agent_provider::AgentProvider>(client, kind("AgentProvider", provider))
        .await;
    let spec = json!({"providerRef": {"name": name}});
    create::<jangar_api::agents::agent::Agent>(client, kind("Agent", spec)).await;
}

/// A run of the Agent of the same name, with these changes to its spec.
#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
pub(crate) fn run(name: &str, changes: Value) -> Value {
    let mut run = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {
            "agentRef": {"name": name},
            "implementation": {"inline": {"text": "Do it."}},
            "runtime": {"type": "job"},
        },
    });
    for (field, value) in changes.as_object().unwrap() {
        run["spec"][field] = value.clone();
    }
    run
}

/// Waits until the run has this phase, and returns its status.
pub(crate) async fn reached(client: &Client, name: &str, phase: &RunPhase) -> AgentRunStatus {
    let is = |run: Option<&AgentRun>| run.and_then(|run| run.status.as_ref()?.phase.as_ref()) == Some(phase);
    let waited = timeout(PATIENCE, await_condition(runs(client), name, is)).await;
    match waited {
        Ok(run) => run.unwrap().unwrap().status.unwrap(),
        Err(_) => {
            let run = runs(client).get(name).await.unwrap();
            panic!("{name} did not become {phase}: {:#?}", run.status)
        }
    }
}

fn said(status: &AgentRunStatus, type_: &ConditionType) -> (String, String) {
    let condition = status.common.condition(type_).unwrap_or_else(|| {
        panic!("{type_} is not set: {status:#?}");
    });
    (condition.reason.to_string(), condition.message.clone())
}

/// Waits for an Event of this reason about a run, and gives the reasons of all that there are. They are told when the work is done, so
/// that nothing else says when they are there.
async fn told(client: &Client, run: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let there = async {
        loop {
            let all = events.list(&ListParams::default()).await.unwrap();
            let about = all.iter().filter(|event| {
                event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(run)
            });
            let reasons: Vec<String> = about.filter_map(|event| event.reason.clone()).collect();
            if reasons.iter().any(|known| known == reason) {
                return reasons;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, there).await.unwrap()
}

async fn up() -> (tempfile::TempDir, Up, Client) {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    (directory, up, client)
}

#[tokio::test]
async fn an_agent_does_its_work_and_its_report_is_the_status() {
    let (_directory, up, client) = up().await;
    let script_text =
        "echo {\\\"summary\\\": \\\"done\\\", \\\"outputs\\\": {\\\"answer\\\": 42}} > $AGENT_OUTCOME_PATH";
    script(&client, "works", script_text).await;

    let status = reached(&client, "works", &RunPhase::Succeeded).await;

    let outcome = status.outcome.unwrap();
    assert_eq!(outcome.summary.as_deref(), Some("done"));
    assert_eq!(outcome.outputs.unwrap().0["answer"], json!(42));
    assert!(status.started_at.unwrap() <= status.finished_at.unwrap());
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let released = |job: Option<&Job>| {
        job.is_some_and(|job| {
            job.metadata.finalizers.is_none()
                && job
                    .spec
                    .as_ref()
                    .is_some_and(|spec| spec.ttl_seconds_after_finished == Some(600))
        })
    };
    timeout(PATIENCE, await_condition(jobs, "works-job", released))
        .await
        .unwrap()
        .unwrap();
    let about = told(&client, "works", "Completed").await;
    // That it was submitted is told unless it has ended before that.
    assert!(about.len() <= 2, "{about:?}");
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "it is read as a table")]
async fn bad_input_ends_the_run_and_says_what_to_do() {
    let (_directory, _up, client) = up().await;
    agent(&client, "fine", json!({"binary": "/bin/true"})).await;
    agent(
        &client,
        "no-binary",
        json!({"binary": "/there/is/no/such/program"}),
    )
    .await;
    agent(
        &client,
        "bad-template",
        json!({"binary": "/bin/true", "argsTemplate": ["{{ parameters.x"]}),
    )
    .await;
    let strict = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent", "metadata": {"name": "strict"},
        "spec": {"providerRef": {"name": "fine"}, "security": {"allowedSecrets": ["good"]}},
    });
    create::<jangar_api::agents::agent::Agent>(&client, strict).await;
    let big = "x".repeat(3000);
    let cases = [
        (
            "unknown-runtime",
            json!({"runtime": {"type": "temporal"}}),
            "UnsupportedRuntime",
            "spec.runtime.type",
        ),
        (
            "big-parameter",
            json!({"parameters": {"big": big}}),
            "ParameterValueTooLarge",
            "big",
        ),
        (
            "bad-config",
            json!({"runtime": {"type": "job", "config": {"tolerations": "all"}}}),
            "InvalidRuntimeConfig",
            "tolerations",
        ),
        (
            "template",
            json!({"agentRef": {"name": "bad-template"}}),
            "InvalidTemplate",
            "argsTemplate[0]",
        ),
        (
            "forbidden-secret",
            json!({"agentRef": {"name": "strict"}, "secrets": ["bad"]}),
            "SecretNotAllowed",
            "bad",
        ),
        (
            "binary",
            json!({"agentRef": {"name": "no-binary"}}),
            "JobFailed",
            "/there/is/no/such/program",
        ),
        (
            "volume",
            json!({"workload": {"volumes": [{"name": "v", "type": "pvc", "mountPath": "/v"}]}}),
            "InvalidVolume",
            "claimName",
        ),
        (
            "priority",
            json!({"runtime": {"type": "job", "config": {"priorityClassName": "system-node-critical"}}}),
            "PriorityClassNotAllowed",
            "JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED",
        ),
        (
            "spread-text",
            json!({"runtime": {"type": "job", "config": {"topologySpreadConstraints": "zone"}}}),
            "InvalidRuntimeConfig",
            "it must be a list; [] clears the default",
        ),
        (
            "spread-twice",
            spread(json!([zone(json!({})), zone(json!({"maxSkew": 2}))])),
            "JobRejected",
            "Duplicate value: \"{zone, ScheduleAnyway}\"",
        ),
        (
            "spread-domains",
            spread(json!([zone(json!({"minDomains": 2}))])),
            "JobRejected",
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ),
        (
            "spread-keys",
            spread(json!([zone(json!({
                "matchLabelKeys": ["team"],
                "labelSelector": {
                    "matchLabels": {"team": "a"}, "matchExpressions": [{"key": "team", "operator": "Exists"}],
                },
            }))])),
            "JobRejected",
            "exists in both matchLabelKeys and labelSelector",
        ),
    ];
    for (name, changes, _, _) in &cases {
        let mut run = run(name, changes.clone());
        if changes.get("agentRef").is_none() {
            run["spec"]["agentRef"]["name"] = json!("fine");
        }
        create::<AgentRun>(&client, run).await;
    }
    for (name, _, reason, word) in &cases {
        let status = reached(&client, name, &RunPhase::Failed).await;
        let (said_reason, message) = said(&status, &ConditionType::Failed);
        assert_eq!(said_reason, *reason, "{name}: {message}");
        assert!(message.contains(word), "{name}: {message}");
        assert!(status.finished_at.is_some(), "{name}");
        if *reason == "JobRejected" {
            assert_eq!(said(&status, &ConditionType::InvalidSpec).0, *reason, "{name}");
        }
    }
}

/// The settings of a run that is spread by these constraints.
#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
fn spread(constraints: Value) -> Value {
    json!({"runtime": {"type": "job", "config": {"topologySpreadConstraints": constraints}}})
}

/// A constraint with these changes.
#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
fn zone(changes: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    for (field, value) in changes.as_object().unwrap() {
        constraint[field] = value.clone();
    }
    constraint
}

/// Kubernetes refuses keys without a selector to add them to. The selector of all runs is one.
#[tokio::test]
async fn match_label_keys_need_no_selector_because_that_of_all_runs_is_filled_in() {
    let (_directory, _up, client) = up().await;
    agent(&client, "keys", json!({"binary": "/bin/true"})).await;
    let constraints = json!([zone(json!({"matchLabelKeys": ["agents.proompteng.ai/agent"]}))]);
    create::<AgentRun>(&client, run("keys", spread(constraints))).await;
    reached(&client, "keys", &RunPhase::Succeeded).await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let job = jobs.get("keys-job").await.unwrap();
    let pod = job.spec.unwrap().template.spec.unwrap();
    let selector = pod.topology_spread_constraints.unwrap()[0].label_selector.clone();
    assert_eq!(
        serde_json::to_value(selector).unwrap(),
        json!({"matchExpressions": [{"key": "agents.proompteng.ai/agent-run", "operator": "Exists"}]})
    );
}

#[tokio::test]
async fn a_missing_reference_is_waited_for_and_released_when_it_appears() {
    let (_directory, _up, client) = up().await;
    create::<AgentRun>(&client, run("late", json!({}))).await;
    let status = reached(&client, "late", &RunPhase::Pending).await;
    let (reason, message) = said(&status, &ConditionType::Blocked);
    assert_eq!(reason, "MissingAgent");
    assert!(message.contains("late"), "{message}");
    agent(&client, "late", json!({"binary": "/bin/true"})).await;
    reached(&client, "late", &RunPhase::Succeeded).await;
}

#[tokio::test]
async fn a_missing_reference_ends_the_run_after_its_grace() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path())
        .variable("JANGAR_REFERENCE_GRACE_SECONDS", "1")
        .ready();
    let client = up.client().await;
    create::<AgentRun>(&client, run("lonely", json!({}))).await;
    let status = reached(&client, "lonely", &RunPhase::Failed).await;
    assert_eq!(said(&status, &ConditionType::InvalidSpec).0, "MissingAgent");
}

#[tokio::test]
async fn objects_of_one_file_may_come_in_any_order() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.yaml");
    let example = include_str!("../../../../examples/first-run.yaml");
    let mut documents: Vec<&str> = example.split("\n---\n").collect();
    documents.reverse();
    fs::write(&file, documents.join("\n---\n")).unwrap();
    let up = Setup::on(&directory.path().join("data"))
        .with(&["-f", file.to_str().unwrap()])
        .ready();
    let client = up.client().await;
    reached(&client, "fix-the-test-1", &RunPhase::Succeeded).await;
}

/// A script that goes on until it is stopped, with the run's UID in its command line.
#[tokio::test]
async fn what_a_secret_holds_is_in_nothing_that_is_kept_of_a_run() {
    let (_directory, _up, client) = up().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"},
        "stringData": {"DATABASE_URL": "postgres://me:hunter2-hunter2@db/app", "HANDLE": "quite-private"},
    });
    create::<Secret>(&client, secret).await;
    let report = "echo {\\\"summary\\\": \\\"used $DATABASE_URL\\\", \\\"outputs\\\": {\\\"who\\\": \\\"$HANDLE\\\", \
                  \\\"file\\\": \\\"$(cat /more/HANDLE)\\\"}} > $AGENT_OUTCOME_PATH; cat .agent/status.json";
    let provider = json!({"binary": "/bin/sh", "argsTemplate": ["-c", report]});
    agent(&client, "discreet", provider).await;
    let volume = json!({"name": "more", "type": "secret", "secretName": "database", "mountPath": "/more"});
    let changes = json!({"secrets": ["database"], "workload": {"volumes": [volume]}});
    create::<AgentRun>(&client, run("discreet", changes)).await;

    let status = reached(&client, "discreet", &RunPhase::Succeeded).await;

    let outcome = status.outcome.clone().unwrap();
    assert_eq!(outcome.summary.as_deref(), Some("used ***"));
    assert_eq!(
        outcome.outputs.unwrap().0,
        *json!({"who": "***", "file": "***"}).as_object().unwrap()
    );
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let statuses = pods.iter().map(|pod| json!(pod.status).to_string());
    for text in statuses.chain([json!(status).to_string()]) {
        assert!(
            !text.contains("hunter2") && !text.contains("quite-private"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_program_in_the_home_directory_runs_if_it_is_exposed_and_not_otherwise() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tools = directory.path().join("home/tools");
    fs::create_dir_all(&tools).unwrap();
    let tool = tools.join("agent");
    fs::write(
        &tool,
        "#!/bin/sh\necho > \"$0.mark\" || echo {} > $AGENT_OUTCOME_PATH\n",
    )
    .unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let provider = json!({"binary": tool});
    let home = directory.path().join("home");
    let setup = |data: &str| Setup::on(&directory.path().join(data)).variable("HOME", home.to_str().unwrap());

    let up = setup("hidden").ready();
    let client = up.client().await;
    agent(&client, "hidden", provider.clone()).await;
    create::<AgentRun>(&client, run("hidden", json!({}))).await;
    let status = reached(&client, "hidden", &RunPhase::Failed).await;
    let (_, message) = said(&status, &ConditionType::Failed);
    assert!(message.contains("with --expose"), "{message}");

    let up = setup("exposed")
        .with(&["--expose", tools.to_str().unwrap()])
        .ready();
    let client = up.client().await;
    agent(&client, "exposed", provider).await;
    create::<AgentRun>(&client, run("exposed", json!({}))).await;
    reached(&client, "exposed", &RunPhase::Succeeded).await;
    assert!(
        !tools.join("agent.mark").exists(),
        "it can be read and not changed"
    );
}

const ENDLESS: &str = "echo {{ agentRun.uid }}; while :; do sleep 1; done";

#[tokio::test]
async fn a_run_is_cancelled_when_its_process_is_dead_and_not_before() {
    let (_directory, _up, client) = up().await;
    let run = script(&client, "endless", ENDLESS).await;
    let uid = run.metadata.uid.unwrap();
    eventually("it works", || processes_with(&uid) > 0);
    let cancel = json!({"spec": {"cancel": true, "cancelReason": "enough"}});
    runs(&client)
        .patch("endless", &PatchParams::default(), &Patch::Merge(&cancel))
        .await
        .unwrap();

    let status = reached(&client, "endless", &RunPhase::Cancelled).await;

    assert_eq!(processes_with(&uid), 0);
    let (reason, message) = said(&status, &ConditionType::Cancelled);
    assert_eq!(reason, "Cancelled");
    assert!(message.contains("enough"), "{message}");
}

#[tokio::test]
async fn a_deleted_run_leaves_no_process_and_says_when_it_has_stopped() {
    let (_directory, _up, client) = up().await;
    let run = script(&client, "deleted", ENDLESS).await;
    let uid = run.metadata.uid.unwrap();
    eventually("it works", || processes_with(&uid) > 0);
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let job = jobs.get("deleted-job").await.unwrap().metadata.uid.unwrap();

    runs(&client)
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();

    timeout(PATIENCE, await_condition(jobs, "deleted-job", is_deleted(&job)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(processes_with(&uid), 0, "the Job is held until its pod is gone");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    told(&client, "deleted", "Stopped").await;
}

/// What a claim holds, on the disk of the machine.
async fn claim(client: &Client, data: &Path) -> PathBuf {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "kept"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim: PersistentVolumeClaim = create(client, claim).await;
    data.join("pods/claims").join(claim.metadata.uid.unwrap())
}

#[tokio::test]
async fn a_run_that_ends_while_the_program_is_dead_has_run_once_and_keeps_its_result() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = Setup::on(&data).ready();
    let client = up.client().await;
    let kept = claim(&client, &data).await;
    let work = ": {{ agentRun.uid }}; echo $$ >> /kept/starts; while [ ! -e /kept/go ]; do sleep 0.1; done; \
                echo {\\\"outputs\\\": {\\\"answer\\\": 42}} > $AGENT_OUTCOME_PATH; echo > /kept/done";
    let provider = json!({"binary": "/bin/sh", "argsTemplate": ["-c", work]});
    agent(&client, "survivor", provider).await;
    let volume = json!({"name": "kept", "type": "pvc", "claimName": "kept", "mountPath": "/kept"});
    let run: AgentRun = create(
        &client,
        run("survivor", json!({"workload": {"volumes": [volume]}})),
    )
    .await;
    let uid = run.metadata.uid.unwrap();
    let starts = || fs::read_to_string(kept.join("starts")).unwrap_or_default();
    eventually("it works", || !starts().is_empty());
    reached(&client, "survivor", &RunPhase::Running).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let uids = |pods: Vec<Pod>| {
        pods.into_iter()
            .filter_map(|pod| pod.metadata.uid)
            .collect::<Vec<_>>()
    };
    let before = uids(pods.list(&ListParams::default()).await.unwrap().items);
    up.kill();
    fs::write(kept.join("go"), "").unwrap();
    eventually("it ends by itself", || kept.join("done").exists());

    let again = Setup::on(&data).ready();
    let client = again.client().await;
    let status = reached(&client, "survivor", &RunPhase::Succeeded).await;

    assert_eq!(status.outcome.unwrap().outputs.unwrap().0["answer"], json!(42));
    assert_eq!(status.runtime_ref.unwrap().0["attempt"], json!(1));
    assert_eq!(starts().lines().count(), 1, "it was started twice: {}", starts());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let after = uids(pods.list(&ListParams::default()).await.unwrap().items);
    assert_eq!(before, after, "the same pod, and no other");
    assert_eq!(processes_with(&uid), 0);
}

#[tokio::test]
async fn a_killed_program_finds_its_run_again_and_does_not_run_it_twice() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = Setup::on(&data).ready();
    let client = up.client().await;
    let run = script(&client, "survivor", ENDLESS).await;
    let uid = run.metadata.uid.unwrap();
    eventually("it works", || processes_with(&uid) > 0);
    reached(&client, "survivor", &RunPhase::Running).await;
    // A process that was forked a moment ago has the words of its parent until it has words of its own.
    let mut before = numbers_of_processes_with(&uid);
    eventually("they are the same at two looks", || {
        let last = std::mem::replace(&mut before, numbers_of_processes_with(&uid));
        last == before
    });
    up.kill();
    let again = Setup::on(&data).ready();
    eventually("the same processes, and no others", || {
        numbers_of_processes_with(&uid) == before
    });
    let client = again.client().await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let cancel = json!({"spec": {"cancel": true}});
    runs(&client)
        .patch("survivor", &PatchParams::default(), &Patch::Merge(&cancel))
        .await
        .unwrap();
    let status = reached(&client, "survivor", &RunPhase::Cancelled).await;
    assert_eq!(status.runtime_ref.unwrap().0["attempt"], json!(1));
    let made = jobs.list(&ListParams::default()).await.unwrap();
    assert!(
        made.iter()
            .all(|job| job.metadata.name.as_deref() == Some("survivor-job")),
        "one Job, which may be gone already: {made:#?}"
    );
    assert_eq!(processes_with(&uid), 0);
}
