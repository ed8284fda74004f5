//! Whether the steps of an Orchestration make sense: one pass that finds every mistake.

use std::{collections::BTreeMap, fmt, time::Duration};

use jangar_api::{
    names::{NAME_MAX, label_value},
    orchestration::{OrchestrationSpec, Step, StepKind},
    reason::Reason,
    values::Int32,
};

use super::{
    condition::{Condition, ROOTS},
    cycles,
    graph::{Bits, Graph, Node, StepId, above},
    names::nearest,
    size::{self, Need},
    values,
    work::{self, Work},
};
use crate::decision::Rejection;

/// The most steps of an orchestration.
pub const STEPS_MAX: usize = 1000;
/// The most attempts beyond the first one.
pub const RETRIES_MAX: u32 = 100;
/// The longest first wait between two attempts: a day.
const BACKOFF_SECONDS_MAX: u32 = 86_400;
/// How many mistakes are told. Whoever mends them sees the rest.
const TOLD_MAX: usize = 20;

/// All that is wrong with a definition; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Rejection>);

impl Mistakes {
    pub fn iter(&self) -> impl Iterator<Item = &Rejection> {
        self.0.iter()
    }

    /// All of them as one: the reason is that of the first.
    pub fn rejection(&self) -> Rejection {
        let reason = self
            .0
            .first()
            .map_or(Reason::InvalidSpec, |first| first.reason.clone());
        Rejection::new(reason, self.to_string())
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<&str> = self
            .0
            .iter()
            .take(TOLD_MAX)
            .map(|mistake| mistake.message.as_str())
            .collect();
        f.write_str(&told.join("; "))?;
        match self.0.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Reads the steps of a definition, or says all that is wrong with them.
pub fn read(spec: &OrchestrationSpec) -> Result<Graph, Mistakes> {
    Reader::default().read(spec)
}

/// The same of the Orchestration of this name: a step that runs the Orchestration it stands in fails whenever it is reached,
/// which can be told before.
pub fn read_named(name: &str, spec: &OrchestrationSpec) -> Result<Graph, Mistakes> {
    let own_name = Some(name);
    Reader {
        own_name,
        ..Reader::default()
    }
    .read(spec)
}

/// One step among the others.
struct Place<'a> {
    position: usize,
    step: &'a Step,
    steps: &'a [Step],
    above: Option<&'a Bits>,
}

impl Place<'_> {
    /// Whether the step of this name is one that has ended before; the error says why not.
    fn comes_after(&self, name: &str) -> Result<(), String> {
        let Some(other) = self.steps.iter().position(|step| step.name.trim() == name) else {
            return Err(format!("there is no step {name}{}", guess(name, self.steps)));
        };
        match self.above {
            Some(above) if !above.has(other) => Err(format!(
                "step {name} need not have run before: add it to dependsOn"
            )),
            Some(_) | None => Ok(()),
        }
    }
}

#[derive(Default)]
struct Reader<'a> {
    /// The Orchestration whose steps these are, if that is known.
    own_name: Option<&'a str>,
    mistakes: Vec<Rejection>,
}

impl Reader<'_> {
    fn read(mut self, spec: &OrchestrationSpec) -> Result<Graph, Mistakes> {
        self.size(spec);
        self.names(spec);
        if spec.steps.len() > STEPS_MAX {
            // What comes before what is looked at in time that grows with the square of their number.
            return Err(Mistakes(self.mistakes));
        }
        let dependencies = self.dependencies(spec);
        let order = self.order(&spec.steps, &dependencies);
        let above = above(&order, spec.steps.len(), |step| {
            dependencies.get(step.0).map_or(&[][..], Vec::as_slice)
        });
        let nodes: Vec<Option<Node>> = spec
            .steps
            .iter()
            .enumerate()
            .zip(dependencies)
            .map(|((position, step), dependencies)| {
                let place = Place {
                    position,
                    step,
                    steps: &spec.steps,
                    // Where there is a cycle, what comes before what cannot be said.
                    above: (order.len() == spec.steps.len())
                        .then(|| above.get(position))
                        .flatten(),
                };
                self.node(&place, dependencies)
            })
            .collect();
        if self.mistakes.is_empty() {
            return Ok(Graph::new(nodes.into_iter().flatten().collect(), order));
        }
        Err(Mistakes(self.mistakes))
    }

    fn wrong(&mut self, reason: Reason, message: impl Into<String>) {
        self.mistakes.push(Rejection::new(reason, message));
    }

    /// Whether a run of it fits into one object.
    fn size(&mut self, spec: &OrchestrationSpec) {
        if spec.steps.is_empty() {
            self.wrong(
                Reason::MissingSteps,
                "spec.steps is empty: an orchestration needs at least one step",
            );
            return;
        }
        if spec.steps.len() > STEPS_MAX {
            let count = spec.steps.len();
            self.wrong(
                Reason::OrchestrationTooLarge,
                format!("spec.steps has {count} steps, and may have {STEPS_MAX}: put some of them into an Orchestration of their own"),
            );
            return;
        }
        if let Some(words) = Need::of(&spec.steps, size::TYPICAL).excess() {
            self.wrong(
                Reason::OrchestrationTooLarge,
                format!("spec.steps is too large: {words}"),
            );
        }
    }

    fn names(&mut self, spec: &OrchestrationSpec) {
        // By what becomes of a name in the name of a child.
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for (position, step) in spec.steps.iter().enumerate() {
            let name = step.name.trim();
            if name.is_empty() {
                self.wrong(
                    Reason::StepMissingName,
                    format!("spec.steps[{position}].name is blank: name the step"),
                );
                continue;
            }
            if name.len() > NAME_MAX {
                self.wrong(
                    Reason::InvalidStep,
                    format!("spec.steps[{position}].name has {} bytes, and may have {NAME_MAX}: choose a shorter one", name.len()),
                );
            }
            match first.insert(label_value(name), name) {
                Some(other) if other == name => self.wrong(
                    Reason::DuplicateStep,
                    format!("spec.steps[{position}].name is {name}, as an earlier step's is: choose another one"),
                ),
                Some(other) => self.wrong(
                    Reason::DuplicateStep,
                    format!(
                        "spec.steps[{position}].name is {name}, which is the same as {other} in the name of a child: choose \
                         another one"
                    ),
                ),
                None => {}
            }
        }
        let entrypoint = spec
            .entrypoint
            .as_deref()
            .map(str::trim)
            .filter(|name| !name.is_empty());
        if let Some(name) = entrypoint.filter(|name| find(&spec.steps, name).is_none()) {
            self.wrong(
                Reason::EntrypointMissing,
                format!(
                    "spec.entrypoint is {name}, and there is no such step{}",
                    guess(name, &spec.steps)
                ),
            );
        }
    }

    /// What each step depends on: what it says, or the one before it if none says anything.
    fn dependencies(&mut self, spec: &OrchestrationSpec) -> Vec<Vec<StepId>> {
        let is_graph = spec.steps.iter().any(|step| step.depends_on.is_some());
        if !is_graph {
            let before = |position: usize| position.checked_sub(1).map(StepId);
            return (0..spec.steps.len())
                .map(|position| before(position).into_iter().collect())
                .collect();
        }
        let steps = spec.steps.iter().enumerate();
        steps
            .map(|(position, step)| {
                let mut own: Vec<StepId> = step
                    .depends_on
                    .iter()
                    .flatten()
                    .filter_map(|name| self.dependency(spec, position, name.trim()))
                    .collect();
                own.sort();
                own.dedup();
                own
            })
            .collect()
    }

    fn dependency(&mut self, spec: &OrchestrationSpec, position: usize, name: &str) -> Option<StepId> {
        let field = format!("spec.steps[{position}].dependsOn");
        match find(&spec.steps, name) {
            Some(other) if other.0 == position => {
                self.wrong(
                    Reason::InvalidDependency,
                    format!("{field} names {name}, which is the step itself: take it out"),
                );
                None
            }
            Some(other) => Some(other),
            None => {
                self.wrong(
                    Reason::MissingDependency,
                    format!(
                        "{field} names {name}, and there is no such step{}",
                        guess(name, &spec.steps)
                    ),
                );
                None
            }
        }
    }

    fn order(&mut self, steps: &[Step], dependencies: &[Vec<StepId>]) -> Vec<StepId> {
        let order = cycles::order(dependencies);
        for cycle in cycles::cycles(dependencies, &order) {
            let names: Vec<&str> = cycle
                .iter()
                .filter_map(|step| Some(steps.get(step.0)?.name.trim()))
                .collect();
            self.wrong(
                Reason::DependencyCycle,
                format!(
                    "spec.steps wait for each other, each for the next: {}; take one of these out of dependsOn",
                    names.join(" -> ")
                ),
            );
        }
        order
    }

    fn node(&mut self, place: &Place<'_>, dependencies: Vec<StepId>) -> Option<Node> {
        let Place { position, step, .. } = *place;
        let work = self.work(position, step);
        let when = self.condition(place);
        let attempts = self.number(position, "retries", step.retries, RETRIES_MAX) + 1;
        let backoff = self.number(
            position,
            "retryBackoffSeconds",
            step.retry_backoff_seconds,
            BACKOFF_SECONDS_MAX,
        );
        let timeout = self.number(position, "timeoutSeconds", step.timeout_seconds, u32::MAX);
        for words in work::misspelled(step) {
            self.wrong(Reason::InvalidStep, format!("spec.steps[{position}].{words}"));
        }
        let templates = step.with.iter().flatten();
        let with = templates.map(|(key, template)| (format!("with.{key}"), template.as_str()));
        let fields = work.as_ref().map(Work::templates).unwrap_or_default();
        let fields = fields
            .into_iter()
            .map(|(field, template)| (field.to_owned(), template));
        let found: Vec<String> = with
            .chain(fields)
            .flat_map(|(field, template)| {
                let mistakes = values::mistakes(template, &|name: &str| place.comes_after(name));
                mistakes.into_iter().map(move |words| format!("{field}: {words}"))
            })
            .collect();
        let texts = match &work {
            Some(Work::AgentRun(spec)) => work::texts(spec),
            _ => Vec::new(),
        };
        let in_texts = texts.into_iter().flat_map(|(field, text)| {
            let mistakes = values::mistakes_in_text(text, &|name: &str| place.comes_after(name));
            mistakes.into_iter().map(move |words| format!("{field}: {words}"))
        });
        let found: Vec<String> = found.into_iter().chain(in_texts).collect();
        for words in found {
            self.wrong(Reason::InvalidTemplate, format!("spec.steps[{position}].{words}"));
        }
        Some(Node {
            name: step.name.trim().to_owned(),
            work: work?,
            dependencies,
            continue_on_failure: step.continue_on_failure == Some(true),
            when,
            attempts,
            backoff: Duration::from_secs(backoff.into()),
            timeout: (timeout > 0).then(|| Duration::from_secs(timeout.into())),
            step: step.clone(),
        })
    }

    fn work(&mut self, position: usize, step: &Step) -> Option<Work> {
        let kinds = || {
            let known = StepKind::KNOWN.iter().filter(|kind| **kind != StepKind::MemoryOp);
            known.map(StepKind::as_str).collect::<Vec<_>>().join(", ")
        };
        match &step.kind {
            StepKind::Other(kind) if kind.as_str().trim().is_empty() => {
                let message = format!("spec.steps[{position}].kind is blank: write one of {}", kinds());
                self.wrong(Reason::StepMissingKind, message);
                None
            }
            StepKind::Other(kind) => {
                let known = StepKind::KNOWN.iter().map(StepKind::as_str);
                let meant = nearest(kind.as_str(), known);
                let meant = meant.map_or_else(String::new, |name| format!("; {name} is meant, perhaps"));
                let message = format!(
                    "spec.steps[{position}].kind is {kind}, and there is no such kind{meant}: write one of {}",
                    kinds()
                );
                self.wrong(Reason::UnsupportedStep, message);
                None
            }
            StepKind::MemoryOp => {
                let message = format!(
                    "spec.steps[{position}].kind is MemoryOp, which this version does not do: let an agent use its memory, and \
                     write one of {}",
                    kinds()
                );
                self.wrong(Reason::UnsupportedStep, message);
                None
            }
            _ => match work::read(step) {
                Ok(Work::SubOrchestration { orchestration })
                    if self.own_name == Some(orchestration.as_str()) =>
                {
                    let message = format!(
                        "spec.steps[{position}].orchestrationRef.name is {orchestration}, so that step {} would run the \
                         Orchestration it stands in: name another one",
                        step.name.trim()
                    );
                    self.wrong(Reason::RecursionRefused, message);
                    None
                }
                Ok(work) => Some(work),
                Err(mistakes) => {
                    for words in mistakes {
                        self.wrong(Reason::InvalidStep, format!("spec.steps[{position}].{words}"));
                    }
                    None
                }
            },
        }
    }

    fn condition(&mut self, place: &Place<'_>) -> Option<Condition> {
        let position = place.position;
        let source = place
            .step
            .when
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty())?;
        let condition = match Condition::parse(source) {
            Ok(condition) => condition,
            Err(error) => {
                self.wrong(
                    Reason::InvalidCondition,
                    format!("spec.steps[{position}].when is {source:?}: {error}"),
                );
                return None;
            }
        };
        for name in condition.unknown() {
            self.wrong(
                Reason::InvalidCondition,
                format!(
                    "spec.steps[{position}].when names {name}, which there is none of: it can look at {}",
                    ROOTS.join(", ")
                ),
            );
        }
        for name in condition.steps() {
            if let Err(words) = place.comes_after(name) {
                self.wrong(
                    Reason::InvalidCondition,
                    format!("spec.steps[{position}].when looks at steps.{name}: {words}"),
                );
            }
        }
        Some(condition)
    }

    /// A number that is not negative and not too large; absent counts as 0.
    fn number(&mut self, position: usize, field: &str, given: Option<Int32>, most: u32) -> u32 {
        let given = given.map_or(0, Int32::get);
        match u32::try_from(given) {
            Ok(number) if number <= most => number,
            Ok(number) => {
                self.wrong(
                    Reason::InvalidStep,
                    format!("spec.steps[{position}].{field} is {number}, and may be {most} at most"),
                );
                0
            }
            Err(_) => {
                self.wrong(
                    Reason::InvalidStep,
                    format!("spec.steps[{position}].{field} is {given}: write 0 or more"),
                );
                0
            }
        }
    }
}

fn find(steps: &[Step], name: &str) -> Option<StepId> {
    steps.iter().position(|step| step.name.trim() == name).map(StepId)
}

/// What may be meant, as the end of a sentence.
fn guess(name: &str, steps: &[Step]) -> String {
    let names = steps
        .iter()
        .map(|step| step.name.trim())
        .filter(|name| !name.is_empty());
    match nearest(name, names) {
        Some(meant) => format!("; {meant} is meant, perhaps"),
        None => String::new(),
    }
}
