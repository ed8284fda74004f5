//! From the rules of a schema to programs.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    field::{FieldError, FieldPath},
    schema::{
        Additional, CelRule, ListType, Schema,
        rules::{
            Compiled, Node, Rules, check,
            estimate::{self, Occurrence},
            field_path,
            meter::Metered,
            value::Uses,
            with_large_stack,
        },
    },
};

pub(super) fn compile(
    schema: &Schema,
    is_resource_root: bool,
    path: &FieldPath,
) -> Result<Rules, Vec<FieldError>> {
    if !has_rules(schema) {
        return Ok(Rules::default());
    }
    let work = || {
        let mut compiler = Compiler {
            errors: Vec::new(),
            is_deep: false,
            costs: Vec::new(),
        };
        let place = Place {
            fixed: None,
            occurs: Occurrence::AtMost(1),
        };
        let root = compiler.node(&Arc::new(schema.clone()), is_resource_root, place, path);
        compiler.check_total(path);
        if compiler.errors.is_empty() {
            Ok(Rules {
                root: root.map(Box::new),
                is_deep: compiler.is_deep,
            })
        } else {
            Err(compiler.errors)
        }
    };
    // The parser needs more stack than the interpreter, by far.
    with_large_stack(work).unwrap_or_else(|| {
        let detail = "internal error: rules could not be compiled";
        Err(vec![FieldError::forbidden(
            path.child("x-kubernetes-validations"),
            detail,
        )])
    })
}

fn has_rules(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Additional::Schema(shape) => has_rules(shape),
        Additional::Any | Additional::Absent => false,
    };
    !schema.rules.is_empty()
        || additional
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.properties.values().any(|property| has_rules(property))
}

struct Compiler {
    errors: Vec<FieldError>,
    is_deep: bool,
    /// What each expression may cost at worst.
    costs: Vec<(FieldPath, u64)>,
}

/// What is known of a place in a schema from those above it.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// The path of the list above, if its items cannot be followed from one version of an object to the next.
    fixed: Option<&'p FieldPath>,
    occurs: Occurrence,
}

impl Compiler {
    fn node(
        &mut self,
        schema: &Arc<Schema>,
        is_resource_root: bool,
        place: Place<'_>,
        path: &FieldPath,
    ) -> Option<Node> {
        let below = Place {
            occurs: place.occurs.below(schema),
            ..place
        };
        let mut properties = BTreeMap::new();
        for (name, property) in &schema.properties {
            let path = path.child("properties").key(name);
            if let Some(node) = self.node(property, property.embedded_resource, below, &path) {
                properties.insert(name.clone(), node);
            }
        }
        let additional = match &schema.additional {
            Additional::Schema(shape) => self.node(
                shape,
                shape.embedded_resource,
                below,
                &path.child("additionalProperties"),
            ),
            Additional::Any | Additional::Absent => None,
        };
        let items = schema.items.as_ref().and_then(|shape| {
            let follows = matches!(schema.list_type, Some(ListType::Map(_)));
            let fixed = place.fixed.or((!follows).then_some(path));
            let place = Place { fixed, ..below };
            self.node(shape, shape.embedded_resource, place, &path.child("items"))
        });
        let mut uses = Uses::default();
        let mut rules = Vec::with_capacity(schema.rules.len());
        for (index, rule) in schema.rules.iter().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            let scope = check::Scope {
                schema,
                is_resource_root,
            };
            rules.extend(self.rule(rule, scope, place, &path, &mut uses));
        }
        let has_none = rules.is_empty() && properties.is_empty() && additional.is_none() && items.is_none();
        (!has_none).then(|| Node {
            schema: Arc::clone(schema),
            is_resource_root,
            rules,
            uses,
            properties,
            additional: additional.map(Box::new),
            items: items.map(Box::new),
        })
    }

    fn rule(
        &mut self,
        rule: &CelRule,
        scope: check::Scope<'_>,
        place: Place<'_>,
        path: &FieldPath,
        uses: &mut Uses,
    ) -> Option<Compiled> {
        // An empty rule is refused elsewhere; to the compiler it is no rule.
        if rule.rule.trim().is_empty() {
            return None;
        }
        let checked = match check::compile(&rule.rule, scope, check::Wanted::Bool) {
            Ok(checked) => checked,
            Err(detail) => {
                self.errors
                    .push(FieldError::invalid(path.child("rule"), as_json(rule), detail));
                return None;
            }
        };
        let cost = place.occurs.total(checked.cost, scope.schema);
        self.check_cost("estimated rule cost", cost, path.child("rule"));
        let expression = checked.expression;
        self.is_deep |= check::is_deep(expression.paying());
        let uses_old_self = expression.program().references().has_variable("oldSelf");
        uses.add(expression.program().expression());
        let message = self.message(rule, scope, path, uses);
        if let Some(fixed) = place.fixed.filter(|_| uses_old_self) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {fixed}");
            self.errors.push(FieldError::invalid(
                path.child("rule"),
                rule.rule.as_str(),
                detail,
            ));
        }
        if rule.optional_old_self && !uses_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors
                .push(FieldError::invalid(path.child("optionalOldSelf"), true, detail));
        }
        let field_path = field_path::normalize(&rule.field_path, scope.schema).unwrap_or_default();
        Some(Compiled {
            rule: rule.clone(),
            expression,
            message,
            uses_old_self,
            field_path,
        })
    }

    fn message(
        &mut self,
        rule: &CelRule,
        scope: check::Scope<'_>,
        path: &FieldPath,
        uses: &mut Uses,
    ) -> Option<Metered> {
        if rule.message_expression.trim().is_empty() {
            return None;
        }
        match check::compile(&rule.message_expression, scope, check::Wanted::String) {
            Ok(checked) => {
                let path = path.child("messageExpression");
                self.check_cost("estimated messageExpression cost", checked.cost, path);
                self.is_deep |= check::is_deep(checked.expression.paying());
                uses.add(checked.expression.program().expression());
                Some(checked.expression)
            }
            Err(detail) => {
                let path = path.child("messageExpression");
                self.errors.push(FieldError::invalid(
                    path,
                    as_json(rule),
                    format!("messageExpression {detail}"),
                ));
                None
            }
        }
    }
}

/// How many of the most expensive expressions are named when all together cost too much.
const MOST_EXPENSIVE: usize = 4;

impl Compiler {
    fn check_cost(&mut self, what: &str, cost: u64, path: FieldPath) {
        if cost > estimate::PER_EXPRESSION {
            let detail = estimate::complaint(what, cost, estimate::PER_EXPRESSION);
            self.errors.push(FieldError::forbidden(path.clone(), detail));
        }
        self.costs.push((path, cost));
    }

    fn check_total(&mut self, path: &FieldPath) {
        let total = self
            .costs
            .iter()
            .map(|(_, cost)| *cost)
            .fold(0, u64::saturating_add);
        if total <= estimate::PER_SCHEMA {
            return;
        }
        self.costs.sort_by_key(|(_, cost)| Reverse(*cost));
        for (path, _) in self.costs.iter().take(MOST_EXPENSIVE) {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(path.clone(), detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = estimate::complaint(what, total, estimate::PER_SCHEMA);
        self.errors.push(FieldError::forbidden(path.clone(), detail));
    }
}

/// A rule as messages print it.
fn as_json(rule: &CelRule) -> Value {
    let reason = if rule.reason.is_empty() {
        Value::Null
    } else {
        Value::from(rule.reason.as_str())
    };
    json!({
        "Rule": rule.rule,
        "Message": rule.message,
        "MessageExpression": rule.message_expression,
        "Reason": reason,
        "FieldPath": rule.field_path,
        "OptionalOldSelf": if rule.optional_old_self { Value::Bool(true) } else { Value::Null },
    })
}
