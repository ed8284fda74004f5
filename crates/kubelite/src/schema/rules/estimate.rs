//! What a rule may cost at worst, told from its text and the bounds of the schema, so that a definition can be refused
//! before any object has to suffer for it. The units and limits are those of Kubernetes, which counts about one per step
//! of evaluation. Where a size cannot be told, the estimate is low rather than high: what it misses is stopped when the
//! rule runs.

use kube::core::cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};
use serde_json::Value;

use crate::schema::{
    Additional, Schema, Type,
    prune::is_meta_field,
    rules::{
        check::Scope,
        meter::Collecting,
        value::{escape, is_subject},
    },
};

/// The most that one expression may cost.
pub(super) const PER_EXPRESSION: u64 = 10_000_000;

/// The most that all expressions of a schema may cost together.
pub(super) const PER_SCHEMA: u64 = 100_000_000;

/// The largest request that Kubernetes takes. It bounds what the schema does not.
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// What it costs to make a list of one item and to append it to the result of `map` or `filter`.
const APPENDING: u64 = 12;

/// The longest notation of a time or duration, with its quotes.
const MAX_TIME_BYTES: u64 = 32;

/// How often a part of an object may occur.
#[derive(Clone, Copy, Debug)]
pub(super) enum Occurrence {
    AtMost(u64),
    /// It is in a list or map without a bound.
    Unbounded,
}

impl Occurrence {
    /// Of the members or items of a schema that itself occurs so often.
    pub(super) fn below(self, schema: &Schema) -> Self {
        let bound = match (schema.type_, &schema.additional) {
            (Some(Type::Array), _) => schema.max_items,
            (Some(Type::Object), Additional::Schema(_)) => schema.max_properties,
            _ => Some(1),
        };
        match (self, bound) {
            (Self::AtMost(times), Some(bound)) => Self::AtMost(times.saturating_mul(bound)),
            _ => Self::Unbounded,
        }
    }

    /// The cost of an expression that runs each time.
    pub(super) fn total(self, cost: u64, schema: &Schema) -> u64 {
        match self {
            Self::AtMost(times) => cost.saturating_mul(times),
            Self::Unbounded => cost.saturating_mul(MAX_REQUEST_BYTES / (least_bytes(schema) + 1)),
        }
    }
}

/// What Kubernetes says of a cost beyond the limit.
pub(super) fn complaint(what: &str, cost: u64, limit: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the factor is printed with a few digits"
    )]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// What was found out about an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// What it costs at worst.
    pub(super) cost: u64,
    /// It calls `reverse` on a text, which Kubernetes allows for lists only.
    pub(super) reverses_text: bool,
}

pub(super) fn estimate(expr: &IdedExpr, scope: Scope<'_>) -> Estimate {
    let mut estimator = Estimator {
        scope,
        locals: Vec::new(),
        reverses_text: false,
    };
    let (cost, _) = estimator.node(expr);
    Estimate {
        cost,
        reverses_text: estimator.reverses_text,
    }
}

/// What is known of a value.
#[derive(Clone, Debug)]
enum Shape<'s> {
    Typed {
        schema: &'s Schema,
        is_resource_root: bool,
    },
    Text(u64),
    List(u64, Option<Box<Shape<'s>>>),
    Other,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Text,
    List,
    Map,
    Other,
}

impl<'s> Shape<'s> {
    fn of(schema: &'s Schema) -> Self {
        Self::Typed {
            schema,
            is_resource_root: schema.embedded_resource,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::List(..) => Kind::List,
            Self::Other => Kind::Other,
            Self::Typed { schema, .. } if schema.int_or_string => Kind::Other,
            Self::Typed { schema, .. } => match schema.type_ {
                Some(Type::String) if !is_time(schema) && schema.format != "byte" => Kind::Text,
                Some(Type::Array) => Kind::List,
                Some(Type::Object) if matches!(schema.additional, Additional::Schema(_)) => Kind::Map,
                _ => Kind::Other,
            },
        }
    }

    /// The most characters, items or members.
    fn size(&self) -> u64 {
        match self {
            Self::Text(size) | Self::List(size, _) => *size,
            Self::Other => 1,
            Self::Typed { schema, .. } => most_parts(schema),
        }
    }

    /// What a loop sees of it, one by one.
    fn item(&self) -> Self {
        match self {
            Self::List(_, Some(item)) => item.as_ref().clone(),
            Self::Typed { schema, .. } if self.kind() == Kind::List => {
                schema.items.as_deref().map_or(Self::Other, Self::of)
            }
            _ => Self::Other,
        }
    }

    /// What stands at an index or key.
    fn at_index(&self) -> Self {
        match self {
            Self::Typed { schema, .. } => match &schema.additional {
                Additional::Schema(shape) if self.kind() == Kind::Map => Self::of(shape),
                _ => self.item(),
            },
            _ => self.item(),
        }
    }

    fn field(&self, name: &str) -> Self {
        let Self::Typed {
            schema,
            is_resource_root,
        } = self
        else {
            return Self::Other;
        };
        if *is_resource_root && is_meta_field(name) {
            return Self::Other;
        }
        if let Additional::Schema(shape) = &schema.additional {
            return Self::of(shape);
        }
        schema
            .properties
            .iter()
            .find(|(property, _)| escape(property).as_deref() == Some(name))
            .map_or(Self::Other, |(_, property)| Self::of(property))
    }
}

fn is_time(schema: &Schema) -> bool {
    matches!(schema.format.as_str(), "duration" | "date" | "date-time")
}

/// The most characters, items or members that a value can have.
fn most_parts(schema: &Schema) -> u64 {
    let text = MAX_REQUEST_BYTES - 2;
    // A character takes up to four bytes.
    let bounded = schema.max_length.map(|length| length.saturating_mul(4));
    if schema.int_or_string {
        return bounded.unwrap_or(text);
    }
    match schema.type_ {
        Some(Type::String) if is_time(schema) => MAX_TIME_BYTES,
        Some(Type::String) => bounded.or_else(|| longest(&schema.enum_)).unwrap_or(text),
        Some(Type::Array) => schema.max_items.unwrap_or_else(|| {
            let item = schema.items.as_deref().map_or(1, least_bytes);
            (MAX_REQUEST_BYTES - 2) / (item + 1)
        }),
        Some(Type::Object) => match &schema.additional {
            Additional::Schema(shape) => schema
                .max_properties
                .unwrap_or_else(|| (MAX_REQUEST_BYTES - 2) / (least_bytes(shape) + 6)),
            Additional::Any | Additional::Absent => 1,
        },
        Some(Type::Integer | Type::Number | Type::Boolean) | None => 1,
    }
}

fn longest(values: &[Value]) -> Option<u64> {
    values
        .iter()
        .filter_map(Value::as_str)
        .map(|text| u64::try_from(text.len()).unwrap_or(u64::MAX))
        .max()
}

/// The fewest bytes that a value takes in JSON.
fn least_bytes(schema: &Schema) -> u64 {
    if schema.int_or_string {
        return 1;
    }
    match schema.type_ {
        Some(Type::Boolean) => 4,
        Some(Type::String) => match schema.format.as_str() {
            "duration" => 3,
            "date" => 12,
            "date-time" => 21,
            _ => 2,
        },
        Some(Type::Array) => 2,
        Some(Type::Object) => {
            let required = schema.required.iter().filter_map(|name| {
                let property = schema.properties.get(name)?;
                let length = u64::try_from(name.len()).unwrap_or(u64::MAX);
                property
                    .default
                    .is_none()
                    .then(|| least_bytes(property).saturating_add(length + 4))
            });
            required.fold(2, u64::saturating_add)
        }
        Some(Type::Integer | Type::Number) | None => 1,
    }
}

/// A tenth, rounded up: Kubernetes finds that characters cost so much less than steps.
fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

struct Estimator<'e> {
    scope: Scope<'e>,
    locals: Vec<(&'e str, Shape<'e>)>,
    reverses_text: bool,
}

impl<'e> Estimator<'e> {
    /// The cost of an expression and the shape of its result. It is called only for expressions that `check` has found
    /// shallow enough.
    fn node(&mut self, expr: &'e IdedExpr) -> (u64, Shape<'e>) {
        match &expr.expr {
            Expr::Literal(LiteralValue::String(text)) => (
                0,
                Shape::Text(u64::try_from(text.inner().len()).unwrap_or(u64::MAX)),
            ),
            Expr::Literal(_) | Expr::Unspecified => (0, Shape::Other),
            Expr::Ident(name) => (1, self.variable(name)),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(loop_) => self.comprehension(loop_),
            Expr::List(list) => {
                let mut cost = 10_u64;
                let mut item = None;
                for element in &list.elements {
                    let (more, shape) = self.node(element);
                    cost = cost.saturating_add(more);
                    item.get_or_insert_with(|| Box::new(shape));
                }
                let length = u64::try_from(list.elements.len()).unwrap_or(u64::MAX);
                (cost, Shape::List(length, item))
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::StructField(field) => vec![&field.value],
                    EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                });
                let cost = entries
                    .flatten()
                    .map(|part| self.node(part).0)
                    .fold(30, u64::saturating_add);
                (cost, Shape::Other)
            }
            Expr::Struct(_) => (40, Shape::Other),
        }
    }

    fn variable(&self, name: &str) -> Shape<'e> {
        if let Some((_, shape)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return shape.clone();
        }
        if is_subject(name) {
            return Shape::Typed {
                schema: self.scope.schema,
                is_resource_root: self.scope.is_resource_root,
            };
        }
        Shape::Other
    }

    fn select(&mut self, select: &'e SelectExpr) -> (u64, Shape<'e>) {
        let (cost, shape) = self.node(&select.operand);
        if select.test {
            (cost, Shape::Other)
        } else {
            (cost.saturating_add(1), shape.field(&select.field))
        }
    }

    fn comprehension(&mut self, loop_: &'e ComprehensionExpr) -> (u64, Shape<'e>) {
        let (range_cost, range) = self.node(&loop_.iter_range);
        let (start, _) = self.node(&loop_.accu_init);
        let before = self.locals.len();
        self.locals.push((&loop_.accu_var, Shape::Other));
        self.locals.push((&loop_.iter_var, range.item()));
        let (turn, shape) = if let Some(collecting) = Collecting::of(loop_) {
            let condition = collecting.condition.map_or(0, |condition| self.node(condition).0);
            let (result, shape) = self.node(collecting.result);
            let turn = condition.saturating_add(result).saturating_add(APPENDING);
            (turn, Shape::List(range.size(), Some(Box::new(shape))))
        } else {
            let (condition, _) = self.node(&loop_.loop_cond);
            let (step, _) = self.node(&loop_.loop_step);
            (condition.saturating_add(step), Shape::Other)
        };
        let (result, _) = self.node(&loop_.result);
        self.locals.truncate(before);
        let turns = turn.saturating_mul(range.size());
        let cost = range_cost
            .saturating_add(start)
            .saturating_add(turns)
            .saturating_add(result);
        (cost, shape)
    }

    fn call(&mut self, call: &'e CallExpr) -> (u64, Shape<'e>) {
        let target = call.target.as_deref().map(|target| self.node(target));
        let args: Vec<(u64, Shape<'e>)> = call.args.iter().map(|arg| self.node(arg)).collect();
        let name = call.func_name.as_str();
        let target_cost = target.as_ref().map_or(0, |(cost, _)| *cost);
        if let (operators::CONDITIONAL, [condition, yes, no]) = (name, args.as_slice()) {
            let cost = condition.0.saturating_add(yes.0.max(no.0));
            return (cost, yes.1.clone());
        }
        let inner = args
            .iter()
            .map(|(cost, _)| *cost)
            .fold(target_cost, u64::saturating_add);
        // A method's target and the first argument of a function play the same part.
        let shapes: Vec<&Shape<'e>> = target.iter().chain(args.iter()).map(|(_, shape)| shape).collect();
        let is_text = |shape: &&Shape<'e>| shape.kind() == Kind::Text;
        self.reverses_text |= name == "reverse" && shapes.first().is_some_and(is_text);
        let (own, shape) = function(name, &shapes);
        (inner.saturating_add(own), shape)
    }
}

/// The cost of a function on its arguments, and what it results in.
fn function<'s>(name: &str, args: &[&Shape<'s>]) -> (u64, Shape<'s>) {
    let other = |cost| (cost, Shape::Other);
    match (name, args) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, _) => other(0),
        (operators::INDEX | operators::OPT_INDEX, [container, _]) => (1, container.at_index()),
        (operators::IN, [_, list]) if list.kind() == Kind::List => other(list.size()),
        (operators::ADD, [left, right]) => {
            let size = left.size().saturating_add(right.size());
            match left.kind() {
                Kind::Text => (tenth(size), Shape::Text(size)),
                Kind::List => (1, Shape::List(size, Some(Box::new(left.item())))),
                Kind::Map | Kind::Other => other(1),
            }
        }
        (
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            [left, right],
        ) => other(tenth(left.size().min(right.size())).max(1)),
        ("dyn", [value]) => (1, (*value).clone()),
        ("startsWith" | "endsWith", [_, part]) => other(tenth(part.size())),
        ("contains", [text, part]) => other(tenth(text.size()).saturating_mul(tenth(part.size()))),
        ("matches" | "find" | "findAll", [text, pattern, ..]) => {
            let cost = tenth(text.size().saturating_add(1)).saturating_mul(pattern.size().div_ceil(4));
            match name {
                "find" => (cost, Shape::Text(text.size())),
                "findAll" => (
                    cost,
                    Shape::List(text.size(), Some(Box::new(Shape::Text(text.size())))),
                ),
                _ => other(cost),
            }
        }
        ("lowerAscii" | "upperAscii" | "trim" | "substring" | "charAt" | "replace", [text, ..]) => {
            (tenth(text.size()), Shape::Text(text.size()))
        }
        ("split", [text, ..]) => (
            tenth(text.size()),
            Shape::List(text.size(), Some(Box::new(Shape::Text(text.size())))),
        ),
        ("join", [list, ..]) => (list.size(), Shape::Text(list.size())),
        ("distinct", [list]) => {
            let pairs = list.size().saturating_mul(list.size());
            (pairs.saturating_mul(2), (*list).clone())
        }
        // The name of the library comes first.
        ("equivalent" | "intersects" | "contains", [_, left, right]) => {
            other(left.size().saturating_mul(right.size()))
        }
        ("isSorted" | "sum" | "min" | "max", [list]) => other(list.size()),
        ("indexOf" | "lastIndexOf", [list, ..]) if list.kind() == Kind::List => other(list.size()),
        ("sort" | "reverse" | "slice", [list, ..]) => (list.size(), (*list).clone()),
        ("string" | "quote" | "bytes", [.., value]) if value.kind() == Kind::Text => {
            (tenth(value.size()), Shape::Text(value.size()))
        }
        _ => other(1),
    }
}
