//! `apply`: manifests by server-side apply.

use serde_json::Value;

use crate::{
    check,
    cli::{ApplyArgs, DryRun},
    error::Error,
    manifest::{self, Document, Manifests, Mistake},
    output::{self, Format},
    session::Session,
    transport::{Applied, ApplyOptions, Transport},
};

pub async fn apply(session: &mut Session, arguments: &ApplyArgs) -> Result<(), Error> {
    let documents = Manifests::read(&arguments.filename).whole()?;
    match arguments.dry_run {
        Some(DryRun::Client) => return offline(session, &documents),
        Some(DryRun::Server | DryRun::None) | None => {}
    }
    let dry_run = arguments.dry_run == Some(DryRun::Server);
    let options = ApplyOptions {
        dry_run,
        force: arguments.force_conflicts,
    };
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let mut ordered: Vec<&Document> = documents.iter().collect();
    // What lives in a namespace needs it.
    ordered.sort_by_key(|document| document.text("/kind") != "Namespace");
    if ordered.len() > 1 && !dry_run {
        checked(&transport, &ordered, &namespace, options).await?;
    }
    for document in ordered {
        let (object, applied) = transport
            .apply(&document.value, &namespace, options)
            .await
            .map_err(|error| placed(error, document))?;
        told(session, &object, applied, dry_run)?;
    }
    Ok(())
}

/// Lets the API server look at all documents first, so that a mistake in the last one leaves nothing half done.
async fn checked(
    transport: &Transport,
    documents: &[&Document],
    namespace: &str,
    options: ApplyOptions,
) -> Result<(), Error> {
    let dry = ApplyOptions {
        dry_run: true,
        ..options
    };
    let makes_namespaces = documents
        .iter()
        .any(|document| document.text("/kind") == "Namespace");
    let mut mistakes = Vec::new();
    for document in documents {
        match transport.apply(&document.value, namespace, dry).await {
            Ok(_) => {}
            Err(Error::Validation(text)) => mistakes.push(Mistake {
                place: document.called(),
                text,
            }),
            // Its namespace may be one of the documents.
            Err(error) if makes_namespaces && error.is_not_found() => {}
            Err(error) => return Err(placed(error, document)),
        }
    }
    if mistakes.is_empty() {
        Ok(())
    } else {
        Err(manifest::refused(&mistakes))
    }
}

/// What can be checked without a cluster.
fn offline(session: &mut Session, documents: &[Document]) -> Result<(), Error> {
    let mistakes: Vec<Mistake> = check::lint::findings(documents)
        .into_iter()
        .filter(|finding| finding.is_error)
        .map(|finding| finding.mistake)
        .collect();
    if !mistakes.is_empty() {
        return Err(manifest::refused(&mistakes));
    }
    for document in documents {
        let name = format!(
            "{}/{}",
            document.text("/kind").to_ascii_lowercase(),
            document.name()
        );
        session
            .console
            .line(&format!("{name} is well formed (dry run)"))?;
    }
    Ok(())
}

fn placed(error: Error, document: &Document) -> Error {
    match error {
        Error::Validation(text) => Error::Validation(format!("{}: {text}", document.called())),
        other => other,
    }
}

fn told(
    session: &mut Session,
    object: &crate::object::Object,
    applied: Applied,
    dry_run: bool,
) -> Result<(), Error> {
    let name = format!("{}/{}", object.kind().to_ascii_lowercase(), object.name());
    match session.format() {
        Format::Table | Format::Wide => {
            let dry = if dry_run { " (server dry run)" } else { "" };
            session.console.line(&format!("{name} {}{dry}", applied.word()))
        }
        Format::Name => session.console.line(&name),
        Format::Yaml | Format::YamlStream => {
            let text = output::yaml(&object.shown())?;
            session.console.data(&format!("---\n{text}"))
        }
        Format::Json | Format::JsonPath(_) => {
            let shown: Value = object.shown();
            output::value(session, &shown)
        }
    }
}
