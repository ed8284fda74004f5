//! `graph`: the steps of an orchestration as a tree, each below the step that it waits for last.
//!
//! A graph is no tree: a step that depends on several stands below the one that is furthest from the start, and names the others.
//! So every line can be read, and found with grep, by itself.

use std::{collections::BTreeMap, fmt::Write as _};

use futures::StreamExt as _;
use jangar_api::Kind;
use serde_json::{Value, json};

use crate::{
    cli::GraphArgs,
    clock::Clock,
    console::Tone,
    error::{self, Error},
    object::Object,
    output, resource,
    session::Session,
    transport::{Change, Changes, Transport},
};

/// One step of a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: String,
    kind: String,
    /// Positions of the steps that it depends on.
    after: Vec<usize>,
    phase: String,
    took: Option<String>,
    why: String,
    child: Option<String>,
}

pub async fn graph(session: &mut Session, arguments: &GraphArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let bare = matches!(arguments.what.as_slice(), [one] if !one.contains('/'));
    let (kind, name) = if bare {
        (
            Kind::OrchestrationRun,
            arguments.what.first().cloned().unwrap_or_default(),
        )
    } else {
        resource::one(&arguments.what)?
    };
    if !matches!(kind, Kind::OrchestrationRun | Kind::Orchestration) {
        return Err(Error::Validation(format!(
            "{} {name} has no graph: only an Orchestration and its runs have one",
            kind.info().kind
        )));
    }
    let namespace = session.namespace();
    let object = resource::object(&transport, kind, &namespace, &name).await?;
    let definition = definition(&transport, kind, &object).await?;
    resource::note_if_gone(session, kind, &object)?;
    // What is gone does not change any more.
    if !arguments.watch || kind == Kind::Orchestration || object.remembered().is_some() {
        return show(session, kind, &object, &definition);
    }
    let changes = transport.watch(kind, Some(&namespace), Some(&name), None);
    live(session, &transport, &object, changes, &definition).await
}

/// Draws it anew with every change, until it has ended.
async fn live(
    session: &mut Session,
    transport: &Transport,
    object: &Object,
    mut changes: Changes,
    definition: &[Value],
) -> Result<(), Error> {
    let mut lines_drawn = 0;
    let mut last = String::new();
    // Whether it was seen since all was listed anew.
    let mut seen = true;
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            _ = tokio::signal::ctrl_c() => return Err(Error::Silent(error::INTERRUPTED)),
        };
        match change {
            Some(Change::Seen(object)) => {
                seen = true;
                let text = drawing(&object, definition, session.clock, session.console.colour);
                if text != last {
                    let above = redraw(session, lines_drawn);
                    session.console.data(&format!("{above}{text}"))?;
                    lines_drawn = text.lines().count();
                    last = text;
                }
                if object.has_ended() {
                    return Ok(());
                }
            }
            Some(Change::Gone(_)) => return session.console.note("the run was deleted"),
            Some(Change::Relisting) => seen = false,
            Some(Change::Listed) if !seen => {
                if transport
                    .is_gone(Kind::OrchestrationRun, object.namespace(), object.name())
                    .await
                {
                    return session.console.note("the run was deleted");
                }
            }
            Some(Change::Trouble {
                words,
                hopeless: true,
            }) => return Err(transport.trouble(words)),
            Some(Change::Trouble { words, .. }) => {
                session
                    .console
                    .note(&format!("the line is disturbed, trying again: {words}"))?;
                // A drawing over the note would leave half of it.
                lines_drawn = 0;
            }
            Some(Change::Listed) => {}
            None => return Ok(()),
        }
    }
}

/// At a terminal the drawing takes the place of the one before; elsewhere they follow each other.
fn redraw(session: &Session, lines: usize) -> String {
    match (lines, session.console.out_is_terminal) {
        (0, _) => String::new(),
        (lines, true) => format!("\u{1b}[{lines}A\u{1b}[J"),
        (_, false) => "\n".to_owned(),
    }
}

/// The steps as they were written: those that the run has kept, else those of the Orchestration.
async fn definition(transport: &Transport, kind: Kind, object: &Object) -> Result<Vec<Value>, Error> {
    let steps_at =
        |object: &Object, place: &str| object.value().pointer(place).and_then(Value::as_array).cloned();
    if kind == Kind::Orchestration {
        return Ok(steps_at(object, "/spec/steps").unwrap_or_default());
    }
    if let Some(steps) = steps_at(object, "/status/definition/steps") {
        return Ok(steps);
    }
    let name = object.text("/spec/orchestrationRef/name").unwrap_or_default();
    let written = transport
        .find(Kind::Orchestration, object.namespace(), name)
        .await?;
    Ok(written
        .and_then(|written| steps_at(&written, "/spec/steps"))
        .unwrap_or_default())
}

fn show(session: &mut Session, kind: Kind, object: &Object, definition: &[Value]) -> Result<(), Error> {
    let format = session.format();
    if output::is_for_programs(&format) {
        let steps = steps(object, definition, session.clock);
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let all: Vec<Value> = steps
            .iter()
            .map(|step| {
                let after: Vec<&str> = step.after.iter().filter_map(|at| names.get(*at).copied()).collect();
                json!({
                    "name": step.name, "kind": step.kind, "after": after, "phase": step.phase, "took": step.took,
                    "why": step.why, "child": step.child,
                })
            })
            .collect();
        let value = json!({"kind": kind.info().kind, "name": object.name(), "phase": object.standing(), "steps": all});
        return output::value(session, &value);
    }
    if definition.is_empty() {
        return session
            .console
            .note("its steps are not known: the run has not started, and its Orchestration is not there");
    }
    let text = drawing(object, definition, session.clock, session.console.colour);
    session.console.data(&text)
}

/// The steps of the definition with what the status says of each.
fn steps(object: &Object, definition: &[Value], clock: Clock) -> Vec<Step> {
    let text = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let positions: BTreeMap<String, usize> = definition
        .iter()
        .enumerate()
        .map(|(at, step)| (text(step, "name"), at))
        .collect();
    let is_graph = definition.iter().any(|step| step.get("dependsOn").is_some());
    let statuses: BTreeMap<String, &Value> = object
        .value()
        .pointer("/status/stepStatuses")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|status| (text(status, "name"), status))
        .collect();
    let has_status = !statuses.is_empty();
    definition
        .iter()
        .enumerate()
        .map(|(at, step)| {
            let listed = step.get("dependsOn").and_then(Value::as_array);
            let named = listed.into_iter().flatten().filter_map(Value::as_str);
            let mut after: Vec<usize> = named.filter_map(|name| positions.get(name).copied()).collect();
            if !is_graph && at > 0 {
                after.push(at - 1);
            }
            let status = statuses.get(&text(step, "name")).copied();
            let of = |key: &str| status.and_then(|status| status.get(key)?.as_str());
            let phase = of("phase").unwrap_or(if has_status { "Pending" } else { "" });
            Step {
                name: text(step, "name"),
                kind: text(step, "kind"),
                after,
                phase: phase.to_owned(),
                took: clock.between(of("startedAt"), of("finishedAt")),
                why: why(status),
                child: status
                    .and_then(|status| status.pointer("/resourceRef/name")?.as_str())
                    .map(str::to_owned),
            }
        })
        .collect()
}

fn why(status: Option<&Value>) -> String {
    let of = |key: &str| status.and_then(|status| status.get(key)?.as_str());
    match (of("reason"), of("causedBy")) {
        (Some(reason), Some(cause)) => format!("{reason} because of {cause}"),
        (Some(reason), None) => reason.to_owned(),
        (None, _) => String::new(),
    }
}

/// The whole drawing, with a headline.
fn drawing(object: &Object, definition: &[Value], clock: Clock, colour: bool) -> String {
    let steps = steps(object, definition, clock);
    let ended = steps
        .iter()
        .filter(|step| {
            matches!(
                step.phase.as_str(),
                "Succeeded" | "Failed" | "Skipped" | "Cancelled"
            )
        })
        .count();
    let standing = object.standing();
    let mut text = match standing.as_str() {
        "" => format!("{} {}\n", object.kind(), object.name()),
        standing => {
            let took = clock.between(
                object.text("/status/startedAt"),
                object.text("/status/finishedAt"),
            );
            let took = took.map_or_else(String::new, |took| format!(", {took}"));
            let counted = match object.kind() {
                "OrchestrationRun" => format!(", {ended} of {} steps ended{took}", steps.len()),
                _ => String::new(),
            };
            let painted = Tone::of(standing).paint(standing, colour);
            format!("{} {}: {painted}{counted}\n", object.kind(), object.name())
        }
    };
    let depths = depths(&steps);
    let parents: Vec<Option<usize>> = steps.iter().map(|step| parent(step, &depths)).collect();
    let roots: Vec<usize> = (0..steps.len())
        .filter(|at| parents.get(*at).is_some_and(Option::is_none))
        .collect();
    let mut lines: Vec<(String, usize)> = Vec::new();
    for root in roots {
        branch(&mut lines, &parents, root, "", None);
    }
    let width = lines
        .iter()
        .filter_map(|(stem, at)| Some(stem.chars().count() + steps.get(*at)?.name.chars().count()))
        .max()
        .unwrap_or(0);
    for (stem, at) in &lines {
        if let Some(step) = steps.get(*at) {
            text.push_str(&line(
                stem,
                step,
                &steps,
                parents.get(*at).copied().flatten(),
                width,
                colour,
            ));
        }
    }
    text
}

/// How far each step is from the start. Steps that go round in a circle, which no run has, stay where they are.
fn depths(steps: &[Step]) -> Vec<usize> {
    let mut depths = vec![0; steps.len()];
    for _ in 0..steps.len() {
        let mut changed = false;
        for (at, step) in steps.iter().enumerate() {
            let depth = step
                .after
                .iter()
                .filter_map(|above| depths.get(*above))
                .map(|depth| depth + 1)
                .max()
                .unwrap_or(0);
            if let Some(known) = depths.get_mut(at)
                && *known != depth
                && depth <= steps.len()
            {
                *known = depth;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    depths
}

/// The step that it stands below: of those that it depends on the one that is furthest from the start.
fn parent(step: &Step, depths: &[usize]) -> Option<usize> {
    let depth = |at: &usize| depths.get(*at).copied().unwrap_or(0);
    step.after
        .iter()
        .copied()
        .max_by_key(|at| (depth(at), usize::MAX - at))
}

/// The lines of a step and of all below it. A step that was drawn is not drawn again.
fn branch(
    lines: &mut Vec<(String, usize)>,
    parents: &[Option<usize>],
    at: usize,
    indent: &str,
    is_last: Option<bool>,
) {
    if lines.iter().any(|(_, drawn)| *drawn == at) {
        return;
    }
    let (stem, below) = match is_last {
        None => ("", ""),
        Some(true) => ("└─ ", "   "),
        Some(false) => ("├─ ", "│  "),
    };
    lines.push((format!("{indent}{stem}"), at));
    let children: Vec<usize> = (0..parents.len())
        .filter(|child| parents.get(*child).copied().flatten() == Some(at))
        .collect();
    let indent = format!("{indent}{below}");
    for (position, child) in children.iter().enumerate() {
        branch(
            lines,
            parents,
            *child,
            &indent,
            Some(position + 1 == children.len()),
        );
    }
}

fn line(
    stem: &str,
    step: &Step,
    steps: &[Step],
    parent: Option<usize>,
    width: usize,
    colour: bool,
) -> String {
    let missing = width.saturating_sub(stem.chars().count() + step.name.chars().count());
    let mut text = format!("{stem}{}{}", step.name, " ".repeat(missing));
    let phase = Tone::of(&step.phase).paint(&step.phase, colour);
    if !phase.is_empty() {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            text,
            "   {phase}{}",
            " ".repeat(9_usize.saturating_sub(step.phase.len()))
        );
    }
    let _ = write!(text, "   {}", step.kind);
    let others: Vec<&str> = step
        .after
        .iter()
        .filter(|at| Some(**at) != parent)
        .filter_map(|at| steps.get(*at))
        .map(|other| other.name.as_str())
        .collect();
    if !others.is_empty() {
        let _ = write!(text, ", also after {}", others.join(", "));
    }
    if let Some(took) = &step.took {
        let _ = write!(text, ", {took}");
    }
    if let Some(child) = &step.child {
        let _ = write!(text, ", {child}");
    }
    if !step.why.is_empty() {
        let _ = write!(text, ", {}", step.why);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "every caller makes the value on the spot"
    )]
    fn drawn(definition: Value, status: Value) -> String {
        let object = Object::from_value(json!({
            "kind": "OrchestrationRun", "metadata": {"name": "r"}, "status": status,
        }));
        let definition = definition.as_array().cloned().unwrap_or_default();
        drawing(&object, &definition, Clock::default(), false)
    }

    #[test]
    fn a_diamond_stands_once_and_names_both_its_sides() {
        let definition = json!([
            {"name": "build", "kind": "AgentRun", "dependsOn": []},
            {"name": "test", "kind": "AgentRun", "dependsOn": ["build"]},
            {"name": "lint", "kind": "ToolRun", "dependsOn": ["build"]},
            {"name": "ship", "kind": "ApprovalGate", "dependsOn": ["test", "lint"]},
        ]);
        let status = json!({"phase": "Running", "stepStatuses": [
            {"name": "build", "phase": "Succeeded"}, {"name": "test", "phase": "Running"},
            {"name": "lint", "phase": "Failed", "reason": "ToolRunFailed"},
        ]});
        assert_eq!(
            drawn(definition, status),
            "OrchestrationRun r: Running, 2 of 4 steps ended\n\
             build        Succeeded   AgentRun\n\
             ├─ test      Running     AgentRun\n\
             │  └─ ship   Pending     ApprovalGate, also after lint\n\
             └─ lint      Failed      ToolRun, ToolRunFailed\n"
        );
    }

    #[test]
    fn without_dependencies_the_steps_are_a_sequence() {
        let definition = json!([{"name": "a", "kind": "Checkpoint"}, {"name": "b", "kind": "Checkpoint"}]);
        assert_eq!(
            drawn(definition, json!(null)),
            "OrchestrationRun r\na      Checkpoint\n└─ b   Checkpoint\n"
        );
    }

    #[test]
    fn a_circle_ends() {
        let definition = json!([
            {"name": "a", "kind": "Checkpoint", "dependsOn": ["b"]},
            {"name": "b", "kind": "Checkpoint", "dependsOn": ["a"]},
        ]);
        assert!(drawn(definition, json!(null)).starts_with("OrchestrationRun r"));
    }
}
