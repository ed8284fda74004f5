//! From OpenAPI JSON, as a CustomResourceDefinition carries it, to a `Schema`.
//!
//! Parsing accepts what has the right JSON types; whether the result may be used as a structural schema is decided in
//! `structural`. Keywords without a meaning here are ignored, as Kubernetes drops fields it does not know.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldPath, Problem},
    schema::{
        Additional, CelRule, ListType, MAX_DEPTH, MapType, PatchStrategy, Pattern, Schema, Type, pattern,
    },
};

/// The types a schema may name, as Kubernetes lists them when it refuses another one.
pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Parses a schema. Errors are rooted at the schema itself.
pub fn parse(openapi: &Value) -> Result<Schema, Vec<FieldError>> {
    parse_at(openapi, &FieldPath::root())
}

/// Parses a schema that stands at `path` of a larger object.
pub fn parse_at(openapi: &Value, path: &FieldPath) -> Result<Schema, Vec<FieldError>> {
    let mut errors = Vec::new();
    let schema = node(openapi, path, 0, &mut errors);
    if errors.is_empty() {
        Ok(schema)
    } else {
        Err(errors)
    }
}

fn node(json: &Value, path: &FieldPath, depth: usize, errors: &mut Vec<FieldError>) -> Schema {
    if depth > MAX_DEPTH {
        errors.push(FieldError::forbidden(
            path.clone(),
            format!("must not nest deeper than {MAX_DEPTH} levels"),
        ));
        return Schema::default();
    }
    let Value::Object(object) = json else {
        errors.push(FieldError::invalid(
            path.clone(),
            json.clone(),
            "must be a schema object",
        ));
        return Schema::default();
    };
    let mut reader = Reader {
        object,
        path,
        depth,
        errors,
    };
    let mut schema = Schema {
        type_: reader.type_(),
        format: reader.text("format"),
        description: reader.text("description"),
        nullable: reader.flag("nullable"),
        default: object.get("default").filter(|value| !value.is_null()).cloned(),
        properties: reader.properties(),
        additional: reader.additional(),
        items: reader.child("items"),
        required: reader.texts("required"),
        preserve_unknown_fields: reader.flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: reader.flag("x-kubernetes-embedded-resource"),
        int_or_string: reader.flag("x-kubernetes-int-or-string"),
        list_type: reader.list_type(),
        map_type: reader.map_type(),
        patch_strategy: reader.patch_strategy(),
        rules: reader.rules(),
        ..Schema::default()
    };
    reader.value_validations(&mut schema);
    schema.plain = is_plain(&schema);
    schema
}

fn is_plain(schema: &Schema) -> bool {
    let marked =
        schema.embedded_resource || matches!(schema.list_type, Some(ListType::Set | ListType::Map(_)));
    let additional = match &schema.additional {
        Additional::Schema(shape) => shape.plain,
        Additional::Absent | Additional::Any => true,
    };
    !marked
        && additional
        && schema.items.as_ref().is_none_or(|item| item.plain)
        && schema.properties.values().all(|property| property.plain)
}

/// Reads the keywords of one schema object, complaining about those of the wrong JSON type.
struct Reader<'a> {
    object: &'a Map<String, Value>,
    path: &'a FieldPath,
    depth: usize,
    errors: &'a mut Vec<FieldError>,
}

impl<'a> Reader<'a> {
    /// The keyword's value, read by `read`. A null is the same as nothing.
    fn read<T>(&mut self, name: &str, want: &str, read: impl Fn(&'a Value) -> Option<T>) -> Option<T> {
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        let found = read(value);
        if found.is_none() {
            let path = self.path.child(name);
            self.errors.push(FieldError::invalid(
                path,
                value.clone(),
                format!("must be {want}"),
            ));
        }
        found
    }

    fn text(&mut self, name: &str) -> String {
        self.read(name, "a string", |value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    fn flag(&mut self, name: &str) -> bool {
        self.read(name, "a boolean", Value::as_bool).unwrap_or_default()
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.read(name, "a number", Value::as_f64)
    }

    /// A size. A negative one allows everything as a minimum; as a maximum Kubernetes would allow nothing, which zero
    /// comes closest to.
    fn size(&mut self, name: &str) -> Option<u64> {
        let size = self.read(name, "an integer", Value::as_i64)?;
        Some(u64::try_from(size).unwrap_or(0))
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let read = |value: &Value| {
            value
                .as_array()?
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        };
        self.read(name, "a list of strings", read).unwrap_or_default()
    }

    fn child(&mut self, name: &str) -> Option<Arc<Schema>> {
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        Some(Arc::new(node(
            value,
            &self.path.child(name),
            self.depth + 1,
            self.errors,
        )))
    }

    fn children(&mut self, name: &str) -> Vec<Arc<Schema>> {
        let Some(list) = self.read(name, "a list of schemas", Value::as_array) else {
            return Vec::new();
        };
        let path = self.path.child(name);
        list.iter()
            .enumerate()
            .map(|(index, value)| Arc::new(node(value, &path.index(index), self.depth + 1, self.errors)))
            .collect()
    }

    fn properties(&mut self) -> BTreeMap<String, Arc<Schema>> {
        let Some(object) = self.read("properties", "an object", Value::as_object) else {
            return BTreeMap::new();
        };
        let path = self.path.child("properties");
        object
            .iter()
            .map(|(name, value)| {
                let schema = node(value, &path.key(name), self.depth + 1, self.errors);
                (name.clone(), Arc::new(schema))
            })
            .collect()
    }

    fn additional(&mut self) -> Additional {
        match self.object.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => Additional::Absent,
            Some(Value::Bool(true)) => Additional::Any,
            Some(_) => self
                .child("additionalProperties")
                .map_or(Additional::Absent, Additional::Schema),
        }
    }

    fn type_(&mut self) -> Option<Type> {
        let name = self.text("type");
        if name.is_empty() {
            return None;
        }
        let type_ = Type::from_str(&name).ok();
        if type_.is_none() {
            let allowed = TYPES.iter().map(|&name| name.to_owned()).collect();
            let problem = Problem::NotSupported(Value::String(name), allowed);
            self.errors
                .push(FieldError::new(self.path.child("type"), problem, ""));
        }
        type_
    }

    fn list_type(&mut self) -> Option<ListType> {
        let keys = self.texts("x-kubernetes-list-map-keys");
        match self.text("x-kubernetes-list-type").as_str() {
            "" => None,
            "set" => Some(ListType::Set),
            "map" => Some(ListType::Map(keys)),
            // Another word is refused by the structural rules; the meaning of none at all is the safe one until then.
            _ => Some(ListType::Atomic),
        }
    }

    fn map_type(&mut self) -> MapType {
        match self.text("x-kubernetes-map-type").as_str() {
            "atomic" => MapType::Atomic,
            _ => MapType::Granular,
        }
    }

    fn patch_strategy(&mut self) -> PatchStrategy {
        let strategy = self.text("x-kubernetes-patch-strategy");
        let key = Some(self.text("x-kubernetes-patch-merge-key")).filter(|key| !key.is_empty());
        let retain_keys = strategy.split(',').any(|word| word.trim() == "retainKeys");
        if strategy.split(',').any(|word| word.trim() == "merge") {
            PatchStrategy::Merge { key, retain_keys }
        } else if retain_keys {
            PatchStrategy::RetainKeys
        } else {
            PatchStrategy::Replace
        }
    }

    fn rules(&mut self) -> Vec<CelRule> {
        let name = "x-kubernetes-validations";
        let Some(list) = self.read(name, "a list of rules", Value::as_array) else {
            return Vec::new();
        };
        let path = self.path.child(name);
        let mut rules = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            let path = path.index(index);
            let Value::Object(object) = value else {
                self.errors
                    .push(FieldError::invalid(path, value.clone(), "must be a rule"));
                continue;
            };
            let mut reader = Reader {
                object,
                path: &path,
                depth: self.depth,
                errors: self.errors,
            };
            rules.push(CelRule {
                rule: reader.text("rule"),
                message: reader.text("message"),
                message_expression: reader.text("messageExpression"),
                reason: reader.text("reason"),
                field_path: reader.text("fieldPath"),
                optional_old_self: reader.flag("optionalOldSelf"),
            });
        }
        rules
    }

    fn value_validations(&mut self, schema: &mut Schema) {
        schema.enum_ = self
            .read("enum", "a list", Value::as_array)
            .cloned()
            .unwrap_or_default();
        schema.pattern = self.pattern();
        schema.minimum = self.number("minimum");
        schema.exclusive_minimum = self.flag("exclusiveMinimum");
        schema.maximum = self.number("maximum");
        schema.exclusive_maximum = self.flag("exclusiveMaximum");
        schema.multiple_of = self.number("multipleOf");
        schema.min_length = self.size("minLength");
        schema.max_length = self.size("maxLength");
        schema.min_items = self.size("minItems");
        schema.max_items = self.size("maxItems");
        schema.unique_items = self.flag("uniqueItems");
        schema.min_properties = self.size("minProperties");
        schema.max_properties = self.size("maxProperties");
        schema.all_of = self.children("allOf");
        schema.any_of = self.children("anyOf");
        schema.one_of = self.children("oneOf");
        schema.not = self.child("not");
    }

    fn pattern(&mut self) -> Option<Pattern> {
        let text = self.text("pattern");
        if text.is_empty() {
            return None;
        }
        match pattern::compile(&text) {
            Ok(regex) => Some(Pattern::new(text, regex)),
            Err(error) => {
                let detail = format!("must be a valid regular expression, but isn't: {error}");
                self.errors
                    .push(FieldError::invalid(self.path.child("pattern"), text, detail));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_keyword_is_read() {
        let schema = parse(&json!({
            "type": "object", "format": "f", "description": "d", "nullable": true, "default": {"a": 1},
            "required": ["a"], "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic",
            "minProperties": 1, "maxProperties": 2,
            "x-kubernetes-validations": [{"rule": "true", "message": "m", "messageExpression": "'e'",
                "reason": "FieldValueInvalid", "fieldPath": ".a", "optionalOldSelf": true}],
            "properties": {
                "a": {"type": "integer", "minimum": 1, "maximum": 2.5, "exclusiveMinimum": true,
                      "exclusiveMaximum": true, "multipleOf": 3, "enum": [1, 2]},
                "s": {"type": "string", "pattern": "^a$", "minLength": 1, "maxLength": 2},
                "l": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 2, "uniqueItems": true,
                      "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                      "x-kubernetes-patch-strategy": "merge,retainKeys", "x-kubernetes-patch-merge-key": "k"},
                "m": {"type": "object", "additionalProperties": {"type": "string"}},
                "x": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
                      "allOf": [{"minimum": 1}], "oneOf": [{"minimum": 1}], "not": {"minimum": 1}},
            },
        }))
        .expect("schema");
        assert_eq!(schema.type_, Some(Type::Object));
        assert_eq!(schema.default, Some(json!({"a": 1})));
        assert_eq!(schema.map_type, MapType::Atomic);
        assert_eq!(schema.rules.len(), 1);
        assert!(schema.rules[0].optional_old_self);
        assert!(!schema.plain, "it holds a list of type map");
        let list = &schema.properties["l"];
        assert_eq!(list.list_type, Some(ListType::Map(vec!["k".to_owned()])));
        assert_eq!(
            list.patch_strategy,
            PatchStrategy::Merge {
                key: Some("k".to_owned()),
                retain_keys: true
            }
        );
        assert_eq!(schema.properties["a"].maximum, Some(2.5));
        assert_eq!(schema.properties["x"].any_of.len(), 2);
        assert!(schema.properties["x"].plain);
        assert!(matches!(schema.properties["m"].additional, Additional::Schema(_)));
    }

    #[test]
    fn wrong_json_types_are_refused_where_they_stand() {
        let table = [
            (json!(1), "<nil>: Invalid value: 1: must be a schema object"),
            (json!({"type": 1}), "type: Invalid value: 1: must be a string"),
            (
                json!({"type": "text"}),
                "type: Unsupported value: \"text\": supported values: \
                 \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (
                json!({"properties": {"a": []}}),
                "properties[a]: Invalid value: []: must be a schema object",
            ),
            (
                json!({"anyOf": [{"minimum": "1"}]}),
                "anyOf[0].minimum: Invalid value: \"1\": must be a number",
            ),
        ];
        for (schema, expected) in table {
            let errors = parse(&schema).expect_err("refused");
            assert_eq!(errors[0].to_string(), expected);
        }
    }

    #[test]
    fn a_pattern_that_does_not_compile_is_an_error() {
        let errors = parse(&json!({"properties": {"a": {"pattern": "("}}})).expect_err("refused");
        assert!(
            errors[0].to_string().starts_with(
                "properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: "
            ),
            "{}",
            errors[0]
        );
    }

    #[test]
    fn endless_nesting_is_refused() {
        let mut schema = json!({"type": "object"});
        for _ in 0..=MAX_DEPTH {
            schema = json!({"type": "array", "items": schema});
        }
        let errors = parse(&schema).expect_err("refused");
        assert!(
            errors[0]
                .to_string()
                .ends_with("must not nest deeper than 128 levels"),
            "{}",
            errors[0]
        );
    }
}
