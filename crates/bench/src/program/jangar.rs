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
        Cancellable, Chained, Ended, Engine, IMAGE, ended_by_phase, lasting_node_selector, node_selector,
        tolerations,
    },
    place::Place,
};

const VERSION: &str = "agents.proompteng.ai/v1alpha1";

/// How many Agents the runs are spread over, and how many runs may be under way at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) agents: u32,
    pub(crate) of_one_agent: u32,
    pub(crate) of_the_namespace: u32,
}

impl Limits {
    /// As many as are submitted may run, as with Argo.
    const NONE: Self = Self {
        agents: 1,
        of_one_agent: 100_000,
        of_the_namespace: 100_000,
    };
}

#[derive(Debug)]
pub(crate) struct Jangar {
    binary: PathBuf,
    limits: Limits,
    profile: Profile,
}

/// How it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As it is shipped.
    Shipped,
    /// It looks after its Jobs itself.
    Tuned,
}

impl Jangar {
    pub(crate) fn new(binary: PathBuf, profile: Profile) -> Self {
        Self {
            binary,
            limits: Limits::NONE,
            profile,
        }
    }

    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    pub(crate) fn limited(&self, limits: Limits) -> Self {
        Self {
            binary: self.binary.clone(),
            limits,
            profile: self.profile,
        }
    }

    /// The Agent of a run: they take turns by the number at the end of its name.
    fn agent_of(&self, run: &str) -> String {
        let number = run
            .rsplit('-')
            .next()
            .and_then(|number| number.parse::<u32>().ok());
        agent(number.unwrap_or_default() % self.limits.agents)
    }

    fn agent_run(&self, name: &str, runtime: &Value) -> Value {
        json!({
            "apiVersion": VERSION,
            "kind": "AgentRun",
            "metadata": {"name": name},
            "spec": {
                "agentRef": {"name": self.agent_of(name)},
                "implementation": {"inline": {"text": "Be measured."}},
                "runtime": runtime,
            },
        })
    }
}

fn agent(number: u32) -> String {
    format!("measured-{number}")
}

/// Gives the kinds to the cluster.
pub(crate) async fn install(place: &Place) -> Result<()> {
    place.install(Kind::ALL.iter().map(|kind| kind.crd())).await
}

impl Engine for Jangar {
    fn subject(&self) -> Subject {
        match self.profile {
            Profile::Shipped => Subject::Jangar,
            Profile::Tuned => Subject::JangarTuned,
        }
    }

    fn furniture(&self) -> Vec<Value> {
        let provider = json!({
            "apiVersion": VERSION, "kind": "AgentProvider", "metadata": {"name": "measured"},
            "spec": {"binary": "/bin/true"},
        });
        let agents = (0..self.limits.agents).map(|number| {
            json!({
                "apiVersion": VERSION, "kind": "Agent", "metadata": {"name": agent(number)},
                "spec": {"providerRef": {"name": "measured"}},
            })
        });
        std::iter::once(provider).chain(agents).collect()
    }

    /// Jobs are kept, as Argo keeps pods: what is there when memory is measured is there for both.
    fn program(&self, namespace: &str) -> Option<Program> {
        let environment = [
            ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", namespace.to_owned()),
            ("JANGAR_ORCHESTRATION_CONTROLLER_NAMESPACES", namespace.to_owned()),
            ("JANGAR_POD_NAMESPACE", namespace.to_owned()),
            ("JANGAR_IMAGE", IMAGE.to_owned()),
            ("JANGAR_AGENT_IMAGE", IMAGE.to_owned()),
            ("JANGAR_AGENT_RUNNER_NODE_SELECTOR", node_selector().to_string()),
            ("JANGAR_AGENT_RUNNER_TOLERATIONS", tolerations().to_string()),
            ("JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS", "0".to_owned()),
            (
                "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT",
                self.limits.of_one_agent.to_string(),
            ),
            (
                "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_NAMESPACE",
                self.limits.of_the_namespace.to_string(),
            ),
            (
                "JANGAR_AGENTS_CONTROLLER_CONCURRENCY_CLUSTER",
                "100000".to_owned(),
            ),
            ("JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE", "0".to_owned()),
            ("JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER", "0".to_owned()),
        ];
        let tuned = ("JANGAR_AGENT_RUNNER_JOB_CONTROLLER", "jangar".to_owned());
        let tuned = (self.profile == Profile::Tuned).then_some(tuned);
        let program = Program::new(&self.binary).args(["controllers", "--listen", "127.0.0.1:0"]);
        Some(program.envs(environment.into_iter().chain(tuned)))
    }

    fn kind(&self) -> ApiResource {
        ApiResource::erase::<AgentRun>(&())
    }

    fn run(&self, name: &str) -> Value {
        self.agent_run(name, &json!({"type": "job"}))
    }

    fn ended(&self, run: &DynamicObject) -> Option<Ended> {
        ended_by_phase(run, "Succeeded", &["Failed", "Cancelled"])
    }
}

impl Chained for Jangar {
    fn chain(&self, name: &str, steps: u32) -> Vec<Value> {
        let steps: Vec<_> = (0..steps)
            .map(|number| json!({"name": format!("step-{number}")}))
            .collect();
        let mut run = self.agent_run(name, &json!({"type": "workflow"}));
        run["spec"]["workflow"] = json!({"steps": steps});
        vec![run]
    }

    fn label(&self) -> &'static str {
        labels::AGENT_RUN
    }
}

impl Cancellable for Jangar {
    /// A run has one pod.
    fn lasting_runs(&self, pods: u32) -> Vec<Value> {
        let runtime = json!({"type": "job", "config": {"nodeSelector": lasting_node_selector()}});
        let run = |number| self.agent_run(&format!("lasting-{number}"), &runtime);
        (0..pods).map(run).collect()
    }

    fn request(&self) -> Value {
        json!({"spec": {"cancel": true}})
    }
}
