//! Running compiled rules over an object.

use kube::core::cel::cel::{self, Context, ExecutionError};
use serde_json::Value;

use crate::{
    field::{FieldError, FieldPath, Problem, go_quoted},
    schema::{
        CelRule, MAX_DEPTH, Schema, Type,
        correlate::{OldItems, Pair},
        rules::{
            Compiled, Node,
            meter::{self, Metered},
            value::Tools,
        },
        trail::Trail,
    },
};

/// The longest message that a `messageExpression` may produce.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

thread_local! {
    static TOOLS: Tools = Tools::new();
}

pub(super) fn run(root: &Node, new: &Value, old: Option<&Value>, base: &FieldPath) -> Vec<FieldError> {
    TOOLS.with(|tools| {
        let mut runner = Runner {
            tools,
            base,
            errors: Vec::new(),
            left: Some(meter::PER_OBJECT),
        };
        let pair = old.map(|old| Pair {
            new,
            old,
            schema: &root.schema,
        });
        runner.node(
            root,
            new,
            old,
            Forgiven {
                here: pair,
                above: None,
            },
            &Trail::Root,
            0,
        );
        runner.errors
    })
}

/// What decides whether a failure is forgiven: the pair of the node, or else the nearest one above it.
#[derive(Clone, Copy)]
struct Forgiven<'a> {
    here: Option<Pair<'a>>,
    above: Option<Pair<'a>>,
}

impl<'a> Forgiven<'a> {
    fn is_unchanged(self) -> bool {
        self.here.or(self.above).is_some_and(Pair::is_unchanged)
    }

    fn member(self, name: &str) -> Self {
        match self.here {
            None => self,
            // Both objects are converted to the same version before they are compared, so this says nothing.
            Some(_) if self.above.is_none() && matches!(name, "apiVersion" | "kind") => Self {
                here: None,
                above: None,
            },
            Some(pair) => Self {
                here: pair.member(name),
                above: Some(pair),
            },
        }
    }

    fn item(self, item: &'a Value, old: &OldItems<'a>) -> Self {
        match self.here {
            None => self,
            Some(pair) => Self {
                here: old.pair(item, pair.schema),
                above: Some(pair),
            },
        }
    }
}

struct Runner<'r> {
    tools: &'r Tools,
    base: &'r FieldPath,
    errors: Vec<FieldError>,
    /// What the rules may still cost; `None` when no more of them are run.
    left: Option<u64>,
}

impl Runner<'_> {
    fn node<'a>(
        &mut self,
        node: &'a Node,
        new: &'a Value,
        old: Option<&'a Value>,
        forgiven: Forgiven<'a>,
        trail: &Trail<'_>,
        depth: usize,
    ) {
        // Rules apply to values that are there.
        if new.is_null() || depth > MAX_DEPTH || self.left.is_none() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, new, old, forgiven, trail);
        match new {
            Value::Array(items) => {
                let Some(below) = &node.items else { return };
                let old_items = OldItems::new(&node.schema, old);
                for (index, item) in items.iter().enumerate() {
                    let old = old_items.find(item);
                    let forgiven = forgiven.item(item, &old_items);
                    self.node(below, item, old, forgiven, &trail.index(index), depth + 1);
                }
            }
            Value::Object(members) => {
                for (name, value) in members {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(below) = node.properties.get(name) {
                        self.node(
                            below,
                            value,
                            old,
                            forgiven.member(name),
                            &trail.child(name),
                            depth + 1,
                        );
                    } else if let Some(below) = &node.additional {
                        self.node(
                            below,
                            value,
                            old,
                            forgiven.member(name),
                            &trail.key(name),
                            depth + 1,
                        );
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rules<'a>(
        &mut self,
        node: &'a Node,
        new: &'a Value,
        old: Option<&'a Value>,
        forgiven: Forgiven<'a>,
        trail: &Trail<'_>,
    ) {
        let applies =
            |compiled: &Compiled| !compiled.uses_old_self || old.is_some() || compiled.rule.optional_old_self;
        if !node.rules.iter().any(applies) {
            return;
        }
        let tools = self.tools;
        let convert = |value| tools.value(value, &node.schema, node.is_resource_root, &node.uses);
        let old = old
            .filter(|_| node.rules.iter().any(|compiled| compiled.uses_old_self))
            .map(convert);
        let (value, size) = convert(new);
        let size = size + old.as_ref().map_or(0, |(_, size)| *size);
        let old = old.map(|(value, _)| value);
        let mut scope = tools.context.new_inner_scope();
        scope.add_variable_from_value("self", value);
        if let Some(old) = &old {
            scope.add_variable_from_value("oldSelf", old.clone());
        }
        for compiled in node.rules.iter().filter(|compiled| applies(compiled)) {
            let Some(left) = &mut self.left else { return };
            let failure = if compiled.uses_old_self && compiled.rule.optional_old_self {
                let mut scope = scope.new_inner_scope();
                scope.add_variable_from_value("oldSelf", Tools::optional(old.clone()));
                evaluate(compiled, &scope, size, left)
            } else {
                evaluate(compiled, &scope, size, left)
            };
            match failure {
                None => {}
                Some(Failure::Broken(detail)) => self.broken(&node.schema, detail, trail),
                Some(Failure::TooCostly(detail)) => {
                    self.broken(&node.schema, detail, trail);
                    self.left = None;
                }
                Some(Failure::Refused(_)) if !compiled.uses_old_self && forgiven.is_unchanged() => {}
                Some(Failure::Refused(detail)) => {
                    let error = self.refusal(compiled, new, &node.schema, detail, trail);
                    self.errors.push(error);
                }
            }
        }
    }

    fn broken(&mut self, schema: &Schema, detail: String, trail: &Trail<'_>) {
        let path = trail.below(self.base);
        self.errors
            .push(FieldError::invalid(path, type_name(schema), detail));
    }

    fn refusal(
        &self,
        compiled: &Compiled,
        value: &Value,
        schema: &Schema,
        detail: String,
        trail: &Trail<'_>,
    ) -> FieldError {
        let mut path = trail.below(self.base);
        if !compiled.field_path.is_empty() {
            path = path.child(&compiled.field_path);
        }
        let omitted = matches!(schema.type_, Some(Type::Object | Type::Array));
        let problem = match (compiled.rule.reason.as_str(), omitted) {
            ("FieldValueForbidden", _) => Problem::Forbidden,
            ("FieldValueRequired", _) => Problem::Required,
            ("FieldValueDuplicate", true) => return FieldError::new(path, Problem::DuplicateOmitted, ""),
            ("FieldValueDuplicate", false) => {
                return FieldError::new(path, Problem::Duplicate(value.clone()), "");
            }
            (_, true) => Problem::InvalidOmitted,
            (_, false) => Problem::Invalid(value.clone()),
        };
        FieldError::new(path, problem, detail)
    }
}

fn type_name(schema: &Schema) -> &'static str {
    schema.type_.map_or("", Into::into)
}

enum Failure {
    /// The rule says no, for this reason.
    Refused(String),
    /// The rule could not be evaluated.
    Broken(String),
    /// The rule was stopped, and no further ones are run.
    TooCostly(String),
}

/// Runs a rule for no more than what is `left`, and takes its cost from that.
fn evaluate(compiled: &Compiled, scope: &Context<'_>, size: u64, left: &mut u64) -> Option<Failure> {
    let result = match execute(&compiled.expression, scope, size, left) {
        Ok(result) => result,
        Err(Exceeded::Object) => return Some(Failure::TooCostly(OUT_OF_BUDGET.to_owned())),
        Err(Exceeded::Expression) => {
            let rule = short(&compiled.rule);
            return Some(Failure::TooCostly(format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call \
                 cost exceeds limit for rule: {rule}"
            )));
        }
    };
    match result {
        Ok(cel::Value::Bool(true)) => None,
        Ok(cel::Value::Bool(false)) => Some(refused(compiled, scope, size, left)),
        Ok(_) => {
            let rule = short(&compiled.rule);
            Some(Failure::Broken(format!(
                "cel expression must evaluate to a bool evaluating rule: {rule}"
            )))
        }
        Err(error) => Some(Failure::Broken(describe(&error, short(&compiled.rule)))),
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The failure of a rule that says no, with the message it makes for itself if it does.
fn refused(compiled: &Compiled, scope: &Context<'_>, size: u64, left: &mut u64) -> Failure {
    let default = || Failure::Refused(default_message(&compiled.rule));
    let Some(expression) = &compiled.message else {
        return default();
    };
    match execute(expression, scope, size, left) {
        Ok(result) => message(result).map_or_else(default, Failure::Refused),
        Err(Exceeded::Object) => Failure::TooCostly(
            "messageExpression evaluation failed due to running out of cost budget, no further validation rules will \
             be run"
                .to_owned(),
        ),
        Err(Exceeded::Expression) => Failure::TooCostly(format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
            go_quoted(&compiled.rule.message_expression)
        )),
    }
}

/// Which limit an evaluation ran into.
enum Exceeded {
    Expression,
    Object,
}

/// Runs an expression for no more than what is `left`.
fn execute(
    expression: &Metered,
    scope: &Context<'_>,
    size: u64,
    left: &mut u64,
) -> Result<Result<cel::Value, ExecutionError>, Exceeded> {
    let allowance = (*left).min(meter::PER_EXPRESSION);
    let outcome = expression.evaluate(scope, size, allowance);
    match outcome.cost {
        Some(cost) => {
            *left -= cost.min(*left);
            Ok(outcome.result)
        }
        None if *left < meter::PER_EXPRESSION => Err(Exceeded::Object),
        None => Err(Exceeded::Expression),
    }
}

fn message(result: Result<cel::Value, ExecutionError>) -> Option<String> {
    let Ok(cel::Value::String(text)) = result else {
        return None;
    };
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
    fits.then(|| text.to_owned())
}

fn default_message(rule: &CelRule) -> String {
    if rule.message.is_empty() {
        format!("failed rule: {}", short(rule))
    } else {
        rule.message.trim().to_owned()
    }
}

/// What a message calls the rule.
fn short(rule: &CelRule) -> &str {
    if rule.message.is_empty() {
        rule.rule.trim()
    } else {
        rule.message.trim()
    }
}

fn describe(error: &ExecutionError, rule: &str) -> String {
    let what = match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => match index {
            cel::Value::Int(index) => format!("index out of bounds: {index}"),
            _ => "index out of bounds".to_owned(),
        },
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::UndeclaredReference(name) => {
            format!("undeclared reference to '{name}' (in container '')")
        }
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnexpectedType { .. } => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature \
                 for rule: {rule}"
            );
        }
        other => other.to_string(),
    };
    format!("{what} evaluating rule: {rule}")
}
