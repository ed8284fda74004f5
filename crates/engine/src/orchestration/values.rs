//! What templates and conditions can look up: `parameters`, `run` and `steps`.

use std::collections::BTreeMap;

use jangar_api::{phase::StepPhase, values::FreeForm};
use serde_json::{Map, Value, json};

use super::{
    condition::ROOTS,
    graph::{Graph, StepId},
};
use crate::template::{self, TemplateError};

/// The run that values are looked up for.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub parameters: &'a BTreeMap<String, String>,
}

/// What is known of a step that another one depends on.
#[derive(Clone, Copy, Debug)]
pub struct Result<'a> {
    pub phase: &'a StepPhase,
    pub outputs: Option<&'a FreeForm>,
}

/// What the templates and the condition of a step can look up: of the other steps only those that it depends on, so that the
/// same results always give the same values.
pub fn of_step<'a>(
    run: RunFacts<'_>,
    graph: &Graph,
    step: StepId,
    result: impl Fn(StepId) -> Option<Result<'a>>,
) -> Value {
    let steps: Map<String, Value> = graph
        .ancestors(step)
        .filter_map(|ancestor| {
            let Result { phase, outputs } = result(ancestor)?;
            let outputs = outputs.map_or_else(Map::new, |outputs| outputs.0.clone());
            let known = json!({"phase": phase, "outputs": outputs});
            Some((graph.name(ancestor).to_owned(), known))
        })
        .collect();
    json!({
        "parameters": run.parameters,
        "run": {"name": run.name, "namespace": run.namespace, "uid": run.uid},
        "steps": steps,
    })
}

/// What is wrong with a template, before any value is known. `above` says whether a step of this name is one that the step
/// depends on.
pub(super) fn mistakes(
    template: &str,
    above: &impl Fn(&str) -> std::result::Result<(), String>,
) -> Vec<String> {
    let paths = match template::paths(template) {
        Ok(paths) => paths,
        Err(error) => return vec![error.to_string()],
    };
    paths
        .into_iter()
        .filter_map(|path| wrong_path(path, above).err())
        .collect()
}

/// The same for a text in which braces may mean something else.
pub(super) fn mistakes_in_text(
    text: &str,
    above: &impl Fn(&str) -> std::result::Result<(), String>,
) -> Vec<String> {
    let paths = template::paths_in_text(text, &ROOTS);
    paths
        .into_iter()
        .filter_map(|path| wrong_path(path, above).err())
        .collect()
}

fn wrong_path(
    path: &str,
    above: &impl Fn(&str) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        ["parameters", _, ..] | ["run", "name" | "namespace" | "uid"] => Ok(()),
        ["steps", step, "outputs", _, ..] | ["steps", step, "phase"] => above(step),
        ["steps", ..] => Err(format!(
            "{path} leads nowhere: write steps.NAME.outputs.KEY or steps.NAME.phase"
        )),
        ["run", ..] => Err(format!(
            "{path} leads nowhere: a run has run.name, run.namespace and run.uid"
        )),
        _ => Err(format!(
            "{path} leads nowhere: a path begins with one of {}",
            ROOTS.join(", ")
        )),
    }
}

/// Renders the values of a map, each of which is a template.
pub fn render(
    templates: &BTreeMap<String, String>,
    values: &Value,
) -> std::result::Result<BTreeMap<String, String>, TemplateError> {
    templates
        .iter()
        .map(|(key, template)| Ok((key.clone(), template::render_strict(template, values)?)))
        .collect()
}
