//! `describe`: one object for people.

use std::fmt::Write as _;

use jangar_api::Kind;
use serde_json::Value;

use crate::{
    cli::DescribeArgs,
    error::Error,
    object::Object,
    output::{self, Cell, Table},
    resource::{self, word},
    session::Session,
    transport::Transport,
};

/// How many Events are shown: the newest tell what is going on.
const EVENTS_MAX: usize = 20;

pub async fn describe(session: &mut Session, arguments: &DescribeArgs) -> Result<(), Error> {
    let (kind, name) = resource::one(&arguments.what)?;
    let transport = session.connect().await?;
    let object = resource::object(&transport, kind, &session.namespace(), &name).await?;
    resource::note_if_gone(session, kind, &object)?;
    if session.asked_format().is_some() {
        return output::object(session, kind, &object);
    }
    let events = events(&transport, kind, &object).await;
    let text = described(session, kind, &object)?;
    session.console.data(&text)?;
    match events {
        Ok(events) => show_events(session, &events)?,
        Err(error) => session
            .console
            .note(&format!("its events cannot be read: {error}"))?,
    }
    if kind.is_run() {
        session.console.note(&format!(
            "\nWhy it stands there: agentctl explain {} {name} -n {}",
            word(kind),
            object.namespace()
        ))?;
    }
    Ok(())
}

fn described(session: &Session, kind: Kind, object: &Object) -> Result<String, Error> {
    let mut text = String::new();
    let mut field = |name: &str, value: String| {
        if !value.is_empty() {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "{:<13}{value}", format!("{name}:"));
        }
    };
    field("Name", object.name().to_owned());
    field("Namespace", object.namespace().to_owned());
    field("Kind", kind.info().kind.clone());
    let age = object.created().and_then(|created| session.clock.age(created));
    field("Age", age.unwrap_or_default());
    field("Labels", pairs(object, "labels"));
    field("Status", object.standing());
    let started = object.text("/status/startedAt");
    let took = session.clock.between(started, object.text("/status/finishedAt"));
    field("Took", took.unwrap_or_default());
    if object.is_being_deleted() {
        let held: Vec<&str> = object.finalizers().collect();
        field("Deleting", format!("held by {}", held.join(", ")));
    }
    if let Some(spec) = object.value().get("spec") {
        text.push_str("Spec:\n");
        text.push_str(&indented(&output::yaml(spec)?));
    }
    if let Some(outcome) = object.value().pointer("/status/outcome") {
        text.push_str("Outcome:\n");
        text.push_str(&indented(&output::yaml(outcome)?));
    }
    if let Some(url) = object.text("/status/vcs/pullRequest/url") {
        let _ = writeln!(text, "{:<13}{url}", "PullRequest:");
    }
    let steps = steps(session, object);
    if let Some(steps) = steps {
        text.push_str("Steps:\n");
        text.push_str(&indented(&steps.render(session.console.colour)));
    }
    let conditions = conditions(session, object);
    if let Some(conditions) = conditions {
        text.push_str("Conditions:\n");
        text.push_str(&indented(&conditions.render(session.console.colour)));
    }
    Ok(text)
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["  ", line, "\n"]).collect()
}

fn pairs(object: &Object, what: &str) -> String {
    let found = object
        .value()
        .get("metadata")
        .and_then(|metadata| metadata.get(what)?.as_object());
    let mut pairs: Vec<String> = found
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    pairs.join(", ")
}

fn steps(session: &Session, object: &Object) -> Option<Table> {
    let steps = ["/status/stepStatuses", "/status/workflow/steps"]
        .into_iter()
        .find_map(|place| object.value().pointer(place)?.as_array())?;
    let mut table = Table::new(["STEP", "PHASE", "ATTEMPT", "TOOK", "REASON"]);
    for step in steps {
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        let took = session.clock.between(text("startedAt"), text("finishedAt"));
        let attempt = step.get("attempt").and_then(Value::as_i64);
        table.push(vec![
            Cell::optional(text("name")),
            Cell::word(text("phase").unwrap_or("Pending")),
            Cell::optional(attempt.map(|attempt| attempt.to_string())),
            Cell::optional(took),
            Cell::optional(text("reason").or_else(|| text("message"))),
        ]);
    }
    Some(table)
}

fn conditions(session: &Session, object: &Object) -> Option<Table> {
    let mut table = Table::new(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]);
    let mut any = false;
    for condition in object.conditions() {
        any = true;
        table.push(vec![
            Cell::plain(condition.type_),
            Cell::plain(condition.status),
            Cell::plain(condition.reason),
            Cell::optional(condition.since.and_then(|since| session.clock.age(since))),
            Cell::plain(condition.message),
        ]);
    }
    any.then_some(table)
}

/// The Events about an object, the newest last.
async fn events(transport: &Transport, kind: Kind, object: &Object) -> Result<Vec<Object>, Error> {
    let mut events = transport.events(kind, object).await?;
    events.sort_by_key(|event| last_seen(event).unwrap_or_default().to_owned());
    let surplus = events.len().saturating_sub(EVENTS_MAX);
    events.drain(..surplus);
    Ok(events)
}

fn last_seen(event: &Object) -> Option<&str> {
    [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ]
    .into_iter()
    .find_map(|place| event.text(place))
}

fn show_events(session: &mut Session, events: &[Object]) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["LAST", "TYPE", "REASON", "MESSAGE"]);
    for event in events {
        table.push(vec![
            Cell::optional(last_seen(event).and_then(|seen| session.clock.age(seen))),
            Cell::optional(event.text("/type")),
            Cell::optional(event.text("/reason")),
            Cell::optional(event.text("/message")),
        ]);
    }
    let text = format!("Events:\n{}", indented(&table.render(session.console.colour)));
    session.console.data(&text)
}
