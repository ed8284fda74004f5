//! What a step does, as it was written. Names and values may be templates, which are rendered when the step starts.

use std::collections::BTreeMap;

use jangar_api::{
    agents::agent_run::{AgentRunSpec, RuntimeType, Workflow, WorkflowStep},
    orchestration::{Step, StepKind},
    refs::OptionalRef,
    values::FreeForm,
};
use serde_json::{Map, Value, json};

use super::{condition::ROOTS, names::distance};
use crate::template::{TemplateError, render_text};

/// The keys of `with` that name something for the step itself. They are no parameters of the child.
const OWN_KEYS: [&str; 8] = [
    "agentRef",
    "implementationSpecRef",
    "runtime",
    "toolRef",
    "orchestrationRef",
    "policyRef",
    "signalRef",
    "deliveryId",
];

/// The fields of an AgentRun that a step can bring.
const AGENT_RUN_FIELDS: [&str; 13] = [
    "implementationSpecRef",
    "implementation",
    "runtime",
    "workload",
    "workflow",
    "memoryRef",
    "secrets",
    "priority",
    "systemPrompt",
    "systemPromptRef",
    "vcsRef",
    "vcsPolicy",
    "ttlSecondsAfterFinished",
];

/// How many letters of the name of a field may be wrong for it to be that field.
const MISSPELLED_MAX: usize = 2;
/// One letter in so many may be wrong: with more, a short name is near to words that mean something else.
const MISSPELLED_PART: usize = 4;

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// The spec of the child without its parameters. The names of the Agent and of the ImplementationSpec may be templates.
    AgentRun(Box<AgentRunSpec>),
    ToolRun {
        tool: String,
        /// Where and how it runs, as a ToolRun has it.
        runtime: Option<FreeForm>,
    },
    SubOrchestration {
        orchestration: String,
    },
    ApprovalGate {
        policy: String,
    },
    SignalWait {
        signal: Option<String>,
        delivery_id: Option<String>,
    },
    Checkpoint,
}

impl Work {
    pub const fn kind(&self) -> StepKind {
        match self {
            Self::AgentRun(_) => StepKind::AgentRun,
            Self::ToolRun { .. } => StepKind::ToolRun,
            Self::SubOrchestration { .. } => StepKind::SubOrchestration,
            Self::ApprovalGate { .. } => StepKind::ApprovalGate,
            Self::SignalWait { .. } => StepKind::SignalWait,
            Self::Checkpoint => StepKind::Checkpoint,
        }
    }

    /// What in it may be a template, with the name of the field.
    pub(super) fn templates(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::AgentRun(spec) => {
                let described = spec.implementation_spec_ref.as_ref();
                [("agentRef.name", spec.agent_ref.name.as_str())]
                    .into_iter()
                    .chain(described.map(|reference| ("implementationSpecRef.name", reference.name.as_str())))
                    .collect()
            }
            Self::ToolRun { tool, .. } => vec![("toolRef.name", tool)],
            Self::SubOrchestration { orchestration } => vec![("orchestrationRef.name", orchestration)],
            Self::ApprovalGate { policy } => vec![("policyRef", policy)],
            Self::SignalWait { signal, delivery_id } => {
                let signal = signal.as_deref().map(|name| ("signalRef", name));
                let id = delivery_id.as_deref().map(|id| ("deliveryId", id));
                signal.into_iter().chain(id).collect()
            }
            Self::Checkpoint => Vec::new(),
        }
    }
}

/// The texts of an AgentRun in which what other steps reported can be written, with the names of the fields.
pub fn texts(spec: &AgentRunSpec) -> Vec<(&'static str, &str)> {
    let inline = spec
        .implementation
        .as_ref()
        .map(|implementation| &implementation.inline);
    let text = inline.map(|inline| ("implementation.inline.text", inline.text.as_str()));
    let prompt = spec.system_prompt.as_deref().map(|text| ("systemPrompt", text));
    text.into_iter().chain(prompt).collect()
}

/// The same texts with these values.
pub fn render_texts(spec: &mut AgentRunSpec, values: &Value) -> Result<(), TemplateError> {
    if let Some(implementation) = &mut spec.implementation {
        let text = &mut implementation.inline.text;
        *text = render_text(text, values, &ROOTS)?;
    }
    if let Some(text) = &mut spec.system_prompt {
        *text = render_text(text, values, &ROOTS)?;
    }
    Ok(())
}

/// The parameters that a step hands on, each a template.
pub fn parameters(step: &Step) -> BTreeMap<String, String> {
    let with = step.with.iter().flatten();
    with.filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The fields that every step has, and those that waits have.
const STEP_FIELDS: [&str; 15] = [
    "name",
    "kind",
    "dependsOn",
    "continueOnFailure",
    "agentRef",
    "toolRef",
    "orchestrationRef",
    "policyRef",
    "with",
    "when",
    "retries",
    "retryBackoffSeconds",
    "timeoutSeconds",
    "signalRef",
    "deliveryId",
];

/// Fields that nobody knows and that are nearly those which somebody does. Any others are kept for tools that read them; one of
/// these would be without effect, and a graph without `dependsOn` is a sequence.
pub(super) fn misspelled(step: &Step) -> Vec<String> {
    let known = || STEP_FIELDS.iter().chain(&AGENT_RUN_FIELDS).copied();
    let unknown = step.extra.keys().filter(|key| known().all(|field| field != *key));
    unknown
        .filter_map(|key| {
            let near =
                |field: &&str| distance(key, field) <= MISSPELLED_MAX.min(field.len() / MISSPELLED_PART);
            let meant = known().find(near)?;
            Some(format!("{key} is no field of a step; {meant} is meant, perhaps"))
        })
        .collect()
}

/// Reads what a step does. The errors name the field and the remedy.
pub(super) fn read(step: &Step) -> Result<Work, Vec<String>> {
    match &step.kind {
        StepKind::AgentRun => agent_run(step),
        StepKind::ToolRun => {
            let tool = named(step, step.tool_ref.as_ref(), "toolRef", "the Tool to run");
            let runtime = match step.extra.get("runtime") {
                None => Ok(None),
                Some(Value::Object(fields)) => Ok(Some(FreeForm(fields.clone()))),
                Some(_) => Err(vec!["runtime is no object: write runtime.config".to_owned()]),
            };
            match (tool, runtime) {
                (Ok(tool), Ok(runtime)) => Ok(Work::ToolRun { tool, runtime }),
                (tool, runtime) => Err(tool.err().into_iter().chain(runtime.err()).flatten().collect()),
            }
        }
        StepKind::SubOrchestration => {
            let reference = step.orchestration_ref.as_ref();
            let orchestration = named(step, reference, "orchestrationRef", "the Orchestration to run")?;
            Ok(Work::SubOrchestration { orchestration })
        }
        StepKind::ApprovalGate => {
            let policy = text(step.policy_ref.as_deref())
                .or_else(|| with(step, "policyRef"))
                .ok_or_else(|| {
                    vec![
                        "policyRef is missing: set it to the name of the ApprovalPolicy that decides"
                            .to_owned(),
                    ]
                })?;
            Ok(Work::ApprovalGate { policy })
        }
        StepKind::SignalWait => {
            let signal = extra_name(step, "signalRef").or_else(|| with(step, "signalRef"));
            let delivery_id = extra_text(step, "deliveryId").or_else(|| with(step, "deliveryId"));
            if signal.is_none() && delivery_id.is_none() {
                return Err(vec![
                    "signalRef is missing: set signalRef.name to the Signal to wait for, or deliveryId to one delivery".to_owned(),
                ]);
            }
            Ok(Work::SignalWait { signal, delivery_id })
        }
        // What this version does not do is told before.
        StepKind::Checkpoint | StepKind::MemoryOp | StepKind::Other(_) => Ok(Work::Checkpoint),
    }
}

fn named(
    step: &Step,
    reference: Option<&OptionalRef>,
    field: &str,
    what: &str,
) -> Result<String, Vec<String>> {
    let direct = reference.and_then(|reference| text(reference.name.as_deref()));
    direct
        .or_else(|| with(step, field))
        .ok_or_else(|| vec![format!("{field}.name is missing: set it to the name of {what}")])
}

/// The child is read as an AgentRun is, so that whatever is wrong with it is known before it is needed.
fn agent_run(step: &Step) -> Result<Work, Vec<String>> {
    let mut mistakes = Vec::new();
    let agent =
        named(step, step.agent_ref.as_ref(), "agentRef", "the Agent to run").unwrap_or_else(|missing| {
            mistakes.extend(missing);
            String::new()
        });
    if step.extra.contains_key("idempotencyKey") {
        // The second attempt, and every later run, would be taken for a repetition of the first one, and not be executed.
        mistakes.push(
            "idempotencyKey cannot be given to a step, whose attempts and runs are different work: take it out".to_owned(),
        );
    }
    let mut fields: Map<String, Value> = AGENT_RUN_FIELDS
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), step.extra.get(*field)?.clone())))
        .collect();
    fields.insert("agentRef".to_owned(), json!({"name": agent}));
    for field in ["implementationSpecRef", "memoryRef", "vcsRef"] {
        if let Some(Value::String(name)) = fields.get(field) {
            let reference = json!({"name": name});
            fields.insert(field.to_owned(), reference);
        }
    }
    if !fields.contains_key("implementationSpecRef")
        && let Some(name) = with(step, "implementationSpecRef")
    {
        fields.insert("implementationSpecRef".to_owned(), json!({"name": name}));
    }
    let runtime = with(step, "runtime").unwrap_or_else(|| RuntimeType::Job.as_str().to_owned());
    fields
        .entry("runtime")
        .or_insert_with(|| json!({"type": runtime}));
    let spec: AgentRunSpec = match serde_path_to_error::deserialize(Value::Object(fields)) {
        Ok(spec) => spec,
        Err(error) => {
            mistakes.push(format!("{} cannot be read: {}", error.path(), error.inner()));
            return Err(mistakes);
        }
    };
    if let RuntimeType::Other(runtime) = &spec.runtime.type_ {
        mistakes.push(format!(
            "runtime.type is {runtime}, which there is none of: write job, workflow, temporal or custom"
        ));
    }
    if spec.implementation.is_none() && spec.implementation_spec_ref.is_none() && spec.workflow.is_none() {
        mistakes.push(
            "implementationSpecRef.name is missing: set it to the ImplementationSpec that describes the work, or set \
             implementation.inline"
                .to_owned(),
        );
    }
    let mut spec = spec;
    if spec.runtime.type_ == RuntimeType::Workflow && spec.workflow.is_none() {
        let main = WorkflowStep {
            name: "main".to_owned(),
            ..WorkflowStep::default()
        };
        spec.workflow = Some(Workflow { steps: vec![main] });
    }
    if mistakes.is_empty() {
        Ok(Work::AgentRun(Box::new(spec)))
    } else {
        Err(mistakes)
    }
}

fn text(text: Option<&str>) -> Option<String> {
    text.map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn with(step: &Step, key: &str) -> Option<String> {
    text(step.with.as_ref()?.get(key).map(String::as_str))
}

fn extra_text(step: &Step, key: &str) -> Option<String> {
    text(step.extra.get(key)?.as_str())
}

/// A name that is given as a text or as the `name` of an object.
fn extra_name(step: &Step, key: &str) -> Option<String> {
    let value = step.extra.get(key)?;
    text(value.as_str().or_else(|| value.get("name")?.as_str()))
}
