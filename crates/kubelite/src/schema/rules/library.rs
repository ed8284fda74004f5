//! Functions that replace the interpreter's own, because those answer otherwise than Kubernetes does, or may use time or
//! memory out of proportion to what they are given.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use kube::core::cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, FunctionContext, Program, Value,
        common::ast::Expr,
        extractors::{Arguments, This},
    },
};
use regex::Regex;

use crate::schema::{pattern, rules::meter};

/// What the compilation of a pattern costs that is no literal of the rule. It can take milliseconds.
const COMPILATION: u64 = 20_000;

/// How many compiled patterns a thread keeps. A rule has one or two of them.
const MAX_KEPT: usize = 64;

/// The most digits after the point that a text can ask of `format`. Doubles have none that differ from zero beyond.
const MAX_PRECISION: usize = 1_100;

type Outcome = Result<Value, ExecutionError>;

thread_local! {
    static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::default();
    static ORIGINAL: (Context<'static>, Option<Program>) =
        (Context::default().with_all(), Program::compile("template.format(values)").ok());
}

/// All functions that rules may call.
pub(super) fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("dyn", |value: Value| -> Outcome { Ok(value) });
    context.add_function("size", size);
    context.add_function("matches", matches);
    context.add_function("find", find);
    context.add_function("findAll", find_all);
    context.add_function("replace", replace);
    context.add_function("join", join);
    context.add_function("reverse", reverse);
    context.add_function("lists.range", range);
    context.add_function("format", format);
    meter::register(&mut context);
    context
}

/// A text is as long as it has characters.
fn size(ftx: &FunctionContext<'_, '_>, This(this): This<Value>) -> Outcome {
    let size = match &this {
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        _ => return Err(ftx.error("no such overload")),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn matches(ftx: &FunctionContext<'_, '_>, This(text): This<Arc<String>>, pattern: Value) -> Outcome {
    let Value::String(pattern) = pattern else {
        return Err(ExecutionError::NoSuchOverload);
    };
    with_pattern(ftx, &text, &pattern, |regex| Value::Bool(regex.is_match(&text)))
}

fn find(ftx: &FunctionContext<'_, '_>, This(text): This<Arc<String>>, pattern: Value) -> Outcome {
    let Value::String(pattern) = pattern else {
        return Err(ExecutionError::NoSuchOverload);
    };
    with_pattern(ftx, &text, &pattern, |regex| {
        string(regex.find(&text).map_or("", |found| found.as_str()))
    })
}

fn find_all(
    ftx: &FunctionContext<'_, '_>,
    This(text): This<Arc<String>>,
    Arguments(args): Arguments,
) -> Outcome {
    let (pattern, limit) = match args.as_slice() {
        [Value::String(pattern)] => (pattern, usize::MAX),
        [Value::String(pattern), Value::Int(limit)] => {
            (pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    with_pattern(ftx, &text, pattern, |regex| {
        let found = regex.find_iter(&text).take(limit);
        Value::List(Arc::new(found.map(|found| string(found.as_str())).collect()))
    })
}

fn string(text: &str) -> Value {
    Value::String(Arc::new(text.to_owned()))
}

/// Uses a pattern, compiled as Go reads it. Those written in the rule are known to compile, and were paid for with it.
fn with_pattern(
    ftx: &FunctionContext<'_, '_>,
    text: &str,
    pattern: &str,
    work: impl FnOnce(&Regex) -> Value,
) -> Outcome {
    meter::charge(1 + meter::of_text(text.len()))?;
    PATTERNS.with_borrow_mut(|kept| {
        if !kept.contains_key(pattern) {
            let is_written = ftx.args.iter().any(|arg| matches!(&arg.expr, Expr::Literal(_)));
            if !is_written {
                meter::charge(COMPILATION)?;
            }
            let compiled = pattern::compile(pattern)
                .map_err(|error| ftx.error(format!("error parsing regexp: {error}")))?;
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert(pattern.to_owned(), compiled);
        }
        kept.get(pattern).map(work).ok_or(ExecutionError::NoSuchOverload)
    })
}

fn replace(This(text): This<Arc<String>>, Arguments(args): Arguments) -> Outcome {
    let (from, to, limit) = match args.as_slice() {
        [Value::String(from), Value::String(to)] => (from, to, usize::MAX),
        [Value::String(from), Value::String(to), Value::Int(limit)] => {
            (from, to, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let places = text.matches(from.as_str()).take(limit).count();
    let length = text.len().saturating_add(places.saturating_mul(to.len()));
    meter::charge(meter::of_text(length))?;
    Ok(Value::String(Arc::new(text.replacen(
        from.as_str(),
        to.as_str(),
        limit,
    ))))
}

fn join(This(parts): This<Arc<Vec<Value>>>, Arguments(args): Arguments) -> Outcome {
    let separator = match args.as_slice() {
        [] => "",
        [Value::String(separator)] => separator.as_str(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts.iter() {
        let Value::String(text) = part else {
            return Err(ExecutionError::NoSuchOverload);
        };
        meter::charge(meter::of_text(text.len().saturating_add(separator.len())))?;
        texts.push(text.as_str());
    }
    Ok(Value::String(Arc::new(texts.join(separator))))
}

/// Texts can be reversed only in versions of the library that Kubernetes does not use.
fn reverse(This(items): This<Arc<Vec<Value>>>) -> Arc<Vec<Value>> {
    Arc::new(items.iter().rev().cloned().collect())
}

fn range(count: i64) -> Outcome {
    meter::charge(u64::try_from(count).unwrap_or_default())?;
    Ok(Value::List(Arc::new((0..count).map(Value::Int).collect())))
}

fn format(This(template): This<Arc<String>>, values: Arc<Vec<Value>>) -> Outcome {
    let is_excessive = template.split("%.").skip(1).any(|after| {
        let end = after
            .find(|char: char| !char.is_ascii_digit())
            .unwrap_or(after.len());
        let digits = after.get(..end).unwrap_or_default();
        !digits.is_empty()
            && !digits
                .parse::<usize>()
                .is_ok_and(|digits| digits <= MAX_PRECISION)
    });
    if is_excessive {
        let error = "precision in format string is too large";
        return Err(ExecutionError::function_error("format", error));
    }
    ORIGINAL.with(|(context, program)| {
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value("template", Value::String(template));
        scope.add_variable_from_value("values", Value::List(values));
        program
            .as_ref()
            .map_or(Err(ExecutionError::NoSuchOverload), |program| {
                program.execute(&scope)
            })
    })
}
