//! Removal of fields that the schema does not name, and the list of what was removed for strict field validation.

use serde_json::{Map, Value};

use crate::schema::{Additional, MAX_DEPTH, Schema, trail::Trail};

/// Removes unknown fields in place. With `report`, adds the path of each (`spec.steps[0].foo`), sorted, as Kubernetes
/// lists them in `unknown field "…"`.
///
/// `apiVersion`, `kind` and `metadata` stay untouched in embedded resources, and in the value itself if it is the root
/// of a resource.
pub fn prune(value: &mut Value, schema: &Schema, is_resource_root: bool, report: Option<&mut Vec<String>>) {
    let mut found = report.is_some().then(Vec::new);
    let mut pruner = Pruner {
        found: found.as_mut(),
    };
    let mut shape = Shape::of(schema);
    shape.embedded |= is_resource_root;
    pruner.node(value, shape, &Trail::Root, 0);
    if let (Some(report), Some(mut found)) = (report, found) {
        found.sort_unstable();
        report.append(&mut found);
    }
}

/// Fields that every resource has, whatever its schema says.
pub(super) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner<'r> {
    found: Option<&'r mut Vec<String>>,
}

/// What is known about a node, and how it treats what is not.
#[derive(Clone, Copy)]
struct Shape<'s> {
    schema: Option<&'s Schema>,
    embedded: bool,
    preserve: bool,
}

impl<'s> Shape<'s> {
    const UNKNOWN: Self = Self {
        schema: None,
        embedded: false,
        preserve: false,
    };

    fn of(schema: &'s Schema) -> Self {
        Self {
            schema: Some(schema),
            embedded: schema.embedded_resource,
            preserve: schema.preserve_unknown_fields,
        }
    }

    /// Items of a list that preserves unknown fields preserve theirs too, whether or not their own schema says so.
    fn item(self) -> Self {
        let item = self
            .schema
            .and_then(|schema| schema.items.as_deref())
            .map_or(Self::UNKNOWN, Self::of);
        Self {
            preserve: self.preserve || item.preserve,
            ..item
        }
    }
}

impl Pruner<'_> {
    fn record(&mut self, parent: &Trail<'_>, name: &str) {
        if let Some(found) = self.found.as_deref_mut() {
            found.push(parent.child(name).render());
        }
    }

    fn node(&mut self, value: &mut Value, shape: Shape<'_>, trail: &Trail<'_>, depth: usize) {
        // What lies deeper than any schema can reach is unknown altogether.
        if depth > MAX_DEPTH {
            *value = Value::Null;
            return;
        }
        match (value, shape.schema) {
            (_, None) if shape.preserve => {}
            (Value::Object(members), Some(schema)) => self.object(members, schema, shape, trail, depth),
            (Value::Object(members), None) => {
                for name in members.keys() {
                    self.record(trail, name);
                }
                members.clear();
            }
            (Value::Array(items), _) => {
                for (index, value) in items.iter_mut().enumerate() {
                    self.node(value, shape.item(), &trail.index(index), depth + 1);
                }
            }
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {}
        }
    }

    fn object(
        &mut self,
        members: &mut Map<String, Value>,
        schema: &Schema,
        shape: Shape<'_>,
        trail: &Trail<'_>,
        depth: usize,
    ) {
        members.retain(|name, value| {
            if shape.embedded && is_meta_field(name) {
                return true;
            }
            let member = match (schema.properties.get(name), &schema.additional) {
                (Some(member), _) | (None, Additional::Schema(member)) => Shape::of(member),
                // Any value may stand here, but nothing is known about the fields inside it.
                (None, Additional::Any) => Shape::UNKNOWN,
                (None, Additional::Absent) => {
                    let is_own_type = trail.is_root() && is_meta_field(name);
                    if !shape.preserve && !is_own_type {
                        self.record(trail, name);
                    }
                    return shape.preserve;
                }
            };
            self.node(value, member, &trail.child(name), depth + 1);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::parse::parse;

    fn pruned(schema: &Value, mut value: Value) -> (Value, Vec<String>) {
        let schema = parse(schema).expect("schema");
        let mut report = Vec::new();
        prune(&mut value, &schema, true, Some(&mut report));
        let mut again = value.clone();
        prune(&mut again, &schema, true, None);
        assert_eq!(again, value, "pruning twice changes nothing more");
        (value, report)
    }

    #[test]
    fn unknown_fields_go_and_are_listed_in_order() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "steps": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        }}}});
        let (value, report) = pruned(
            &schema,
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"any": 1}, "zzz": 1, "spec": {
                "a": "x", "foo": 1, "steps": [{"n": "1"}, {"n": "2", "bar": {"deep": 1}}]}}),
        );
        assert_eq!(
            value,
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"any": 1}, "spec": {
                "a": "x", "steps": [{"n": "1"}, {"n": "2"}]}})
        );
        assert_eq!(report, ["spec.foo", "spec.steps[1].bar", "zzz"]);
    }

    #[test]
    fn preserving_nodes_keep_what_they_do_not_know_but_prune_what_they_do() {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}});
        let (value, report) = pruned(
            &schema,
            json!({"spec": {"free": {"x": [1]}, "known": {"a": "1", "b": 2}}}),
        );
        assert_eq!(value, json!({"spec": {"free": {"x": [1]}, "known": {"a": "1"}}}));
        assert_eq!(report, ["spec.known.b"]);
    }

    #[test]
    fn embedded_resources_keep_their_own_meta_fields() {
        let schema = json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}},
        }}});
        let (value, report) = pruned(
            &schema,
            json!({"template": {"apiVersion": "v1", "kind": "P", "metadata": {"name": "x"}, "spec": {"a": 1}, "b": 1}}),
        );
        assert_eq!(
            value,
            json!({"template": {"apiVersion": "v1", "kind": "P", "metadata": {"name": "x"}, "spec": {}}})
        );
        assert_eq!(report, ["template.b", "template.spec.a"]);
    }

    #[test]
    fn maps_keep_their_keys() {
        let table = [
            (
                json!({"type": "string"}),
                json!({"k.x": "v"}),
                json!({"k.x": "v"}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                json!({"k": {"a": "1", "b": 1}}),
                json!({"k": {"a": "1"}}),
                vec!["m.k.b"],
            ),
            (
                json!(true),
                json!({"k": {"a": 1}, "s": 1}),
                json!({"k": {}, "s": 1}),
                vec!["m.k.a"],
            ),
        ];
        for (additional, before, after, paths) in table {
            let schema = json!({"type": "object", "properties": {
                "m": {"type": "object", "additionalProperties": additional}}});
            let (value, report) = pruned(&schema, json!({"m": before}));
            assert_eq!(value, json!({"m": after}));
            assert_eq!(report, paths);
        }
    }
}
