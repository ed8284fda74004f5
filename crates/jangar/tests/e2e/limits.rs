//! What the real API server and its controllers make of limits: how many pods of an Agent there are at once while leaders die, and
//! what is said of a Job that the API server does not take.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
};

use futures::StreamExt;
use jangar_api::{condition::ConditionType, labels, phase::RunPhase, reason::Reason};
use jangar_testkit::cluster::{Failure, Scene, until_list};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    ResourceExt,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    fake_nodes::Nodes,
    replica::Replica,
    replicas::{handed_over, hasty},
    rights,
    runs::phase,
    stage::{Stage, beside_others},
};

/// How many runs there are.
const RUNS: usize = 12;
/// How many of them may work at once.
const LIMIT: usize = 3;

/// How many pods of runs had not ended at once, at most, as a watch has seen it.
struct Peak {
    most: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peak {
    fn of(scene: &Scene) -> Self {
        let api = scene.api::<Pod>();
        let (sender, most) = watch::channel(0);
        let task = tokio::spawn(async move {
            let config = watcher::Config::default().labels(labels::AGENT_RUN);
            let mut events = pin!(watcher(api, config).default_backoff());
            let mut alive = BTreeSet::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                        let uid = pod.uid().unwrap_or_default();
                        if matches!(phase(&pod), "Succeeded" | "Failed") {
                            alive.remove(&uid);
                        } else {
                            alive.insert(uid);
                        }
                    }
                    Ok(Event::Delete(pod)) => {
                        alive.remove(&pod.uid().unwrap_or_default());
                    }
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
                sender.send_modify(|most| *most = (*most).max(alive.len()));
            }
        });
        Self { most, task }
    }
}

/// Waits until so many runs have a pod that has ended.
async fn ended(stage: &Stage<'_>, count: usize) -> Result<(), Failure> {
    let what = format!("to be {count} that have ended");
    until_list(&stage.scene.api::<Pod>(), labels::AGENT_RUN, &what, |pods| {
        pods.iter().filter(|pod| phase(pod) == "Succeeded").count() >= count
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn no_more_runs_work_at_once_than_may_although_the_leader_is_killed_twice() -> Result<(), Failure> {
    beside_others("limit-of-an-agent", async |stage| {
        let mut nodes = Nodes::of(stage, "3s");
        nodes.add("zone-a").await?;
        let settings = hasty(nodes.settings(stage.settings()))
            .with("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", &LIMIT.to_string());
        let peak = Peak::of(stage.scene);
        stage.agent("worker", "true").await?;
        let mut replicas = BTreeMap::<String, Replica>::new();
        for name in ["a", "b"] {
            let replica = stage.start(name, rights::ACCOUNT, None, &settings).await?;
            replicas.insert(replica.identity.clone(), replica);
        }
        let names: Vec<String> = (0..RUNS).map(|number| format!("run-{number}")).collect();
        for name in &names {
            stage.run("worker", name, &json!({})).await?;
        }

        for (number, count) in [1, RUNS / 2].into_iter().enumerate() {
            ended(stage, count).await?;
            let (leader, _) = handed_over(stage, "nobody").await?;
            let victim = replicas
                .remove(&leader)
                .ok_or_else(|| format!("{leader} is not one of ours"))?;
            victim.kill().await?;
            handed_over(stage, &leader).await?;
            let replica = stage
                .start(["a", "b"][number], rights::ACCOUNT, None, &settings)
                .await?;
            replicas.insert(replica.identity.clone(), replica);
        }
        for name in &names {
            stage.reached(name, &RunPhase::Succeeded).await?;
        }
        let most = *peak.most.borrow();
        assert_eq!(most, LIMIT, "as many as may, and no more");
        nodes.remove_all().await
    })
    .await
}

/// A Job that spreads its pods by these constraints, which nobody makes.
fn job(name: &str, constraints: &Value) -> Result<Job, Failure> {
    let container = json!({"name": "main", "image": "none"});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [container], "topologySpreadConstraints": constraints,
        }}},
    }))?)
}

#[tokio::test]
async fn what_the_api_server_says_of_a_job_is_what_the_run_says() -> Result<(), Failure> {
    beside_others("rejected-jobs", async |stage| {
        let _controllers = stage.lead("one", &stage.settings()).await?;
        stage.agent("worker", "true").await?;
        let zone = |more: &Value| {
            let mut constraint = json!({
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"team": "a"}},
            });
            for (field, value) in more.as_object().into_iter().flatten() {
                constraint[field] = value.clone();
            }
            constraint
        };
        let cases = [
            ("twice", json!([zone(&json!({})), zone(&json!({"maxSkew": 2}))])),
            ("domains", json!([zone(&json!({"minDomains": 2}))])),
        ];
        let jobs = stage.scene.api::<Job>();
        for (name, constraints) in &cases {
            let dry = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let words = match jobs
                .create(&dry, &job(&format!("{name}-job"), constraints)?)
                .await
            {
                Err(kube::Error::Api(refused)) if refused.code == 422 => refused.message.clone(),
                other => return Err(format!("{name}: {other:?}").into()),
            };
            let (_, words) = words.split_once(" is invalid: ").ok_or("no words")?;

            let config = json!({"topologySpreadConstraints": constraints});
            let changes = json!({"runtime": {"type": "job", "config": config}});
            stage.run("worker", name, &changes).await?;
            stage.reached(name, &RunPhase::Failed).await?;
            let failed = stage.told(name, &ConditionType::Failed).await?;
            assert_eq!(failed.reason, Reason::JobRejected, "{}", failed.message);
            assert!(
                failed.message.contains(words),
                "{words:?} is not in {:?}",
                failed.message
            );
        }
        // Nobody asked twice.
        let user = rights::user(stage.scene, rights::ACCOUNT).name();
        let asked = stage.scene.bench().audit(&stage.scene.admin(), &user).await?;
        let jobs = asked
            .iter()
            .filter(|request| request.is_write() && request.resource() == "jobs");
        assert_eq!(jobs.count(), cases.len());
        Ok(())
    })
    .await
}
