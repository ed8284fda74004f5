//! Makes the Job of one attempt, and says whether the run may have it.
//!
//! Nothing is looked up: the objects that the run refers to are part of the [`JobRequest`], and the same request always
//! makes the same Job. [`build`] checks in the order of what is known first: the run by itself ([`check_run`]), then what
//! its Agent allows, then the implementation, the memory and the system prompt, and at last the provider's templates.
//! Whatever is wrong is a [`Rejection`]; there is nothing to try again.
//!
//! | module | subject |
//! |---|---|
//! | `config` | what `spec.runtime.config` says |
//! | `policy` | what a run may ask for |
//! | `privilege` | what it may say about its pod that others may not |
//! | `contract` | what a run knows, and what the work asks for |
//! | `prompt` | the system prompt |
//! | `documents` | `run.json` and `agent-runner.json` |
//! | `files` | how files get into the pod |
//! | `env` | the environment of the container |
//! | `volumes` | what is mounted where |
//! | `scheduling` | where the pod may run |
//! | `secrets` | where the pod has secrets |
//! | `pod` | the pod itself |
//! | `tool` | the Job of a ToolRun, which needs less |
//!
//! What the pod is told about its repository comes from [`vcs`](crate::vcs).

mod config;
mod contract;
mod documents;
mod env;
mod files;
mod needs;
mod paths;
mod pod;
mod policy;
mod privilege;
mod prompt;
mod scheduling;
mod secrets;
#[cfg(test)]
mod tests;
pub(crate) mod tool;
mod volumes;

use std::collections::BTreeMap;

use jangar_api::{
    agents::{
        agent::Agent,
        agent_provider::AgentProvider,
        agent_run::{AgentRun, RuntimeType},
        agent_run_status::ContractStatus,
        implementation_spec::ImplementationSpecSpec,
        memory::Memory,
    },
    labels,
    names::{DnsLabel, label_value},
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{
            Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
        },
        core::v1::{ConfigMap, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use self::{
    config::RuntimeConfig,
    env::Environment,
    files::{File, Store},
    pod::Parts,
    prompt::SystemPrompt,
    secrets::Secrets,
};
pub use self::{
    config::{RETRIES_MAX, attempts_allowed, log_retention_seconds, ttl_seconds},
    contract::contract_status,
    needs::{Needs, needs},
    paths::RUNNER,
    pod::{CONTAINER, INSTALL_CONTAINER},
    prompt::PromptSource,
    scheduling::counts_others,
    tool::{CONTAINER as TOOL_CONTAINER, ToolJobRequest, build as build_tool, check_tool, tool_attempts},
};
pub(crate) use self::{
    contract::Metadata,
    policy::{matches as matches_pattern, required_labels, secret_allowed, secret_blocked},
};
use crate::{
    decision::{PodFields, Rejection},
    settings::{JobController, NatsAuth, Settings},
    vcs::{REPOSITORY, VersionControl},
};

/// The most bytes of a whole Job. etcd takes 1.5 MiB, the API server adds to what it is given, and what is too large for
/// etcd is reported as an error of the server, as if it were worth trying again.
const JOB_MAX_BYTES: usize = 1024 * 1024;

/// Which Job of a run it is. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The step of the workflow, counted from one; 0 for a run that is none.
    pub step: u32,
    /// The attempt of that step, counted from one.
    pub attempt: u32,
}

/// The step of a workflow that a Job is made for.
#[derive(Clone, Copy, Debug)]
pub struct StepOfRun<'a> {
    pub name: &'a str,
    /// What the steps before it reported: `{"NAME": {"outputs": {…}}}`.
    pub earlier: &'a Value,
    /// How long the agent may take, where the step says so; 0 means no limit.
    pub timeout_seconds: Option<u32>,
}

/// Everything the Job of an attempt is made from.
#[derive(Clone, Copy, Debug)]
pub struct JobRequest<'a> {
    /// The run. For the step of a workflow: as if that step were all of it.
    pub run: &'a AgentRun,
    pub place: Place,
    /// The step, if the run is a workflow.
    pub step: Option<StepOfRun<'a>>,
    pub agent: &'a Agent,
    pub provider: &'a AgentProvider,
    pub implementation: &'a ImplementationSpecSpec,
    /// The name of the ImplementationSpec, where the run refers to one.
    pub implementation_ref: Option<&'a str>,
    pub memory: Option<&'a Memory>,
    /// The user and password for NATS, where the run may have them and they are there.
    pub nats_auth: Option<&'a NatsAuth>,
    /// The repository that the run works on, where it has one.
    pub vcs: Option<&'a VersionControl>,
    /// Hash of the run's spec, by which a Job is recognised as this run's own.
    pub spec_hash: &'a str,
    /// When the run was let in; stamped on the Job.
    pub admitted_at: Timestamp,
}

/// A Job, the ConfigMap it needs if its files are large, and what the run's status says about both.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltJob {
    pub job: Job,
    /// See [`NewJob`](crate::decision::NewJob).
    pub pod_fields: PodFields,
    pub config_map: Option<ConfigMap>,
    /// What the implementation asked the run to know; absent if it asked nothing.
    pub contract: Option<ContractStatus>,
    /// SHA-256 of the system prompt, if it stands in a spec and not in a Secret or a ConfigMap.
    pub system_prompt_hash: Option<String>,
    /// Where the system prompt is kept otherwise: the pod does not start before it is there.
    pub system_prompt_source: Option<PromptSource>,
}

/// Which run it is, as the agent is told.
#[derive(Clone, Copy, Debug, Serialize)]
struct Identity<'a> {
    name: &'a str,
    uid: &'a str,
    namespace: &'a str,
}

impl<'a> Identity<'a> {
    fn of(run: &'a impl Resource) -> Result<Self, Rejection> {
        let metadata = run.meta();
        let (Some(name), Some(uid), Some(namespace)) = (&metadata.name, &metadata.uid, &metadata.namespace)
        else {
            return Err(Rejection::new(
                Reason::SubmitFailed,
                "the run has no name, namespace or UID: it did not come from an API server",
            ));
        };
        Ok(Self { name, uid, namespace })
    }
}

/// The name of the Job of an attempt.
pub fn name(run: &str, place: Place) -> DnsLabel {
    let suffix = match place {
        Place { step: 0, attempt } => of_attempt("job", attempt),
        Place { step, attempt } => format!("step-{step}-attempt-{attempt}"),
    };
    DnsLabel::join(run, &suffix)
}

/// The name of the ConfigMap of an attempt, if it has one.
fn config_map_name(run: &str, place: Place) -> DnsLabel {
    DnsLabel::join(run, &of_place("spec", place))
}

/// The name of the Secret with the token of an attempt, if it has one.
pub(crate) fn token_name(run: &str, place: Place) -> DnsLabel {
    DnsLabel::join(run, &of_place("vcs-token", place))
}

fn of_place(suffix: &str, place: Place) -> String {
    match place {
        Place { step: 0, attempt } => of_attempt(suffix, attempt),
        Place { step, attempt } => format!("{suffix}-step-{step}-attempt-{attempt}"),
    }
}

fn of_attempt(suffix: &str, attempt: u32) -> String {
    if attempt <= 1 {
        suffix.to_owned()
    } else {
        format!("{suffix}-attempt-{attempt}")
    }
}

/// The user and password for NATS that the runs of this Agent may have, if there are any.
pub fn nats_auth<'a>(agent: &Agent, settings: &'a Settings) -> Option<&'a NatsAuth> {
    let nats = settings.runner.nats_auth.as_ref();
    nats.filter(|nats| policy::may_use_nats(agent, nats, &settings.policy))
}

/// Says what is wrong with a run by itself, before anything it refers to is known.
pub fn check_run(run: &AgentRun, settings: &Settings) -> Result<(), Rejection> {
    run_by_itself(run, settings).map(|_| ())
}

/// Says what is wrong with a run by itself, whatever executes it.
pub fn check_any_runtime(run: &AgentRun, settings: &Settings) -> Result<(), Rejection> {
    policy::parameters(&run.spec.parameters, "the implementation")?;
    policy::labels(run, &settings.policy)
}

/// Whether the run knows what the implementation asks for; `implementation_ref` is the name of the ImplementationSpec, where
/// there is one.
pub fn check_contract(
    run: &AgentRun,
    implementation: &ImplementationSpecSpec,
    implementation_ref: Option<&str>,
) -> Result<Option<ContractStatus>, Rejection> {
    let metadata = Metadata::new(&run.spec.parameters, implementation);
    contract::check(&metadata, &place_of(implementation_ref))
}

/// The repository that a run works on, in lower case: as its parameters name it, else what its implementation knows of it.
pub fn repository(run: &AgentRun, implementation: &ImplementationSpecSpec) -> Option<String> {
    let metadata = Metadata::new(&run.spec.parameters, implementation);
    metadata.get(REPOSITORY).map(str::to_lowercase)
}

/// The image and the configuration of a run, if it is well-formed and within the policy.
fn run_by_itself(run: &AgentRun, settings: &Settings) -> Result<(String, RuntimeConfig), Rejection> {
    check_any_runtime(run, settings)?;
    let image = policy::image(run, settings)?;
    let config = RuntimeConfig::of_run(run)?;
    privilege::check(&config, settings)?;
    Ok((image, config))
}

/// Says what its Agent does not allow a run, before the rest of what it refers to is known.
pub fn check_agent(run: &AgentRun, agent: &Agent, settings: &Settings) -> Result<(), Rejection> {
    if matches!(
        run.spec.runtime.type_,
        RuntimeType::Temporal | RuntimeType::Custom
    ) {
        // Without a pod there is neither an image nor a service account.
        return policy::secrets_allowed(run, agent, &RuntimeConfig::of_run(run)?);
    }
    let (_, config) = run_by_itself(run, settings)?;
    policy::secrets_allowed(run, agent, &config)?;
    policy::service_account(run, agent, &config, settings).map(|_| ())
}

/// Says which Secret a run that has no pod may not name to whoever does its work.
pub fn check_secrets_elsewhere(
    run: &AgentRun,
    agent: &Agent,
    memory: Option<&Memory>,
    settings: &Settings,
) -> Result<(), Rejection> {
    policy::secrets_blocked_elsewhere(run, memory, settings)?;
    policy::memory_secret(run, agent, memory)
}

/// `run.json` as a value: what a run is told that has no pod to find it in.
pub fn document(request: &JobRequest<'_>) -> Result<Value, Rejection> {
    let (run, agent) = (request.run, request.agent);
    let metadata = Metadata::new(&run.spec.parameters, request.implementation);
    let prompt = prompt_without_pod(run, agent)?;
    let text = documents::run_document(request, Identity::of(run)?, &metadata, prompt)?;
    serde_json::from_str(&text).map_err(|error| {
        Rejection::new(
            Reason::SubmitFailed,
            format!("run.json cannot be read again: {error}"),
        )
    })
}

/// The system prompt of a run that has no pod, if it has one.
pub fn system_prompt<'a>(run: &'a AgentRun, agent: &'a Agent) -> Result<Option<&'a str>, Rejection> {
    Ok(prompt_without_pod(run, agent)?.text())
}

/// The system prompt of a run that has no pod: one that only a pod could read is refused.
fn prompt_without_pod<'a>(run: &'a AgentRun, agent: &'a Agent) -> Result<SystemPrompt<'a>, Rejection> {
    let prompt = SystemPrompt::of(run, agent)?;
    if let Some(source) = prompt.source() {
        return Err(Rejection::new(
            Reason::InvalidSystemPromptRef,
            format!(
                "spec.systemPromptRef of the run or its Agent names {}, and a run of the runtime {} has no pod that could read \
                 it: use spec.systemPrompt",
                source.holder, run.spec.runtime.type_
            ),
        ));
    }
    Ok(prompt)
}

/// Makes the Job, or says what is wrong with what it is made from.
pub fn build(request: &JobRequest<'_>, settings: &Settings) -> Result<BuiltJob, Rejection> {
    let (run, agent) = (request.run, request.agent);
    let identity = Identity::of(run)?;
    let (image, config) = run_by_itself(run, settings)?;
    policy::secrets_allowed(run, agent, &config)?;
    let service_account = policy::service_account(run, agent, &config, settings)?;
    let metadata = Metadata::new(&run.spec.parameters, request.implementation);
    let contract = contract::check(&metadata, &place_of(request.implementation_ref))?;
    policy::secrets_blocked(run, request.memory, &config, settings)?;
    policy::auth_secret_allowed(run, agent, &settings.runner)?;
    policy::memory_secret(run, agent, request.memory)?;
    let prompt = SystemPrompt::of(run, agent)?;

    let context = documents::template_context(request, identity);
    let log_retention_seconds = config
        .log_retention_seconds
        .unwrap_or(settings.runner.log_retention_seconds);
    let auth = settings.runner.auth_secret.as_ref();
    let environment = Environment::of(request, &context, prompt, auth);
    let secrets = Secrets::of(request, environment.as_ref().ok(), auth);
    let files = files(
        request,
        documents::run_document(request, identity, &metadata, prompt)?,
        documents::runner_document(request, &context, log_retention_seconds, secrets)?,
    );
    let store = Store::of(&files)?;
    let config_map = config_map_name(identity.name, request.place);
    let parts = Parts {
        image,
        service_account,
        config: &config,
        prompt,
        vcs: request.vcs,
        environment: environment?,
        auth,
        files,
        store: &store,
        config_map: config_map.as_str(),
    };
    let (pod, pod_fields) = pod::spec(request, identity.name, parts, &settings.runner)?;
    let (annotations, config_map) = match store {
        Store::Annotations(annotations) => (Some(annotations), None),
        Store::ConfigMap(data) => {
            let metadata = object_metadata(request, identity, config_map);
            (None, Some(config_map_of(metadata, data)))
        }
    };
    let mut metadata = object_metadata(request, identity, name(identity.name, request.place));
    metadata.finalizers = finalizers(settings);
    let too_large =
        "shorten spec.envTemplate of the AgentProvider or spec.env of the Agent, and let the agent";
    Ok(BuiltJob {
        job: bounded(
            job(metadata, annotations, pod, left_to(&pod_fields, settings)),
            too_large,
        )?,
        pod_fields,
        config_map,
        contract,
        system_prompt_hash: prompt.hash(),
        system_prompt_source: prompt.source(),
    })
}

/// What holds a Job until its end is recorded.
fn finalizers(settings: &Settings) -> Option<Vec<String>> {
    let held = settings.safeguards.job_finalizer;
    held.then(|| vec![labels::JOB_STATUS_FINALIZER.to_owned()])
}

/// Who looks after a Job, if it is not the Job controller of Kubernetes. We make a pod from what we can read of its Job, so that a
/// Job with fields that our types do not know is left to Kubernetes.
fn left_to(fields: &PodFields, settings: &Settings) -> Option<String> {
    match settings.runner.job_controller {
        JobController::Jangar if fields.is_empty() => Some(labels::JOB_CONTROLLER.to_owned()),
        JobController::Jangar | JobController::Kubernetes => None,
    }
}

/// Where the implementation stands, for messages.
fn place_of(implementation_ref: Option<&str>) -> String {
    match implementation_ref {
        Some(name) => format!("ImplementationSpec {name:?} spec"),
        None => "spec.implementation.inline".to_owned(),
    }
}

/// The two documents and the files of the provider.
fn files(request: &JobRequest<'_>, run_document: String, runner_document: String) -> Vec<File> {
    let document = |item: &str, path: &str, content: String| File {
        item: item.to_owned(),
        path: path.to_owned(),
        content,
        origin: item.to_owned(),
    };
    let provider = documents::provider_name(request);
    let inputs = documents::input_files(request.provider).map(|(index, path, content)| File {
        item: format!("input-{index}"),
        path: path.to_owned(),
        content: content.to_owned(),
        origin: format!("AgentProvider {provider:?} spec.inputFiles[{index}]"),
    });
    [
        document("run.json", paths::RUN_DOCUMENT, run_document),
        document("agent-runner.json", paths::RUNNER_DOCUMENT, runner_document),
    ]
    .into_iter()
    .chain(inputs)
    .collect()
}

/// What the Job and its ConfigMap say of themselves. The run owns both.
fn object_metadata(request: &JobRequest<'_>, run: Identity<'_>, name: DnsLabel) -> ObjectMeta {
    let annotations = [
        (labels::SPEC_HASH, request.spec_hash.to_owned()),
        (labels::ADMITTED_AT, request.admitted_at.to_string()),
        (labels::ATTEMPT, request.place.attempt.to_string()),
    ];
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(run.namespace.to_owned()),
        labels: Some(object_labels(request, run)),
        annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
        owner_references: Some(vec![owned_by(request.run)]),
        ..Default::default()
    }
}

/// What an object says that belongs to a run.
pub(crate) fn owned_by<R: Resource<DynamicType = ()>>(run: &R) -> OwnerReference {
    let metadata = run.meta();
    OwnerReference {
        api_version: R::api_version(&()).into_owned(),
        kind: R::kind(&()).into_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The labels of the Job, its pod and its ConfigMap.
fn object_labels(request: &JobRequest<'_>, run: Identity<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        // As it is, so that it can be selected by. The API server holds names of runs to what a label may be.
        (labels::AGENT_RUN.to_owned(), run.name.to_owned()),
        (
            labels::AGENT.to_owned(),
            label_value(&request.run.spec.agent_ref.name),
        ),
        (
            labels::PROVIDER.to_owned(),
            label_value(documents::provider_name(request)),
        ),
    ]);
    if let Some(implementation) = request.implementation_ref {
        labels.insert(labels::IMPLEMENTATION.to_owned(), label_value(implementation));
    }
    if let Some(step) = &request.step {
        labels.insert(labels::STEP.to_owned(), label_value(step.name));
        labels.insert(labels::STEP_INDEX.to_owned(), request.place.step.to_string());
    }
    labels
}

fn config_map_of(metadata: ObjectMeta, data: BTreeMap<String, String>) -> ConfigMap {
    ConfigMap {
        metadata,
        data: Some(data),
        // It belongs to one attempt, and nodes need not watch what cannot change.
        immutable: Some(true),
        binary_data: None,
    }
}

/// The Job around a pod. It runs its pod once and never again: further attempts are Jobs of their own. It has no TTL,
/// because it must not vanish before its end is recorded.
fn job(
    metadata: ObjectMeta,
    annotations: Option<BTreeMap<String, String>>,
    pod: PodSpec,
    managed_by: Option<String>,
) -> Job {
    let disrupted = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: None,
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".to_owned(),
            status: Some("True".to_owned()),
        }]),
    };
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: metadata.labels.clone(),
            annotations,
            ..Default::default()
        }),
        spec: Some(pod),
    };
    Job {
        metadata,
        spec: Some(JobSpec {
            parallelism: Some(1),
            completions: Some(1),
            backoff_limit: Some(0),
            // A pod that is being deleted is still running: two at once would be the step done twice.
            pod_replacement_policy: Some("Failed".to_owned()),
            // The evidence of an eviction stays on the Job.
            pod_failure_policy: Some(PodFailurePolicy {
                rules: vec![disrupted],
            }),
            template,
            managed_by,
            ..Default::default()
        }),
        status: None,
    }
}

/// Refuses a Job that the API server could not store.
fn bounded(job: Job, remedy: &str) -> Result<Job, Rejection> {
    let bytes = serde_json::to_vec(&job).map(|json| json.len()).map_err(|error| {
        Rejection::new(
            Reason::SubmitFailed,
            format!("the Job cannot be written as JSON: {error}"),
        )
    })?;
    if bytes > JOB_MAX_BYTES {
        return Err(Rejection::new(
            Reason::InputsTooLarge,
            format!(
                "the Job would have {bytes} bytes, and {JOB_MAX_BYTES} are allowed: {remedy} read large values from {}",
                paths::RUN_DOCUMENT
            ),
        ));
    }
    Ok(job)
}
