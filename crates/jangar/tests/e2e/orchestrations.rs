//! Orchestrations on a real node: a diamond, one of which a side fails, a cancel that all pods are gone for, a run that is deleted, and
//! one that waits for a signal.

use jangar_api::{
    agents::agent_run::AgentRun,
    condition::ConditionType,
    labels,
    orchestration::{
        Orchestration,
        orchestration_run::{OrchestrationRun, OrchestrationRunStatus},
    },
    phase::RunPhase,
    reason::Reason,
    signals::SignalDelivery,
};
use jangar_testkit::cluster::{Failure, until, until_gone, until_list, until_true};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    runs::processes_with,
    stage::{Stage, beside_others},
};

/// `a`, then `b` and `c` side by side, then `d`, all by the Agent `worker`.
fn diamond() -> Value {
    let step = |name: &str, depends_on: &[&str]| {
        json!({
            "name": name, "kind": "AgentRun", "dependsOn": depends_on, "agentRef": {"name": "worker"},
            "implementation": {"inline": {"text": "Do it."}}, "with": {"step": name},
        })
    };
    json!([
        step("a", &[]),
        step("b", &["a"]),
        step("c", &["a"]),
        step("d", &["b", "c"]),
    ])
}

async fn create<K>(stage: &Stage<'_>, kind: &str, name: &str, spec: &Value) -> Result<(), Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    }))?;
    stage
        .scene
        .api::<K>()
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

/// An Agent that runs this script, and a run of the diamond called `dag`.
async fn begin(stage: &Stage<'_>, script: &str) -> Result<(), Failure> {
    stage.agent("worker", script).await?;
    create::<Orchestration>(stage, "Orchestration", "diamond", &json!({"steps": diamond()})).await?;
    let spec = json!({"orchestrationRef": {"name": "diamond"}});
    create::<OrchestrationRun>(stage, "OrchestrationRun", "dag", &spec).await
}

/// Waits until the run stands like this, and returns its status.
async fn reached(
    stage: &Stage<'_>,
    what: &str,
    is: impl Fn(&OrchestrationRunStatus) -> bool,
) -> Result<OrchestrationRunStatus, Failure> {
    let runs = stage.scene.api::<OrchestrationRun>();
    let run = until(&runs, "dag", what, |run| run.status.as_ref().is_some_and(&is)).await?;
    Ok(run.status.ok_or("the status is gone")?)
}

fn phases(status: &OrchestrationRunStatus) -> Vec<String> {
    let steps = status.step_statuses.iter();
    steps
        .map(|step| {
            let phase = step.progress.phase.as_ref().map(ToString::to_string);
            format!("{} {}", step.name, phase.unwrap_or_default())
        })
        .collect()
}

/// The pods of all children of the run.
async fn pods(stage: &Stage<'_>) -> Result<Vec<Pod>, Failure> {
    let selector = ListParams::default().labels(labels::AGENT_RUN);
    Ok(stage.scene.api::<Pod>().list(&selector).await?.items)
}

/// Works on the first step and never ends the others. The namespace is in it so that its processes can be found on this machine.
fn stubborn(stage: &Stage<'_>) -> String {
    format!(
        "[ {{{{ parameters.step }}}} = a ] && exit 0; trap '' TERM; while :; do sleep 1; done; : {}",
        stage.namespace()
    )
}

/// Waits until both sides of the diamond have a process at work.
async fn both_sides_work(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.working("dag-b-1", 1).await?;
    stage.working("dag-c-1", 1).await?;
    until_true("both agents to have begun", async || {
        Ok::<_, Failure>(processes_with(stage.namespace()) >= 2)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_diamond_runs_in_its_order_on_a_real_node() -> Result<(), Failure> {
    beside_others("dag-diamond", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        let script = "echo '{\"outputs\": {\"done\": \"yes\"}}' > $AGENT_OUTCOME_PATH";
        begin(stage, script).await?;

        let status = reached(stage, "to end", |status| {
            status.phase.as_ref().is_some_and(RunPhase::is_terminal)
        })
        .await?;

        assert_eq!(status.phase, Some(RunPhase::Succeeded), "{:?}", status.common);
        assert_eq!(
            phases(&status),
            ["a Succeeded", "b Succeeded", "c Succeeded", "d Succeeded"]
        );
        let at = |step: usize| {
            let progress = &status.step_statuses[step].progress;
            let started = progress.started_at.expect("it started").0;
            (started, progress.finished_at.expect("it ended").0)
        };
        assert!(at(0).1 <= at(1).0.min(at(2).0), "a before b and c");
        assert!(at(1).1.max(at(2).1) <= at(3).0, "b and c before d");
        // Every end is recorded, so every child is let go.
        let children = stage.scene.api::<AgentRun>();
        let selector = format!("{}=dag", labels::ORCHESTRATION_RUN);
        let let_go =
            |runs: &[&AgentRun]| runs.len() == 4 && runs.iter().all(|run| run.metadata.finalizers.is_none());
        until_list(&children, &selector, "to be let go", let_go).await?;
        assert_eq!(pods(stage).await?.len(), 4, "one pod for each step");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_failing_side_of_a_diamond_skips_what_needs_it_and_lets_the_other_end() -> Result<(), Failure> {
    beside_others("dag-failing", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        begin(stage, "[ {{ parameters.step }} = b ] && exit 3; sleep 2").await?;

        let status = reached(stage, "to end", |status| {
            status.phase.as_ref().is_some_and(RunPhase::is_terminal)
        })
        .await?;

        assert_eq!(status.phase, Some(RunPhase::Failed), "{:?}", status.common);
        assert_eq!(
            phases(&status),
            ["a Succeeded", "b Failed", "c Succeeded", "d Skipped"]
        );
        let skipped = &status.step_statuses[3];
        assert_eq!(skipped.reason, Some(Reason::DependencyFailed));
        assert_eq!(skipped.caused_by.as_deref(), Some("b"));
        let failed = status
            .common
            .condition(&ConditionType::Failed)
            .expect("it is told");
        assert_eq!(failed.reason, Reason::AgentRunFailed, "{}", failed.message);
        let children = stage.scene.api::<AgentRun>();
        let selector = format!("{}=dag", labels::ORCHESTRATION_RUN);
        let let_go =
            |runs: &[&AgentRun]| runs.len() == 3 && runs.iter().all(|run| run.metadata.finalizers.is_none());
        until_list(&children, &selector, "to be let go", let_go).await?;
        assert_eq!(pods(stage).await?.len(), 3, "none for the step that was skipped");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cancelled_diamond_is_cancelled_when_all_its_pods_are_gone() -> Result<(), Failure> {
    beside_others("dag-cancelled", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        begin(stage, &stubborn(stage)).await?;
        both_sides_work(stage).await?;

        let patch = Patch::Merge(json!({"spec": {"cancel": true, "cancelReason": "changed my mind"}}));
        let runs = stage.scene.api::<OrchestrationRun>();
        runs.patch("dag", &PatchParams::default(), &patch).await?;

        let status = reached(stage, "to be Cancelled", |status| {
            let cancelled = status.phase == Some(RunPhase::Cancelled);
            if cancelled {
                assert_eq!(
                    processes_with(stage.namespace()),
                    0,
                    "Cancelled, and an agent is alive"
                );
            }
            cancelled
        })
        .await?;
        assert_eq!(
            phases(&status),
            ["a Succeeded", "b Cancelled", "c Cancelled", "d Skipped"]
        );
        let cancelled = status
            .common
            .condition(&ConditionType::Cancelled)
            .expect("it is told");
        assert_eq!(cancelled.reason, Reason::Cancelled, "{}", cancelled.message);
        assert_eq!(status.cancel_receipt.len(), 2);
        let complete = status
            .cancel_receipt
            .iter()
            .all(|receipt| receipt.asked_at.is_some() && receipt.gone_at.is_some());
        assert!(complete, "{:#?}", status.cancel_receipt);
        for run in ["dag-b-1", "dag-c-1"] {
            let selector = ListParams::default().labels(&format!("{}={run}", labels::AGENT_RUN));
            let left = stage.scene.api::<Pod>().list(&selector).await?;
            assert!(left.items.is_empty(), "Cancelled, and a pod of {run} is there");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_left_of_a_diamond_that_is_deleted_while_it_works() -> Result<(), Failure> {
    beside_others("dag-deleted", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        begin(stage, &stubborn(stage)).await?;
        both_sides_work(stage).await?;

        let runs = stage.scene.api::<OrchestrationRun>();
        runs.delete("dag", &DeleteParams::background()).await?;

        until_gone(&runs, "dag").await?;
        let children = stage.scene.api::<AgentRun>();
        for child in ["dag-a-1", "dag-b-1", "dag-c-1"] {
            until_gone(&children, child).await?;
        }
        until_list(
            &stage.scene.api::<Job>(),
            labels::AGENT_RUN,
            "to be gone",
            |jobs: &[&Job]| jobs.is_empty(),
        )
        .await?;
        assert_eq!(
            processes_with(stage.namespace()),
            0,
            "its Job is gone, and an agent is alive"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_signal_releases_the_step_that_waits_for_it() -> Result<(), Failure> {
    beside_others("dag-signal", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        stage.agent("worker", "exit 0").await?;
        let steps = json!([
            {"name": "wait", "kind": "SignalWait", "signalRef": {"name": "merged"}},
            {"name": "after", "kind": "AgentRun", "agentRef": {"name": "worker"},
             "implementation": {"inline": {"text": "Do it."}}},
        ]);
        create::<Orchestration>(stage, "Orchestration", "waits", &json!({"steps": steps})).await?;
        let spec = json!({"orchestrationRef": {"name": "waits"}});
        create::<OrchestrationRun>(stage, "OrchestrationRun", "dag", &spec).await?;
        reached(stage, "to wait for the signal", |status| {
            let first = status.step_statuses.first();
            first.is_some_and(|step| step.reason == Some(Reason::SignalPending))
        })
        .await?;
        assert_eq!(pods(stage).await?.len(), 0, "nothing starts before the signal");

        let delivery: SignalDelivery = serde_json::from_value(json!({
            "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery", "metadata": {"name": "merged-1"},
            "spec": {"signalRef": {"name": "merged"}, "payload": {"commit": "abc"}},
        }))?;
        let deliveries = stage.scene.api::<SignalDelivery>();
        deliveries.create(&PostParams::default(), &delivery).await?;

        let status = reached(stage, "to end", |status| {
            status.phase.as_ref().is_some_and(RunPhase::is_terminal)
        })
        .await?;
        assert_eq!(status.phase, Some(RunPhase::Succeeded), "{:?}", status.common);
        assert_eq!(phases(&status), ["wait Succeeded", "after Succeeded"]);
        let run = stage.scene.api::<OrchestrationRun>().get("dag").await?;
        let taken = deliveries.get("merged-1").await?.status;
        let by = taken.and_then(|status| status.consumed_by).ok_or("nobody has taken the delivery")?;
        assert_eq!((Some(by.run_uid), by.step.as_str()), (run.metadata.uid, "wait"));
        Ok(())
    })
    .await
}
