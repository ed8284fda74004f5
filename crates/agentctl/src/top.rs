//! `top`: what runs and what waits, the longest first.

use jangar_api::Kind;
use serde_json::{Value, json};

use crate::{
    cli::TopArgs,
    error::Error,
    object::Object,
    output::{self, Cell, Table},
    resource::{RUNS, word},
    session::Session,
    wait,
};

pub async fn top(session: &mut Session, arguments: &TopArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let place = (!arguments.all_namespaces).then_some(namespace.as_str());
    let mut active: Vec<(Kind, Object)> = Vec::new();
    for kind in RUNS {
        let runs = transport.list(kind, place, None).await?;
        active.extend(
            runs.into_iter()
                .filter(|run| !run.has_ended())
                .map(|run| (kind, run)),
        );
    }
    // What works stands before what waits; of each, what has done so for longest.
    active.sort_by_key(|(_, run)| {
        (
            rank(run),
            since(run).unwrap_or_default().to_owned(),
            run.name().to_owned(),
        )
    });
    let format = session.format();
    if output::is_for_programs(&format) {
        let all: Vec<Value> = active
            .iter()
            .map(|(kind, run)| {
                json!({
                    "kind": kind.info().kind, "namespace": run.namespace(), "name": run.name(), "phase": run.phase(),
                    "standing": wait::standing(*kind, run), "since": since(run),
                })
            })
            .collect();
        return output::value(session, &Value::Array(all));
    }
    if active.is_empty() {
        return session.console.note("Nothing runs, and nothing waits.");
    }
    let mut table = Table::new(["RUN", "NAMESPACE", "PHASE", "FOR", "OF", "AT"]);
    for (kind, run) in &active {
        let standing = wait::standing(*kind, run);
        let at = standing.split_once(" · ").map_or("", |(_, at)| at);
        table.push(vec![
            Cell::plain(format!("{}/{}", word(*kind), run.name())),
            Cell::plain(run.namespace()),
            Cell::word(run.phase()),
            Cell::optional(since(run).and_then(|since| session.clock.age(since))),
            Cell::plain(of(run)),
            Cell::plain(at),
        ]);
    }
    output::show_table(session, &table)?;
    let counted = |phase: &str| active.iter().filter(|(_, run)| run.phase() == phase).count();
    session.console.note(&format!(
        "{} running, {} pending, {} being cancelled",
        counted("Running"),
        counted("Pending"),
        counted("Cancelling")
    ))
}

fn rank(run: &Object) -> u8 {
    match run.phase() {
        "Running" => 0,
        "Cancelling" => 1,
        _ => 2,
    }
}

/// Since when it is in its phase, as far as that is known.
fn since(run: &Object) -> Option<&str> {
    match run.phase() {
        "Running" => run.text("/status/startedAt"),
        _ => None,
    }
    .or_else(|| run.created())
}

/// What it is a run of.
fn of(run: &Object) -> &str {
    ["agentRef", "orchestrationRef", "toolRef"]
        .into_iter()
        .find_map(|field| run.value().get("spec")?.get(field)?.get("name")?.as_str())
        .unwrap_or_default()
}
