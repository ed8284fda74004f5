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

    #[test]
    fn a_retry_of_a_retry_is_the_next_one_of_the_first_run() {
        assert_eq!(root("coder"), "coder");
        assert_eq!(root("coder-retry-3"), "coder");
        assert_eq!(root("coder-again-1"), "coder");
        assert_eq!(root("coder-retry-me"), "coder-retry-me");
        assert_eq!(root("-retry-1"), "-retry-1");
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
        let arguments = ResubmitArgs {
            what: Vec::new(),
            param: vec![("b".to_owned(), "3".to_owned())],
            name: None,
            following: crate::cli::Following::default(),
        };
        assert_eq!(
            renewed(&old, "new", &arguments),
            json!({
                "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
                "metadata": {"name": "new", "namespace": "team", "labels": {"team": "web"},
                    "annotations": {"jangar.proompteng.ai/retry-of": "old"}},
                "spec": {"agentRef": {"name": "coder"}, "parameters": {"a": "1", "b": "3"}},
            })
        );
    }
}
