//! The kind that the benchmark writes: shaped as the custom resources of a controller are.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use serde_json::{Value, json};

pub(crate) const BODY_BYTES: usize = 2048;
pub(crate) const PATH: &str = "/apis/bench.example.com/v1/namespaces/default/widgets";
const NAME: &str = "widgets.bench.example.com";
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("bench.example.com", "v1", "Widget"))
}

pub(crate) fn api(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &kind())
}

/// A new object whose body has `BODY_BYTES` bytes, for names that are not absurdly long.
pub(crate) fn widget(name: &str) -> DynamicObject {
    // What the body takes besides the name and the note.
    const REST_BYTES: usize = 742;
    let mut object = DynamicObject::new(name, &kind());
    object.metadata.labels = Some([("app".to_owned(), "bench".to_owned())].into());
    let steps: Vec<Value> = (0..8)
        .map(|number| json!({"name": format!("step-{number}"), "image": "example.com/image:1", "retries": 2}))
        .collect();
    let note = "x".repeat(BODY_BYTES.saturating_sub(REST_BYTES + name.len()));
    object.data = json!({"spec": {"color": "red", "size": 3, "note": note, "steps": steps}});
    object
}

/// What a controller applies to report progress.
pub(crate) fn status_patch(name: &str, number: usize) -> Value {
    json!({
        "apiVersion": "bench.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "status": {
            "phase": format!("Step{number}"),
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Bench", "message": number.to_string()},
                {"type": "Complete", "status": "False", "reason": "Bench", "message": "running"},
            ],
        },
    })
}

/// Creates the definition and waits until its kind is served.
pub(crate) async fn define(client: &Client) -> Result<()> {
    let definition = serde_json::from_value(definition())?;
    let api = Api::all(client.clone());
    api.create(&PostParams::default(), &definition).await?;
    let established = await_condition(api, NAME, is_crd_established());
    tokio::time::timeout(ESTABLISH_TIMEOUT, established)
        .await
        .context("the definition was not established")??;
    Ok(())
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-validations": [{"rule": "self.metadata.name.size() <= 63"}],
                    "properties": {"spec": spec(), "status": status()},
                }},
            }],
        },
    })
}

fn spec() -> Value {
    json!({
        "type": "object",
        "required": ["color"],
        "x-kubernetes-validations": [{"rule": "self.size >= 0"}],
        "properties": {
            "color": {"type": "string", "enum": ["red", "green"]},
            "size": {"type": "integer", "default": 1},
            "note": {"type": "string", "maxLength": 4096},
            "steps": {
                "type": "array",
                "maxItems": 100,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string"},
                        "image": {"type": "string"},
                        "retries": {"type": "integer", "minimum": 0},
                    },
                },
            },
        },
    })
}

fn status() -> Value {
    json!({
        "type": "object",
        "properties": {
            "phase": {"type": "string"},
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type"],
                    "properties": {
                        "type": {"type": "string"},
                        "status": {"type": "string"},
                        "reason": {"type": "string"},
                        "message": {"type": "string"},
                    },
                },
            },
        },
    })
}
