//! How runs end on a real node: well, badly, for want of memory, evicted, cancelled, or with their Job taken away.

use jangar_api::{
    agents::agent_run::AgentRun, condition::ConditionType, labels, phase::RunPhase, reason::Reason,
    values::Int32,
};
use jangar_testkit::cluster::{
    Failure, JANGAR_IMAGE, until, until_deleted, until_gone, until_list, until_true,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod, events::v1::Event};
use kube::{
    ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, LogParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    runs::{phase, processes_with, status},
    stage::{Stage, beside_others, whoever_looks_after_jobs, with_own_jobs},
};

/// Works for as long as no test takes, and stops when it is told to.
const LONG: &str = "sleep 3600";

fn is_held(job: &Job) -> bool {
    job.finalizers()
        .iter()
        .any(|name| name == labels::JOB_STATUS_FINALIZER)
}

fn job_ended(job: &Job, condition: &str) -> bool {
    let status = job.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|each| each.type_ == condition && each.status == "True")
}

#[tokio::test]
async fn a_run_succeeds_with_what_its_agent_reports() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-succeeds", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        let script = "echo hello from the agent; cat $AGENT_RUN_SPEC > /dev/null || exit 9
            echo '{\"summary\": \"it is done\", \"outputs\": {\"answer\": 42}}' > $AGENT_OUTCOME_PATH";
        stage.script("works", script).await?;

        let run = stage.reached("works", &RunPhase::Succeeded).await?;

        let outcome = status(&run).outcome.as_ref().expect("an outcome");
        assert_eq!(outcome.exit_code, Some(Int32::from(0)));
        assert_eq!(outcome.summary.as_deref(), Some("it is done"));
        let outputs = outcome.outputs.as_ref().expect("outputs");
        assert_eq!(outputs.0.get("answer"), Some(&json!(42)));
        let pods = stage.scene.api::<Pod>();
        let label = format!("{}=works", labels::AGENT_RUN);
        let found = pods.list(&ListParams::default().labels(&label)).await?.items;
        assert_eq!(found.len(), 1, "one run, one pod");
        let spec = found[0].spec.as_ref().expect("a spec");
        assert_eq!(spec.node_name.as_deref(), Some(stage.scene.bench().real_node()?));
        let install = &spec.init_containers.as_ref().expect("an init container")[0];
        assert_eq!(install.image.as_deref(), Some(JANGAR_IMAGE));
        let log = pods.logs(&found[0].name_any(), &LogParams::default()).await?;
        assert!(log.contains("hello from the agent"), "{log}");
        // Its end is recorded, so the Job is let go, and kept for as long as the settings say.
        let job = until(&stage.scene.api::<Job>(), "works-job", "to be let go", |job| {
            !is_held(job)
        })
        .await?;
        let spec = job.spec.as_ref().expect("a spec");
        assert_eq!(spec.ttl_seconds_after_finished, Some(600));
        let reason_of = |event: &Event| {
            let about = event.regarding.as_ref().and_then(|about| about.uid.as_ref());
            (about == run.metadata.uid.as_ref())
                .then(|| event.reason.clone())
                .flatten()
        };
        // Events are told after what they tell of.
        let events = until_list(&stage.scene.api::<Event>(), "", "to tell of its end", |events| {
            events
                .iter()
                .any(|event| reason_of(event).as_deref() == Some("Completed"))
        })
        .await?;
        let reasons: Vec<_> = events.iter().filter_map(reason_of).collect();
        assert!(reasons.len() <= 2, "its beginning and its end: {reasons:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_run_fails_with_the_exit_code_of_its_agent() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-fails", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        stage.script("fails", "echo that will not do >&2; exit 3").await?;

        let run = stage.reached("fails", &RunPhase::Failed).await?;

        let outcome = status(&run).outcome.as_ref().expect("an outcome");
        assert_eq!(outcome.exit_code, Some(Int32::from(3)));
        assert_eq!(outcome.reason.as_deref(), Some("AgentFailed"));
        let failed = stage.told("fails", &ConditionType::Failed).await?;
        assert_eq!(failed.reason, Reason::JobFailed, "{}", failed.message);
        let jobs = stage.scene.api::<Job>();
        until(&jobs, "fails-job", "to be let go", |job| !is_held(job)).await?;
        assert_eq!(
            jobs.list(&ListParams::default()).await?.items.len(),
            1,
            "no retry was asked for"
        );
        Ok(())
    })
    .await
}

/// A second attempt is a second Job, and has the same run as its owner.
#[tokio::test]
async fn a_failed_attempt_is_followed_by_another_one() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-retries", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        let script = "case $(hostname) in *-attempt-2-*) exit 0;; esac; exit 4";
        stage.agent("retries", script).await?;
        let config = json!({"runtime": {"type": "job", "config": {"backoffLimit": 1}}});
        stage.run("retries", "retries", &config).await?;

        stage.reached("retries", &RunPhase::Succeeded).await?;

        let jobs = stage.scene.api::<Job>();
        for (name, end) in [("retries-job", "Failed"), ("retries-job-attempt-2", "Complete")] {
            until(&jobs, name, "to have ended and to be let go", |job| {
                job_ended(job, end) && !is_held(job)
            })
            .await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_run_whose_image_cannot_be_had_says_so_in_the_words_of_its_node() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-no-image", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        stage.agent("no-image", "true").await?;
        let workload = json!({"workload": {"image": "jangar.test/nowhere:1"}});
        stage.run("no-image", "no-image", &workload).await?;

        let blocked = stage.blocked("no-image", &Reason::ImageUnavailable).await?;

        assert!(blocked.contains("jangar.test/nowhere:1"), "{blocked}");
        stage.cancel("no-image").await?;
        stage.reached("no-image", &RunPhase::Cancelled).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_run_that_is_killed_for_its_memory_says_what_to_raise() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-memory", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        stage.agent("memory", "tail /dev/zero").await?;
        let workload = json!({"workload": {"resources": {"limits": {"memory": "64Mi"}}}});
        stage.run("memory", "memory", &workload).await?;

        let run = stage.reached("memory", &RunPhase::Failed).await?;

        let failed = stage.told("memory", &ConditionType::Failed).await?;
        assert!(failed.message.contains("OOMKilled"), "{}", failed.message);
        assert!(
            failed.message.contains("spec.workload.resources.limits.memory"),
            "{}",
            failed.message
        );
        let outcome = status(&run).outcome.as_ref().expect("an outcome");
        assert_eq!(outcome.exit_code, Some(Int32::from(137)));
        Ok(())
    })
    .await
}

/// An eviction is nobody's fault: there is a second attempt although no retries were asked for.
#[tokio::test]
async fn an_evicted_run_is_attempted_again() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-evicted", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        let script = format!("case $(hostname) in *-attempt-2-*) exit 0;; esac; {LONG}");
        stage.script("evicted", &script).await?;
        let pod = stage.working("evicted", 1).await?;

        let pods = stage.scene.api::<Pod>();
        pods.evict(&pod.name_any(), &EvictParams::default()).await?;

        let run = stage.reached("evicted", &RunPhase::Succeeded).await?;
        let reference = status(&run).runtime_ref.as_ref().expect("a Job");
        assert_eq!(reference.0.get("attempt"), Some(&json!(2)));
        assert_eq!(reference.0.get("disruptions"), Some(&json!(1)));
        assert_eq!(reference.0.get("failures"), None, "it is nobody's fault");
        let jobs = stage.scene.api::<Job>().list(&ListParams::default()).await?;
        assert_eq!(jobs.items.len(), 2, "one Job for each attempt");
        Ok(())
    })
    .await
}

/// A script that does not listen. The namespace is in it so that its process can be found on this machine.
fn stubborn(stage: &Stage<'_>) -> String {
    format!("trap '' TERM; while :; do sleep 1; done; : {}", stage.namespace())
}

/// Cancels a run that ignores SIGTERM, and holds that it is `Cancelled` only after its process has died.
async fn cancelled_for_certain(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.script("stubborn", &stubborn(stage)).await?;
    let pod = stage.working("stubborn", 1).await?;
    // The process of an agent starts a moment after its container.
    until_true("the agent to have begun", async || {
        Ok::<_, Failure>(processes_with(stage.namespace()) > 0)
    })
    .await?;

    stage.cancel("stubborn").await?;

    let (pods, pod) = (stage.scene.api::<Pod>(), pod.name_any());
    let runs = stage.scene.api::<AgentRun>();
    stage.reached("stubborn", &RunPhase::Cancelling).await?;
    until(&pods, &pod, "to be told to stop", |pod| {
        pod.metadata.deletion_timestamp.is_some()
    })
    .await?;
    assert_ne!(
        processes_with(stage.namespace()),
        0,
        "it does not listen, so it is still there"
    );
    // The last that is seen of the pod is that it is gone. The API server numbers all changes of a cluster in one order.
    let (gone, cancelled) = tokio::join!(
        until_deleted(&pods, &pod),
        until(&runs, "stubborn", "to be Cancelled", |run| {
            let cancelled =
                run.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&RunPhase::Cancelled);
            if cancelled {
                assert_eq!(
                    processes_with(stage.namespace()),
                    0,
                    "Cancelled, and the agent is still alive"
                );
            }
            cancelled
        })
    );
    let version =
        |version: Option<String>| -> Result<u64, Failure> { Ok(version.ok_or("no version")?.parse()?) };
    let (gone, cancelled) = (
        version(gone?.resource_version())?,
        version(cancelled?.resource_version())?,
    );
    assert!(
        gone < cancelled,
        "Cancelled in change {cancelled}, its pod gone in {gone}"
    );
    let condition = stage.told("stubborn", &ConditionType::Cancelled).await?;
    assert_eq!(condition.reason, Reason::Cancelled, "{}", condition.message);
    Ok(())
}

#[tokio::test]
async fn a_cancelled_agent_that_ignores_the_signal_is_dead_before_its_run_is_cancelled() -> Result<(), Failure>
{
    whoever_looks_after_jobs("run-stubborn", async |stage| {
        let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        cancelled_for_certain(stage).await
    })
    .await
}

/// Where a cancel has less time than the pod has grace, it takes the rest of the grace away, and the node kills the container.
#[tokio::test]
async fn a_cancel_with_little_time_shortens_the_grace() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-hurried", async |stage| {
        let settings = stage
            .on_the_real_node()?
            .with("JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS", "15000");
        let _controllers = stage.lead("one", &settings).await?;
        cancelled_for_certain(stage).await
    })
    .await
}

/// Deletes the Job of a run that works, and holds that the run tells who was at fault and that nothing goes on running.
async fn job_taken_away(stage: &Stage<'_>, parameters: &DeleteParams) -> Result<(), Failure> {
    let _controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
    stage
        .script("robbed", &format!("{LONG}; : {}", stage.namespace()))
        .await?;
    let pod = stage.working("robbed", 1).await?;
    let jobs = stage.scene.api::<Job>();

    jobs.delete("robbed-job", parameters).await?;

    stage.reached("robbed", &RunPhase::Failed).await?;
    assert_eq!(
        processes_with(stage.namespace()),
        0,
        "Failed, and the agent is still alive"
    );
    let failed = stage.told("robbed", &ConditionType::Failed).await?;
    assert_eq!(failed.reason, Reason::WorkflowJobDeleted, "{}", failed.message);
    assert!(
        failed.message.contains("its deletion was asked for at"),
        "{}",
        failed.message
    );
    until_gone(&jobs, "robbed-job").await?;
    until_gone(&stage.scene.api::<Pod>(), &pod.name_any()).await?;
    Ok(())
}

#[tokio::test]
async fn a_job_deleted_by_hand_ends_its_run_and_its_agent() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-job-deleted", async |stage| {
        job_taken_away(stage, &DeleteParams::background()).await
    })
    .await
}

/// What a DELETE without options does to Jobs: their pods are left alone, and go on.
#[tokio::test]
async fn a_job_deleted_without_its_pods_ends_its_run_and_its_agent() -> Result<(), Failure> {
    whoever_looks_after_jobs("run-job-orphans", async |stage| {
        job_taken_away(stage, &DeleteParams::default()).await
    })
    .await
}

/// With nobody there to record the end, somebody evicts the pod that we made, and Kubernetes removes pods that are evicted. Our
/// finalizer holds it. The Job tells how it went when that is recorded, and goes with its pod when the TTL controller says so.
#[tokio::test]
async fn the_end_of_a_pod_that_is_removed_while_the_controllers_are_away_is_not_lost() -> Result<(), Failure>
{
    with_own_jobs("away-own", async |stage| {
        let controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
        let script = format!("case $(hostname) in *-attempt-2-*) exit 0;; esac; {LONG}");
        stage.script("left", &script).await?;
        let pod = stage.working("left", 1).await?.name_any();
        stage.reached("left", &RunPhase::Running).await?;
        assert!(controllers.stop().await?.success());
        let pods = stage.scene.api::<Pod>();
        pods.evict(&pod, &EvictParams::default()).await?;
        let pod_ended = |pod: &Pod| matches!(phase(pod), "Succeeded" | "Failed");
        until(&pods, &pod, "to have ended, and to be held", |pod| {
            pod_ended(pod) && pod.metadata.deletion_timestamp.is_some()
        })
        .await?;
        let jobs = stage.scene.api::<Job>();
        let job = jobs.get("left-job").await?;
        assert!(
            !job_ended(&job, "Complete") && !job_ended(&job, "Failed"),
            "nobody was there to say so"
        );

        let _controllers = stage.lead("two", &stage.on_the_real_node()?).await?;

        let run = stage.reached("left", &RunPhase::Succeeded).await?;
        let reference = status(&run).runtime_ref.as_ref().expect("a Job");
        assert_eq!(reference.0.get("attempt"), Some(&json!(2)));
        assert_eq!(
            reference.0.get("disruptions"),
            Some(&json!(1)),
            "its node took it away"
        );
        let job = until(&jobs, "left-job", "to be let go", |job| !is_held(job)).await?;
        assert!(job_ended(&job, "Failed"), "{:?}", job.status);
        let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 1}}));
        jobs.patch("left-job", &PatchParams::default(), &patch).await?;
        until_gone(&jobs, "left-job").await?;
        until_gone(&pods, &pod).await?;
        Ok(())
    })
    .await
}

/// With nobody there to record the end, somebody lets Kubernetes remove the Job. Our finalizer holds it.
#[tokio::test]
async fn the_end_of_a_job_that_is_removed_while_the_controllers_are_away_is_not_lost() -> Result<(), Failure>
{
    for (name, script, condition, phase) in [
        ("away-well", "sleep 15", "Complete", RunPhase::Succeeded),
        ("away-badly", "sleep 15; exit 5", "Failed", RunPhase::Failed),
    ] {
        beside_others(name, async |stage| {
            let controllers = stage.lead("one", &stage.on_the_real_node()?).await?;
            stage.script("left", script).await?;
            stage.working("left", 1).await?;
            assert!(controllers.stop().await?.success());
            let jobs = stage.scene.api::<Job>();
            until(&jobs, "left-job", "to have ended", |job| {
                job_ended(job, condition)
            })
            .await?;
            let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 1}}));
            jobs.patch("left-job", &PatchParams::default(), &patch).await?;
            let label = format!("{}=left", labels::AGENT_RUN);
            until_list(&stage.scene.api::<Pod>(), &label, "to be gone", |pods| {
                pods.is_empty()
            })
            .await?;
            let job = jobs.get("left-job").await?;
            assert!(
                job.metadata.deletion_timestamp.is_some() && is_held(&job),
                "our finalizer holds it"
            );

            let _controllers = stage.lead("two", &stage.on_the_real_node()?).await?;

            let run = stage.reached("left", &phase).await?;
            let ends = &status(&run).common;
            let unread = ends.condition(&ConditionType::ResultUnavailable).is_some();
            assert_eq!(
                unread,
                phase == RunPhase::Succeeded,
                "what cannot be read is told: {ends:?}"
            );
            if phase == RunPhase::Failed {
                let failed = stage.told("left", &ConditionType::Failed).await?;
                assert_eq!(failed.reason, Reason::JobFailed, "{}", failed.message);
            }
            until_gone(&jobs, "left-job").await?;
            Ok(())
        })
        .await?;
    }
    Ok(())
}
