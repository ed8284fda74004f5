//! A server in miniature: it keeps one object, lets managers write it, and tells what came of it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::super::{Reset, Writer, apply, track_update};
use crate::{
    error::ApiError,
    schema::{Additional, ListType, MapType, Schema, Type},
};

pub(super) const API_VERSION: &str = "example.com/v1";
pub(super) const TIME: &str = "2026-01-02T03:04:05Z";

/// One write.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) by: String,
    pub(super) body: Value,
    pub(super) is_apply: bool,
    pub(super) force: bool,
    pub(super) subresource: &'static str,
}

pub(super) struct Server {
    pub(super) schema: Schema,
    pub(super) has_status: bool,
    pub(super) live: Option<Value>,
}

impl Server {
    pub(super) fn new(schema: Schema, has_status: bool) -> Self {
        Self {
            schema,
            has_status,
            live: None,
        }
    }

    pub(super) fn write(&mut self, step: &Step) -> Result<(), ApiError> {
        self.write_at(step, TIME)
    }

    pub(super) fn write_at(&mut self, step: &Step, time: &str) -> Result<(), ApiError> {
        let mut body = step.body.clone();
        if body.is_object() {
            body["apiVersion"] = json!(API_VERSION);
            body["kind"] = json!("Thing");
            if !body["metadata"].is_object() {
                body["metadata"] = json!({});
            }
            body["metadata"]["name"] = json!("x");
        }
        let writer = Writer {
            manager: &step.by,
            api_version: API_VERSION,
            subresource: step.subresource,
            time,
        };
        let live = self.live.as_ref();
        let mut new = if step.is_apply {
            let reset = Reset::of(step.subresource, self.has_status);
            apply(live, &body, &self.schema, writer, reset, step.force)?
        } else {
            let mut new = self.let_through(body, step.subresource);
            if live.is_some() {
                new["metadata"]["uid"] = json!("u");
            }
            track_update(live, &mut new, &self.schema, writer);
            new
        };
        new["metadata"]["uid"] = json!("u");
        self.live = Some(new);
        Ok(())
    }

    /// What an endpoint lets through of an update.
    fn let_through(&self, mut body: Value, subresource: &str) -> Value {
        let old_status = self.live.as_ref().and_then(|live| live.get("status")).cloned();
        let (mut object, status) = if subresource == "status" {
            let sent = body.get("status").cloned();
            (self.live.clone().unwrap_or(body), sent)
        } else if self.has_status {
            (body, old_status)
        } else {
            let sent = body.get_mut("status").map(Value::take);
            (body, sent)
        };
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
            object.extend(status.map(|status| ("status".to_owned(), status)));
        }
        object
    }

    pub(super) fn managed(&self) -> &[Value] {
        let managed = self
            .live
            .as_ref()
            .and_then(|live| live.pointer("/metadata/managedFields"));
        managed.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Who owns what: `manager`, `manager update` or `manager update status`, with its `fieldsV1`.
    pub(super) fn owners(&self) -> BTreeMap<String, Value> {
        let entries = self.managed().iter().map(|entry| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let update = if text("operation") == "Update" {
                " update"
            } else {
                ""
            };
            let name = format!("{}{update} {}", text("manager"), text("subresource"));
            (name.trim_end().to_owned(), entry["fieldsV1"].clone())
        });
        entries.collect()
    }

    /// The object without what identifies it and without its owners.
    pub(super) fn object(&self) -> Value {
        let mut object = self.live.clone().unwrap_or_default();
        if let Some(members) = object.as_object_mut() {
            members.retain(|name, _| name != "apiVersion" && name != "kind");
            if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| !matches!(name.as_str(), "name" | "uid" | "managedFields"));
            }
            members.retain(|name, value| {
                name != "metadata" || value.as_object().is_none_or(|map| !map.is_empty())
            });
        }
        object
    }
}

/// Reads as much of an OpenAPI schema as matters here.
pub(super) fn schema(openapi: &Value) -> Schema {
    let nested = |value: &Value| Arc::new(schema(value));
    let text = |name: &str| openapi.get(name).and_then(Value::as_str).unwrap_or_default();
    let flag = |name: &str| openapi.get(name) == Some(&Value::Bool(true));
    let keys = || {
        let keys = openapi["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten();
        keys.filter_map(|key| key.as_str().map(ToOwned::to_owned))
            .collect()
    };
    Schema {
        type_: text("type").parse::<Type>().ok(),
        format: text("format").to_owned(),
        default: openapi.get("default").cloned(),
        properties: openapi
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&Map::new())
            .iter()
            .map(|(name, value)| (name.clone(), nested(value)))
            .collect(),
        additional: match openapi.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(other @ Value::Object(_)) => Additional::Schema(nested(other)),
            _ => Additional::Absent,
        },
        items: openapi.get("items").map(nested),
        preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        list_type: match text("x-kubernetes-list-type") {
            "atomic" => Some(ListType::Atomic),
            "set" => Some(ListType::Set),
            "map" => Some(ListType::Map(keys())),
            _ => None,
        },
        map_type: if text("x-kubernetes-map-type") == "atomic" {
            MapType::Atomic
        } else {
            MapType::Granular
        },
        ..Schema::default()
    }
}
