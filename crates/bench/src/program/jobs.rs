//! The floor: Jobs by themselves, which every engine that runs Jobs stands on.

use jangar_bench::results::Subject;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::{
    controller::Program,
    engine::{Ended, Engine, IMAGE, node_selector, tolerations},
};

#[derive(Debug)]
pub(crate) struct Jobs;

impl Engine for Jobs {
    fn subject(&self) -> Subject {
        Subject::Jobs
    }

    fn furniture(&self) -> Vec<Value> {
        Vec::new()
    }

    fn program(&self, _: &str) -> Option<Program> {
        None
    }

    fn kind(&self) -> ApiResource {
        ApiResource::erase::<Job>(&())
    }

    fn run(&self, name: &str) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": {"spec": pod_spec()}},
        })
    }

    fn ended(&self, job: &DynamicObject) -> Option<Ended> {
        let conditions = job.data.get("status")?.get("conditions")?.as_array()?;
        let is = |type_: &str| {
            conditions
                .iter()
                .any(|each| each["type"] == type_ && each["status"] == "True")
        };
        if is("Complete") {
            return Some(Ended::Well);
        }
        is("Failed").then(|| Ended::Badly(json!(conditions).to_string()))
    }
}

/// A pod as plain as it can be.
pub(crate) fn pod_spec() -> Value {
    json!({
        "restartPolicy": "Never",
        "nodeSelector": node_selector(),
        "tolerations": tolerations(),
        "containers": [{"name": "main", "image": IMAGE}],
    })
}
