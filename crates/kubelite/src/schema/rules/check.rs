//! Parsing of one expression, and what can be told about it without running it: which variables, fields and functions
//! it names. Kubernetes checks types too; here a mismatch shows when the rule runs, and refuses the object then.

use kube::core::cel::cel::{
    ParseErrors, Program,
    common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators},
};

use crate::schema::{
    Additional, MAX_DEPTH, Schema, Type, pattern,
    prune::is_meta_field,
    rules::{
        estimate::estimate,
        functions::{Standing, is_operator, standing},
        meter::Metered,
        source::{calls, without_double_signs},
        value::{chain, escape, is_subject},
        walk::{children, nesting},
    },
};

/// The longest expression that is parsed. Kubernetes allows more, but no rule of ours or of a known operator comes near.
const MAX_BYTES: usize = 32 * 1024;

/// How many brackets may be open at once. The parser calls itself about ten times per bracket.
const MAX_OPEN: usize = 48;

/// How deep a parsed expression may nest. The interpreter calls itself once per level, with frames of about 50 KiB in
/// builds that are not optimised; this many fit on the stack that deep expressions get.
const MAX_NESTING: usize = 250;

/// How deep an expression may nest to be run on the stack of a request handler, which has 2 MiB.
const MAX_SHALLOW: usize = 16;

/// What the variables of an expression are.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    pub(super) schema: &'s Schema,
    pub(super) is_resource_root: bool,
}

/// What an expression must result in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    Bool,
    String,
}

/// An expression that can be run.
pub(super) struct Checked {
    pub(super) expression: Metered,
    /// What it costs at worst.
    pub(super) cost: u64,
}

/// Compiles an expression, or says why it does not.
pub(super) fn compile(source: &str, scope: Scope<'_>, wanted: Wanted) -> Result<Checked, String> {
    if source.len() > MAX_BYTES || open_brackets(source) > MAX_OPEN {
        return Err("compilation failed: expression is too long or nests too deep".to_owned());
    }
    let program = Program::compile(&without_double_signs(source)).map_err(|errors| {
        let lines: Vec<String> = parse_errors(&errors, source);
        format!("compilation failed: {}", lines.join("\n"))
    })?;
    if nesting(program.expression(), MAX_NESTING) > MAX_NESTING {
        return Err("compilation failed: expression nests too deep".to_owned());
    }
    let mut checker = Checker {
        source,
        scope,
        locals: Vec::new(),
        errors: Vec::new(),
    };
    checker.node(program.expression());
    // The parser takes this for `exists_one`, but in Kubernetes it is a macro with two variables only.
    if calls(source, "existsOne") {
        let what = "undeclared reference to 'existsOne' (in container '')";
        checker.error("existsOne", what);
    }
    let estimate = estimate(program.expression(), scope);
    if estimate.reverses_text {
        checker.error(
            "reverse",
            "found no matching overload for 'reverse' applied to 'string.()'",
        );
    }
    if !checker.errors.is_empty() {
        return Err(format!("compilation failed: {}", checker.errors.join("\n")));
    }
    if cannot_be(&program.expression().expr, wanted) {
        return Err(match wanted {
            Wanted::Bool => "cel expression must evaluate to a bool".to_owned(),
            Wanted::String => "must evaluate to a string".to_owned(),
        });
    }
    Ok(Checked {
        expression: Metered::new(program),
        cost: estimate.cost,
    })
}

/// The most brackets that are open at once, strings not told apart: a bound, not a count.
fn open_brackets(source: &str) -> usize {
    let mut open = 0_usize;
    let mut most = 0;
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'?' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// Whether an expression needs more stack than a request handler has.
pub(super) fn is_deep(expr: &IdedExpr) -> bool {
    nesting(expr, MAX_SHALLOW) > MAX_SHALLOW
}

fn parse_errors(errors: &ParseErrors, source: &str) -> Vec<String> {
    errors
        .errors
        .iter()
        .map(|error| {
            let line = usize::try_from(error.pos.0).unwrap_or_default();
            let column = usize::try_from(error.pos.1).unwrap_or_default();
            let what = if error.msg.starts_with("Syntax error") {
                error.msg.clone()
            } else {
                format!("Syntax error: {}", error.msg)
            };
            located(source, line.max(1), column.max(1), &what)
        })
        .collect()
}

/// A message with the line it is about and a mark under the place, as CEL's compiler prints it.
fn located(source: &str, line: usize, column: usize, what: &str) -> String {
    let text = source.lines().nth(line - 1).unwrap_or_default();
    let dots = ".".repeat(column - 1);
    format!("ERROR: <input>:{line}:{column}: {what}\n | {text}\n | {dots}^")
}

/// Whether an expression can be seen to result in something else.
fn cannot_be(expr: &Expr, wanted: Wanted) -> bool {
    match expr {
        Expr::Literal(LiteralValue::Boolean(_)) => wanted != Wanted::Bool,
        Expr::Literal(LiteralValue::String(_)) => wanted != Wanted::String,
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => true,
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD => wanted == Wanted::Bool,
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO | "size" => {
                true
            }
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::IN => wanted != Wanted::Bool,
            _ => false,
        },
        _ => false,
    }
}

struct Checker<'c> {
    source: &'c str,
    scope: Scope<'c>,
    /// Variables of the macros around the current place.
    locals: Vec<&'c str>,
    errors: Vec<String>,
}

impl<'c> Checker<'c> {
    fn node(&mut self, expr: &'c IdedExpr) {
        match &expr.expr {
            Expr::Ident(name) => self.variable(name),
            Expr::Select(_) => {
                let (root, fields) = chain(expr);
                match &root.expr {
                    Expr::Ident(name) if is_subject(name) && !self.locals.contains(&name.as_str()) => {
                        self.fields(name, &fields);
                    }
                    _ => self.node(root),
                }
            }
            Expr::Comprehension(loop_) => {
                self.node(&loop_.iter_range);
                self.node(&loop_.accu_init);
                let before = self.locals.len();
                self.locals.push(&loop_.iter_var);
                self.locals.push(&loop_.accu_var);
                self.locals.extend(loop_.iter_var2.as_deref());
                for part in [&loop_.loop_cond, &loop_.loop_step, &loop_.result] {
                    self.node(part);
                }
                self.locals.truncate(before);
            }
            Expr::Call(call) => self.call(call),
            other => {
                for child in children(other) {
                    self.node(child);
                }
            }
        }
    }

    fn call(&mut self, call: &'c CallExpr) {
        let name = call.func_name.as_str();
        let library = match call.target.as_ref().map(|target| &target.expr) {
            Some(Expr::Ident(name)) if !self.is_variable(name) => Some(name.as_str()),
            _ => None,
        };
        let standing = if is_operator(name) {
            Standing::Known
        } else {
            standing(call, library)
        };
        match standing {
            Standing::Known => call.target.iter().for_each(|target| self.node(target)),
            Standing::KnownInLibrary => {}
            Standing::NotSupported => {
                self.error(name, &format!("'{name}' is not supported by this server"));
                return;
            }
            Standing::Unknown => {
                self.error(
                    name,
                    &format!("undeclared reference to '{name}' (in container '')"),
                );
                return;
            }
        }
        if matches!(name, "matches" | "find" | "findAll") {
            self.pattern(call);
        }
        call.args.iter().for_each(|arg| self.node(arg));
    }

    /// A pattern that is written in the rule must be one.
    fn pattern(&mut self, call: &CallExpr) {
        let pattern = call.args.get(usize::from(call.target.is_none()));
        if let Some(Expr::Literal(LiteralValue::String(text))) = pattern.map(|arg| &arg.expr)
            && pattern::compile(text.inner()).is_err()
        {
            let name = &call.func_name;
            self.error(text.inner(), &format!("invalid {name} argument"));
        }
    }

    fn is_variable(&self, name: &str) -> bool {
        is_subject(name) || name.starts_with('@') || self.locals.contains(&name)
    }

    fn variable(&mut self, name: &str) {
        if !self.is_variable(name) {
            let what = format!("undeclared reference to '{name}' (in container '')");
            self.error(name, &what);
        }
    }

    /// Follows the schema along `self.a.b` as far as it is known.
    fn fields(&mut self, subject: &str, fields: &[&str]) {
        let mut schema = self.scope.schema;
        let mut is_resource_root = self.scope.is_resource_root;
        let mut spelt = subject.to_owned();
        for (depth, field) in fields.iter().enumerate() {
            if depth > MAX_DEPTH {
                return;
            }
            spelt.push('.');
            spelt.push_str(field);
            if is_resource_root && is_meta_field(field) {
                let names = ["name", "generateName"];
                if let Some(unknown) = fields.get(depth + 1).filter(|name| !names.contains(name)) {
                    self.error(
                        &format!("{spelt}.{unknown}"),
                        &format!("undefined field '{unknown}'"),
                    );
                }
                return;
            }
            if schema.int_or_string || schema.type_ != Some(Type::Object) {
                return;
            }
            match &schema.additional {
                Additional::Schema(shape) => schema = shape,
                Additional::Any => return,
                Additional::Absent => {
                    let found = schema
                        .properties
                        .iter()
                        .find(|(name, _)| escape(name).as_deref() == Some(*field));
                    let Some((_, property)) = found else {
                        self.error(&spelt, &format!("undefined field '{field}'"));
                        return;
                    };
                    schema = property;
                }
            }
            is_resource_root = schema.embedded_resource;
        }
    }

    /// Reports an error at the last sign of the first place where `text` is spelt, if it is found.
    fn error(&mut self, text: &str, what: &str) {
        let offset = self.source.find(text).unwrap_or_default();
        let offset = text.rfind('.').map_or(offset, |dot| offset + dot);
        let before = self.source.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.errors.push(located(self.source, line, column, what));
    }
}
