//! JSON values as rules see them, converted by the schema: a `number` is a double even when written `1`, a `date-time`
//! is a timestamp, and only fields that the schema knows are visible, under names that CEL can spell.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::core::cel::cel::{
    self, Context, Program,
    common::ast::{EntryExpr, Expr, IdedExpr},
    objects::{Key, Map, OptionalValue},
};
use serde_json::Value;

use crate::schema::{
    Additional, MAX_DEPTH, Schema, Type,
    prune::is_meta_field,
    rules::{library, meter},
};

/// What an expression looks at in `self` and `oldSelf`: everything, or some members.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Uses {
    whole: bool,
    members: BTreeMap<String, Uses>,
}

impl Uses {
    fn whole() -> Self {
        Self {
            whole: true,
            members: BTreeMap::new(),
        }
    }

    /// Adds what an expression looks at. It is called only for expressions that `check` has found shallow enough.
    pub(super) fn add(&mut self, expr: &IdedExpr) {
        match &expr.expr {
            Expr::Ident(name) if is_subject(name) => self.whole = true,
            Expr::Select(_) => {
                let (root, fields) = chain(expr);
                match &root.expr {
                    Expr::Ident(name) if is_subject(name) => self.add_path(&fields),
                    _ => self.add(root),
                }
            }
            Expr::Call(call) => {
                call.target.iter().for_each(|target| self.add(target));
                call.args.iter().for_each(|arg| self.add(arg));
            }
            Expr::Comprehension(loop_) => {
                for part in [
                    &loop_.iter_range,
                    &loop_.accu_init,
                    &loop_.loop_cond,
                    &loop_.loop_step,
                    &loop_.result,
                ] {
                    self.add(part);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(|element| self.add(element)),
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.add_entry(&entry.expr)),
            Expr::Struct(object) => object
                .entries
                .iter()
                .for_each(|entry| self.add_entry(&entry.expr)),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn add_entry(&mut self, entry: &EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.add(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.add(&entry.key);
                self.add(&entry.value);
            }
        }
    }

    fn add_path(&mut self, fields: &[&str]) {
        let mut node = self;
        for field in fields {
            node = node.members.entry((*field).to_owned()).or_default();
        }
        node.whole = true;
    }
}

/// The two variables of a rule.
pub(super) fn is_subject(name: &str) -> bool {
    matches!(name, "self" | "oldSelf")
}

/// Splits `root.a.b` into its root and the selected fields.
pub(super) fn chain(expr: &IdedExpr) -> (&IdedExpr, Vec<&str>) {
    let mut fields = Vec::new();
    let mut root = expr;
    while let Expr::Select(select) = &root.expr {
        fields.push(select.field.as_str());
        root = &select.operand;
    }
    fields.reverse();
    (root, fields)
}

/// What evaluation needs besides the rules. One per thread, because a context cannot be shared.
pub(super) struct Tools {
    pub(super) context: Context<'static>,
    timestamp: Option<Program>,
    duration: Option<Program>,
    /// How much was converted so far.
    converted: Cell<u64>,
}

impl Tools {
    pub(super) fn new() -> Self {
        Self {
            context: library::context(),
            timestamp: Program::compile("timestamp(text)").ok(),
            duration: Program::compile("duration(text)").ok(),
            converted: Cell::new(0),
        }
    }

    /// A text turned into another type by a CEL function, or left as it is if that fails.
    fn convert(&self, program: Option<&Program>, text: String) -> cel::Value {
        let text = cel::Value::String(Arc::new(text));
        let mut scope = self.context.new_inner_scope();
        scope.add_variable_from_value("text", text.clone());
        program
            .and_then(|program| program.execute(&scope).ok())
            .unwrap_or(text)
    }

    /// A value as a rule at its node sees it, and how large that is: one for each part and for a few characters.
    pub(super) fn value(
        &self,
        value: &Value,
        schema: &Schema,
        is_resource_root: bool,
        uses: &Uses,
    ) -> (cel::Value, u64) {
        let view = View::Typed {
            schema,
            is_resource_root,
        };
        self.converted.set(0);
        let value = self.node(value, view, uses, 0);
        (value, self.converted.get())
    }

    /// `oldSelf` of a rule that can do without.
    pub(super) fn optional(value: Option<cel::Value>) -> cel::Value {
        cel::Value::Opaque(Arc::new(
            value.map_or_else(OptionalValue::none, OptionalValue::of),
        ))
    }

    fn node(&self, value: &Value, view: View<'_>, uses: &Uses, depth: usize) -> cel::Value {
        if depth > MAX_DEPTH {
            return cel::Value::Null;
        }
        let text = value.as_str().map_or(0, |text| meter::of_text(text.len()));
        self.converted.set(self.converted.get() + 1 + text);
        match value {
            Value::Null => cel::Value::Null,
            Value::Bool(flag) => cel::Value::Bool(*flag),
            Value::Number(number) => convert_number(number, view.schema()),
            Value::String(text) => self.text(text, view.schema()),
            Value::Array(items) => {
                let item = View::of(view.schema().and_then(|schema| schema.items.as_deref()));
                let everything = Uses::whole();
                let items = items
                    .iter()
                    .map(|value| self.node(value, item, &everything, depth + 1))
                    .collect();
                cel::Value::List(Arc::new(items))
            }
            Value::Object(members) => {
                let everything = Uses::whole();
                let mut map = HashMap::with_capacity(members.len());
                for (name, value) in members {
                    let Some((name, member)) = view.member(name, value, uses.whole) else {
                        continue;
                    };
                    let uses = if uses.whole {
                        Some(&everything)
                    } else {
                        uses.members.get(name.as_ref())
                    };
                    if let Some(uses) = uses {
                        let value = self.node(value, member, uses, depth + 1);
                        map.insert(Key::String(Arc::new(name.into_owned())), value);
                    }
                }
                cel::Value::Map(Map { map: Arc::new(map) })
            }
        }
    }

    fn text(&self, text: &str, schema: Option<&Schema>) -> cel::Value {
        let plain = || cel::Value::String(Arc::new(text.to_owned()));
        let Some(schema) = schema.filter(|schema| !schema.int_or_string) else {
            return plain();
        };
        match schema.format.as_str() {
            "byte" => STANDARD
                .decode(text)
                .map_or_else(|_| plain(), |bytes| cel::Value::Bytes(Arc::new(bytes))),
            "duration" => self.convert(self.duration.as_ref(), text.to_owned()),
            "date" => self.convert(self.timestamp.as_ref(), format!("{text}T00:00:00Z")),
            "date-time" => self.convert(self.timestamp.as_ref(), text.to_owned()),
            _ => plain(),
        }
    }
}

fn convert_number(number: &serde_json::Number, schema: Option<&Schema>) -> cel::Value {
    let type_ = schema
        .filter(|schema| !schema.int_or_string)
        .and_then(|schema| schema.type_);
    let float = number.as_f64().unwrap_or(f64::NAN);
    match (type_, number.as_i64()) {
        (Some(Type::Number), _) => cel::Value::Float(float),
        (_, Some(integer)) => cel::Value::Int(integer),
        (Some(Type::Integer), None) => whole(float).map_or(cel::Value::Float(float), cel::Value::Int),
        (_, None) => cel::Value::Float(float),
    }
}

/// The integer a float stands for, where one was declared but `1.0` was written.
fn whole(float: f64) -> Option<i64> {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value has no fraction and is in range"
    )]
    (float.fract() == 0.0 && float.abs() <= MAX_SAFE).then_some(float as i64)
}

/// What is known about a value.
#[derive(Clone, Copy)]
enum View<'s> {
    /// It has a schema, and is the root of a resource or not.
    Typed {
        schema: &'s Schema,
        is_resource_root: bool,
    },
    /// It is the metadata of a resource.
    Metadata,
    /// Nothing: it takes part in comparisons, but rules cannot name anything in it.
    Raw,
}

impl<'s> View<'s> {
    fn of(schema: Option<&'s Schema>) -> Self {
        schema.map_or(Self::Raw, |schema| Self::Typed {
            schema,
            is_resource_root: schema.embedded_resource,
        })
    }

    fn schema(self) -> Option<&'s Schema> {
        match self {
            Self::Typed { schema, .. } => Some(schema),
            Self::Metadata | Self::Raw => None,
        }
    }

    /// The name under which a rule sees a member and the view on it. What a rule cannot name is seen only by those that
    /// look at the whole.
    fn member<'n>(self, name: &'n str, value: &Value, whole: bool) -> Option<(Cow<'n, str>, View<'s>)> {
        let unnamed = whole.then_some((Cow::Borrowed(name), Self::Raw));
        let Self::Typed {
            schema,
            is_resource_root,
        } = self
        else {
            let is_visible = matches!(self, Self::Metadata) && matches!(name, "name" | "generateName");
            return if is_visible {
                Some((Cow::Borrowed(name), Self::Raw))
            } else {
                unnamed
            };
        };
        // A null in a field counts as its absence; in a map it is a value.
        let is_struct = is_resource_root || !schema.properties.is_empty();
        if is_struct && value.is_null() {
            return None;
        }
        if is_resource_root && is_meta_field(name) {
            let view = if name == "metadata" {
                Self::Metadata
            } else {
                Self::Raw
            };
            return Some((Cow::Borrowed(name), view));
        }
        if let Some(property) = schema.properties.get(name) {
            return Some((escape(name)?, View::of(Some(property))));
        }
        match &schema.additional {
            Additional::Schema(shape) => Some((Cow::Borrowed(name), View::of(Some(shape)))),
            Additional::Any | Additional::Absent => unnamed,
        }
    }
}

/// A field name as an identifier of CEL, if it can be written as one.
pub(super) fn escape(name: &str) -> Option<Cow<'_, str>> {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];

    if name.is_empty() || name.starts_with(|char: char| char.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    if !name
        .chars()
        .all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '/'))
    {
        return None;
    }
    if !name.contains(['-', '.', '/']) && !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Some(Cow::Owned(escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_in_kubernetes() {
        let table = [
            ("plain", Some("plain")),
            ("snake_case", Some("snake_case")),
            ("namespace", Some("__namespace__")),
            ("a__b", Some("a__underscores__b")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("1a", None),
            ("a$", None),
            ("", None),
        ];
        for (name, expected) in table {
            assert_eq!(escape(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn an_expression_uses_the_paths_it_selects() {
        let mut uses = Uses::default();
        uses.add(
            Program::compile("self.a.b == 1 && has(self.c) && oldSelf.d.all(x, x > self.a.z)")
                .unwrap()
                .expression(),
        );
        assert!(!uses.whole);
        assert_eq!(uses.members.keys().collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(uses.members["a"].members.keys().collect::<Vec<_>>(), ["b", "z"]);
        assert!(!uses.members["a"].whole);
        uses.add(Program::compile("self == oldSelf").unwrap().expression());
        assert!(uses.whole);
    }
}
