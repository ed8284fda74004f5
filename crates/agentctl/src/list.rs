//! `list` and `get`: objects as they are.

use jangar_api::Kind;
use serde_json::{Value, json};

use crate::{
    cli::{GetArgs, ListArgs, Selection},
    error::Error,
    object::Object,
    output::{self, Cell, Format, Table},
    resource,
    session::Session,
    transport::{Narrow, Transport, Wish},
};

/// How many runs of the history are listed unless told: a person looks at the latest.
const HISTORY_LIMIT: u32 = 100;
/// The word that lists the kinds themselves.
const KINDS: &str = "kinds";

pub async fn list(session: &mut Session, arguments: &ListArgs) -> Result<(), Error> {
    match arguments.kind.as_deref() {
        Some(KINDS) => kinds(session),
        word => {
            let kind = resource::kind(word.unwrap_or("run"))?;
            if arguments.archived {
                return history(session, kind, arguments).await;
            }
            let transport = session.connect().await?;
            show(session, &transport, kind, &arguments.selection).await
        }
    }
}

/// The runs that the history has.
async fn history(session: &mut Session, kind: Kind, arguments: &ListArgs) -> Result<(), Error> {
    if !kind.is_run() {
        return Err(Error::Validation(format!(
            "the history has runs, and no {}: leave --archived out",
            kind.info().plural
        )));
    }
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let all = arguments.selection.all_namespaces;
    let limit = arguments.limit.unwrap_or(HISTORY_LIMIT);
    let wish = Wish {
        phase: arguments.selection.phase.as_deref(),
        search: arguments.search.as_deref(),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let place = (!all).then_some(namespace.as_str());
    let listed = transport.list_history(kind, place, &wish).await?;
    output::objects(session, kind, &listed.objects, all)?;
    if listed.more {
        session
            .console
            .note("there are more: look for some with --search or --phase, or give a larger --limit")?;
    }
    Ok(())
}

pub async fn get(session: &mut Session, arguments: &GetArgs) -> Result<(), Error> {
    if arguments.what == [KINDS] {
        return kinds(session);
    }
    let (kind, name) = resource::kind_and_name(&arguments.what)?;
    let Some(name) = name else {
        let transport = session.connect().await?;
        return show(session, &transport, kind, &arguments.selection).await;
    };
    if arguments.selection.all_namespaces {
        return Err(Error::Validation(format!(
            "{name} is one object, and -A is for lists: give its namespace with -n"
        )));
    }
    let transport = session.connect().await?;
    let object = resource::object(&transport, kind, &session.namespace(), &name).await?;
    resource::note_if_gone(session, kind, &object)?;
    output::object(session, kind, &object)
}

async fn show(
    session: &mut Session,
    transport: &Transport,
    kind: Kind,
    selection: &Selection,
) -> Result<(), Error> {
    let found = selected(session, transport, kind, selection).await?;
    output::objects(session, kind, &found, selection.all_namespaces)
}

/// The objects that were asked for, by namespace and name.
pub async fn selected(
    session: &Session,
    transport: &Transport,
    kind: Kind,
    selection: &Selection,
) -> Result<Vec<Object>, Error> {
    let namespace = session.namespace();
    let place = (!selection.all_namespaces).then_some(namespace.as_str());
    let narrow = Narrow {
        selector: selection.selector.as_deref(),
        phase: selection.phase.as_deref(),
        runtime: selection.runtime.as_deref(),
    };
    let mut objects = transport.list_narrow(kind, place, &narrow).await?;
    objects.retain(|object| matches(object, selection));
    objects.sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
    Ok(objects)
}

/// Whether an object is one of those that were asked for. Labels were the API server's part.
pub fn matches(object: &Object, selection: &Selection) -> bool {
    let phase = selection
        .phase
        .as_deref()
        .is_none_or(|phase| object.standing().eq_ignore_ascii_case(phase) || is_pending(object, phase));
    let runtime = selection
        .runtime
        .as_deref()
        .is_none_or(|runtime| object.text("/spec/runtime/type") == Some(runtime));
    phase && runtime
}

/// A run without a status has not started.
fn is_pending(object: &Object, phase: &str) -> bool {
    let is_run = resource::RUNS
        .iter()
        .any(|kind| kind.info().kind == object.kind());
    phase.eq_ignore_ascii_case("Pending") && is_run && object.standing().is_empty()
}

/// The kinds themselves.
fn kinds(session: &mut Session) -> Result<(), Error> {
    let format = session.format();
    match format {
        Format::Table | Format::Wide => {
            let mut table = Table::new(["KIND", "NAMES", "APIVERSION"]);
            for kind in Kind::ALL {
                let info = kind.info();
                let names: Vec<&str> = kind.words().collect();
                table.push(vec![
                    Cell::plain(&info.kind),
                    Cell::plain(names.join(", ")),
                    Cell::plain(format!("{}/{}", info.group, info.version)),
                ]);
            }
            output::show_table(session, &table)
        }
        Format::Name => {
            for kind in Kind::ALL {
                session.console.line(&kind.info().singular)?;
            }
            Ok(())
        }
        _ => {
            let all: Vec<Value> = Kind::ALL
                .iter()
                .map(|kind| {
                    let info = kind.info();
                    let names: Vec<&str> = kind.words().collect();
                    json!({
                        "kind": info.kind, "apiVersion": format!("{}/{}", info.group, info.version), "names": names,
                    })
                })
                .collect();
            output::value(session, &Value::Array(all))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(phase: &str) -> Selection {
        Selection {
            phase: Some(phase.to_owned()),
            ..Selection::default()
        }
    }

    #[test]
    fn a_run_without_a_status_is_pending() {
        let run = Object::from_value(json!({"kind": "AgentRun", "spec": {}}));
        assert!(matches(&run, &selection("pending")));
        assert!(!matches(&run, &selection("Running")));
        let agent = Object::from_value(json!({"kind": "Agent", "spec": {}}));
        assert!(!matches(&agent, &selection("Pending")));
    }
}
