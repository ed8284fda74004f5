//! The two documents that a pod finds: `run.json`, which tells the agent what to do, and `agent-runner.json`, which tells
//! the runner how to start it. `docs/agent-runner.md` describes both.

use std::collections::BTreeMap;

use jangar_api::{
    agents::{
        agent_provider::AgentProvider,
        implementation_spec::ImplementationSpecSpec,
        memory::{Memory, MemoryType},
    },
    reason::Reason,
    refs::{ArtifactRef, KeyRef},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Identity, JobRequest, StepOfRun,
    contract::{Metadata, Payload},
    paths,
    policy::present,
    prompt::SystemPrompt,
    secrets::Secrets,
};
use crate::{
    decision::Rejection,
    template::{self, TemplateError},
    vcs::{VcsDocument, VersionControl},
};

/// How long an agent that is told to stop may take. The rest of the pod's grace is for writing the outcome.
const AGENT_GRACE_SECONDS: u32 = 25;
/// How long a pod that is told to stop may take: what Kubernetes gives to pods that say nothing.
pub(super) const POD_GRACE_SECONDS: u32 = 30;
// The runner must be done before the kubelet kills it.
const _: () = assert!(AGENT_GRACE_SECONDS < POD_GRACE_SECONDS);

/// `run.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunDocument<'a> {
    provider: &'a str,
    agent_run: Identity<'a>,
    #[serde(flatten)]
    of_workflow: Option<OfWorkflow<'a>>,
    implementation: &'a ImplementationSpecSpec,
    parameters: &'a BTreeMap<String, String>,
    memory: Option<MemoryOfRun<'a>>,
    artifacts: &'a [ArtifactRef],
    #[serde(skip_serializing_if = "Option::is_none")]
    vcs: Option<VcsDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt: Option<&'a str>,
    #[serde(flatten)]
    payload: Payload<'a>,
}

/// Where in its workflow a step stands, and what came before it.
#[derive(Debug, Serialize)]
struct OfWorkflow<'a> {
    step: StepIdentity<'a>,
    steps: &'a Value,
}

/// Which step it is, as the agent is told.
#[derive(Clone, Copy, Debug, Serialize)]
struct StepIdentity<'a> {
    name: &'a str,
    /// Counted from one.
    index: u32,
    attempt: u32,
}

/// A memory without what the agent has no need of. The connection itself stays in its Secret.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemoryOfRun<'a> {
    #[serde(rename = "type")]
    type_: &'a MemoryType,
    connection_ref: &'a KeyRef,
}

/// `agent-runner.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunnerDocument<'a> {
    provider: &'a str,
    provider_spec: ProviderSpec<'a>,
    inputs: &'a BTreeMap<String, String>,
    payloads: Payloads,
    artifacts: Artifacts,
    deadlines: Deadlines,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secret_env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secret_files: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ProviderSpec<'a> {
    binary: &'a str,
    args: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Payloads {
    event_file_path: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Artifacts {
    status_path: &'static str,
    log_path: &'static str,
    log_retention_seconds: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Deadlines {
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_seconds: Option<u32>,
    grace_seconds: u32,
}

/// What the agent is told.
pub(super) fn run_document(
    request: &JobRequest<'_>,
    run: Identity<'_>,
    metadata: &Metadata<'_>,
    prompt: SystemPrompt<'_>,
) -> Result<String, Rejection> {
    written(&RunDocument {
        provider: provider_name(request),
        agent_run: run,
        of_workflow: request.step.map(|step| OfWorkflow {
            step: identity_of(&step, request),
            steps: step.earlier,
        }),
        implementation: request.implementation,
        parameters: &request.run.spec.parameters,
        memory: request.memory.map(memory_of_run),
        artifacts: &request.provider.spec.output_artifacts,
        vcs: request.vcs.map(VersionControl::document),
        system_prompt: prompt.text(),
        payload: metadata.payload().with_branches(request.vcs),
    })
}

/// What the runner is told. The arguments are rendered here, where a bad template can be refused before anything starts.
pub(super) fn runner_document(
    request: &JobRequest<'_>,
    context: &Value,
    log_retention_seconds: u32,
    secrets: Secrets,
) -> Result<String, Rejection> {
    let provider = provider_name(request);
    let binary = present(&request.provider.spec.binary).ok_or_else(|| {
        Rejection::new(
            Reason::MissingBinary,
            format!("spec.binary of AgentProvider {provider:?} is blank: name the program that is the agent"),
        )
    })?;
    let templates = request.provider.spec.args_template.iter().enumerate();
    let args = templates
        .map(|(index, template)| {
            template::render(template, context)
                .map_err(|error| bad_template(provider, &format!("argsTemplate[{index}]"), &error))
        })
        .collect::<Result<_, _>>()?;
    let of_step = request.step.and_then(|step| step.timeout_seconds);
    let of_agent = || {
        let timeout = request.agent.spec.defaults.as_ref()?.timeout_seconds?;
        u32::try_from(timeout.get()).ok()
    };
    written(&RunnerDocument {
        provider,
        provider_spec: ProviderSpec { binary, args },
        inputs: &request.run.spec.parameters,
        payloads: Payloads {
            event_file_path: paths::RUN_DOCUMENT,
        },
        artifacts: Artifacts {
            status_path: paths::STATUS,
            log_path: paths::LOG,
            log_retention_seconds,
        },
        deadlines: Deadlines {
            // Zero means no limit.
            soft_seconds: of_step.or_else(of_agent).filter(|seconds| *seconds > 0),
            grace_seconds: AGENT_GRACE_SECONDS,
        },
        secret_env: secrets.env,
        secret_files: secrets.files,
    })
}

/// What the provider's templates can refer to. Without version control a reference to `vcs` becomes nothing.
pub(super) fn template_context(request: &JobRequest<'_>, run: Identity<'_>) -> Value {
    let agent = &request.agent.spec;
    let env: BTreeMap<&str, &str> = agent
        .env
        .iter()
        .map(|variable| (variable.name.as_str(), variable.value.as_str()))
        .collect();
    let mut context = json!({
        "agentRun": run,
        "agent": {"name": request.run.spec.agent_ref.name, "config": agent.config, "env": env},
        "implementation": request.implementation,
        "parameters": request.run.spec.parameters,
        "memory": request.memory,
        "vcs": request.vcs.map(VersionControl::document),
    });
    if let Some(step) = &request.step {
        context["step"] = json!(identity_of(step, request));
        context["steps"] = step.earlier.clone();
    }
    context
}

fn identity_of<'a>(step: &StepOfRun<'a>, request: &JobRequest<'_>) -> StepIdentity<'a> {
    StepIdentity {
        name: step.name,
        index: request.place.step,
        attempt: request.place.attempt,
    }
}

/// The name of the AgentProvider, as the Agent refers to it.
pub(super) fn provider_name<'a>(request: &JobRequest<'a>) -> &'a str {
    request.agent.spec.provider_ref.name.trim()
}

/// Says which template of which provider is wrong.
pub(super) fn bad_template(provider: &str, field: &str, error: &TemplateError) -> Rejection {
    Rejection::new(
        Reason::InvalidTemplate,
        format!("spec.{field} of AgentProvider {provider:?}: {error}"),
    )
}

/// The files that the provider asks for, by their place in its list. Those without a path or content are passed over.
pub(super) fn input_files(provider: &AgentProvider) -> impl Iterator<Item = (usize, &str, &str)> {
    provider
        .spec
        .input_files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| Some((index, present(&file.path)?, file.content.as_str())))
        .filter(|(_, _, content)| !content.is_empty())
}

fn memory_of_run(memory: &Memory) -> MemoryOfRun<'_> {
    MemoryOfRun {
        type_: &memory.spec.type_,
        connection_ref: &memory.spec.connection.secret_ref,
    }
}

fn written(document: &impl Serialize) -> Result<String, Rejection> {
    serde_json::to_string(document).map_err(|error| {
        Rejection::new(
            Reason::SubmitFailed,
            format!("the documents of the run cannot be written as JSON: {error}"),
        )
    })
}
