//! How objects are shown: as a table, whole, by name, or by a template.

pub mod columns;
mod jsonpath;
mod table;

use std::str::FromStr;

use jangar_api::Kind;
use serde_json::{Value, json};

pub use self::{
    jsonpath::JsonPath,
    table::{Cell, Table},
};
use crate::{error::Error, object::Object, session::Session};

/// The forms that can be asked for, as messages list them.
const FORMATS: &str = "table, wide, json, yaml, yaml-stream, name, text or jsonpath=TEMPLATE";

/// How objects are shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    /// One YAML document for each object.
    YamlStream,
    /// `kind/name`, a line each.
    Name,
    JsonPath(JsonPath),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(template) = text.strip_prefix("jsonpath=") {
            return JsonPath::parse(template).map(Self::JsonPath);
        }
        Ok(match text {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "yaml-stream" => Self::YamlStream,
            "name" | "text" => Self::Name,
            _ => return Err(format!("there is no such output: give {FORMATS}")),
        })
    }
}

/// Shows a list of objects of one kind.
pub fn objects(
    session: &mut Session,
    kind: Kind,
    objects: &[Object],
    all_namespaces: bool,
) -> Result<(), Error> {
    let format = session.format();
    match &format {
        Format::Table | Format::Wide => {
            if objects.is_empty() {
                let place = if all_namespaces {
                    "any namespace".to_owned()
                } else {
                    format!("namespace {}", session.namespace())
                };
                return session
                    .console
                    .note(&format!("No {} in {place}.", kind.info().plural));
            }
            let table = columns::table(kind, objects, format == Format::Wide, session.clock);
            show_table(session, &table)
        }
        Format::Name => names(session, objects),
        Format::YamlStream => {
            for object in objects {
                let text = yaml(&object.shown())?;
                session.console.data(&format!("---\n{text}"))?;
            }
            Ok(())
        }
        Format::Json | Format::Yaml | Format::JsonPath(_) => {
            let items: Vec<Value> = objects.iter().map(Object::shown).collect();
            value(
                session,
                &json!({"apiVersion": "v1", "kind": "List", "items": items}),
            )
        }
    }
}

/// Shows one object.
pub fn object(session: &mut Session, kind: Kind, object: &Object) -> Result<(), Error> {
    match session.format() {
        Format::Table | Format::Wide => objects(session, kind, std::slice::from_ref(object), false),
        Format::Name => names(session, std::slice::from_ref(object)),
        _ => value(session, &object.shown()),
    }
}

/// Shows a value that is no object, in one of the forms for programs; tables are for whoever knows what it is.
pub fn value(session: &mut Session, value: &Value) -> Result<(), Error> {
    let text = match session.format() {
        Format::Yaml | Format::YamlStream => yaml(value)?,
        Format::JsonPath(path) => {
            let mut text = path.render(value);
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text
        }
        Format::Json | Format::Table | Format::Wide | Format::Name => {
            format!("{}\n", serde_json::to_string_pretty(&sorted(value))?)
        }
    };
    session.console.data(&text)
}

/// Whether the output is for a program that reads the whole.
pub fn is_for_programs(format: &Format) -> bool {
    matches!(
        format,
        Format::Json | Format::Yaml | Format::YamlStream | Format::JsonPath(_)
    )
}

fn names(session: &mut Session, objects: &[Object]) -> Result<(), Error> {
    for object in objects {
        session.console.line(&format!(
            "{}/{}",
            object.kind().to_ascii_lowercase(),
            object.name()
        ))?;
    }
    Ok(())
}

pub fn show_table(session: &mut Session, table: &Table) -> Result<(), Error> {
    let text = table.render(session.console.colour);
    session.console.data(&text)
}

/// A value as YAML, with a line break at its end.
pub fn yaml(value: &Value) -> Result<String, Error> {
    let mut text = serde_saphyr::to_string(&sorted(value))
        .map_err(|error| Error::Unknown(format!("a value cannot be written as YAML: {error}")))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The same value with the keys of every object in the order of the alphabet, so that output can be compared.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let sorted = entries
                .into_iter()
                .map(|(key, value)| (key.clone(), sorted(value)));
            Value::Object(sorted.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_output_is_told_which_there_are() {
        let words = "xml".parse::<Format>().expect_err("there is no XML");
        assert!(words.contains("yaml-stream"), "{words}");
        assert_eq!("text".parse::<Format>(), Ok(Format::Name));
        assert!("jsonpath={.a".parse::<Format>().is_err());
    }
}
