//! `retry` and `resubmit`: the work of a run again, as a new run. What a run was and came to stays as it is.

use jangar_api::{Kind, labels, names::DnsLabel};
use serde_json::{Map, Value, json};

use super::made;
use crate::{
    cli::ResubmitArgs,
    error::Error,
    object::Object,
    resource::{self, word},
    session::Session,
    transport::Transport,
};

/// How often the work of one run is done again by this command. Whoever needs more gives names.
const NUMBER_MAX: u32 = 100;
/// What belongs to the one run and not to its work.
const NOT_COPIED: &[&str] = &[
    "cancel",
    "desiredState",
    "cancelReason",
    "idempotencyKey",
    "deliveryId",
];

/// Where parameters stand, as JSON pointers name it.
const PARAMETERS: &str = "/spec/parameters/";

/// Does the work of a run again that failed or was cancelled. Asking twice makes one run: as long as the first retry has not ended,
/// it is that one.
pub async fn retry(session: &mut Session, arguments: &ResubmitArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let (kind, object) = resource::run(session, &transport, &arguments.what).await?;
    let (name, word) = (object.name(), word(kind));
    let namespace = object.namespace();
    match object.phase() {
        "Failed" | "Cancelled" => {}
        "Succeeded" => {
            return Err(Error::Validation(format!(
                "{word} {name} has succeeded: to do its work again, agentctl resubmit {word} {name} -n {namespace}"
            )));
        }
        phase => {
            return Err(Error::Validation(format!(
                "{word} {name} has not ended ({phase}): wait for it, or agentctl cancel {word} {name} -n {namespace}"
            )));
        }
    }
    again(session, &transport, kind, &object, arguments, "retry").await
}

/// Does the work of any run again.
pub async fn resubmit(session: &mut Session, arguments: &ResubmitArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let (kind, object) = resource::run(session, &transport, &arguments.what).await?;
    again(session, &transport, kind, &object, arguments, "again").await
}

async fn again(
    session: &mut Session,
    transport: &Transport,
    kind: Kind,
    object: &Object,
    arguments: &ResubmitArgs,
    suffix: &str,
) -> Result<(), Error> {
    as_it_was(object, arguments)?;
    let namespace = object.namespace().to_owned();
    let what = format!("created, for the work of {}", object.name());
    if let Some(name) = &arguments.name {
        let new = renewed(object, name, arguments);
        return match transport.create(kind, &namespace, &new).await? {
            Some(run) => made(session, transport, kind, run, &what, &arguments.following).await,
            None => Err(Error::Validation(format!(
                "there is a {} called {name} already: give another --name",
                kind.info().kind
            ))),
        };
    }
    let root = root(object.name());
    for number in 1..=NUMBER_MAX {
        let name = String::from(DnsLabel::join(root, &format!("{suffix}-{number}")));
        let new = renewed(object, &name, arguments);
        if let Some(run) = transport.create(kind, &namespace, &new).await? {
            return made(session, transport, kind, run, &what, &arguments.following).await;
        }
        let known = transport.find(kind, &namespace, &name).await?;
        let under_way =
            known.filter(|known| suffix == "retry" && !known.has_ended() && is_of(known, object.name()));
        if let Some(known) = under_way {
            let what = format!("does the work of {} already", object.name());
            return made(session, transport, kind, known, &what, &arguments.following).await;
        }
    }
    Err(Error::Validation(format!(
        "the work of {root} was done again {NUMBER_MAX} times: give the next run a --name"
    )))
}

/// Refuses the work of a run that is gone if what was kept of it is not what it was: a secret that was left out, or the beginning of
/// a long text, would be taken for the real thing. What `--param` gives anew is as good as kept.
fn as_it_was(object: &Object, arguments: &ResubmitArgs) -> Result<(), Error> {
    let Some(remembered) = object.remembered() else {
        return Ok(());
    };
    let (name, kind) = (object.name(), word(resource::kind(object.kind())?));
    let spec = object.value().get("spec").and_then(Value::as_object);
    if remembered.cut && spec.is_none_or(Map::is_empty) {
        return Err(Error::Validation(format!(
            "{kind} {name} is gone from the cluster, and what it had to do was too long to be kept: submit the work anew"
        )));
    }
    let given: Vec<String> = arguments
        .param
        .iter()
        .map(|(key, _)| format!("{PARAMETERS}{}", pointer_part(key)))
        .collect();
    let lacking: Vec<&str> = remembered
        .altered
        .iter()
        .map(String::as_str)
        .filter(|pointer| !given.iter().any(|given| given == pointer) && is_copied(pointer))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let fields: Vec<String> = lacking.iter().map(|pointer| field(pointer)).collect();
    let remedy = if lacking.iter().all(|pointer| pointer.starts_with(PARAMETERS)) {
        "give each with --param KEY=VALUE"
    } else {
        "submit the work anew, and refer to Secrets by their names"
    };
    Err(Error::Validation(format!(
        "{kind} {name} is gone from the cluster, and the history has not the whole of it: {} {} a secret, or too long to be kept; \
         {remedy}",
        fields.join(", "),
        if fields.len() == 1 { "was" } else { "were" },
    )))
}

/// A key as a part of a JSON pointer.
fn pointer_part(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Whether a value is part of the new run.
fn is_copied(pointer: &str) -> bool {
    let first = pointer
        .strip_prefix("/spec/")
        .and_then(|rest| rest.split('/').next());
    first.is_none_or(|first| !NOT_COPIED.contains(&first))
}

/// A JSON pointer as people write fields.
fn field(pointer: &str) -> String {
    let parts: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    parts.join(".")
}

/// The name that numbers are added to: a retry of a retry is the next retry of the first run.
fn root(name: &str) -> &str {
    for suffix in ["-retry-", "-again-"] {
        if let Some((root, number)) = name.rsplit_once(suffix)
            && !root.is_empty()
            && number.parse::<u32>().is_ok()
        {
            return root;
        }
    }
    name
}

fn is_of(run: &Object, name: &str) -> bool {
    let annotations = run
        .value()
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    let of = annotations.and_then(|annotations| annotations.get(labels::RETRY_OF)?.as_str());
    of == Some(name)
}

/// A new run with the same work.
fn renewed(object: &Object, name: &str, arguments: &ResubmitArgs) -> Value {
    let mut spec: Map<String, Value> = object
        .value()
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for key in NOT_COPIED {
        spec.remove(*key);
    }
    if !arguments.param.is_empty() {
        let parameters = spec.entry("parameters").or_insert_with(|| json!({}));
        if let Some(parameters) = parameters.as_object_mut() {
            for (key, value) in &arguments.param {
                parameters.insert(key.clone(), Value::String(value.clone()));
            }
        }
    }
    let all = object
        .value()
        .get("metadata")
        .and_then(|metadata| metadata.get("labels")?.as_object());
    // Labels of ours say whose child a run is and who submitted it, which is not true of the new one.
    let kept: Map<String, Value> = all
        .into_iter()
        .flatten()
        .filter(|(key, _)| !key.contains("proompteng.ai/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut metadata = json!({
        "name": name,
        "namespace": object.namespace(),
        "annotations": {labels::RETRY_OF: object.name()},
    });
    if let (false, Some(metadata)) = (kept.is_empty(), metadata.as_object_mut()) {
        metadata.insert("labels".to_owned(), Value::Object(kept));
    }
    json!({
        "apiVersion": object.text("/apiVersion"),
        "kind": object.kind(),
        "metadata": metadata,
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Remembered;

    #[test]
    fn a_retry_of_a_retry_is_the_next_one_of_the_first_run() {
        assert_eq!(root("coder"), "coder");
        assert_eq!(root("coder-retry-3"), "coder");
        assert_eq!(root("coder-again-1"), "coder");
        assert_eq!(root("coder-retry-me"), "coder-retry-me");
        assert_eq!(root("-retry-1"), "-retry-1");
    }

    fn arguments(param: &[(&str, &str)]) -> ResubmitArgs {
        ResubmitArgs {
            what: Vec::new(),
            param: param
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            name: None,
            following: crate::cli::Following::default(),
        }
    }

    #[test]
    fn what_the_history_has_not_the_whole_of_is_not_done_again() {
        let kept = |altered: &[&str], cut: bool, spec: Value| {
            Object::from_history(
                json!({"kind": "AgentRun", "metadata": {"name": "old"}, "spec": spec}),
                Remembered {
                    cut,
                    altered: altered.iter().map(|pointer| (*pointer).to_owned()).collect(),
                },
            )
        };
        let spec = || json!({"agentRef": {"name": "coder"}});
        let told = |object: &Object, param: &[(&str, &str)]| match as_it_was(object, &arguments(param)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let token = kept(&["/spec/parameters/api~1token"], false, spec());
        let refused = told(&token, &[]);
        assert!(refused.contains("spec.parameters.api/token was"), "{refused}");
        assert!(refused.contains("--param KEY=VALUE"), "{refused}");
        assert_eq!(told(&token, &[("api/token", "new")]), "");
        let two = kept(
            &["/spec/parameters/token", "/spec/implementation/inline/text"],
            true,
            spec(),
        );
        let refused = told(&two, &[("token", "new")]);
        assert!(
            refused.contains(": spec.implementation.inline.text was"),
            "{refused}"
        );
        assert!(refused.contains("submit the work anew"), "{refused}");
        assert_eq!(told(&kept(&["/spec/idempotencyKey"], false, spec()), &[]), "");
        assert_eq!(told(&kept(&[], true, spec()), &[]), "");
        assert!(told(&kept(&[], true, json!({})), &[]).contains("too long to be kept"));
        assert_eq!(told(&Object::from_value(spec()), &[]), "");
    }

    #[test]
    fn the_new_run_has_the_work_and_nothing_of_the_old_one() {
        let old = Object::from_value(json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
            "metadata": {"name": "old", "namespace": "team", "uid": "u", "resourceVersion": "7",
                "labels": {"team": "web", "jangar.proompteng.ai/delivery-id": "k"}, "finalizers": ["f"]},
            "spec": {"agentRef": {"name": "coder"}, "cancel": true, "idempotencyKey": "k", "parameters": {"a": "1", "b": "2"}},
            "status": {"phase": "Failed"},
        }));
        assert_eq!(
            renewed(&old, "new", &arguments(&[("b", "3")])),
            json!({
                "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
                "metadata": {"name": "new", "namespace": "team", "labels": {"team": "web"},
                    "annotations": {"jangar.proompteng.ai/retry-of": "old"}},
                "spec": {"agentRef": {"name": "coder"}, "parameters": {"a": "1", "b": "3"}},
            })
        );
    }
}
