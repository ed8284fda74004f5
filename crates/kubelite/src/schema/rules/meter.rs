//! What evaluation may cost. The interpreter has no bound of its own, so expressions that loop are rewritten to pay as
//! they run: each turn of a loop pays for its body, and each value that is copied or compared for its size. When the
//! allowance is spent, all that pays fails, and so evaluation ends soon.
//!
//! The rewritten form calls functions whose names no rule can spell, because they begin with `@`.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use kube::core::cel::cel::{
    self, Context, ExecutionError, FunctionContext, IdedExpr, Program,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapEntryExpr, MapExpr,
        SelectExpr, StructFieldExpr, operators,
    },
    objects::{Key, OptionalValue},
};

use crate::schema::rules::{
    functions::{Standing, standing},
    walk::{children, count},
};

/// What one expression may cost, as in Kubernetes.
pub(super) const PER_EXPRESSION: u64 = 1_000_000;

/// What all rules of an object may cost together, as in Kubernetes.
pub(super) const PER_OBJECT: u64 = 10_000_000;

/// The units are those of Kubernetes: about one per step of evaluation. The interpreter copies values that others share,
/// which is why a part of a list or map costs a quarter of a step where Kubernetes asks for a tenth.
const PARTS_PER_UNIT: u64 = 4;
const BYTES_PER_UNIT: u64 = 10;

const TURN: &str = "@turn";
const SIZED: &str = "@sized";
const SQUARED: &str = "@squared";
const COLLECT: &str = "@collect";

thread_local! {
    /// What is left to spend; `None` once something could not be paid.
    static LEFT: Cell<Option<u64>> = const { Cell::new(Some(0)) };
}

/// An expression in the form that was written and, where that may run away, in the form that pays.
#[derive(Debug)]
pub(super) struct Metered {
    program: Program,
    paying: IdedExpr,
    nodes: u64,
    /// Its cost may grow faster than the size of the values it looks at.
    is_steep: bool,
}

/// How an evaluation went.
pub(super) struct Outcome {
    pub(super) result: Result<cel::Value, ExecutionError>,
    /// What it cost, if the allowance sufficed.
    pub(super) cost: Option<u64>,
}

impl Metered {
    pub(super) fn new(program: Program) -> Self {
        let expr = program.expression();
        Self {
            nodes: count(expr),
            is_steep: is_steep(expr),
            paying: pay(expr),
            program,
        }
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The deepest form of the expression.
    pub(super) fn paying(&self) -> &IdedExpr {
        &self.paying
    }

    /// Evaluates the expression for no more than `allowance`. `size` is that of the values it can look at: where the
    /// worst it can do with them is affordable, nothing is counted. The interpreter has places that panic on values it did
    /// not expect; no rule may take a request handler down with it.
    pub(super) fn evaluate(&self, scope: &Context<'_>, size: u64, allowance: u64) -> Outcome {
        let is_harmless = !self.is_steep && self.nodes.saturating_mul(size.max(1)) <= PER_EXPRESSION;
        LEFT.set(allowance.checked_sub(self.nodes));
        let run = || {
            if is_harmless {
                self.program.execute(scope)
            } else {
                cel::Value::resolve(&self.paying, scope)
            }
        };
        Outcome {
            result: catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(ExecutionError::NoSuchOverload)),
            cost: LEFT.get().map(|left| allowance.saturating_sub(left)),
        }
    }
}

/// Takes units from the allowance.
pub(super) fn charge(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().and_then(|left| left.checked_sub(units));
    LEFT.set(left);
    left.map(|_| ())
        .ok_or_else(|| ExecutionError::function_error("cost", "actual cost limit exceeded"))
}

/// What it costs to look at so many bytes of text.
pub(super) fn of_text(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_UNIT
}

/// Adds the functions that the rewritten form calls.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(TURN, turn);
    context.add_function(SIZED, sized);
    context.add_function(SQUARED, squared);
    context.add_function(COLLECT, collect);
}

fn argument<'c>(ftx: &FunctionContext<'_, 'c>, index: usize) -> Result<&'c IdedExpr, ExecutionError> {
    ftx.args
        .get(index)
        .ok_or_else(|| ExecutionError::invalid_argument_count(index + 1, ftx.args.len()))
}

fn resolved(ftx: &FunctionContext<'_, '_>, index: usize) -> Result<cel::Value, ExecutionError> {
    cel::Value::resolve(argument(ftx, index)?, ftx.ptx)
}

fn units(ftx: &FunctionContext<'_, '_>, index: usize) -> Result<u64, ExecutionError> {
    match &argument(ftx, index)?.expr {
        Expr::Literal(LiteralValue::Int(units)) => Ok(u64::try_from(*units.inner()).unwrap_or_default()),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// `@turn(units, condition)`: one turn of a loop.
fn turn(ftx: &FunctionContext<'_, '_>) -> Result<cel::Value, ExecutionError> {
    charge(units(ftx, 0)?)?;
    resolved(ftx, 1)
}

/// `@sized(value)`: a value that is copied or looked through.
fn sized(ftx: &FunctionContext<'_, '_>) -> Result<cel::Value, ExecutionError> {
    charge(0)?;
    let value = resolved(ftx, 0)?;
    charge(size(&value))?;
    Ok(value)
}

/// `@squared(list)`: a list whose items are compared with each other.
fn squared(ftx: &FunctionContext<'_, '_>) -> Result<cel::Value, ExecutionError> {
    charge(0)?;
    let value = resolved(ftx, 0)?;
    let items = match &value {
        cel::Value::List(items) => u64::try_from(items.len()).unwrap_or(u64::MAX),
        _ => 1,
    };
    charge(size(&value).max(1).saturating_mul(items))?;
    Ok(value)
}

/// `@collect(units, range, variable, condition, result)`: the macros `map` and `filter`. The interpreter would copy the
/// whole result at every turn.
fn collect(ftx: &FunctionContext<'_, '_>) -> Result<cel::Value, ExecutionError> {
    let units = units(ftx, 0)?;
    let Expr::Ident(variable) = &argument(ftx, 2)?.expr else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let (condition, result) = (argument(ftx, 3)?, argument(ftx, 4)?);
    let items: Vec<cel::Value> = match resolved(ftx, 1)? {
        cel::Value::List(items) => items.to_vec(),
        cel::Value::Map(map) => map.map.keys().map(key_value).collect(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let mut collected = Vec::new();
    for item in items {
        charge(units)?;
        let mut scope = ftx.ptx.new_inner_scope();
        scope.add_variable_from_value(variable.as_str(), item);
        match cel::Value::resolve(condition, &scope)? {
            cel::Value::Bool(true) => {
                let value = cel::Value::resolve(result, &scope)?;
                charge(size(&value))?;
                collected.push(value);
            }
            cel::Value::Bool(false) => {}
            _ => return Err(ExecutionError::NoSuchOverload),
        }
    }
    Ok(cel::Value::List(Arc::new(collected)))
}

fn key_value(key: &Key) -> cel::Value {
    match key {
        Key::Int(key) => cel::Value::Int(*key),
        Key::Uint(key) => cel::Value::UInt(*key),
        Key::Bool(key) => cel::Value::Bool(*key),
        Key::String(key) => cel::Value::String(Arc::clone(key)),
    }
}

/// What it costs to copy a value.
fn size(value: &cel::Value) -> u64 {
    let mut parts = 0_u64;
    let mut bytes = 0_usize;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        parts += 1;
        match value {
            cel::Value::List(items) => open.extend(items.iter()),
            cel::Value::Map(map) => {
                for (key, value) in map.map.iter() {
                    if let Key::String(key) = key {
                        bytes += key.len();
                    }
                    open.push(value);
                }
            }
            cel::Value::String(text) => bytes += text.len(),
            cel::Value::Bytes(text) => bytes += text.len(),
            cel::Value::Opaque(_) => {
                let inner = <&OptionalValue>::try_from(value)
                    .ok()
                    .and_then(OptionalValue::value);
                open.extend(inner);
            }
            _ => {}
        }
    }
    parts / PARTS_PER_UNIT + of_text(bytes)
}

/// Loops, and functions that compare all items of a list with each other.
fn is_steep(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Comprehension(_) => true,
        Expr::Call(call) if compares_all(call) => true,
        other => children(other).into_iter().any(is_steep),
    }
}

fn compares_all(call: &CallExpr) -> bool {
    let is_in_sets = matches!(call.target.as_ref().map(|target| &target.expr),
        Some(Expr::Ident(name)) if name == "sets");
    call.func_name == "distinct" || is_in_sets
}

/// The parts of a loop that the macros `map` and `filter` expand to.
pub(super) struct Collecting<'e> {
    pub(super) condition: Option<&'e IdedExpr>,
    pub(super) result: &'e IdedExpr,
}

impl<'e> Collecting<'e> {
    pub(super) fn of(loop_: &'e ComprehensionExpr) -> Option<Self> {
        let Expr::List(_) = &loop_.accu_init.expr else {
            return None;
        };
        let Expr::Call(step) = &loop_.loop_step.expr else {
            return None;
        };
        let (condition, add) = match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::ADD, _) => (None, step),
            (operators::CONDITIONAL, [condition, add, _]) => match &add.expr {
                Expr::Call(add) => (Some(condition), add),
                _ => return None,
            },
            _ => return None,
        };
        match add.args.as_slice() {
            [
                _,
                IdedExpr {
                    expr: Expr::List(list),
                    ..
                },
            ] => Some(Self {
                condition,
                result: list.elements.first()?,
            }),
            _ => None,
        }
    }
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn literal(units: u64) -> IdedExpr {
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    node(Expr::Literal(LiteralValue::Int(units.into())))
}

/// The form of an expression that pays. It is called only for expressions that `check` has found shallow enough.
fn pay(expr: &IdedExpr) -> IdedExpr {
    match &expr.expr {
        Expr::Select(select) => {
            let selected = node(Expr::Select(SelectExpr {
                operand: Box::new(pay(&select.operand)),
                field: select.field.clone(),
                test: select.test,
            }));
            if select.test {
                selected
            } else {
                call(SIZED, vec![selected])
            }
        }
        Expr::Call(inner) => pay_call(inner),
        Expr::Comprehension(loop_) => pay_loop(loop_),
        Expr::List(list) => node(Expr::List(ListExpr {
            elements: list.elements.iter().map(operand).collect(),
            optional_indices: list.optional_indices.clone(),
        })),
        Expr::Map(map) => {
            let mut map: MapExpr = map.clone();
            for entry in &mut map.entries {
                entry.expr = pay_entry(&entry.expr);
            }
            node(Expr::Map(map))
        }
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => expr.clone(),
    }
}

fn pay_entry(entry: &EntryExpr) -> EntryExpr {
    match entry {
        EntryExpr::StructField(field) => EntryExpr::StructField(StructFieldExpr {
            value: operand(&field.value),
            ..field.clone()
        }),
        EntryExpr::MapEntry(entry) => EntryExpr::MapEntry(MapEntryExpr {
            key: operand(&entry.key),
            value: operand(&entry.value),
            optional: entry.optional,
        }),
    }
}

fn pay_call(inner: &CallExpr) -> IdedExpr {
    let is_logical = matches!(
        inner.func_name.as_str(),
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::CONDITIONAL
            | operators::NOT_STRICTLY_FALSE
    );
    let is_index = inner.func_name == operators::INDEX;
    let compares_all = compares_all(inner);
    let argument = |(index, expr): (usize, &IdedExpr)| {
        if is_logical || (is_index && index == 0) {
            pay(expr)
        } else if compares_all {
            call(SQUARED, vec![pay(expr)])
        } else {
            operand(expr)
        }
    };
    // The name of a library is no value.
    let target = inner.target.as_deref().map(|target| match &target.expr {
        Expr::Ident(_) if is_library(inner, target) => target.clone(),
        _ if compares_all => call(SQUARED, vec![pay(target)]),
        _ => operand(target),
    });
    node(Expr::Call(CallExpr {
        func_name: inner.func_name.clone(),
        target: target.map(Box::new),
        args: inner.args.iter().enumerate().map(argument).collect(),
    }))
}

fn is_library(inner: &CallExpr, target: &IdedExpr) -> bool {
    let Expr::Ident(name) = &target.expr else {
        return false;
    };
    standing(inner, Some(name)) == Standing::KnownInLibrary
}

/// As `pay`, for a place where a value is looked through: what comes there without a copy must be paid for.
fn operand(expr: &IdedExpr) -> IdedExpr {
    let is_borrowed = match &expr.expr {
        Expr::Ident(_) => true,
        Expr::Call(call) => matches!(
            call.func_name.as_str(),
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT | operators::CONDITIONAL
        ),
        _ => false,
    };
    if is_borrowed {
        call(SIZED, vec![pay(expr)])
    } else {
        pay(expr)
    }
}

fn pay_loop(loop_: &ComprehensionExpr) -> IdedExpr {
    let range = operand(&loop_.iter_range);
    let body = literal(turn_cost(&loop_.loop_cond).saturating_add(turn_cost(&loop_.loop_step)));
    if let Some(collecting) = Collecting::of(loop_) {
        let yes = || node(Expr::Literal(LiteralValue::Boolean(true.into())));
        return call(
            COLLECT,
            vec![
                body,
                range,
                node(Expr::Ident(loop_.iter_var.clone())),
                collecting.condition.map_or_else(yes, pay),
                pay(collecting.result),
            ],
        );
    }
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: range,
        iter_var: loop_.iter_var.clone(),
        iter_var2: loop_.iter_var2.clone(),
        accu_var: loop_.accu_var.clone(),
        accu_init: pay(&loop_.accu_init),
        loop_cond: call(TURN, vec![body, pay(&loop_.loop_cond)]),
        loop_step: pay(&loop_.loop_step),
        result: pay(&loop_.result),
    })))
}

/// The steps of a part of a loop, without those of loops inside it, which pay for themselves.
fn turn_cost(expr: &IdedExpr) -> u64 {
    match &expr.expr {
        Expr::Comprehension(loop_) => 1 + turn_cost(&loop_.iter_range),
        Expr::Literal(_) => 0,
        other => children(other)
            .into_iter()
            .map(turn_cost)
            .fold(1, u64::saturating_add),
    }
}
