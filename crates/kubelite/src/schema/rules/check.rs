//! Parsing of one expression, and what can be told about it without running it: which variables, fields and functions
//! it names. Kubernetes checks types too; here a mismatch shows when the rule runs, and refuses the object then.

use kube::core::cel::cel::{
    ParseErrors, Program,
    common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators},
};

use crate::schema::{
    Additional, MAX_DEPTH, Schema, Type,
    prune::is_meta_field,
    rules::value::{chain, escape, is_subject},
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

/// Compiles an expression, or says why it does not.
pub(super) fn compile(source: &str, scope: Scope<'_>, wanted: Wanted) -> Result<Program, String> {
    if source.len() > MAX_BYTES || open_brackets(source) > MAX_OPEN {
        return Err("compilation failed: expression is too long or nests too deep".to_owned());
    }
    let program = Program::compile(source).map_err(|errors| {
        let lines: Vec<String> = parse_errors(&errors, source);
        format!("compilation failed: {}", lines.join("\n"))
    })?;
    if nesting(program.expression()) > MAX_NESTING {
        return Err("compilation failed: expression nests too deep".to_owned());
    }
    let mut checker = Checker {
        source,
        scope,
        locals: Vec::new(),
        errors: Vec::new(),
    };
    checker.node(program.expression());
    if !checker.errors.is_empty() {
        return Err(format!("compilation failed: {}", checker.errors.join("\n")));
    }
    if cannot_be(&program.expression().expr, wanted) {
        return Err(match wanted {
            Wanted::Bool => "cel expression must evaluate to a bool".to_owned(),
            Wanted::String => "must evaluate to a string".to_owned(),
        });
    }
    Ok(program)
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

/// How deep an expression nests, counted no further than is allowed. Breadth first, because depth is what the count must
/// survive.
fn nesting(expr: &IdedExpr) -> usize {
    let mut level = vec![expr];
    for depth in 1..=MAX_NESTING {
        level = level.into_iter().flat_map(|expr| children(&expr.expr)).collect();
        if level.is_empty() {
            return depth;
        }
    }
    MAX_NESTING + 1
}

/// Whether an expression needs more stack than a request handler has.
pub(super) fn is_deep(program: &Program) -> bool {
    nesting(program.expression()) > MAX_SHALLOW
}

fn children(expr: &Expr) -> Vec<&IdedExpr> {
    match expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(loop_) => {
            vec![
                &loop_.iter_range,
                &loop_.accu_init,
                &loop_.loop_cond,
                &loop_.loop_step,
                &loop_.result,
            ]
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map
            .entries
            .iter()
            .flat_map(|entry| entry_children(&entry.expr))
            .collect(),
        Expr::Struct(object) => object
            .entries
            .iter()
            .flat_map(|entry| entry_children(&entry.expr))
            .collect(),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry_children(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
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

/// Functions and macros that Kubernetes offers to rules. A few of them (`cel.bind`, `sortBy`, `type`, macros with two
/// variables) are unknown to the interpreter: rules that call them compile, as they do elsewhere, and fail when they run.
#[rustfmt::skip]
const FUNCTIONS: [&str; 155] = [
    "abs", "add", "all", "asApproximateFloat", "asInteger", "bind", "bitAnd", "bitNot", "bitOr",
    "bitShiftLeft", "bitShiftRight", "bitXor", "block", "bool", "byte", "bytes", "ceil", "charAt", "cidr",
    "compareTo", "contains", "containsCIDR", "containsIP", "date", "datetime", "decode", "distinct",
    "dns1035Label", "dns1035LabelPrefix", "dns1123Label", "dns1123LabelPrefix", "dns1123Subdomain",
    "dns1123SubdomainPrefix", "double", "duration", "dyn", "encode", "endsWith", "equivalent", "escapeKey",
    "exists", "existsOne", "existsOneEntry", "family", "filter", "find", "findAll", "first", "flatten",
    "floor", "format", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getEscapedPath",
    "getFullYear", "getHost", "getHostname", "getHours", "getMilliseconds", "getMinutes", "getMonth",
    "getPort", "getQuery", "getScheme", "getSeconds", "greatest", "has", "hasValue", "indexOf", "int",
    "intersects", "ip", "isCIDR", "isCIDRv4", "isCIDRv6", "isCanonical", "isFinite", "isGlobalUnicast",
    "isGreaterThan", "isIP", "isIPv4", "isIPv6", "isInf", "isInteger", "isLessThan", "isLinkLocalMulticast",
    "isLinkLocalUnicast", "isLoopback", "isNaN", "isQuantity", "isSemver", "isSorted", "isURL",
    "isUnspecified", "join", "labelValue", "last", "lastIndexOf", "least", "lowerAscii", "major", "map",
    "masked", "matches", "max", "min", "minor", "named", "none", "of", "ofNonZeroValue", "optFlatMap",
    "optMap", "or", "orValue", "patch", "prefixLength", "qualifiedName", "quantity", "quote", "range",
    "replace", "reverse", "round", "semver", "sign", "size", "slice", "sort", "sortBy", "split", "sqrt",
    "startsWith", "string", "sub", "substring", "sum", "timestamp", "transformList", "transformMap",
    "transformMapEntry", "trim", "trunc", "type", "uint", "unwrap", "unwrapOpt", "upperAscii", "uri", "url",
    "uuid", "validate", "value",
];

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
            Expr::Call(call) => {
                self.function(&call.func_name);
                for child in children(&expr.expr) {
                    self.node(child);
                }
            }
            other => {
                for child in children(other) {
                    self.node(child);
                }
            }
        }
    }

    /// Operators have names that no identifier has; libraries are named before their functions.
    fn function(&mut self, name: &str) {
        let own = name.rsplit('.').next().unwrap_or(name);
        let is_operator = name.contains(['_', '@']);
        if !is_operator && !FUNCTIONS.contains(&own) {
            let what = format!("undeclared reference to '{own}' (in container '')");
            self.error(own, &what);
        }
    }

    fn variable(&mut self, name: &str) {
        // Names of types, and of the libraries whose functions are called as `math.abs(…)`.
        const KNOWN: [&str; 23] = [
            "bool",
            "bytes",
            "double",
            "duration",
            "int",
            "list",
            "map",
            "null_type",
            "string",
            "timestamp",
            "type",
            "uint",
            "dyn",
            "math",
            "sets",
            "lists",
            "strings",
            "base64",
            "optional",
            "ip",
            "format",
            "jsonpatch",
            "google",
        ];
        let known =
            is_subject(name) || name.starts_with('@') || KNOWN.contains(&name) || self.locals.contains(&name);
        if !known {
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
