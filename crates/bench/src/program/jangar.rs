//! Jangar, as it is shipped: the program `jangar controllers`.

use std::path::PathBuf;

use anyhow::Result;
use jangar_api::{Kind, agents::agent_run::AgentRun, labels};
use jangar_bench::results::Subject;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::{
    controller::Program,
    engine::{
        Cancellable, Ended, Engine, IMAGE, ended_by_phase, lasting_node_selector, node_selector, tolerations,
    },
    place::Place,
};

const VERSION: &str = "agents.proompteng.ai/v1alpha1";

#[derive(Debug)]
pub(crate) struct Jangar {
    binary: PathBuf,
}

impl Jangar {
    pub(crate) fn new(binary: PathBuf) -> Self {
        Self { binary }
    }
}

/// Gives the kinds to the cluster.
pub(crate) async fn install(place: &Place) -> Result<()> {
    place.install(Kind::ALL.iter().map(|kind| kind.crd())).await
}

fn agent_run(name: &str, config: &Value) -> Value {
    json!({
        "apiVersion": VERSION,
        "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {
            "agentRef": {"name": "measured"},
            "implementation": {"inline": {"text": "Be measured."}},
            "runtime": {"type": "job", "config": config},
        },
    })
}

impl Engine for Jangar {
    fn subject(&self) -> Subject {
        Subject::Jangar
    }

    fn furniture(&self) -> Vec<Value> {
        vec![
            json!({
                "apiVersion": VERSION, "kind": "AgentProvider", "metadata": {"name": "measured"},
                "spec": {"binary": "/bin/true"},
            }),
            json!({
                "apiVersion": VERSION, "kind": "Agent", "metadata": {"name": "measured"},
                "spec": {"providerRef": {"name": "measured"}},
            }),
        ]
    }

    /// Jobs are kept, as Argo keeps pods: what is there when memory is measured is there for both.
    fn program(&self, namespace: &str) -> Option<Program> {
        let environment = [
            ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", namespace.to_owned()),
            ("JANGAR_POD_NAMESPACE", namespace.to_owned()),
            ("JANGAR_IMAGE", IMAGE.to_owned()),
            ("JANGAR_AGENT_IMAGE", IMAGE.to_owned()),
            ("JANGAR_AGENT_RUNNER_NODE_SELECTOR", node_selector().to_string()),
            ("JANGAR_AGENT_RUNNER_TOLERATIONS", tolerations().to_string()),
            ("JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", "0".to_owned()),
            // As many as are submitted may run, as with Argo.
            ("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", "100000".to_owned()),
            (
                "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE",
                "100000".to_owned(),
            ),
            (
                "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER",
                "100000".to_owned(),
            ),
            ("JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE", "0".to_owned()),
            ("JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER", "0".to_owned()),
        ];
        let program = Program::new(&self.binary).args(["controllers", "--listen", "127.0.0.1:0"]);
        Some(program.envs(environment))
    }

    fn kind(&self) -> ApiResource {
        ApiResource::erase::<AgentRun>(&())
    }

    fn run(&self, name: &str) -> Value {
        agent_run(name, &json!({}))
    }

    fn ended(&self, run: &DynamicObject) -> Option<Ended> {
        ended_by_phase(run, "Succeeded", &["Failed", "Cancelled"])
    }
}

impl Cancellable for Jangar {
    /// A run has one pod.
    fn lasting_runs(&self, pods: u32) -> Vec<Value> {
        let config = json!({"nodeSelector": lasting_node_selector()});
        let run = |number| agent_run(&format!("lasting-{number}"), &config);
        (0..pods).map(run).collect()
    }

    fn label(&self) -> &'static str {
        labels::AGENT_RUN
    }

    fn request(&self) -> Value {
        json!({"spec": {"cancel": true}})
    }
}
