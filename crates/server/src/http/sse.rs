//! Server-sent events. A client that comes back with `Last-Event-ID` goes on where it was, or is told to look at everything again.

use std::{convert::Infallible, sync::Arc};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, Sse},
};
use futures::{Stream, StreamExt, future, stream};
use http::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    metrics::Protocol,
    plane::{
        Caller, ControlPlane,
        logs::{Line, Said},
        stream::{Subscription, Told},
    },
    refusal::Refusal,
};

const LAST_EVENT_ID: &str = "last-event-id";

/// Where the client was: as its browser says, or as the query does, for clients that cannot set headers.
pub(super) fn last_id(headers: &HeaderMap, query: Option<String>) -> Option<String> {
    let header = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    header.map(str::to_owned).or(query).filter(|id| !id.is_empty())
}

/// A stream of changes, with other events between them, of which what is there already comes first.
pub(super) async fn changes(
    plane: &Arc<ControlPlane>,
    caller: Caller,
    subscription: Subscription,
    others: impl Stream<Item = Value> + Send + 'static,
) -> Result<Response, Refusal> {
    let changes = plane.changes(caller, subscription, Protocol::Http).await?;
    let mut others = Box::pin(others.map(|value| event(None, &value)).fuse());
    let first = stream::iter(others.next().await);
    let changes = changes.map(|told| match told {
        Ok(told) => of(told),
        Err(refusal) => event(None, &json!({"type": "error", "error": refusal.to_string()})),
    });
    // With the changes all is over.
    let changes = changes.map(Some).chain(stream::iter([None]));
    let all = stream::select(changes, others.map(Some));
    let all = all.take_while(|event| future::ready(event.is_some()));
    Ok(response(first.chain(all.filter_map(future::ready))))
}

/// A stream of lines of a log.
pub(super) fn lines(said: impl Stream<Item = Result<Said, Refusal>> + Send + 'static) -> Response {
    let lines = said.map(|said| match said {
        Ok(Said::Line(line)) => event(None, &of_line(&line)),
        Ok(Said::Heartbeat) => heartbeat(),
        Err(refusal) => event(None, &json!({"type": "error", "error": refusal.to_string()})),
    });
    let end = stream::once(async { event(None, &json!({"type": "end"})) });
    response(lines.chain(end))
}

fn of_line(line: &Line) -> Value {
    let origin = &line.origin;
    let mut value = json!({
        "type": "log", "pod": origin.pod, "container": origin.container, "stream": "stdout", "message": line.text,
        "archived": origin.archived, "cut": line.cut, "partial": line.partial,
    });
    if origin.archived {
        value["step"] = json!(origin.step);
        value["attempt"] = json!(origin.attempt);
    }
    value
}

fn heartbeat() -> Event {
    Event::default().comment("heartbeat")
}

fn response(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    Sse::new(events.map(Ok::<_, Infallible>)).into_response()
}

fn of(told: Told) -> Event {
    match told {
        Told::Object { id, action, object } => event(
            id.as_deref(),
            &ToldObject {
                type_: "resource",
                kind: &object.kind.info().kind,
                action: action.word(),
                namespace: &object.namespace,
                name: &object.name,
                resource: &object.json,
            },
        ),
        Told::Reset { cut } => event(None, &json!({"type": "reset", "cut": cut})),
        Told::Synced { id } => event(Some(&id), &json!({"type": "synced"})),
        // An event without data is none to a program, and moves the place to which it comes back.
        Told::Heartbeat { id } => heartbeat().id(id),
    }
}

/// What is told of an object. It borrows, because many streams tell of the same one.
#[derive(Serialize)]
struct ToldObject<'a> {
    #[serde(rename = "type")]
    type_: &'static str,
    kind: &'a str,
    action: &'static str,
    namespace: &'a str,
    name: &'a str,
    resource: &'a Value,
}

fn event(id: Option<&str>, value: &impl Serialize) -> Event {
    // All that is told here can be written as JSON.
    let text = serde_json::to_string(value).unwrap_or_default();
    // JSON has its line ends escaped, and the id is made of ours: neither breaks the stream.
    let event = Event::default().data(text);
    match id {
        Some(id) => event.id(id),
        None => event,
    }
}
