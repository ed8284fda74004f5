//! The columns of a kind: those that its definition has for `kubectl get`, after three that all kinds share.

use jangar_api::Kind;
use serde_json::Value;

use super::{Cell, JsonPath, Table};
use crate::{clock::Clock, object::Object};

/// Columns of the definition that say what STATUS and AGE say already.
const SAID_ALREADY: &[&str] = &["Phase", "Ready", "Age", "Succeeded", "RunId"];

/// One column of a kind.
#[derive(Debug)]
struct Column {
    name: String,
    path: JsonPath,
    is_date: bool,
}

/// A table of objects of one kind: NAME, NAMESPACE and STATUS, then what the kind has of its own.
pub fn table(kind: Kind, objects: &[Object], wide: bool, clock: Clock) -> Table {
    let columns = columns(kind, wide);
    let mut header = vec!["NAME".to_owned(), "NAMESPACE".to_owned(), "STATUS".to_owned()];
    header.extend(columns.iter().map(|column| column.name.to_uppercase()));
    header.push("AGE".to_owned());
    if wide {
        header.push("LABELS".to_owned());
    }
    let mut table = Table::new(header);
    for object in objects {
        table.push(row(kind, object, &columns, wide, clock));
    }
    table
}

fn row(kind: Kind, object: &Object, columns: &[Column], wide: bool, clock: Clock) -> Vec<Cell> {
    let mut row = vec![
        Cell::plain(object.name()),
        Cell::plain(object.namespace()),
        Cell::word(match object.standing() {
            // A run that nobody has looked at yet has not started.
            standing if standing.is_empty() && kind.is_run() => "Pending".to_owned(),
            standing => standing,
        }),
    ];
    for column in columns {
        let text = column.path.render(object.value());
        let text = if column.is_date {
            clock.age(&text).unwrap_or_default()
        } else {
            text
        };
        row.push(Cell::plain(text));
    }
    row.push(Cell::optional(
        object.created().and_then(|created| clock.age(created)),
    ));
    if wide {
        row.push(Cell::plain(labels(object)));
    }
    row
}

fn columns(kind: Kind, wide: bool) -> Vec<Column> {
    let versions = kind.crd().spec.versions;
    let defined = versions
        .into_iter()
        .flat_map(|version| version.additional_printer_columns.unwrap_or_default());
    defined
        .filter(|column| wide || column.priority.unwrap_or(0) == 0)
        .filter(|column| !SAID_ALREADY.contains(&column.name.as_str()))
        .filter_map(|column| {
            Some(Column {
                path: JsonPath::parse(&column.json_path).ok()?,
                name: column.name,
                is_date: column.type_ == "date",
            })
        })
        .collect()
}

fn labels(object: &Object) -> String {
    let Some(Value::Object(labels)) = object.value().pointer("/metadata/labels") else {
        return String::new();
    };
    let mut pairs: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_every_kind_can_be_read() {
        for kind in Kind::ALL {
            for version in kind.crd().spec.versions {
                for column in version.additional_printer_columns.unwrap_or_default() {
                    let read = JsonPath::parse(&column.json_path);
                    assert!(read.is_ok(), "{kind:?} {}: {read:?}", column.name);
                }
            }
        }
    }
}
