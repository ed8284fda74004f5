//! What the API server refuses for good: it is not sent for ever, and nothing is lost over it.

use jangar_api::{
    agents::{agent_run::AgentRunStatus, agent_run_status::RunOutcome},
    condition::{CommonStatus, ConditionType},
    orchestration::{
        Orchestration,
        orchestration_run::{OrchestrationRun, StepStatus},
    },
    phase::{RunPhase, StepPhase},
    reason::Reason,
    values::{AnyMap, FreeForm, Int32, Timestamp},
};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{
    life::controllers,
    stage::{Props, Stage, act, cluster_with_kinds, idle, phase_of},
    tap::{Answer, Tap, failure},
};
use crate::support::{seconds, settle};

const PATCH: &str = "PATCH agentruns/a/status";
const REFUSED: &str = "jangar_statuses_refused_total{controller=\"AgentRun\"}";

/// An end with more in it than its phase.
fn ended() -> AgentRunStatus {
    let outputs = json!({ "answer": 42 });
    AgentRunStatus {
        common: CommonStatus {
            updated_at: Some(Timestamp("2026-03-01T10:00:01Z".parse().unwrap())),
            ..CommonStatus::default()
        },
        phase: Some(RunPhase::Succeeded),
        finished_at: Some(Timestamp("2026-03-01T10:00:00Z".parse().unwrap())),
        outcome: Some(RunOutcome {
            exit_code: Some(Int32::from(0)),
            outputs: outputs.as_object().cloned().map(FreeForm),
            ..RunOutcome::default()
        }),
        ..AgentRunStatus::default()
    }
}

/// A driver that reports the end of a run to an API server which refuses the first so many statuses.
async fn refusing(code: u16, times: usize) -> Stage {
    let tap = Tap::new();
    let mut left = times;
    tap.answer(move |request| match request {
        PATCH if left > 0 => {
            left -= 1;
            failure(code, "Invalid", &json!({}))
        }
        _ => Answer::Server,
    });
    Stage::on_tap(
        tap,
        async |props| {
            props.run("a", "coder").await;
        },
        |observed| match phase_of(observed) {
            None => act(vec![], Some(ended())),
            Some(_) => idle(),
        },
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_for_good_is_written_in_a_plainer_form() {
    for code in [400, 413, 422] {
        let stage = refusing(code, 1).await;

        assert_eq!(stage.tap.requests(), [PATCH, PATCH], "{code}");
        let run = stage.props().runs().get("a").await.unwrap();
        let status = run.status.unwrap();
        assert_eq!(status.phase, Some(RunPhase::Succeeded));
        assert_eq!(status.finished_at, ended().finished_at);
        let outcome = status.outcome.unwrap();
        assert_eq!(outcome.exit_code, Some(Int32::from(0)));
        assert_eq!(outcome.outputs, None);
        let warning = status.common.condition(&ConditionType::Warning).unwrap();
        assert_eq!(warning.reason, Reason::StatusRefused);
        assert!(
            warning.message.contains("the test says Invalid"),
            "{}",
            warning.message
        );
        assert_eq!(stage.counted(REFUSED), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_in_every_form_is_tried_again_rarely() {
    let stage = refusing(422, usize::MAX).await;

    tokio::time::sleep(seconds(3600)).await;

    let tries = stage.tap.requests().len();
    assert!((4..=30).contains(&tries), "{tries} in an hour");
    stage.tap.answer(|_| Answer::Server);
    stage.props().touch_run("a").await;
    tokio::time::sleep(seconds(1)).await;
    let run = stage.props().runs().get("a").await.unwrap();
    let outcome = run.status.unwrap().outcome.unwrap();
    assert!(outcome.outputs.is_some(), "nothing was lost");
}

#[tokio::test(start_paused = true)]
async fn a_field_that_nobody_knows_is_refused_by_the_api_server_and_not_dropped() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;

    let mut run = props.new_run("a", "coder");
    let config = json!({ "tolerations": [{ "key": "gpu", "operater": "Exists" }] });
    run.spec.runtime.config = config.as_object().cloned().map(AnyMap);
    props.runs().create(&PostParams::default(), &run).await.unwrap();
    settle().await;

    let status = props.runs().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase, Some(RunPhase::Failed));
    let invalid = status.common.condition(&ConditionType::InvalidSpec).unwrap();
    assert_eq!(invalid.reason, Reason::JobRejected);
    assert!(invalid.message.contains("operater"), "{}", invalid.message);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_the_api_server_cannot_make_for_long_is_told_and_its_slot_is_free_for_others() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let tap = Tap::new();
    tap.answer(|request| match request {
        "POST jobs" => failure(500, "InternalError", &json!({})),
        _ => Answer::Server,
    });
    let _controllers = controllers(&cluster, &tap, "one");
    settle().await;

    props.run("a", "coder").await;
    tokio::time::sleep(seconds(10)).await;

    let blocked = async || {
        let status = props.runs().get("a").await.unwrap().status.unwrap_or_default();
        status.common.condition(&ConditionType::Blocked).cloned()
    };
    let told = blocked().await.unwrap();
    assert_eq!(told.reason, Reason::JobForbidden);
    assert!(
        told.message.contains("the test says InternalError"),
        "{}",
        told.message
    );
    tap.forget();
    tokio::time::sleep(seconds(300)).await;
    let tries = tap.requests();
    assert!(
        (8..=60).contains(&tries.iter().filter(|request| *request == "POST jobs").count()),
        "{tries:?}"
    );
    assert!(
        !tries.iter().any(|request| request.starts_with("PATCH agentruns")),
        "it says so already: {tries:?}"
    );

    tap.answer(|_| Answer::Server);
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(props.job_names().await, ["a-job"]);
    assert_ne!(blocked().await.unwrap().reason, Reason::JobForbidden);
}

/// A run named `a` of steps that depend on nothing: one is over at once, and the others are runs of agents.
async fn orchestration(props: &Props<'_>, agents: &[&str]) {
    let agents = agents.iter().map(|name| {
        json!({
            "name": name, "kind": "AgentRun", "dependsOn": [], "agentRef": {"name": "coder"},
            "implementation": {"inline": {"text": "Do it."}},
        })
    });
    let half = json!({"name": "half", "kind": "Checkpoint", "dependsOn": []});
    let steps: Vec<_> = agents.chain([half]).collect();
    let object = |kind: &str, spec: serde_json::Value| {
        json!({
            "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec,
        })
    };
    let definitions: Api<Orchestration> = Api::default_namespaced(props.cluster.client());
    let definition = serde_json::from_value(object("Orchestration", json!({"steps": steps}))).unwrap();
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let runs: Api<OrchestrationRun> = Api::default_namespaced(props.cluster.client());
    let run = json!({"orchestrationRef": {"name": "a"}});
    let run = serde_json::from_value(object("OrchestrationRun", run)).unwrap();
    runs.create(&PostParams::default(), &run).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_child_that_the_api_server_cannot_make_for_long_is_told_and_the_rest_is_recorded() {
    // One is sent by itself, and two together.
    for agents in [&["one"][..], &["one", "two"]] {
        let cluster = cluster_with_kinds().await;
        let props = Props { cluster: &cluster };
        props.provider("shell").await;
        props.agent("coder", "shell").await;
        let tap = Tap::new();
        tap.answer(|request| match request {
            "POST agentruns" => failure(503, "ServiceUnavailable", &json!({})),
            _ => Answer::Server,
        });
        let _controllers = controllers(&cluster, &tap, "one");
        settle().await;

        orchestration(&props, agents).await;
        tokio::time::sleep(seconds(10)).await;

        let runs: Api<OrchestrationRun> = Api::default_namespaced(props.cluster.client());
        let step = async |name: &str| -> StepStatus {
            let status = runs.get("a").await.unwrap().status.unwrap();
            let found = status.step_statuses.into_iter().find(|step| step.name == name);
            found.unwrap()
        };
        assert_eq!(step("half").await.progress.phase, Some(StepPhase::Succeeded));
        for name in agents {
            let told = step(name).await;
            assert_eq!(told.reason, Some(Reason::ChildForbidden), "{name}");
            let message = told.message.unwrap();
            assert!(message.contains("the test says ServiceUnavailable"), "{message}");
        }

        tap.answer(|_| Answer::Server);
        tokio::time::sleep(seconds(60)).await;
        for name in agents {
            let told = step(name).await;
            assert_eq!(told.progress.phase, Some(StepPhase::Running), "{name}");
            assert_eq!(told.reason, None);
        }
    }
}
