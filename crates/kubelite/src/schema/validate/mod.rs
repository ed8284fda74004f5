//! Values against their schema, worded as `k8s.io/kube-openapi/pkg/validation/validate` words it once
//! `k8s.io/apiextensions-apiserver` has turned its findings into field errors.
//!
//! The order of checks within a node, and the choice of the alternative to complain about when none of several fits,
//! follow that package too, because users read its messages.

mod choice;
mod embedded;
mod lists;
mod number;

pub(super) use embedded::validate_embedded;

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldPath, Problem, go_quoted},
    schema::{
        Additional, MAX_DEPTH, Schema, Type,
        correlate::{OldItems, Pair},
        format::Format,
        trail::Trail,
    },
};
use number::Num;

/// Errors beyond this many are not compared with each other: a document with so many has worse problems than repetition,
/// and comparing them all would take quadratic time.
const MAX_COMPARED: usize = 256;

/// Everything that is wrong with `value`, which stands at `path`.
pub fn validate(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = check(value, None, schema, path);
    if !schema.plain {
        embedded::validate_embedded(value, schema, false, path, &mut errors);
        lists::validate_lists(value, schema, path, &mut errors);
    }
    errors
}

/// As `validate`, but what was wrong in `old` already and has not changed is forgiven.
pub fn validate_update(
    new: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &FieldPath,
) -> Vec<FieldError> {
    let Some(old) = old else {
        return validate(new, schema, path);
    };
    let mut errors = check(new, None, schema, path);
    if !errors.is_empty() {
        // Only now is it worth finding out what changed.
        errors = check(new, Some(Pair { new, old, schema }), schema, path);
    }
    if !schema.plain {
        embedded::validate_embedded(new, schema, false, path, &mut errors);
        let mut repeated = Vec::new();
        lists::validate_lists(new, schema, path, &mut repeated);
        if !repeated.is_empty() {
            let mut before = Vec::new();
            lists::validate_lists(old, schema, path, &mut before);
            if before.is_empty() {
                errors.append(&mut repeated);
            }
        }
    }
    errors
}

/// The schema's own keywords, without embedded resources and list types.
pub(super) fn check(
    value: &Value,
    pair: Option<Pair<'_>>,
    schema: &Schema,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut checker = Checker {
        base: path,
        errors: Vec::new(),
    };
    checker.ratcheted(value, pair, schema, &Trail::Root, 0);
    checker.errors
}

/// How many checks of a node went well. It decides which of several alternatives was meant.
type Matches = u32;

/// What may be forgiven in a node: the pair it belongs to. Nothing is forgiven inside of alternatives.
type Forgiven<'a> = Option<Pair<'a>>;

struct Checker<'p> {
    base: &'p FieldPath,
    errors: Vec<FieldError>,
}

impl Checker<'_> {
    /// Checks a node that is its own unit of change.
    fn ratcheted(
        &mut self,
        value: &Value,
        pair: Forgiven<'_>,
        schema: &Schema,
        trail: &Trail<'_>,
        depth: usize,
    ) -> Matches {
        let before = self.errors.len();
        let matches = self.node(value, pair, schema, trail, depth);
        if self.errors.len() > before && pair.is_some_and(Pair::is_unchanged) {
            self.errors.truncate(before);
        }
        matches
    }

    fn node(
        &mut self,
        value: &Value,
        pair: Forgiven<'_>,
        schema: &Schema,
        trail: &Trail<'_>,
        depth: usize,
    ) -> Matches {
        if depth > MAX_DEPTH {
            self.invalid(
                trail,
                Value::Null,
                &format!("nests deeper than {MAX_DEPTH} levels"),
            );
            return 0;
        }
        let format = Format::known(&schema.format);
        let has_type = schema.int_or_string || schema.type_.is_some();
        if value.is_null() {
            let matches = Matches::from(self.null_type(schema, trail));
            self.enumeration(value, schema, trail);
            return matches;
        }
        // Every check that applies counts once, and once more where the original counts it so.
        let mut matches = 2;
        if has_type || format.is_some() {
            matches += 1 + Matches::from(self.type_(value, schema, format, trail));
        }
        matches += 1 + self.choices(value, schema, trail, depth);
        match value {
            Value::String(text) => {
                matches += 1 + Matches::from(format.is_some());
                self.string(text, schema, format, trail);
            }
            Value::Number(number) => {
                matches += 2;
                self.number(Num::of(number), schema, trail);
            }
            Value::Array(items) => matches += 2 + self.array(items, pair, schema, trail, depth),
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.enumeration(value, schema, trail);
        if let Value::Object(members) = value {
            matches += 1 + self.object(members, pair, schema, trail, depth);
        }
        matches
    }

    fn null_type(&mut self, schema: &Schema, trail: &Trail<'_>) -> bool {
        let has_type = schema.int_or_string || schema.type_.is_some();
        let wrong = has_type && !schema.nullable;
        if wrong {
            self.wrong_type(trail, type_names(schema), "null");
        }
        !wrong
    }

    /// Whether the type is right. Formats of strings lift the demand for a string from lists, an oddity kept here
    /// because objects that rely on it are accepted elsewhere.
    fn type_(&mut self, value: &Value, schema: &Schema, format: Option<Format>, trail: &Trail<'_>) -> bool {
        let (found, found_format, is_whole) = describe(value);
        let wants = |type_: Type| {
            (schema.type_ == Some(type_) && !schema.int_or_string)
                || (schema.int_or_string && matches!(type_, Type::Integer | Type::String))
        };
        let integer_as_float = found == Type::Number && is_whole && wants(Type::Integer);
        let float_as_integer = found == Type::Integer && wants(Type::Number);
        let fits = wants(found) || integer_as_float || float_as_integer;
        let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
        if format.is_some() && !is_text_or_list && !fits {
            self.wrong_type(trail, &schema.format, found_format);
            return false;
        }
        if format.is_some() && is_text_or_list && !wants(Type::Number) && !wants(Type::Integer) {
            return true;
        }
        if !fits {
            self.wrong_type(trail, type_names(schema), found.into());
        }
        fits
    }

    fn string(&mut self, text: &str, schema: &Schema, format: Option<Format>, trail: &Trail<'_>) {
        self.string_size(text, schema, trail);
        if let Some(format) = format
            && !format.accepts(text)
        {
            self.wrong_type(trail, &schema.format, text);
        }
    }

    /// Length and pattern, of which only the first failure is told.
    fn string_size(&mut self, text: &str, schema: &Schema, trail: &Trail<'_>) {
        // A string has at most as many characters as bytes, so most need no counting.
        let longer = |most: u64| text.len() as u64 > most && text.chars().count() as u64 > most;
        if let Some(most) = schema.max_length.filter(|most| longer(*most)) {
            let path = trail.below(self.base);
            self.push(FieldError::new(path, Problem::TooLong { max_bytes: most }, ""));
            return;
        }
        if let Some(least) = schema
            .min_length
            .filter(|least| *least > 0 && !longer(*least - 1))
        {
            let detail = format!("should be at least {least} chars long");
            self.in_body(trail, Value::String(text.to_owned()), &detail);
            return;
        }
        if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            let detail = format!("should match '{}'", pattern.text());
            self.in_body(trail, Value::String(text.to_owned()), &detail);
        }
    }

    fn enumeration(&mut self, value: &Value, schema: &Schema, trail: &Trail<'_>) {
        if schema.enum_.is_empty() || schema.enum_.iter().any(|allowed| number::same(value, allowed)) {
            return;
        }
        let allowed = schema
            .enum_
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .collect();
        let path = trail.below(self.base);
        self.push(FieldError::new(
            path,
            Problem::NotSupported(value.clone(), allowed),
            "",
        ));
    }

    fn array(
        &mut self,
        items: &[Value],
        pair: Forgiven<'_>,
        schema: &Schema,
        trail: &Trail<'_>,
        depth: usize,
    ) -> Matches {
        let mut matches = 0;
        if let Some(shape) = &schema.items {
            let old = pair.map(|pair| OldItems::new(pair.schema, Some(pair.old)));
            for (index, item) in items.iter().enumerate() {
                // The value must come from the pair to live as long as it does.
                let pair = pair
                    .zip(old.as_ref())
                    .and_then(|(pair, old)| old.pair(pair.new.as_array()?.get(index)?, pair.schema));
                matches += self.ratcheted(item, pair, shape, &trail.index(index), depth + 1);
            }
        }
        let size = items.len();
        if let Some(least) = schema.min_items.filter(|least| (size as u64) < *least) {
            self.in_body(
                trail,
                Value::from(size),
                &format!("should have at least {least} items"),
            );
        }
        if let Some(most) = schema.max_items.filter(|most| size as u64 > *most) {
            self.too_many(trail, size, most);
        }
        if schema.unique_items && lists::has_repetition(items) {
            self.in_body(trail, Value::from(""), "shouldn't contain duplicates");
        }
        matches
    }

    fn object(
        &mut self,
        members: &Map<String, Value>,
        pair: Forgiven<'_>,
        schema: &Schema,
        trail: &Trail<'_>,
        depth: usize,
    ) -> Matches {
        let size = members.len();
        if let Some(least) = schema.min_properties.filter(|least| (size as u64) < *least) {
            self.in_body(
                trail,
                Value::from(size),
                &format!("should have at least {least} properties"),
            );
        }
        if let Some(most) = schema.max_properties.filter(|most| size as u64 > *most) {
            self.too_many(trail, size, most);
        }
        let mut matches = 0;
        if let Additional::Schema(shape) = &schema.additional {
            for (name, value) in members {
                if !schema.properties.contains_key(name) {
                    let pair = self.member_pair(pair, name, trail);
                    matches += self.ratcheted(value, pair, shape, &trail.child(name), depth + 1);
                }
            }
        }
        if !schema.properties.is_empty() {
            for (name, value) in members {
                if let Some(property) = schema.properties.get(name) {
                    let pair = self.member_pair(pair, name, trail);
                    matches += self.ratcheted(value, pair, property, &trail.child(name), depth + 1);
                }
            }
        }
        for name in &schema.required {
            if !members.contains_key(name) {
                let path = trail.child(name).below(self.base);
                self.push(FieldError::required(path, ""));
            }
        }
        matches
    }

    /// Both objects are converted to the same version before they are compared, so the type of the root says nothing.
    fn member_pair<'a>(&self, pair: Forgiven<'a>, name: &str, trail: &Trail<'_>) -> Forgiven<'a> {
        let is_type =
            trail.is_root() && self.base.as_str().is_empty() && matches!(name, "apiVersion" | "kind");
        pair.filter(|_| !is_type).and_then(|pair| pair.member(name))
    }

    fn too_many(&mut self, trail: &Trail<'_>, actual: usize, max: u64) {
        let path = trail.below(self.base);
        self.push(FieldError::new(path, Problem::TooMany { actual, max }, ""));
    }

    fn wrong_type(&mut self, trail: &Trail<'_>, wanted: &str, found: &str) {
        let name = trail.render();
        let detail = format!("{name} in body must be of type {wanted}: {}", go_quoted(found));
        let problem = Problem::TypeInvalid(Value::String(found.to_owned()));
        self.push(FieldError::new(trail.below(self.base), problem, detail));
    }

    fn in_body(&mut self, trail: &Trail<'_>, value: Value, what: &str) {
        let name = trail.render();
        self.invalid(trail, value, &format!("{name} in body {what}"));
    }

    fn invalid(&mut self, trail: &Trail<'_>, value: Value, detail: &str) {
        let path = trail.below(self.base);
        self.push(FieldError::invalid(path, value, detail));
    }

    /// Adds an error unless it was told already, as it may be inside and outside of an alternative.
    fn push(&mut self, error: FieldError) {
        let compared = self.errors.len().saturating_sub(MAX_COMPARED);
        if !self.errors.iter().skip(compared).any(|told| *told == error) {
            self.errors.push(error);
        }
    }
}

/// The type a schema asks for, as messages spell it.
fn type_names(schema: &Schema) -> &'static str {
    if schema.int_or_string {
        "integer,string"
    } else {
        schema.type_.map_or("", Into::into)
    }
}

/// A value's type, the format Go's decoder implies, and whether it is a whole number.
fn describe(value: &Value) -> (Type, &'static str, bool) {
    match value {
        Value::Null | Value::Object(_) => (Type::Object, "", false),
        Value::Bool(_) => (Type::Boolean, "", false),
        Value::String(_) => (Type::String, "", false),
        Value::Array(_) => (Type::Array, "", false),
        Value::Number(number) => match Num::of(number) {
            Num::Integer(_) => (Type::Integer, "int64", true),
            Num::Float(float) => (Type::Number, "float64", number::is_whole(float)),
        },
    }
}

#[cfg(test)]
mod tests;
