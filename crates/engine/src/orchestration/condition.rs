//! `when`: whether a step runs, as a CEL expression over what is known by then.
//!
//! The interpreter has no bound of its own on what an expression costs. What an expression looks at is bounded (parameters and
//! outputs are), so that it is enough to bound the expression: its length, how deeply it is nested, and that no loop runs
//! within another one. Then the cost is at most its length times the size of what it looks at.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::core::cel::cel::{
    self, Context, IdedExpr, Program,
    common::ast::{EntryExpr, Expr, LiteralValue, operators},
};
use serde_json::Value;

/// The most bytes of an expression. Whatever is longer is a program, and belongs into a step.
const SOURCE_MAX_BYTES: usize = 2048;
/// How deep the parser may go: it calls itself for every level.
const LEVELS_MAX: usize = 32;
/// How deep an expression may be nested once it is parsed.
const DEPTH_MAX: usize = 64;

/// What an expression can look up.
pub const ROOTS: [&str; 3] = ["parameters", "run", "steps"];

/// A condition that can be evaluated.
#[derive(Debug)]
pub struct Condition {
    program: Program,
    /// The steps that it names.
    steps: Vec<String>,
    /// What else it names that it cannot have.
    unknown: Vec<String>,
}

/// Why a text is no condition, or has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("it has {0} bytes, and may have {SOURCE_MAX_BYTES}: let a step decide, and look at its outputs")]
    TooLong(usize),
    #[error("it is nested too deeply: write it in a flatter way")]
    TooDeep,
    #[error("it loops within a loop, which may take too long: let a step decide, and look at its outputs")]
    NestedLoop,
    #[error("it is no CEL expression: {0}")]
    Syntax(String),
    #[error("it cannot be evaluated: {0}")]
    Evaluation(String),
    #[error("it gives {0}, and a condition is true or false: compare it with something")]
    NotBoolean(String),
}

impl Condition {
    pub fn parse(source: &str) -> Result<Self, ConditionError> {
        if source.len() > SOURCE_MAX_BYTES {
            return Err(ConditionError::TooLong(source.len()));
        }
        if levels(source) > LEVELS_MAX {
            return Err(ConditionError::TooDeep);
        }
        // The parser has places that panic on texts it did not expect.
        let parsed = catch_unwind(AssertUnwindSafe(|| Program::compile(source)));
        let program = match parsed {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => return Err(ConditionError::Syntax(first_line(&errors.to_string()))),
            Err(_) => return Err(ConditionError::Syntax("the parser gave up".to_owned())),
        };
        let mut seen = Seen::default();
        seen.look(program.expression(), &mut Vec::new(), 0)?;
        Ok(Self {
            program,
            steps: seen.steps,
            unknown: seen.unknown,
        })
    }

    /// The steps that it names.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(String::as_str)
    }

    /// The names at the beginning of a path that stand for nothing.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }

    /// Whether it holds. `values` is an object with the members of [`ROOTS`].
    pub fn holds(&self, values: &Value) -> Result<bool, ConditionError> {
        let mut context = Context::default();
        for root in ROOTS {
            let value = values.get(root).unwrap_or(&Value::Null);
            let value = cel::to_value(value)
                .map_err(|error| ConditionError::Evaluation(format!("{root} cannot be read: {error}")))?;
            context.add_variable_from_value(root, value);
        }
        // So has the interpreter.
        let result = catch_unwind(AssertUnwindSafe(|| self.program.execute(&context)));
        match result {
            Ok(Ok(cel::Value::Bool(holds))) => Ok(holds),
            Ok(Ok(other)) => Err(ConditionError::NotBoolean(format!("{:?}", other.type_of()))),
            Ok(Err(error)) => Err(ConditionError::Evaluation(first_line(&error.to_string()))),
            Err(_) => Err(ConditionError::Evaluation("the interpreter gave up".to_owned())),
        }
    }
}

/// How deep the parser may have to go: brackets that are open at once, signs in a row, and choices, each of which is one level.
fn levels(source: &str) -> usize {
    let (mut open, mut most, mut row, mut signs, mut choices) = (0_usize, 0, 0, 0, 0);
    for byte in source.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'?' => choices += 1,
            _ => {}
        }
        row = if matches!(byte, b'!' | b'-') { row + 1 } else { 0 };
        signs = signs.max(row);
        most = most.max(open);
    }
    most.max(signs).max(choices)
}

/// What an expression names.
#[derive(Default)]
struct Seen {
    steps: Vec<String>,
    unknown: Vec<String>,
}

impl Seen {
    /// Looks at an expression. `bound` are the variables of the loops around it.
    fn look(&mut self, expr: &IdedExpr, bound: &mut Vec<String>, depth: usize) -> Result<(), ConditionError> {
        if depth > DEPTH_MAX {
            return Err(ConditionError::TooDeep);
        }
        let below = depth + 1;
        match &expr.expr {
            Expr::Ident(name) => {
                if !ROOTS.contains(&name.as_str()) && !bound.contains(name) {
                    self.unknown.push(name.clone());
                }
                Ok(())
            }
            Expr::Select(select) => {
                if is_steps(&select.operand) {
                    self.steps.push(select.field.clone());
                }
                self.look(&select.operand, bound, below)
            }
            Expr::Call(call) => {
                if let [of, key] = call.args.as_slice()
                    && matches!(call.func_name.as_str(), operators::INDEX | operators::OPT_INDEX)
                    && is_steps(of)
                    && let Expr::Literal(LiteralValue::String(name)) = &key.expr
                {
                    self.steps.push(name.inner().to_owned());
                }
                let target = call.target.as_deref();
                target
                    .into_iter()
                    .chain(&call.args)
                    .try_for_each(|part| self.look(part, bound, below))
            }
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|part| self.look(part, bound, below)),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr), bound, below),
            Expr::Struct(made) => self.entries(made.entries.iter().map(|entry| &entry.expr), bound, below),
            Expr::Comprehension(comprehension) => {
                self.look(&comprehension.iter_range, bound, below)?;
                if !bound.is_empty() {
                    return Err(ConditionError::NestedLoop);
                }
                bound.push(comprehension.iter_var.clone());
                bound.extend(comprehension.iter_var2.clone());
                bound.push(comprehension.accu_var.clone());
                let parts = [
                    &comprehension.accu_init,
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ];
                let looked = parts
                    .into_iter()
                    .try_for_each(|part| self.look(part, bound, below));
                bound.clear();
                looked
            }
            Expr::Literal(_) | Expr::Unspecified => Ok(()),
        }
    }

    fn entries<'e>(
        &mut self,
        mut entries: impl Iterator<Item = &'e EntryExpr>,
        bound: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), ConditionError> {
        entries.try_for_each(|entry| match entry {
            EntryExpr::StructField(field) => self.look(&field.value, bound, depth),
            EntryExpr::MapEntry(entry) => {
                self.look(&entry.key, bound, depth)?;
                self.look(&entry.value, bound, depth)
            }
        })
    }
}

fn is_steps(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name == "steps")
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(source: &str) -> Result<bool, ConditionError> {
        let values = json!({
            "parameters": {"stage": "prod", "n": "3"},
            "run": {"name": "r-1"},
            "steps": {"build": {"phase": "Succeeded", "outputs": {"image": "i:1", "count": 7, "tags": ["a", "b"]}},
                      "lint-all": {"phase": "Failed", "outputs": {}}},
        });
        Condition::parse(source)?.holds(&values)
    }

    #[test]
    fn conditions_look_at_parameters_and_results() {
        for (source, expected) in [
            ("parameters.stage == 'prod'", true),
            ("steps.build.outputs.count > 6 && run.name.startsWith('r-')", true),
            ("steps['lint-all'].phase == 'Succeeded'", false),
            ("has(steps.build.outputs.digest)", false),
            ("steps.build.outputs.tags.exists(tag, tag == 'b')", true),
            ("'c' in steps.build.outputs.tags", false),
            ("int(parameters.n) == 3", true),
        ] {
            assert_eq!(holds(source), Ok(expected), "{source}");
        }
    }

    #[test]
    fn a_value_that_is_missing_is_an_error_and_not_false() {
        assert!(matches!(
            holds("steps.build.outputs.digest == 'x'"),
            Err(ConditionError::Evaluation(_))
        ));
        assert!(matches!(
            holds("parameters.stage"),
            Err(ConditionError::NotBoolean(_))
        ));
    }

    #[test]
    fn the_steps_and_the_unknown_names_of_a_condition_are_known() {
        let condition =
            Condition::parse("steps.a.phase == steps['b-c'].phase && foo.bar && [1].all(x, x > 0)")
                .expect("an expression");
        assert_eq!(condition.steps().collect::<Vec<_>>(), ["a", "b-c"]);
        assert_eq!(condition.unknown().collect::<Vec<_>>(), ["foo"]);
    }

    #[test]
    fn what_may_take_too_long_is_refused() {
        let list = "parameters.all(a, parameters.all(b, a != b))";
        assert_eq!(Condition::parse(list).err(), Some(ConditionError::NestedLoop));
        let long = format!("'{}' == ''", "x".repeat(SOURCE_MAX_BYTES));
        assert!(matches!(Condition::parse(&long), Err(ConditionError::TooLong(_))));
        for deep in [
            format!("{}true{}", "(".repeat(400), ")".repeat(400)),
            format!("{}true", "!".repeat(1500)),
            "true ? ".repeat(200) + "true",
        ] {
            assert_eq!(Condition::parse(&deep).err(), Some(ConditionError::TooDeep));
        }
        assert!(matches!(Condition::parse("a ="), Err(ConditionError::Syntax(_))));
    }
}
