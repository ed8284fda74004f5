//! Pods on fake nodes end when and as their annotations say.

use jangar_testkit::cluster::{Failure, play, until, until_list};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{ResourceExt, api::PostParams};
use serde_json::{Value, json};

/// A Job with one pod, for which nothing but a fake node will do.
fn job(annotations: &Value) -> Job {
    let job = json!({
        "metadata": {"name": "played"},
        "spec": {"backoffLimit": 0, "template": {
            "metadata": {"annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"jangar.test/node": "fake"},
                "tolerations": [{"key": "jangar.test/fake", "operator": "Exists"}],
                "containers": [{"name": "main", "image": "jangar.test/anything:1"}],
            },
        }},
    });
    serde_json::from_value(job).expect("a Job")
}

fn ended(job: &Job, condition: &str) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|each| each.type_ == condition && each.status == "True")
}

#[tokio::test]
async fn a_pod_without_annotations_succeeds_at_once() -> Result<(), Failure> {
    play("played-well", async |scene| {
        let jobs = scene.api::<Job>();
        jobs.create(&PostParams::default(), &job(&json!({}))).await?;
        until(&jobs, "played", "to be complete", |job| ended(job, "Complete")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_fails_with_the_code_and_the_words_of_its_annotations() -> Result<(), Failure> {
    play("played-badly", async |scene| {
        let jobs = scene.api::<Job>();
        let annotations = json!({
            "jangar.test/run-for": "1s",
            "jangar.test/exit-code": "42",
            "jangar.test/message": "{\"why\": \"on purpose\"}",
        });
        jobs.create(&PostParams::default(), &job(&annotations)).await?;

        let pods = scene.api::<Pod>();
        let pods = until_list(&pods, "job-name=played", "to have failed", |pods| {
            pods.first().is_some_and(|pod| phase(pod) == "Failed")
        })
        .await?;
        let status = pods[0].status.as_ref().expect("a status");
        let containers = status.container_statuses.as_ref().expect("containers");
        let end = containers[0]
            .state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let end = end.expect("an end");
        assert_eq!(
            (end.exit_code, end.message.as_deref()),
            (42, Some("{\"why\": \"on purpose\"}"))
        );
        assert!(pods[0].name_any().starts_with("played-"));
        until(&jobs, "played", "to have failed", |job| ended(job, "Failed")).await?;
        Ok(())
    })
    .await
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}
