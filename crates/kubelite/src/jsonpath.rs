//! The Kubernetes dialect of JSONPath, as printer columns and selectable fields use it.
//!
//! A path is compiled once and evaluated often. Where the Go library reports an error during evaluation (an index beyond the
//! list, a comparison of a number with a string), there is no result here: all callers show an empty cell in either case.

use std::cmp::Ordering;

use serde_json::Value;

/// The longest path that is read; it bounds the number of steps. Printer columns have a few dozen characters.
pub const MAX_BYTES: usize = 4 * 1024;

/// The most values that an evaluation may look at. Two `..` in one path multiply, so a small object could otherwise keep the
/// server busy for hours; the paths of printer columns look at a few dozen.
const MAX_VISITS: usize = 100_000;

/// Why a path could not be compiled.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JsonPathError {
    #[error("must not be empty")]
    Empty,
    #[error("must be a simple json path starting with .")]
    NotSimple,
    #[error("json path may not be more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("unrecognized character in action: '{0}'")]
    Character(char),
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("invalid array index {0}")]
    Index(String),
    #[error("invalid filter {0}")]
    Filter(String),
    #[error("invalid multiple recursive descent")]
    Recursion,
}

/// Whether a printer column or scale path has the form that a CustomResourceDefinition must give it.
pub fn is_simple(text: &str) -> bool {
    check_simple(text).is_ok()
}

/// Like `is_simple`, with the words of Kubernetes for what is wrong.
pub fn check_simple(text: &str) -> Result<(), JsonPathError> {
    match text.as_bytes().first() {
        None => Err(JsonPathError::Empty),
        Some(b'.') => Ok(()),
        Some(_) => Err(JsonPathError::NotSimple),
    }
}

/// A compiled path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// `.*`: every member or element.
    Wildcard,
    /// `[2]`, `[-1]`, `[1:3]`, `[*]`.
    Slice(Slice),
    /// `[0,2]` or `['a','b']`.
    Union(Vec<Step>),
    /// `..`: the value and everything in it that has parts.
    Descend,
    Filter(Filter),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: To,
    step: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum To {
    #[default]
    End,
    /// Only the element at `from`.
    One,
    Before(i64),
}

#[derive(Clone, Debug, PartialEq)]
enum Filter {
    Exists(Operand),
    Compare {
        left: Operand,
        operator: Comparison,
        right: Operand,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Compiles a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        if text.len() > MAX_BYTES {
            return Err(JsonPathError::TooLong);
        }
        Ok(Self {
            steps: parse_steps(text, Filters::Allowed)?,
        })
    }

    /// Everything the path selects, in order.
    pub fn eval<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        walk(&self.steps, value, &mut Budget(MAX_VISITS)).unwrap_or_default()
    }

    /// The first value the path selects.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        // Nearly every path is a chain of names, which needs no list of results.
        let mut current = value;
        for step in &self.steps {
            match step {
                Step::Field(name) => current = current.get(name)?,
                _ => return self.eval(value).into_iter().next(),
            }
        }
        Some(current)
    }
}

/// A filter may not hold another one, so that no path makes the parser recurse.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Filters {
    Allowed,
    Refused,
}

fn parse_steps(text: &str, filters: Filters) -> Result<Vec<Step>, JsonPathError> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = rest.strip_prefix(first).unwrap_or_default();
        rest = if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Descend) {
                return Err(JsonPathError::Recursion);
            }
            steps.push(Step::Descend);
            if after.starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
                parse_field(after, &mut steps)
            } else {
                after
            }
        } else if let Some(after) = rest.strip_prefix("[?(") {
            if filters == Filters::Refused {
                return Err(JsonPathError::Filter(text.to_owned()));
            }
            parse_filter(after, &mut steps)?
        } else {
            match first {
                // The current object: what every path starts from anyway.
                ' ' | '@' | '$' => after,
                '.' => parse_field(after, &mut steps),
                '[' => parse_brackets(after, &mut steps)?,
                other => return Err(JsonPathError::Character(other)),
            }
        };
    }
    Ok(steps)
}

/// Reads a name up to the next character that ends one, unless a backslash protects it, and gives back the rest.
fn parse_field<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let mut name = String::new();
    let mut end = text.len();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => name.extend(
                characters
                    .next()
                    .map(|(_, escaped)| escaped)
                    .filter(|escaped| *escaped != '\\'),
            ),
            ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                end = position;
                break;
            }
            other => name.push(other),
        }
    }
    steps.push(if name == "*" {
        Step::Wildcard
    } else {
        Step::Field(name)
    });
    text.split_at(end).1
}

/// Reads what stands after `[`, and gives back what stands after `]`.
fn parse_brackets<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, JsonPathError> {
    let (inside, rest) = text.split_once(']').ok_or(JsonPathError::Unterminated("array"))?;
    if inside.contains(',') {
        let mut members = Vec::new();
        for part in inside.split(',') {
            parse_bracket(part.trim_matches(' '), &mut members)?;
        }
        steps.push(Step::Union(members));
    } else {
        parse_bracket(inside, steps)?;
    }
    Ok(rest)
}

fn parse_bracket(inside: &str, steps: &mut Vec<Step>) -> Result<(), JsonPathError> {
    if inside == "*" {
        steps.push(Step::Slice(Slice::default()));
        return Ok(());
    }
    let quoted = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
        // The Go library reads `['a.b']` as `.a.b`: a dot in a key needs a backslash here too.
        let mut rest = parse_field(name, steps);
        while let Some(after) = rest.strip_prefix('.') {
            rest = parse_field(after, steps);
        }
        return if rest.is_empty() {
            Ok(())
        } else {
            Err(JsonPathError::Index(inside.to_owned()))
        };
    }
    let wrong = || JsonPathError::Index(inside.to_owned());
    let number = |text: &str| -> Result<Option<i64>, JsonPathError> {
        if text.is_empty() {
            Ok(None)
        } else {
            text.parse().map(Some).map_err(|_| wrong())
        }
    };
    if inside.starts_with('+') || inside.contains(":+") {
        return Err(wrong());
    }
    let mut parts = inside.split(':');
    let from = number(parts.next().unwrap_or_default())?;
    let to = match parts.next().map(number).transpose()? {
        Some(Some(position)) => To::Before(position),
        Some(None) => To::End,
        None => To::One,
    };
    let step = parts.next().map(number).transpose()?.flatten();
    if parts.next().is_some() {
        return Err(wrong());
    }
    // A step that is not positive is an error whenever the path is evaluated, so it can be one right away.
    let step = match step.map(usize::try_from) {
        None => None,
        Some(Ok(step)) if step > 0 => Some(step),
        Some(_) => return Err(wrong()),
    };
    steps.push(Step::Slice(Slice { from, to, step }));
    Ok(())
}

/// Reads what stands after `[?(`, and gives back what stands after `)]`.
fn parse_filter<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, JsonPathError> {
    let mut quote = None;
    let mut escaped = false;
    let mut end = None;
    for (position, character) in text.char_indices() {
        match character {
            '"' | '\'' if quote.is_none() => quote = Some(character),
            '"' | '\'' if quote == Some(character) && !escaped => quote = None,
            ')' if quote.is_none() => {
                end = Some(position);
                break;
            }
            _ => {}
        }
        escaped = character == '\\' && !escaped;
    }
    let (inside, rest) = text.split_at(end.ok_or(JsonPathError::Unterminated("filter"))?);
    let rest = rest
        .strip_prefix(")]")
        .ok_or(JsonPathError::Unterminated("filter"))?;
    steps.push(Step::Filter(filter_of(inside)?));
    Ok(rest)
}

fn filter_of(inside: &str) -> Result<Filter, JsonPathError> {
    let is_operator = |character: char| matches!(character, '!' | '<' | '>' | '=');
    let Some(start) = inside.find(is_operator) else {
        return Ok(Filter::Exists(parse_operand(inside)?));
    };
    let (left, rest) = inside.split_at(start);
    let right = rest.trim_start_matches(is_operator);
    let operator = match rest.strip_suffix(right).unwrap_or_default() {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return Err(JsonPathError::Filter(inside.to_owned())),
    };
    if left.is_empty() || right.is_empty() {
        return Err(JsonPathError::Filter(inside.to_owned()));
    }
    Ok(Filter::Compare {
        left: parse_operand(left)?,
        operator,
        right: parse_operand(right)?,
    })
}

fn parse_operand(text: &str) -> Result<Operand, JsonPathError> {
    let text = text.trim_matches(' ');
    let wrong = || JsonPathError::Filter(text.to_owned());
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let inner = text
                .strip_prefix(quote)
                .and_then(|rest| rest.strip_suffix(quote))
                .ok_or_else(wrong)?;
            Ok(Operand::Literal(Value::String(unquote(inner))))
        }
        Some('@' | '$' | '.' | '[') => Ok(Operand::Path(parse_steps(text, Filters::Refused)?)),
        Some(_) => match text {
            "true" => Ok(Operand::Literal(Value::Bool(true))),
            "false" => Ok(Operand::Literal(Value::Bool(false))),
            number => {
                let whole = number.parse::<i64>().map(Value::from);
                let value = whole
                    .or_else(|_| number.parse::<f64>().map(Value::from))
                    .map_err(|_| wrong())?;
                if value.is_null() {
                    Err(wrong())
                } else {
                    Ok(Operand::Literal(value))
                }
            }
        },
        None => Err(wrong()),
    }
}

fn unquote(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            })),
            other => plain.push(other),
        }
    }
    plain
}

/// What the Go library reports as an error during evaluation.
#[derive(Clone, Copy, Debug)]
struct Failed;

/// How many values an evaluation may still look at.
struct Budget(usize);

impl Budget {
    fn spend(&mut self, visits: usize) -> Result<(), Failed> {
        self.0 = self.0.checked_sub(visits).ok_or(Failed)?;
        Ok(())
    }
}

fn walk<'v>(steps: &[Step], value: &'v Value, budget: &mut Budget) -> Result<Vec<&'v Value>, Failed> {
    let mut current = vec![value];
    for step in steps {
        current = step.apply(&current, budget)?;
    }
    Ok(current)
}

impl Step {
    fn apply<'v>(&self, current: &[&'v Value], budget: &mut Budget) -> Result<Vec<&'v Value>, Failed> {
        let mut found = Vec::new();
        budget.spend(current.len())?;
        match self {
            Self::Field(name) => {
                found.extend(current.iter().filter_map(|value| value.as_object()?.get(name)));
            }
            Self::Wildcard => {
                for value in current {
                    push_parts(value, &mut found, budget)?;
                }
            }
            Self::Descend => {
                let mut pending: Vec<&Value> = current.iter().rev().copied().collect();
                while let Some(value) = pending.pop() {
                    let before = pending.len();
                    push_parts(value, &mut pending, budget)?;
                    if pending.len() > before {
                        found.push(value);
                        // The parts lie on a stack, so the first of them must come last.
                        pending.get_mut(before..).ok_or(Failed)?.reverse();
                    }
                }
            }
            Self::Slice(slice) => {
                for value in current {
                    match value {
                        Value::Null => {}
                        Value::Array(items) => {
                            let chosen = slice.of(items).ok_or(Failed)?;
                            budget.spend(chosen.len())?;
                            found.extend(chosen);
                        }
                        _ => return Err(Failed),
                    }
                }
            }
            Self::Union(steps) => {
                for step in steps {
                    found.extend(step.apply(current, budget)?);
                }
            }
            Self::Filter(filter) => {
                for value in current {
                    for item in value.as_array().ok_or(Failed)? {
                        budget.spend(1)?;
                        if filter.passes(item, budget)? {
                            found.push(item);
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

fn push_parts<'v>(value: &'v Value, found: &mut Vec<&'v Value>, budget: &mut Budget) -> Result<(), Failed> {
    match value {
        Value::Object(members) => {
            budget.spend(members.len())?;
            found.extend(members.values());
        }
        Value::Array(items) => {
            budget.spend(items.len())?;
            found.extend(items);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

impl Slice {
    /// `None` when the slice reaches beyond the list.
    fn of(self, items: &[Value]) -> Option<impl ExactSizeIterator<Item = &Value>> {
        let length = i64::try_from(items.len()).ok()?;
        let absolute = |position: i64| {
            if position < 0 {
                position.saturating_add(length)
            } else {
                position
            }
        };
        let from = absolute(self.from.unwrap_or(0));
        let to = match self.to {
            To::End => length,
            To::One => from.checked_add(1)?,
            To::Before(position) => absolute(position),
        };
        // A slice of no elements is always allowed.
        let chosen = if from == to {
            items.get(..0)?
        } else {
            items.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)?
        };
        Some(chosen.iter().step_by(self.step.unwrap_or(1)))
    }
}

impl Filter {
    fn passes(&self, item: &Value, budget: &mut Budget) -> Result<bool, Failed> {
        match self {
            Self::Exists(Operand::Literal(_)) => Ok(true),
            Self::Exists(Operand::Path(steps)) => {
                Ok(walk(steps, item, budget).is_ok_and(|found| !found.is_empty()))
            }
            Self::Compare {
                left,
                operator,
                right,
            } => match (left.value(item, budget)?, right.value(item, budget)?) {
                (Some(left), Some(right)) => operator.holds(left, right).ok_or(Failed),
                _ => Ok(false),
            },
        }
    }
}

impl Operand {
    /// The one value to compare, if there is one; several are an error.
    fn value<'v>(&'v self, item: &'v Value, budget: &mut Budget) -> Result<Option<&'v Value>, Failed> {
        match self {
            Self::Literal(value) => Ok(Some(value)),
            Self::Path(steps) => match walk(steps, item, budget)?.as_slice() {
                [] => Ok(None),
                [one] => Ok(Some(one)),
                _ => Err(Failed),
            },
        }
    }
}

impl Comparison {
    /// `None` where the two cannot be compared.
    fn holds(self, left: &Value, right: &Value) -> Option<bool> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
                // Whole numbers and fractions do not compare in the Go library.
                _ => return None,
            },
            // Booleans have no order.
            (Value::Bool(left), Value::Bool(right)) => match self {
                Self::Equal => return Some(left == right),
                Self::NotEqual => return Some(left != right),
                _ => return None,
            },
            _ => return None,
        };
        Some(match self {
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
        })
    }
}

#[cfg(test)]
mod tests;
