//! Whom a change concerns.

use jangar_api::{labels, orchestration::orchestration_run::OrchestrationRun};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::stage::{Props, Stage, idle, job};
use crate::support::settle;

#[tokio::test(start_paused = true)]
async fn an_agent_wakes_the_runs_that_refer_to_it_and_have_not_ended() {
    let stage = Stage::start(
        async |props| {
            props.agent("coder", "shell").await;
            props.agent("other", "shell").await;
            props.run("waits", "coder").await;
            props.run("elsewhere", "other").await;
            props.run("ended", "coder").await;
            props.end_run("ended").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    stage.props().touch_agent("coder").await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["waits"]);
}

/// However many there are, each change of a run is about that run alone, and nothing is asked about it that the caches show.
#[tokio::test(start_paused = true)]
async fn a_change_of_one_of_many_runs_looks_at_that_run_and_at_no_other() {
    const RUNS: usize = 400;
    let stage = Stage::start(
        async |props| {
            for number in 0..RUNS {
                let name = format!("run-{number}");
                props.run(&name, "coder").await;
                if number % 2 == 0 {
                    props.end_run(&name).await;
                } else {
                    props.job(&job(&format!("{name}-job"), &name)).await;
                }
            }
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    for number in 0..20 {
        stage.props().touch_run(&format!("run-{number}")).await;
        settle().await;
        assert_eq!(stage.planned_runs(), [format!("run-{number}")]);
        assert_eq!(stage.tap.requests(), [] as [&str; 0]);
        stage.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_appears_wakes_the_run_that_waited_for_it() {
    let stage = Stage::start(
        async |props| {
            props.run("waits", "coder").await;
            props.run("elsewhere", "other").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    stage.props().agent("coder", "shell").await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["waits"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_wakes_the_run_in_its_label() {
    let stage = Stage::start(
        async |props| {
            props.run("a", "coder").await;
            props.run("b", "coder").await;
        },
        |_| idle(),
    )
    .await;
    stage.forget();

    stage.props().job(&job("one", "b")).await;
    settle().await;

    assert_eq!(stage.planned_runs(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_run_is_gone_is_looked_at() {
    let stage = Stage::start(
        async |props| {
            props.job(&job("left-over", "a")).await;
        },
        |observed| {
            assert!(observed.run.is_none() && observed.jobs.contains_key("left-over"));
            idle()
        },
    )
    .await;

    assert_eq!(stage.planned_runs(), ["a"]);
    assert_eq!(
        stage.tap.requests(),
        ["GET agentruns/a"],
        "that the run is gone is proven"
    );
}

/// An OrchestrationRun, and two of its children. One of them was asked to stop.
async fn family(props: &Props<'_>) {
    let parents: Api<OrchestrationRun> = Api::default_namespaced(props.cluster.client());
    let parent = json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
        "metadata": {"name": "parent"}, "spec": {"orchestrationRef": {"name": "any"}},
    });
    let parent = serde_json::from_value(parent).expect("a run");
    let parent = parents.create(&PostParams::default(), &parent).await.unwrap();
    let uid = parent.metadata.uid.expect("a UID");
    let owner = json!([{
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun", "name": "parent", "uid": uid, "controller": true,
    }]);
    let labels = json!({labels::ORCHESTRATION_RUN: "parent"});
    for (name, stopped_by) in [("untold", None), ("told", Some(&uid))] {
        props.run(name, "coder").await;
        let annotations = json!({labels::STOPPED_BY: stopped_by});
        let metadata = json!({"ownerReferences": owner, "labels": labels, "annotations": annotations});
        edit(&props.runs(), name, json!({"metadata": metadata})).await;
    }
}

async fn edit<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_being_cancelled_wakes_the_children_that_it_has_not_told() {
    let stage = Stage::start(
        async |props| {
            family(props).await;
            props.run("elsewhere", "coder").await;
        },
        |_| idle(),
    )
    .await;
    let parents: Api<OrchestrationRun> = Api::default_namespaced(stage.props().cluster.client());
    for (phase, woken) in [("Running", vec![]), ("Cancelling", vec!["untold"])] {
        stage.forget();

        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        let params = PatchParams::default();
        parents.patch_status("parent", &params, &status).await.unwrap();
        settle().await;

        assert_eq!(stage.planned_runs(), woken, "{phase}");
    }
}
