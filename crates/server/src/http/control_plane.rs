//! `/api/agents/control-plane`: objects of every kind, Events, logs, the status and live updates; and the probes.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use futures::{StreamExt, stream as streams};
use http::{HeaderMap, header::CONTENT_TYPE};
use jangar_api::Kind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer::Answer,
    bodies::{
        Alive, DeletedObject, KubernetesObject, LogAnswer, ObjectEvents, ObjectPage, OneObject, Ready,
        Summary,
    },
    extract::{Document, Key, Params, Who},
    objects::{InNamespace, made},
    openapi, sse,
};
use crate::{
    access::Question,
    plane::{
        ControlPlane,
        logs::LogQuery,
        objects::{ALL_NAMESPACES, ListQuery},
        status::{SERVICE, StatusDocument},
        stream::Subscription,
    },
    refusal::{Refusal, Trouble},
    world::Filter,
};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Which objects are listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResourceList {
    /// Such as `AgentRun`, or `agentruns`.
    kind: String,
    /// `*` is every one; absent: the namespace of Jangar itself.
    namespace: Option<String>,
    label_selector: Option<String>,
    phase: Option<String>,
    runtime: Option<String>,
    /// Words that name, labels or summary have to contain.
    search: Option<String>,
    /// At most 500.
    limit: Option<u32>,
    cursor: Option<String>,
    /// As server-sent events.
    stream: Option<bool>,
    /// Where a stream goes on, for clients that cannot send `Last-Event-ID`.
    last_event_id: Option<String>,
}

/// Which object is meant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OneResource {
    kind: String,
    name: String,
    namespace: Option<String>,
    /// As server-sent events.
    stream: Option<bool>,
    last_event_id: Option<String>,
}

/// An object to be created or updated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewResource {
    /// The kind of the object.
    kind: String,
    namespace: Option<String>,
    name: String,
    spec: Value,
}

/// Which Events are meant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EventList {
    kind: String,
    name: String,
    uid: Option<String>,
    namespace: Option<String>,
    /// At most 200.
    limit: Option<u32>,
}

/// Which log is meant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RunLog {
    /// The run.
    name: String,
    namespace: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    /// At most 5000.
    tail_lines: Option<u32>,
}

/// Which changes are meant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ChangeStream {
    /// `*` is every one; absent: the namespace of Jangar itself.
    namespace: Option<String>,
    /// Kinds, separated by commas; absent: all that the caller may watch.
    kinds: Option<String>,
    last_event_id: Option<String>,
}

/// A kind by any of its names.
pub(crate) fn kind_named(field: &str, word: &str) -> Result<Kind, Refusal> {
    let wanted = word.trim();
    let found = Kind::ALL.iter().find(|kind| {
        let info = kind.info();
        info.kind.eq_ignore_ascii_case(wanted)
            || info.plural.eq_ignore_ascii_case(wanted)
            || info.short_names.contains(&wanted)
    });
    found.copied().ok_or_else(|| {
        let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.info().kind.as_str()).collect();
        Refusal::field(field, word, "this is none of the kinds")
            .remedy(format!("give one of {}", all.join(", ")))
    })
}

pub(super) async fn resources(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    headers: HeaderMap,
    Params(query): Params<ResourceList>,
) -> Result<Response, Refusal> {
    let kind = kind_named("kind", &query.kind)?;
    let list = ListQuery {
        namespace: query
            .namespace
            .unwrap_or_else(|| plane.default_namespace().to_owned()),
        label_selector: query.label_selector.unwrap_or_default(),
        phase: query.phase.unwrap_or_default(),
        runtime: query.runtime.unwrap_or_default(),
        subject: String::new(),
        search: query.search.unwrap_or_default(),
        limit: query.limit.unwrap_or_default(),
        cursor: query.cursor.unwrap_or_default(),
    };
    if query.stream == Some(true) {
        let subscription = Subscription {
            kinds: vec![kind],
            filter: list.filter()?,
            name: None,
            last_id: sse::last_id(&headers, query.last_event_id),
            snapshot: true,
        };
        return sse::changes(&plane, caller, subscription, streams::empty()).await;
    }
    let page = plane.list(&caller, kind, &list).await?;
    let page = ObjectPage {
        kind: kind.info().kind.clone(),
        items: page.objects.into_iter().map(KubernetesObject::from).collect(),
        next_cursor: page.next,
    };
    Ok(Answer::ok(page).into_response())
}

pub(super) async fn get_resource(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    headers: HeaderMap,
    Params(query): Params<OneResource>,
) -> Result<Response, Refusal> {
    let kind = kind_named("kind", &query.kind)?;
    let namespace = plane.namespace(query.namespace.as_deref())?;
    let object = plane.get(&caller, kind, &namespace, &query.name).await?;
    if query.stream == Some(true) {
        let subscription = Subscription {
            kinds: vec![kind],
            filter: Filter {
                namespace: Some(namespace),
                ..Filter::default()
            },
            name: Some(query.name),
            last_id: sse::last_id(&headers, query.last_event_id),
            snapshot: true,
        };
        return sse::changes(&plane, caller, subscription, streams::empty()).await;
    }
    let resource = object.into();
    Ok(Answer::ok(OneObject { resource }).into_response())
}

/// As in earlier versions, only ImplementationSpecs are written here; the other kinds have `kubectl`, `agentctl` and gRPC.
pub(super) async fn post_resource(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(_): Key,
    Document(new): Document<NewResource>,
) -> Result<Answer<OneObject>, Refusal> {
    let kind = kind_named("kind", &new.kind)?;
    if kind != Kind::ImplementationSpec {
        return Err(
            Refusal::field("kind", &new.kind, "only ImplementationSpecs are written here")
                .remedy("apply other kinds with agentctl or kubectl"),
        );
    }
    let namespace = plane.namespace(new.namespace.as_deref())?;
    let info = kind.info();
    let manifest = json!({
        "apiVersion": format!("{}/{}", info.group, info.version), "kind": info.kind,
        "metadata": {"name": new.name}, "spec": new.spec,
    });
    let object = plane.apply(&caller, kind, &namespace, manifest).await?;
    Ok(made(object))
}

pub(super) async fn delete_resource(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(query): Params<OneResource>,
) -> Result<Answer<DeletedObject>, Refusal> {
    let kind = kind_named("kind", &query.kind)?;
    let namespace = plane.namespace(query.namespace.as_deref())?;
    let object = plane.delete(&caller, kind, &namespace, &query.name).await?;
    Ok(Answer::ok(DeletedObject {
        resource: object.map(KubernetesObject::from),
    }))
}

pub(super) async fn events(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(query): Params<EventList>,
) -> Result<Answer<ObjectEvents>, Refusal> {
    let kind = kind_named("kind", &query.kind)?;
    let namespace = plane.namespace(query.namespace.as_deref())?;
    plane.get(&caller, kind, &namespace, &query.name).await?;
    let limit = query.limit.unwrap_or_default();
    let items = plane
        .events(
            &caller,
            &namespace,
            &kind.info().kind,
            &query.name,
            query.uid.as_deref(),
            limit,
        )
        .await?;
    Ok(Answer::ok(ObjectEvents { items }))
}

pub(super) async fn logs(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(query): Params<RunLog>,
) -> Result<Answer<LogAnswer>, Refusal> {
    let run = plane
        .run(
            &caller,
            &query.name,
            query.namespace.as_deref(),
            Some(Kind::AgentRun),
        )
        .await?;
    let which = LogQuery {
        pod: query.pod,
        container: query.container,
        tail_lines: query.tail_lines.unwrap_or_default(),
        ..LogQuery::default()
    };
    let log = plane.log(&caller, &run, &which).await?;
    Ok(Answer::ok(LogAnswer { log }))
}

pub(super) async fn status(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(at): Params<InNamespace>,
) -> Result<Answer<StatusDocument>, Refusal> {
    let status = plane.status(&caller, at.namespace.as_deref()).await?;
    Ok(Answer::ok(status))
}

pub(super) async fn summary(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(at): Params<InNamespace>,
) -> Result<Answer<Summary>, Refusal> {
    let namespace = at
        .namespace
        .unwrap_or_else(|| plane.default_namespace().to_owned());
    let resources = plane.summary(&caller, &namespace).await?;
    Ok(Answer::ok(Summary { namespace, resources }))
}

pub(super) async fn stream(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    headers: HeaderMap,
    Params(query): Params<ChangeStream>,
) -> Result<Response, Refusal> {
    let namespace = query
        .namespace
        .unwrap_or_else(|| plane.default_namespace().to_owned());
    let filter = ListQuery {
        namespace: namespace.clone(),
        ..ListQuery::default()
    }
    .filter()?;
    let mut kinds = Vec::new();
    match query.kinds.as_deref() {
        Some(words) => {
            for word in words.split(',') {
                kinds.push(kind_named("kinds", word)?);
            }
        }
        None => {
            for kind in Kind::ALL {
                let question = Question::on(
                    "watch",
                    *kind,
                    filter.namespace.as_deref().unwrap_or_default(),
                    "",
                );
                if plane.gatekeeper.may(&caller.identity, &question).await? {
                    kinds.push(*kind);
                }
            }
            if kinds.is_empty() {
                kinds.push(Kind::AgentRun);
            }
        }
    }
    let subscription = Subscription {
        kinds,
        filter,
        name: None,
        last_id: sse::last_id(&headers, query.last_event_id),
        snapshot: false,
    };
    let statuses = (namespace != ALL_NAMESPACES).then(|| plane.statuses(caller.clone(), namespace));
    let statuses = streams::iter(statuses).flatten();
    sse::changes(
        &plane,
        caller,
        subscription,
        statuses.map(|status| json!({"type": "status", "status": status})),
    )
    .await
}

/// Agents sent messages to each other through a broker in earlier versions, and this showed them.
pub(super) async fn agent_messages(Who(_): Who) -> Refusal {
    Refusal::new(Trouble::Gone, "messages between agents are not kept any more")
        .remedy("follow a run with /v1/runs/ID/logs?follow=true, /v1/runs/ID/events or /api/agents/control-plane/stream")
}

/// Alive. It depends on nothing.
pub(super) async fn health() -> Answer<Alive> {
    Answer::ok(Alive {
        status: "ok",
        service: SERVICE,
    })
}

/// Ready, or what is missing. It says no more than everybody may know.
pub(super) async fn ready(State(plane): State<Arc<ControlPlane>>) -> Result<Answer<Ready>, Refusal> {
    let missing = plane.missing();
    if !missing.is_empty() {
        let message = format!("not ready: {}", missing.join("; "));
        return Err(Refusal::unavailable(message).details(json!({"missing": missing})));
    }
    let mut notes = Vec::new();
    // Runs go on without their history, so that it does not decide. Where it is, is not for everybody.
    if plane.history_is_away() {
        notes.push(
            "the database with the history does not answer; the status of the control plane says why"
                .to_owned(),
        );
    }
    // Old answers are better than none: every other replica would have the same trouble.
    let stale = plane.world.stale();
    if !stale.is_empty() {
        let kinds: Vec<&str> = stale.iter().map(|kind| kind.info().plural.as_str()).collect();
        notes.push(format!(
            "what is told of {} may be old, because their watches fail; the status of the control plane says why",
            kinds.join(", ")
        ));
    }
    Ok(Answer::ok(Ready {
        status: "ready",
        notes,
    }))
}

pub(super) async fn document(Who(_): Who) -> Response {
    axum::Json(openapi::document()).into_response()
}

/// The metrics, for callers who may get this path.
pub(super) fn metrics(
    path: String,
    write: Arc<dyn Fn() -> String + Send + Sync>,
) -> MethodRouter<Arc<ControlPlane>> {
    get(
        async move |State(plane): State<Arc<ControlPlane>>, Who(caller): Who| {
            let question = Question::Path(path.clone());
            plane.gatekeeper.require(&caller.identity, &question).await?;
            Ok::<_, Refusal>(([(CONTENT_TYPE, METRICS_TYPE)], write()))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_any_of_its_names() {
        for word in ["AgentRun", "agentrun", "agentruns", "ar", " AgentRun "] {
            assert_eq!(kind_named("kind", word), Ok(Kind::AgentRun), "{word}");
        }
        let refusal = kind_named("kind", "Pod").expect_err("it is none of ours");
        assert_eq!(refusal.trouble, Trouble::BadRequest);
    }
}
