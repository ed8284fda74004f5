//! Argo Workflows: its controller alone. Nothing runs on fake nodes, so its executor has no part in this.

use std::path::PathBuf;

use anyhow::Result;
use jangar_bench::results::Subject;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::{
    controller::Program,
    engine::{
        Cancellable, Chained, Ended, Engine, Graphed, IMAGE, ended_by_phase, lasting_node_selector,
        node_selector, tolerations,
    },
    orchestration::nodes,
    place::Place,
};

const VERSION: &str = "argoproj.io/v1alpha1";
/// The label of a pod with the name of its workflow.
const WORKFLOW: &str = "workflows.argoproj.io/workflow";

/// How the controller is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// By its defaults.
    Shipped,
    /// As fast as it can be made: one second is the least that it documents for its wait.
    Tuned,
}

#[derive(Debug)]
pub(crate) struct Argo {
    binary: PathBuf,
    profile: Profile,
}

impl Argo {
    pub(crate) fn new(binary: PathBuf, profile: Profile) -> Self {
        Self { binary, profile }
    }
}

fn pod() -> Value {
    json!({"name": "pod", "container": {"image": IMAGE, "command": ["true"]}})
}

fn workflow(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("tolerations".to_owned(), tolerations());
    }
    json!({"apiVersion": VERSION, "kind": "Workflow", "metadata": {"name": name}, "spec": spec})
}

/// Gives the kinds to the cluster. Their fields are not described, as in the manifests that Argo is installed with.
pub(crate) async fn install(place: &Place) -> Result<()> {
    let kinds = [
        ("Workflow", "Namespaced"),
        ("WorkflowTemplate", "Namespaced"),
        ("CronWorkflow", "Namespaced"),
        ("WorkflowTaskSet", "Namespaced"),
        ("WorkflowTaskResult", "Namespaced"),
        ("WorkflowArtifactGCTask", "Namespaced"),
        ("WorkflowEventBinding", "Namespaced"),
        ("ClusterWorkflowTemplate", "Cluster"),
    ];
    let definitions: Result<Vec<_>, _> = kinds
        .map(|(kind, scope)| definition(kind, scope))
        .into_iter()
        .collect();
    place.install(definitions?).await
}

fn definition(kind: &str, scope: &str) -> Result<CustomResourceDefinition, serde_json::Error> {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let subresources = if kind == "WorkflowTaskSet" {
        json!({"status": {}})
    } else {
        json!({})
    };
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.argoproj.io")},
        "spec": {
            "group": "argoproj.io", "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
}

impl Engine for Argo {
    fn subject(&self) -> Subject {
        match self.profile {
            Profile::Shipped => Subject::Argo,
            Profile::Tuned => Subject::ArgoTuned,
        }
    }

    fn furniture(&self) -> Vec<Value> {
        vec![json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workflow-controller-configmap"},
        })]
    }

    fn program(&self, namespace: &str) -> Option<Program> {
        let program = Program::new(&self.binary)
            .args([
                "--namespaced",
                "--namespace",
                namespace,
                "--executor-image",
                IMAGE,
            ])
            .envs([("LEADER_ELECTION_IDENTITY", "measured")]);
        Some(match self.profile {
            Profile::Shipped => program,
            Profile::Tuned => program
                .args(["--qps", "1000", "--burst", "2000"])
                .args(["--workflow-workers", "64", "--pod-cleanup-workers", "32"])
                .envs([("DEFAULT_REQUEUE_TIME", "1s")]),
        })
    }

    fn kind(&self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Workflow"))
    }

    fn run(&self, name: &str) -> Value {
        workflow(
            name,
            &json!({"entrypoint": "pod", "nodeSelector": node_selector(), "templates": [pod()]}),
        )
    }

    fn ended(&self, run: &DynamicObject) -> Option<Ended> {
        ended_by_phase(run, "Succeeded", &["Failed", "Error"])
    }
}

impl Chained for Argo {
    fn chain(&self, name: &str, steps: u32) -> Vec<Value> {
        let step = |number| json!([{"name": format!("step-{number}"), "template": "pod"}]);
        let steps: Vec<_> = (0..steps).map(step).collect();
        vec![workflow(
            name,
            &json!({
                "entrypoint": "chain", "nodeSelector": node_selector(),
                "templates": [{"name": "chain", "steps": steps}, pod()],
            }),
        )]
    }

    fn label(&self) -> &'static str {
        WORKFLOW
    }

    /// With its defaults the controller waits for ten seconds at a time.
    fn chains_at_once(&self) -> usize {
        match self.profile {
            Profile::Shipped => 3,
            Profile::Tuned => 1,
        }
    }
}

impl Graphed for Argo {
    fn graph(&self, name: &str, layers: u32, width: u32) -> Vec<Value> {
        let tasks: Vec<_> = nodes(layers, width)
            .map(|(node, before)| json!({"name": node, "template": "pod", "dependencies": before}))
            .collect();
        vec![workflow(
            name,
            &json!({
                "entrypoint": "graph", "nodeSelector": node_selector(),
                "templates": [{"name": "graph", "dag": {"tasks": tasks}}, pod()],
            }),
        )]
    }
}

impl Cancellable for Argo {
    /// One workflow with all the pods. Argo stops pods by a program that it starts inside them, which fake nodes do not have:
    /// pods go only because the workflow says that they are to be removed when it has ended.
    fn lasting_runs(&self, pods: u32) -> Vec<Value> {
        let spec = json!({
            "entrypoint": "all", "nodeSelector": lasting_node_selector(), "podGC": {"strategy": "OnWorkflowCompletion"},
            "templates": [
                {"name": "all", "steps": [[{
                    "name": "each", "template": "pod", "withSequence": {"count": pods.to_string()},
                }]]},
                pod(),
            ],
        });
        vec![workflow("lasting", &spec)]
    }

    fn request(&self) -> Value {
        json!({"spec": {"shutdown": "Terminate"}})
    }
}
