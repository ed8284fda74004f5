//! Where the pods of runs go, and what becomes of a run whose node goes away: on nodes that exist in the API only, so that a
//! test can have as many as it likes, in zones of its own, and take them away.

use std::collections::BTreeMap;

use jangar_api::{
    agents::agent_run::AgentRun, condition::ConditionType, labels, phase::RunPhase, reason::Reason,
};
use jangar_testkit::cluster::{Failure, until, until_list};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    replica::Settings,
    runs::{phase, status},
    stage::{Stage, beside_others},
};

const ZONE: &str = "topology.kubernetes.io/zone";
/// Longer than any test takes.
const FOR_EVER: &str = "24h";

/// Nodes of one test. They are removed with it.
pub(crate) struct Nodes {
    api: Api<Node>,
    scene: String,
    run_for: String,
    names: Vec<String>,
}

/// Who plays the kubelet of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kubelet {
    Kwok,
    /// Nobody does, beyond that the node was ready once.
    Silent,
}

impl Nodes {
    /// No nodes yet. The pods of runs on them end well after `run_for`.
    pub(crate) fn of(stage: &Stage<'_>, run_for: &str) -> Self {
        Self {
            api: Api::all(stage.scene.admin()),
            scene: stage.namespace().to_owned(),
            run_for: run_for.to_owned(),
            names: Vec::new(),
        }
    }

    pub(crate) async fn add(&mut self, zone: &str) -> Result<String, Failure> {
        self.add_with(zone, Kubelet::Kwok).await
    }

    async fn add_with(&mut self, zone: &str, kubelet: Kubelet) -> Result<String, Failure> {
        let name = format!("{}-{}", self.scene, self.names.len() + 1);
        let annotations = match kubelet {
            Kubelet::Kwok => json!({"kwok.x-k8s.io/node": "fake"}),
            Kubelet::Silent => json!({}),
        };
        let room = json!({"cpu": "32", "memory": "256Gi", "pods": "1000"});
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "annotations": annotations,
                "labels": self.selector().as_object().cloned().into_iter().flatten()
                    .chain([(ZONE.to_owned(), json!(zone))]).collect::<serde_json::Map<_, _>>(),
            },
            "spec": {"taints": [{"key": "jangar.test/fake", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": room, "capacity": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Said", "message": ""}],
            },
        }))?;
        self.names.push(name.clone());
        self.api.create(&PostParams::default(), &node).await?;
        until(&self.api, &name, "to be ready", is_ready).await?;
        Ok(name)
    }

    /// The labels of these nodes and no other. The pods say by it too how long they run.
    fn selector(&self) -> Value {
        json!({"jangar.test/scene": self.scene, "jangar.test/run-for": self.run_for})
    }

    /// Settings that put the pods of runs on these nodes.
    pub(crate) fn settings(&self, settings: Settings) -> Settings {
        settings
            .with_json("JANGAR_AGENT_RUNNER_NODE_SELECTOR", &self.selector())
            .with_json(
                "JANGAR_AGENT_RUNNER_TOLERATIONS",
                &json!([{"key": "jangar.test/fake", "operator": "Exists"}]),
            )
    }

    pub(crate) async fn remove_all(&self) -> Result<(), Failure> {
        for name in &self.names {
            let removed = self.api.delete(name, &DeleteParams::default()).await;
            match removed {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<(), Failure> {
        let parameters = PatchParams::default();
        self.api
            .patch(name, &parameters, &Patch::Strategic(patch))
            .await?;
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let spec = node.spec.iter();
    let mut taints = spec.flat_map(|spec| spec.taints.iter().flatten());
    ready && !taints.any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

/// In which zones pods are.
async fn zones(nodes: &Nodes, pods: &[Pod]) -> Result<BTreeMap<String, usize>, Failure> {
    let mut zones = BTreeMap::new();
    for pod in pods {
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = nodes.api.get(&name.ok_or("a pod without a node")?).await?;
        *zones.entry(node.labels()[ZONE].clone()).or_default() += 1;
    }
    Ok(zones)
}

/// The constraint has no selector, which to Kubernetes means that no pod counts. To us it means the pods of all runs that have
/// not ended.
#[tokio::test]
async fn runs_are_spread_over_zones_by_a_constraint_without_a_selector() -> Result<(), Failure> {
    beside_others("spread", async |stage| {
        let mut nodes = Nodes::of(stage, FOR_EVER);
        for zone in ["zone-a", "zone-a"] {
            nodes.add(zone).await?;
        }
        let constraint = json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]);
        let settings = nodes
            .settings(stage.settings())
            .with_json("JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS", &constraint);
        let _controllers = stage.lead("one", &settings).await?;
        stage.agent("spread", "true").await?;
        let pods = stage.scene.api::<Pod>();

        // Three have ended in the one zone that there was. If they counted, the next would go elsewhere.
        for number in 1..=3 {
            let name = format!("done-{number}");
            stage.run("spread", &name, &json!({})).await?;
            let pod = stage.working(&name, 1).await?;
            let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &ended)
                .await?;
            stage.reached(&name, &RunPhase::Succeeded).await?;
        }
        for zone in ["zone-b", "zone-c"] {
            nodes.add(zone).await?;
        }

        for number in 1..=9 {
            stage
                .run("spread", &format!("spread-{number}"), &json!({}))
                .await?;
        }

        let all_work = |count: usize| {
            move |pods: &[&Pod]| pods.iter().filter(|pod| phase(pod) == "Running").count() == count
        };
        let all = until_list(&pods, labels::AGENT_RUN, "to be nine that work", all_work(9)).await?;
        let (alive, ended): (Vec<_>, Vec<_>) = all.into_iter().partition(|pod| phase(pod) == "Running");
        assert_eq!(zones(&nodes, &ended).await?, [("zone-a".to_owned(), 3)].into());
        let expected = ["zone-a", "zone-b", "zone-c"].map(|zone| (zone.to_owned(), 3));
        assert_eq!(zones(&nodes, &alive).await?, expected.into());

        // A zone has no more room. Two more runs go to the other two, and a third one would make them differ too much.
        let full = json!({"spec": {"unschedulable": true}});
        nodes.patch(&nodes.names[3], full).await?;
        for number in 10..=12 {
            stage
                .run("spread", &format!("spread-{number}"), &json!({}))
                .await?;
        }
        until_list(&pods, labels::AGENT_RUN, "to be eleven that work", all_work(11)).await?;
        let waiting = waiting(stage).await?;
        let blocked = stage.blocked(&waiting, &Reason::PodWaiting).await?;
        assert!(
            blocked.contains("didn't match pod topology spread constraints"),
            "the words of the scheduler: {blocked}"
        );
        // Its Job is there, so the run is on its way, and it is the pod that is pending.
        stage.reached(&waiting, &RunPhase::Running).await?;
        let label = format!("{}={waiting}", labels::AGENT_RUN);
        until_list(
            &pods,
            &label,
            "to be one that is pending",
            |pods| matches!(pods, [pod] if phase(pod) == "Pending"),
        )
        .await?;

        nodes
            .patch(&nodes.names[3], json!({"spec": {"unschedulable": null}}))
            .await?;
        until_list(&pods, labels::AGENT_RUN, "to be twelve that work", all_work(12)).await?;
        until(
            &stage.scene.api::<AgentRun>(),
            &waiting,
            "to be blocked no more",
            |run| !is_blocked(run),
        )
        .await?;
        nodes.remove_all().await
    })
    .await
}

/// One zone has most of the nodes. Whoever counts no pods puts most of them there, and so does the scheduler if it is not told
/// which pods to count.
#[tokio::test]
async fn runs_that_should_rather_be_spread_are_and_are_placed_also_where_they_cannot_be()
-> Result<(), Failure> {
    beside_others("spread-anyway", async |stage| {
        let mut nodes = Nodes::of(stage, FOR_EVER);
        for zone in ["zone-a", "zone-a", "zone-a", "zone-a", "zone-b", "zone-c"] {
            nodes.add(zone).await?;
        }
        let constraint =
            json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]);
        let settings = nodes
            .settings(stage.settings())
            .with_json("JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS", &constraint);
        let _controllers = stage.lead("one", &settings).await?;
        stage.agent("spread", "true").await?;
        let pods = stage.scene.api::<Pod>();
        let start = async |numbers: std::ops::RangeInclusive<usize>| {
            let count = *numbers.end();
            for number in numbers {
                let name = format!("spread-{number}");
                stage.run("spread", &name, &json!({})).await?;
            }
            let all = |pods: &[&Pod]| pods.iter().filter(|pod| phase(pod) == "Running").count() == count;
            let what = format!("to be {count} that work");
            Ok::<_, Failure>(until_list(&pods, labels::AGENT_RUN, &what, all).await?)
        };

        let nine = start(1..=9).await?;
        let expected = ["zone-a", "zone-b", "zone-c"].map(|zone| (zone.to_owned(), 3));
        assert_eq!(zones(&nodes, &nine).await?, expected.into());

        // Two zones have no more room, and the runs go where there is some all the same.
        for full in &nodes.names[4..] {
            nodes.patch(full, json!({"spec": {"unschedulable": true}})).await?;
        }
        let twelve = start(10..=12).await?;
        assert_eq!(zones(&nodes, &twelve).await?.get("zone-a"), Some(&6));
        nodes.remove_all().await
    })
    .await
}

/// The name of the one run that waits.
async fn waiting(stage: &Stage<'_>) -> Result<String, Failure> {
    let runs = stage.scene.api::<AgentRun>();
    let runs = until_list(&runs, "", "to be one that is blocked", |runs| {
        runs.iter().filter(|run| is_blocked(run)).count() == 1
    });
    let waiting = runs.await?.into_iter().find(is_blocked);
    Ok(waiting.ok_or("no run is blocked")?.name_any())
}

fn is_blocked(run: &AgentRun) -> bool {
    let status = run.status.as_ref();
    let condition = status.and_then(|status| status.common.condition(&ConditionType::Blocked));
    condition.is_some_and(|condition| condition.status.as_str() == "True")
}

/// The node falls silent, its pods are evicted without anybody there to stop them, and the administrator declares it out of
/// service. The second attempt runs on another node.
#[tokio::test]
async fn a_run_whose_node_goes_away_is_attempted_again() -> Result<(), Failure> {
    beside_others("node-gone", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        let gone_at_once = ["not-ready", "unreachable"].map(|taint| {
            json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 0})
        });
        let tolerations: Vec<_> = [json!({"key": "jangar.test/fake", "operator": "Exists"})]
            .into_iter()
            .chain(gone_at_once)
            .collect();
        let settings = nodes
            .settings(stage.settings())
            .with_json("JANGAR_AGENT_RUNNER_TOLERATIONS", &json!(tolerations));
        let _controllers = stage.lead("one", &settings).await?;
        // Only now: the cluster gives up a node that is silent for 40 seconds.
        let lost = nodes.add_with("zone-a", Kubelet::Silent).await?;
        stage.script("lost", "true").await?;
        let pods = stage.scene.api::<Pod>();
        let label = format!("{}=lost", labels::AGENT_RUN);
        let bound = until_list(&pods, &label, "to have a node", |pods| {
            pods.iter().any(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
        })
        .await?;
        assert_eq!(bound[0].spec.as_ref().and_then(|spec| spec.node_name.as_ref()), Some(&lost));
        let running = json!({"status": {"phase": "Running"}});
        let parameters = PatchParams::default();
        pods.patch_status(&bound[0].name_any(), &parameters, &Patch::Merge(running)).await?;

        let dead = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Dead"}]}});
        nodes.api.patch_status(&lost, &parameters, &Patch::Strategic(dead)).await?;
        until(&pods, &bound[0].name_any(), "to be evicted", |pod| pod.meta().deletion_timestamp.is_some()).await?;
        nodes.add("zone-b").await?;
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
        nodes.patch(&lost, json!({"spec": {"taints": [taint]}})).await?;

        let run = stage.reached("lost", &RunPhase::Succeeded).await?;
        let reference = status(&run).runtime_ref.as_ref().ok_or("no Job")?;
        assert_eq!(reference.0.get("attempt"), Some(&json!(2)));
        assert_eq!(reference.0.get("disruptions"), Some(&json!(1)));
        nodes.remove_all().await
    })
    .await
}
