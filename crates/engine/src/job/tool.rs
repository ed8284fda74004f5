//! The Job of a ToolRun: one container, which starts the program of the Tool.
//!
//! It is made like that of an AgentRun as far as pods are concerned: where it may run, what it may do, which images, Secrets and
//! service accounts it may have. There is no agent-runner in it: a tool is a program of any image, and all it is told is
//! `run.json`, its parameters, and what its Tool says.

use std::{collections::BTreeMap, time::Duration};

use jangar_api::{
    labels,
    reason::Reason,
    tools::{Tool, ToolRun, ToolSpec},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Container, EnvVar, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{
    Identity, Place, bounded,
    config::{self, RuntimeConfig},
    config_map_name, config_map_of,
    documents::POD_GRACE_SECONDS,
    env,
    files::{File, Store},
    finalizers, job, left_to, name, owned_by,
    paths::{self, VolumeNames},
    pod, policy,
    policy::{SecretUse, present},
    privilege, scheduling,
    volumes::{self, Below, Layout},
};
use crate::{
    decision::{NewJob, PodFields, Rejection},
    settings::{PolicySettings, Settings},
    template,
};

/// Name of the container that runs the tool.
pub const CONTAINER: &str = "tool-runner";
/// Where the tool finds the path of `run.json`.
const SPEC_VARIABLE: &str = "TOOL_RUN_SPEC";
/// Programs look for their user's files there, and the image most often does not know the user.
const HOME: &str = "HOME";

/// Everything that the Job of an attempt is made from.
#[derive(Clone, Copy, Debug)]
pub struct ToolJobRequest<'a> {
    pub run: &'a ToolRun,
    pub tool: &'a Tool,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// Hash of the run's spec, by which a Job is recognised as this run's own.
    pub spec_hash: &'a str,
    /// When the Job is made; stamped on it.
    pub at: Timestamp,
}

/// How many attempts a run has: one, and as many more as `spec.runtime.config.backoffLimit` says.
pub fn tool_attempts(run: &ToolRun) -> Result<u32, Rejection> {
    let retries = config_of(run)?.backoff_limit.unwrap_or(0);
    config::attempts(retries, "spec.runtime.config.backoffLimit")
}

/// Says what the operator does not allow a Tool. `of` says in messages whose fields are meant, where that has to be said.
pub fn check_tool(spec: &ToolSpec, of: &str, policy: &PolicySettings) -> Vec<Rejection> {
    let image = spec.image.as_deref().and_then(present);
    let image = image.map(|image| policy::image_allowed(image, &format!("spec.image{of}"), policy));
    let account = spec.service_account.as_deref().and_then(present);
    let account = privilege::service_account(&format!("spec.serviceAccount{of}"), account, policy);
    let secrets = spec.secrets.iter().enumerate();
    let secrets = secrets.map(|(index, name)| {
        policy::secret_blocked(&format!("spec.secrets[{index}]{of}"), name.trim(), policy)
    });
    let checks = image.into_iter().chain([account]).chain(secrets);
    checks.filter_map(Result::err).collect()
}

/// Makes the Job, and the ConfigMap that it needs if its files are large; or says what is wrong with what it is made from.
pub fn build(
    request: &ToolJobRequest<'_>,
    settings: &Settings,
) -> Result<(NewJob, Option<ConfigMap>), Rejection> {
    let (run, tool) = (request.run, request.tool);
    let identity = Identity::of(run)?;
    let place = Place {
        step: 0,
        attempt: request.attempt,
    };
    policy::parameters(&run.spec.parameters, "a ConfigMap or the image")?;
    policy::labels(run, &settings.policy)?;
    let config = config_of(run)?;
    privilege::check(&config, settings)?;
    if let Some(name) = privilege::unasked_account(&config, &settings.policy, &settings.runner) {
        return Err(Rejection::new(
            Reason::ServiceAccountNotAllowed,
            format!(
                "spec.runtime.config.serviceAccount is {name:?}, and runs of tools may choose none: leave it out, name it in \
                 spec.serviceAccount of the Tool, or have it added to JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED"
            ),
        ));
    }
    let of = format!(" of Tool {}", tool.name_any());
    if let Some(forbidden) = check_tool(&tool.spec, &of, &settings.policy).into_iter().next() {
        return Err(forbidden);
    }
    for SecretUse { field, name } in policy::for_pulling(&config) {
        policy::secret_blocked(&field, name, &settings.policy)?;
    }
    let context = context(request, identity);
    let files = vec![run_document(&context)?];
    let store = Store::of(&files)?;
    let config_map = config_map_name(identity.name, place);
    let parts = Parts {
        config: &config,
        context: &context,
        of: &of,
        files: &files,
        store: &store,
        config_map: config_map.as_str(),
    };
    let (pod, pod_fields) = spec(request, identity, &parts, settings)?;
    let metadata = |name| metadata(request, identity, name, &config, settings);
    let (annotations, config_map) = match store {
        Store::Annotations(annotations) => (Some(annotations), None),
        Store::ConfigMap(data) => (None, Some(config_map_of(metadata(config_map)?, data))),
    };
    let mut metadata = metadata(name(identity.name, place))?;
    metadata.finalizers = finalizers(settings);
    let too_large = "shorten spec.env or spec.args of the Tool, and let the program";
    let new = NewJob {
        job: bounded(
            job(metadata, annotations, pod, left_to(&pod_fields, settings)),
            too_large,
        )?,
        pod_fields,
    };
    Ok((new, config_map))
}

/// What the run says about its Job. `spec.runtime` has any keys; what is read of it is what an AgentRun has there.
fn config_of(run: &ToolRun) -> Result<RuntimeConfig, Rejection> {
    let config: Option<&Map<String, Value>> = match &run.spec.runtime {
        None => None,
        Some(runtime) => match runtime.0.get("config") {
            None | Some(Value::Null) => None,
            Some(Value::Object(config)) => Some(config),
            Some(_) => {
                return Err(Rejection::new(
                    Reason::InvalidRuntimeConfig,
                    "spec.runtime.config is no object: write its settings by their names, or leave it out",
                ));
            }
        },
    };
    RuntimeConfig::read(config)
}

/// What templates refer to and `run.json` holds.
fn context(request: &ToolJobRequest<'_>, identity: Identity<'_>) -> Value {
    let spec = &request.tool.spec;
    json!({
        "toolRun": identity,
        "tool": {"name": request.tool.name_any(), "image": spec.image, "workingDir": spec.working_dir},
        "parameters": request.run.spec.parameters,
    })
}

fn run_document(context: &Value) -> Result<File, Rejection> {
    let content = serde_json::to_string_pretty(context).map_err(|error| {
        let message = format!("run.json cannot be written: {error}");
        Rejection::new(Reason::SubmitFailed, message)
    })?;
    Ok(File {
        item: "run.json".to_owned(),
        path: paths::RUN_DOCUMENT.to_owned(),
        content,
        origin: "run.json".to_owned(),
    })
}

/// What the pod is made of beside the request.
struct Parts<'a> {
    config: &'a RuntimeConfig,
    context: &'a Value,
    /// Whose fields are meant, for messages.
    of: &'a str,
    files: &'a [File],
    store: &'a Store,
    /// Name of the ConfigMap with the files, if they are in one.
    config_map: &'a str,
}

fn spec(
    request: &ToolJobRequest<'_>,
    run: Identity<'_>,
    parts: &Parts<'_>,
    settings: &Settings,
) -> Result<(PodSpec, PodFields), Rejection> {
    let Parts { config, .. } = parts;
    let runner = &settings.runner;
    let mut fields = PodFields::new();
    let names = VolumeNames::of(run.name);
    let mut layout = Layout::default();
    layout.directory(&names.workspace, paths::WORKSPACE, &[])?;
    layout.volume(parts.store.volume(&names.files, parts.config_map, parts.files));
    for file in parts.files {
        let mount = volumes::file_mount(&names.files, &file.item, &file.path);
        layout.mount(mount, Below::Nothing, &file.origin, "")?;
    }
    let (volumes, mounts) = layout.finish();
    let account = config.service_account.clone().or_else(|| {
        let of_tool = request.tool.spec.service_account.as_deref();
        of_tool.and_then(present).map(str::to_owned)
    });
    let mut main = container(request, parts)?;
    main.volume_mounts = Some(mounts);
    let pod = PodSpec {
        containers: vec![main],
        volumes: Some(volumes),
        restart_policy: Some("Never".to_owned()),
        // A token is a key to the cluster: only those who asked for an account get one.
        automount_service_account_token: account.is_none().then_some(false),
        service_account_name: account,
        image_pull_secrets: pod::pull_secrets(config, runner),
        security_context: pod::pod_security_context(config, runner, &mut fields),
        termination_grace_period_seconds: Some(i64::from(POD_GRACE_SECONDS)),
        // Otherwise the name of any Service in the namespace becomes variables of the tool.
        enable_service_links: Some(false),
        ..Default::default()
    };
    let pod = scheduling::place(pod, config, runner, labels::TOOL_RUN, &mut fields);
    Ok((pod, fields))
}

fn container(request: &ToolJobRequest<'_>, parts: &Parts<'_>) -> Result<Container, Rejection> {
    let spec = &request.tool.spec;
    let texts = |field: &str, texts: &[String]| -> Result<Option<Vec<String>>, Rejection> {
        let texts = texts.iter().enumerate();
        let texts = texts.map(|(index, text)| rendered(text, &format!("{field}[{index}]"), parts));
        let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
        Ok((!texts.is_empty()).then_some(texts))
    };
    let secrets = spec.secrets.iter().filter_map(|name| present(name));
    let env_from = env::from_secrets(secrets);
    let working_dir = spec.working_dir.as_deref().and_then(present);
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: spec.image.as_deref().and_then(present).map(str::to_owned),
        command: texts("command", &spec.command)?,
        args: texts("args", &spec.args)?,
        working_dir: Some(working_dir.unwrap_or(paths::WORKSPACE).to_owned()),
        env: Some(environment(spec, parts)?),
        env_from: (!env_from.is_empty()).then_some(env_from),
        resources: spec.resources.as_ref().map(pod::resources),
        security_context: Some(pod::restricted_container()),
        // Whoever asks why a tool failed that wrote nothing gets the end of its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Default::default()
    })
}

fn environment(spec: &ToolSpec, parts: &Parts<'_>) -> Result<Vec<EnvVar>, Rejection> {
    let own = spec.env.iter().enumerate().map(|(index, variable)| {
        let value = rendered(&variable.value, &format!("env[{index}].value"), parts)?;
        Ok(env::variable(variable.name.trim(), value))
    });
    let own: Vec<EnvVar> = own.collect::<Result<_, Rejection>>()?;
    let has_home = own.iter().any(|variable| variable.name == HOME);
    let home = (!has_home).then(|| env::variable(HOME, paths::WORKSPACE));
    // Kubernetes lets the last one of a name win, so that ours comes last.
    let document = env::variable(SPEC_VARIABLE, paths::RUN_DOCUMENT);
    Ok(home.into_iter().chain(own).chain([document]).collect())
}

/// Renders a template of the Tool. A value that is missing is an error: a program would otherwise go on with nothing.
fn rendered(text: &str, field: &str, parts: &Parts<'_>) -> Result<String, Rejection> {
    let of = parts.of;
    let wrong = |problem: String| Rejection::new(Reason::InvalidTemplate, problem);
    let told = |error: template::TemplateError| wrong(format!("spec.{field}{of}: {error}"));
    for path in template::paths(text).map_err(told)? {
        if template::lookup(parts.context, path).is_none() {
            let remedy = match path.strip_prefix("parameters.") {
                Some(key) => format!("set spec.parameters.{key} of the run, or take the reference out"),
                None => "take the reference out".to_owned(),
            };
            return Err(wrong(format!(
                "spec.{field}{of} refers to {path}, which has no value: {remedy}"
            )));
        }
    }
    let pieces = template::pieces(text, parts.context).map_err(told)?;
    Ok(env::joined(&pieces))
}

/// What the Job and its ConfigMap say of themselves. The run owns both.
fn metadata(
    request: &ToolJobRequest<'_>,
    run: Identity<'_>,
    name: jangar_api::names::DnsLabel,
    config: &RuntimeConfig,
    settings: &Settings,
) -> Result<ObjectMeta, Rejection> {
    let spec = &request.tool.spec;
    let ttl = config
        .ttl_seconds_after_finished
        .or_else(|| spec.ttl_seconds_after_finished.map(config::not_negative))
        .or(settings.runner.job_ttl_seconds);
    let ttl = config::bounded_ttl(ttl).unwrap_or(0);
    let timeout = spec.timeout_seconds.map(config::not_negative);
    let timeout = timeout.filter(|seconds| *seconds > 0);
    let annotations = [
        (labels::SPEC_HASH, Some(request.spec_hash.to_owned())),
        (labels::ADMITTED_AT, Some(request.at.to_string())),
        (labels::ATTEMPT, Some(request.attempt.to_string())),
        (labels::ATTEMPTS, Some(tool_attempts(request.run)?.to_string())),
        (
            labels::TIMEOUT_SECONDS,
            timeout.map(|seconds| seconds.to_string()),
        ),
        (labels::TTL_SECONDS, Some(ttl.to_string())),
    ];
    let annotations: BTreeMap<String, String> = annotations
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect();
    Ok(ObjectMeta {
        name: Some(name.into()),
        namespace: Some(run.namespace.to_owned()),
        labels: Some(BTreeMap::from([(
            labels::TOOL_RUN.to_owned(),
            // As it is, so that it can be selected by. The API server holds names of runs to what a label may be.
            run.name.to_owned(),
        )])),
        annotations: Some(annotations),
        owner_references: Some(vec![owned_by(request.run)]),
        ..Default::default()
    })
}

/// How long the tool of a Job may take, as it was made for.
pub(crate) fn timeout_of(job: &k8s_openapi::api::batch::v1::Job) -> Option<Duration> {
    number_in(job, labels::TIMEOUT_SECONDS).map(|seconds| Duration::from_secs(seconds.into()))
}

/// A number that stands in an annotation of a Job.
pub(crate) fn number_in(job: &k8s_openapi::api::batch::v1::Job, annotation: &str) -> Option<u32> {
    job.annotations().get(annotation)?.parse().ok()
}
