//! `create impl`: a piece of work, described by a text.

use jangar_api::{Kind, agents::implementation_spec::OriginProvider};
use serde_json::{Map, Value, json};

use crate::{
    cli::{CreateArgs, CreateKind},
    error::Error,
    manifest,
    output::{self, Format},
    session::Session,
};

pub async fn create(session: &mut Session, arguments: CreateArgs) -> Result<(), Error> {
    let CreateKind::Impl {
        text,
        summary,
        source,
        name,
    } = arguments.kind;
    let text = manifest::text_argument(&text)?;
    if text.trim().is_empty() {
        return Err(Error::Validation(
            "the text is empty: say what is to be done".to_owned(),
        ));
    }
    let mut spec = json!({"text": text});
    if let Some(fields) = spec.as_object_mut() {
        if let Some(summary) = summary {
            fields.insert("summary".to_owned(), json!(summary));
        }
        if let Some(source) = source {
            fields.insert("source".to_owned(), origin(&source)?);
        }
    }
    let info = Kind::ImplementationSpec.info();
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let metadata = match &name {
        Some(name) => json!({"name": name, "namespace": namespace}),
        None => json!({"generateName": "impl-", "namespace": namespace}),
    };
    let object = json!({
        "apiVersion": format!("{}/{}", info.group, info.version), "kind": info.kind, "metadata": metadata, "spec": spec,
    });
    let Some(made) = transport
        .create(Kind::ImplementationSpec, &namespace, &object)
        .await?
    else {
        return Err(Error::Validation(format!(
            "there is an ImplementationSpec called {} already: give another --name",
            name.unwrap_or_default()
        )));
    };
    match session.format() {
        Format::Table | Format::Wide => session.console.line(&format!("impl/{} created", made.name())),
        _ => output::object(session, Kind::ImplementationSpec, &made),
    }
}

/// `provider=github,externalId=…,url=…`.
fn origin(text: &str) -> Result<Value, Error> {
    let mut origin = Map::new();
    for part in text.split(',') {
        match part.split_once('=') {
            Some((key @ ("provider" | "externalId" | "url"), value)) => {
                origin.insert(key.to_owned(), json!(value));
            }
            _ => {
                return Err(Error::Validation(format!(
                    "--source has '{part}': give provider=…, externalId=… and url=…, with commas between them"
                )));
            }
        }
    }
    let provider = origin.get("provider").and_then(Value::as_str).unwrap_or_default();
    let known: Vec<&str> = OriginProvider::KNOWN.iter().map(OriginProvider::as_str).collect();
    if !known.contains(&provider) {
        return Err(Error::Validation(format!(
            "--source has the provider '{provider}': give one of {}",
            known.join(", ")
        )));
    }
    Ok(Value::Object(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_from_pairs() {
        assert_eq!(
            origin("provider=github,externalId=o/r#1").expect("a source"),
            json!({"provider": "github", "externalId": "o/r#1"})
        );
        for wrong in [
            "",
            "github",
            "provider=carrier-pigeon",
            "externalId=1",
            "provider=github,author=me",
        ] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }
}
