//! Server-side printing: the `Table` that kubectl asks for instead of the objects themselves.
//!
//! A `CompiledColumns` is made once per kind and version. Custom resources fill their cells by JSONPath, built-in kinds by a
//! function. The table borrows the objects it shows and is written straight to the response.

pub mod age;
pub mod builtin;
mod cells;

use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::{error::ApiError, jsonpath::JsonPath};

pub use cells::CellType;

/// One printer column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    pub name: String,
    pub type_: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    /// The Kubernetes dialect of JSONPath, as the definition gives it (`.status.phase`).
    pub json_path: String,
}

/// Fills all cells of a row of a built-in kind, one per column.
pub type RowFn = fn(&Value, Timestamp) -> Vec<Value>;

/// Says whether what a row shows has come to its end.
pub type ConditionFn = fn(&Value) -> Option<RowCondition>;

/// A remark on a row. Kubernetes knows only that a pod has completed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct RowCondition {
    #[serde(rename = "type")]
    pub type_: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: &'static str,
}

/// The columns of a kind, ready to fill rows.
#[derive(Clone, Debug)]
pub struct CompiledColumns {
    /// `columnDefinitions` as they go over the wire.
    definitions: Value,
    rows: Rows,
}

#[derive(Clone, Debug)]
enum Rows {
    /// The name, and then what each path selects.
    Paths(Vec<(CellType, JsonPath)>),
    Function(RowFn, ConditionFn),
}

/// A column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub name: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
    pub type_: &'static str,
}

const NAME_DESCRIPTION: &str = "Name of the object, unique within its namespace.";
const AGE_DESCRIPTION: &str = "Time since the object was created.";

impl CompiledColumns {
    /// The columns of a custom resource: its name, and then the ones of its definition or, when it has none, its age. As
    /// upstream, printing ends before the first column whose path cannot be read.
    pub fn custom(columns: &[Column]) -> Self {
        let mut definitions = vec![definition("Name", "string", "name", NAME_DESCRIPTION, 0)];
        let mut paths = Vec::new();
        let age = [Column {
            name: "Age".to_owned(),
            type_: "date".to_owned(),
            description: AGE_DESCRIPTION.to_owned(),
            json_path: ".metadata.creationTimestamp".to_owned(),
            ..Column::default()
        }];
        let columns = if columns.is_empty() { &age } else { columns };
        for column in columns {
            let Ok(path) = JsonPath::parse(&column.json_path) else {
                break;
            };
            let prose = if column.description.is_empty() {
                format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.json_path
                )
            } else {
                column.description.clone()
            };
            definitions.push(definition(
                &column.name,
                &column.type_,
                &column.format,
                &prose,
                column.priority,
            ));
            paths.push((CellType::of(&column.type_), path));
        }
        Self {
            definitions: Value::Array(definitions),
            rows: Rows::Paths(paths),
        }
    }

    /// The columns of a built-in kind.
    pub fn builtin(headers: &[Header], row: RowFn) -> Self {
        Self::builtin_with_condition(headers, row, |_| None)
    }

    pub fn builtin_with_condition(headers: &[Header], row: RowFn, condition: ConditionFn) -> Self {
        let definitions = headers
            .iter()
            .map(|header| {
                definition(
                    header.name,
                    header.type_,
                    header.format,
                    header.description,
                    header.priority,
                )
            })
            .collect();
        Self {
            definitions: Value::Array(definitions),
            rows: Rows::Function(row, condition),
        }
    }

    /// The table of a list.
    pub fn list<'a>(
        &'a self,
        items: impl IntoIterator<Item = &'a Value>,
        meta: ListMeta,
        include: IncludeObject,
        now: Timestamp,
    ) -> Table<'a> {
        let rows = items
            .into_iter()
            .map(|item| self.row(item, include, now))
            .collect();
        Table::new(meta, Some(&self.definitions), rows)
    }

    /// The table of one object.
    pub fn object<'a>(&'a self, object: &'a Value, include: IncludeObject, now: Timestamp) -> Table<'a> {
        self.event(object, include, now, true)
    }

    /// The table of a watch event, which repeats no column definitions after the first one.
    pub fn event<'a>(
        &'a self,
        object: &'a Value,
        include: IncludeObject,
        now: Timestamp,
        with_definitions: bool,
    ) -> Table<'a> {
        let version = object
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let meta = ListMeta {
            resource_version: version.to_owned(),
            ..ListMeta::default()
        };
        let definitions = with_definitions.then_some(&self.definitions);
        Table::new(meta, definitions, vec![self.row(object, include, now)])
    }

    fn row<'a>(&'a self, object: &'a Value, include: IncludeObject, now: Timestamp) -> Row<'a> {
        let (cells, condition) = match &self.rows {
            Rows::Paths(paths) => {
                let name = object
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let mut cells = Vec::with_capacity(paths.len() + 1);
                cells.push(Value::from(name));
                cells.extend(
                    paths
                        .iter()
                        .map(|(type_, path)| type_.cell(path.first(object), now)),
                );
                (cells, None)
            }
            Rows::Function(row, condition) => (row(object, now), condition(object)),
        };
        Row {
            cells,
            conditions: condition.into_iter().collect(),
            object: RowObject::of(object, include),
        }
    }
}

fn definition(name: &str, type_: &str, format: &str, description: &str, priority: i32) -> Value {
    json!({"name": name, "type": type_, "format": format, "description": description, "priority": priority})
}

/// What a row carries beside its cells: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; an absent one is like an empty one.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: \
                 must be 'Metadata', 'Object', 'None', or empty",
                Value::from(other)
            ))),
        }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

/// A `meta.k8s.io/v1` Table, ready to be written.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta,
    column_definitions: Option<&'a Value>,
    rows: Vec<Row<'a>>,
}

impl<'a> Table<'a> {
    fn new(metadata: ListMeta, column_definitions: Option<&'a Value>, rows: Vec<Row<'a>>) -> Self {
        Self {
            kind: "Table",
            api_version: META_VERSION,
            metadata,
            column_definitions,
            rows,
        }
    }
}

const META_VERSION: &str = "meta.k8s.io/v1";

#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    cells: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<RowCondition>,
    object: RowObject<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RowObject<'a> {
    None,
    /// The object's metadata, to be dressed as a `PartialObjectMetadata`.
    Metadata(&'a Value),
    Object(&'a Value),
}

impl<'a> RowObject<'a> {
    fn of(object: &'a Value, include: IncludeObject) -> Self {
        // The bookmark that ends the initial events is known by an annotation, which the client must see in any case.
        let ends_initial_events = || {
            object
                .pointer("/metadata/annotations/k8s.io~1initial-events-end")
                .is_some_and(|annotation| annotation == "true")
        };
        match include {
            IncludeObject::Object => Self::Object(object),
            IncludeObject::None if !ends_initial_events() => Self::None,
            IncludeObject::None | IncludeObject::Metadata => {
                Self::Metadata(object.get("metadata").unwrap_or(&Value::Null))
            }
        }
    }
}

impl Serialize for RowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit(),
            Self::Object(object) => object.serialize(serializer),
            Self::Metadata(metadata) => {
                let mut map = serializer.serialize_map(Some(3))?;
                map.serialize_entry("kind", "PartialObjectMetadata")?;
                map.serialize_entry("apiVersion", META_VERSION)?;
                map.serialize_entry("metadata", metadata)?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T00:05:12Z".parse().expect("a time")
    }

    fn widget(name: &str) -> Value {
        json!({
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": name, "resourceVersion": "7", "creationTimestamp": "2026-01-02T00:00:00Z"},
            "spec": {"size": 3},
        })
    }

    fn rendered(table: &Table<'_>) -> Value {
        serde_json::to_value(table).expect("a table")
    }

    #[test]
    fn a_kind_without_columns_shows_its_age() {
        let columns = CompiledColumns::custom(&[]);
        let items = [widget("a"), widget("b")];
        let meta = ListMeta {
            resource_version: "12".to_owned(),
            continue_token: "next".to_owned(),
            remaining_item_count: Some(3),
        };
        let table = rendered(&columns.list(&items, meta, IncludeObject::Metadata, now()));
        assert_eq!(table["kind"], "Table");
        assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(
            table["metadata"],
            json!({"resourceVersion": "12", "continue": "next", "remainingItemCount": 3})
        );
        assert_eq!(
            table["columnDefinitions"],
            json!([
                {"name": "Name", "type": "string", "format": "name", "description": NAME_DESCRIPTION, "priority": 0},
                {"name": "Age", "type": "date", "format": "", "description": AGE_DESCRIPTION, "priority": 0},
            ])
        );
        assert_eq!(
            table["rows"][1],
            json!({
                "cells": ["b", "5m12s"],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": widget("b")["metadata"],
                },
            })
        );
    }

    #[test]
    fn columns_take_their_cells_from_the_object() {
        let columns = CompiledColumns::custom(&[
            Column {
                name: "Size".to_owned(),
                type_: "integer".to_owned(),
                priority: 1,
                json_path: ".spec.size".to_owned(),
                ..Column::default()
            },
            Column {
                name: "Phase".to_owned(),
                type_: "string".to_owned(),
                json_path: ".status.phase".to_owned(),
                ..Column::default()
            },
        ]);
        let object = widget("a");
        let table = rendered(&columns.object(&object, IncludeObject::None, now()));
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(table["rows"], json!([{"cells": ["a", 3, null], "object": null}]));
        assert_eq!(
            table["columnDefinitions"][1],
            json!({
                "name": "Size",
                "type": "integer",
                "format": "",
                "description": "Custom resource definition column (in JSONPath format): .spec.size",
                "priority": 1,
            })
        );
    }

    #[test]
    fn columns_end_before_the_first_unreadable_path() {
        let column = |path: &str| Column {
            json_path: path.to_owned(),
            ..Column::default()
        };
        let columns = CompiledColumns::custom(&[column(".a"), column(".b["), column(".c")]);
        let object = widget("a");
        let table = rendered(&columns.object(&object, IncludeObject::None, now()));
        assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(2));
        assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn only_the_first_event_of_a_watch_defines_the_columns() {
        let columns = CompiledColumns::custom(&[]);
        let object = widget("a");
        let first = rendered(&columns.event(&object, IncludeObject::Object, now(), true));
        assert!(first["columnDefinitions"].is_array());
        assert_eq!(first["rows"][0]["object"], object);
        let later = rendered(&columns.event(&object, IncludeObject::Object, now(), false));
        assert_eq!(later["columnDefinitions"], Value::Null);
        assert_eq!(later["rows"], first["rows"]);
    }

    #[test]
    fn the_bookmark_after_the_initial_events_keeps_its_metadata() {
        let columns = CompiledColumns::custom(&[]);
        let bookmark = json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}});
        let table = rendered(&columns.event(&bookmark, IncludeObject::None, now(), false));
        assert_eq!(table["rows"][0]["object"]["metadata"], bookmark["metadata"]);
        assert_eq!(table["rows"][0]["cells"], json!(["", null]));
    }

    #[test]
    fn include_object_is_one_of_three() {
        assert_eq!(IncludeObject::parse("").ok(), Some(IncludeObject::Metadata));
        assert_eq!(
            IncludeObject::parse("Metadata").ok(),
            Some(IncludeObject::Metadata)
        );
        assert_eq!(IncludeObject::parse("None").ok(), Some(IncludeObject::None));
        assert_eq!(IncludeObject::parse("Object").ok(), Some(IncludeObject::Object));
        let error = IncludeObject::parse("none").expect_err("wrong case");
        assert_eq!(
            error.message,
            "Unable to convert to Table as requested: includeObject: Invalid value: \"none\": \
             must be 'Metadata', 'Object', 'None', or empty"
        );
    }
}
