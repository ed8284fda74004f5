//! Submitting: one line on a terminal becomes one run, however often it is given.

use jangar_api::{
    Kind,
    agents::agent_run::{RuntimeType, VcsMode},
    labels,
    names::{DnsLabel, label_value},
};
use serde_json::{Map, Value, json};

use super::made;
use crate::{
    cli::{Pair, SubmitArgs},
    error::Error,
    manifest,
    nearest::nearest,
    output,
    session::Session,
    transport::{Submission, Submitted, Transport},
};

/// What a run is made of.
struct Subject {
    /// The kind of the run.
    kind: Kind,
    /// The kind of what it runs.
    of: Kind,
    name: String,
}

impl Subject {
    fn of(arguments: &SubmitArgs) -> Result<Self, Error> {
        let subject = |kind, of, name: &String| Self {
            kind,
            of,
            name: name.clone(),
        };
        match (&arguments.agent, &arguments.orchestration, &arguments.tool) {
            (Some(name), _, _) => Ok(subject(Kind::AgentRun, Kind::Agent, name)),
            (None, Some(name), _) => Ok(subject(Kind::OrchestrationRun, Kind::Orchestration, name)),
            (None, None, Some(name)) => Ok(subject(Kind::ToolRun, Kind::Tool, name)),
            (None, None, None) => Err(Error::Validation(
                "say what is to be run: --agent NAME, --orchestration NAME or --tool NAME".to_owned(),
            )),
        }
    }
}

pub(super) async fn submit(session: &mut Session, arguments: &SubmitArgs) -> Result<(), Error> {
    let subject = Subject::of(arguments)?;
    let key = arguments
        .idempotency_key
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if key.trim().is_empty() {
        return Err(Error::Validation(
            "--idempotency-key is empty: give a word, or leave it out".to_owned(),
        ));
    }
    let spec = spec(&subject, arguments, &key)?;
    if arguments.dry_run {
        let namespace = session.namespace();
        let object = manifest_of(&subject, arguments, &namespace, &key, &spec);
        let format = session.format();
        if output::is_for_programs(&format) {
            return output::value(session, &object);
        }
        let text = output::yaml(&object)?;
        return session.console.data(&text);
    }
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let object = manifest_of(&subject, arguments, &namespace, &key, &spec);
    references_exist(&transport, &namespace, &subject, arguments).await?;
    let submission = Submission {
        kind: subject.kind,
        namespace: &namespace,
        subject: &subject.name,
        key: &key,
        object: &object,
        is_own: arguments.name.is_some() || !arguments.labels.is_empty(),
        budget: arguments.budget.as_deref(),
        secret_binding: arguments.secret_binding.as_deref(),
    };
    let (run, what) = match transport.submit(&submission).await? {
        Submitted::Created(run) => (run, "created"),
        Submitted::Before(run) => (run, "was submitted before with this key"),
    };
    made(session, &transport, subject.kind, run, what, &arguments.following).await
}

fn manifest_of(subject: &Subject, arguments: &SubmitArgs, namespace: &str, key: &str, spec: &Value) -> Value {
    let info = subject.kind.info();
    let name = arguments
        .name
        .clone()
        .unwrap_or_else(|| DnsLabel::submission(namespace, &subject.name, key).into());
    let mut all_labels = strings(&arguments.labels);
    all_labels.insert(labels::DELIVERY_ID.to_owned(), Value::String(label_value(key)));
    json!({
        "apiVersion": format!("{}/{}", info.group, info.version),
        "kind": info.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": all_labels},
        "spec": spec,
    })
}

fn spec(subject: &Subject, arguments: &SubmitArgs, key: &str) -> Result<Value, Error> {
    let mut spec = Map::new();
    spec.insert(Submission::key_field(subject.kind).to_owned(), json!(key));
    if !arguments.param.is_empty() {
        spec.insert("parameters".to_owned(), Value::Object(strings(&arguments.param)));
    }
    match subject.kind {
        Kind::OrchestrationRun => {
            refuse_agent_flags(arguments, "--orchestration")?;
            spec.insert("orchestrationRef".to_owned(), json!({"name": subject.name}));
        }
        Kind::ToolRun => {
            refuse_agent_flags(arguments, "--tool")?;
            spec.insert("toolRef".to_owned(), json!({"name": subject.name}));
        }
        _ => agent_spec(&mut spec, subject, arguments)?,
    }
    Ok(Value::Object(spec))
}

/// Flags that only a run of an agent has are not silently dropped.
fn refuse_agent_flags(arguments: &SubmitArgs, flag: &str) -> Result<(), Error> {
    let given = [
        ("--impl", arguments.implementation.is_some()),
        ("--text", arguments.text.is_some()),
        ("--runtime-config", !arguments.runtime_config.is_empty()),
        ("--workload-image", arguments.workload_image.is_some()),
        ("--cpu", arguments.cpu.is_some()),
        ("--memory", arguments.memory.is_some()),
        ("--memory-ref", arguments.memory_ref.is_some()),
        ("--vcs", arguments.vcs.is_some()),
        ("--vcs-mode", arguments.vcs_mode.is_some()),
        ("--vcs-required", arguments.vcs_required),
        ("--secret", !arguments.secrets.is_empty()),
        ("--priority", arguments.priority.is_some()),
        ("--secret-binding", arguments.secret_binding.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Error::Validation(format!(
            "{name} is for runs of agents, and does nothing with {flag}: leave it out"
        ))),
        None => Ok(()),
    }
}

fn agent_spec(spec: &mut Map<String, Value>, subject: &Subject, arguments: &SubmitArgs) -> Result<(), Error> {
    let mut set = |key: &str, value: Value| {
        spec.insert(key.to_owned(), value);
    };
    set("agentRef", json!({"name": subject.name}));
    match (&arguments.implementation, &arguments.text) {
        (Some(name), _) => set("implementationSpecRef", json!({"name": name})),
        (None, Some(text)) => {
            let text = manifest::text_argument(text)?;
            set("implementation", json!({"inline": {"text": text}}));
        }
        (None, None) => {
            return Err(Error::Validation(
                "say what is to be done: --impl NAME, or --text TEXT".to_owned(),
            ));
        }
    }
    set("runtime", runtime(arguments)?);
    if arguments.runtime == RuntimeType::Workflow.as_str() {
        let stage = arguments.param.iter().find(|(key, _)| key == "stage");
        let stage = stage.map_or("implement", |(_, value)| value.as_str());
        set("workflow", json!({"steps": [{"name": stage}]}));
    }
    if let Some(workload) = workload(arguments) {
        set("workload", workload);
    }
    if !arguments.secrets.is_empty() {
        set("secrets", json!(arguments.secrets));
    }
    if let Some(priority) = arguments.priority {
        set("priority", json!(priority));
    }
    if let Some(name) = &arguments.memory_ref {
        set("memoryRef", json!({"name": name}));
    }
    if let Some(name) = &arguments.vcs {
        set("vcsRef", json!({"name": name}));
    }
    if arguments.vcs_mode.is_some() || arguments.vcs_required {
        let mut policy = Map::new();
        if let Some(mode) = &arguments.vcs_mode {
            one_of("--vcs-mode", mode, VcsMode::KNOWN.iter().map(VcsMode::as_str))?;
            policy.insert("mode".to_owned(), json!(mode));
        }
        if arguments.vcs_required {
            policy.insert("required".to_owned(), json!(true));
        }
        set("vcsPolicy", Value::Object(policy));
    }
    Ok(())
}

fn runtime(arguments: &SubmitArgs) -> Result<Value, Error> {
    one_of(
        "--runtime",
        &arguments.runtime,
        RuntimeType::KNOWN.iter().map(RuntimeType::as_str),
    )?;
    let mut runtime = json!({"type": arguments.runtime});
    if !arguments.runtime_config.is_empty() {
        let config: Map<String, Value> = arguments
            .runtime_config
            .iter()
            .map(|(key, value)| (key.clone(), json_or_text(value)))
            .collect();
        if let Some(map) = runtime.as_object_mut() {
            map.insert("config".to_owned(), Value::Object(config));
        }
    }
    Ok(runtime)
}

/// Lists and objects have to be expressible; whatever is no JSON is a text.
fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn workload(arguments: &SubmitArgs) -> Option<Value> {
    let mut workload = Map::new();
    if let Some(image) = &arguments.workload_image {
        workload.insert("image".to_owned(), json!(image));
    }
    let quantities: Map<String, Value> = [("cpu", &arguments.cpu), ("memory", &arguments.memory)]
        .into_iter()
        .filter_map(|(name, quantity)| Some((name.to_owned(), json!(quantity.as_ref()?))))
        .collect();
    if !quantities.is_empty() {
        workload.insert(
            "resources".to_owned(),
            json!({"requests": quantities, "limits": quantities}),
        );
    }
    (!workload.is_empty()).then_some(Value::Object(workload))
}

fn one_of<'w>(flag: &str, word: &str, known: impl Iterator<Item = &'w str>) -> Result<(), Error> {
    let known: Vec<&str> = known.collect();
    if known.contains(&word) {
        return Ok(());
    }
    Err(Error::Validation(format!(
        "{flag} is '{word}': give one of {}",
        known.join(", ")
    )))
}

fn strings(pairs: &[Pair]) -> Map<String, Value> {
    pairs
        .iter()
        .map(|(key, value)| (key.clone(), Value::String(value.clone())))
        .collect()
}

/// A name that was mistyped would make a run that waits and then fails. Who may not look goes on without.
async fn references_exist(
    transport: &Transport,
    namespace: &str,
    subject: &Subject,
    arguments: &SubmitArgs,
) -> Result<(), Error> {
    let mut wanted = vec![(subject.of, subject.name.as_str())];
    wanted.extend(
        arguments
            .implementation
            .as_deref()
            .map(|name| (Kind::ImplementationSpec, name)),
    );
    for (kind, name) in wanted {
        match transport.find(kind, namespace, name).await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(missing(transport, namespace, kind, name).await),
            Err(error) if error.is_forbidden() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn missing(transport: &Transport, namespace: &str, kind: Kind, name: &str) -> Error {
    let objects = transport
        .list(kind, Some(namespace), None)
        .await
        .unwrap_or_default();
    let info = kind.info();
    let hint = match nearest(name, objects.iter().map(crate::object::Object::name)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("`agentctl list {} -n {namespace}` shows them", info.plural),
    };
    Error::Validation(format!(
        "there is no {} {name} in namespace {namespace}: {hint}",
        info.kind
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_runtime_may_be_a_list() {
        assert_eq!(json_or_text("[1]"), json!([1]));
        assert_eq!(json_or_text("builder"), json!("builder"));
        assert_eq!(json_or_text("3"), json!(3));
        assert_eq!(json_or_text("{broken"), json!("{broken"));
    }
}
