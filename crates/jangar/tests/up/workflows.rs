//! Workflows on `jangar up`: steps in real pods, one after the other.

use std::{fs, path::Path};

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, AgentRunStatus},
    },
    phase::{RunPhase, StepPhase},
    values::Int32,
};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    agent_runs::reached,
    objects::create,
    process::{Setup, eventually, processes_with},
};

/// The phases and attempts of the steps.
fn steps(status: &AgentRunStatus) -> Vec<(StepPhase, Option<i32>)> {
    let steps = &status.workflow.as_ref().unwrap().steps;
    let attempt = |number: Option<Int32>| number.map(Int32::get);
    steps
        .iter()
        .map(|step| {
            (
                step.progress.phase.clone().unwrap(),
                attempt(step.progress.attempt),
            )
        })
        .collect()
}

/// The first example of a page of the documentation.
fn example(page: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn the_example_of_the_documentation_hands_an_output_from_one_step_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("workflow.yaml");
    fs::write(&file, example("workflows.md")).unwrap();
    let up = Setup::on(&directory.path().join("data"))
        .with(&["-f", file.to_str().unwrap()])
        .ready();
    let client = up.client().await;

    let status = reached(&client, "plan-and-build", &RunPhase::Succeeded).await;

    assert_eq!(
        steps(&status),
        [(StepPhase::Succeeded, Some(1)), (StepPhase::Succeeded, Some(1))]
    );
    let first = &status.workflow.as_ref().unwrap().steps[0];
    assert_eq!(first.outputs.as_ref().unwrap().0["branch"], "fix/adder");
    assert_eq!(status.outcome.unwrap().outputs.unwrap().0["built"], "fix/adder");
    let jobs: Api<Job> = Api::default_namespaced(client);
    let jobs = jobs.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = jobs
        .iter()
        .filter_map(|job| job.metadata.name.as_deref())
        .collect();
    assert_eq!(
        names,
        [
            "plan-and-build-step-1-attempt-1",
            "plan-and-build-step-2-attempt-1"
        ]
    );
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn a_failed_step_is_tried_again_and_a_cancel_ends_the_one_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    let kind = |kind: &str, spec: serde_json::Value| {
        json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": "steps"}, "spec": spec,
        })
    };
    // The first step fails once; the second one never ends.
    let script = "case {{ step.index }}.{{ step.attempt }} in 1.1) exit 3;; 1.2) exit 0;; esac; \
                  echo {{ agentRun.uid }}; while :; do sleep 1; done";
    let provider = json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]});
    create::<AgentProvider>(&client, kind("AgentProvider", provider)).await;
    create::<Agent>(&client, kind("Agent", json!({"providerRef": {"name": "steps"}}))).await;
    let spec = json!({
        "agentRef": {"name": "steps"},
        "runtime": {"type": "workflow"},
        "workflow": {"steps": [
            {"name": "first", "retries": 1, "implementation": {"inline": {"text": "Do it."}}},
            {"name": "second", "implementation": {"inline": {"text": "Do that."}}},
            {"name": "third", "implementation": {"inline": {"text": "Do the rest."}}},
        ]},
    });
    let run: AgentRun = create(&client, kind("AgentRun", spec)).await;
    let uid = run.metadata.uid.unwrap();
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let at_second = |run: Option<&AgentRun>| {
        let workflow = run.and_then(|run| run.status.as_ref()?.workflow.as_ref());
        workflow.is_some_and(|workflow| workflow.steps[1].progress.phase == Some(StepPhase::Running))
    };
    let waited = kube::runtime::wait::await_condition(runs.clone(), "steps", at_second);
    tokio::time::timeout(crate::process::PATIENCE, waited)
        .await
        .unwrap()
        .unwrap();
    eventually("the second step works", || processes_with(&uid) > 0);

    let cancel = json!({"spec": {"cancel": true}});
    runs.patch("steps", &PatchParams::default(), &Patch::Merge(&cancel))
        .await
        .unwrap();

    let status = reached(&client, "steps", &RunPhase::Cancelled).await;
    assert_eq!(
        steps(&status),
        [
            (StepPhase::Succeeded, Some(2)),
            (StepPhase::Cancelled, Some(1)),
            (StepPhase::Skipped, None)
        ]
    );
    assert_eq!(processes_with(&uid), 0);
}
