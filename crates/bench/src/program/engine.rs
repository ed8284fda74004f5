//! What the benchmark has to know of a subject to run work on it.

use jangar_bench::results::Subject;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use crate::controller::Program;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly(String),
}

/// Something that runs pods for those who create an object of its kind.
pub(crate) trait Engine {
    fn subject(&self) -> Subject;

    /// The objects that its namespace needs before the first run.
    fn furniture(&self) -> Vec<Value>;

    /// The controller of its kind, unless the cluster has it anyway.
    fn program(&self, namespace: &str) -> Option<Program>;

    /// The kind of its runs.
    fn kind(&self) -> ApiResource;

    /// A run of one pod, which ends at once.
    fn run(&self, name: &str) -> Value;

    /// Whether a run says that it has ended.
    fn ended(&self, run: &DynamicObject) -> Option<Ended>;
}

/// An engine whose runs can have several steps, one after the other.
pub(crate) trait Chained: Engine {
    /// What is created for a run of this many pods, one after the other.
    fn chain(&self, name: &str, steps: u32) -> Vec<Value>;

    /// The label of a pod that has the name of its run.
    fn label(&self) -> &'static str;

    /// Whether a pod with that label belongs to a run.
    fn owns(&self, pod: &Pod, run: &str) -> bool {
        pod.labels().get(self.label()).is_some_and(|name| name == run)
    }

    /// How many chains are measured at once: more than one where they do not disturb each other.
    fn chains_at_once(&self) -> usize {
        1
    }
}

/// An engine whose runs can be graphs.
pub(crate) trait Graphed: Engine {
    /// What is created for a run of so many layers, each as wide as `width` and needing the one before it.
    fn graph(&self, name: &str, layers: u32, width: u32) -> Vec<Value>;
}

/// An engine whose runs can be asked to stop.
pub(crate) trait Cancellable: Chained {
    /// Runs whose pods, this many in all, last for longer than the benchmark.
    fn lasting_runs(&self, pods: u32) -> Vec<Value>;

    /// The merge patch of a run that asks it to stop.
    fn request(&self) -> Value;
}

/// The pods go to the nodes of kwok.
pub(crate) fn node_selector() -> Value {
    json!({"jangar.test/node": "fake"})
}

pub(crate) fn tolerations() -> Value {
    json!([{"key": "jangar.test/fake", "operator": "Exists"}])
}

/// kwok reads from the selector how long a pod lasts; there is a node that it fits.
pub(crate) fn lasting_node_selector() -> Value {
    json!({"jangar.test/node": "fake", LASTING.0: LASTING.1})
}

/// The label of that node.
pub(crate) const LASTING: (&str, &str) = ("jangar.test/run-for", "1h");

/// There is no such image, and no node that would look for it.
pub(crate) const IMAGE: &str = "jangar.test/anything:1";

/// What a run says of its end, by the phases that mean one.
pub(crate) fn ended_by_phase(run: &DynamicObject, well: &str, badly: &[&str]) -> Option<Ended> {
    let status = run.data.get("status")?;
    let phase = status.get("phase")?.as_str()?;
    if phase == well {
        return Some(Ended::Well);
    }
    badly
        .contains(&phase)
        .then(|| Ended::Badly(format!("{phase}: {status}")))
}
